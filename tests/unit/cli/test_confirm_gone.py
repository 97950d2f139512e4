"""`sweepctl confirm gone` of a box that no state has: what its platform proves closes its record, and nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from sweepstack.core.local_decisions import ENDED, Decision, record_decision
from tests.unit.cli.support import STACK, Box, World

CONFIRM = ("confirm", "gone", "box-0", "--json")


@pytest.fixture
def left(world: World) -> Box:
    """A sweep whose state is empty, and the open record of its box, on which one cell is verified and one is not."""
    box = world.add("box-0")
    box.launch("lr0.1", "lr0.3")
    box.seal("lr0.1")
    assert world.run("pull").code == 0
    world.run("verify")
    world.save(world.empty())
    return box


def end(world: World, box: Box) -> None:
    world.platform.destroy(box.native_id, world.platform.account())


def test_three_commands_close_what_an_older_destroy_left_open(world: World, left: Box) -> None:
    end(world, left)
    status = world.run("status", fresh=False)
    command = f"sweepctl confirm gone --stack {STACK} box-0"
    assert f"its record is still open, and {command} closes it" in " ".join(status.out.split()), status
    bill = world.run("ledger", fresh=False)
    assert "not closed" in bill.out
    assert f"sweepctl confirm gone --stack {STACK} BOX" in bill.out
    done = world.run(*CONFIRM, fresh=False)
    assert done.code == 0, done
    assert done.json["closed"] == [
        {"box": "box-0", "native_id": left.native_id, "platform": "local", "lost": ["lr0.3"]}
    ]
    (birth,) = world.store.births()
    assert birth.ended_how == "gone"
    assert [loss.cells for loss in world.store.losses()] == [("lr0.3",)]
    row = world.run("ledger", "--json", fresh=False).json["boxes"][0]
    assert row["to"] is not None
    assert "still open" not in world.run("status", fresh=False).out
    assert world.run(*CONFIRM, fresh=False).code == 1, "once"


def test_finish_closes_it_with_the_hour_in_which_it_ended(world: World, left: Box) -> None:
    """The evidence could not be written at the destroy, which noted the hour on this computer."""
    end(world, left)
    ended_at = datetime.now(UTC) - timedelta(hours=3)
    words = {"by": "", "reason": "Read-only file system", "platform": "", "native_id": left.native_id}
    record_decision(Decision(what=ENDED, at=ended_at, **words))
    done = world.run("finish", fresh=False)
    assert f"$ sweepctl confirm gone --stack {STACK} box-0" in done.out, done
    (birth,) = world.store.births()
    assert birth.ended_at == ended_at
    assert "confirm gone" not in world.run("finish", fresh=False).out, "once"


def test_what_is_there_or_not_known_stays_open(world: World, left: Box) -> None:
    there = world.run(*CONFIRM, fresh=False)
    assert there.code == 1, there
    assert there.json["next"][0] == f"pulumi up --stack {STACK}    (adopts it; then finish)"
    world.move_registry()
    world.run("finish", fresh=False)
    unknown = world.run(*CONFIRM, fresh=False)
    assert unknown.code == 2, unknown
    (birth,) = world.store.births()
    assert birth.ended_at is None
    assert world.store.losses() == []


def test_what_the_state_has_is_closed_by_its_delete(world: World, left: Box) -> None:
    end(world, left)
    refused = world.run(*CONFIRM, "--saw", "it is gone")
    assert (refused.code, refused.json["next"]) == (1, [f"pulumi destroy --stack {STACK}"])
    assert world.store.births()[0].ended_at is None
