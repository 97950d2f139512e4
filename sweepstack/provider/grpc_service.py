"""The plugin's process and its gRPC service, in place of the Pulumi SDK's own host.

The SDK's host can't report "created, then failed" (the id of a rented box would be lost), prints errors as tracebacks,
and exits late. This one: (a) answers StillCreating with the wire's ErrorResourceInitFailed; (b) turns an error into one
message; (c) sends progress and warnings through the engine's Log; (d) exits on SIGINT, and when the engine is gone.
Before it exits it sets the session's `cancelled`, so that a create under way can hand over what it has.

The engine starts this twice for each command. It asks one process about resources, and the other only about the
provider's configuration (seen with 3.259). So what resources need, three quarters of the time that a start takes, is
imported at the first request about a resource.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import grpc
from google.protobuf import empty_pb2

from sweepstack.config.project import project_root
from sweepstack.core.columns import IN_ENGINE, fitted
from sweepstack.core.version import VERSION
from sweepstack.onbox.common.errors import StillCreating, SweepstackError
from sweepstack.platforms.common import redact
from sweepstack.provider import configuration
from sweepstack.provider.grpc_stubs import (
    engine_pb2,
    engine_pb2_grpc,
    plugin_pb2,
    provider_pb2,
    provider_pb2_grpc,
    status_pb2,
)
from sweepstack.provider.next_command import said_of
from sweepstack.provider.session import Failure, Operation, Session, Severity
from sweepstack.provider.wire import to_python, to_struct

if TYPE_CHECKING:
    from sweepstack.provider.properties import Properties

MESSAGE_BYTES = 400 * 1024 * 1024
WORKERS = 160
"""Calls served at once: more than the engine makes (`--parallel`, by default four per core), so that its Cancel gets
through while all of them wait for a platform."""
PARENT_CHECK_SECONDS = 0.5
REASON = IN_ENGINE - 6
"""Columns for one of several reasons: the engine prints a tab and a star before each."""
log = logging.getLogger("sweepstack.provider")
Answer = TypeVar("Answer")


class _Status(grpc.Status):
    def __init__(self, message: str, details: bytes) -> None:
        self.code = grpc.StatusCode.UNKNOWN
        self.details = message
        self.trailing_metadata = (("grpc-status-details-bin", details),)


class EngineLog:
    """Sends lines to the engine, wrapped. A line that can't be sent is dropped: the engine may be about to exit."""

    _SEVERITIES = {  # noqa: RUF012
        Severity.PROGRESS: engine_pb2.INFO,
        Severity.INFO: engine_pb2.INFO,
        Severity.WARNING: engine_pb2.WARNING,
    }

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)
        self._engine = engine_pb2_grpc.EngineStub(self._channel)

    def emit(self, severity: Severity, urn: str, text: str) -> None:
        """Sends one message, with secrets masked. Blocks for 5 s at most. Progress stays one line. A message of the
        stack begins with an empty line: without a terminal the engine repeats the first line of the last message on
        each row of the stack, and lists all messages below."""
        text = redact.redact(text)
        if severity is not Severity.PROGRESS and not urn:
            text = "\n" + fitted(text, IN_ENGINE)
        elif severity is not Severity.PROGRESS:
            text = fitted(text, IN_ENGINE, taken=len("warning: ") if severity is Severity.WARNING else 0)
        request = engine_pb2.LogRequest(
            severity=self._SEVERITIES[severity],
            message=text,
            urn=urn,
            ephemeral=severity is Severity.PROGRESS,
        )
        try:
            self._engine.Log(request, timeout=5)
        except grpc.RpcError as error:
            log.debug("the engine did not take a line: %s", error)

    def close(self) -> None:
        self._channel.close()


class Servicer(provider_pb2_grpc.ResourceProviderServicer):
    """Unpacks the engine's requests for `dispatch`, and packs the answers."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def Handshake(self, request: Any, context: grpc.ServicerContext) -> Any:
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True)

    def GetPluginInfo(self, request: Any, context: grpc.ServicerContext) -> Any:
        return plugin_pb2.PluginInfo(version=VERSION)

    def GetSchema(self, request: Any, context: grpc.ServicerContext) -> Any:
        from sweepstack.provider.schema import schema_json

        return self.guard(context, lambda: provider_pb2.GetSchemaResponse(schema=schema_json()))

    def CheckConfig(self, request: Any, context: grpc.ServicerContext) -> Any:
        olds, news = to_python(request.olds), to_python(request.news)
        inputs, failures = self.guard(context, lambda: configuration.check(request.urn, olds, news))
        taken = len(f"error: pulumi:providers:sweepstack resource '{request.urn.rpartition('::')[2]}' has a problem: ")
        reasons = [fitted(redact.redact(failure.reason), IN_ENGINE, taken=taken) for failure in failures]
        refused = [provider_pb2.CheckFailure(reason=reason) for reason in reasons]
        return provider_pb2.CheckResponse(inputs=to_struct(inputs), failures=refused)

    def DiffConfig(self, request: Any, context: grpc.ServicerContext) -> Any:
        # Each change of a key is said: only then does what follows work with the new one.
        old = to_python(request.old_inputs if request.HasField("old_inputs") else request.olds)
        changed = self.guard(context, lambda: configuration.changed(old, to_python(request.news)))
        answer = provider_pb2.DiffResponse
        return answer(changes=answer.DIFF_SOME if changed else answer.DIFF_NONE, diffs=changed)

    def Configure(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.guard(context, lambda: configuration.configure(self.session, to_python(request.args)))
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True)

    def Check(self, request: Any, context: grpc.ServicerContext) -> Any:
        from sweepstack.provider.late_imports import Properties, dispatch

        op = Operation(self.session, request.urn)
        ours = Properties(op)
        inputs, failures = self.guard(
            context, lambda: dispatch.check(op, ours.known(request.olds), ours.known(request.news))
        )
        return provider_pb2.CheckResponse(
            inputs=ours.sent(inputs),
            failures=[_failure(failure, inputs, ours) for failure in failures],
        )

    def Diff(self, request: Any, context: grpc.ServicerContext) -> Any:
        from sweepstack.provider.late_imports import Properties, dispatch

        op = Operation(self.session, request.urn)
        ours = Properties(op)
        sent = [to_python(one) for one in (request.old_inputs, request.olds, request.news)]
        found = self.guard(context, lambda: dispatch.diff(op, *map(ours.inside, sent)))
        return ours.difference(found, sent[:2])

    def Create(self, request: Any, context: grpc.ServicerContext) -> Any:
        from sweepstack.provider.late_imports import Properties, dispatch

        op = Operation(self.session, request.urn, request.timeout, request.preview)
        ours = Properties(op)
        inputs = ours.known(request.properties)
        identifier, outputs = self.guard(context, lambda: dispatch.create(op, inputs), ours, inputs)
        return provider_pb2.CreateResponse(id=identifier, properties=ours.sent(outputs))

    def Read(self, request: Any, context: grpc.ServicerContext) -> Any:
        from sweepstack.provider.late_imports import Properties, dispatch

        op = Operation(self.session, request.urn)
        ours = Properties(op)
        sent = to_python(request.inputs), to_python(request.properties)
        if not any(sent):  # an import: all that is known is what the person typed
            identifier, *made = self.guard(context, lambda: dispatch.find(op, request.id))
            inputs, outputs = (ours.like(one, {}) for one in made)
            return provider_pb2.ReadResponse(id=identifier, properties=outputs, inputs=inputs)
        found = self.guard(context, lambda: dispatch.read(op, request.id, *map(ours.inside, sent)))
        if found is None:
            return provider_pb2.ReadResponse(id="")
        inputs, outputs = ours.like(found[0], sent[0]), ours.like(found[1], sent[1])
        if found[2]:
            self._init_failed(context, request.id, outputs, list(found[2]), inputs)
        return provider_pb2.ReadResponse(id=request.id, properties=outputs, inputs=inputs)

    def Update(self, request: Any, context: grpc.ServicerContext) -> Any:
        from sweepstack.provider.late_imports import Properties, dispatch

        op = Operation(self.session, request.urn, request.timeout, request.preview)
        ours = Properties(op)
        news = ours.known(request.news)
        outputs = self.guard(
            context,
            lambda: dispatch.update(op, request.id, ours.known(request.old_inputs), ours.known(request.olds), news),
            ours,
            news,
        )
        return provider_pb2.UpdateResponse(properties=ours.sent(outputs))

    def Delete(self, request: Any, context: grpc.ServicerContext) -> Any:
        from sweepstack.provider.late_imports import Properties, dispatch

        op = Operation(self.session, request.urn, request.timeout)
        ours = Properties(op)
        self.guard(
            context,
            lambda: dispatch.delete(op, request.id, ours.known(request.old_inputs), ours.known(request.properties)),
        )
        return empty_pb2.Empty()

    def Invoke(self, request: Any, context: grpc.ServicerContext) -> Any:
        from sweepstack.provider.late_imports import split_invoke

        found = self.guard(context, lambda: split_invoke.invoke(self.session, request.tok, to_python(request.args)))
        response = provider_pb2.InvokeResponse()
        getattr(response, "return").CopyFrom(to_struct(found))  # a keyword of Python
        return response

    def Construct(self, request: Any, context: grpc.ServicerContext) -> Any:
        from sweepstack.provider.construct import construct

        return self.guard(context, lambda: construct(self.session, request))

    def Cancel(self, request: Any, context: grpc.ServicerContext) -> Any:
        # Also called at the normal end of every operation: nothing to say then.
        self.session.cancel()
        return empty_pb2.Empty()

    def guard(
        self,
        context: grpc.ServicerContext,
        work: Callable[[], Answer],
        ours: Properties | None = None,
        inputs: dict[str, Any] | None = None,
    ) -> Answer:
        """Runs `work` and returns its answer. An error that it raises reaches the person as one message, without a
        traceback. `ours`, `inputs`: of what is created or updated."""
        try:
            return work()
        except StillCreating as error:
            assert ours is not None, "what is still being created is a resource"
            outputs, given = ours.unfinished(error.outputs), ours.sent(inputs or {})
            self._init_failed(context, error.identifier, outputs, error.reasons, given)
        except SweepstackError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, self.words(said_of(error)))
        except Exception as error:
            log.error("%s", traceback.format_exc())
            place = traceback.extract_tb(error.__traceback__)[-1]
            context.abort(
                grpc.StatusCode.INTERNAL,
                self.words(
                    f"internal error in sweepstack: {type(error).__name__}: {error} ({Path(place.filename).name}:"
                    f"{place.lineno}). Nothing more was done. Next: the same command again, with `-d` for the traceback"
                ),
            )
        raise AssertionError("unreachable: abort raises")

    def words(self, text: str) -> str:
        """The text of an error for the engine, which prints `error: ` before it."""
        return fitted(redact.redact(text), IN_ENGINE, taken=len("error: "))

    def _init_failed(
        self,
        context: grpc.ServicerContext,
        identifier: str,
        outputs: Any,
        reasons: list[str],
        inputs: Any,
    ) -> NoReturn:
        reasons = [fitted(redact.redact(reason), REASON).replace("\n", "\n  ") for reason in reasons]
        detail = provider_pb2.ErrorResourceInitFailed(id=identifier, properties=outputs, reasons=reasons, inputs=inputs)
        status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message="; ".join(reasons))
        status.details.add().Pack(detail)
        context.abort_with_status(_Status(status.message, status.SerializeToString()))
        raise AssertionError("unreachable: abort raises")


def serve(engine_address: str, servicer: Callable[[Session], Servicer] = Servicer) -> int:
    """Serves until the engine closes it (SIGINT) or is gone, or until SIGTERM; then ends the process. Prints the port
    first, as plugins must."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    redact.install()
    done = threading.Event()
    lines = EngineLog(engine_address)
    session = Session(project_root(Path.cwd()), lines.emit, engine=engine_address)

    def stop(*_: object) -> None:
        session.cancel()
        done.set()

    # Set before the port is printed: the engine may close a plugin at once, and waits 5 s for one that ignores SIGINT.
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    server = grpc.server(
        ThreadPoolExecutor(max_workers=WORKERS, thread_name_prefix="call"),
        options=[("grpc.max_receive_message_length", MESSAGE_BYTES), ("grpc.max_send_message_length", MESSAGE_BYTES)],
    )
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer(session), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    parent = os.getppid()
    print(port, flush=True)
    while not done.wait(PARENT_CHECK_SECONDS):
        if os.getppid() != parent:
            # The engine was killed, so no answer arrives. A create gets time to write down what it has.
            session.cancel()
            done.wait(2 * PARENT_CHECK_SECONDS)
            break
    server.stop(0)
    lines.close()
    sys.stdout.flush()
    # Worker threads may still wait for a platform. They are not daemons: waiting for them would cost the engine 5 s.
    os._exit(0)


def _failure(failure: Failure, inputs: dict[str, Any], ours: Properties) -> Any:
    """A failure for the engine. If the input is a list or an object, no property is named: the engine would print its
    whole value before our message."""
    name, reason = ours.path(failure.property), redact.redact(failure.reason)
    value = inputs.get(failure.property)
    if name and not isinstance(value, str | int | float):
        name, reason = "", f"{name}: {reason}"
    of_value = f": property {name} value {{{value}}}" if name else ""
    before = f"error: {ours.token} resource '{ours.op.name}'{of_value} has a problem: "
    return provider_pb2.CheckFailure(property=name, reason=fitted(reason, IN_ENGINE, taken=len(before)))
