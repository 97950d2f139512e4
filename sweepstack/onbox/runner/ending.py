"""The end of an attempt: all steps between a cell's exit and its last line in the journal.

A failure is classified first: which of them a retry of the same config may get over, and which not.

transient   the network, the driver, a stop from outside: a retry may succeed
oom         the machine's memory ran out, which a neighbour may have caused
disk        no room: the queue waits for room, and the failure does not count
bug         code or config (also too little GPU memory): final at once, a retry would only cost money
files       exit code 0, and by its files alone it is no result (an artifact is missing, empty, a link): final at once,
            since another training would leave the same; other `artifacts` are tried on these files first
nan         a metric became NaN, and the job asked to stop then: final at once
timeout     it took longer than the job allows for one attempt
hung        it showed no progress for a whole interval, and the job asked to end it then
stopped     it was asked to end from outside
unknown     none of the above: retried as often as the spec says
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sweepstack.onbox.common.files_hold import FILES
from sweepstack.onbox.runner import nodes
from sweepstack.onbox.runner.attempt import Attempt, Environment, SealableAttempt
from sweepstack.onbox.runner.cell_processes import end_cells
from sweepstack.onbox.runner.code import CodeCheck
from sweepstack.onbox.runner.cut_checkpoint import any_there
from sweepstack.onbox.runner.disk import DiskGate, hint
from sweepstack.onbox.runner.rclone import RemoteStopped
from sweepstack.onbox.runner.records import Journal, say
from sweepstack.onbox.runner.remains import Children, Remains, let_go
from sweepstack.onbox.runner.sealing import LOG, CellFailure, Changed, FilesFailure, artifact_files, seal
from sweepstack.onbox.runner.spec import GRACE_SECONDS
from sweepstack.onbox.runner.upload import Uploads

KILL_SECONDS = 5.0
TOLD_SECONDS = 2.0
ASKED = (-signal.SIGTERM, 128 + signal.SIGTERM)
"""Exit codes of a cell that was asked to end."""
REASON_CHARS = 1000
MOST_LEFT = 20
"""So many processes that a cell left running are named."""

FINAL = {"bug", "nan", FILES}
BUGS = {
    "SyntaxError", "IndentationError", "TabError", "ImportError", "ModuleNotFoundError", "NameError",
    "UnboundLocalError", "AttributeError", "TypeError", "KeyError", "IndexError", "ZeroDivisionError",
    "AssertionError", "NotImplementedError", "RecursionError",
}  # fmt: skip
WRAPPERS = {"ChildFailedError", "CalledProcessError", "ProcessRaisedException", "ProcessExitedException"}
"""Exceptions that launchers raise when a child failed: the child's own exception is printed before."""
EXCEPTION = re.compile(
    r"^(?:\[[^\]\n]+\]:? )*(?:[A-Za-z_]\w*\.)*([A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout))(?::.*)?$",
    re.MULTILINE,
)
"""The brackets before it name a rank, or a node."""
LAST_WORDS = 4096
"""Characters at the end of the log that are judged: the program may have recovered from earlier errors."""
GPU_MEMORY = re.compile(
    r"(?:CUDA|HIP) out of memory|\bOutOfMemoryError\b|CUDA_ERROR_OUT_OF_MEMORY|CUDNN_STATUS_ALLOC_FAILED"
    r"|CUBLAS_STATUS_ALLOC_FAILED|RESOURCE_EXHAUSTED: Out of memory"
)
FULL = re.compile(
    r"No space left on device|Disk quota exceeded|disk is full|\[Errno (?:28|122)\]|PytorchStreamWriter failed"
    r"|unexpected pos \d+ vs \d+"
)
MEMORY = re.compile(
    r"^MemoryError|Cannot allocate memory|can't allocate memory|std::bad_alloc"
    r"|DataLoader worker .*killed by signal: Killed|Unable to allocate .* for an array",
    re.MULTILINE,
)
PASSING = re.compile(
    r"Connection(?:ResetError|RefusedError|AbortedError|Error)\b|Connection (?:reset|refused|timed out|aborted)"
    r"|BrokenPipeError|\b(?:Read|Connect)?Timeout(?:Error)?\b|timed out|Temporary failure in name resolution"
    r"|Name or service not known|Network is unreachable|No route to host|Too Many Requests|Bad Gateway"
    r"|Service (?:Temporarily )?Unavailable|Gateway Time-?out|IncompleteRead|RemoteDisconnected"
    r"|NCCL (?:error|timeout)|ncclSystemError|ncclRemoteError|Watchdog caught collective operation timeout"
    r"|CUDA error: (?:unspecified launch failure|uncorrectable ECC|all CUDA-capable devices are busy)"
    r"|^sweepstack: (?:a node|node [0-9]+ .*) is lost: "
    r"|Stale file handle|Input/output error|Transport endpoint is not connected|Resource temporarily unavailable",
    re.IGNORECASE | re.MULTILINE,
)


class Endings:
    """Seals cells that ended well, and classifies the failures of others. Its methods run in the sealers' threads.

    `running`: the attempts that run now, which may still need room. `told`: whether this runner was told to end.
    """

    def __init__(
        self,
        box: str,
        cells: Path,
        journal: Journal,
        gate: DiskGate,
        running: Mapping[str, Attempt],
        wake: Callable[[], None],
        uploads: Uploads,
        code: CodeCheck,
        told: Callable[[], bool],
        children: Children,
    ) -> None:
        self._uploads, self._code, self._told, self._children = uploads, code, told, children
        self._box, self._cells, self._journal, self._gate, self._running = box, cells, journal, gate, running
        self._wake = wake

    def finish(self, attempt: Attempt, code: int) -> None:
        """Waits for processes that still write its results, ends what it left behind, and seals the cell or records its
        failure. Blocks while files are copied."""
        name = attempt.entry.cell
        remains = self._let_go(attempt, code)
        attempt.holds_slot = False
        self._wake()
        if attempt.dropped is None and attempt.ended is None and self._was_told(code):
            attempt.stopped = True
        if attempt.stopped:  # it may have ended early with exit code 0: that is no result
            return
        if attempt.dropped is not None:
            self._journal.append("cell-dropped", cell=name, reason=attempt.dropped)
            return
        if attempt.ended is not None:
            with contextlib.suppress(OSError):
                attempt.close_log(code)
            self._write_failure(attempt, code, attempt.ended.reason, attempt.ended.kind, attempt.ended.final)
            return
        tail = ""
        facts: dict[str, Any] = {}
        try:
            reason, tail = attempt.close_log(code)
            if attempt.watch is not None and attempt.watch.last_look():
                self._write_failure(attempt, code, f"stopped early: {attempt.watch.found}", "nan", True)
                return
            if remains.alive:
                raise CellFailure(f"processes that it left behind can't be ended: {list(remains.alive)}")
            if reason:
                raise CellFailure(reason)
            facts = self._facts(attempt, remains)
            self._seal(attempt, SealableAttempt(facts, attempt.since(), attempt.seconds(), remains.doubts))
        except RemoteStopped:
            return  # its outcome is not known: the next runner goes on with it
        except (CellFailure, OSError) as error:
            if isinstance(error, FilesFailure):
                with contextlib.suppress(OSError):  # then it can't be sealed later
                    SealableAttempt(facts, attempt.since(), attempt.seconds(), remains.doubts).write(attempt.folder)
            left = end_cells(self._box, {name}, {}, KILL_SECONDS)
            self.failed(attempt, code, error, tail, bool(left))

    def reseal(self, attempt: Attempt, left: SealableAttempt) -> None:
        """Seals what an attempt left that its files alone failed, by the artifacts that are asked for now; or records
        why that is no result either. Nothing is trained. Blocks while files are copied."""
        try:
            self._seal(attempt, left._replace(doubts=(*left.doubts, *attempt.changed_since_it_ended())), resealed=True)
        except RemoteStopped:
            return  # the next runner goes on with it
        except (CellFailure, OSError) as error:
            self.failed(attempt, 0, error, "", False)

    def _seal(self, attempt: Attempt, left: SealableAttempt, **more: Any) -> None:
        """Seals an attempt's files. Where one is written meanwhile, by what is not known to be the cell's, it seals
        once more what is there then, and doubts it. Raises CellFailure, RemoteStopped, OSError."""
        try:
            self._seal_once(attempt, left, more)
        except Changed as error:
            doubt = f"{error}; what it had written by then was sealed"
            self._seal_once(attempt, left._replace(doubts=(*left.doubts, doubt)), more)

    def _seal_once(self, attempt: Attempt, left: SealableAttempt, more: Mapping[str, Any]) -> None:
        """Seals an attempt's files, and writes that to the journal. `more`: what its manifest and its line say beside.
        Raises CellFailure, RemoteStopped, OSError."""
        stamps = _stamps(attempt)
        with contextlib.ExitStack() as turn:  # from the final name to the line that tells of it
            sealed = seal(
                self._cells,
                attempt.own(left.since),
                attempt.log,
                attempt.spec,
                {**left.facts, **more},
                self._uploads.flush,
                lambda: self._judged(attempt),
                lambda: turn.enter_context(self._journal.turn()),
                self._journal.is_ours,
                left.doubts,
            )
            said: dict[str, Any] = {**more, **({"stored": sealed.stored} if sealed.stored < sealed.size else {})}
            self._journal.append(
                "cell-sealed",
                cell=attempt.entry.cell,
                attempt=attempt.number,
                config_digest=attempt.entry.config,
                manifest=sealed.manifest,
                bytes=sealed.size,
                seconds=round(left.seconds, 1),
                stamps=stamps,
                **said,
            )
        say(f"{attempt.entry.cell} sealed, {sealed.size} bytes")
        for doubt in left.doubts:
            say(f"{attempt.entry.cell} is suspect: {doubt}")

    def _judged(self, attempt: Attempt) -> None:
        """Its files are a result: cells that waited for that verdict may start, although they are still copied."""
        attempt.judged = True
        self._wake()

    def _let_go(self, attempt: Attempt, code: int) -> Remains:
        """Ends what lives on of the cell. After an exit code of 0 it waits before for what still writes, unless it is
        cut short: then there is no result."""
        elsewhere = nodes.left_on_peers(attempt.folder)
        if not attempt.holds_slot and not elsewhere.left:
            return elsewhere
        name, at_once = attempt.entry.cell, code != 0 or attempt.stopped or attempt.ended is not None
        remains = let_go(
            lambda: self._children.of(name, attempt.process.pid, attempt.out),
            attempt.out,
            float(attempt.spec.get("grace_seconds", GRACE_SECONDS)),
            lambda: at_once or attempt.dropped is not None or self._told(),
            lambda words: say(f"{name}: {words}"),
        )
        remains = remains._replace(left=remains.left + elsewhere.left, doubts=remains.doubts + elsewhere.doubts)
        if remains.left:
            left = list(remains.left[:MOST_LEFT])
            self._journal.append("cell-left-running", wait=False, cell=name, attempt=attempt.number, processes=left)
            say(f"{name} left running: {', '.join(left)}")
        return remains

    def _facts(self, attempt: Attempt, remains: Remains) -> dict[str, Any]:
        """The manifest, without what sealing adds. Blocks until the environment has been described."""
        name, facts = attempt.entry.cell, attempt.facts()
        self._note_environment(attempt.environment.result())
        changed = self._code.problem(attempt.entry.code)
        if changed is not None:  # it started with the right code, and may have read changed files later
            facts["provenance"] = {**facts["provenance"], "code_changed": changed.reason}
            say(f"{name}: its code was changed while it ran: {changed.reason}")
        if remains.left:
            facts["left_running"] = list(remains.left[:MOST_LEFT])
        return facts

    def _was_told(self, code: int) -> bool:
        """Whether this runner is to end, so that the cell's end says nothing of the cell. A scheduler that cancels or
        preempts tells all processes at once, and the cell may be faster: after SIGTERM this waits for the runner's own.
        """
        patience = TOLD_SECONDS if code in ASKED else 0.0
        ends = time.monotonic() + patience
        while not self._told() and time.monotonic() < ends:
            time.sleep(0.05)
        return self._told()

    def _note_environment(self, environment: Environment) -> None:
        """Writes to the journal what is installed, once for each digest that manifests name; logs what changed."""
        known, key = self._journal.environments, environment.facts.get("distributions")
        if key is None or key in known:
            return
        before = list(known.values())[-1] if known else None
        now = environment.distributions
        changed = [
            f"{name} {(before or {}).get(name, 'none')} -> {now.get(name, 'none')}"
            for name in sorted({*(before or {}), *now})
            if before is not None and before.get(name) != now.get(name)
        ]
        details = {"digest": key, "python": environment.facts.get("python"), "distributions": now, "changed": changed}
        with self._journal.turn():
            if key not in known:  # another worker may have just said so
                self._journal.append("environment", wait=False, **details)
        if changed:
            say(f"the environment of cells changed: {', '.join(changed[:5])}")

    def failed(self, attempt: Attempt, code: int | None, error: Exception, tail: str, hopeless: bool) -> None:
        """Classifies a failure and writes it to the journal. `code`: the exit code, None when it could not be
        started."""
        own = isinstance(error, CellFailure)
        reason = str(error) if own else f"could not be {'started' if code is None else 'sealed'}: {error}"
        words = tail if own else str(error)
        kind, remark = classify(FailedAttempt(code if own else None, words, attempt.oom_kills()))
        if isinstance(error, FilesFailure):
            kind = FILES
        if hopeless:
            kind, remark = "bug" if code is None else "unknown", ""
        if not own and kind == "unknown":
            kind = "transient"  # the durable tier, or the box itself
        if kind != "bug" or says_full(words):
            lack = self._gate.blames(attempt.spec, len(self._running), says_full(words))
            if lack is not None:
                kind = "disk"
                remark = f"no room on {lack.path}: {lack.why} {lack.free} free, it waits for {lack.needed}"
                if lack.why not in ("disk", "inodes"):
                    remark = hint(lack)
            elif says_full(words):
                remark = "nothing that this runner watches is full: does it write elsewhere?"
        # What failed in the same way without a doubt before did not fail at the checkpoint.
        before = self._journal.cells[attempt.entry.cell].failed_as
        same = before == reason or before.startswith(f"{reason} (")
        cut = attempt.checkpoint_doubt(kind) if own and code is not None and not same else ""
        remarks = "; ".join(filter(None, (remark, cut)))
        self._write_failure(attempt, code, f"{reason} ({remarks})" if remarks else reason, kind, hopeless, bool(cut))

    def _write_failure(
        self, attempt: Attempt, code: int | None, reason: str, kind: str, hopeless: bool, cut: bool = False
    ) -> None:
        """Writes it to the journal. `cut`: it may have failed at the checkpoint that it began with."""
        name, entry = attempt.entry.cell, attempt.entry
        failures = self._journal.cells[name].failures[entry.version] + 1
        final = hopeless or is_final(kind, failures, int(attempt.spec.get("retries", 2)))
        reason = reason[:REASON_CHARS]
        say(f"{name} attempt {attempt.number} failed{' for good' if final else ''} ({kind}): {reason}")
        details: dict[str, Any] = {"exit_code": code, "reason": reason, "class": kind, "final": final}
        details.update(
            {"checkpoint": f"{attempt.checkpoint.name}/{attempt.found.path}"} if cut and attempt.found else {}
        )
        saved, step = any_there(attempt.checkpoint), attempt.checkpoint_step()
        details.update({"checkpoints": saved} if saved is not None else {})
        details.update({"saved_step": step} if step is not None else {})
        self._journal.append("cell-failed", cell=name, attempt=attempt.number, **details)
        if name in self._journal.hold.cells:
            say(f"cells that have not begun wait: {name} left the wrong files, and no cell was sealed yet")


def _stamps(attempt: Attempt) -> dict[str, int]:
    """When the artifacts and the log last changed (ctime, ns): what changes later is seen by it."""
    found = {}
    for path in (LOG, *(f"out/{file}" for file in artifact_files(attempt.out, attempt.spec["artifacts"]))):
        with contextlib.suppress(OSError):
            found[path] = os.lstat(attempt.folder / path).st_ctime_ns
    return found


class FailedAttempt(NamedTuple):
    """What is known of an attempt that failed. `code`: its exit code, None when it never started or was not sealed.

    `tail`: the end of its log. `oom_kills`: processes that the kernel killed for lack of memory meanwhile; None:
    unknown.
    """

    code: int | None
    tail: str = ""
    oom_kills: int | None = None


def says_full(text: str) -> bool:
    """Whether a program's last output, or an error, says that a disk is full."""
    return FULL.search(text) is not None


def classify(ending: FailedAttempt) -> tuple[str, str]:
    """The class of a failure, and a remark for people. Does not check whether a disk is full."""
    code, tail = ending.code, ending.tail
    if code == 0:  # by its exit code all went well: it recovered from the errors in its log
        return "unknown", ""
    killed = code in (-signal.SIGKILL, 128 + signal.SIGKILL)
    if ending.oom_kills and (killed or MEMORY.search(tail)):
        return "oom", (
            "the kernel ended it for want of memory (cgroup oom_kill): fewer cells at once (job.slots), or more memory "
            "(on a cluster: resources.memory)"
        )
    if GPU_MEMORY.search(tail[-LAST_WORDS:]):
        return "bug", "the GPU's memory does not hold it: a smaller batch, or a larger GPU; it is not retried"
    if MEMORY.search(tail):
        return "oom", "the box's memory does not hold it"
    name = last_exception(tail)
    if name in BUGS and not killed:
        return "bug", f"{name} is code or config: it is not retried as it is"
    if killed:
        if ending.oom_kills is None:
            return "oom", "exit by SIGKILL is what the kernel does when memory runs out; this box does not count it"
        return "transient", "it was killed from outside: not by the kernel for want of memory"
    if code in (-signal.SIGTERM, 128 + signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGINT, -signal.SIGHUP):
        return "stopped", "it was asked to end, and not by this runner"
    if PASSING.search(tail):
        return "transient", ""
    if code in (126, 127) and re.search(r"not found|[Pp]ermission denied|cannot execute", tail):
        return "bug", "its command can't be run on this box"
    if code == 2 and re.search(r"^usage: ", tail, re.MULTILINE) and ": error: " in tail:
        return "bug", "its command line is wrong"
    return "unknown", ""


def last_exception(tail: str) -> str:
    """The name of the Python exception that a program ended with; "" without one."""
    names = [name for name in EXCEPTION.findall(tail) if name not in WRAPPERS]
    return names[-1] if names else ""


def is_final(kind: str, failures: int, retries: int) -> bool:
    """Whether the cell is given up. `failures`: the failures of this version that count, this one included."""
    return kind in FINAL or (kind != "disk" and failures > retries)
