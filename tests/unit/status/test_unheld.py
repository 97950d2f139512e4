"""A box on which nothing was launched, on the screen of `status`, and in a round of `tend`."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest import mock

from sweepstack.billing.stray import Stray
from sweepstack.billing.unlaunched import Unheld
from sweepstack.core.journal import parse_journal
from sweepstack.core.observation import Existence, Observation
from sweepstack.core.records import Birth
from sweepstack.operations import tend
from sweepstack.status.compose import compose
from sweepstack.status.snapshot import Snapshot
from tests.unit.status.test_following import NOW, snapshot


def left(hours: float, **seen: Any) -> Snapshot:
    """A box that was rented so long ago, for a lease of 2 h."""
    whole = snapshot("person")
    begun = NOW - timedelta(hours=hours)
    birth = Birth(
        box="box-0", generation=1, tag="sweepstack-a-box-0-g1", platform="runpod", account="a", native_id="host-1",
        price_per_hour=0.5, begun_at=begun, created_at=begun, launch_by=begun + timedelta(hours=2),
    )  # fmt: skip
    (box,) = whole.box_snapshots
    found = Observation(Existence.EXISTS, **{"journal": parse_journal(b""), "runner_alive": False, **seen})
    box = replace(box, seen=found, phase="running", handed=None, journal=found.journal)
    return replace(whole, box_snapshots=(box,), unheld=(Unheld(birth, NOW),))


def test_it_is_told_before_and_is_an_alarm_after_its_deadline() -> None:
    soon, late = compose(left(1)), compose(left(3))
    assert not soon.alarms
    assert any("no lease holds it yet, nothing was launched on it" in line for line in soon.money_lines)
    (alarm,) = late.alarms
    assert "rented 3.0 h ago at $0.50/h (about $1.50), and nothing was launched on it" in alarm


def test_one_that_no_state_has_is_told_while_its_platform_shows_it_and_no_other_is() -> None:
    gone = replace(left(3), box_snapshots=())
    assert not compose(gone).alarms
    orphan = Stray(
        *("box", "runpod", "host-1"), name="box-0", price_per_hour=0.5, why="on record as rented", next="pulumi up"
    )
    assert len(compose(replace(gone, orphans=(orphan,))).alarms) == 1
    assert not compose(replace(gone, orphans=(replace(orphan, at_rest=True),))).alarms
    assert not compose(left(3, stopped=True)).alarms


def test_tend_stops_it_once_no_up_can_be_at_it_any_more() -> None:
    """By the check of every stop, and never one with a runner or with a journal."""
    ran = replace(parse_journal(b""), entries=[{"event": "cell-started"}])
    for snap, stops in (
        (left(3.9), False),
        (left(4.1), True),
        (left(4.1, runner_alive=True), False),
        (left(4.1, journal=ran), False),
    ):
        with mock.patch.object(tend, "_stop_finished_box") as rests, mock.patch.object(tend, "spent"):
            tend.stop_finished_boxes(mock.Mock(), snap, tend.Round(), set())
        whys = [call.args[2] for call in rests.call_args_list]
        assert whys == ["nothing was launched on it, and its lease is long over"] * stops
