"""A host whose clock is off by a day: what is measured there stays true, and what is written down does not change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sweepstack.core.records import Birth
from sweepstack.operations.observe import observe
from sweepstack.operations.sweep.collect import last_patrol
from sweepstack.teardown.box_context import BoxAt
from tests.simulators.host import wrong_clock
from tests.unit.launch.support import until
from tests.unit.provider.hosts import HostSweep
from tests.unit.provider.support import approval_for
from tests.unit.provider.test_box_end import delete

DAY = 86_400.0


@pytest.mark.parametrize("skew", [DAY, -DAY], ids=["ahead", "behind"])
def test_a_clock_that_is_off_by_a_day(hosts: HostSweep, skew: float) -> None:
    host = hosts.hosts["box-0"]
    host.say(PATH=f"{wrong_clock(host.folder / 'clock', skew)}:/usr/local/bin:/usr/bin:/bin")
    begun = datetime.now(UTC)
    box = hosts.box()
    assert f"its clock is 24 h {'ahead of' if skew > 0 else 'behind'} this machine's" in hosts.said.warnings
    assert box.created_at is not None
    assert near(box.created_at, begun), "what it costs is counted from now"
    hosts.hold("a", "b")
    hosts.queue(box)
    hosts.until_state(box, "running", "a", "b")
    seen, record = observe(BoxAt(box.adapter, box.native_id, box.account))
    assert record is not None
    assert record.created_at is not None
    assert near(record.created_at, begun)
    assert seen.skew == pytest.approx(skew, abs=60)
    now, there = datetime.now(UTC), datetime.now(UTC) + timedelta(seconds=seen.skew)
    assert seen.journal is not None
    for progress in seen.journal.cells.values():
        assert progress.started_at is not None
        assert near(progress.started_at, there)
        assert not near(progress.started_at, now), "else this test says nothing"
    channel = hosts.channel(box)
    until(lambda: last_patrol(channel) is not None, lambda: "its first heartbeat")
    patrol = last_patrol(channel)
    assert patrol is not None
    now, there = datetime.now(UTC), datetime.now(UTC) + timedelta(seconds=seen.skew)
    assert not patrol.silent(there)
    assert skew > 0 or patrol.silent(now), "else this test says nothing"
    hosts.release()
    hosts.drained(box)
    receipt = hosts.verified(box)
    assert {cell.state for cell in hosts.store.receipt(receipt).cells} == {"verified"}
    delete(hosts, box.model_copy(update={"approval": approval_for(box, receipt=receipt)}))
    birth: Birth | Any = hosts.store.birth("box-0", 1)
    assert near(birth.created_at, begun)
    assert birth.ended_at >= birth.created_at


def near(one: datetime, other: datetime) -> bool:
    """Within the time that a slow machine takes for all of this."""
    return abs((one - other).total_seconds()) < DAY / 4
