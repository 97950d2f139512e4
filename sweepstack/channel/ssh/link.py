"""One connection to an agent on a box: requests and answers as frames, each with a deadline.

Where ssh failed, its words are read: which host said them, and which key was refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from sweepstack.channel import agent_source
from sweepstack.channel.pinned_keys import HostKeyChanged, changed
from sweepstack.channel.prefetch import PrefetchedAnswer, Question
from sweepstack.channel.ssh.options import ALIVE_SECONDS, Way
from sweepstack.onbox.agent import agent
from sweepstack.onbox.common import holes
from sweepstack.onbox.common.errors import NotAFile, NotYetGone, PlatformError, Unreachable

OTHER_SHELL = (
    "another program reads it, such as a shell that ~/.bashrc or ~/.profile starts there (`exec zsh`). Let it start "
    "for people alone: `case $- in *i*) exec zsh;; esac`"
)
_WAY_OUT = (
    "Put one of 3.8 or newer on the PATH of its sessions as `python3`, such as `ln -s /opt/conda/bin/python3 "
    "/usr/local/bin/` there, and run the command again"
)
START_SECONDS = 40.0
STALL_SECONDS = 60.0
"""How long nothing may come or go, on a connection on which something should."""
CHUNK = 1 << 20
READ_BYTES = 1 << 18
BANNER_BYTES = 1 << 16
"""What a box's login shell may print before the agent speaks."""
MOST_ANSWER = 256 << 20
SAID_BYTES = 4000
LOST = 255
"""What ssh itself exits with."""
SILENT_SECONDS = ALIVE_SECONDS
"""A connection that ends after nothing came for so long was given up, and not cut."""
_KINDS: dict[str, type[PlatformError]] = {
    "NotYetGone": NotYetGone,
    "Unreachable": Unreachable,
    "NotAFile": NotAFile,
    "PlatformError": PlatformError,
}

SECONDS = 45.0
_OURS = re.compile(r"\b000\d{5}\b|\bx\ufffd")
"""How what is sent begins, read as text: its first line (`agent_source.program`), and compressed bytes. Which line of
these a shell complains of last depends on what they are."""


class Silence(Unreachable):
    """No answer came within the deadline, and neither side said why."""


class AgentWay(Protocol):
    """How the machine is reached on which an agent is started: by SSH, or by what an adapter has instead."""

    @property
    def facts(self) -> tuple[object, ...]:
        """All that makes one way differ from another."""
        ...

    def forget_connection(self) -> None:
        """Makes the next link connect anew: what several share seems dead. Never raises."""
        ...

    def close(self) -> None:
        """Ends what several links share. Idempotent."""
        ...


class Link:
    """An agent that answers. For one thread at a time. Once anything is raised but what the box answered, it is broken:
    `healthy` is False, and whatever was asked may or may not have happened."""

    def __init__(
        self,
        way: AgentWay,
        native_id: str,
        settings: Mapping[str, Any],
        python: str,
        program: Callable[[Mapping[str, Any]], bytes],
    ) -> None:
        """Starts the `program` that speaks as the agent does. Raises Unreachable, HostKeyChanged;
        PlatformError when no python3 there will do."""
        self._way, self._id = way, native_id
        self._buffer, self._room = bytearray(), bytearray(READ_BYTES)
        self.healthy = False
        self.about: Mapping[str, Any] | None = None
        """Which box requests are about, where the agent serves several."""
        self.used = self._heard = time.monotonic()
        self.reused = False
        """Was it idle before it was asked? Then it may have been dead already."""
        nonce = secrets.token_hex(16)
        sent = program({**settings, "native_id": native_id, "nonce": nonce})
        self._process = self._started(agent_source.reading(python))
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        self._said_by = self._process.stderr.fileno()
        for descriptor in (self._to, self._from, self._said_by):
            os.set_blocking(descriptor, False)
            if sys.platform == "linux":
                with contextlib.suppress(OSError):  # this user may have no more room in pipes
                    fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, READ_BYTES)
        try:
            self._write(sent, START_SECONDS)
            self._skip_banner(b"\0sweepstack-agent " + nonce.encode("ascii") + b"\n")
            hello = self.answer()
            self.python = str(hello["python"])
            self.skew = float(hello["clock"]) - time.time()
            """Seconds that the clock there is ahead of ours; the way of the answer is not counted."""
        except (KeyError, TypeError, ValueError) as error:
            self.close()
            raise Unreachable(f"{native_id} answers as no agent of ours would") from error
        except BaseException:
            self.close()
            raise

    def ask(self, verb: str, *, data: Iterable[bytes] = (), deadline: float = STALL_SECONDS, **args: Any) -> Any:
        """One request and its answer. Raises what the box raised, Unreachable when no answer came."""
        _, value = self.ask_data(verb, data=data, deadline=deadline, **args)
        return value

    def ask_data(
        self,
        verb: str,
        *,
        data: Iterable[bytes] = (),
        deadline: float = STALL_SECONDS,
        most: int = MOST_ANSWER,
        **args: Any,
    ) -> tuple[bytes, Any]:
        """The same, with the data of the answer, of which there are at most `most` bytes."""
        self.request(verb, data=data, **args)
        return self._whole(deadline, most)

    def _whole(self, deadline: float, most: int) -> tuple[bytes, Any]:
        """The answer to the last request with its data."""
        found = bytearray()

        def take(chunk: bytes) -> None:
            if len(found) + len(chunk) > most:
                raise Unreachable(f"{self._id} answers with more than it was asked for")
            found.extend(chunk)

        value = self.answer(take, deadline)
        return bytes(found), value

    def ask_all(self, questions: Sequence[Question], most: int = MOST_ANSWER) -> list[PrefetchedAnswer]:
        """All of them in one round trip, each with an answer of its own, in this order; `most` bytes of data each.

        Raises Unreachable where the connection does not bring them all."""
        self.healthy = False
        asked = (self._asked(one.verb, one.args, self.about if one.of_box else None) for one in questions)
        self._write(b"".join(agent.framed(b"J", one) for one in asked), STALL_SECONDS)
        return [self._one_answer(question.deadline, most) for question in questions]

    def _one_answer(self, deadline: float, most: int) -> PrefetchedAnswer:
        self.healthy = False  # until it is there, and the next one is asked for again
        try:
            return PrefetchedAnswer(*self._whole(deadline, most))
        except (PlatformError, OSError) as error:
            if not self.healthy:
                raise
            return PrefetchedAnswer(b"", None, error)

    def request(self, verb: str, *, data: Iterable[bytes] = (), **args: Any) -> None:
        """Sends a request, and the data that its argument `bytes` announces. Its answer has to be taken."""
        self.healthy = False
        self._frame(b"J", self._asked(verb, args, self.about))
        for chunk in data:
            for begin in range(0, len(chunk), CHUNK):
                self._frame(b"D", chunk[begin : begin + CHUNK])

    def answer(self, take: Callable[[bytes], None] | None = None, deadline: float = STALL_SECONDS) -> Any:
        """The answer to the last request. `take` gets its data as it comes. `deadline`: seconds between signs of life.

        An answer in parts (`size`) is returned part by part, by calling again.
        """
        while True:
            kind, length = agent.HEADER.unpack(self._exactly(agent.HEADER.size, deadline))
            if kind == b"D" and take is not None and 0 < length <= CHUNK:
                self._pass_on(length, take, deadline)
                continue
            if kind == b"Z" and take is not None and 0 < length <= CHUNK:
                take(holes.zeros(length))
                continue
            if kind != b"J" or length > MOST_ANSWER:
                raise Unreachable(f"{self._id} does not answer as agreed")
            break
        try:
            value = json.loads(self._exactly(length, deadline))
        except ValueError as error:
            raise Unreachable(f"{self._id} does not answer as agreed: {error}") from error
        if not isinstance(value, dict):
            raise Unreachable(f"{self._id} does not answer as agreed")
        if "size" in value:
            return value["size"]
        self.used, self.healthy = time.monotonic(), True
        if "error" in value:
            raise self._error(value)
        return value.get("ok")

    def close(self) -> None:
        """Ends it: what it was asked to run is ended, too, by the agent. Idempotent; never blocks for long."""
        self.healthy = False
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe:
                with contextlib.suppress(OSError):
                    pipe.close()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(2)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    @property
    def alive(self) -> bool:
        return self.healthy and self._process.poll() is None

    @staticmethod
    def _asked(verb: str, args: Mapping[str, Any], about: Mapping[str, Any] | None) -> bytes:
        asked = {"verb": verb, "args": dict(args)} | ({"box": dict(about)} if about is not None else {})
        return json.dumps(asked).encode("ascii")

    def _error(self, value: Mapping[str, Any]) -> Exception:
        kind, text = str(value["error"]), str(value.get("text", ""))
        if kind == "OSError":
            number = value.get("errno")
            return OSError(number if isinstance(number, int) else 0, text, self._id)  # FileNotFoundError and its like
        if kind in _KINDS:
            return _KINDS[kind](text)
        self.healthy = False
        return PlatformError(f"our own agent on {self._id} failed, which is a defect of sweepstack: {text}")

    # -- bytes, with deadlines

    def _frame(self, kind: bytes, data: bytes) -> None:
        self._write(agent.HEADER.pack(kind, len(data)) + data, STALL_SECONDS)

    def _write(self, data: bytes, seconds: float) -> None:
        left = memoryview(data)
        ends = time.monotonic() + seconds
        while left:
            try:
                left = left[os.write(self._to, left) :]
                ends = time.monotonic() + seconds
            except BlockingIOError:
                self._wait(self._to, select.POLLOUT, ends, seconds)
            except BrokenPipeError as error:
                raise self._lost() from error

    def _exactly(self, size: int, seconds: float) -> bytes:
        ends = time.monotonic() + seconds
        while len(self._buffer) < size:
            if self._read_some(ends, seconds):
                ends = time.monotonic() + seconds
        found = bytes(self._buffer[:size])
        del self._buffer[:size]
        return found

    def _pass_on(self, size: int, take: Callable[[bytes], None], seconds: float) -> None:
        """The next `size` bytes, in whatever pieces they come."""
        while size:
            piece = self._exactly(min(size, max(1, len(self._buffer))), seconds)
            size -= len(piece)
            take(piece)

    def _read_some(self, ends: float, seconds: float) -> bool:
        try:
            count = os.readv(self._from, [self._room])
        except BlockingIOError:
            self._wait(self._from, select.POLLIN, ends, seconds)
            return False
        if not count:
            raise self._lost()
        self._heard = time.monotonic()
        self._buffer += memoryview(self._room)[:count]
        return True

    def _wait(self, descriptor: int, event: int, ends: float, seconds: float) -> None:
        poller = select.poll()
        poller.register(descriptor, event)
        left = ends - time.monotonic()
        if left <= 0 or not poller.poll(left * 1000):
            self._way.forget_connection()
            raise Silence(f"{self._where()}: no answer within {seconds:g} s")

    def _skip_banner(self, mark: bytes) -> None:
        ends = time.monotonic() + START_SECONDS
        while mark not in self._buffer:
            if len(self._buffer) > BANNER_BYTES:
                raise PlatformError(f"{self._where()}: its login shell prints so much that nothing else gets through")
            self._read_some(ends, START_SECONDS)
        del self._buffer[: self._buffer.index(mark) + len(mark)]

    # -- what each kind of way has of its own

    def _started(self, remote: str) -> subprocess.Popen[bytes]:
        """A process whose stdin, stdout and stderr, three pipes, are those of the shell command `remote` over there.
        Raises what __init__ does."""
        raise NotImplementedError

    def _where(self) -> str:
        """The box, and how it is reached, in words."""
        raise NotImplementedError

    def _verdict(self, code: int | None, said: str) -> PlatformError:
        """Why the process ended: its exit code, and the end of its stderr."""
        raise NotImplementedError

    # -- why there is no answer

    def _lost(self) -> PlatformError:
        """Why the connection ended. Waits for the process to say so, a moment."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        with contextlib.suppress(OSError):
            said = os.read(self._said_by, 1 << 16)[-SAID_BYTES:].decode("utf-8", "replace").strip()
            return self._verdict(self._process.poll(), said)
        return self._verdict(self._process.poll(), "")


class SshLink(Link):
    """An agent that is reached by SSH."""

    _way: Way

    def _started(self, remote: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self._way.command("-T"), remote],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # an interrupt at the terminal is ours to hand on
        )

    def _where(self) -> str:
        return f"{self._id} at {self._way.endpoint.host}:{self._way.endpoint.port}"

    def _verdict(self, code: int | None, said: str) -> PlatformError:
        said = explained(self._way, said) if code == LOST else said
        last = said_last(self._way, said)
        if wrong := wrong_key(self._way, said):
            return wrong
        if door := turned_away(self._way, said):
            at = self._where() if door is self._way else f"{door.pin.native_id}, on the way to {self._where()},"
            if door.master:
                return Unreachable(
                    f"{at} lets {door.endpoint.user} in over a connection that you open yourself, and none is open "
                    f"({last}). Next: ssh -fN {door.name}, answer what it asks, and run the command again"
                )
            return Unreachable(
                f"{at} does not let {door.endpoint.user} in with the key of {door.key.source} ({last}). Was it made "
                f"for another one? SWEEPSTACK_SSH_KEY names the file of the right one"
            )
        if quotes_ours(said):
            return PlatformError(f"{self._where()} does not run what is sent there: {OTHER_SHELL}")
        if code in (126, 127):
            said = last or f"exit code {code}"
            return PlatformError(
                f"{self._where()} can't run python3, which everything there needs: {said}. Nor is there one where "
                f"conda is usually put. {_WAY_OUT}"
            )
        if code == 97:
            return PlatformError(f"{self._where()}: {last.removeprefix('sweepstack: ')}. {_WAY_OUT}")
        silent = time.monotonic() - self._heard
        if code == LOST and not last and silent >= SILENT_SECONDS:
            return Silence(f"{self._where()} can't be reached: nothing came from it for {silent:.0f} s")
        return Unreachable(f"{self._where()} can't be reached: {last or f'the connection ended (exit code {code})'}")


def explained(way: Way, said: str) -> str:
    """What was said, and on a way through other hosts what they say: over a connection that is to stay, ssh throws that
    away. So it is asked once more, alone. Never raises; blocks for the time that a connection takes."""
    if (way.via is None and not way.proxy) or wrong_key(way, said) or turned_away(way, said):
        return said
    command = [*way.command("-T", shared=False), "exit"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, start_new_session=True
        )
    except (OSError, subprocess.TimeoutExpired):
        return said
    return done.stderr[-4000:].decode("utf-8", "replace").strip() or said


def quotes_ours(said: str) -> bool:
    """Whether a program there quotes the compressed program that was sent for python3: it has read that itself."""
    return _OURS.search(said) is not None or any(letter < " " and letter not in "\a\b\t\n\r\x1b" for letter in said)


def said_last(way: Way, said: str) -> str:
    """What ssh said at its end; on a way through other hosts, which of them said it, too."""
    lines = said.splitlines() or [""]
    return lines[-1] if way.via is None and not way.proxy else "; ".join(lines[-2:])


def wrong_key(way: Way, said: str) -> HostKeyChanged | None:
    """The error where ssh said that a host key is not the pinned one: the box's, or that of a host on the way to it."""
    if "HOST IDENTIFICATION HAS CHANGED" not in said and "Host key verification failed" not in said:
        return None
    named = (one for one in way.chain if str(one.pin.path) in said or one.pin.alias in said)
    where = next(named, way)
    return changed(where.pin, where.endpoint)


def turned_away(way: Way, said: str) -> Way | None:
    """Whose sshd did not take the key, where ssh said that one did not."""
    if "Permission denied (" not in said:
        return None
    named = (one for one in way.chain if f"{one.endpoint.user}@{one.endpoint.host}: Permission denied" in said)
    return next(named, way)
