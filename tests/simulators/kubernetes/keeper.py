"""First process of a cluster's namespaces, or of a node's: starts, ends and reaps what runs there, as it is told.

One request a line comes in at standard input and one answer goes out at standard output, both as JSON. When the input
ends, because the test told so or because it died, this process ends, and the kernel ends all others of the namespaces.
It is run by itself (`python -IS keeper.py`) and imports nothing of ours.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

OUTPUT_MOST = 100_000
MOST_STARTS = 5
"""So often a program that ended by itself is started again."""


class Keeper:
    """`ended`: what has ended so far, by pid."""

    def __init__(self) -> None:
        self.ended: dict[int, int] = {}
        self.named: dict[str, int] = {}
        self.again: dict[str, tuple[int, list[str], str, dict[str, str]]] = {}
        """By name: how often one is started again that ends by itself, and how it was started."""
        signal.signal(signal.SIGCHLD, self._reap)

    def _reap(self, *_signal: object) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            self.ended[pid] = os.waitstatus_to_exitcode(status)
            for name in [name for name in self.again if self.named.get(name) == pid]:
                left, *how = self.again.pop(name)
                self.named[name] = self._start(*how)
                if left > 1:
                    self.again[name] = (left - 1, *how)

    def start(self, name: str, argv: list[str], log: str, env: dict[str, str], again: bool) -> dict[str, Any]:
        """Starts a program under a name, its output goes to the end of `log`. `again`: started anew where it ends by
        itself, as the init of a real machine does."""
        if self._runs(name):
            return {"error": f"{name} runs already"}
        self.named[name] = self._start(argv, log, env)
        if again:
            self.again[name] = (MOST_STARTS, argv, log, env)
        return {"pid": self.named[name]}

    def _start(self, argv: list[str], log: str, env: dict[str, str]) -> int:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            files = [(os.POSIX_SPAWN_DUP2, nothing, 0), (os.POSIX_SPAWN_DUP2, out, 1), (os.POSIX_SPAWN_DUP2, out, 2)]
            default = [signal.SIGINT, signal.SIGPIPE, signal.SIGCHLD]
            return os.posix_spawnp(
                argv[0], argv, {**os.environ, **env}, file_actions=files, setsid=True, setsigdef=default
            )
        finally:
            os.close(out)
            os.close(nothing)

    def _runs(self, name: str) -> bool:
        return name in self.named and self.named[name] not in self.ended

    def kill(self, name: str, number: int, seconds: float) -> dict[str, Any]:
        """Sends a signal to one that runs, and waits for its end (not for SIGSTOP and SIGCONT)."""
        if not self._runs(name):
            return {"ran": False}
        pid = self.named[name]
        if number not in (signal.SIGSTOP, signal.SIGCONT):
            self.again.pop(name, None)
        os.kill(pid, number)
        waits = number not in (signal.SIGSTOP, signal.SIGCONT)
        return {"ran": True, "ended": self._await(pid, seconds) if waits else False}

    def _await(self, pid: int, seconds: float) -> bool:
        ends = time.monotonic() + seconds
        while pid not in self.ended:
            if time.monotonic() > ends:
                return False
            time.sleep(0.01)
        return True

    def run(self, argv: list[str], seconds: float) -> dict[str, Any]:
        """Runs a command to its end: its exit code and what it said."""
        held, log = tempfile.mkstemp(dir="/mnt")
        os.close(held)
        try:
            return self._run(argv, log, seconds)
        finally:
            os.unlink(log)

    def _run(self, argv: list[str], log: str, seconds: float) -> dict[str, Any]:
        pid = self._start(argv, log, {})
        if not self._await(pid, seconds):
            os.kill(pid, signal.SIGKILL)
            self._await(pid, 5)
            return {"error": f"still running after {seconds} s"}
        with open(log, "rb") as file:
            return {"code": self.ended[pid], "said": file.read(OUTPUT_MOST).decode(errors="replace")}

    def alive(self) -> dict[str, Any]:
        """What runs of that which was started under a name; the exit code of that which does not."""
        return {name: self.ended.get(pid) for name, pid in self.named.items()}


def mount(pair: str) -> None:
    """`SOURCE:TARGET`, as it is; `SOURCE:TARGET:ro`, so that it can't be written; `tmpfs:TARGET`, also with options."""
    source, target, *more = pair.split(":")
    if not os.path.exists(target):
        os.makedirs(target)
    if source == "tmpfs":
        _mount("-t", "tmpfs", "-o", ",".join(["mode=755", *more]), "own", target)
        return
    _mount("--bind", source, target)
    if more:
        _mount("-o", "remount,bind,ro", target)


def mount_cgroups() -> None:
    """Shows this namespace's own part of the control groups, and nothing above it, where the machine shows its own."""
    with open("/proc/self/cgroup", encoding="ascii") as file:
        lines = [line.rstrip("\n").split(":", 2) for line in file]
    controllers = [names for _, names, _ in lines if names]
    if not controllers:
        _mount("-t", "cgroup2", "cgroup", "/sys/fs/cgroup")
        return
    _mount("-t", "tmpfs", "-o", "mode=755", "cgroup", "/sys/fs/cgroup")
    for names in controllers:
        at = "/sys/fs/cgroup/" + names.removeprefix("name=")
        os.mkdir(at)
        _mount("-t", "cgroup", "-o", f"none,{names}" if names.startswith("name=") else names, "cgroup", at)


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, timeout=20)


def main() -> None:
    """The arguments: what is mounted first, as for `mount`."""
    for pair in sys.argv[1:]:
        mount(pair)
    _mount("-t", "sysfs", "sysfs", "/sys")
    mount_cgroups()
    keeper = Keeper()
    print(json.dumps({"up": True}), flush=True)
    while line := sys.stdin.readline():
        asked = json.loads(line)
        try:
            answer = getattr(keeper, asked.pop("do"))(**asked)
        except (OSError, TypeError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
