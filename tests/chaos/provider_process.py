"""The provider as a process of its own for every command, without paying its imports each time.

    python -m tests.chaos.provider_process FD

imports everything once and forks for each one that asks over the socket FD: a child is a fresh provider, that has not
asked anything yet. It serves what `provider.grpc_service` serves, through the same `dispatch`: requests and
answers are JSON lines instead of gRPC. Boxes are reached over a folder each instead of SSH (`DiskChannel`): what SSH
does has tests of its own, and here it is the API that breaks.
"""

from __future__ import annotations

import gc
import importlib
import json
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DISKS = "SWEEPSTACK_CHAOS_DISKS"
INTERRUPT_SECONDS = 0.1
ANSWER_SECONDS = 60.0
"""So long may one request take: each verb has a deadline of its own, far below."""


class Died(Exception):
    """The provider's process ended without an answer."""


@dataclass(frozen=True)
class Answer:
    """What came of a request. `failed`: the wire's ErrorResourceInitFailed; `error`: its words for a person."""

    value: Any = None
    error: str = ""
    failed: dict[str, Any] | None = None


class Provider:
    """One provider process, seen from the engine. Requests one after another."""

    def __init__(self, sock: socket.socket, pid: int, said: list[str]) -> None:
        self.pid = pid
        self._sock, self._lines = sock, sock.makefile("r", encoding="utf-8")
        self._said = said

    def ask(self, verb: str, urn: str = "", timeout: float = 0, **words: Any) -> Answer:
        """Raises Died when the process ends before it has answered."""
        request = {"verb": verb, "urn": urn, "timeout": timeout, "words": words}
        try:
            self._sock.sendall(json.dumps(request).encode() + b"\n")
            for line in self._lines:
                told = json.loads(line)
                if "said" in told:
                    self._said.append(told["said"])
                    continue
                return Answer(told.get("value"), told.get("error", ""), told.get("failed"))
        except TimeoutError:
            raise AssertionError(f"{verb} {urn} did not answer within {ANSWER_SECONDS:g} s") from None
        except OSError:
            pass
        raise Died

    def close(self) -> None:
        """The engine is done with it."""
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._lines.close()
        self._sock.close()
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class Nursery:
    """The process that forks providers, seen from the driver."""

    def __init__(self) -> None:
        self._sock, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.provider_process", str(theirs.fileno())],
            cwd=ROOT,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        self._lock = threading.Lock()
        assert self._sock.recv(1) == b"!", "the provider can't be imported"

    def provider(self, env: dict[str, str], project: Path, seed: str, said: list[str]) -> Provider:
        """A new provider process in this environment. `said` gets the lines that it tells the engine."""
        ours, theirs = socket.socketpair()
        ours.settimeout(ANSWER_SECONDS)
        words = json.dumps({"env": env, "project": str(project), "seed": seed}).encode()
        with self._lock:
            socket.send_fds(self._sock, [len(words).to_bytes(4, "big") + words], [theirs.fileno()])
            pid = int.from_bytes(self._sock.recv(4), "big")
        theirs.close()
        assert pid, "no provider was forked"
        return Provider(ours, pid, said)

    def close(self) -> None:
        """Ends it, and every provider."""
        self._sock.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


# ------------------------------------------------------------- in the process


def _import_all() -> None:
    """Everything that a provider would import on its way, and a box that is a folder. Logging as in `grpc_service`."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    from sweepstack.platforms.common import redact

    redact.install()

    import sweepstack.channel.ssh.channel
    import sweepstack.evidence.verify
    import sweepstack.onbox.host.platform
    import sweepstack.provider.grpc_service
    import sweepstack.provider.resources.box
    import sweepstack.provider.resources.gate
    import sweepstack.provider.resources.identity
    from sweepstack.core.extensions import module_of
    from tests.chaos.disks import DiskChannel
    from tests.read_here import read_here
    from tests.simulators.rental import rental, rentals

    for name in rentals():
        for module in (*rental(name).imports, module_of(name)):
            importlib.import_module(module)
    setattr(sweepstack.channel.ssh.channel, "SshChannel", DiskChannel)  # noqa: B010 - adapters import it when they need it
    setattr(sweepstack.evidence.verify, "read_all", read_here)  # noqa: B010
    setattr(sweepstack.provider.resources.box, "POLL_SECONDS", 0.02)  # noqa: B010
    setattr(sweepstack.onbox.host.platform, "POLL_SECONDS", 0.01)  # noqa: B010
    os.fsync = lambda _: None  # no power is cut here
    assert threading.active_count() == 1, "a process with threads can't be forked"
    gc.freeze()  # what the children share stays shared


def _breed(sock: socket.socket) -> None:
    """Forks until the driver is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sock.sendall(b"!")
    while True:
        data, fds, _, _ = socket.recv_fds(sock, 1 << 16, 1)
        if not data:
            return
        length = int.from_bytes(data[:4], "big")
        while len(data) < length + 4:
            data += sock.recv(1 << 16)
        told = json.loads(data[4 : length + 4])
        pid = os.fork()
        if pid == 0:
            sock.close()
            _live(socket.socket(fileno=fds[0]), told)
            os._exit(0)
        os.close(fds[0])
        sock.sendall(pid.to_bytes(4, "big"))


def _live(sock: socket.socket, told: dict[str, Any]) -> None:
    """A provider: serves one engine until that hangs up."""
    from sweepstack.provider.session import Session

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(told["env"])
    os.chdir(told["project"])
    random.seed(told["seed"])
    mouth = threading.Lock()

    def tell(**words: Any) -> None:
        with mouth, suppress(OSError):
            sock.sendall(json.dumps(words).encode() + b"\n")

    session = Session(Path(told["project"]), lambda severity, _, text: tell(said=f"{severity.value}: {text}"))

    def interrupted(*_: object) -> None:
        session.cancelled.set()
        threading.Timer(INTERRUPT_SECONDS, os._exit, (0,)).start()

    signal.signal(signal.SIGINT, interrupted)
    signal.signal(signal.SIGUSR1, lambda *_: session.cancelled.set())
    over = threading.Event()

    def serve() -> None:
        for line in sock.makefile("r", encoding="utf-8"):
            tell(**_answer(session, json.loads(line)))
        over.set()

    threading.Thread(target=serve, daemon=True).start()  # the main thread stays free for signals
    while not over.wait(0.5):
        pass


def _answer(session: Any, request: dict[str, Any]) -> dict[str, Any]:
    """As `sweepstack.provider.grpc_service.Servicer._guard` does it."""
    from sweepstack.onbox.common.errors import StillCreating, SweepstackError
    from sweepstack.platforms.common import redact
    from sweepstack.provider import dispatch
    from sweepstack.provider.session import Operation
    from tests.chaos import work

    op = Operation(session, request["urn"], request["timeout"], request["words"].pop("preview", False))
    words = request["words"]
    try:
        match request["verb"]:
            case "check":
                inputs, failures = dispatch.check(op, words["olds"], words["news"])
                return {"value": {"inputs": inputs, "failures": [_shown(one) for one in failures]}}
            case "diff":
                found = dispatch.diff(op, words["old_inputs"], words["olds"], words["news"])
                return {"value": {"changed": found.changed, "replaces": found.replaces}}
            case "create":
                identifier, outputs = dispatch.create(op, words["inputs"])
                return {"value": {"id": identifier, "outputs": outputs}}
            case "read":
                seen = dispatch.read(op, words["id"], words["inputs"], words["outputs"])
                if seen is None:
                    return {"value": None}
                inputs, outputs, unhealthy = seen
                told = {"id": words["id"], "inputs": inputs, "outputs": outputs}
                return {"value": {**told, "unhealthy": [redact.redact(reason) for reason in unhealthy]}}
            case "update":
                outputs = dispatch.update(op, words["id"], words["old_inputs"], words["olds"], words["news"])
                return {"value": {"outputs": outputs}}
            case "delete":
                dispatch.delete(op, words["id"], words["inputs"], words["outputs"])
                return {"value": {}}
            case verb:
                return {"value": getattr(work, verb)(**words)}
    except StillCreating as error:
        failed = {"id": error.identifier, "outputs": error.outputs, "inputs": words.get("inputs") or words.get("news")}
        return {"failed": failed, "error": redact.redact("; ".join(error.reasons))}
    except SweepstackError as error:
        return {"error": redact.redact(str(error))}
    except Exception:
        return {"error": f"internal error in sweepstack: {redact.redact(traceback.format_exc())}"}


def _shown(failure: Any) -> str:
    from sweepstack.platforms.common import redact

    return redact.redact(f"{failure.property}: {failure.reason}")


if __name__ == "__main__":
    _import_all()
    _breed(socket.socket(fileno=int(sys.argv[1])))
