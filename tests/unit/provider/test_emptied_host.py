"""A rented host that answers, and has nothing of its box any more: no place takes that for the end of its bill.

Of a box that an older version made, its host can't say that it is rented: the state does, or the price at birth.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweepstack.billing.ledger import Spent, spent
from sweepstack.billing.stray import Stray
from sweepstack.cli.commands import finish, ledger
from sweepstack.cli.output import NO, Out
from sweepstack.core.records import Birth
from sweepstack.core.resources import BoxState
from sweepstack.onbox.common.errors import NotYetGone, StillCreating, TeardownRefused
from sweepstack.onbox.host.platform import Phase
from sweepstack.operations.strays.accounts import findings_in
from sweepstack.operations.strays.beside_sweep import search, with_forgotten
from sweepstack.operations.strays.known_states import KnownStates
from sweepstack.operations.sweep.collect import Sources
from sweepstack.provider.resources.identity import may_still_bill
from sweepstack.status.snapshot import Snapshot
from tests.unit.provider.host_world import BY_PERSON, MANUAL, HostSweep, rented_host
from tests.unit.provider.support import BOX, FACTS, IDENTITY

BILLS_ON = "nothing of it is left on its host, which bills on"
TARGET: Any = SimpleNamespace(stack="sweep-t", file=SimpleNamespace(sweep=dict))


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostSweep]:
    with rented_host(tmp_path, monkeypatch, BY_PERSON) as made:
        yield made


@pytest.fixture
def box(sweep: HostSweep) -> BoxState:
    """Made by an older version; its folder was removed by hand."""
    return emptied(sweep, sweep.box())


def emptied(sweep: HostSweep, box: BoxState) -> BoxState:
    shutil.rmtree(sweep.root(box))
    shutil.rmtree(sweep.platform_root / "ended", ignore_errors=True)
    assert sweep.platform.get(box.native_id, box.account).phase is Phase.GONE, "its host knows no better"
    return box


def sources(sweep: HostSweep, *boxes: BoxState) -> Sources:
    return Sources(TARGET, sweep.stack_state(*boxes), True, sweep.identity.evidence, sweep.store, "")


def bills(sweep: HostSweep, box: BoxState) -> float | None:
    bill = spent(sweep.store, datetime.now(UTC)).of(box.native_id)
    assert bill is not None
    return bill.per_hour


@pytest.mark.parametrize("word", ["as it is made now", "made by an older version"])
def test_a_state_that_lost_it_gets_it_back_with_what_ends_its_bill(sweep: HostSweep, word: str) -> None:
    """Closed as vanished, and a second generation made: the first one's bill had ended in the books alone."""
    box = sweep.box()
    if word == "as it is made now":
        shutil.rmtree(sweep.root(box))
    else:
        emptied(sweep, box)
    with pytest.raises(StillCreating) as left:
        BOX.create(sweep.op(), sweep.box_inputs())
    assert left.value.identifier == box.native_id
    (reason,) = left.value.reasons
    for part in (BILLS_ON, MANUAL, "want: gone, then pulumi up", "sweepctl confirm gone --stack sweep-t box-0 --saw"):
        assert part in reason
    (birth,) = sweep.store.births()
    assert (birth.generation, birth.native_id, birth.ended_at) == (1, box.native_id, None)
    assert (sweep.listed(), bills(sweep, box)) == ([], 0.5)
    state = BoxState.model_validate(left.value.outputs)
    assert (state.native_id, state.price_per_hour) == (box.native_id, 0.5)
    with pytest.raises(NotYetGone, match="only a person can end it"):
        BOX.delete(sweep.op(), state.native_id, state)
    assert bills(sweep, box) == 0.5


@pytest.mark.parametrize("record", ["reads", "damaged"])
def test_a_sweep_does_not_end_with_it(sweep: HostSweep, box: BoxState, record: str) -> None:
    if record == "damaged":
        (sweep.store.root / "records" / "births" / "box-0-g1.json").write_bytes(b"\0" * 60)
    with pytest.raises(TeardownRefused, match=f"box box-0: {box.native_id} on .* bills on: {BILLS_ON}"):
        IDENTITY.delete(sweep.op("Identity", "identity"), sweep.identity.identity, sweep.identity)
    assert sweep.store.lease() is not None


def test_an_audit_names_it(sweep: HostSweep, box: BoxState) -> None:
    adapter = sweep.adapter()

    def boxes(known: KnownStates) -> list[Stray]:
        return [found for found in findings_in(adapter, sweep.platform, known) if found.kind == "box"]

    (found,) = boxes(KnownStates(states={"sweep-t": sweep.stack_state(box)}))
    assert (found.standing, found.phase, found.price_per_hour) == ("known", "ending", 0.5)
    known = KnownStates(births={"sweep-t": sweep.store.births()})
    assert boxes(known) == []
    (problem,) = known.problems
    assert f"({box.native_id} on {adapter}, $0.50/h) is on record as rented: {BILLS_ON}" in problem


def test_a_status_searches_for_it(sweep: HostSweep, box: BoxState) -> None:
    found = search(sweep.stack_state(), sweep.store, sweep.store.births(), TARGET.file, sweep.identity.evidence)
    (orphan,) = found.orphans
    assert (orphan.native_id, orphan.proved, orphan.price_per_hour) == (box.native_id, True, 0.5)
    assert BILLS_ON in orphan.why
    assert found.notes == ()
    births = tuple(sweep.store.births())
    snapshot = Snapshot(sweep.stack_state(), datetime.now(UTC), (), {}, births=births, orphans=found.orphans)
    (box_snapshot,) = with_forgotten(snapshot, sweep.store).box_snapshots
    assert (box_snapshot.gone, box_snapshot.lost) == (False, True)


def gone(sweep: HostSweep, box: BoxState, costs: Spent, births: Sequence[Birth]) -> frozenset[str]:
    """The boxes that the ledger takes for gone."""
    seen = sources(sweep, box)
    return ledger.proved_gone(ledger.open_boxes(seen.state, sweep.store, costs, births))


def test_the_ledger_and_the_last_look_of_finish_take_it_for_billing(
    sweep: HostSweep, box: BoxState, capsys: pytest.CaptureFixture[str]
) -> None:
    costs = spent(sweep.store, datetime.now(UTC))
    assert gone(sweep, box, costs, sweep.store.births()) == frozenset()
    box_snapshot: Any = SimpleNamespace(box=sweep.stack_state(box).boxes[0])
    assert finish._last_look_at_box(TARGET, box_snapshot, Out(as_json=True)) == NO
    assert json.loads(capsys.readouterr().out)["gone"] is False


def test_on_a_host_of_the_user_s_own_it_is_gone(sweep: HostSweep) -> None:
    """Its price at birth is 0, and nobody sends a bill for it."""
    own = {"price_per_hour": 0.0, "teardown": FACTS}
    box = emptied(sweep, sweep.box(**own))
    (birth,) = sweep.store.births()
    assert may_still_bill(birth) == ""
    found = search(sweep.stack_state(), sweep.store, [birth], TARGET.file, sweep.identity.evidence)
    assert (found.orphans, len(found.notes)) == ((), 1)
    assert gone(sweep, box, spent(sweep.store, datetime.now(UTC)), [birth]) == {box.native_id}
    _, state = BOX.create(sweep.op(), sweep.box_inputs(**own))
    assert state.generation == 2
