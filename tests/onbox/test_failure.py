"""What kind of failure it was: by what real programs say when they fail, and by what the kernel counts."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweepstack.onbox.runner.ending import FailedAttempt, classify, last_exception
from tests.onbox.harness import Box, wait_for


def python(code: str) -> str:
    return f"python -c '{code}'"


FAILURES = [
    (python('{}["lr"]'), "bug", True),
    (python("import no_such_module"), "bug", True),
    (python("if:"), "bug", True),
    (python('print("x"); None.shape'), "bug", True),
    (python('raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB")'), "bug", True),
    (python('import argparse; argparse.ArgumentParser().parse_args(["--nope"])'), "bug", True),
    ("no-such-program --lr 1", "bug", True),
    (python('raise ConnectionResetError("peer")'), "transient", False),
    (python('import socket; socket.create_connection(("127.0.0.1", 9), 1)'), "transient", False),
    (python('raise RuntimeError("NCCL error: remote process exited")'), "transient", False),
    (python("raise MemoryError"), "oom", False),
    (python('raise RuntimeError("loss diverged")'), "unknown", False),
    (python('raise ValueError("bad batch")'), "unknown", False),
    ("exit 3", "unknown", False),
    ("true", "files", True),
    ("kill $$", "stopped", False),
    ("echo KeyError: said on the way; exit 0", "files", True),
    ("echo 'No space left on device' >&2; exit 1", "unknown", False),  # there is plenty: somewhere else, then
]


def test_class_of_a_failure(box: Box) -> None:
    """Each by a cell of its own, behind one that is sealed: else one that lacks files holds the others."""
    box.set(retries=1)
    box.add("good")
    cells = {f"a{number}": row for number, row in enumerate(FAILURES)}
    for cell, (run, *_) in cells.items():
        box.add(cell, run.replace("{}", "dict()"))
    box.run(code=1)
    for cell, (run, kind, final) in cells.items():
        failures = box.events("cell-failed", cell)
        assert [one["class"] for one in failures] == ([kind] if final else [kind, kind]), run
        assert failures[0]["final"] == final, run
        assert len({(one["config_digest"], one["version"]) for one in box.events("cell-started", cell)}) == 1, run


@pytest.mark.parametrize(
    ("code", "tail", "kills", "kind"),
    [
        (-9, "", 1, "oom"),
        (137, "Killed\n", 2, "oom"),
        (-9, "", 0, "transient"),  # no phantom of an OOM: nobody has to shrink a batch for it
        (137, "Killed", None, "oom"),
        (1, "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. \n", 1, "oom"),
        (1, "Traceback (most recent call last):\n  x\nKeyError: 'a'\n", 1, "bug"),  # the neighbour's, not this one's
        (1, "torch.OutOfMemoryError: CUDA out of memory.\n", 0, "bug"),
        (1, "torch.cuda.OutOfMemoryError: CUDA out of memory; smaller batch\n" + "step\n" * 2000, 0, "unknown"),
        (1, "KeyError: 'x'\n\nDuring handling of the above\n\nrequests.exceptions.ReadTimeout: slow\n", 0, "transient"),
        (
            1,
            "TypeError: f() takes 1\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \nRoot Cause:",
            0,
            "bug",
        ),
        (1, "[ann@two] [rank1]: KeyError: 'a'\n[ann@two] \nsweepstack: failed: node 1 (ann@two): x\n", 0, "bug"),
        (69, "x\nsweepstack: node 1 (ann@two) is lost: nothing is heard of it for 30 s\n", 0, "transient"),
        (-7, "", 0, "unknown"),
        (143, "Terminated", 0, "stopped"),
        (None, "[Errno 116] Stale file handle", 0, "transient"),
    ],
)
def test_class_by_what_is_known(code: int | None, tail: str, kills: int | None, kind: str) -> None:
    assert classify(FailedAttempt(code, tail, kills))[0] == kind


def test_last_exception_is_the_one_it_ended_with() -> None:
    assert last_exception("a.b.FooError: x\nsome text: Error\n  IndentedError: no\nBarError\n") == "BarError"
    assert last_exception("nothing here\nError rate: 0.3\n") == ""


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A cgroup of 120 MB."""
    (own,) = [
        line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in line
    ] or [None]
    base = Path("/sys/fs/cgroup/memory" + own[2] if own else "/sys/fs/cgroup")
    folder, limit = base / f"sweepstack-test-{os.getpid()}", "memory.limit_in_bytes" if own else "memory.max"
    try:
        folder.mkdir()
        (folder / limit).write_text(str(120 << 20))
    except OSError as error:
        pytest.skip(f"NOT TESTED: no cgroup with a memory limit can be made here: {error}")
    yield folder
    wait_for(lambda: not (folder / "cgroup.procs").read_text(), lambda: "processes left in the cgroup")
    folder.rmdir()


def test_kernel_that_kills_for_memory_is_told_from_a_person_who_kills(box: Box, small_memory: Path) -> None:
    box.set(retries=0, patrol_seconds=0.2)
    box.around = ["/bin/sh", "-c", f'echo $$ > {small_memory}/cgroup.procs; exec "$@"', "sh"]
    box.add("eats", "python -c 'x = bytearray(400 << 20)'")
    box.add("killed", f"touch {box.control}/middle-killed; echo; sleep 600")
    runner = box.start()
    box.in_the_middle("killed")
    wait_for(lambda: any(line["memory"]["oom_kills"] for line in box.patrol()), box.log)  # the last line may be older
    os.killpg(box.pid("killed"), signal.SIGKILL)
    assert runner.ended() == 1
    (eats,), (killed,) = box.events("cell-failed", "eats"), box.events("cell-failed", "killed")
    assert (eats["class"], killed["class"]) == ("oom", "transient")
    assert "want of memory" in eats["reason"]
    seen = [line["memory"] for line in box.patrol()]
    assert {memory["limit"] for memory in seen} == {120 << 20}
    assert any(0 < memory["used"] < 120 << 20 for memory in seen)  # the kernel's counters of caches lag behind
    assert seen[-1]["oom_kills"] >= 1
