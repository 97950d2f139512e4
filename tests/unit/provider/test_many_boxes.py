"""Many boxes in one command: each waits for its turn at the platform, and its deadline counts from there."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sweepstack.core.resources import BoxState
from sweepstack.onbox.common.errors import NotYetGone
from sweepstack.provider.resources import box as box_module
from sweepstack.provider.resources.box import Turn
from tests.simulators.vastai import VastSimulator
from tests.simulators.vastai.instance import Instance
from tests.unit.provider.support import BOX, Sweep, abandonment, approval_for, approved
from tests.unit.provider.vast_world import TEARDOWN, vast_world

DESTROY = "DELETE /api/v0/instances/{id}/"
BOXES = 10


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(box_module, "time", clock)
    monkeypatch.setattr(box_module, "_moved", {})
    return clock


def test_a_deadline_counts_from_the_boxs_own_turn(clock: Clock) -> None:
    one = Turn("here", 300)
    clock.now += 299
    assert one.left() == 1
    one.came()
    clock.now += 299
    one.came()
    assert one.left() == 1, "the verb that is sent again begins nothing anew"
    clock.now += 1
    assert one.left() == 0


def test_a_line_that_moves_is_waited_in(clock: Clock) -> None:
    last, others = Turn("here", 300), [Turn("here", 300) for _ in range(5)]
    for other in others:
        clock.now += 250
        other.came()
        assert last.left() == 300
    last.came()
    clock.now += 250
    others[0].done()
    assert last.left() == 50, "what becomes of others is nothing to a box that had its turn"


def test_a_line_that_stands_still_ends_the_wait(clock: Clock) -> None:
    last, other = Turn("here", 300), Turn("there", 300)
    clock.now += 250
    other.came()
    assert last.left() == 50, "that is another platform's line"
    Turn("here", 300).done()
    clock.now += 300
    assert last.left() == 0
    assert Turn("here", 300).left() == 300, "who comes now has a deadline of its own"


# At a platform that takes one delete in three seconds


@pytest.fixture
def vast(sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[VastSimulator]:
    with vast_world(tmp_path, monkeypatch, machines=BOXES) as sim:
        yield sim


def rented(sweep: Sweep) -> list[BoxState]:
    wanted: dict[str, Any] = {"adapter": "vastai", "mounts": {}, "price_per_hour": None, "teardown": TEARDOWN}
    names = [f"box-{number}" for number in range(BOXES)]

    def rent(name: str) -> BoxState:
        _, box = BOX.create(sweep.op(name=name), sweep.box_inputs(name, **wanted))
        return approved(box, approval_for(box, abandon=(abandonment(box),)))

    with ThreadPoolExecutor(BOXES) as threads:
        return list(threads.map(rent, names))


def test_a_destroy_that_takes_longer_than_one_boxs_deadline_ends_them_all(
    sweep: Sweep, vast: VastSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    boxes = rented(sweep)
    monkeypatch.setenv("SWEEPSTACK_API_PACE", "0.3")  # one in a second: the last has its turn after nine
    monkeypatch.setattr("sweepstack.provider.resources.box.GONE_SECONDS", 8.0)
    monkeypatch.setattr("sweepstack.platforms.vastai.session.VERB_SECONDS", 8.0)
    with ThreadPoolExecutor(BOXES) as threads:
        list(threads.map(lambda box: BOX.delete(sweep.op(name=box.name), box.native_id, box), boxes))
    assert not vast.ledger.live("instance")
    assert sum(f"{call.method} {call.route}" == DESTROY for call in vast.calls) == BOXES, "none was sent again"


def test_one_that_does_not_end_is_said_to_bill_and_holds_up_nobody(
    sweep: Sweep, vast: VastSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    boxes = rented(sweep)
    destroy = vast.world.destroy

    def all_but_one(instance: Instance, reads: int | None = None) -> None:
        if str(instance.id) != boxes[0].native_id:
            destroy(instance, reads)

    monkeypatch.setattr(vast.world, "destroy", all_but_one)

    def end(box: BoxState) -> str:
        timeout = 3 if box is boxes[0] else 120  # the others have all the time that a busy machine needs
        try:
            BOX.delete(sweep.op(name=box.name, timeout=timeout), box.native_id, box)
        except NotYetGone as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(BOXES) as threads:
        first, *others = threads.map(end, boxes)
    assert "is not proved" in first
    assert "May still bill" in first
    assert not any(others)
    assert {rental.id for rental in vast.ledger.live("instance")} == {boxes[0].native_id}
