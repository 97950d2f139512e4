"""A stand-in for the `command` plugin: remote.Command and remote.CopyToRemote, over OpenSSH.

For networks where the official plugin can't be fetched. It runs on our provider's host, and does what pulumi-command
1.2.1 does, as far as sweepstack uses it. Its version, a line when it first acts, and its errors say that it is the
stand-in. Different on purpose: it takes no passwords, refuses an unknown `logging`, and `perDialTimeout` limits the
whole of a dial.
"""

from __future__ import annotations

import codecs
import json
import secrets
import sys
import threading
from collections.abc import Mapping
from typing import Any

import grpc
from google.protobuf import empty_pb2, struct_pb2

from sweepstack.onbox.common.errors import PlatformError, SweepstackError
from sweepstack.platforms.common import redact
from sweepstack.provider.command import fields
from sweepstack.provider.command.copying import copy_of
from sweepstack.provider.command.select import VERSION as STANDS_FOR
from sweepstack.provider.command.ssh_client import Dialer, Ended
from sweepstack.provider.host import Servicer, serve
from sweepstack.provider.protocol import plugin_pb2, provider_pb2
from sweepstack.provider.session import Operation, token_of
from sweepstack.provider.wire import UNKNOWN, bare, to_python, to_struct

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
            for kind in fields.KINDS.values()
        }
        return provider_pb2.GetSchemaResponse(schema=json.dumps({**schema, "resources": resources}))

    def Check(self, request: Any, context: grpc.ServicerContext) -> Any:
        inputs, failures = self.guard(context, lambda: fields.check(_kind(request.urn), _kept(request.news)))
        found = [provider_pb2.CheckFailure(property=one.property, reason=f"{one.reason} ({NAME})") for one in failures]
        return provider_pb2.CheckResponse(inputs=to_struct(inputs), failures=found)

    def Diff(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self.guard(context, lambda: fields.diff(_kind(request.urn), _kept(request.olds), _kept(request.news)))

    def Create(self, request: Any, context: grpc.ServicerContext) -> Any:
        op = Operation(self.session, request.urn, request.timeout, request.preview)
        inputs = _kept(request.properties)
        outputs = self.guard(context, lambda: self._create(op, inputs))
        prefix = op.name if _kind(request.urn) is fields.COMMAND else ""
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
        if kind is fields.COPY:
            return self._copy(op, inputs)
        if inputs.get("create") is None:
            return {**inputs, "stdout": "", "stderr": ""}
        return self._run(op, inputs, inputs["create"], {})

    def _update(self, op: Operation, olds: dict[str, Any], news: dict[str, Any]) -> dict[str, Any]:
        kind = _kind(op.urn)
        if op.preview:
            same = not fields.diff(kind, olds, news).detailedDiff
            return {**olds, **news} if same else _preview_outputs(kind, news)
        if kind is fields.COPY:
            changed = {path.partition("[")[0] for path in fields.diff(kind, olds, news).detailedDiff}
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


def _kind(urn: str) -> fields.Kind:
    token = token_of(urn)
    if token not in fields.KINDS:
        raise _error(f"Resource {token.removeprefix('command:')!r} not found: only {', '.join(fields.KINDS)} are here")
    return fields.KINDS[token]


def _kept(struct: struct_pb2.Struct) -> dict[str, Any]:
    return to_python(struct, secrets=True)


def _preview_outputs(kind: fields.Kind, inputs: dict[str, Any]) -> dict[str, Any]:
    return {**inputs, "stdout": UNKNOWN, "stderr": UNKNOWN} if kind is fields.COMMAND else inputs


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


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1], StandIn))
