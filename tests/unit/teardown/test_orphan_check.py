"""The check without a state, alone: each fact that lets a box go, taken away."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sweepstack.core.journal import parse_journal
from sweepstack.core.observation import Existence, Observation
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.agent.channel import Listing
from sweepstack.teardown.box_context import BoxContext
from sweepstack.teardown.check import may_end
from sweepstack.teardown.orphan_check import EndRequest, OnIt, OrphanBox, OrphanEnding, OrphanVerdict, not_proved_here
from sweepstack.teardown.ownership import HELD, Owner
from tests.unit.teardown.support import FIRST, SECOND, Situation

NOW = datetime(2026, 12, 22, 9, 0, tzinfo=UTC)
ME, ALICE = "me@here", "alice@laptop"
IDLE = OnIt(Observation(Existence.EXISTS, parse_journal(b""), False, listing=Listing()), None, frozenset())
BOX = OrphanBox("local", "local-a", "here", "abc", "box-0", 1, ours=True)


def asked(box: OrphanBox = BOX, on_it: OnIt = IDLE, *stores: EvidenceStore, **word: str) -> OrphanVerdict:
    return may_end(OrphanEnding(box, on_it, stores, EndRequest(ME, **word)), now=NOW, full=True)


def seen(**changes: object) -> OnIt:
    return replace(IDLE, seen=replace(IDLE.seen, **changes))  # type: ignore[arg-type]


def owner(until: datetime) -> Owner:
    return Owner(person=ALICE, identity="abc", native_id="local-a", held_until=until)


def test_an_idle_box_of_ours_may_go() -> None:
    verdict = asked()
    assert (verdict.allowed, verdict.way) == (True, "nothing-launched")


@pytest.mark.parametrize(
    ("on_it", "why"),
    [
        (seen(existence=Existence.UNKNOWN, journal=None, note="no answer"), "what is on it is not known: no answer"),
        (seen(journal=None), "what is on it is not known"),
        (replace(IDLE, given=None), "what is on it is not known"),
        (replace(IDLE, given=frozenset({"a"})), "it holds 1 cell without a copy that is proved here: a pending"),
        (seen(runner_alive=True), "cells ran on it"),
        (seen(listing=None), "what else lies on it could not all be counted"),
        (seen(listing=Listing((("data/x", 200_000_000, 0.0),))), "belong to no sealed cell and would die"),
    ],
)
def test_whatever_is_not_known_to_be_nothing_keeps_it_until_it_is_given_up(on_it: OnIt, why: str) -> None:
    verdict = asked(BOX, on_it)
    assert not verdict.allowed
    assert why in "; ".join(verdict.reasons)
    given_up = asked(BOX, on_it, reason="x")
    assert (given_up.allowed, given_up.way) == (True, "abandoned")


def test_a_box_of_another_account_is_not_even_given_up() -> None:
    verdict = asked(BOX, seen(account_problem="of another account"), reason="x")
    assert (verdict.allowed, verdict.reasons) == (False, ["of another account"])


def test_what_is_on_it_is_said_in_one_line() -> None:
    assert IDLE.words == "no cell was ever given to it"
    assert seen(existence=Existence.GONE).words == "gone"
    assert seen(journal=None, note="no answer").words == "not known (no answer)"


def test_one_that_is_gone_is_gone() -> None:
    assert asked(replace(BOX, ours=False), seen(existence=Existence.GONE)).way == "gone"


def test_its_owner_s_word_counts_while_it_is_held_and_no_longer() -> None:
    theirs = replace(BOX, ours=False)
    held, over = (replace(IDLE, owner=owner(until)) for until in (NOW + timedelta(seconds=1), NOW))
    refused = asked(theirs, held, reason="x")
    assert refused.held.startswith(f"{ALICE} holds it until")
    assert not refused.allowed
    assert not asked(theirs, held, reason="x", agreed="bob@laptop").allowed
    assert asked(theirs, held, reason="x", agreed=ALICE).way == "abandoned"
    assert not asked(theirs, held, agreed=ALICE).allowed, "an agreement is no abandonment"
    assert not asked(theirs, over).allowed
    assert asked(theirs, over, reason="x").way == "abandoned"
    assert asked(BOX, held).way == "nothing-launched", "a person who has its evidence needs no agreement"


def test_what_another_backend_s_state_has_ends_there_whatever_is_said() -> None:
    gated = replace(BOX, gate="the state in s3://states answers and still holds s")
    held = replace(IDLE, owner=owner(NOW))
    assert asked(gated).reasons == [f"{gated.gate}: it ends through its gate there"]
    refused = asked(gated, held, reason="x", agreed=ALICE)
    assert (refused.allowed, refused.reasons) == (False, [f"{gated.gate}: it ends through its gate there; ask {ALICE}"])
    assert asked(gated, seen(existence=Existence.GONE)).way == "gone"


def test_what_the_box_did_last_holds_it() -> None:
    entry = {"time": (NOW - HELD + timedelta(seconds=1)).isoformat()}
    journal = replace(parse_journal(b""), entries=(entry,))
    on_it = replace(seen(journal=journal), owner=owner(NOW - HELD))
    assert asked(replace(BOX, ours=False), on_it, reason="x").held


# What ran on it, and is copied


def of(situation: Situation, **changes: object) -> tuple[OrphanBox, OnIt, EvidenceStore]:
    store = EvidenceStore.open(situation.facts.evidence)
    facts = situation.facts
    box = OrphanBox("local", facts.native_id, facts.account, facts.identity, facts.name, facts.generation, ours=True)
    journal = parse_journal(situation.lines)
    looked = Observation(Existence.EXISTS, journal, False, listing=Listing())
    on_it = OnIt(replace(looked, **changes), None, frozenset({FIRST, SECOND}))  # type: ignore[arg-type]
    return box, on_it, store


def test_what_a_receipt_that_holds_has_verified_may_go(situation: Situation) -> None:
    box, on_it, store = of(situation)
    verdict = asked(box, on_it, store)
    assert (verdict.allowed, verdict.way, verdict.unsafe) == (True, "cleared", {})
    other = asked(replace(box, ours=False), on_it, store)
    assert other.way == "cleared", "whose it is does not count where nothing can be lost"


@pytest.mark.parametrize("lacking", ["evidence", "sweep", "launch", "receipt", "cell", "native id", "copy", "runs"])
def test_each_missing_link_keeps_it(situation: Situation, lacking: str) -> None:
    box, on_it, store = of(situation)
    stores = [store]
    if lacking == "evidence":
        stores = []
    elif lacking == "sweep":
        box = replace(box, identity="another1")
    elif lacking == "launch":
        (situation.folder / "evidence/records/launches/box-0-g1.json").unlink()
    elif lacking == "receipt":
        (situation.folder / "evidence/receipts/latest").unlink(missing_ok=True)
        for path in (situation.folder / "evidence").rglob("latest*"):
            path.unlink()
    elif lacking == "cell":
        on_it = replace(on_it, given=frozenset({FIRST, SECOND, "lr7"}))
    elif lacking == "native id":
        box = replace(box, native_id="local-twin")
    elif lacking == "copy":
        (situation.folder / "evidence/cells" / FIRST / "metrics.json").write_bytes(b"{}")
    else:
        situation.start(FIRST)
        on_it = replace(on_it, seen=replace(on_it.seen, journal=parse_journal(situation.lines)))
    verdict = asked(box, on_it, *stores)
    assert not verdict.allowed
    assert FIRST in verdict.unsafe
    assert (lacking == "launch") == ("names it, and not its launch record" in "; ".join(verdict.reasons))
    assert asked(box, on_it, *stores, reason="x").way == "abandoned"


def test_a_box_whose_journal_was_wiped_is_not_taken_for_an_idle_one(situation: Situation) -> None:
    """The evidence knows better. A second box under the same tag is not mistaken for it."""
    box, on_it, store = of(situation, journal=parse_journal(b""))
    wiped = replace(on_it, given=frozenset())
    situation.forget_launch()
    verdict = asked(box, wiped, store)
    assert not verdict.allowed
    assert "the evidence holds a copy of its journal" in "; ".join(verdict.reasons)
    assert asked(replace(box, native_id="local-twin"), wiped, store).way == "nothing-launched"


def test_a_birth_record_that_can_t_be_read_is_no_proof_that_nothing_was_launched(situation: Situation) -> None:
    situation.nothing_ever_ran()
    for path in (situation.evidence / "records").glob("latest*"):
        path.unlink()
    box, on_it, store = of(situation)
    empty = replace(on_it, given=frozenset())
    assert asked(box, empty, store).way == "nothing-launched"
    (situation.evidence / "records/births/box-0-g1.json").write_bytes(b"{")
    verdict = asked(box, empty, store)
    assert not verdict.allowed
    assert "box-0-g1.json is damaged" in "; ".join(verdict.reasons)


def test_the_policy_that_its_birth_record_names_binds_it_and_that_of_another_box_does_not(
    situation: Situation,
) -> None:
    box, on_it, store = of(situation)
    for name, closed in (("box-1", False), ("box-0", True)):
        birth = store.birth(name, 1)
        assert birth is not None
        store.write_birth(birth.model_copy(update={"policy": "sha256:" + "7" * 64}))
        for word in ("", "x"):
            verdict = asked(box, on_it, store, reason=word)
            assert verdict.allowed is not closed
            assert ("names the policy" in "; ".join(verdict.reasons)) is closed


# One that a person calls gone


def not_proved(situation: Situation) -> str:
    return "; ".join(not_proved_here(BoxContext(situation.facts, "local")))


def test_one_that_is_called_gone_is_let_go_where_every_cell_is_verified(situation: Situation) -> None:
    assert not_proved(situation) == ""
    situation.copied().write_bytes(b"{}")
    assert f"{FIRST}: metrics.json" in not_proved(situation)


def test_one_that_is_called_gone_is_kept_by_what_says_that_cells_ran_or_can_t_be_read(situation: Situation) -> None:
    situation.forget_launch()
    assert "the evidence holds a copy of its journal" in not_proved(situation)
    situation.nothing_ever_ran()
    assert not_proved(situation) == ""
    (situation.evidence / "records/launches").mkdir(exist_ok=True)
    (situation.evidence / "records/launches/box-0-g1.json").write_bytes(b"{")
    assert "box-0-g1.json is damaged" in not_proved(situation)
