"""The inputs of the command package's resources: types, defaults, and what a change causes.

They are those of pulumi-command 1.2.1: its schema, and what its binary answers
(tests/conformance/test_command_plugin.py holds both plugins to the same). Inputs that sweepstack does not use are
refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sweepstack.provider.protocol import provider_pb2
from sweepstack.provider.session import Failure
from sweepstack.provider.wire import SIGNATURE_KEY, Secret, Unknown, bare, holds_unknown

CONNECTION_DEFAULTS: Final[Mapping[str, Any]] = {"port": 22, "user": "root", "dialErrorLimit": 10, "perDialTimeout": 15}
_SERVER: Final[Mapping[str, type | tuple[type, ...]]] = {
    "host": str,
    "port": (int, float),
    "user": str,
    "privateKey": str,
    "agentSocketPath": str,
    "hostKey": str,
    "dialErrorLimit": (int, float),
    "perDialTimeout": (int, float),
}
_LEFT_OUT = ("password", "privateKeyPassword")
_NAMES = {str: "string", (int, float): "number", bool: "bool", dict: "map", list: "list"}
LOGGING: Final = ("stdout", "stderr", "stdoutAndStderr", "none")


@dataclass(frozen=True)
class Kind:
    """One resource type: its inputs with their types, and which of them are required."""

    token: str
    inputs: Mapping[str, type | tuple[type, ...]]
    required: tuple[str, ...]


COMMAND: Final = Kind(
    "command:remote:Command",
    {
        "connection": dict,
        "create": str,
        "update": str,
        "delete": str,
        "triggers": list,
        "stdin": str,
        "environment": dict,
        "logging": str,
        "addPreviousOutputInEnv": bool,
    },
    ("connection",),
)
COPY: Final = Kind(
    "command:remote:CopyToRemote",
    {"connection": dict, "source": dict, "remotePath": str, "triggers": list},
    ("connection", "source", "remotePath"),
)
KINDS: Final = {kind.token: kind for kind in (COMMAND, COPY)}


def check(kind: Kind, news: Mapping[str, Any]) -> tuple[dict[str, Any], list[Failure]]:
    """Returns the inputs with their defaults, the connection and its key marked secret; and all that is wrong with
    them."""
    given = {name: value for name, value in news.items() if value is not None}
    failures = [Failure(name, f"Unrecognized field {name!r}") for name in given if name not in kind.inputs]
    failures += [Failure(name, f"Missing required field {name!r}") for name in kind.required if name not in given]
    for name, value in given.items():
        if name in kind.inputs and not _is(value, kind.inputs[name]):
            failures.append(Failure(name, f"Field {name!r} must be a {_NAMES[kind.inputs[name]]!r}"))
    for name, value in (bare(given.get("environment")) or {}).items() if _known(given, "environment", dict) else ():
        if not _is(value, str):
            failures.append(Failure("environment", f"Field {name!r} must be a 'string'"))
    logging = bare(given.get("logging"))
    if isinstance(logging, str) and logging not in LOGGING:
        # The official plugin takes any value, and logs nothing for one that it does not know.
        failures.append(Failure("logging", f"{logging!r} is none of {', '.join(LOGGING)}"))
    if _known(given, "connection", dict):
        inner = given["connection"].value if isinstance(given["connection"], Secret) else given["connection"]
        completed, wrong = _connection(inner)
        given["connection"] = Secret(completed)
        failures += [Failure("connection", one) for one in wrong]
    if kind is COPY and _known(given, "source", dict):
        failures += _source(bare(given["source"]))
    return given, failures


def _connection(given: Mapping[str, Any], *, proxy: bool = False) -> tuple[dict[str, Any], list[str]]:
    """A connection with its defaults, and all that is wrong with it."""
    where, wrong = "proxy" if proxy else "connection", []
    known = {name: value for name, value in given.items() if value is not None}
    for name, value in known.items():
        if name == "proxy" and not proxy:
            continue
        if name in _LEFT_OUT:
            wrong.append(f"{where}.{name}: the stand-in takes no passwords; use an agent or a key, or the real plugin")
        elif name not in _SERVER:
            wrong.append(f"{name}: Unrecognized field {name!r} on {where}")
        elif not _is(value, _SERVER[name]):
            wrong.append(f"{name}: Field {name!r} on {where} must be a {_NAMES[_SERVER[name]]!r}")
    if "host" not in known:
        wrong.append(f"host: Missing required field 'host' on {where}")
    completed = {**CONNECTION_DEFAULTS, **known}
    for name in ("privateKey", *_LEFT_OUT):
        if name in completed and not isinstance(completed[name], Secret):
            completed[name] = Secret(completed[name])
    if isinstance(bare(known.get("proxy")), Mapping) and not proxy:
        inner = known["proxy"].value if isinstance(known["proxy"], Secret) else known["proxy"]
        completed["proxy"], more = _connection(inner, proxy=True)
        wrong += more
    return completed, wrong


def _source(source: Mapping[str, Any]) -> list[Failure]:
    if not any(source.get(name) for name in ("path", "text", "uri", "assets", "hash")):
        return [Failure("asset", "either asset or archive must be set")]
    if source.get("path") or ("text" in source and not source.get("uri") and not source.get("assets")):
        return []
    if "assets" in source:
        return [Failure("archive", "archive must be a path to a file or directory")]
    return [Failure("asset", "asset must be a path-based file asset or a text asset")]


def _known(given: Mapping[str, Any], name: str, kind: type) -> bool:
    return isinstance(given.get(name), kind) or (
        isinstance(given.get(name), Secret) and isinstance(given[name].value, kind)
    )


def _is(value: Any, kind: type | tuple[type, ...]) -> bool:
    """Whether a value has this type. A value that a preview does not know yet fits every type."""
    value = bare(value)
    if isinstance(value, Unknown):
        return True
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def diff(kind: Kind, olds: Mapping[str, Any], news: Mapping[str, Any]) -> Any:
    """The answer for the wire. Each difference is an update; `triggers` that appear or disappear as a whole are a
    replace."""
    details: dict[str, Any] = {}
    for name in kind.inputs:
        details |= _difference(name, bare(olds.get(name)), bare(news.get(name)))
    changed = sorted({path.partition(".")[0].partition("[")[0] for path in details})
    replaced = ["triggers"] if "triggers" in details else []
    some = provider_pb2.DiffResponse.DIFF_SOME if changed else provider_pb2.DiffResponse.DIFF_NONE
    return provider_pb2.DiffResponse(
        changes=some, diffs=changed, replaces=replaced, detailedDiff=details, hasDetailedDiff=True
    )


def _difference(name: str, old: Any, new: Any) -> dict[str, Any]:
    kinds = provider_pb2.PropertyDiff
    if name == "source":
        old, new = _content(old), _content(new)
    if old == new and not holds_unknown(new):
        return {}
    added, taken, changed = kinds.ADD, kinds.DELETE, kinds.UPDATE
    if name == "triggers":
        added, taken = kinds.ADD_REPLACE, kinds.DELETE_REPLACE
    if old is None or new is None:
        return {name: kinds(kind=added if old is None else taken)}
    parts: dict[str, tuple[Any, Any]] = {}
    if name == "environment" and isinstance(old, Mapping) and isinstance(new, Mapping):
        parts = {f"{name}.{key}": (old.get(key), new.get(key)) for key in {**old, **new}}
    elif name == "triggers" and isinstance(old, list) and isinstance(new, list):
        longest = range(max(len(old), len(new)))
        parts = {f"{name}[{at}]": (_at(old, at), _at(new, at)) for at in longest}
    if not parts:
        return {name: kinds(kind=changed)}
    return {
        path: kinds(kind=kinds.ADD if before is None else kinds.DELETE if after is None else changed)
        for path, (before, after) in parts.items()
        if before != after or holds_unknown(after)
    }


def _at(values: list[Any], index: int) -> Any:
    return values[index] if index < len(values) else None


def _content(source: Any) -> Any:
    """What counts of an asset or archive: its kind and the digest of its content, not its path."""
    if not isinstance(source, Mapping):
        return source
    return source.get(SIGNATURE_KEY), source.get("hash")
