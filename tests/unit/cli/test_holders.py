"""Who holds a GPU beside the cells: named by default, ended on request, and never another process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.processes import start_of
from tests.unit.cli.support import Box, World

WAITS = "import sys; print('up', flush=True); sys.stdin.read()"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + WAITS
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def begin(code: str = WAITS) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def launched(world: World) -> Box:
    box = world.add()
    box.launch("lr0.1")
    return box


def holder(process: subprocess.Popen[bytes], **more: Any) -> dict[str, Any]:
    """As the patrol of a box writes it."""
    known = {"pid": process.pid, "start": start_of(process.pid), "gpus": [0], "user": "ann", "own": True}
    return {**known, "command": "python old.py", "seconds": 7200, "memory": 30 << 30, **more}


def test_they_are_named_and_none_is_ended(world: World, start: Start) -> None:
    box, process = launched(world), start()
    box.beat(holders=[holder(process)])
    shown = world.run("doctor", "box-0")
    assert shown.code == 0
    assert f"pid {process.pid}  GPU 0, 32.2 GB  ann  for 2 h  python old.py" in shown.out
    assert f"sweepctl doctor box-0 --end {process.pid} --stack sweep-t" in shown.out
    assert process.poll() is None
    (one,) = world.run("doctor", "box-0", "--json").json["holders"]
    assert (one["pid"], one["gpus"], one["own"]) == (process.pid, [0], True)
    box.beat(holders=[holder(process, box="local-b")])
    shown = world.run("doctor", "box-0")
    assert f"pid {process.pid}  GPU 0, 32.2 GB  ann, box local-b  for 2 h" in shown.out
    assert "--end" not in shown.out, "what another box runs is not offered"


@pytest.mark.parametrize("code", [WAITS, DEAF], ids=["by SIGTERM", "by SIGKILL"])
def test_u11_one_is_ended_on_request(world: World, start: Start, code: str) -> None:
    box, process, other = launched(world), start(code), start()
    box.beat(holders=[holder(process), holder(other)])
    done = world.run("doctor", "box-0", "--end", str(process.pid))
    assert (done.code, process.wait(60) < 0) == (0, True)
    assert f"ended {process.pid} on box-0" in done.out
    assert other.poll() is None


def test_what_is_another_process_by_now_or_another_user_s_is_left_alone(world: World, start: Start) -> None:
    box, process = launched(world), start()
    for more, why in (
        ({"start": "1"}, "is another process by now"),
        ({"own": False}, "is ann's to end"),
        ({"start": ""}, "is an older one"),
        ({"pid": process.pid + 1}, "holds no GPU of box-0, or belongs to a running cell"),
    ):
        box.beat(holders=[holder(process, **more)])
        refused = world.run("doctor", "box-0", "--end", str(process.pid))
        assert (refused.code, process.poll()) == (1, None)
        assert why in " ".join(refused.err.split())


def test_an_old_line_says_nothing_of_now(world: World, start: Start) -> None:
    box, process = launched(world), start()
    silent = world.run("doctor", "box-0")
    assert silent.code == 2
    assert "has written no line yet" in silent.err
    box.beat(ago=600, holders=[holder(process)])
    late = world.run("doctor", "box-0", "--end", str(process.pid))
    assert (late.code, process.poll()) == (2, None)
    assert "wrote its last line 10 min ago" in " ".join(late.err.split())


def at_work(box: Box, worker: str, host: str, *lines: dict[str, Any], ago: float = 3.0) -> None:
    """A worker of a box that several share begins on a node, and its patrol says which processes hold a GPU there."""
    folder = box.root / box_layout.WORKERS / worker
    folder.mkdir(parents=True)
    (folder / "worker.json").write_text(json.dumps({"worker": worker, "host": host}))
    time = (datetime.now(UTC) - timedelta(seconds=ago)).isoformat()
    (folder / "patrol.jsonl").write_text(json.dumps({"time": time, "running": [], "holders": list(lines)}) + "\n")
    box.log("runner-started", worker=worker, pid=1)


def test_of_several_workers_each_says_it_of_its_node(world: World, start: Start) -> None:
    """Two of them see the same process of one node. Of one that is silent it is not known, and one has ended."""
    box, process = launched(world), start()
    at_work(box, "7_0.0", "n1", holder(process))
    at_work(box, "7_1.0", "n1", holder(process))
    at_work(box, "7_2.0", "n2", ago=600)
    at_work(box, "7_3.0", "n3", holder(process, pid=1))
    box.log("runner-stopped", worker="7_3.0", why="wall")
    shown = world.run("doctor", "box-0")
    assert shown.code == 0
    assert shown.out.count(f"node n1  pid {process.pid}  GPU 0") == 1
    said = " ".join(shown.out.split())
    assert "worker 7_2.0 of box-0 on n2 wrote its last line 10 min ago" in said
    assert "n3" not in said
    refused = world.run("doctor", "box-0", "--end", str(process.pid))
    assert (refused.code, process.poll()) == (1, None), "its number means another process on the host of the box"
    assert "srun --overlap --jobid=$(squeue --noheader --jobs=7_0 --format=%A)" in refused.err
    document = world.run("doctor", "box-0", "--json").json
    assert [(one["pid"], one["host"], one["worker"]) for one in document["holders"]] == [(process.pid, "n1", "7_0.0")]
    assert len(document["unknown"]) == 1
    for worker in ("7_0.0", "7_1.0", "7_2.0"):
        box.log("worker-ended", worker=worker, proof="its node is off", by="ann")
    none = world.run("doctor", "box-0")
    assert (none.code, "no worker of box-0 is at work" in none.err) == (2, True)


def test_a_box_without_strangers_says_so(world: World) -> None:
    launched(world).beat(holders=[])
    assert "no process beside the cells holds a GPU of box-0" in world.run("doctor", "box-0").out
    for alarm in (
        "GPU 0: 39.8 of 42.9 GB were held before its cell began, by no process that can be seen on this box",
        "1 GPUs are not seen any more: `nvidia-smi` on the box says why, or hangs",
    ):
        launched(world).beat(holders=[], alarms=[alarm, "disk 99% full"])
        shown = " ".join(world.run("doctor", "box-0").out.split())
        assert alarm in shown
        assert "no process beside" not in shown
        assert "disk" not in shown
