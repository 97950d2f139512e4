"""Secrets in a stack config: which texts are refused, and which values a message may show.

A text looks like a secret by its form, by what takes it, or by the name before it. The search is pure, and never shows
the secret. Only these three tell a secret: 40 hex digits alone are a commit as well. The forms of tokens come from the
detectors of detect-secrets, and from a few rules of ours: for private keys, URLs, and services that detect-secrets does
not know. Its detectors of high entropy and of keywords are not used: they would report every commit, digest and run id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

from sweepstack.config.file import Loc
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

_NO_VALUE = r"(?![{$<…]|\*+(?:@|\s|$))"
"""A placeholder, a shell variable or asterisks in place of a value."""
_OURS = (  # texts, which `re` compiles and keeps when they are first needed: most commands need none
    ("a private key", r"(?s)(?:-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY|PuTTY-User-Key-File-\d).*"),
    ("a password in a URL", rf"://[^/\s:@'\"]*:({_NO_VALUE}[^/\s@'\"]+)@"),
    ("a token in a URL", rf"(?i)\bhttps?://({_NO_VALUE}[^/\s:@'\"]+)@"),
    (
        "a key in a URL",
        rf"[?&](?:X-Amz-Signature|sig|(?:access_)?token|(?:api_?)?key|password)=({_NO_VALUE}[^&\s'\"]{{8,}})",
    ),
    ("a Hugging Face token", r"\b(?:hf_|api_org_)[A-Za-z0-9]{20,}"),
    ("a Weights & Biases key", r"\b(?:wandb_v\d+_[A-Za-z0-9_]{20,}|local-[0-9a-f]{40}\b)"),
    ("a GitHub token", r"\bgithub_pat_[A-Za-z0-9_]{20,}"),
    ("an API key", r"\b(?:sk-(?:ant|proj|or|svcacct|live|test)-|nvapi-|r8_|rpa_|dop_v1_|glpat-)[\w-]{20,}"),
    ("a Google API key", r"\b(?:AIza|ya29\.)[A-Za-z0-9_-]{35}"),
    (
        "an Authorization header",
        rf"(?i)\bauthorization:\s*(?:\w+\s+)?({_NO_VALUE}[A-Za-z0-9._~+/=-]{{8,}})",
    ),
    (
        "a user and password",
        rf"(?:^|\s)(?:-u|--user)[ =]['\"]?[^\s:{{$'\"]+:({_NO_VALUE}(?!\d+(?:\s|$))[^\s'\"]+)",
    ),
)
_TO_A_COMMAND = (
    (
        "a Weights & Biases key",
        rf"\bwandb\s+login\s+(?:--?[\w-]+(?:[= ](?!-)\S+)?\s+)*?['\"]?({_NO_VALUE}[A-Za-z0-9_-]{{20,}})",
    ),
    (
        "a password",
        rf"\b(?:mysql\w*|mariadb[\w-]*|sshpass)\s(?:[^;&|\n]{{0,400}}?\s)?-p['\"]?({_NO_VALUE}[^\s;&|'\"]+)",
    ),
    (
        "a password",
        rf"\b(?:(?:docker|podman|skopeo|buildah|helm registry)\s+login\s(?:[^;&|\n]{{0,400}}?\s)?-p|sshpass\s+-p"
        rf"|redis-cli\s(?:[^;&|\n]{{0,400}}?\s)?-a)\s+['\"]?({_NO_VALUE}[^\s;&|'\"]+)",
    ),
    (
        "a secret for aws",
        rf"\baws\s+configure\s+set\s+\S*(?:secret|token)\S*\s+['\"]?({_NO_VALUE}[^\s;&|'\"]+)",
    ),
)
"""What these commands are given. `mysql -p` alone asks for it."""
_IN_IMAGE = re.compile(r"^[^/@\s]*:([^/@\s]+)@(?!sha\d+:)")
"""`user:password@registry/…`; `name:tag@sha256:…` is an image by its digest."""
_PART_LIKE_A_TOKEN = re.compile(r"(?=\w*?[0-9]+[A-Za-z]+[0-9]+[A-Za-z])[A-Za-z0-9]{16,}")
_WORD_OF_A_TOKEN = re.compile(r"[A-Za-z0-9_+/=.:-]{16,}")
"""detect-secrets takes only words of this form for tokens. Most commands have none, so it need not be imported."""
_DETECTORS = (
    *("artifactory", "aws", "azure_storage_key", "basic_auth", "cloudant", "discord", "github_token", "gitlab_token"),
    *("ibm_cloud_iam", "jwt", "mailchimp", "npm", "openai", "pypi_token", "sendgrid", "slack", "softlayer"),
    *("square_oauth", "stripe", "telegram_token", "twilio"),
)
_WINDOW, _OVERLAP = 4096, 512
"""Texts are searched in pieces: the time of some expressions grows with the square of the length."""
MOST_LOOKED_AT = 100_000
"""In characters. A shell takes no longer command."""
_SURE = re.compile(
    r"(API_?KEY|ACCESS_?KEY|SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|PRIVATE_?KEY|(?<![A-Z])(PASS|PWD))(_?\d+)?$",
    re.IGNORECASE,
)
_LIKELY = re.compile(r"(^|_)(KEY|AUTH)(_?\d+)?$", re.IGNORECASE)
_FILLED_IN = re.compile(r"\$?\{[A-Za-z_][A-Za-z0-9_]*\}|\$[A-Za-z_][A-Za-z0-9_]*|\$\([^()]*\)|`[^`]*`")
_HARMLESS = re.compile(
    r"[^A-Za-z0-9]*|[-+]?\d+(\.\d+)?(e[-+]?\d+)?|true|false|none|null|yes|no|on|off|auto"
    r"|sha\d+:[0-9a-f]+"
    r"|</?\|?\w+\|?>|\[\w+\]"  # special tokens of a language model: <pad>, [MASK], <|endoftext|>
    r"|(~|\.{1,2})?(/[\w.-]{1,40}){2,}|(~|\.{1,2})/[\w.-]{1,40}",  # a path is no key
    re.IGNORECASE,
)
_WORD = re.compile(r"[a-z][a-z_./]{0,23}")
_ASSIGNED = re.compile(
    r"(?:(?<![\w$.-])|(?<=\s)--?)([A-Za-z][A-Za-z0-9_-]*)(=|(?<=[A-Za-z0-9])\s+(?=[^\s-]))(\"[^\"]*\"|'[^']*'|[^\s;&|]+)"
)
_SAID = re.compile(
    r"(?<![\w$.-])([A-Za-z][A-Za-z0-9_-]*)([\"'\]]{0,2}\s?[:=]\s?)(\"[^\"]*\"|'[^']*'|[^\s,;})]+)"
    r"|\b([A-Z][A-Z0-9]*_[A-Z0-9_]+)(\s(?:is\s|to\s)?)((?=[A-Za-z_-]*[0-9])(?=[0-9_-]*[A-Za-z])[A-Za-z0-9_-]{16,})"
)
"""`NAME: value`, as YAML, JSON and Python have it, and `NAME is value` where that can be no word."""
_LONG = 8
"""Characters. A shorter secret is masked only where it was found."""


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


def secret_in(text: str) -> str:
    """The kind of secret that the text seems to hold (`a GitHub token`), by its form alone; "" if none."""
    return next((kind for kind, _, _ in _by_form(text)), "")


def secret_for_a_command(text: str) -> str:
    """The kind of secret that a command in the text is given, such as `wandb login KEY`; "" if none."""
    return next((kind for kind, _, _ in _by_command(text)), "")


def secret_in_image(image: str) -> bool:
    """Whether the name of a container image begins with a user and a password."""
    return _IN_IMAGE.match(image) is not None


def may_be_a_value(name: str) -> bool:
    """Whether what stands where a variable's name belongs may be the secret itself: a token that letters begin."""
    return bool(secret_in(name)) or any(_PART_LIKE_A_TOKEN.fullmatch(word) for word in name.split("_"))


def without_secrets(text: str) -> str:
    """The text with `…` in place of each part that has the form of a secret, or that a command takes as one.

    Nothing else changes, also where it is spelled like a short secret in the text.
    """
    return _without(text, [(start, end) for _, start, end in (*_by_form(text), *_by_command(text))])


def without_given(text: str) -> str:
    """The same for words of a person: also `…` for what is given to the name of a secret, as in `NAME=value`,
    `NAME: value` and `--name value`."""
    given = [match.span(3) for match in _ASSIGNED.finditer(text) if _is_given(match) and _to_a_secret(match, 1)]
    for match in _SAID.finditer(text):
        first = 1 if match[1] else 4
        given += [match.span(first + 2)] if _to_a_secret(match, first) else []
    return without_secrets(_without(text, given))


def _without(text: str, spans: list[tuple[int, int]]) -> str:
    """`text` with `…` for these parts, and for the longer ones wherever else they stand."""
    words = {text[start:end] for start, end in spans if end - start >= _LONG}
    for word in (word for word in words if re.search("[0-9]", word)):  # else it may be a word of ours
        spans = spans + [match.span() for match in re.finditer(re.escape(word), text)]
    kept, at = "", 0
    for start, end in sorted(spans):
        if end > at:
            kept, at = kept + text[at : max(start, at)] + (_HIDDEN if start >= at else ""), end
    return kept + text[at:]


def is_secret_value(name: str, value: str) -> bool:
    """Whether `name` is the name of a secret and `value` may be one: no number, placeholder, path or plain flag."""
    name = name.replace("-", "_")
    if not (_SURE.search(name) or _LIKELY.search(name)):
        return False
    rest = _FILLED_IN.sub("", value).strip()
    if _HARMLESS.fullmatch(rest):
        return False
    return bool(_SURE.search(name)) or not _WORD.fullmatch(rest)


def assigned_in(command: str) -> Iterator[tuple[str, str]]:
    """(name, value) of each assignment in a shell command: `NAME=value`, `--name value`, `--name=value`."""
    for match in _ASSIGNED.finditer(command):
        if _is_given(match):
            yield match[1], match[3].strip("\"'")


def _to_a_secret(match: re.Match[str], first: int) -> bool:
    return is_secret_value(match[first], match[first + 2].strip("\"'"))


def _is_given(match: re.Match[str]) -> bool:
    """Whether it is `name=value` or an option; else it is two words that follow each other."""
    return match[2] == "=" or match.start() < match.start(1)


def _by_command(text: str) -> Iterator[tuple[str, int, int]]:
    """(kind of secret, where it begins and ends) for each that a command is given."""
    for start, piece in _pieces(text):
        for kind, pattern in _TO_A_COMMAND:
            for match in re.finditer(pattern, piece):
                yield kind, start + match.start(1), start + match.end(1)


def _by_form(text: str) -> Iterator[tuple[str, int, int]]:
    """(kind of secret, where it begins and ends) for each part that has the form of one."""
    for start, piece in _pieces(text):
        for kind, pattern in _OURS:
            for match in re.finditer(pattern, piece):
                group = match.lastindex or 0
                yield kind, start + match.start(group), start + match.end(group)
        words = _WORD_OF_A_TOKEN.findall(piece)
        if any(re.search("[0-9]", word) and re.search("[A-Za-z]", word) for word in words):
            for detector in _detectors():
                for kind, begin, end in _detected(detector, piece):
                    yield kind, start + begin, start + end


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    for start in range(0, min(len(text), MOST_LOOKED_AT), _WINDOW - _OVERLAP):
        yield start, text[start : start + _WINDOW]


def _detected(detector: Any, piece: str) -> Iterator[tuple[str, int, int]]:
    if all(_HARMLESS.fullmatch(_FILLED_IN.sub("", found)) for found in detector.analyze_string(piece)):
        return
    for pattern in detector.denylist:
        for match in pattern.finditer(piece):
            yield f"a secret ({detector.secret_type})", match.start(), match.end()


@cache
def _detectors() -> tuple[Any, ...]:
    """The detectors of detect-secrets. The import takes 0.25 s, so it is made only for texts that may hold a token."""

    from detect_secrets.plugins.base import RegexBasedDetector

    found = []
    for name in _DETECTORS:
        module = import_module(f"detect_secrets.plugins.{name}")
        kinds = [
            kind for kind in vars(module).values() if isinstance(kind, type) and kind.__module__ == module.__name__
        ]
        found += [kind() for kind in kinds if issubclass(kind, RegexBasedDetector)]
    return tuple(found)
