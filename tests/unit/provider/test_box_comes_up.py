"""A box that is wanted running and does not run yet: waited for, started, or said not to come back, with a way out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweepstack.core.resources import BoxState, QueueState
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.units import spell_rate
from sweepstack.onbox.host.platform import Phase
from sweepstack.operations.observe import observe
from sweepstack.provider.resources import run_or_stop, teardown
from sweepstack.provider.resources.policy_limits import IDENTITY_SEEN
from sweepstack.provider.session import Operation, Session, Severity
from sweepstack.teardown.box_context import BoxAt
from sweepstack.teardown.refusal import waiting_cost
from tests.simulators.vastai import VastSimulator
from tests.unit.provider.support import BOX, STACK, Sweep, still_creating
from tests.unit.provider.vast_world import TEARDOWN, vast_world

SHOWN_AS_ENDED = 12
"""Looks that see `exited` after a start: more than one list is read for."""
START = "PUT /api/v0/instances/{id}/"


class Spot:
    """One spot box of a simulated platform, and the updates that a person asks for."""

    def __init__(self, sweep: Sweep, sim: VastSimulator) -> None:
        self.sweep, self.sim = sweep, sim
        self.on_line: list[tuple[str, Any]] = []
        """Words of a line → what happens when it is said."""
        _, self.state = BOX.create(self.op(), self.inputs())

    def op(self, *, timeout: float = 0) -> Operation:
        def emit(severity: Severity, urn: str, text: str) -> None:
            self.sweep.said.emit(severity, urn, text)
            for words, act in [one for one in self.on_line if one[0] in text]:
                self.on_line.remove((words, act))
                act()

        session = Session(self.sweep.project, emit, self.sweep.cancelled)
        session.shared[IDENTITY_SEEN] = True
        return Operation(session, f"urn:pulumi:{STACK}::project::sweepstack:index:Box::box-0", timeout)

    def inputs(self, **changes: Any) -> Any:
        wanted = {
            "adapter": "vastai",
            "mounts": {},
            "price_per_hour": None,
            "resources": {"gpu": {"count": 1}, "disk": "10GB", "spot": True},
            "bid": 0.5,
            "teardown": TEARDOWN,
        }
        return self.sweep.box_inputs(**wanted | changes)

    @property
    def native_id(self) -> str:
        return self.state.native_id

    def update(self, *, timeout: float = 0, **changes: Any) -> BoxState:
        self.state = BOX.update(self.op(timeout=timeout), self.native_id, self.state, self.inputs(**changes))
        return self.state

    def outbid(self) -> None:
        self.sim.act("outbid", {"id": self.native_id})

    def asked(self, call: str) -> int:
        return sum(f"{one.method} {one.route}" == call for one in self.sim.calls)

    def outline(self) -> dict[str, Any]:
        found: dict[str, Any] = self.sim.world.outline()["instances"][self.native_id]
        return found


@pytest.fixture
def spot(sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Spot]:
    with vast_world(tmp_path, monkeypatch) as sim:
        yield Spot(sweep, sim)


def test_a_raised_bid_waits_through_the_looks_at_a_box_that_seems_ended(spot: Spot) -> None:
    """The platform starts it by itself, and shows it as ended for a while: nothing may be launched there yet."""
    spot.outbid()
    spot.sim.act("set", {"start_reads": SHOWN_AS_ENDED})
    state = spot.update(bid=0.9)
    assert state.phase == "running"
    assert state.ssh
    assert "to run: it is unknown (its container has ended" in spot.sweep.said.text(Severity.PROGRESS)
    assert spot.asked(START) == 0, "it came by itself"


def test_the_bid_is_what_it_costs_from_then_on(spot: Spot) -> None:
    spot.outbid()
    assert 0.9 <= (spot.update(bid=0.9).price_per_hour or 0.0) < 1.0
    birth = spot.sweep.born()
    assert birth.price_per_hour == spot.state.price_per_hour
    assert birth.egress_per_gb == 0.002, "as it was offered: the platform names it in offers alone"


def test_a_platform_that_takes_its_time_is_not_told_to_start_it(spot: Spot) -> None:
    """The first looks still show the box standing still. A start now would be queued, and be taken back."""
    spot.outbid()
    spot.sim.act("take", {"machine": 1, "gpus": 1})
    spot.on_line.append(("it is stopped", lambda: spot.sim.act("free", {"machine": 1})))
    assert spot.update(bid=0.9).phase == "running"
    assert spot.on_line == []
    assert spot.asked(START) == 0


def test_still_outbid_is_said_with_the_bid_that_would_do(spot: Spot) -> None:
    spot.outbid()
    error = still_creating(lambda: spot.update(bid=0.505))
    assert "still outbid" in str(error)
    assert "set `bid` to 0.5100 USD/h or more" in str(error)
    assert f"Next: pulumi up --stack {STACK}" in str(error)
    spot.state = BoxState.model_validate(error.outputs)
    assert (spot.state.bid, error.identifier) == (0.505, spot.native_id)
    assert not spot.outline()["queued"]
    assert not spot.outline()["outbid"], "it would start, and bill, when nobody waits for it any more"
    spot.sim.act("set", {"start_reads": SHOWN_AS_ENDED})
    assert spot.update(bid=0.9).phase == "running"


def test_a_box_that_stays_ended_is_no_success(spot: Spot) -> None:
    spot.sim.act("die", {"id": spot.native_id})
    error = still_creating(lambda: spot.update())
    assert f"box box-0 ({spot.native_id}) has been unknown (its container has ended" in str(error)
    assert "it may bill" in str(error)
    BoxState.model_validate(error.outputs)


def test_waiting_has_a_deadline_and_can_be_cut_short(spot: Spot) -> None:
    spot.outbid()
    spot.sim.act("set", {"start_reads": 10**6})
    error = still_creating(lambda: spot.update(bid=0.9, timeout=0.3))
    assert "is not ready yet after 0.3 s" in str(error)
    spot.state = BoxState.model_validate(error.outputs)
    assert spot.state.bid == 0.9
    spot.on_line.append(("to run: it is", spot.sweep.cancelled.set))
    assert "the wait was cancelled" in str(still_creating(lambda: spot.update(bid=0.9)))


def test_a_box_that_an_interrupted_create_left_without_the_key_gets_it(spot: Spot) -> None:
    """Found on a3c2bc8: the key was let in by the create alone, and a box that it left half made stayed shut."""
    instance = spot.sim.world.instances[int(spot.native_id)]
    instance.keys.clear()
    spot.sim.act("stop", {"id": spot.native_id})
    spot.update()
    assert instance.keys == ["ssh-ed25519 AAAA test"]


def test_nobody_waits_for_a_box_that_is_cleared(spot: Spot) -> None:
    """Its clearance must reach the state whatever the host does: else nothing could end it."""
    spot.outbid()
    spot.state = spot.state.model_copy(update={"clearance": "cleared by x"})
    assert spot.update(clearance="cleared by x").phase == "stopped"
    assert spot.asked(START) == 0


def test_a_box_that_was_ended_meanwhile_is_said_to_be(spot: Spot) -> None:
    spot.outbid()
    spot.sim.act("take", {"machine": 1, "gpus": 1})
    spot.on_line.append(("it is stopped", lambda: spot.sim.act("vanish", {"id": spot.native_id})))
    with pytest.raises(SweepstackError, match="is gone, and nothing of it bills: a person or the platform ended it"):
        spot.update(bid=0.9)


@pytest.mark.timeout(120)  # the box boots for ever: only what the create says ends it
def test_a_create_that_is_cut_off_has_let_the_key_in(sweep: Sweep, tmp_path: Path, monkeypatch: Any) -> None:
    """The next up waits for the box that boots, and has no create to let the key in with."""
    with vast_world(tmp_path, monkeypatch) as sim:
        sim.act("set", {"boot_reads": 10**6, "by_itself": 10**6})

        def emit(severity: Severity, _urn: str, text: str) -> None:
            if ": rented " in text:
                sweep.cancelled.set()

        session = Session(sweep.project, emit, sweep.cancelled)
        session.shared[IDENTITY_SEEN] = True
        op = Operation(session, f"urn:pulumi:{STACK}::project::sweepstack:index:Box::box-0")
        wanted = sweep.box_inputs(adapter="vastai", mounts={}, price_per_hour=None, teardown=TEARDOWN)
        error = still_creating(lambda: BOX.create(op, wanted))
        (instance,) = sim.world.instances.values()
        assert error.identifier == str(instance.id)
        assert instance.actual != "running"
        assert instance.keys == ["ssh-ed25519 AAAA test"]


# Its queue


def queue_of(spot: Spot) -> QueueState:
    known = spot.sweep.queue_inputs(spot.state, adapter="vastai", teardown=TEARDOWN).model_dump()
    return QueueState.model_validate(known | {"launched_at": spot.state.created_at})


def test_a_queue_waits_for_its_box_to_run(spot: Spot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_or_stop, "LAG_SECONDS", 3000.0)
    queue = queue_of(spot)
    spot.outbid()
    spot.sim.act("set", {"start_reads": SHOWN_AS_ENDED})
    spot.sim.act("price", {"machine": 1, "min_bid": 0.2})
    assert run_or_stop.start_again(spot.op(), teardown.context_of(queue), queue)
    assert spot.outline()["actual_status"] == "running"


def test_a_queue_whose_box_does_not_come_up_is_remembered_whole(spot: Spot) -> None:
    queue = queue_of(spot)
    spot.sim.act("die", {"id": spot.native_id})
    error = still_creating(lambda: run_or_stop.start_again(spot.op(), teardown.context_of(queue), queue))
    assert error.identifier == f"{spot.native_id}/queue"
    assert QueueState.model_validate(error.outputs) == queue


def test_a_stopped_box_is_shown_at_what_it_costs_while_it_is_stopped(spot: Spot) -> None:
    """Found on a3c2bc8: an outbid box, whose disk alone bills, stood at the price of a running one."""
    instance = spot.sim.world.instances[int(spot.native_id)]
    storage = instance.disk * instance.machine.storage_cost / 730
    spot.outbid()
    end = time.monotonic() + 120
    seen, record = observe(BoxAt("vastai", spot.native_id, spot.state.account), files=False)
    while record is None or record.phase is not Phase.STOPPED:
        assert time.monotonic() < end
        seen, record = observe(BoxAt("vastai", spot.native_id, spot.state.account), files=False)
    assert record.stopped_per_hour == pytest.approx(storage, rel=0.02)
    facts = teardown.with_costs(spot.op(), teardown.context_of(spot.state), spot.state, seen)
    assert record.bills() == record.stopped_per_hour
    assert f"${spell_rate(record.stopped_per_hour)}/h, " in waiting_cost(facts)
    assert "$0.50/h" not in waiting_cost(facts)
