"""A box whose files can't be read while it stands still, as on a rental: what our stop reads before, and what for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sweepstack.core.resources import BoxState
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common.errors import TeardownRefused, Unreachable
from sweepstack.onbox.host.box_folders import default_root
from sweepstack.onbox.host.folder_platform import LocalPlatform
from sweepstack.onbox.host.platform import BoxRecord, Phase, Wait
from sweepstack.operations.observe import observe
from sweepstack.provider.resources import run_or_stop, teardown
from sweepstack.provider.resources.teardown import context_of
from sweepstack.teardown import box_context
from tests.unit.provider.support import BOX, FACTS, GATE, QUEUE, Sweep, approval_for, approved

STOPS = FACTS | {
    "paths": {"scratch": "scratch", "data": "data", "durable": "mnt/durable"},
    "stop": {"kills": ["scratch"], "keeps": ["data", "durable"], "price_per_hour": 0.03},
}
BEGAN = datetime(2026, 11, 20, 8, 0, tzinfo=UTC)


class Rental(LocalPlatform):
    """The local platform, of which no stopped box can be read, and which tells when it started each last."""

    def __init__(self) -> None:
        super().__init__(default_root())
        self.started_at: datetime | None = BEGAN
        self.starts = 0
        self.phase: Phase | None = None
        self.on_stop: Callable[[], None] = lambda: None

    def get(self, native_id: str, account: str) -> BoxRecord:
        record = replace(super().get(native_id, account), started_at=self.started_at)
        return record if self.phase is None else replace(record, phase=self.phase)

    def start(self, native_id: str, account: str, *, wait: Wait) -> BoxRecord:
        self.starts += 1
        if self.started_at is not None:
            self.started_at += timedelta(hours=self.starts)
        return super().start(native_id, account, wait=wait)

    def stop(self, native_id: str, account: str) -> None:
        super().stop(native_id, account)
        self.on_stop()

    def channel(self, native_id: str, account: str) -> Channel:
        if self.get(native_id, account).phase.at_rest:
            raise Unreachable(f"{native_id} is stopped. Start it to read it")
        return super().channel(native_id, account)


@pytest.fixture
def rental(monkeypatch: pytest.MonkeyPatch) -> Rental:
    platform = Rental()
    monkeypatch.setattr(box_context, "load_platform", lambda *_: platform)
    return platform


class Kept:
    """A box whose cells are sealed and verified, and that `tend` stopped; and the state of its queue."""

    def __init__(self, sweep: Sweep, **changes: Any) -> None:
        self.sweep = sweep
        box = sweep.box(teardown=STOPS, when_done="stop", **changes)
        self.queue = sweep.queue(box, teardown=STOPS)
        sweep.drained(box)
        self.receipt = sweep.verified(box)
        self.box = box

    def stop(self) -> None:
        wanted = self.box.model_copy(update={"want": "stopped"})
        run_or_stop.converge(self.sweep.op(), context_of(wanted), wanted)
        self.box = self.box.model_copy(update={"phase": "stopped"})

    def up(self, **changes: Any) -> BoxState:
        """What an `up` does to the box, and then to its queue."""
        new = self.sweep.box_inputs(teardown=STOPS, **{"when_done": "stop"} | changes)
        self.box = BOX.update(self.sweep.op(), self.box.native_id, self.box, new)
        inputs = self.sweep.queue_inputs(self.box, teardown=STOPS)
        self.queue = QUEUE.update(self.sweep.op("Queue"), f"{self.box.native_id}/queue", self.queue, inputs)
        return self.box


def test_it_ends_by_what_was_read_before_our_stop(sweep: Sweep, rental: Rental) -> None:
    kept = Kept(sweep)
    kept.stop()
    box = approved(kept.box, approval_for(kept.box, receipt=kept.receipt))
    GATE.delete(sweep.op("Gate"), "gate", sweep.gate(box, teardown=STOPS))
    BOX.delete(sweep.op(), box.native_id, box)
    assert rental.starts == 0
    assert sweep.listed() == []


def test_a_start_at_the_console_since_then_keeps_it(sweep: Sweep, rental: Rental) -> None:
    """A job ran meanwhile: no record of ours, and no file that can be read, tells of it. The platform's start does."""
    kept = Kept(sweep)
    kept.stop()
    rental.start(kept.box.native_id, kept.box.account, wait=Wait(30))
    (sweep.root(kept.box) / "data" / "work.bin").write_bytes(b"x")
    rental.stop(kept.box.native_id, kept.box.account)
    box = approved(kept.box, approval_for(kept.box, receipt=kept.receipt))
    with pytest.raises(TeardownRefused, match="and that start was not looked at"):
        BOX.delete(sweep.op(), box.native_id, box)
    assert sweep.listed() == [box.native_id]


def grow(kept: Kept, _rental: Rental, patch: pytest.MonkeyPatch) -> None:
    """Between the list of files and the second look at the journal a runner began."""
    from sweepstack.operations import power

    def looked(box: Any, **how: Any) -> Any:
        seen = observe(box, **how)
        assert seen[0].journal is not None
        earlier = replace(seen[0].journal, head="0" * 64)
        return replace(seen[0], journal=earlier), seen[1]

    patch.setattr(power, "observe", looked)


def alive(kept: Kept, _rental: Rental, patch: pytest.MonkeyPatch) -> None:
    from sweepstack.operations import power

    patch.setattr(
        power, "observe", lambda box, **how: (replace(observe(box, **how)[0], runner_alive=True), observe(box)[1])
    )


def started(_kept: Kept, rental: Rental, _patch: pytest.MonkeyPatch) -> None:
    rental.on_stop = lambda: setattr(rental, "started_at", BEGAN + timedelta(minutes=1))


def forgets(_kept: Kept, rental: Rental, _patch: pytest.MonkeyPatch) -> None:
    rental.on_stop = lambda: setattr(rental, "started_at", None)


def untold(_kept: Kept, rental: Rental, _patch: pytest.MonkeyPatch) -> None:
    rental.started_at = None


@pytest.mark.parametrize(
    "what",
    [
        pytest.param(
            grow, id="the_journal_grew_while_it_was_read"
        ),  # stays: the others are the same way, by another cause
        pytest.param(alive, id="its_runner_was_alive", marks=pytest.mark.proof),
        pytest.param(started, id="it_was_started_while_it_was_stopped", marks=pytest.mark.proof),
        pytest.param(forgets, id="the_platform_forgets_its_start", marks=pytest.mark.proof),
        pytest.param(untold, id="the_platform_tells_of_no_start", marks=pytest.mark.proof),
    ],
)
def test_no_look_stands_for_the_box(
    kept: Kept,
    rental: Rental,
    monkeypatch: pytest.MonkeyPatch,
    what: Callable[[Kept, Rental, pytest.MonkeyPatch], None],
) -> None:
    with monkeypatch.context() as patch:
        what(kept, rental, patch)
        kept.stop()
    rest = kept.sweep.store.rest("box-0", 1)
    assert rest is not None
    assert rest.look is None, "fail closed: it has to be started"
    box = approved(kept.box, approval_for(kept.box, receipt=kept.receipt))
    assert teardown.judge_end(context_of(box), box, box.approval, full=True).verdict.rests


@pytest.fixture
def kept(sweep: Sweep, rental: Rental) -> Kept:
    return Kept(sweep)


@pytest.mark.proof  # test_rested.py has the clause
def test_a_box_that_still_stops_is_not_known(kept: Kept, rental: Rental) -> None:
    kept.stop()
    rental.phase = Phase.STOPPING
    box = approved(kept.box, approval_for(kept.box, receipt=kept.receipt))
    assert not teardown.judge_end(context_of(box), box, box.approval, full=True).verdict.allowed


def test_an_up_starts_no_box_that_has_nothing_to_run(kept: Kept, rental: Rental) -> None:
    kept.stop()
    kept.up()
    assert rental.starts == 0
    seen = kept.sweep.seen_queue(kept.queue)
    assert seen.unhealthy == (), "each `up` would have something to do with it"
    given = kept.sweep.store.launch("box-0", 1)
    assert given is not None
    more = {**given.cells, "c": given.code}
    kept.sweep.store.write_launch(given.model_copy(update={"cells": more}))
    assert not run_or_stop.rests_for_good(context_of(kept.queue), kept.queue), "a cell of its queue has not run"


@pytest.mark.parametrize(
    "change",
    [
        {"when_done": "keep"},
        pytest.param({"want": "running"}, marks=pytest.mark.proof),  # the row above stays
    ],
)
def test_a_person_may_ask_that_it_runs_so_as_to_be_read(kept: Kept, rental: Rental, change: dict[str, str]) -> None:
    kept.stop()
    if "want" in change:
        kept.box = kept.box.model_copy(update={"want": "stopped"})
    assert kept.up(**change).phase == "running"
    assert rental.starts == 1
    kept.up(**change)
    assert rental.starts == 1


def test_a_stop_that_was_not_ours_is_followed_by_a_start(kept: Kept, rental: Rental) -> None:
    """A lease, the platform or a person stopped it: the copy of its journal may lack what ran since."""
    rental.stop(kept.box.native_id, kept.box.account)
    kept.up()
    assert rental.starts == 1
