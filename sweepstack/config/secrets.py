"""Secrets in a stack config: which texts are refused, and which values a message may show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from sweepstack.config.file import Loc
from sweepstack.config.secret_rules import (
    MOST_LOOKED_AT,
    assigned_in,
    is_secret_value,
    secret_for_a_command,
    secret_in,
    secret_in_image,
    without_given,
)
from sweepstack.core.cells import PIN
from sweepstack.core.printable import visible

RawMistakes = Iterator[tuple[Loc, str, Any]]
"""(path, what to do instead, the value to show or None)."""
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
COMMANDS: tuple[Loc, ...] = (("job", "run"), ("job", "setup"), ("job", "smoke", "run"))
"""The keys with shell commands."""
_HIDDEN = "…"
_NEVER_SHOWN: tuple[Loc, ...] = (
    *(("job", "env"), ("job", "secrets"), ("job", "not_secret")),
    *(("events", "ntfy"), ("events", "token")),
)
_ADDRESSES = frozenset(("workdir", "pull_to", "source", "endpoint", "host", "image"))
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,31}")
_LIKE_A_TOKEN = re.compile(r"(?=[A-Za-z0-9]*[0-9])(?=[A-Za-z0-9]*[A-Z])[A-Za-z0-9]{16,}")
_BEFORE_THE_SIGN = re.compile(r"([A-Z_][A-Z0-9_]*)[=: ]")
_INSTEAD = (
    "in the state, in logs and manifests; export it where you run pulumi, list its name in job.secrets, and write "
    "${NAME} here"
)
_WRITTEN_BY_US = frozenset(("approval", "placement"))


def may_show(loc: Loc, value: Any) -> bool:
    """Whether a message may quote the value at `loc`. Only this function decides that.

    Not shown: values of keys where a person may write a secret by mistake (environment, commands, network), an address
    with more than host, port, path and user, text with the form of a secret, and lists and mappings.
    """
    if any(loc[: len(place)] == place for place in _NEVER_SHOWN) or "network" in loc[2:] or "webhook" in loc:
        return False
    if isinstance(value, dict) and value:
        return False
    if isinstance(value, list):
        return len(value) <= 100 and all(not isinstance(item, dict | list) and may_show(loc, item) for item in value)
    if not isinstance(value, str):
        return True
    if any(loc[: len(place)] == place for place in COMMANDS):
        return False
    name = next((part for part in reversed(loc) if isinstance(part, str)), "")
    if is_secret_value(name, value) or secret_in(value):
        return False
    return _is_plain_address(value) if name in _ADDRESSES else True


def _is_plain_address(text: str) -> bool:
    """Whether an address is only a location, with a user at most: no password, no query, no token."""
    if len(text) > 1000 or re.search(r"[?&%]", text) or _LIKE_A_TOKEN.search(text):
        return False
    scheme, has_scheme, rest = text.partition("://")
    authority = (rest if has_scheme else text).partition("/")[0]
    user, has_user, _ = authority.rpartition("@")
    if has_user:
        return _USER.fullmatch(user) is not None and scheme.lower() not in ("http", "https", "s3")
    port = authority.partition(":")[2]
    return not has_scheme or not port or port.isdigit()


def quotable(address: str) -> str:
    """An address as a message may quote it: whole, or its scheme alone where it may hold a password."""
    scheme, sign, _ = address.partition("://")
    return address if may_show(("source",), address) else f"{scheme if sign else ''}{sign}{_HIDDEN}"


def key_shown(key: str, above: Loc) -> str:
    """A key as a message may quote it: without invisible characters, and without a value that was written into it.

    Texts with the form of a secret are removed from the whole message at the end, too (`config.problems.refuse`).
    """
    if above[:2] == ("job", "env") or "network" in above[2:]:
        sign = _BEFORE_THE_SIGN.match(key)
        if not ENV_NAME.fullmatch(key):
            return f"{sign[1]}{_HIDDEN}" if sign else _HIDDEN
    return visible(without_given(key))


def secrets_in(values: dict[str, Any]) -> RawMistakes:
    """Every text of the config that seems to hold a secret, by its form or its name. Values are not shown."""
    job, allowed = _job(values), _allowed(values)
    yield from _env(job, allowed)
    for loc in COMMANDS:
        yield from _command(loc, _at(values, loc), allowed)
    skipped = {*COMMANDS, ("job", "env"), ("job", "secrets"), ("job", "not_secret")}
    for loc, text in _texts(values, (), skipped):
        kind = secret_in(text)
        if kind and not _is_allowed(text, allowed):
            yield loc, f"looks like {kind}: it would stand in the state; take it out{_or_else('that text')}", None


def secrets_by_place(values: dict[str, Any]) -> RawMistakes:
    """What only its place tells for a secret: a parameter with a secret's name, what a command is given, an image.

    Older versions did not ask this. So it is refused while no cell of the sweep has started, and only told afterwards.
    """
    allowed = _allowed(values)
    yield from secret_params(values)
    for loc in COMMANDS:
        text = _at(values, loc)
        if isinstance(text, str) and not secret_in(text) and (kind := secret_for_a_command(_rest(text, allowed))):
            yield loc, f"gives a command {kind}: it would stand {_INSTEAD}{_or_else('that text')}", None
    image = _job(values).get("image")
    if isinstance(image, str) and secret_in_image(image) and image not in allowed:
        fix = "has a user and a password before the registry: they would stand in the state; take them out, and let the"
        yield ("job", "image"), f"{fix} platform log in{_or_else('that text')}", None


def secret_params(values: dict[str, Any]) -> RawMistakes:
    """Parameters of the cells that have the name of a secret, and a value that may be one."""
    cells, allowed = values.get("cells"), _allowed(values)
    for loc, name, value in _params(cells if isinstance(cells, dict) else {}):
        if name not in allowed and any(
            is_secret_value(name, str(one)) and str(one) not in allowed
            for one in (value if isinstance(value, list) else [value])
            if isinstance(one, str | int | float)
        ):
            where = "a secret would stand here, in names of cells and folders, in the state and in manifests"
            instead = f"take it out, write job.secrets: [{name.upper()}], and export it where you run pulumi"
            yield ("cells", *loc), f"{where}; {instead}{_or_else(name)}", None


def _params(cells: dict[str, Any]) -> Iterator[tuple[Loc, str, Any]]:
    """(path below `cells`, name, value or values) of each parameter."""
    for key in ("base", "grid", "zip"):
        found = cells.get(key)
        for name, value in found.items() if isinstance(found, dict) else ():
            yield (key, name), str(name), value
    for key in ("include", "exclude", "list", "add"):
        entries = cells.get(key)
        for index, entry in enumerate(entries) if isinstance(entries, list) else ():
            for name, value in entry.items() if isinstance(entry, dict) else ():
                if name not in ("name", PIN):
                    yield (key, index, name), str(name), value


def _job(values: dict[str, Any]) -> dict[str, Any]:
    job = values.get("job")
    return job if isinstance(job, dict) else {}


def _allowed(values: dict[str, Any]) -> set[str]:
    listed = _job(values).get("not_secret")
    return {text for text in ([listed] if isinstance(listed, str) else listed or ()) if isinstance(text, str)}


def _env(job: dict[str, Any], allowed: set[str]) -> RawMistakes:
    env = job.get("env")
    for name, value in env.items() if isinstance(env, dict) else ():
        text, loc = str(value), ("job", "env", name)
        kind = secret_in(text)
        instead = f"take it out, write job.secrets: [{name}], and export it where you run pulumi"
        if "private key" in kind:
            yield loc, f"a private key would stand here, in the state and in logs; {instead}", None
        elif name in allowed or not ENV_NAME.fullmatch(name) or name.startswith("SWEEPSTACK_"):
            continue
        elif kind or is_secret_value(name, text):
            what = f"a secret would stand here{f' (it looks like {kind})' if kind else ''}, in the state and in logs"
            yield loc, f"{what}; {instead}{_or_else(name)}", None


def _command(loc: Loc, text: Any, allowed: set[str]) -> RawMistakes:
    if not isinstance(text, str):
        return
    if len(text) > MOST_LOOKED_AT:
        yield loc, f"has {len(text):,} characters, and a shell takes {MOST_LOOKED_AT:,}; put it in a script", None
        return
    kind = secret_in(text)
    if kind and ("private key" in kind or not _is_allowed(text, allowed)):
        yield loc, f"holds {kind}: it would stand {_INSTEAD}{_or_else('that text')}", None
        return
    for name, value in assigned_in(text):
        if is_secret_value(name, value) and name not in allowed and value not in allowed:
            fix = f"{name} is given a secret here: it would stand {_INSTEAD}{_or_else(name)}"
            yield loc, fix, None


def _or_else(what: str) -> str:
    return f". If it is none: list {what} in job.not_secret"


def _is_allowed(text: str, allowed: set[str]) -> bool:
    return not secret_in(_rest(text, allowed))


def _rest(text: str, allowed: set[str]) -> str:
    """`text` with `$`, which is no value, for those that `job.not_secret` lists."""
    for known in sorted(allowed, key=len, reverse=True):
        text = text.replace(known, "$") if known else text
    return text


def _texts(value: Any, loc: Loc, skipped: set[Loc]) -> Iterator[tuple[Loc, str]]:
    """All texts below `value`, each with its path."""
    if loc in skipped or (len(loc) == 1 and loc[0] in _WRITTEN_BY_US) or "webhook" in loc:
        return
    if isinstance(value, str):
        yield loc, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(inner, (*loc, key), skipped)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _texts(inner, (*loc, index), skipped)


def _at(values: dict[str, Any], loc: Loc) -> Any:
    found: Any = values
    for part in loc:
        found = found.get(part) if isinstance(found, dict) else None
    return found
