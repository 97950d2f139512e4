"""What `status` says of cells that run: pace, hung and slow, NaN, disk, set-up; and `--watch`, which says it again."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sweepstack.cli.commands.status.watch import Pictures
from sweepstack.onbox.common import box_layout
from sweepstack.operations.sweep.target import Target
from tests.unit.cli.support import STACK, Box, World, by_name

RUN = """
import sys, sweepstack.status.engine.call
engine = sys.argv.pop(1)
sweepstack.status.engine.call.find_engine = lambda: engine
from sweepstack.cli.entry import main
main()
"""


def seen(world: World, code: int = 0) -> dict[str, Any]:
    result = world.run("status", "--json")
    assert result.code == code, result
    return dict(result.json)


def cell(world: World, name: str) -> dict[str, Any]:
    return by_name(seen(world)["cells"])[name]


def box_of(world: World, name: str = "box-0") -> dict[str, Any]:
    return by_name(seen(world)["boxes"])[name]


@pytest.fixture
def box(world: World) -> Box:
    """A box with a live runner; lr0.1 has been running for 100 s."""
    made = world.add()
    made.launch("lr0.1", "lr0.3", "lr0.9")
    made.begin = datetime.now(UTC) - timedelta(seconds=110)
    made.start("lr0.1")
    made.alive()
    return made


def curve(box: Box, name: str, *rows: dict[str, Any], attempt: int = 1) -> None:
    path = box.root / box_layout.attempt_dir(name, attempt) / "out/metrics.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_running_cell_is_timed_by_its_own_steps(world: World, box: Box) -> None:
    curve(box, "lr0.1", {"step": 40, "loss": 0.5})
    begun = box.begin.replace(microsecond=0)
    box.begin = datetime.now(UTC) - timedelta(seconds=60)
    box.seal("lr0.3")  # 20 s, to step 200
    curve(box, "lr0.3", {"step": 200, "loss": 0.1})
    found = cell(world, "lr0.1")
    assert (found["step_text"], found["step"]) == ("40/200", {"done": 40, "total": 200})
    # 40 steps took 100 s, and the time that it took to look; 160 are left.
    spent = (datetime.now(UTC) - begun).total_seconds()
    assert 100 <= found["elapsed_seconds"] <= spent
    assert found["eta_seconds"] == pytest.approx(4 * found["elapsed_seconds"], rel=0.01)
    assert "40/200" in world.run("status").out


def test_pace_counts_from_the_checkpoint(world: World) -> None:
    box = world.add()
    box.launch("lr0.1")
    box.begin = datetime.now(UTC) - timedelta(seconds=110)
    digest = world.cell("lr0.1").config_digest
    known = {"cell": "lr0.1", "config_digest": digest, "code": digest, "checkpoint_step": 100}
    box.log("cell-started", attempt=2, **known)
    box.alive()
    curve(box, "lr0.1", {"step": 150, "loss": 0.5}, attempt=2)
    found = cell(world, "lr0.1")
    assert found["resumed_from"] == 100
    assert "resumed from step 100" in found["note"]
    assert (found["step_text"], found["eta_seconds"]) == ("150", None)  # how far it goes is not known


def test_a_cell_that_went_past_the_end_of_the_others_is_not_timed_by_them(world: World) -> None:
    """A run of 40 epochs beside sealed ones of 4 had "ETA 0 s" at its fifth."""
    box = world.add()
    box.launch("lr0.1", "lr0.3")
    box.begin = datetime.now(UTC) - timedelta(seconds=60)
    box.seal("lr0.3")  # 20 s, to step 4
    curve(box, "lr0.3", {"step": 4, "loss": 0.1})
    box.begin = datetime.now(UTC) - timedelta(seconds=15)
    box.start("lr0.1")  # 5 s ago
    box.alive()
    curve(box, "lr0.1", {"step": 3, "loss": 0.5})
    assert cell(world, "lr0.1")["eta_seconds"] is not None
    curve(box, "lr0.1", {"step": 5, "loss": 0.5})
    assert cell(world, "lr0.1")["eta_seconds"] is None
    assert "ETA" not in world.run("status").out


def test_no_measure_no_eta(world: World, box: Box) -> None:
    curve(box, "lr0.1", {"step": 40, "loss": 0.5})
    assert cell(world, "lr0.1")["eta_seconds"] is None
    assert seen(world)["eta_seconds"] is None
    assert "ETA" not in world.run("status").out


def test_sealed_cells_that_disagree_give_no_total(world: World, box: Box) -> None:
    curve(box, "lr0.1", {"step": 4, "loss": 0.5})
    for name, end in (("lr0.3", 10), ("lr0.9", 20)):
        box.seal(name)
        curve(box, name, {"step": end, "loss": 0.5})
    assert cell(world, "lr0.1")["step_text"] == "4"


def test_a_cell_that_ended_too_fast_does_not_say_how_far_the_others_go(world: World) -> None:
    world.lrs = "[0.1, 0.3, 0.9, 1.5]"
    box = world.add()
    world.up_roster = world.file_roster()
    for name in ("lr0.1", "lr0.3", "lr0.9"):
        box.seal(name)
        curve(box, name, {"step": 60, "loss": 0.1})
    digest = world.cell("lr1.5").config_digest
    box.launch("lr1.5")
    box.start("lr1.5", metrics=[{"step": 1, "loss": 1.0}])
    box.log("cell-sealed", after=2, cell="lr1.5", attempt=1, config_digest=digest, manifest=digest, bytes=1)
    assert cell(world, "lr0.1")["step_text"] == "60/60"
    assert cell(world, "lr1.5")["step_text"] == "1/60"


def test_nan_is_dated(world: World, box: Box) -> None:
    rows = [{"step": step, "loss": 0.5 if step < 6310 else float("nan")} for step in range(6000, 7000)]
    curve(box, "lr0.1", *rows)
    found = cell(world, "lr0.1")
    assert "NaN since step 6310" in found["note"]
    assert (found["loss"], found["loss_text"]) == (None, "nan")


def test_hung_and_slow_are_not_the_same(world: World, box: Box) -> None:
    entry = {"cell": "lr0.1", "attempt": 1, "why": "no log, no file, no CPU for 11 min"}
    box.begin = datetime.now(UTC) - timedelta(seconds=20)
    box.seal("lr0.3")
    assert seen(world)["eta_seconds"] is not None
    box.beat(running=[entry | {"verdict": "hung"}])
    found = cell(world, "lr0.1")
    assert found["verdict"] == "hung"
    assert "HUNG: no log" in found["note"]
    assert found["eta_seconds"] is None
    assert seen(world)["eta_seconds"] is None  # whoever waits for it waits for ever
    assert "lr0.1 is hung" in " ".join(box_of(world)["alarms"])
    box.beat(running=[entry | {"verdict": "slow"}])
    assert cell(world, "lr0.1")["verdict"] == "slow"
    assert box_of(world)["alarms"] == []
    box.beat(running=[entry | {"verdict": "hung", "attempt": 9}])  # of another attempt
    assert cell(world, "lr0.1")["verdict"] == ""


@pytest.mark.parametrize(("ago", "said"), [(40.0, False), (100.0, True)])
def test_a_live_runner_that_says_nothing_is_said(world: World, box: Box, ago: float, said: bool) -> None:
    box.beat(ago=ago)
    assert ("has written nothing" in " ".join(box_of(world)["alarms"])) is said
    box.alive(False)
    assert "has written nothing" not in " ".join(box_of(world)["alarms"])


def test_an_alarm_of_the_box_is_not_said_twice(world: World, box: Box) -> None:
    entry = {"cell": "lr0.1", "attempt": 1, "verdict": "hung", "why": "no CPU for 600 s"}
    room = {"free": 2, "total": 100}
    box.beat(running=[entry], disk=room, alarms=["lr0.1 hung: no CPU for 600 s", "disk 98% full"])
    assert box_of(world)["alarms"] == ["lr0.1 hung: no CPU for 600 s", "disk 98% full"]
    assert seen(world)["next"][0] == f"sweepctl logs --stack {STACK} lr0.1 --tail 50"


def test_a_hung_cell_has_a_way_out_on_every_screen(world: World, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """Following `next` led in a circle, and `drop` was named nowhere."""
    monkeypatch.setattr("sweepstack.cli.commands.wait.POLL_SECONDS", 0.01)
    assert "1 cell would be ended while at work: lr0.1" in world.run("retry", "lr0.1").err
    box.beat(running=[{"cell": "lr0.1", "attempt": 1, "verdict": "hung", "why": "no CPU for 600 s"}])
    log = box.root / box_layout.attempt_dir("lr0.1", 1) / "log.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("begun\n")
    ways = (f"sweepctl retry --stack {STACK} lr0.1 && pulumi up", f"sweepctl drop --stack {STACK} lr0.1 --reason")
    for command in (
        ["status"],
        ["logs", "lr0.1"],
        ["wait", "done"],
        ["approve"],
        ["verify"],
        ["finish"],
        ["finish", "--box", "box-0"],
    ):
        result = world.run(*command)
        said = " ".join(f"{result.out} {result.err}".split())
        assert all(way in said for way in ways), (command, said)
    assert "lr0.1 is hung, and nothing else runs" in world.run("wait", "done").err
    assert "it is ended, and goes on from its last checkpoint" in world.run("retry", "lr0.1").out
    assert world.run("drop", "lr0.1", "--reason", "hangs").code == 0


def test_the_interval_is_what_the_box_was_told(world: World, box: Box) -> None:
    box.beat(ago=200)
    assert "has written nothing" in " ".join(box_of(world)["alarms"])
    (box.root / box_layout.SPEC).write_text(json.dumps({"patrol_seconds": 120}))
    assert box_of(world)["alarms"] == []


def test_a_box_can_not_steer_the_terminal(world: World, box: Box) -> None:
    box.log("cell-failed", cell="lr0.1", attempt=1, exit_code=1, reason="\x1b[2J\x1b]0;owned\x07gone", final=True)
    out = world.run("status").out
    assert "gone" in out
    assert "\x1b" not in out
    assert "\x07" not in out


def test_a_blocked_queue(world: World, box: Box) -> None:
    box.log(
        "queue-blocked", why="disk", free=1_200_000_000, needed=5_000_000_000, path="/disk", hint="/disk has 1 GB free"
    )
    found = by_name(seen(world)["cells"])
    assert found["lr0.3"]["state"] == "blocked_disk"
    assert "1.2 GB free, 5.0 GB needed" in found["lr0.3"]["note"]
    assert found["lr0.1"]["state"] == "running"
    assert box_of(world)["blocked"] == "disk"
    shown = world.run("status").out
    assert "blocked_disk" in shown
    assert "nothing new starts: too little disk; /disk has 1 GB free" in shown, "the place stands there once"
    box.alive(False)  # a runner that isn't there blocks nothing: `up` starts it again
    assert cell(world, "lr0.3")["state"] == "pending"
    box.alive()
    box.log("queue-unblocked")
    assert cell(world, "lr0.3")["state"] == "pending"


def test_disk_and_inodes_by_the_last_heartbeat(world: World, box: Box) -> None:
    box.beat(disk={"free": 39, "total": 100, "inodes_free": 2, "inodes_total": 100})
    found = box_of(world)
    assert (found["disk_used"], found["inodes_used"]) == (pytest.approx(0.61), pytest.approx(0.98))
    assert found["alarms"] == ["98% of its inodes are used"]
    text = world.run("status").out
    assert "61%" in text
    assert "ALARM  box box-0: 98% of its inodes are used" in text


def test_setup_is_shown(world: World) -> None:
    box = world.add()
    box.launch("lr0.1")
    box.log("setup-started", setup="s1", code="c1")
    box.alive()
    assert box_of(world)["setup"] == "running"
    assert box_of(world)["idle_seconds"] == 0
    assert "sweepctl logs --of setup box-0" in world.run("status").out
    box.log("setup-failed", setup="s1", reason="pip: no such version")
    found = box_of(world)
    assert found["setup"] == "failed"
    assert "pip: no such version" in " ".join(found["alarms"])
    assert seen(world)["next"][0] == f"sweepctl logs --stack {STACK} --of setup box-0"
    box.log("setup-started", setup="s1", code="c1")
    box.alive(False)
    assert box_of(world)["setup"] == "cut off"
    box.alive()
    box.log("setup-finished", setup="s1", seconds=2.5)
    assert box_of(world)["setup"] == "done"


def test_a_fast_finish_is_suspect(world: World) -> None:
    world.lrs = "[0.1, 0.3, 0.9, 1.5]"
    box = world.add()
    world.up_roster = world.file_roster()
    for name in ("lr0.1", "lr0.3", "lr0.9"):
        box.seal(name)  # 20 s each
    assert not any(found["suspect"] for found in seen(world)["cells"])
    digest = world.cell("lr1.5").config_digest
    box.launch("lr1.5")
    box.start("lr1.5")
    box.log("cell-sealed", after=2, cell="lr1.5", attempt=1, config_digest=digest, manifest=digest, bytes=1)
    found = {name: row["suspect"] for name, row in by_name(seen(world)["cells"]).items()}
    assert found == {"lr0.1": False, "lr0.3": False, "lr0.9": False, "lr1.5": True}
    assert "quick: sealed after 2 s, the others took 20 s" in cell(world, "lr1.5")["note"]


def test_idle_since_the_last_event(world: World, box: Box) -> None:
    assert box_of(world)["idle_seconds"] == 0
    box.fail("lr0.1")
    box.alive(False)
    found = box_of(world)
    assert found["idle"] is True
    assert 90 <= found["idle_seconds"] <= (datetime.now(UTC) - box.begin.replace(microsecond=0)).total_seconds()


# --watch


def start(world: World, *arguments: str, **how: Any) -> subprocess.Popen[bytes]:
    world.save()
    command = [sys.executable, "-c", RUN, str(world.engine / "pulumi"), "status", "--watch", "--stack", STACK]
    return subprocess.Popen([*command, *arguments], cwd=world.root, start_new_session=True, **how)


@contextmanager
def on_terminal(world: World, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "30"}
    process = start(world, *arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read_until(ours: int, words: str, process: subprocess.Popen[bytes]) -> str:
    text, deadline = "", time.monotonic() + 60
    while words not in text:
        assert time.monotonic() < deadline, text
        if select.select([ours], [], [], 0.2)[0]:
            try:
                text += os.read(ours, 65536).decode("utf-8", "replace")
            except OSError:  # the other end is closed
                assert words in text, text
                break
    return text


def test_watch_on_a_terminal_redraws_and_leaves_cleanly(world: World, box: Box) -> None:
    with on_terminal(world, "--interval", "0.3s") as (process, ours):
        text = read_until(ours, "Ctrl-C ends", process)
        assert "\x1b[?1049h" in text  # a screen of its own
        box.log("cell-failed", cell="lr0.1", attempt=1, exit_code=1, reason="KeyError: 'x'", final=True)
        read_until(ours, "KeyError", process)
        os.killpg(process.pid, signal.SIGINT)  # what a terminal makes of Ctrl-C
        left = read_until(ours, "\x1b[?1049l", process).partition("\x1b[?1049l")[2]
        if "next   " not in left:  # the last picture, on the screen that stays
            left += read_until(ours, "next   ", process)
        assert process.wait(120) == 0
        assert "KeyError" in left
        assert "Traceback" not in left
        assert "error:" not in left


def test_watch_elsewhere_prints_a_block_when_something_happens(world: World, box: Box) -> None:
    process = start(world, "--interval", "0.2s", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        text = read_until(process.stdout.fileno(), "next   ", process)
        assert "lr0.1  running" in text
        assert "\x1b" not in text
        curve(box, "lr0.1", {"step": 7, "loss": 0.5})  # goes on by itself: nothing to say
        box.seal("lr0.1")
        text = read_until(process.stdout.fileno(), "next   ", process)
        assert "1 sealed" in text
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(120) == 0
        rest, errors = process.communicate()
        assert (rest, errors) == (b"", b"")
    finally:
        process.kill()
        process.wait()


def test_watch_as_json_is_a_document_a_line_and_ends_in_time(world: World, box: Box) -> None:
    result = world.run("status", "--watch", "--json", "--interval", "0.2s", "--timeout", "0.5s")
    assert result.code == 1
    [line] = result.out.splitlines()
    assert json.loads(line)["stack"] == STACK
    assert "the limit of --timeout" in result.err


def test_watch_waits_an_outage_out(world: World, box: Box) -> None:
    """At the beginning it is an error; later the picture before it stays, with the reason."""
    world.monkeypatch.setattr("sweepstack.cli.commands.status.watch.STATE_SECONDS", 0.0)
    world.save()
    pictures = iter(Pictures(Target.find(STACK), 0.0, 60.0))
    assert next(pictures).problem == ""
    world.engine_says("error: unable to open state directory\n")
    cut = next(pictures)
    assert "unable to open state directory" in cut.problem
    assert (cut.code, cut.view.stack) == (2, STACK)
    (world.engine / "error").unlink()
    assert (next(pictures).problem, next(pictures).code) == ("", 0)
    world.engine_says("error: unable to open state directory\n")
    over = world.run("status", "--watch", "--timeout", "1s")
    assert over.code == 2
    assert "unable to open state directory" in over.err
