"""Namespaces with a keeper in them: where a cluster's control plane runs, and inside that each of its nodes.

An enclosure has processes, mounts, a network, a host name and IPC of its own. It ends with all that runs in it when it
is closed, and when the process that opened it dies, however it dies. What it leaves outside, its control groups, is
removed then, too, by a shell that outlives both.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.simulators.gateway import network_of
from tests.simulators.kubernetes import cgroups

KEEPER = Path(__file__).with_name("keeper.py")
SECONDS = 60.0
_OWN = ("unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc")
_WARDEN = """
groups=$1
shift
setpriv --pdeathsig KILL "$@"
for try in $(seq 100); do
  left=
  for group in $groups; do
    find "$group" -depth -type d -exec rmdir {} \\; 2>/dev/null
    [ ! -d "$group" ] || left=1
  done
  [ -n "$left" ] || exit 0
  sleep 0.1
done
"""


def until(what: Callable[[], object], said: str, seconds: float = SECONDS, told: Callable[[], str] = str) -> None:
    """Waits until it is so, at most so long."""
    ends = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < ends, f"no {said} after {seconds:.0f} s\n{told()}"
        time.sleep(0.05)


class Enclosure:
    """`pid`: of its first process, on this machine; `network`: a descriptor of its network; `groups`: its control
    groups. Threads may share one."""

    groups: Sequence[Path] = ()

    def __init__(self, words: Sequence[str], log: Path) -> None:
        self.log = log
        self._lock = threading.Lock()
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                words,
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                env={"PATH": f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin", "HOME": "/root", "LANG": "C.UTF-8"},
            )
        self.network = -1
        try:
            assert self._answer(SECONDS).get("up"), f"no keeper: {log.read_text()}"
            self.pid = _child(_child(self._process.pid))
            self.network = network_of(self.pid)
        except BaseException:
            self.close()
            raise

    @classmethod
    def of_a_cluster(cls, name: str, mounts: Sequence[str], log: Path) -> Enclosure:
        """`name`: of its control groups; `mounts`: as for the keeper."""
        groups = cgroups.make(name)
        own = [*_OWN, "--cgroup", sys.executable, "-IS", str(KEEPER), *mounts]
        made = cls(["sh", "-c", _WARDEN, "warden", " ".join(map(str, groups)), *cgroups.enter(groups), *own], log)
        made.groups = groups
        return made

    def inner(self, name: str, mounts: Sequence[str], log: Path) -> Enclosure:
        """One inside this, as a node of the cluster; its mounts are made after this one's."""
        groups = cgroups.make(name, self.groups)
        enter = ["nsenter", f"--target={self.pid}", "--mount", "--pid", "--net", "--uts", "--ipc", "--cgroup"]
        own = [*_OWN, "--cgroup", sys.executable, "-IS", str(KEEPER), *mounts]
        made = Enclosure([*cgroups.enter(groups), *enter, *own], log)
        made.groups = groups
        return made

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """Ends all that runs in it, at once, and waits until it has ended. Idempotent."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            if self.alive:
                os.kill(self.pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                assert pipe is not None
                pipe.close()
        try:
            self._process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(SECONDS)
        if self.network >= 0:
            os.close(self.network)
            self.network = -1
        until(lambda: cgroups.remove(self.groups), "end of the control groups", 20)

    def root(self, path: str) -> Path:
        """A path inside it, as this process reaches it."""
        return Path(f"/proc/{self.pid}/root{path}")

    # -- asking the keeper

    def start(
        self, name: str, argv: Sequence[str], log: Path, env: dict[str, str] | None = None, *, again: bool = False
    ) -> int:
        """Starts a program under a name. `log`: as a path inside. `again`: started anew where it ends by itself, a few
        times. Its pid there."""
        asked = {"name": name, "argv": list(argv), "log": str(log), "env": env or {}, "again": again}
        return int(self._ask(do="start", **asked)["pid"])

    def kill(self, name: str, number: int = signal.SIGKILL, seconds: float = 20) -> None:
        """Sends a signal to what was started under this name; returns when it has ended. Nothing if it did not run."""
        answer = self._ask(do="kill", name=name, number=int(number), seconds=seconds)
        if answer["ran"] and not answer["ended"] and number not in (signal.SIGSTOP, signal.SIGCONT):
            raise AssertionError(f"{name} has not ended {seconds:.0f} s after signal {number}")

    def run(self, *argv: str, seconds: float = 30) -> str:
        """Runs a command to its end, which must be a good one. What it said."""
        answer = self._ask(do="run", argv=list(argv), seconds=seconds)
        assert answer["code"] == 0, f"{' '.join(argv)}: {answer['said']}"
        return str(answer["said"])

    def states(self) -> dict[str, int | None]:
        """Exit code of all that was started by name, None for what runs."""
        return self._ask(do="alive")

    def _ask(self, **asked: Any) -> dict[str, Any]:
        with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(asked).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._answer(float(asked.get("seconds", 0)) + SECONDS)
        if "error" in answer:
            raise AssertionError(f"{asked}: {answer['error']}")
        return answer

    def _answer(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        line = self._process.stdout.readline() if ready else b""
        assert line, f"no answer of the keeper: {self.log.read_text(errors='replace')[-2000:]}"
        made: dict[str, Any] = json.loads(line)
        return made


def ip(inside: int, *lines: str) -> None:
    """Lines of `ip -batch`, in the network of a process; pids in them are this machine's."""
    done = subprocess.run(
        ["nsenter", f"--net=/proc/{inside}/ns/net", "ip", "-batch", "-"],
        input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 0, f"ip: {lines}: {done.stderr}"


def _child(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
