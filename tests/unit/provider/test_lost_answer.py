"""A create whose answer was lost, of which no list shows anything: nothing is rented until a person has said so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweepstack.cli.commands.confirm import Statement, never_rented
from sweepstack.cli.output import Out
from sweepstack.onbox.common.errors import No, NoCapacity, OutcomeUnknown, Unsure
from sweepstack.operations.strays.beside_sweep import Search, search
from sweepstack.platforms.common.rate_limit import paced
from tests.simulators.vastai import Machine, VastSimulator
from tests.unit.provider.support import BOX, STACK, Sweep
from tests.unit.provider.vast_world import TEARDOWN, vast_world

CREATE, LIST = "PUT /api/v0/asks/{id}/", "GET /api/v1/instances/"
LAG = 10.0**6
"""Seconds; at the pace of this test hours: the moment comes when a test says so."""


@pytest.fixture
def sim(sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[VastSimulator]:
    with vast_world(tmp_path, monkeypatch, machines=3) as sim:
        yield sim


def up(sweep: Sweep, **changes: Any) -> Any:
    wanted = {"adapter": "vastai", "mounts": {}, "price_per_hour": None, "teardown": TEARDOWN, "list_lag": LAG}
    resources = {"gpu": {"count": 1}, "disk": "10GB"}
    return BOX.create(sweep.op(), sweep.box_inputs(**wanted | {"resources": resources} | changes))


def rented(sim: VastSimulator) -> int:
    return len(sim.ledger.live("instance"))


def confirm(sweep: Sweep, monkeypatch: pytest.MonkeyPatch, saw: str = "no instance of that label") -> int:
    sources = SimpleNamespace(store=sweep.store, problem="")
    monkeypatch.setattr(never_rented, "open_sources", lambda target: sources)
    target: Any = SimpleNamespace(stack=STACK)
    return never_rented.confirm(target, Statement("box-0", saw, "ann"), Out(as_json=False))


def looked_for(sweep: Sweep) -> Search:
    state: Any = SimpleNamespace(stack=STACK, boxes=(), volumes=(), problems=(), identity=None)
    target: Any = SimpleNamespace(stack=STACK, file=SimpleNamespace(sweep=dict))
    return search(state, sweep.store, sweep.store.births(), target.file)


def test_nothing_is_rented_before_lists_can_not_lag_any_more_and_then_only_on_a_persons_word(
    sweep: Sweep,
    sim: VastSimulator,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Found on a3c2bc8: a list that lagged for more than 60 s behind a lost answer rented a second box."""
    sim.faults.add("lost_answer", CREATE)
    sim.faults.add("stale_list", LIST, times=None, seconds=10**6)
    for home in ("data", "another-machine"):  # the memory of this machine, and the record in the evidence
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / home))
        with pytest.raises(OutcomeUnknown, match=r"Nothing is rented before \d\d:\d\d:\d\d UTC") as caught:
            up(sweep)
        assert re.search(r"Next: pulumi up --stack sweep-t    \(at \d\d:\d\d:\d\d UTC or later", str(caught.value))
    with pytest.raises(No, match="may lag until"):
        confirm(sweep, monkeypatch)
    (orphan,) = looked_for(sweep).orphans
    assert not orphan.proved
    assert "its list may lag until" in orphan.why
    birth = sweep.store.births()[0]
    assert birth.asked_at is not None
    assert birth.shown_by == birth.asked_at + timedelta(seconds=paced(LAG))
    sweep.store.write_birth(birth.model_copy(update={"shown_by": datetime.now(UTC)}))  # the moment has come
    with pytest.raises(OutcomeUnknown, match="without your confirmation") as caught:
        up(sweep)
    typed = 'sweepctl confirm never-rented --stack sweep-t box-0 --saw "'
    assert typed in str(caught.value)
    assert str(caught.value).endswith("    (only where the console shows no such box)")
    assert typed in looked_for(sweep).orphans[0].next
    assert rented(sim) == 1, "it was there all the time"
    sim.faults.clear()
    with pytest.raises(No, match="it was rented"):
        confirm(sweep, monkeypatch)
    native_id, _ = up(sweep)
    assert rented(sim) == 1
    assert [rental.id for rental in sim.ledger.live("instance")] == [native_id]


def test_a_person_says_that_nothing_was_rented_and_what_shows_up_later_is_named(
    sweep: Sweep, sim: VastSimulator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sim.faults.add("lost_request", CREATE)
    with pytest.raises(OutcomeUnknown):
        up(sweep, list_lag=0.0)
    with pytest.raises(OutcomeUnknown, match="without your confirmation"):
        up(sweep, list_lag=0.0)
    for pasted in ("what the console shows", " … ", "..."):
        with pytest.raises(Unsure, match=r"write what you saw.*is only the place for it"):
            confirm(sweep, monkeypatch, pasted)
    assert sweep.store.births()[0].ended_at is None
    assert confirm(sweep, monkeypatch) == 0
    birth = sweep.store.births()[0]
    assert birth.ended_how == "never rented, confirmed by ann: no instance of that label"
    _, state = up(sweep)
    assert (state.generation, rented(sim)) == (2, 1)
    account = state.account
    late = sim.act("rent", {"account": account, "offer": next(iter(sim.world.market.offers)), "label": birth.tag})
    (orphan,) = [found for found in looked_for(sweep).orphans if found.native_id == str(late)]
    assert orphan.next == f"sweepctl audit --end vastai:{late}"
    assert "never rented" in orphan.why


def test_a_create_that_was_refused_leaves_nothing_to_wait_for(sweep: Sweep, sim: VastSimulator) -> None:
    sim.faults.add("snatched", CREATE, times=None)
    with pytest.raises(NoCapacity):
        up(sweep)
    assert sweep.store.births()[0].asked_at is None
    sim.faults.clear()
    sim.world.market.add(Machine(9, 19, dph=0.30, min_bid=0.20))
    up(sweep)
    assert rented(sim) == 1


def test_a_second_box_with_the_tag_is_named_and_never_adopted(
    sweep: Sweep, sim: VastSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `up`, `destroy` and `status`, each with what ends it; also where it is the older one."""
    tag = f"sweepstack-{sweep.identity.identity}-box-0-g1"
    older, state = up(sweep)
    assert state.tag == tag
    known = str(sim.act("rent", {"account": "5000", "offer": next(iter(sim.world.market.offers)), "label": tag}))
    ends = f"sweepctl audit --end vastai:{older}"
    sweep.store.write_birth(sweep.store.births()[0].model_copy(update={"native_id": known}))
    adopted, state = up(sweep)  # its state was lost
    assert adopted == known
    assert ends in sweep.said.text()
    sweep.said.lines.clear()
    inputs = sweep.box_inputs(adapter="vastai", mounts={}, price_per_hour=None, teardown=TEARDOWN)
    BOX.check(sweep.op(), inputs, inputs)
    assert ends in sweep.said.text()
    sweep.said.lines.clear()
    (orphan,) = [found for found in looked_for(sweep).orphans if found.native_id == older]
    assert orphan.next == ends
    assert f"{known} is the one on record" in orphan.why
