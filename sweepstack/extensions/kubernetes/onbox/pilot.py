"""Runs in each pod of a box's Job: starts one worker, and asks for another pod where one is needed.

    pilot.py HOME RUNNER SECONDS LONGEST
        HOME: `<box>/data/sweep` on the claim; RUNNER: the runner's path below it

The worker's program is read at once, and begins when its queue is there. That is waited for SECONDS after the last
command in the pod, which may bring much, and LONGEST in any case.

The pod is a job of its own: the worker's name is the pod's uid and try 0, and never comes again. SIGTERM (an eviction,
a drain, a delete, a suspended Job) is handed on, so that cells save and their ends are written within the pod's grace.

Exit codes, which the Job's `podFailurePolicy` reads (`sweepstack.extensions.kubernetes.jobs`):
  0        nothing is left for this worker, or the box's workers were ended on purpose
  75       cells are left, and this pod was told to end, or has too little time: another one goes on, as often as needed
  2 to 5, 9    another pod would do no better: see `onbox.runner.main`
  others   the worker failed: another pod tries, as often as the Job's `backoffLimitPerIndex` allows

As the first process of its container it also collects what others left as zombies. Python 3.8, standard library; as
little of that as will do: many images have it uncompiled, and no right to keep it compiled, so each pod does it anew.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
CLOSED = "jobs/closed"
"""This file below HOME says that the box's workers were ended on purpose: none begins."""
START, QUEUE = "jobs/batch.sh", "queue.jsonl"
"""Files below HOME: the command that starts the pilot, with which a pod's shell goes on once it is there; the queue,
whose cells any worker may take as soon as they stand in it."""
LATE = "did not come: the command that asked for this pod was ended. Next: pulumi up"
COMPILED = "/dev/shm/sweepstack"
"""Of a new box's first pod: modules that the command's agent compiled there, before any cell could fill it."""
READS = ("-B", "-X", f"pycache_prefix={COMPILED}")
"""Words for a Python that uses them, and writes none."""
PAUSE_SECONDS = 0.02
AGAIN = 75
"""The exit code that asks for another pod."""
REST, SHORT = 8, 11
"""The runner's exit codes for: cells remain, and other workers have them; they would not end in what is left."""
POD_UID, POD_NAME, NODE_NAME, INDEX = (f"SWEEPSTACK_{name}" for name in ("POD_UID", "POD_NAME", "NODE_NAME", "INDEX"))
"""Set by the pod's template, from what the API server knows of it."""
BOX, NAMESPACE = "SWEEPSTACK_BOX", "SWEEPSTACK_POD_NAMESPACE"
NODES, ADDRESS, JOB = (f"SWEEPSTACK_POD_{name}" for name in ("NODES", "ADDRESS", "JOB"))
"""Of a worker of several pods, set in each: how many it has; its own address; its Job, which is one worker."""
OF_BOX, WORKER = "SWEEPSTACK_BOX_ID", "SWEEPSTACK_WORKER"
"""As in `common.processes`, which is not imported here."""
HELD, DOORS = "jobs/held", "jobs/doors"
"""Below HOME: `<uid>.json`, the other pods of that worker; a folder a Job, where they say how they are reached."""
KEPT = ("NVIDIA_", "CUDA_", "ROCR_", "HIP_", "KUBERNETES_SERVICE_", "SWEEPSTACK_")
"""Variables of the container that begin so are handed on, and those of the next line: they say where the image has its
libraries, which GPUs the pod has, and where the API server is."""
KEPT_WHOLE = ("HOME", "TMPDIR", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "TZ")


def say(text: str) -> None:
    """Into the pod's log."""
    sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}\n")
    sys.stderr.flush()


def closed(home: str) -> str:
    """Why no worker may begin on the box; "" when one may."""
    if not os.path.isdir(home):
        return f"there is no {home}: the box was not made whole, or is being destroyed"
    return "its workers were ended" if os.path.exists(f"{home}/{CLOSED}") else ""


def code_of_pod(code: int, told: bool) -> int:
    """The pod's exit code. `code`: the runner's, negative where a signal ended it; `told`: the pod was told to end."""
    if code in (0, 1, 7, REST):
        return 0
    if code == SHORT or told:
        return AGAIN
    return 128 - code if code < 0 else code


class Pilot:
    """One pod. Use it once, from the main thread."""

    def __init__(self, home: str, runner: str) -> None:
        self.home, self.runner = home, f"{home}/{runner}"
        self.job = os.environ[POD_UID]
        self.worker = f"{self.job}.0"
        self.told = False
        self._process = 0
        self._code: int | None = None

    def run(self, seconds: float, longest: float) -> int:
        """Blocks until the worker has ended. Returns the pod's exit code. `seconds`, `longest`: see this module."""
        if why := closed(self.home):
            say(f"{self.worker}: no worker begins: {why}")
            return 0
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        names = " ".join(os.environ.get(name, "") for name in (POD_NAME, NODE_NAME))
        say(f"{self.worker} begins in pod {names}")
        argv = self._argv()
        os.chdir(self.home)
        begin, told = os.pipe()
        usual = [signal.SIGPIPE, signal.SIGXFSZ]  # Python ignores these
        stdin = (os.POSIX_SPAWN_DUP2, begin, 0)
        self._process = os.posix_spawn(argv[0], argv, self._env(), file_actions=[stdin], setsigdef=usual)
        os.close(begin)
        if self.told:  # a signal that came before there was a process to hand it to
            self._hand_on()
        with contextlib.suppress(BrokenPipeError), os.fdopen(told, "wb") as pipe:
            pipe.write(b"begin\n" if self._came(seconds, longest) else b"")
        while self._code is None:
            self._collect()
        say(f"{self.worker} ended with {self._code}")
        return code_of_pod(self._code, self.told)

    def _came(self, seconds: float, longest: float) -> bool:
        """Whether the queue is there: blocks as this module says, unless the worker ends."""
        begun = last = now = time.monotonic()
        while self._code is None and now - last <= seconds and now - begun <= longest:
            if os.path.exists(f"{self.home}/{QUEUE}"):
                return True
            time.sleep(PAUSE_SECONDS)
            self._collect(os.WNOHANG)
            now = time.monotonic()
            alone = sum(map(str.isdigit, os.listdir("/proc"))) == 2  # this process, and the worker
            last = last if alone else now
        if self._code is None:
            say(f"{self.home}/{QUEUE} {LATE}")
        return False

    def _argv(self) -> list[str]:
        """The worker's command; with several pods it is the first one's, and the others wait for what that starts. Such
        ones are asked for when their queue is there."""
        own, python = os.environ, [sys.executable, *(READS if os.path.isdir(COMPILED) else ())]
        worker = [*python, self.runner, self.home, "--worker", self.worker]
        if int(own.get(NODES) or 1) < 2:
            return [*worker, "--begin", "stdin"]
        nodes = f"{os.path.dirname(self.runner)}/nodes.py"
        if not os.path.exists(nodes):
            raise OSError(
                f"there is no {nodes}: cells over several nodes need the extension `nodes` where this came from"
            )
        program, doors = [sys.executable, "-I", "-S", nodes], f"{self.home}/{DOORS}/{own[JOB]}"
        index, about = own[INDEX], [own[POD_NAME], self.job, own[ADDRESS]]
        if index != "0":
            return [*program, "door", doors, index, *about]
        record = f"{self.home}/{HELD}/{self.job}.json"
        return [*program, "lead", record, own[NODES], doors, *about, "--", *worker]

    def _on_signal(self, _number: int, _frame: object) -> None:
        self.told = True
        if self._process:
            self._hand_on()

    def _hand_on(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGTERM)

    def _collect(self, options: int = 0) -> None:
        """Collects one process that has ended. Of the worker it notes the exit code, negative for a signal."""
        pid, status = os.waitpid(-1, options)
        if pid == self._process:
            self._code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)

    def _env(self) -> dict[str, str]:
        """The worker's environment: what the image and the cluster say of libraries, cards and the API server, and what
        the runner needs. The image's own PATH comes after the box's Python."""
        own = os.environ
        kept = {name: own[name] for name in own if name.startswith(KEPT) or name in KEPT_WHOLE}
        several = int(own.get(NODES) or 1) > 1
        waits = several and own.get(INDEX, "0") != "0"  # it is none of the box's cells
        path = [os.path.dirname(sys.executable), *own.get("PATH", PATH).split(":"), *PATH.split(":")]
        return {
            **kept,
            "HOME": own.get("HOME", "/"),
            "PATH": ":".join(dict.fromkeys(path)),
            "LANG": "C.UTF-8",
            **({} if waits else {OF_BOX: own[BOX]}),
            **({} if several else {WORKER: self.worker}),
            "SWEEPSTACK_WORKER_JOB": self.job,
            "SWEEPSTACK_WORKER_TRY": "0",
            "SWEEPSTACK_WORKER_ENDS": "",
            "SWEEPSTACK_WORKER_GPUS": "",
        }


def main(argv: list[str]) -> int:
    """Runs one worker. Returns the exit code of the pod."""
    if len(argv) != 5:
        say("four arguments: the folder of spec.json and queue.jsonl, the runner's path below it, and two times")
        return 2
    try:
        return Pilot(argv[1], argv[2]).run(float(argv[3]), float(argv[4]))
    except (OSError, ValueError, KeyError) as error:
        say(f"no worker could be started: {error!r}")
        return 2
