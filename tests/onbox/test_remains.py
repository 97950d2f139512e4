"""What a cell leaves running after exit code 0: its results are what it left behind, and nothing of it lives on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.common.processes import scan
from sweepstack.onbox.runner.remains import let_go
from tests.onbox.harness import Box, alive, around, wait_for

JOB = """
import os, subprocess, sys, time
out, mode = sys.argv[1], sys.argv[2]
file = f"{out}/result.json"
BEGIN = f"import mmap, os, time\\nopen('{out}.pid', 'w').write(str(os.getpid()))\\n"
LOG = f"{out}/../../../../runner.log"
WAITED = f"while {mode + ': exit code 0, and it is waited for'!r} not in open({LOG!r}).read(): time.sleep(0.01)\\n"
TEN = f"f = open({file!r}, 'w')\\n{WAITED}for i in range(10): f.write('1\\\\n'); f.flush(); time.sleep(0.02)\\n"
code = {
    "ends": TEN,
    "group": TEN,
    "bare": TEN,
    "killed": TEN + "os.kill(os.getpid(), 9)\\n",
    "endless": f"f = open({file!r}, 'a')\\ntime.sleep(600)\\n",
    "mapped": f"m = mmap.mmap(os.open({file!r}, os.O_RDWR), 2)\\nos.closerange(3, 99)\\ntime.sleep(60)\\n",
    "reopens": f"while True:\\n  with open({file!r}, 'a') as f: f.write('1\\\\n')\\n  time.sleep(0.05)\\n",
    "renames": f"while 1:\\n  open('{out}.n', 'w').write('2')\\n  os.rename('{out}.n', {file!r})\\n  time.sleep(.1)\\n",
    "reads": f"f, g = open({file!r}), open('{out}.log', 'w')\\ntime.sleep(60)\\n",
    "none": "",
}[mode]
open(file, "w").write("[]")
if code:
    env = {"PATH": os.environ["PATH"]} if mode == "bare" else None
    none = subprocess.DEVNULL
    if os.fork() == 0:  # the child ends at once: what it starts is an orphan
        argv = [sys.executable, "-c", BEGIN + code]
        subprocess.Popen(argv, env=env, start_new_session=mode != "group", stdin=none, stdout=none, stderr=none)
        os._exit(0)
    os.wait()
    while not (os.path.exists(f"{out}.pid") and os.path.getsize(f"{out}.pid")):
        time.sleep(0.01)
    time.sleep(0.05)
"""


def leave(box: Box, *modes: str, **settings: Any) -> None:
    code = box.ship({"job.py": JOB})
    box.set(slots=len(modes), **settings)
    for mode in modes:
        box.add(mode, f"{sys.executable} job.py {{out}} {mode}", more={"code": code})


def pid(box: Box, mode: str) -> int:
    path = box.home / "cells" / mode / "1" / "out.pid"
    wait_for(lambda: path.exists() and bool(path.read_text()), box.log)
    return int(path.read_text())


def doubts(box: Box, cell: str) -> str:
    return "; ".join(box.manifest(cell).doubts)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A box on which each cell left something else running, that ends by itself or hinders nothing."""
    box = Box(tmp_path_factory.mktemp("left"))
    leave(box, "ends", "group", "bare", "killed", "reads", "none", grace_seconds=100)
    box.run()
    yield box
    box.clean()


@pytest.mark.parametrize("mode", ["ends", "group", "bare"])
def test_a_writer_that_ends_within_the_grace_is_a_part_of_the_cell(left: Box, mode: str) -> None:
    """Also one without the cell's mark, which the runner adopted."""
    assert (left.sealed(mode) / "result.json").read_text() == "1\n" * 10
    assert doubts(left, mode) == ""
    (told,) = left.events("cell-left-running", mode)
    assert str(pid(left, mode)) in told["processes"][0]
    assert left.manifest(mode).left_running == tuple(told["processes"])


def test_a_writer_that_is_killed_may_have_left_half_a_file(left: Box) -> None:
    assert "which wrote result.json after exit code 0, ended with signal 9" in doubts(left, "killed")


def test_what_only_reads_is_ended_without_the_grace(left: Box) -> None:
    assert doubts(left, "reads") == ""
    assert not alive(pid(left, "reads"))
    assert left.events("cell-left-running", "reads")
    assert left.events("cell-left-running", "none") == []


def test_what_had_to_be_ended_is_suspect(box: Box) -> None:
    leave(box, "endless", "mapped", "reopens", "renames", grace_seconds=1.5)
    box.run("endless", "mapped", "reopens", "renames")
    open_for_writing = (
        "has result.json open for writing, 1.5 s after exit code 0, and was ended; job.grace gives it longer"
    )
    for mode, why in {
        "endless": open_for_writing,
        "mapped": open_for_writing,
        "reopens": "result.json",
        "renames": "result.json changed after exit code 0, while",
    }.items():
        assert why in doubts(box, mode)
        assert box.manifest(mode).schema_ == 2
        assert not alive(pid(box, mode))


def test_what_has_the_same_file_open_is_told_in_one_line(tmp_path: Path) -> None:
    with open(tmp_path / "t.txt", "w") as file:
        both = [subprocess.Popen(["sleep", "60"], stdout=file) for _ in range(2)]
    pids = [one.pid for one in both]
    remains = let_go(lambda: [one for one in scan() if one.pid in pids], tmp_path, 0.2, lambda: False)
    for one in both:
        one.wait()
    first, second = sorted(f"sleep (pid {one})" for one in pids)
    ended = "have t.txt open for writing, 0.2 s after exit code 0, and were ended; job.grace gives them longer"
    assert remains.doubts == (f"{first}, {second} {ended}",)


@pytest.mark.parametrize("how", ["drop", "stop"])
def test_a_wait_that_is_cut_short_seals_nothing(box: Box, how: str) -> None:
    leave(box, "endless", grace_seconds=600)
    runner = box.start()
    wait_for(lambda: "it is waited for up to 600 s" in box.log(), box.log)
    if how == "drop":
        box.drop("endless")
    else:
        os.kill(runner.pid, signal.SIGTERM)
    assert runner.ended() == (0 if how == "drop" else 128 + signal.SIGTERM)
    assert not alive(pid(box, "endless"))
    assert not box.sealed("endless").exists()
    assert box.state("endless") == ("dropped" if how == "drop" else "running")


def test_the_slot_is_free_when_all_of_it_are_gone(box: Box) -> None:
    box.add("before")  # cells that have not begun would wait for the first one's verdict
    box.run("before")
    leave(box, "endless", grace_seconds=4)
    runner = box.start()
    wait_for(lambda: "it is waited for up to 4 s" in box.log(), box.log)
    box.add("next")
    assert runner.ended() == 0
    left, began = box.events("cell-left-running", "endless")[0], box.events("cell-started", "next")[0]
    assert left["seq"] < began["seq"]


AT_THE_END = """
    from sweepstack.onbox.runner import upload
    def flush(self, cell, attempt, partial, times=[]):
        times.append(1)
        if len(times) <= {times}:
            out = runner.Path({home!r}) / "cells" / cell / str(attempt) / "out"
            (out / "result.json").write_text("[%d]" % len(times))
    upload.Uploads.flush = flush
"""


@pytest.mark.parametrize("times", [1, 2])
def test_a_file_that_is_written_after_its_copy(box: Box, times: int) -> None:
    """By what is not known to be the cell's: what is there then is sealed, and doubted; a second time it is not."""
    box.set(retries=0)
    box.add("a")
    box.run(script=around(box, AT_THE_END.format(times=times, home=str(box.home))), code=times - 1)
    if times == 1:
        assert (box.sealed("a") / "result.json").read_text() == "[1]"
        assert "changed while it was being sealed" in doubts(box, "a")
    else:
        assert "changed while it was being sealed" in box.events("cell-failed", "a")[0]["reason"]
