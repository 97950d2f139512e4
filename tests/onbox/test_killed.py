"""kill -9, SIGTERM, power cuts: what comes after goes on from there, and ends as if nothing had happened."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.onbox.harness import IDENTITY, Box, alive, around, wait_for


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What the job of 12 steps leaves behind when nothing happens to it."""
    box = Box(tmp_path_factory.mktemp("undisturbed"))
    box.add_steps("a", seed=7)
    box.run("a")
    return (box.sealed("a") / "result.json").read_bytes()


def goes_on(box: Box, undisturbed: bytes, attempt: int = 2) -> None:
    """The cell went on from its checkpoint, alone, and has the undisturbed result."""
    assert box.output("a", attempt).startswith("starts at 6 ")
    assert (box.sealed("a") / "result.json").read_bytes() == undisturbed
    assert box.manifest("a").attempt == attempt
    assert not (box.control / "overlap-a").exists()


def test_runner_and_cell_killed(box: Box, undisturbed: bytes) -> None:
    """As a power cut does it. What was sealed before is not run again."""
    box.set(retries=0)
    box.add("before")
    held = box.hold("a")
    box.add_steps("a", seed=7)
    runner = box.start()
    box.in_the_middle("a")
    runner.until("before", "sealed")
    runner.kill()
    os.killpg(box.pid("a"), signal.SIGKILL)
    held.unlink()
    box.run("before", "a")
    goes_on(box, undisturbed)
    assert box.events("cell-failed") == []  # being killed is no failure: none of the retries went
    assert len(box.events("cell-started", "before")) == 1


def test_cell_killed(box: Box, undisturbed: bytes) -> None:
    held = box.hold("a")
    box.add_steps("a", seed=7)
    runner = box.start()
    box.in_the_middle("a")
    held.unlink()
    os.killpg(box.pid("a"), signal.SIGKILL)
    assert runner.ended() == 0
    goes_on(box, undisturbed)
    (failure,) = box.events("cell-failed", "a")
    assert (failure["exit_code"], failure["final"]) == (-9, False)
    assert failure["reason"].startswith("killed by SIGKILL")


def test_runner_killed_and_its_cell_lives_on(box: Box, undisturbed: bytes) -> None:
    box.set(grace_seconds=0.5)
    held = box.hold("a")
    box.add_steps("a", seed=7)
    runner = box.start()
    box.in_the_middle("a")
    runner.kill()
    survivor = box.pid("a")
    assert alive(survivor)
    second = box.start()
    box.in_the_middle("a", attempt=2)
    assert not alive(survivor)
    held.unlink()
    assert second.ended() == 0
    goes_on(box, undisturbed)


@pytest.mark.parametrize(
    "hiding",
    [
        "trap '' TERM; ",  # deaf to SIGTERM
        "setsid sleep 60 & ",  # left the process group: found by its environment
        "exec env -i sleep 60; ",  # overwrote its environment: found by its group
    ],
)
def test_survivor_is_ended_whatever_it_does(box: Box, hiding: str) -> None:
    box.set(grace_seconds=0.3)
    box.add(
        "a", f"{hiding} touch {box.control}/middle-a; echo on; while test $SWEEPSTACK_ATTEMPT = 1; do sleep 600; done"
    )
    runner = box.start()
    pid = box.pid("a")
    if "exec" in hiding:
        wait_for(lambda: _command(pid) == "sleep", box.log)
    else:
        box.in_the_middle("a")  # from here on none of its processes ends by itself
    runner.kill()
    survivors = {pid, *box.processes(cells=True)}
    assert all(alive(pid) for pid in survivors)
    box.drop("a")
    assert box.start().ended() == 0
    assert [pid for pid in survivors if alive(pid)] == []


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def test_sigterm_is_passed_on(box: Box, undisturbed: bytes) -> None:
    held = box.hold("a")
    box.add_steps("a", seed=7)
    runner = box.start()
    box.in_the_middle("a")
    pid = box.pid("a")
    os.kill(runner.pid, signal.SIGTERM)
    assert runner.ended() == 128 + signal.SIGTERM
    assert not alive(pid)
    assert box.events("runner-stopped")[0]["signal"] == "SIGTERM"
    assert box.state("a") == "running"  # started, not failed
    held.unlink()
    box.run("a")
    goes_on(box, undisturbed)


def test_cell_that_leaves_cleanly_at_sigterm_is_not_done(box: Box) -> None:
    """It wrote its best so far and exited with 0: as if it were finished."""
    early = "trap 'echo early > {out}/result.json; exit 0' TERM; "
    wait = f"touch {box.control}/middle-a; echo; while test $SWEEPSTACK_ATTEMPT = 1; do sleep 0.05; done; "
    box.add("a", early + wait + "echo whole > {out}/result.json")
    runner = box.start()
    box.in_the_middle("a")
    os.kill(runner.pid, signal.SIGTERM)
    assert runner.ended() == 143
    assert (box.home / "cells/a/1/out/result.json").read_text() == "early\n"
    assert not box.sealed("a").exists()
    box.run("a")
    assert (box.sealed("a") / "result.json").read_text() == "whole\n"


def test_cell_deaf_to_sigterm_is_killed_after_the_grace(box: Box) -> None:
    box.set(grace_seconds=0.3)
    box.add("a", f"trap '' TERM; touch {box.control}/middle-a; echo; for i in $(seq 2400); do sleep 0.05; done")
    runner = box.start()
    box.in_the_middle("a")
    os.kill(runner.pid, signal.SIGTERM)
    assert runner.ended(60) == 143
    assert not alive(box.pid("a"))


def test_closed_terminal_ends_nothing(box: Box) -> None:
    held = box.hold("a")
    box.add_steps("a")
    runner = box.start()
    box.in_the_middle("a")
    os.kill(runner.pid, signal.SIGHUP)
    held.unlink()
    assert runner.ended() == 0
    assert box.state("a") == "sealed"


def test_torn_journal_line_is_cut_off(box: Box) -> None:
    """A power cut in the middle of a line: what it would have said never happened."""
    box.add("a")
    box.run("a")
    path = box.home / "journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"attempt":1,"cell":"b","ev')
    box.add("b")
    box.run("a", "b")
    assert path.read_bytes().startswith(whole)
    assert box.events("torn-line-cut")[0]["bytes"] == 27
    assert len(box.events("cell-started", "a")) == 1


def test_lost_journal_line_of_a_started_cell(box: Box) -> None:
    """Its attempt's folder is there, and the line is not: it gets the same number, and a folder of its own."""
    box.add("a", "ls {out} > {out}/../seen; echo > {out}/result.json")
    stale = box.home / "cells" / "a" / "1" / "out"
    stale.mkdir(parents=True)
    (stale / "result.json").write_text("stale")
    box.run("a")
    assert "stale" not in (box.home / "cells/a/1/seen").read_text()
    assert (box.sealed("a") / "result.json").read_text() == "\n"


# Any damage, by the same reader: tests/fuzz/test_box_records.py.
@pytest.mark.parametrize(
    "damage", ["edited", pytest.param("cut", marks=pytest.mark.proof), pytest.param("swapped", marks=pytest.mark.proof)]
)
def test_damaged_journal_starts_nothing(box: Box, damage: str) -> None:
    box.add("a")
    box.run("a")
    path = box.home / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    if damage == "cut":
        lines = lines[1:]
    elif damage == "edited":
        lines[1] = lines[1].replace(b'"slot":0', b'"slot":1')
    else:
        lines[0], lines[1] = lines[1], lines[0]
    path.write_bytes(b"".join(lines))
    box.add("b")
    assert box.start().ended() == 4
    assert path.read_bytes() == b"".join(lines)
    assert not (box.home / "cells" / "b").exists()


def test_next_box_takes_over_what_is_on_the_volume(make_box: Callable[..., Box], undisturbed: bytes) -> None:
    """Box 1 vanished: what it sealed is found, what it had begun goes on from its checkpoint."""
    one = make_box()
    one.add("done")
    one.run("done")
    held = one.hold("a")
    one.add_steps("a", seed=7)
    runner = one.start()
    one.in_the_middle("a")
    runner.kill()
    os.killpg(one.pid("a"), signal.SIGKILL)
    shutil.rmtree(one.root)
    held.unlink()
    two = make_box(generation=1)
    two.add("done")
    two.add_steps("a", seed=7)
    two.run("done", "a")
    assert [one["cell"] for one in two.events("cell-found-sealed")] == ["done"]
    assert two.events("cell-started", "done") == []
    assert two.manifest("done").generation == 0
    goes_on(two, undisturbed, attempt=1)


def test_checkpoint_of_another_config_or_version_is_never_gone_on_with(make_box: Callable[..., Box]) -> None:
    one = make_box()
    one.hold("a")
    one.add_steps("a", seed=7)
    runner = one.start()
    one.in_the_middle("a")
    runner.kill()
    one.clean()
    two = make_box()
    (two.control / "hold-a").unlink()
    two.add_steps("a", seed=8)
    two.run("a")
    assert two.output("a").startswith("starts at 0 ")


def test_sealed_copy_that_is_not_whole_is_made_again_and_kept_aside(make_box: Callable[..., Box]) -> None:
    one = make_box()
    one.add("a", "echo first > {out}/result.json")
    one.run("a")
    (one.sealed("a") / "result.json").write_text("firs")
    two = make_box()
    two.add("a", "echo second > {out}/result.json")
    two.run("a")
    assert (two.sealed("a") / "result.json").read_text() == "second\n"
    assert (two.volume / IDENTITY / "cells" / "a.superseded-1" / "result.json").read_text() == "firs"


def test_sealed_copy_of_another_config_is_no_result_and_is_kept_aside(make_box: Callable[..., Box]) -> None:
    one = make_box()
    one.add("a", "echo {lr} > {out}/result.json", lr=0.1)
    one.run("a")
    two = make_box()
    two.add("a", "echo {lr} > {out}/result.json", lr=0.2)
    two.run("a")
    assert (two.sealed("a") / "result.json").read_text() == "0.2\n"
    assert (two.volume / IDENTITY / "cells" / "a.superseded-1" / "result.json").read_text() == "0.1\n"


MOMENTS = {
    "while copying": """
        def copy(source, target):
            target.write_bytes(source.file.read_bytes()[:1])
            die()
        sealing.copy = copy""",
    "before the copy is on the disk": "sealing.flush_and_forget = die",
    "before the copy is read back": "sealing.file_sha256 = die",
    "before the rename": "sealing.publish = die",
    "between making room and the rename": """
        aside = sealing.set_aside
        def set_aside(path, *stem):
            aside(path, *stem)
            if not stem:
                die()
        sealing.set_aside = set_aside""",
    "after the rename": """
        rename = sealing.os.rename
        def publish(partial, final, still):
            rename(partial, final)
            die()
        sealing.publish = publish""",
    "before the journal says it": """
        append = records.Journal.append
        records.Journal.append = lambda self, event, **rest: (
            die() if event == "cell-sealed" else append(self, event, **rest))""",
    "in the middle of the journal's line": """
        write = sealing.os.write
        def half(file, data):
            if b"cell-sealed" in data:
                write(file, data[:50])
                die()
            return write(file, data)
        sealing.os.write = half""",
}


# `make test` plays what can be found: a part of a copy, a whole one, both names, and half a line.
PLAYED = (
    "while copying",
    "before the rename",
    "between making room and the rename",
    "in the middle of the journal's line",
)


@pytest.mark.parametrize(
    "moment", [pytest.param(one, marks=() if one in PLAYED else pytest.mark.proof) for one in MOMENTS]
)
def test_killed_while_sealing(box: Box, moment: str) -> None:
    """Under the final name there is nothing, or all of it; and the next runner ends with all of it."""
    box.add("a", "echo result > {out}/result.json; mkdir {out}/d; echo more > {out}/d/more")
    assert box.start(script=around(box, MOMENTS[moment])).ended() == -signal.SIGKILL
    renamed = moment in ("after the rename", "before the journal says it", "in the middle of the journal's line")
    assert box.sealed("a").exists() == renamed
    if renamed:
        assert (box.sealed("a") / "result.json").read_text() == "result\n"
        assert (box.sealed("a") / "manifest.json").exists()
    assert box.events("cell-sealed") == []
    box.run("a")
    assert box.manifest("a").attempt == (1 if renamed else 2)
    assert len(box.events("cell-found-sealed")) == renamed
    assert {path.name for path in box.sealed("a").parent.iterdir()} == {"a"}  # no partial copies are left


@pytest.mark.parametrize(
    "change",
    [
        # the tier accepted the bytes, and gives back others
        """
        flush = sealing.flush_and_forget
        def corrupted(path):
            flush(path)
            if path.name == "result.json":
                data = bytearray(path.read_bytes())
                data[0] ^= 1
                path.write_bytes(bytes(data))
        sealing.flush_and_forget = corrupted""",
        """
        flush = sealing.flush_and_forget
        def truncated(path):
            flush(path)
            if path.name == "manifest.json":
                os.truncate(path, 10)
        sealing.flush_and_forget = truncated""",
    ],
)
def test_copy_that_reads_back_differently_is_not_sealed(box: Box, change: str) -> None:
    box.add("a", "echo result > {out}/result.json")
    box.run(script=around(box, change), code=1)
    assert "reads back differently" in box.events("cell-failed", "a")[0]["reason"]
    assert box.events("cell-sealed") == []
    assert list(box.sealed("a").parent.iterdir()) == []


def test_full_journal_disk_ends_cells_and_tells(box: Box) -> None:
    """What can't be recorded must not go on; the journal stays whole."""
    box.hold("a")
    box.add_steps("a")
    change = """
        write = os.write
        def full(file, data):
            if b"cell-started" in data and b'"cell":"b"' in data:
                return write(file, data[:20])
            return write(file, data)
        records.os.write = full"""
    runner = box.start(script=around(box, change))
    box.in_the_middle("a")
    box.set(slots=2)
    box.add("b")
    assert runner.ended() == 6
    assert not alive(box.pid("a"))
    assert (box.home / "journal.jsonl").read_bytes().endswith(b"\n")
    assert box.journal().cells["a"].state == "running"
    assert "b" not in box.journal().cells


RESUMES = """
import json, os, sys, time
from pathlib import Path
checkpoints, out, control = map(Path, sys.argv[1:4])
saved = [path for path in checkpoints.glob("checkpoint-*") if (path / "trainer_state.json").is_file()]
last = max(saved, key=lambda path: int(path.name.rpartition("-")[2]), default=None)
step, total = json.loads((last / "trainer_state.json").read_text()) if last else (0, 0)
print("resumes from", step, flush=True)
while step < 20:
    step, total = step + 1, total + step
    if step % 5 == 0:
        place = checkpoints / f"checkpoint-{step}"
        place.mkdir(exist_ok=True)
        (place / "model").write_text(str(total))
        if step == 15 and (control / "hold").exists():
            (control / "middle").touch()
            time.sleep(600)
        (place / "trainer_state.json").write_text(json.dumps([step, total]))
assert not any(out.iterdir()), "out is new for each try"
(out / "result.json").write_text(json.dumps(total))
"""
"""Saves and goes on as a Trainer of transformers does: a folder for each checkpoint, its state written last."""


def test_a_job_with_checkpoints_of_its_own_goes_on_from_them(box: Box) -> None:
    """A job that kept its checkpoints beside its output began at step 0 after a kill."""
    box.code = box.ship({"train.py": RESUMES})
    (box.control / "hold").touch()
    box.add("a", f"python train.py {{checkpoints}} {{out}} {box.control}")
    runner = box.start()
    wait_for((box.control / "middle").exists, box.log)
    runner.kill()
    (box.control / "hold").unlink()
    box.run("a")
    assert "resumes from 0" in box.output("a", 1)
    assert "resumes from 10" in box.output("a", 2)
    assert (box.sealed("a") / "result.json").read_text() == str(sum(range(20)))


def test_a_parameter_may_be_called_checkpoints(box: Box) -> None:
    box.add("a", "echo {checkpoints} > {out}/result.json", checkpoints=7)
    box.run("a")
    assert (box.sealed("a") / "result.json").read_text() == "7\n"


def test_cell_and_runner_told_together(box: Box, undisturbed: bytes) -> None:
    """As a scheduler does it: the cell is faster, and that is no failure of it."""
    box.set(retries=0)
    held = box.hold("a")
    box.add_steps("a", seed=7)
    runner = box.start()
    box.in_the_middle("a")
    os.killpg(box.pid("a"), signal.SIGTERM)
    wait_for(lambda: not list(box.processes(cells=True)), box.log)
    os.kill(runner.pid, signal.SIGTERM)
    assert runner.ended() == 128 + signal.SIGTERM
    assert box.events("cell-failed") == []
    held.unlink()
    box.run("a")
    goes_on(box, undisturbed)
