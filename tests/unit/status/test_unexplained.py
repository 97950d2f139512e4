"""A stopped box that no record of ours explains is named, and no other one."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from sweepstack.billing.ledger import Bill, Span
from sweepstack.core.journal import Journal
from sweepstack.core.observation import Existence, Observation
from sweepstack.onbox.host.platform import Told
from sweepstack.status.boxes import unexplained_stop
from sweepstack.status.compose import compose
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.teardown.handover_records import Handover
from tests.unit.operations.events.test_sweep import NOW, entry, picture

UP = NOW - timedelta(hours=1)
"""When the copy of its journal ends."""


def snapshot(up: datetime = UP, event: str = "runner-started", told: Told | None = None, **box: Any) -> Snapshot:
    """A box that is stopped now, and was last seen up at `up`."""
    entries = ({"event": event, "time": up.isoformat()},)
    seen = Observation(Existence.EXISTS, runner_alive=False, stopped=True)
    found = picture(box=entry(**{"lease": "2h"} | box), seen=seen, phase="stopped", told=told)
    (box_snapshot,) = found.box_snapshots
    box_snapshot = replace(box_snapshot, journal=Journal(entries=entries), copied=True)
    return replace(found, box_snapshots=(box_snapshot,))


def said(found: Snapshot, bill: Bill | None = None, **of_box: Any) -> str:
    (box_snapshot,) = found.box_snapshots
    return unexplained_stop(replace(box_snapshot, **of_box), bill, NOW)


def recorded(found: bool) -> Bill:
    spans = (Span("running", 1.5, UP, NOW), Span("stopped", 0.1, NOW, None, found))
    return Bill("box-0", "id-0", "acme", "a", 1, spans, None)


def test_it_is_named_in_one_line_of_status() -> None:
    (line,) = [note for note in compose(snapshot()).notes if "is stopped, and" in note]
    assert line.startswith("box box-0 (id-0) is stopped, and neither a command of ours nor its lease (2h) did that: ")
    assert "a job with the box's own key" in line
    assert said(snapshot(), recorded(found=True)) == line, "also once a look has found it"
    assert "no command of ours did that" in said(snapshot(UP, lease="none"))


@pytest.mark.parametrize(
    "found",
    [
        snapshot(NOW - timedelta(hours=2)),
        snapshot(NOW + timedelta(minutes=1)),
        snapshot(event="box-off"),
        snapshot(told=Told.PREEMPTED),
        snapshot(when_done="stop"),
        snapshot(want="stopped"),
        snapshot(to_delete=True),
    ],
    ids=["lease", "its-clock-is-ahead", "own-stop", "preempted", "when-done", "wanted", "replaced"],
)
def test_what_may_have_a_reason_is_not(found: Snapshot) -> None:
    assert said(found) == ""


def test_nor_what_a_command_of_ours_stopped() -> None:
    assert said(snapshot(), recorded(found=False)) == ""
    handed = Handover(box="box-0", native_id="id-0", verb="stop", by="ssh", native="off", way="cleared", begun_at=NOW)
    assert said(snapshot(), handed=handed) == ""
    going: BoxSnapshot = picture().box_snapshots[0]
    assert unexplained_stop(going, None, NOW) == ""
