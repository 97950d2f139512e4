"""Classifies failures: which of them a retry of the same config may get over, and which not.

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
unknown     none of the above: retried as often as the spec says"""

from __future__ import annotations

import re
import signal
from typing import NamedTuple

from sweepstack.onbox.common.files_hold import FILES

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


class Ending(NamedTuple):
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


def classify(ending: Ending) -> tuple[str, str]:
    """The class of a failure, and a remark for people. Does not check whether a disk is full."""
    code, tail = ending.code, ending.tail
    if code == 0:  # by its exit code all went well: it recovered from the errors in its log
        return "unknown", ""
    killed = code in (-signal.SIGKILL, 128 + signal.SIGKILL)
    if ending.oom_kills and (killed or MEMORY.search(tail)):
        return "oom", "the kernel ended it for want of memory (cgroup oom_kill): fewer workers, or a box with more"
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
