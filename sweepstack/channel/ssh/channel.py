"""A box that is reached over a connection: all requests go through our agent on the box.

See `agent`; the connection is OpenSSH's, where an adapter has no other. A person's shell or command on the box and a
forwarded port go over it, too.
Many small files are fetched in one request: a round trip and a flush for each would be most of the time of a pull.
"""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, NoReturn, TypeVar

from sweepstack.channel import agent_source
from sweepstack.channel.pinned_keys import Pin
from sweepstack.channel.prefetch import READS, Answers, Question
from sweepstack.channel.ssh import keys as ssh_keys
from sweepstack.channel.ssh.link import MOST_ANSWER, Link, said_last, wrong_key
from sweepstack.channel.ssh.links import Links, SshLinks, shared
from sweepstack.channel.ssh.options import Way
from sweepstack.onbox.agent.agent import MOST_READ
from sweepstack.onbox.agent.channel import BoxProcess, DirEntry, Listing, Other, SshEndpoint, safe_parts
from sweepstack.onbox.agent.file_writes import CHUNK, open_target
from sweepstack.onbox.common import holes
from sweepstack.onbox.common.canonical import fsync_directory
from sweepstack.onbox.common.errors import PlatformError, Unreachable, Unsupported
from sweepstack.onbox.common.run_process import Completed
from sweepstack.onbox.visit.shell import interrupts_for_command

ROOT = "/sweepstack"
LOCK_SECONDS = 90.0
"""An append waits on the box for up to 60 s for its lock."""
MOST_NAME = 4096
T = TypeVar("T")
_KINDS = ("file", "dir", "link", "other")

MOST_FILES = 512
"""In one request: what a cut may have to bring again."""
FLUSHERS = 8
"""Flushes at once: a disk that is asked for several does them together."""


class AgentChannel:
    """See `onbox.agent.channel.Channel`, of which `attach` and `reach` are left to each kind of way. `root`: the folder
    on the box below which box-relative paths lie.

    Cheap to make, and nothing is connected before the first call. Connections stay open for a minute, and all channels
    of this process that go the same way share them, so that a call costs one round trip; `close` ends them for all.
    `closed` says why nothing is started on the box now; empty while it is open.
    """

    def __init__(
        self,
        native_id: str,
        links: Links,
        root: str,
        settings: Mapping[str, Any] | None = None,
        closed: Callable[[], str] | None = None,
        answers: Answers | None = None,
    ) -> None:
        """`settings`: the box, for an agent that serves more than this one; None where it serves no other. `answers`:
        what it said already of what will be asked."""
        self.native_id = native_id
        self.root = root
        self._closed = closed
        self._about = {"native_id": native_id, **settings} if settings is not None else None
        self._links = links
        self._answers = Answers() if answers is None else answers  # one that knows nothing is false

    def prefetch(self, questions: Sequence[Question]) -> None:
        """See `sweepstack.channel.prefetch.Prefetches`."""
        if not self._answers:
            came = self._asking(lambda link: link.ask_all(questions, MOST_READ), again=True)
            self._answers.keep(questions, came)

    @property
    def python(self) -> str:
        """Asks the box, the first time. Raises Unreachable."""
        if not self._links.python:
            self._ask("ping")
        return self._links.python

    @property
    def skew(self) -> float:
        """Asks the box, the first time. Raises Unreachable."""
        if not self._links.python:
            self._ask("ping")
        return self._links.skew

    def prepare(self) -> None:
        """Makes the box's root where it is not there. Only for the code that made the box, once it runs: later on, a
        root that is not there is a fault. Idempotent."""
        self._ask("prepare")

    def close(self) -> None:
        """Ends the connections that are open. Idempotent."""
        self._links.close()

    def absolute(self, path: str) -> str:
        return str(PurePosixPath(self.root).joinpath(*safe_parts(path)))

    def read(self, path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        safe_parts(path)
        most = MOST_READ if limit is None else min(limit, MOST_READ)
        data, _ = self._ask_data("read", most=most, path=path, offset=offset, limit=limit)
        return data

    def size(self, path: str) -> int | None:
        safe_parts(path)
        found = self._ask("size", path=path)
        return None if found is None else self._count(found)

    def tails(self, paths: Sequence[str], most: int) -> dict[str, tuple[int, bytes]]:
        for path in paths:
            safe_parts(path)
        found, left = self._answers.take_tails(paths, most)
        if left:
            asked = self._ask("tails", paths=left, limit=most)
            found = {**found, **(asked if isinstance(asked, dict) else self._nonsense())}
        try:
            tails = {path: (self._count(size), base64.b64decode(data)) for path, (size, data) in found.items()}
        except (AttributeError, TypeError, ValueError):
            self._nonsense()
        if not set(tails) <= set(paths) or any(len(data) > min(most, size) for size, data in tails.values()):
            self._nonsense()
        return tails

    def listdir(self, path: str) -> list[DirEntry]:
        safe_parts(path)
        found = self._ask("listdir", path=path)
        if not isinstance(found, list):
            self._nonsense()
        return [self._entry(one) for one in found]

    def walk(
        self, folders: Sequence[str], *, skip: Sequence[str] = (), limit: int = 100_000, seconds: float = 5.0
    ) -> Listing:
        for folder in folders:
            safe_parts(folder)
        found = self._ask(
            "walk", deadline=seconds + 60, folders=list(folders), skip=list(skip), limit=limit, seconds=seconds
        )
        try:
            files = tuple((str(path), self._count(size), float(changed)) for path, size, changed in found["files"])
            problem = str(found["problem"])
        except (KeyError, TypeError, ValueError):
            self._nonsense()
        below = tuple(f"{folder}/" for folder in folders)
        if len(files) > limit or not all(
            path.startswith(below) and ".." not in path.split("/") for path, _, _ in files
        ):
            self._nonsense()
        return Listing(files, problem)

    def others(self, folders: Sequence[str], *, limit: int = 10_000, seconds: float = 5.0) -> list[Other]:
        for folder in folders:
            safe_parts(folder)
        found = self._ask("others", deadline=seconds + 60, folders=list(folders), limit=limit, seconds=seconds)
        try:
            others = [Other(str(path), str(what), str(means), self._count(size)) for path, what, means, size in found]
            for one in others:
                safe_parts(one.path), one.means and safe_parts(one.means)
        except (TypeError, ValueError, PlatformError):
            self._nonsense()
        return others

    def fetch(self, path: str, target: Path, progress: Callable[[int], None] | None = None) -> None:
        safe_parts(path)
        say = progress or _silent
        with open_target(target) as copy:
            begun = os.fstat(copy.fileno()).st_size
            said = False

            def receive(link: Link) -> None:
                nonlocal said
                done = os.fstat(copy.fileno()).st_size
                link.request("fetch", path=path, offset=done)
                expected = self._count(link.answer())
                if done > expected:
                    copy.truncate(0)
                    done = 0
                copy.seek(done)
                if not said and begun and done:
                    say(done)
                said = True

                def take(chunk: bytes) -> None:
                    nonlocal done
                    if done + len(chunk) > expected:
                        self._nonsense()
                    holes.write(copy, chunk)
                    done += len(chunk)
                    say(len(chunk))

                try:
                    link.answer(take)
                finally:
                    copy.flush()
                if done != expected:
                    self._nonsense()

            self._carry(receive)
            os.fsync(copy.fileno())
        fsync_directory(target.parent)

    def fetch_many(self, files: Sequence[tuple[str, Path]], progress: Callable[[int], None] | None = None) -> None:
        for path, _ in files:
            safe_parts(path)
        with Flushing() as flushing:
            for begin in range(0, len(files), MOST_FILES):
                batch = files[begin : begin + MOST_FILES]
                self._carry(Receiver(batch, self._count, progress or _silent).take)
                flushing.add([target for _, target in batch])

    def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        safe_parts(path)
        self._ask("write", data=(data,), path=path, mode=mode, bytes=len(data))

    def touch(self, path: str) -> bool:
        safe_parts(path)
        return self._ask("touch", path=path) is True

    def append_locked(self, path: str, data: bytes, lock: str, *, at: int | None = None) -> bool:
        safe_parts(path), safe_parts(lock)
        if not data.endswith(b"\n"):
            raise PlatformError(f"only whole lines are appended to {path}: the data must end in a newline")
        asked = {"path": path, "lock": lock, "bytes": len(data), "at": at}
        return self._once("append", data=(data,), deadline=LOCK_SECONDS, **asked) is True

    def put_tree(self, files: Iterable[tuple[str, Path, int]], dest: str) -> None:
        safe_parts(dest)
        if self._ask("has", path=dest):
            return
        self._answers.clear()
        shipment = []
        for relative, source, mode in files:
            safe_parts(relative)
            status = source.stat()
            if not stat.S_ISREG(status.st_mode):
                raise PlatformError(f"{source} is not a regular file")
            shipment.append((relative, source, status.st_size, mode))

        def send(link: Link) -> None:
            announced = [(relative, size, mode) for relative, _, size, mode in shipment]
            total = sum(size for _, _, size, _ in shipment)
            chunks = (chunk for _, source, size, _ in shipment for chunk in _exactly(source, size))
            link.ask("put_tree", data=chunks, dest=dest, files=announced, bytes=total)

        self._carry(send)

    def spawn(self, argv: Sequence[str], *, cwd: str, env: Mapping[str, str], log: str) -> int:
        safe_parts(cwd), safe_parts(log)
        self._must_run()
        return self._count(self._once("spawn", argv=list(argv), cwd=cwd, env=dict(env), log=log))

    def lock_held(self, path: str) -> bool:
        safe_parts(path)
        return self._ask("lock_held", path=path) is not False

    def run(self, argv: Sequence[str], *, timeout: float, stdin: bytes | None = None) -> Completed:
        self._must_run()
        given = stdin or b""

        def do(link: Link) -> tuple[bytes, Any]:
            words: dict[str, Any] = {"argv": list(argv), "timeout": timeout, "stdin": stdin is not None}
            return link.ask_data(
                "run", data=(given,) if given else (), deadline=timeout + 30, bytes=len(given), **words
            )

        data, how = self._asking(do, again=False)
        try:
            code, out, err = (int(how[name]) for name in ("returncode", "stdout", "stderr"))
        except (KeyError, TypeError, ValueError):
            self._nonsense()
        if out < 0 or err < 0 or out + err != len(data):
            self._nonsense()
        return Completed(code, data[:out], data[out:])

    def processes(self) -> list[BoxProcess]:
        found = self._ask("processes")
        try:
            return [BoxProcess(self._count(pid), tuple(str(word) for word in argv)) for pid, argv in found]
        except (TypeError, ValueError):
            self._nonsense()

    def terminate(self, pid: int, *, grace: float = 5.0) -> None:
        self._ask("terminate", deadline=grace + 60, pid=pid, grace=grace)

    # -- asking

    def _ask(self, verb: str, **words: Any) -> Any:
        """For what changes nothing when it is done twice."""
        return self._ask_data(verb, **words)[1]

    def _ask_data(self, verb: str, *, most: int = MOST_ANSWER, **words: Any) -> tuple[bytes, Any]:
        if verb in READS:
            known = self._answers.take(verb, {name: word for name, word in words.items() if name != "deadline"})
            if known is not None:
                return known.get()
        elif verb not in ("ping", "size", "listdir", "has", "processes", "touch"):
            self._answers.clear()
        return self._asking(lambda link: link.ask_data(verb, most=most, **words), again=True)

    def _once(self, verb: str, **words: Any) -> Any:
        self._answers.clear()
        return self._asking(lambda link: link.ask(verb, **words), again=False)

    def _carry(self, do: Callable[[Link], None]) -> None:
        """For files. They go the same way; a relay has none for them."""
        self._must_copy("copy files")
        self._links.ask(do, again=True, about=self._about)

    def _asking(self, do: Callable[[Link], T], *, again: bool) -> T:
        self._must_copy("read or write anything")
        return self._links.ask(do, again=again, about=self._about)

    def _must_copy(self, what: str) -> None:
        """Raises Unsupported where this way passes a terminal and nothing else."""

    def _must_run(self) -> None:
        self._answers.clear()
        why = self._closed() if self._closed else ""
        if why:
            raise PlatformError(f"{self.native_id} {why}")

    # -- what comes from a box is data

    def _entry(self, one: Any) -> DirEntry:
        try:
            name, kind, size = one
        except (TypeError, ValueError):
            self._nonsense()
        whole = isinstance(name, str) and 0 < len(name) <= MOST_NAME and name not in (".", "..")
        if not whole or "/" in name or "\0" in name or kind not in _KINDS:
            self._nonsense()
        return DirEntry(name, kind, self._count(size))

    def _count(self, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self._nonsense()
        return int(value)

    def _nonsense(self) -> NoReturn:
        raise Unreachable(f"{self.native_id} gave an answer that can't be one: nothing of it is believed")


class SshChannel(AgentChannel):
    """A box that is reached by SSH. `mounts`: box-relative path → where a volume's content lies on the box. One that
    lies at its own place below `root` has to be mounted there."""

    _links: SshLinks

    def __init__(
        self,
        native_id: str,
        endpoint: SshEndpoint,
        *,
        root: str = ROOT,
        mounts: Mapping[str, str] | None = None,
        key: ssh_keys.SshKey | None = None,
        python: str = "python3",
        host_keys: Path | None = None,
        config: str = "none",
        closed: Callable[[], str] | None = None,
        links: SshLinks | None = None,
        answers: Answers | None = None,
    ) -> None:
        """`links`: to an agent that serves more than this box; `endpoint` is then theirs. `answers`: what it said
        already of what will be asked. Raises NotAuthorized without a key."""
        self.endpoint = endpoint
        self._command = python
        settings = {"root": root, "mounts": {path: str(PurePosixPath(to)) for path, to in (mounts or {}).items()}}
        if links is not None:
            super().__init__(native_id, links, root, settings, closed, answers)
            return
        pin = Pin(endpoint.known_as or native_id, endpoint.start, host_keys)
        way = Way(endpoint, key or ssh_keys.choose(), pin, config)
        super().__init__(native_id, shared(way, native_id, settings, python), root, None, closed, answers)

    @property
    def way(self) -> Way:
        """How the box is reached."""
        return self._links.way

    @property
    def pin(self) -> Pin:
        """The host key that the box has to show."""
        return self._links.way.pin

    def attach(self, argv: Sequence[str], *, cwd: str = "", terminal: bool = False) -> int:
        self._must_run()
        if cwd:
            safe_parts(cwd)
        self._links.first_contact()
        settings = {
            "native_id": self.native_id,
            "root": self.root,
            "argv": list(argv),
            "cwd": cwd,
            "terminal": terminal,
        }
        return attach_shell(self._links.way, settings, self._command, proxied=self.endpoint.proxied)

    def reach(self, port: int, local: int, say: Callable[[str], None] | None = None) -> str:
        self._must_copy("forward a port")
        self._must_run()
        self._links.first_contact()
        return reach_port(self._links.way, port, local, say or _silent_text)

    def _must_copy(self, what: str) -> None:
        if self.endpoint.proxied:
            raise Unsupported(
                f"{self.native_id} is reached through its platform's relay ({self.endpoint.host}), which passes a "
                f"terminal and nothing else: it can't {what}. Give the box a public port for SSH, or use "
                f"`sweepctl ssh BOX`"
            )


def _exactly(source: Path, size: int) -> Iterable[bytes]:
    """The content of a file that was announced with `size` bytes. Raises PlatformError when it changed since."""
    with source.open("rb") as handle:
        left = size
        while left:
            chunk = handle.read(min(CHUNK, left))
            if not chunk:
                raise PlatformError(f"{source} changed while it was shipped: run the command again")
            left -= len(chunk)
            yield chunk


def _silent(_count: int) -> None:
    """Progress that is thrown away."""


def _silent_text(_text: str) -> None:
    """Words that are thrown away."""


LOST = 255
"""What ssh itself exits with; a command may, too: then ssh has said nothing."""
CONNECT_SECONDS = 40.0
LONGEST_PAUSE = 30.0


def attach_shell(way: Way, settings: Mapping[str, Any], python: str, *, proxied: bool) -> int:
    """See `Channel.attach`. Through a relay there is a login shell and nothing else."""
    if proxied:
        if settings["argv"]:
            raise PlatformError(
                f"{settings['native_id']} is reached through its platform's relay, which passes a terminal and no "
                f"command: `sweepctl ssh BOX`, and type it there"
            )
        remote: list[str] = []
    else:
        remote = [agent_source.given(python, agent_source.visit(settings))]
    kind = "-tt" if settings["terminal"] or proxied else "-T"
    with tempfile.TemporaryDirectory(prefix="sweepstack-") as folder:
        log = Path(folder) / "ssh.log"
        # An interrupt at the terminal goes to the command; without one on the box, ssh ends, and the box ends it.
        with interrupts_for_command():
            code = subprocess.run([*way.command(kind, "-E", str(log), shared=not proxied), *remote]).returncode
        said = _said(log)
    if code == LOST and said:
        raise _why(way, said)
    return 128 - code if code < 0 else code


def reach_port(way: Way, port: int, local: int, say: Callable[[str], None]) -> str:
    """See `Channel.reach`. A tunnel of its own, made anew whenever it breaks, until Ctrl-C."""
    where = f"http://127.0.0.1:{local}"
    pause, made = 1.0, False
    while True:
        with _tunnel(way, port, local) as (process, log):
            if _established(process, local):
                try:
                    say(f"{where} is port {port} of the box; Ctrl-C ends it" if not made else f"{where} is there again")
                    made, pause = True, 1.0
                    process.wait()
                except KeyboardInterrupt:
                    return f"{where} was port {port} of the box, until now"
            said = _said(log)
        if "already in use" in said or "cannot listen" in said:
            raise PlatformError(
                f"port {local} of this machine is taken. Next: forward another one, as {local + 1}:{port}"
            )
        if not made:
            raise _why(way, said or "the tunnel was not made in time")
        try:
            time.sleep(pause)
        except KeyboardInterrupt:
            return f"{where} was port {port} of the box, until the connection broke"
        pause = min(pause * 2, LONGEST_PAUSE)


@contextlib.contextmanager
def _tunnel(way: Way, port: int, local: int) -> Any:
    with tempfile.TemporaryDirectory(prefix="sweepstack-") as folder:
        log = Path(folder) / "ssh.log"
        options = ["-N", "-o", "ExitOnForwardFailure=yes", "-E", str(log), "-L", f"127.0.0.1:{local}:127.0.0.1:{port}"]
        process = subprocess.Popen(
            way.command(*options, shared=False, masters=False), stdin=subprocess.DEVNULL, start_new_session=True
        )
        try:
            yield process, log
        finally:
            process.terminate()
            process.wait()


def _established(process: subprocess.Popen[bytes], local: int) -> bool:
    ends = time.monotonic() + CONNECT_SECONDS
    while time.monotonic() < ends and process.poll() is None:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            if probe.connect_ex(("127.0.0.1", local)) == 0 and process.poll() is None:
                return True
        time.sleep(0.05)
    return False


def _said(log: Path) -> str:
    try:
        with log.open("rb") as handle:
            return handle.read(8000).decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return ""


def _why(way: Way, said: str) -> PlatformError:
    if wrong := wrong_key(way, said):
        return wrong
    where = f"{way.pin.native_id} at {way.endpoint.host}:{way.endpoint.port}"
    own = "; a tunnel takes a connection of its own, which your shared one can make: ssh -O forward -L …"
    return Unreachable(f"{where} can't be reached: {said_last(way, said)}{f'{own} {way.name}' if way.master else ''}")


class Receiver:
    """Files of a box on their way here. `take` may be begun anew on another connection: what is whole stays."""

    def __init__(
        self, files: Sequence[tuple[str, Path]], count: Callable[[Any], int], say: Callable[[int], None]
    ) -> None:
        """`count` reads a size that the box said, or raises."""
        self._files, self._count, self._say = files, count, say
        self._done = 0

    def take(self, link: Link) -> None:
        """Brings the rest of them. Raises what the box raised, Unreachable."""
        rest = self._files[self._done :]
        link.request("fetch_many", paths=[path for path, _ in rest])
        said = link.answer() if rest else None
        for _, target in rest:
            said = self._one(link, target, self._count(said))
            self._done += 1

    def _one(self, link: Link, target: Path, expected: int) -> Any:
        """One file; returns what the box said after it: the size of the next one, or nothing after the last."""
        here = 0
        with open_target(target) as copy:
            copy.truncate(0)

            def write(chunk: bytes) -> None:
                nonlocal here
                here += len(chunk)
                if here > expected:
                    raise Unreachable("the box sends more than it announced: nothing of it is believed")
                copy.write(chunk)

            said = link.answer(write)
        if here != expected:
            raise Unreachable("the box sends less than it announced: nothing of it is believed")
        self._say(here)
        return said


class Flushing:
    """Flushes files while the next ones come. All that were added last through a power cut when the `with` has ended
    without an error, and so do their names."""

    def __init__(self) -> None:

        self._pool = ThreadPoolExecutor(FLUSHERS)
        self._folders: set[Path] = set()
        self._begun: list[Iterator[None]] = []

    def add(self, targets: Sequence[Path]) -> None:
        """These are whole: their bytes may be flushed from now on."""
        self._begun.append(self._pool.map(_flush, [targets[part::FLUSHERS] for part in range(FLUSHERS)]))
        self._folders |= {target.parent for target in targets}

    def __enter__(self) -> Flushing:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._pool:
            if error is None:
                for flushed in (*self._begun, self._pool.map(fsync_directory, self._folders)):
                    list(flushed)  # raises what went wrong


def _flush(targets: Sequence[Path]) -> None:
    for target in targets:
        descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
