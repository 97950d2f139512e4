"""The way to a box on a cluster: our agent in one of its pods, by exec; and its workers.

Files are read in a worker's pod, or in the reader's where no worker runs: both have the claim on which the box lies.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

from sweepstack.channel import agent_source
from sweepstack.channel.interpreters import finding
from sweepstack.channel.ssh.channel import AgentChannel
from sweepstack.channel.ssh.link import Link
from sweepstack.channel.ssh.links import Links
from sweepstack.extensions.kubernetes import jobs, objects, power, reader, workers
from sweepstack.extensions.kubernetes.api import Cluster
from sweepstack.extensions.kubernetes.exec_bridge import LOST
from sweepstack.extensions.kubernetes.objects import HOME, ROOT
from sweepstack.extensions.kubernetes.onbox.pilot import COMPILED, HELD, READS, START
from sweepstack.extensions.kubernetes.pod_template import CONTAINER
from sweepstack.launch.ship import bring_program, bring_runner, write_changed
from sweepstack.onbox.agent.channel import safe_parts
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import NotAuthorized, PlatformError, Unreachable
from sweepstack.onbox.host.platform import Wait
from sweepstack.onbox.visit.shell import interrupts_for_command

PYTHON = "python3"
PATIENCE_SECONDS = 3.0
"""For so long a reader that begins is tried: one whose image has to be pulled takes longer, and says why."""
ENDS_SECONDS = 60.0
"""For a look at the journal's ends of workers."""
LOOK_SECONDS = 10.0
"""So often it is asked, while a reader is used, whether a worker runs now."""
MOST_CONNECTIONS = 16
"""Of one forwarded port, at once."""
ACCEPT_SECONDS = 0.5
_SHELL = (
    "the image has to have a shell (sh) and Python 3.8 or newer as python3 on its PATH: write another "
    "overrides.kubernetes.image, such as python:3.12-slim"
)
_NO_SHELL = ("executable file not found", "no such file or directory")
T = TypeVar("T")


class PodWay:
    """How the pod of a box is reached. `pod`: the one that was asked last; `next`: the one to ask; None: not known."""

    def __init__(self, cluster: Cluster, native_id: str) -> None:
        self.cluster, self.native_id = cluster, native_id
        self.pod: reader.Found | None = None
        self.next: reader.Found | None = None

    @property
    def facts(self) -> tuple[object, ...]:
        return (str(self.cluster.address), self.native_id)

    @property
    def where(self) -> str:
        return f"{self.native_id} (pod {self.pod.name})" if self.pod is not None else self.native_id

    def forget_connection(self) -> None:
        """Each command has a connection of its own."""

    close = forget_connection

    def start(
        self, remote: str, stdin: Any, stdout: Any, stderr: Any = None, *, terminal: bool = False, report: str = ""
    ) -> subprocess.Popen[bytes]:
        """A process that is the shell command `remote` in the pod. `stdin`, `stdout`, `stderr`: as Popen takes them;
        None: the person's. `terminal`: it gets one; else `onbox/leash.py` has to take what a person types. `report`: a
        file for what the way itself says. Raises what `reader.pod_for` raises."""
        found = self.pod = self.next or reader.pod_for(self.cluster, self.native_id)
        known = found.cluster.exec_facts(found.name)
        words = [("container", CONTAINER), ("stdin", "true"), ("stdout", "true")]
        words += [("tty", "true")] if terminal else [("stderr", "true")]
        words += [("command", word) for word in ("sh", "-c", remote)]
        facts = {
            **known,
            "path": f"{known['path']}/exec?{urlencode(words)}",
            "own": stdin is not None,
            "patience": PATIENCE_SECONDS if found.begins else 0,
            "pieces": stdin is None and not terminal,
            "terminal": terminal,
            "report": report,
        }
        source, sink = os.pipe()
        try:
            told = threading.Thread(target=_tell, args=(sink, json.dumps(facts).encode()), daemon=True)
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", bridge(), str(source)],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=(source,),
                start_new_session=stdin is not None,  # an interrupt at the terminal is ours to hand on
            )
        except BaseException:
            os.close(sink)
            raise
        finally:
            os.close(source)
        told.start()
        return process

    def verdict(self, code: int | None, said: str) -> PlatformError:
        """Why a command in the pod could not be run, or was cut: the exit code, and the end of what was said."""
        last = (said.splitlines() or [""])[-1]
        if code in (126, 127) or (code == LOST and any(word in last for word in _NO_SHELL)):
            return PlatformError(f"{self.where} can't run python3: {last or f'exit code {code}'}. Next: {_SHELL}")
        if code == 97:
            return PlatformError(f"{self.where}: {last.removeprefix('sweepstack: ')}. Next: {_SHELL}")
        if code == LOST and (" answers 401: " in last or " answers 403: " in last):
            return NotAuthorized(
                f"{self.where} can't be asked: {last}. Next: ask who runs the cluster for the verbs get and create of "
                f"pods/exec in {self.cluster}"
            )
        return Unreachable(f"{self.where} can't be reached: {last or f'its agent ended (exit code {code})'}")


def bridge() -> str:
    """What an interpreter that imports no site (30 ms) is given to be `exec_bridge`."""
    import websockets

    folders = [str(Path(file).resolve().parents[above]) for file, above in ((__file__, 3), (websockets.__file__, 1))]
    program = "from sweepstack.extensions.kubernetes.exec_bridge import main; sys.exit(main(sys.argv))"
    return f"import sys; sys.path[:0] = {folders!r}; {program}"


def _alone(name: str) -> str:
    """What an interpreter in a pod is given to run a module of ours that needs no other one."""
    return f"-I -S -c {shlex.quote((Path(__file__).parent / 'onbox' / f'{name}.py').read_text(encoding='utf-8'))}"


def _tell(sink: int, data: bytes) -> None:
    """Writes what the bridge needs, however small the pipe is."""
    with contextlib.suppress(OSError), os.fdopen(sink, "wb") as pipe:
        pipe.write(data)


class PodLink(Link):
    """An agent in a pod."""

    _way: PodWay

    def _started(self, remote: str) -> subprocess.Popen[bytes]:
        return self._way.start(remote, subprocess.PIPE, subprocess.PIPE, subprocess.PIPE)

    def _where(self) -> str:
        return self._way.where

    def _verdict(self, code: int | None, said: str) -> PlatformError:
        return self._way.verdict(code, said)


class PodLinks(Links):
    """Connections to agents in the pods of one box. `way` is the box's, whichever pod is asked."""

    way: PodWay

    def __init__(self, way: PodWay, connect: Callable[[Any], Link]) -> None:
        super().__init__(way, connect)
        self.looked = time.monotonic()

    def _connect_to(self, way: Any) -> Link:
        before = way.pod
        try:
            return super()._connect_to(way)
        except Unreachable:
            tried = way.pod
            if tried is before or tried is way.next or reader.pod_for(way.cluster, way.native_id).uid == tried.uid:
                raise  # there was none to try, or it is the one to ask still
        return super()._connect_to(way)  # that pod has ended meanwhile, and there is another one


def _agent(settings: Mapping[str, Any]) -> bytes:
    """The program of an agent. In a pod that waits it keeps what it compiles, for the worker that starts there."""
    return agent_source.agent(settings, COMPILED if settings["native_id"] in reader.FIRST else None)


_SHARED: dict[str, PodLinks] = {}
_SHARING = threading.Lock()


def _shared(cluster: Cluster, native_id: str) -> PodLinks:
    """The connections of this process to this box."""
    way = PodWay(cluster, native_id)
    with _SHARING:
        if (found := _SHARED.get(repr(way.facts))) is None:
            settings = {"root": ROOT, "mounts": {}}
            connect = partial(PodLink, native_id=native_id, settings=settings, python=PYTHON, program=_agent)
            found = _SHARED[repr(way.facts)] = PodLinks(way, connect)
        return found


class PodChannel(AgentChannel):
    """See `sweepstack.onbox.agent.channel.Channel` and `Scheduled`. `wait`: for the first answer of a new box."""

    _links: PodLinks

    def __init__(
        self,
        cluster: Cluster,
        native_id: str,
        account: str,
        closed: Callable[[], str] | None = None,
        wait: Wait | None = None,
        *,
        fresh: bool = False,
    ) -> None:
        super().__init__(native_id, _shared(cluster, native_id), ROOT, None, closed)
        self._cluster, self._account, self._wait, self._fresh = cluster, account, wait, fresh

    def prepare(self) -> None:
        """Makes the folders of a box that no pod has had yet, and writes on its claim that one has. Blocks until a pod
        can be asked: a worker that begins, where one was asked for, else a reader. Idempotent. Raises Unreachable;
        PlatformError where the volume can't be written."""
        way, self._fresh = self._links.way, False
        way.next = reader.pod_for(self._cluster, self.native_id, self._wait, soon=True)
        try:
            self._ask("ping")
        except Unreachable:
            reader.pod_for(self._cluster, self.native_id, self._wait)
        finally:
            way.next = None
        try:
            super().prepare()
            folders = ["scratch", "data", box_layout.DURABLE]
            done = self.run(["mkdir", "-p", *map(self.absolute, folders), HOME], timeout=60)
        except PermissionError as error:
            raise self._no_write(str(error)) from error
        if done.returncode:
            raise self._no_write(done.stderr.decode("utf-8", "replace").strip())
        if self.native_id in reader.FIRST:  # it starts while the rest is brought
            self._bring_start(bring_runner(self))
        self._cluster.patch("pvc", self.native_id, objects.mark(ready_at=objects.now(), fresh=None))

    def _no_write(self, said: str) -> PlatformError:
        return PlatformError(
            f"{self.native_id}: its pods may not write to its volume ({said}). Its storage does not give it to the "
            "group of the pods (fsGroup): write overrides.kubernetes.pod.securityContext with the runAsUser and the "
            "fsGroup that own it, or another storage class"
        )

    def lock_held(self, path: str) -> bool:
        """For the runner's lock: whether a worker runs, or waits and will begin by itself, as the cluster says."""
        if path == box_layout.RUNNER_LOCK:
            return workers.at_work(self._cluster, self.native_id)
        return super().lock_held(path)

    # -- a person's own commands

    def attach(self, argv: Sequence[str], *, cwd: str = "", terminal: bool = False) -> int:
        self._must_run()
        if cwd:
            safe_parts(cwd)
        about = {"native_id": self.native_id, "root": self.root, "argv": list(argv), "cwd": cwd, "terminal": True}
        remote, way = agent_source.given(PYTHON, agent_source.visit(about)), self._links.way
        if not terminal:  # nothing else tells the command that the person is gone
            remote = f'{finding()}; exec "$q" {_alone("leash")} sh -c {shlex.quote(remote)}'
        with tempfile.TemporaryDirectory(prefix="sweepstack-") as folder:
            report = Path(folder) / "said"
            with interrupts_for_command():
                code = way.start(remote, None, None, terminal=terminal, report=str(report)).wait()
            said = report.read_text("utf-8", "replace").strip() if report.exists() else ""
        if code == LOST and said:
            raise way.verdict(code, said)
        return 128 - code if code < 0 else code

    def reach(self, port: int, local: int, say: Callable[[str], None] | None = None) -> str:
        self._must_run()
        self._ask("ping")
        where, way = f"http://127.0.0.1:{local}", self._links.way
        with socket.socket() as door:
            door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                door.bind(("127.0.0.1", local))
            except OSError as error:
                raise PlatformError(
                    f"port {local} of this machine is taken. Next: forward another one, as {local + 1}:{port}"
                ) from error
            door.listen(MOST_CONNECTIONS)
            door.settimeout(ACCEPT_SECONDS)
            tell = say or (lambda _text: None)
            tell(f"{where} is port {port} of {way.where}; Ctrl-C ends it")
            forwarded = _Forwarded(way, self.python, port, tell)
            try:
                while True:
                    with contextlib.suppress(TimeoutError):
                        forwarded.add(door.accept()[0])
            except KeyboardInterrupt:
                return f"{where} was port {port} of the box, until now"
            finally:
                forwarded.close()

    # -- the workers

    def state_command(self) -> list[str]:
        return [self.python, self._program("worker_state"), self.native_id, self.absolute(box_layout.HOME)]

    def top_up(self, runner: str, scheduler: Mapping[str, Any], cells: int) -> str:
        self._bring_start(runner)
        about = (self._cluster, self.native_id, self._account, scheduler, cells)
        stopped = lambda: workers.ends_in(self._printed(workers.ENDS, box_layout.JOURNAL))  # noqa: E731
        return workers.top_up(*about, keep=self._keep, stopped=stopped)

    def _bring_start(self, runner: str) -> None:
        """What a worker's pod begins with: see `onbox/pilot.py`."""
        pilot, home = self._program("pilot"), self.absolute(box_layout.HOME)
        waits = map(str, (jobs.WAIT_SECONDS, jobs.LONGEST_WAIT))
        start = shlex.join(["exec", self.python, *READS, "-E", "-s", pilot, home, runner, *waits])
        write_changed(self, f"{box_layout.HOME}/{START}", f"{start}\n".encode())

    def _printed(self, program: str, path: str) -> bytes:
        """What a program prints on the box. `path`: its argument."""
        return self.run([self.python, "-c", program, self.absolute(path)], timeout=ENDS_SECONDS).stdout

    def end_workers(self) -> None:
        self._cluster.require(self._account)
        workers.end_all(self._cluster, self.native_id, power.END_SECONDS, keep=self._keep)

    def workers(self) -> Mapping[str, Any]:
        return workers.told(self._cluster, self.native_id, self._account, keep=self._keep)

    def worker_ended(self, worker: str, saw: str) -> str:
        about = (self._cluster, self.native_id, self._account, worker, saw)
        parts = partial(self._printed, workers.PARTS, f"{box_layout.HOME}/{HELD}")
        return workers.person_saw(*about, keep=self._keep, parts=parts)

    def _keep(self, files: Mapping[str, bytes]) -> None:
        """Puts on record how pods ended: see `workers.Keep`."""
        for path, data in files.items():
            self.write(f"{box_layout.HOME}/{path}", data)

    def _program(self, name: str) -> str:
        """The path of a program that pods run (`workers.pilot_files`), which is brought."""
        return self.absolute(f"{box_layout.HOME}/{bring_program(self, 'pilot', workers.pilot_files())}/{name}.py")

    # -- asking

    def _carry(self, do: Callable[[Link], None]) -> None:
        self._choose()
        super()._carry(do)

    def _asking(self, do: Callable[[Link], T], *, again: bool) -> T:
        self._choose()
        return super()._asking(do, again=again)

    def _choose(self) -> None:
        """Makes a new box ready. Leaves a reader once a worker runs: the volume may be wanted on another node, and a
        reader that is not used ends by itself. Raises what `prepare` raises."""
        if self._fresh:
            self.prepare()
        links = self._links
        pod = links.way.pod
        if pod is None or not pod.reader or time.monotonic() - links.looked < LOOK_SECONDS:
            return
        links.looked = time.monotonic()
        with contextlib.suppress(PlatformError):
            if reader.better(self._cluster, pod, self.native_id):
                links.close()


class _Forwarded:
    """The connections of one forwarded port: each is a command of its own in the pod."""

    def __init__(self, way: PodWay, python: str, port: int, say: Callable[[str], None]) -> None:
        self._way, self._say = way, say
        self._remote = f"exec {shlex.quote(python)} {_alone('forward')} {port}"
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()

    def add(self, connection: socket.socket) -> None:
        """Begins one; never blocks. What goes wrong with it is said, and ends it alone."""
        threading.Thread(target=self._pass_on, args=(connection,), daemon=True).start()

    def close(self) -> None:
        """Ends all of them. Idempotent."""
        with self._lock:
            running = list(self._running)
        for process in running:
            process.terminate()

    def _pass_on(self, connection: socket.socket) -> None:
        try:
            with connection:
                process = self._way.start(self._remote, connection, connection, subprocess.PIPE)
        except PlatformError as error:
            self._say(str(error))
            return
        with self._lock:
            self._running.add(process)
        _, said = process.communicate()
        with self._lock:
            self._running.discard(process)
        if process.returncode > 0 and said:
            self._say(said.decode("utf-8", "replace").strip().splitlines()[-1])
