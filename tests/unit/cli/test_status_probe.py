"""`sweepctl status --probe`: always a line, 0 for healthy or done, 1 for a person, 2 for who does not answer."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import pytest

from sweepstack.onbox.common import box_layout
from tests.unit.cli.support import Box, World


@pytest.fixture
def box(world: World) -> Box:
    made = world.add()
    made.launch("lr0.1", "lr0.3")
    made.begin = datetime.now(UTC) - timedelta(seconds=30)
    made.start("lr0.1")
    made.beat(ago=3, disk={"free": 39, "total": 100, "inodes_free": 9, "inodes_total": 10})
    made.alive()
    return made


def verdict(world: World, code: int, name: str = "box-0") -> tuple[str, str]:
    result = world.run("status", "--probe", "--json")
    assert result.code == code, result
    found = {row["box"]: row for row in result.json["boxes"]}[name]
    return found["verdict"], "; ".join(found["words"])


def test_a_runner_that_is_gone_while_cells_are_left(world: World, box: Box) -> None:
    box.alive(False)
    word, words = verdict(world, 1)
    assert word == "escalate"
    assert "its runner is not alive, and 2 cells did not finish: lr0.1, lr0.3" in words
    assert "\nnext   pulumi up --stack sweep-t" in world.run("status", "--probe").out


def test_a_cell_that_failed_for_good(world: World, box: Box) -> None:
    box.fail("lr0.1", final=False)
    assert verdict(world, 0)[0] == "healthy"  # it is tried again
    box.start("lr0.1", attempt=2)
    box.fail("lr0.1", attempt=2)
    assert "1 cell failed: lr0.1" in verdict(world, 1)[1]


@pytest.mark.parametrize(
    ("details", "said"),
    [
        ({"running": [{"cell": "lr0.1", "attempt": 1, "verdict": "hung", "why": "still"}]}, "lr0.1 is hung"),
        ({"disk": {"free": 4, "total": 100}}, "96% of its disk"),
        ({"disk": {"inodes_free": 4, "inodes_total": 100}}, "96% of its inodes"),
        ({"alarms": ["memory 95% of its limit"]}, "memory 95% of its limit"),
    ],
)
def test_what_the_box_itself_raises(world: World, box: Box, details: dict[str, object], said: str) -> None:
    box.beat(ago=1, **details)
    assert said in verdict(world, 1)[1]


def test_a_box_that_could_not_end_its_own_bill_says_so_on_every_screen(world: World) -> None:
    """hosts.md S1: its runner was gone, and patrol said "done" with exit 0 while it billed."""
    world.full()
    (box, other) = world.boxes
    box.log("box-off", native="off", why="drained")
    box.log("box-off-failed", native="off", reason="it ended with 127", tries=1, again=60.0)
    box.alive(False)
    other.alive(False)
    late = ["wait", "verified", "--timeout", "1s"]
    for command in (["status"], ["pull"], ["ledger"], ["wait", "done"], late, ["results", "--all"]):
        result = world.run(*command)
        said = " ".join(f"{result.out} {result.err}".split())
        assert "should have stopped itself, could not (off: it ended with 127): it still bills" in said, (command, said)
        assert said.count("should have stopped itself, could not") == 1, said
        document = world.run(*command, "--json")
        assert "should have stopped itself" in document.out + document.err
    assert "should have stopped itself" in verdict(world, 1)[1]


def test_a_box_that_cannot_write_why_its_bill_goes_on_is_told_by_its_lock(world: World, box: Box) -> None:
    """Its disk is full, say: then the journal has nothing of it."""
    (box.root / box_layout.LEASE_LOCK).write_bytes(b"it could not look after its lease: no room".ljust(256))
    box.alive(False)
    said = " ".join(world.run("status").out.split())
    assert "should have stopped itself, could not (it could not look after its lease: no room): it still bills" in said
    (box.root / box_layout.LEASE_LOCK).write_bytes(b" " * 256)
    assert "should have stopped itself" not in world.run("status").out


def test_slow_is_no_alarm(world: World, box: Box) -> None:
    box.beat(ago=1, running=[{"cell": "lr0.1", "attempt": 1, "verdict": "slow", "why": "no output"}])
    assert verdict(world, 0)[0] == "healthy"


def test_a_box_that_does_not_answer_says_nothing_of_its_run(world: World, box: Box) -> None:
    world.save()
    world.move_registry()
    result = world.run("status", "--probe", "--json", fresh=False)
    assert result.code == 2
    [found] = result.json["boxes"]
    assert found["verdict"] == "unreachable"
    assert "running" not in " ".join(found["words"])


def test_b01_ssh_drop_in_the_middle_of_a_run(world: World, box: Box) -> None:
    """Three looks find no way there: the verdict is of the connection alone, and nothing is started. The fourth finds
    the truth."""
    calls = world.calls()
    world.save()
    world.move_registry()
    for _ in range(3):
        [found] = world.run("status", "--probe", "--json", fresh=False).json["boxes"]
        assert found["verdict"] == "unreachable"
        assert not any(word in " ".join(found["words"]) for word in ("failed", "sealed", "running"))
    os.rename(world.folder / "elsewhere", world.platform_root)
    word, words = verdict(world, 0)
    assert (word, "1 running, 1 pending" in words) == ("healthy", True)
    assert [call for call in world.calls()[len(calls) :] if call.startswith(("up", "destroy", "refresh"))] == []


def test_who_needs_a_person_counts_more_than_who_is_silent(world: World, box: Box) -> None:
    other = world.add("box-1")
    other.launch("lr0.9")
    other.start("lr0.9")
    journal = box.root / "data/sweep/journal.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"seq":1', b'"seq":7'))
    result = world.run("status", "--probe", "--json")
    assert {row["box"]: row["verdict"] for row in result.json["boxes"]} == {"box-0": "unreachable", "box-1": "escalate"}
    assert result.code == 1


def test_a_box_that_is_gone(world: World, box: Box) -> None:
    box.vanish()
    word, words = verdict(world, 1)
    assert (word, "gone from local" in words, "2 cells lost" in words) == ("escalate", True, True)
