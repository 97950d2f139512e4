"""What the patrol makes of a running cell: working, slow, hung; and NaN, for which a job may ask to be stopped."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.runner.attempt import MetricsWatch
from tests.onbox.harness import Box, wait_for

STALL = {"stall_seconds": 1.0, "patrol_seconds": 0.25}


def of(box: Box, cell: str) -> list[dict[str, Any]]:
    return [one for line in box.patrol() for one in line["running"] if one["cell"] == cell]


def verdicts(box: Box, cell: str) -> list[str]:
    """Each once, in the order in which they came."""
    found: list[str] = []
    for one in of(box, cell):
        if found[-1:] != [one["verdict"]]:
            found.append(one["verdict"])
    return found


def test_hung_slow_and_working_are_told_apart(box: Box) -> None:
    box.set(slots=3, **STALL)
    box.add("hung", "echo begun; sleep 600")
    box.add("slow", "echo begun; i=0; while [ $i -lt 200000000 ]; do i=$((i + 1)); done")
    box.add("working", "for i in $(seq 1200); do echo . >> {out}/x; sleep 0.1; done")
    runner = box.start()
    for cell, verdict in (("hung", "hung"), ("slow", "slow"), ("working", "working")):
        wait_for(lambda cell=cell, verdict=verdict: verdicts(box, cell)[-1:] == [verdict], box.log)
    wait_for(lambda: of(box, "working")[-1]["out_bytes"] > 20, box.log)
    assert "hung" not in verdicts(box, "slow")
    assert set(verdicts(box, "working")) <= {"starting", "working"}
    last = of(box, "hung")[-1]
    assert last["quiet_seconds"] >= 1.0
    assert last["why"].startswith("no output, no CPU, no GPU for ")
    assert last["log_bytes"] == 6
    assert last["cpu_seconds"] is not None
    assert last["rss"] > 0
    assert of(box, "slow")[-1]["cpu_seconds"] > 0
    assert any(alarm.startswith("hung hung: ") for alarm in box.patrol()[-1]["alarms"])
    assert box.state("hung") == "running"  # it says so, and touches nothing
    os.kill(runner.pid, signal.SIGTERM)
    assert runner.ended() == 143


def test_cell_that_goes_silent_is_found_within_one_interval(box: Box) -> None:
    """By the patrol's own lines: it looks as often as a stall may last, whatever it was told, and then says so."""
    box.set(stall_seconds=1.0, patrol_seconds=600)
    box.add("a", "echo begun; sleep 600")
    runner = box.start()
    wait_for(lambda: verdicts(box, "a")[-1:] == ["hung"], box.log)
    seen = of(box, "a")
    quiet = [one for one in seen if one["quiet_seconds"] >= 1.0]
    assert [one["verdict"] for one in quiet[1:]] == ["hung"] * len(quiet[1:])  # at the first it may have just been busy
    assert {one["verdict"] for one in seen if one["quiet_seconds"] < 1.0} <= {"starting", "working"}
    os.kill(runner.pid, signal.SIGTERM)
    assert runner.ended() == 143


def test_line_says_what_is_left_of_the_box(box: Box) -> None:
    hot = "0, NVIDIA A100-SXM4-40GB, 97, 39000, 40960, 85, 600, 1410"
    query = hot + "\\n1, NVIDIA A100-SXM4-40GB, [N/A], 3, 40960, 31, 210, 1410"
    box.show_gpus(2, query)
    box.set(gpus=2, patrol_seconds=0.2)
    box.add("a", "echo; sleep 600")
    runner = box.start()
    wait_for(lambda: bool(of(box, "a")), box.log)
    line = box.patrol()[-1]
    assert line["schema"] == 2
    assert set(line) == {
        *(
            "time",
            "schema",
            "running",
            "disk",
            "disk_free",
            "inodes_free",
            "memory",
            "gpus",
            "holders",
            "alarms",
            "blocked",
        )
    }
    assert 0 < line["disk"]["free"] == line["disk_free"] < line["disk"]["total"]
    assert 0 < line["disk"]["inodes_free"] <= line["disk"]["inodes_total"]
    assert 0 < line["memory"]["used"] <= line["memory"]["limit"]
    assert [(gpu["index"], gpu["util"], gpu["memory_used"], gpu["sm_clock"]) for gpu in line["gpus"]] == [
        (0, 97, 39000 << 20, 600),
        (1, None, 3 << 20, 210),
    ]
    heat, held = line["alarms"]
    assert heat == "GPU 0 is slowed down by its heat: 85 degrees"
    assert "held before its cell began" in held
    box.show_gpus(1, query.split("\\n")[1])
    wait_for(lambda: "1 GPUs are not seen any more" in " ".join(box.patrol()[-1]["alarms"]), box.log)
    os.kill(runner.pid, signal.SIGTERM)
    assert runner.ended() == 143


def test_busy_gpu_is_no_hung_cell(box: Box) -> None:
    """It waits for a long kernel, with an idle CPU."""
    box.show_gpus(1, "0, NVIDIA A100-SXM4-40GB, 100, 39000, 40960, 60, 1400, 1410")
    box.set(gpus=1, **STALL)
    box.add("a", "echo; sleep 600")
    runner = box.start()
    wait_for(lambda: verdicts(box, "a")[-1:] == ["slow"], box.log)
    assert "hung" not in verdicts(box, "a")
    box.show_gpus(1, "0, NVIDIA A100-SXM4-40GB, 0, 39000, 40960, 60, 1400, 1410")
    wait_for(lambda: verdicts(box, "a")[-1:] == ["hung"], box.log)
    os.kill(runner.pid, signal.SIGTERM)
    assert runner.ended() == 143


# -- NaN


def metrics(**more: Any) -> dict[str, Any]:
    return {"file": "metrics.jsonl", "x": "step", "y": ["loss", "accuracy"], "stop_on_nan": True, **more}


WRITES = 'echo \'{{"step": 1, "loss": 0.5, "other": NaN}}\'; echo \'{{"step": 2, "loss": {}}}\''


@pytest.mark.parametrize("value", ["NaN", '"nan"'])
def test_first_nan_ends_a_cell_that_asked_for_it(box: Box, value: str) -> None:
    box.set(retries=2, metrics=metrics())
    saves, goes_on = "trap 'echo saved; exit 0' TERM", "for i in $(seq 2400); do sleep 0.05; done"
    box.add("a", f"{saves}; ({WRITES.format(value)}) > {{out}}/metrics.jsonl; {goes_on}")
    box.add("b", f"({WRITES.format('Infinity')}) > {{out}}/metrics.jsonl; echo 1 > {{out}}/result.json")
    box.run("b", code=1)
    (failure,) = box.events("cell-failed", "a")
    assert (failure["class"], failure["final"]) == ("nan", True)
    assert failure["reason"] == "stopped early: loss is NaN at step 2"
    assert "saved\n" in box.output("a")  # it had its grace
    assert not box.sealed("a").exists()


def test_nan_in_the_last_line_counts_too(box: Box) -> None:
    box.set(metrics=metrics())
    line = 'printf \'{"step": 7, "accuracy": NaN}\' > {out}/metrics.jsonl; echo 1 > {out}/result.json'
    box.add("a", line)
    box.run(code=1)
    assert box.events("cell-failed", "a")[0]["reason"] == "stopped early: accuracy is NaN at step 7"


def test_nan_in_a_table(box: Box) -> None:
    box.set(metrics=metrics(file="metrics.csv"))
    box.add("a", "printf 'step,loss\\n1,0.5\\n2,nan\\n' > {out}/metrics.csv; sleep 600")
    box.run(code=1)
    assert box.events("cell-failed", "a")[0]["reason"] == "stopped early: loss is NaN at step 2"


@pytest.mark.parametrize("name", ["metrics.csv", "Metrics.CSV"])
def test_a_table_that_is_written_anew_with_one_more_column_is_read_from_its_beginning(
    tmp_path: Path, name: str
) -> None:
    """As Lightning's CSVLogger does it when a metric is logged for the first time."""
    table = tmp_path / name
    watch = MetricsWatch(tmp_path, metrics(file=name, y=["loss", "accuracy"]))
    assert not watch.look()
    table.write_text("step,loss\n0,0.5\n1,0.4\n")
    assert not watch.look()
    table.write_text("accuracy,step,loss\n,0,0.5\n,1,0.4\n0.1,1,\n")
    assert not watch.look()
    with table.open("a") as handle:
        handle.write("nan,2,\n")
    assert watch.look() == "accuracy is NaN at step 2"


def test_nan_is_a_result_where_nobody_asked(box: Box) -> None:
    box.set(metrics=metrics(stop_on_nan=False))
    box.add("a", f"({WRITES.format('NaN')}) > {{out}}/metrics.jsonl; echo 1 > {{out}}/result.json")
    box.run("a")
