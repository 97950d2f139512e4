"""Who keeps a GPU from the cells: real processes with a device's file open, and a driver that may not list them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.common.processes import BOX_ID_VARIABLE, WORKER_VARIABLE
from sweepstack.onbox.runner import cards
from sweepstack.onbox.runner.cell_processes import CELL
from tests.onbox.harness import Box, around, wait_for

GB = 1 << 30
HOLD = "import sys; files = [open(path) for path in sys.argv[1:]]; print('held', flush=True); sys.stdin.read()"
QUERY = "0, NVIDIA A100-SXM4-40GB, 0, {used}, 40960, 31, 210, 1410"
Hold = Callable[..., int]


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files that stand for /dev/nvidia0 and /dev/nvidia1; every process is old enough."""
    monkeypatch.setattr(cards, "DEVICE", re.compile(re.escape(str(tmp_path)) + r"/nvidia(\d+)"))
    monkeypatch.setattr(cards, "YOUNG_SECONDS", 0.0)
    monkeypatch.setenv(BOX_ID_VARIABLE, "local-a")
    for number in range(2):
        (tmp_path / f"nvidia{number}").touch()
    return tmp_path


@pytest.fixture
def hold(devices: Path) -> Iterator[Hold]:
    """Starts a process that holds devices, in a group of its own, with these words in its environment."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*numbers: int, **environ: str) -> int:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, *(str(devices / f"nvidia{number}") for number in numbers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": os.defpath, **environ},
            start_new_session=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        return process.pid

    yield start
    for process in started:
        process.kill()
        process.communicate()


def kept(*asked: Any, **more: Any) -> list[dict[str, Any]]:
    """Those that keep a GPU from the cells."""
    return cards.in_the_way(cards.holders(*asked, **more))


def test_who_holds_a_gpu_is_named_with_its_owner(hold: Hold) -> None:
    pid = hold(1, 0)
    (one,) = kept([], [])
    assert (one["pid"], one["gpus"], one["own"], one["memory"]) == (pid, [0, 1], True, None)
    assert one["command"].startswith(f"{sys.executable} -c import")
    assert len(one["command"]) <= cards.COMMAND_CHARS


def test_cells_at_work_and_the_young_are_left_out(hold: Hold, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell's by its group, or by what it carries; one of a cell that is not at work is a leftover."""
    leader, child = hold(0), hold(0, **{BOX_ID_VARIABLE: "local-a", CELL: "seed1"})
    ended, strange = (
        hold(0, **{BOX_ID_VARIABLE: "local-a", CELL: "seed2"}),
        hold(0, **{BOX_ID_VARIABLE: "local-b", CELL: "seed1"}),
    )
    assert {one["pid"] for one in kept([leader], ["seed1"])} == {ended, strange}
    assert {one["pid"]: one["box"] for one in kept([leader], ["seed1"])} == {ended: "", strange: "local-b"}
    everyone = cards.holders([leader], ["seed1"])
    assert {one["pid"] for one in everyone if one["at_work"]} == {leader, child}
    monkeypatch.setattr(cards, "YOUNG_SECONDS", 3600.0)
    assert kept([], []) == []


def test_what_another_worker_of_the_box_started_is_at_work_until_its_end_is_known(
    hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share a node: what the one runs, the other must not offer to kill. An unknown end is none."""
    box = {BOX_ID_VARIABLE: "local-a"}
    theirs = hold(0, **box, **{WORKER_VARIABLE: "7_1.0", CELL: "seed2"})
    mine = hold(0, **box, **{WORKER_VARIABLE: "7_0.0", CELL: "seed0"})  # of a cell of mine that has ended
    strange = hold(0, **{BOX_ID_VARIABLE: "local-b", WORKER_VARIABLE: "7_1.0", CELL: "seed2"})
    monkeypatch.setenv(WORKER_VARIABLE, "7_0.0")
    assert {one["pid"] for one in kept([], [])} == {mine, strange}
    assert {one["pid"] for one in kept([], [], ended={"7_1.0"})} == {mine, strange, theirs}


def gpu(index: int, used: int | None) -> dict[str, int | None]:
    return {"index": index, "memory_used": used, "memory_total": 40 * GB}


def held(memory: int | None, *gpus: int, own: bool = True) -> dict[str, object]:
    return {
        "pid": 4711,
        "gpus": list(gpus),
        "user": "ann",
        "own": own,
        "command": "python old.py",
        "seconds": 7200,
        "memory": memory,
        "box": "",
    }


def test_the_words_say_how_much_who_and_what_to_do() -> None:
    (said,) = cards.alarms([gpu(0, 30 * GB), gpu(1, 0)], [held(None, 0)], [], {})
    assert said == (
        "GPU 0: 32.2 of 42.9 GB are held by pid 4711 (ann, python old.py, for 2.0 h), no cell at work; "
        "`kill 4711` there ends it, if it is not needed"
    )
    (said,) = cards.alarms([gpu(0, 30 * GB)], [held(2 * GB, 0, own=False)], ["0"], {})
    assert said.startswith("GPU 0: 2.1 of 42.9 GB are held by pid 4711 ")
    assert said.endswith("it is ann's to end")
    (said,) = cards.alarms([gpu(0, 30 * GB)], [held(None, 0) | {"box": "local-b", "seconds": 90}], [], {})
    assert "for 2 min), of box local-b on the same machine: both use this GPU" in said
    assert "kill" not in said, "it may be a cell at work there"


def test_memory_that_no_process_seen_holds_is_said_and_a_cell_s_is_its_own() -> None:
    (said,) = cards.alarms([gpu(0, 30 * GB)], [], [], {"0": 30 * GB})
    assert said.startswith("GPU 0: 32.2 of 42.9 GB are held, by no process that can be seen on this box: ")
    assert "`fuser -v /dev/nvidia0` as root" in said
    assert cards.alarms([gpu(0, 30 * GB)], [], ["0"], {"0": 0}) == []
    (said,) = cards.alarms([gpu(0, 38 * GB)], [], ["0"], {"0": 30 * GB})
    assert said.startswith("GPU 0: 32.2 of 42.9 GB were held before its cell began, by no process ")


def test_what_an_ended_cell_had_is_no_alarm_while_the_driver_frees_it() -> None:
    """Seen on an H200: the look between two cells found the first one's memory, and no process."""
    unseen, freed = cards.Unseen(), cards.FREED_SECONDS
    unseen.look([gpu(0, 0), gpu(1, 30 * GB)], [], 0.0)
    unseen.busy(["0"], 100.0)
    unseen.look([gpu(0, 38 * GB), gpu(1, 30 * GB)], [], 100.0 + freed / 2)
    assert unseen.bytes == {"0": 0, "1": 30 * GB}
    unseen.look([gpu(0, 38 * GB)], [], 100.0 + freed)
    assert unseen.bytes["0"] == 38 * GB, "it is still there: the driver did not free it"


@pytest.mark.parametrize("memory", [30 * GB, None])
def test_memory_of_a_process_that_was_seen_is_not_held_by_none(memory: int | None) -> None:
    """One that is at work, or too young to tell of: when it has ended, the next cell is not told of what it had. And a
    reset of the GPU is no advice while a process is there."""
    unseen = cards.Unseen()
    unseen.look([gpu(0, 30 * GB)], [held(memory, 0)], 0.0)
    assert cards.alarms([gpu(0, 30 * GB)], [], [], unseen.bytes) == []
    assert cards.alarms([gpu(0, 38 * GB)], [], ["0"], unseen.bytes) == []


@pytest.mark.parametrize(("used", "memory"), [(GB - 1, None), (30 * GB, GB - 1), (None, None)])
def test_a_desktop_is_no_alarm(used: int | None, memory: int | None) -> None:
    assert cards.alarms([gpu(0, used)], [held(memory, 0)], [], {}) == []


def test_the_patrol_says_it_and_ends_nobody(box: Box, hold: Hold, devices: Path) -> None:
    pid = hold(0)
    rows = [f"{number}{QUERY.format(used=30_000)[1:]}" for number in range(2)]
    box.show_gpus(2, "\n".join(rows))
    box.set(gpus=2, patrol_seconds=0.2)
    box.add("a", "echo; sleep 600")
    change = f"""
        import re, time
        from sweepstack.onbox.runner import cards, patrol
        seen = patrol.gpus
        patrol.gpus = lambda: time.sleep(1) or seen()  # else the probe of the job is slower by itself
        cards.DEVICE = re.compile({str(devices)!r} + r"/nvidia(\\d+)")
        cards.YOUNG_SECONDS = 0.0"""
    runner = box.start(script=around(box, change))
    wait_for(lambda: any(line["running"] for line in box.patrol()), box.log)
    began = box.events("cell-started")[0]["time"]
    assert box.patrol()[0]["time"] <= began, "what is held already is seen before the first cell begins"
    line = next(line for line in box.patrol() if line["running"])
    assert [one["pid"] for one in line["holders"]] == [pid]
    assert any(f"are held by pid {pid} (" in alarm for alarm in line["alarms"])
    assert any(alarm.startswith("GPU 1: 31.5 of 42.9 GB were held before its cell") for alarm in line["alarms"]), line
    os.kill(pid, 0)
    os.kill(runner.pid, signal.SIGTERM)
    assert runner.ended() == 143
