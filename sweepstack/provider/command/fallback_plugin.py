"""A stand-in for the `command` plugin: remote.Command and remote.CopyToRemote, over OpenSSH.

For networks where the official plugin can't be fetched. It runs on our provider's host, and does what pulumi-command
1.2.1 does, as far as sweepstack uses it. Its version, a line when it first acts, and its errors say that it is the
stand-in. Different on purpose: it takes no passwords, refuses an unknown `logging`, and `perDialTimeout` limits the
whole of a dial.

Types and defaults of the inputs, and what a change causes, are those of pulumi-command 1.2.1: its schema, and what its
binary answers (tests/conformance/test_command_plugin.py holds both plugins to the same). Inputs that sweepstack does
not use are refused by name.

A file, a text or a folder is copied to another machine by a shell script there, which reads it on its stdin. Where
things go is as in pulumi-command. A file that is copied to an existing folder keeps its name. A folder is put below an
existing or new one, under its own name; if its path ends with `/`, only its content is. Nothing is removed on the other
machine.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import secrets
import sys
import tarfile
import threading
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any, Final

import grpc
from google.protobuf import empty_pb2, struct_pb2

from sweepstack.core.engine_secret import SIGNATURE_KEY
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import PlatformError, SweepstackError
from sweepstack.platforms.common import redact
from sweepstack.provider.command.select import VERSION as STANDS_FOR
from sweepstack.provider.command.ssh_client import Dialer, Ended
from sweepstack.provider.grpc_service import Servicer, serve
from sweepstack.provider.grpc_stubs import plugin_pb2, provider_pb2
from sweepstack.provider.session import Failure, Operation, token_of
from sweepstack.provider.wire import UNKNOWN, Secret, Unknown, bare, holds_unknown, to_python, to_struct

VERSION = f"{STANDS_FOR}+sweepstack.standin"
NAME = f"sweepstack's stand-in for pulumi-command {STANDS_FOR}"
PREVIOUS = {"stdout": "PULUMI_COMMAND_STDOUT", "stderr": "PULUMI_COMMAND_STDERR"}
_NOT_SET = (
    "Unable to set {name!r}. This only works if the SSH server lets it in (AcceptEnv). Otherwise prefix the command "
    "itself, as in 'VAR=value command'"
)


class StandIn(Servicer):
    """Answers the engine's requests for the two resource types. Secrets stay marked in inputs and state."""

    _said = False
    _saying = threading.Lock()

    def words(self, text: str) -> str:
        """Masks secrets, and does not wrap: most of it is the output of another program, and the official plugin leaves
        that as it is."""
        return redact.redact(text)

    def GetPluginInfo(self, request: Any, context: grpc.ServicerContext) -> Any:
        return plugin_pb2.PluginInfo(version=VERSION)

    def GetSchema(self, request: Any, context: grpc.ServicerContext) -> Any:
        schema = {"name": "command", "version": VERSION, "displayName": NAME, "description": NAME}
        resources = {
            kind.token: {"inputProperties": {name: {"$ref": "pulumi.json#/Any"} for name in kind.inputs}}
            for kind in KINDS.values()
        }
        return provider_pb2.GetSchemaResponse(schema=json.dumps({**schema, "resources": resources}))

    def Check(self, request: Any, context: grpc.ServicerContext) -> Any:
        inputs, failures = self.guard(context, lambda: check_fields(_kind(request.urn), _kept(request.news)))
        found = [provider_pb2.CheckFailure(property=one.property, reason=f"{one.reason} ({NAME})") for one in failures]
        return provider_pb2.CheckResponse(inputs=to_struct(inputs), failures=found)

    def Diff(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self.guard(context, lambda: diff_fields(_kind(request.urn), _kept(request.olds), _kept(request.news)))

    def Create(self, request: Any, context: grpc.ServicerContext) -> Any:
        op = Operation(self.session, request.urn, request.timeout, request.preview)
        inputs = _kept(request.properties)
        outputs = self.guard(context, lambda: self._create(op, inputs))
        prefix = op.name if _kind(request.urn) is COMMAND else ""
        return provider_pb2.CreateResponse(id=f"{prefix}{secrets.token_hex(4)}", properties=to_struct(outputs))

    def Read(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Returns what the state says. Like the official plugin, it asks no machine."""
        return provider_pb2.ReadResponse(id=request.id, inputs=request.inputs, properties=request.properties)

    def Update(self, request: Any, context: grpc.ServicerContext) -> Any:
        op = Operation(self.session, request.urn, request.timeout, request.preview)
        outputs = self.guard(context, lambda: self._update(op, _kept(request.olds), _kept(request.news)))
        return provider_pb2.UpdateResponse(properties=to_struct(outputs))

    def Delete(self, request: Any, context: grpc.ServicerContext) -> Any:
        op, state = Operation(self.session, request.urn, request.timeout), _kept(request.properties)
        if state.get("delete") is not None:
            self.guard(context, lambda: self._run(op, state, state["delete"], state))
        return empty_pb2.Empty()

    def _create(self, op: Operation, inputs: dict[str, Any]) -> dict[str, Any]:
        kind = _kind(op.urn)
        if op.preview:
            return _preview_outputs(kind, inputs)
        if kind is COPY:
            return self._copy(op, inputs)
        if inputs.get("create") is None:
            return {**inputs, "stdout": "", "stderr": ""}
        return self._run(op, inputs, inputs["create"], {})

    def _update(self, op: Operation, olds: dict[str, Any], news: dict[str, Any]) -> dict[str, Any]:
        kind = _kind(op.urn)
        if op.preview:
            same = not diff_fields(kind, olds, news).detailedDiff
            return {**olds, **news} if same else _preview_outputs(kind, news)
        if kind is COPY:
            changed = {path.partition("[")[0] for path in diff_fields(kind, olds, news).detailedDiff}
            return self._copy(op, news) if changed & {"source", "remotePath"} else news
        command = news.get("update", news.get("create"))
        if command is None:
            return {**news, **{name: olds.get(name, "") for name in PREVIOUS}}
        return self._run(op, news, command, olds)

    def _run(self, op: Operation, inputs: dict[str, Any], command: Any, olds: Mapping[str, Any]) -> dict[str, Any]:
        """Runs a command of the inputs, and returns the outputs. `olds`: the outputs before, for its environment.
        Raises PlatformError."""
        told, environment = bare(inputs), dict(bare(inputs.get("environment")) or {})
        before = {PREVIOUS[name]: bare(olds.get(name)) for name in PREVIOUS if bare(olds.get(name))}
        if told.get("addPreviousOutputInEnv") is False:
            before = {}
        environment = {**environment, **before}
        dialer = self._dialer(op, told, environment)
        if environment:
            accepted = dialer.accepts(sorted(environment))
            for name in sorted(set(environment) - accepted):
                if name not in before:
                    raise _error(f"could not set environment variable {name!r}. {_NOT_SET.format(name=name)}")
                op.warn(f"{op.name}: {_NOT_SET.format(name=name)}")
                del environment[name]
        logging = told.get("logging", "stdoutAndStderr")
        out, err, both = bytearray(), bytearray(), bytearray()
        lines = {"stdout": _Lines(op, logging), "stderr": _Lines(op, logging)}

        def take(into: bytearray, name: str, chunk: bytes) -> None:
            into += chunk
            both.extend(chunk)
            if logging in (name, "stdoutAndStderr"):
                lines[name].take(chunk)

        ended = self._ended(
            lambda: self._dialer(op, told, environment).run(
                bare(command),
                str(told.get("stdin", "")).encode(),
                lambda chunk: take(out, "stdout", chunk),
                lambda chunk: take(err, "stderr", chunk),
            )
        )
        for pending in lines.values():
            pending.close()
        if ended.code != 0:
            shown = json.dumps(bare(command), ensure_ascii=False)
            raise _error(f"{_how(ended)}: running {shown}:\n{both.decode('utf-8', 'replace')}")
        return {**inputs, "stdout": _text(out), "stderr": _text(err)}

    def _copy(self, op: Operation, inputs: dict[str, Any]) -> dict[str, Any]:
        told, said = bare(inputs), bytearray()

        def go() -> Ended:
            copy = copy_of(told["source"], told["remotePath"])
            return self._dialer(op, told, {}).run(copy.command, copy.stdin, lambda _: None, said.extend)

        ended = self._ended(go)
        if ended.code != 0:
            lines = said.decode("utf-8", "replace").strip().splitlines()
            raise _error(lines[-1] if lines else _how(ended))
        return inputs

    def _dialer(self, op: Operation, told: Mapping[str, Any], environment: Mapping[str, str]) -> Dialer:
        with self._saying:
            if not self._said:
                self._said = True
                op.info(f"{NAME} acts here")
        return Dialer(told["connection"], op.progress, self.session.cancelled, environment)

    def _ended(self, work: Any) -> Ended:
        try:
            ended: Ended = work()
        except SweepstackError as error:
            raise _error(str(error)) from error
        return ended


class _Lines:
    """Shows the lines of a command's output on the resource's row as they arrive."""

    def __init__(self, op: Operation, logging: str) -> None:
        self._op, self._rest = op, ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take(self, chunk: bytes) -> None:
        *lines, self._rest = (self._rest + self._decoder.decode(chunk)).split("\n")
        for line in lines:
            self._op.progress(line.removesuffix("\r"))

    def close(self) -> None:
        if self._rest:
            self._op.progress(self._rest)


def _kind(urn: str) -> Kind:
    token = token_of(urn)
    if token not in KINDS:
        raise _error(f"Resource {token.removeprefix('command:')!r} not found: only {', '.join(KINDS)} are here")
    return KINDS[token]


def _kept(struct: struct_pb2.Struct) -> dict[str, Any]:
    return to_python(struct, secrets=True)


def _preview_outputs(kind: Kind, inputs: dict[str, Any]) -> dict[str, Any]:
    return {**inputs, "stdout": UNKNOWN, "stderr": UNKNOWN} if kind is COMMAND else inputs


def _how(ended: Ended) -> str:
    if ended.code is not None:
        return f"Process exited with status {ended.code}"
    if ended.signal:
        return "Process exited from a signal"
    return "wait: remote command exited without exit status or exit signal"


def _error(text: str) -> PlatformError:
    return PlatformError(text if NAME in text else f"{text.rstrip()}\n({NAME})")


def _text(content: bytearray) -> str:
    return content.decode("utf-8", "replace").removesuffix("\n")


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


def check_fields(kind: Kind, news: Mapping[str, Any]) -> tuple[dict[str, Any], list[Failure]]:
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


def diff_fields(kind: Kind, olds: Mapping[str, Any], news: Mapping[str, Any]) -> Any:
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


@dataclass(frozen=True)
class Copy:
    """A shell command for the other machine, and its stdin."""

    command: str
    stdin: bytes


_FAIL = 'fail() { echo "$*" >&2; exit 1; }\n'
_TEXT = """\
[ ! -d {to} ] || fail "remote path "{to}" is a directory; when using a text asset, remotePath must be a file path"
mkdir -p "$(dirname {to})" || fail "failed to create parent directories for "{to}
cat > {to} || fail "failed to create remote file "{to}
"""
_FILE = """\
to={to}
if [ -d "$to" ]; then to=$to/{name}; elif [ ! -e "$to" ]; then
    mkdir -p "$(dirname "$to")" || fail "failed to create parent directories for $to"
fi
cat > "$to" || fail "failed to create remote file $to"
"""
_FOLDER = """\
to={to}
[ -e "$to" ] || mkdir -p "$to" || fail "failed to create remote directory $to"
{below}
for one in . {folders}; do
    [ ! -e "$to/$one" ] || [ -d "$to/$one" ] || fail "remote path $to/$one exists but is not a directory"
done
[ -d "$to" ] || fail "remote path $to exists but is not a directory"
tar -x -o -C "$to" -f - || fail "failed to copy to $to"
"""
_BELOW = """\
to=$to/{name}
[ ! -e "$to" ] || [ -d "$to" ] || fail "remote path $to exists but is not a directory"
[ -d "$to" ] || mkdir "$to" || fail "failed to create remote directory $to"
"""


def copy_of(source: Mapping[str, Any], remote_path: str) -> Copy:
    """The command that copies an asset or archive to `remote_path`. Reads the files and sends nothing. Raises
    PlatformError if they can't be read."""
    to, path = quote(remote_path), str(source.get("path") or "")
    if not path:
        return Copy(_FAIL + _TEXT.format(to=to), str(source.get("text", "")).encode())
    name = quote(Path(path).name)
    try:
        if not os.path.isdir(path):
            return Copy(_FAIL + _FILE.format(to=to, name=name), Path(path).read_bytes())
        below = "" if path.endswith("/") else _BELOW.format(name=name)
        content, folders = _packed(Path(path))
    except OSError as error:
        raise PlatformError(f"open {path}: {(error.strerror or str(error)).lower()}") from error
    listed = " ".join(quote(folder) for folder in folders)
    return Copy(_FAIL + _FOLDER.format(to=to, below=below, folders=listed), content)


def _packed(root: Path) -> tuple[bytes, list[str]]:
    """A folder's files as a tar stream, and the names of its folders. Links are followed; modes are not kept."""
    buffer, folders = io.BytesIO(), []
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT, dereference=True) as tar:
        for path in sorted(root.rglob("*")):
            info = tar.gettarinfo(path, str(path.relative_to(root)))
            info.mode, info.uid, info.gid, info.uname, info.gname = 0o755 if info.isdir() else 0o644, 0, 0, "", ""
            info.type = tarfile.REGTYPE if info.islnk() else info.type
            if info.isdir():
                folders.append(info.name)
                tar.addfile(info)
                continue
            content = path.read_bytes()
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue(), folders


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1], StandIn))
