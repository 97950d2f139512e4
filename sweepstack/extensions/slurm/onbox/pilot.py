"""Runs in each task of a box's job array: starts a worker, and requeues the task.

    pilot.py HOME RUNNER        HOME: `<box>/data/sweep` on the shared tier; RUNNER: the runner's path below it

The worker claims cells from the box's queue until none is left, or until none fits before the wall. A task is requeued
when cells are left and its own work ended because of the wall or of a preemption; then it begins again with a full
wall, as the next try. A requeued task that would have nothing to do ends, and `pulumi up` submits what is missing.
Python 3.8 and the standard library.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path, PurePosixPath
from typing import Any

from sweepstack.onbox.common.errors import SweepstackError, Unreachable
from sweepstack.onbox.common.processes import BOX_ID_VARIABLE, WORKER_VARIABLE

from . import allocation, commands, queue

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
MOST_TRIES = 200
"""A task is requeued so often at most."""
REST, SHORT = 8, 11
"""The runner's exit codes for: cells remain, and other workers have them; they would not end before the wall."""
CLOSED = "jobs/closed"
"""This file below HOME says that the box's workers were ended on purpose: none begins, and none is requeued."""
ENDING, POWER = "ending.json", "power.json"
KILL_SECONDS = 120.0
"""After a requeue Slurm ends this process. It waits for that so long."""
LOOKS, PAUSE_SECONDS = 3, 2.0


def say(text: str) -> None:
    """Into the task's log."""
    sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}\n")
    sys.stderr.flush()


def closed(home: Path) -> str:
    """Why no worker may begin on the box; "" when one may. What can't be read lets none begin."""
    box = home.parent.parent
    if not home.is_dir() or (box / ENDING).exists():
        return "the box is being destroyed"
    if (home / CLOSED).exists():
        return "its workers were ended"
    try:
        state = json.loads((box / POWER).read_bytes())["state"]
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"whether it is stopped can't be read: {error}"
    return "" if state == "running" else f"the box is {state}"


class Pilot:
    """One try of one task. Use it once, from the main thread."""

    def __init__(self, home: Path, runner: str) -> None:
        self.home, self.runner = home, runner
        self.spec: dict[str, Any] = json.loads((home / "spec.json").read_bytes())
        self.box = str(self.spec["native_id"])
        self.task = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
        self.tries = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
        self.worker = f"{self.task}.{self.tries}"
        self.shared = "shared" in self.spec
        self.wall = False  # Slurm warned of the end of its time
        self.told = False  # it was told to end: a cancel, the time limit, or a preemption
        self.process: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Blocks until the worker has ended. The task's exit code: 0 for every end that the journal tells."""
        if why := closed(self.home):
            say(f"{self.worker}: no worker begins: {why}")
            return 0
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        say(f"{self.worker} begins on {os.uname().nodename}")
        argv = [sys.executable, str(self.home / self.runner), str(self.home)]
        argv += ["--worker", self.worker] if self.shared else []
        self.process = subprocess.Popen(argv, cwd=str(self.home), env=self._env(), stdin=subprocess.DEVNULL)
        if self.wall or self.told:  # a signal that came before there was a process to hand it to
            self._hand_on()
        code = self.process.wait()
        say(f"{self.worker} ended with {code}")
        if self._again(code):
            self._requeue()
        return 0 if code in (0, 1, 7, REST, SHORT) or self.wall or self.told else (128 - code if code < 0 else code)

    def _on_signal(self, number: int, _frame: object) -> None:
        if number == signal.SIGUSR1:
            self.wall = True
        else:
            self.told = True
        if self.process is not None:
            self._hand_on()

    def _hand_on(self) -> None:
        """Passes the signal on to the worker. One that does not share its queue knows no warning, and is ended."""
        assert self.process is not None
        wall = signal.SIGUSR1 if self.shared else signal.SIGTERM
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM if self.told else wall)

    def _env(self) -> dict[str, str]:
        """The worker's environment: what Slurm says of the task, and what the runner needs; no more of its own."""
        kept = {name: value for name, value in os.environ.items() if name.startswith("SLURM_") or name == "TMPDIR"}
        cards = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        ends = self._ends()
        return {
            **kept,
            "HOME": os.path.expanduser("~"),
            "PATH": f"{PurePosixPath(sys.executable).parent}:{PATH}",
            "LANG": "C.UTF-8",
            BOX_ID_VARIABLE: self.box,
            **({WORKER_VARIABLE: self.worker} if self.shared else {}),
            "SWEEPSTACK_WORKER_JOB": self.task,
            "SWEEPSTACK_WORKER_TRY": str(self.tries),
            "SWEEPSTACK_WORKER_ENDS": "" if ends is None else str(int(ends)),
            "SWEEPSTACK_WORKER_GPUS": cards,
            "SWEEPSTACK_NODE_SCRATCH": os.environ.get("SLURM_TMPDIR") or "",
            **allocation.variables(),
        }

    def _own(self) -> queue.Task | None:
        """This task, as Slurm lists it; None when it does not answer."""
        for look in range(LOOKS):
            try:
                return next((task for task in queue.tasks(self.box) if task.name == self.task), None)
            except Unreachable as error:
                say(f"{self.worker}: {error}")
                if look + 1 < LOOKS:
                    time.sleep(PAUSE_SECONDS)
        return None

    def _ends(self) -> float | None:
        """When Slurm will end this task, epoch seconds; None when that is not known."""
        own = self._own()
        return own.ends if own is not None and own.state == "RUNNING" else None

    def _again(self, code: int) -> bool:
        """Whether cells are left that this task should go on with, in its next try."""
        if closed(self.home) or code in (0, 1, 2, 3, 4, 5, 7, 9):
            return False
        if self.tries >= MOST_TRIES:
            say(f"{self.worker}: it was requeued {self.tries} times: no more; pulumi up submits another")
            return False
        if self.told:  # by a cancel, by the time limit, or by a preemption that leaves it some seconds
            own = self._own()
            return own is not None and own.state == "RUNNING" and own.restarts == self.tries
        return self.wall or code == SHORT

    def _requeue(self) -> None:
        """By array and task: the number of the job alone may mean the whole array. Slurm then ends this process."""
        say(f"{self.worker}: cells are left: the task is requeued")
        try:
            commands.send("scontrol", "requeue", self.task)
        except SweepstackError as error:
            say(f"{self.worker}: {error}")
            return
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)
        time.sleep(KILL_SECONDS)


def main(argv: list[str]) -> int:
    """Runs one worker. Returns the exit code of the task."""
    if len(argv) != 3:
        say("two arguments: the folder of spec.json and queue.jsonl, and the runner's path below it")
        return 2
    try:
        return Pilot(Path(argv[1]), argv[2]).run()
    except (OSError, ValueError, KeyError, SweepstackError) as error:
        say(f"no worker could be started: {error!r}")
        return 2
