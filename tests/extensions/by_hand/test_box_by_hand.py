"""A box that a person runs, and whose folder here was deleted by hand: its session may still run."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweepstack.cli.commands.confirm import Statement
from sweepstack.cli.commands.confirm import gone as confirm_gone_command
from sweepstack.cli.commands.confirm.gone import confirm as confirm_gone
from sweepstack.cli.output import YES, Out
from sweepstack.core.observation import Existence
from sweepstack.core.resources import BoxState
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.onbox.common.errors import No, NotYetGone, SweepstackError, TeardownRefused
from sweepstack.onbox.host.platform import Phase
from sweepstack.operations.strays.accounts import findings_in
from sweepstack.operations.strays.beside_sweep import search, with_forgotten
from sweepstack.operations.strays.known_states import KnownStates
from sweepstack.operations.sweep.sources import Sources
from sweepstack.platforms.registry import load_platform
from sweepstack.provider.resources.identity import may_still_bill
from sweepstack.status.engine.state import BoxEntry, IdentityEntry, StackState
from sweepstack.status.next_commands import _of_orphans
from sweepstack.status.snapshot import Snapshot
from sweepstack.teardown.box_check import BoxEnding
from sweepstack.teardown.check import may_end
from tests.unit.provider.support import BOX, FACTS, IDENTITY, Sweep, abandonment, approval_for, approved

TARGET: Any = SimpleNamespace(stack="sweep-t", file=SimpleNamespace(sweep=dict))
ENDS = {**FACTS, "kills": ("scratch", "data", "durable"), "keeps": ()}


class HandSweep(Sweep):
    """Its boxes come back to `returned`, and cost nothing."""

    def keep(self) -> None:
        self.returned = self.folder / "returned"
        self.returned.mkdir()

    def adapter(self, _name: str = "") -> str:
        return f"manual:{self.returned}"

    def mounts(self) -> dict[str, str]:
        return {}

    def box_inputs(self, name: str = "box-0", **changes: Any) -> Any:
        return super().box_inputs(name, **({"teardown": ENDS, "price_per_hour": 0} | changes))

    def phase(self, box: BoxState) -> Phase:
        return load_platform(self.adapter()).get(box.native_id, box.account).phase

    def take_away(self, box: BoxState) -> None:
        """What a person does who tidies up."""
        shutil.rmtree(self.folder.parent / "data" / "sweepstack" / "manual" / "boxes" / box.native_id)

    def delete(self, box: BoxState) -> None:
        BOX.delete(self.op(name=box.name, timeout=1), box.native_id, box)


@pytest.fixture
def hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HandSweep]:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}/state")
    sweep = HandSweep(tmp_path / "sweep")
    try:
        yield sweep
    finally:
        sweep.close()


def say(hand: HandSweep, monkeypatch: pytest.MonkeyPatch, box: BoxState, *, in_state: bool = True) -> int:
    """`sweepctl confirm gone`."""
    identity = IdentityEntry.model_validate(hand.identity.model_dump(mode="json") | {"urn": "urn:identity"})
    entries = [BoxEntry.model_validate(box.model_dump(mode="json") | {"urn": f"urn:{box.name}"})] if in_state else []
    state = StackState("sweep-t", identity=identity, boxes=tuple(entries))
    file = SimpleNamespace(path=hand.folder / "no-stack-file", shown="stacks/Pulumi.sweep-t.yaml")
    target: Any = SimpleNamespace(stack="sweep-t", file=file)
    sources = Sources(target, state, True, box.evidence, Evidence(box.evidence).usable, "")
    monkeypatch.setattr(confirm_gone_command, "open_sources", lambda _target: sources)
    return confirm_gone(target, Statement(box.name, "the tab is closed", by="ada"), Out(as_json=True))


def test_one_that_we_ended_is_gone(hand: HandSweep) -> None:
    box = hand.box()
    box = approved(box, approval_for(box))
    hand.delete(box)
    assert hand.phase(box) is Phase.GONE
    (birth,) = hand.store.births()
    assert birth.ended_at is not None


def test_one_that_an_older_version_ended_may_not_still_run(hand: HandSweep) -> None:
    """It left no word on this computer that it ended the box: the record says so, and no more can be seen."""
    box = hand.box()
    box = approved(box, approval_for(box))
    hand.delete(box)
    for closed in (hand.folder.parent / "data" / "sweepstack" / "manual" / "closed").iterdir():
        closed.unlink()
    assert hand.phase(box) is Phase.UNKNOWN
    found = search(StackState("sweep-t"), hand.store, hand.store.births(), TARGET.file, hand.identity.evidence)
    assert (found.orphans, [note for note in found.notes if "may still run" in note]) == ((), [])


def test_one_whose_folder_was_deleted_by_hand_is_unknown(hand: HandSweep) -> None:
    box = hand.box()
    hand.take_away(box)
    record = load_platform(hand.adapter()).get(box.native_id, box.account)
    assert record.phase is Phase.UNKNOWN
    for part in (
        "not by sweepstack",
        "its session may still run",
        "sweepctl give-up data/",
        "sweepctl confirm gone",
    ):
        assert part in record.note
    with pytest.raises(TeardownRefused, match="its session may still run"):
        hand.delete(box)
    with pytest.raises(SweepstackError, match="nothing new is rented"):
        BOX.create(hand.op(), hand.box_inputs())
    assert len(hand.store.births()) == 1
    with pytest.raises(TeardownRefused, match="whether it has ended is not known: its folder"):
        IDENTITY.delete(hand.op("Identity", "identity"), hand.identity.identity, hand.identity)


def test_a_person_who_gives_it_up_and_saw_its_end_gets_rid_of_it(
    hand: HandSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = hand.box()
    hand.take_away(box)
    with pytest.raises(No, match="was not begun"):
        say(hand, monkeypatch, box)
    box = approved(box, approval_for(box, abandon=(abandonment(box),)))
    with pytest.raises(NotYetGone, match="before it: sweepctl confirm gone --stack sweep-t box-0"):
        hand.delete(box)
    assert say(hand, monkeypatch, box) == YES
    hand.delete(box)
    (birth,) = hand.store.births()
    assert may_still_bill(birth) == ""
    IDENTITY.delete(hand.op("Identity", "identity"), hand.identity.identity, hand.identity)


def test_one_whose_state_is_lost_too_is_given_up_by_its_record(
    hand: HandSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no box of the state, so no delete ends it: what refuses names `approve` and `confirm gone` for this box."""
    box = hand.box()
    hand.take_away(box)
    way = f'sweepctl give-up --stack sweep-t data/{box.name} --reason "…" && sweepctl confirm gone --stack sweep-t'
    with pytest.raises(SweepstackError, match=re.escape(f"Next: {way}")):
        BOX.create(hand.op(), hand.box_inputs())
    with pytest.raises(TeardownRefused, match=re.escape(way)):
        IDENTITY.delete(hand.op("Identity", "identity"), hand.identity.identity, hand.identity)
    known = KnownStates(births={"sweep-t": hand.store.births()})
    assert findings_in(hand.adapter(), load_platform(hand.adapter()), known) == []
    assert way in known.problems[0]

    births, state = hand.store.births(), StackState("sweep-t")
    (orphan,) = search(state, hand.store, births, TARGET.file, hand.identity.evidence).orphans
    assert any(line.startswith(way) for line in _of_orphans("sweep-t", [orphan]))
    snapshot = Snapshot(state, datetime.now(UTC), (), {}, births=tuple(births), orphans=(orphan,))
    assert with_forgotten(snapshot, hand.store).box_snapshots == (), "for a person who gives it up by name alone"
    (found,) = with_forgotten(snapshot, hand.store, {box.name}).box_snapshots
    assert (found.box.native_id, found.seen.existence) == (box.native_id, Existence.UNKNOWN)
    approval = approval_for(box, abandon=(abandonment(box),))
    assert may_end(BoxEnding(found.box.context(), approval, found.seen), full=True).way == "abandoned"

    with pytest.raises(No, match="was not begun"):
        say(hand, monkeypatch, box, in_state=False)
    hand.store.write_clearance(box.native_id, approval)
    assert say(hand, monkeypatch, box, in_state=False) == YES
    (birth,) = hand.store.births()
    assert birth.ended_at is not None
    IDENTITY.delete(hand.op("Identity", "identity"), hand.identity.identity, hand.identity)


def test_a_destroy_that_finds_no_folder_claims_no_end(hand: HandSweep) -> None:
    box = hand.box()
    hand.take_away(box)
    load_platform(hand.adapter()).destroy(box.native_id, box.account)
    assert hand.phase(box) is Phase.UNKNOWN
