"""Gone, nothing launched, abandoned, a teardown that began: each opens when it should, and for nothing beside it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta

import pytest

from sweepstack.core.observation import Existence
from sweepstack.core.records import Launch
from sweepstack.teardown.close_box import close_books
from sweepstack.teardown.refusal import refusal_text
from tests.unit.evidence.world import CODE, IDENTITY
from tests.unit.teardown.deviations import DEVIATIONS
from tests.unit.teardown.support import (
    FIRST,
    NOW,
    NOWHERE,
    SECOND,
    Situation,
    abandonment,
    action,
    waiver,
)

ACCOUNT = "this belongs to there/1, and the account at hand is here/1"


# Gone


@pytest.fixture
def gone(situation: Situation) -> Situation:
    """The platform proves that the box is no more; nobody approved anything."""
    situation.existence, situation.readable, situation.approval = Existence.GONE, False, None
    return situation


def test_gone_needs_no_approval(gone: Situation) -> None:
    verdict = gone.ask()
    assert (verdict.allowed, verdict.way) == (True, "gone")
    assert verdict.headline == "cleared: gone from the platform"


@pytest.mark.parametrize(
    "name", ["evidence_gone", "evidence_on_another_host", "launch_record_damaged", "marker_damaged"]
)
def test_gone_needs_no_evidence(gone: Situation, name: str) -> None:
    """What is no more can't be kept: refusing would only leave the state stuck."""
    DEVIATIONS[name][0](gone)
    assert gone.ask().way == "gone"


def test_gone_for_another_account_proves_nothing(gone: Situation) -> None:
    """The account at hand does not see it; that is all that it says."""
    gone.account_problem = ACCOUNT
    verdict = gone.ask()
    assert not verdict.allowed
    assert verdict.reasons[0] == ACCOUNT


@pytest.mark.parametrize("existence", [Existence.UNKNOWN, Existence.EXISTS])
def test_only_gone_is_gone(gone: Situation, existence: Existence) -> None:
    gone.existence = existence
    verdict = gone.ask()
    assert not verdict.allowed
    unseen = ["what is on it now is not known: it does not answer"] if existence is Existence.UNKNOWN else []
    assert verdict.reasons == ["not approved", *unseen]


def test_gone_counts_what_has_no_verified_copy_as_lost(gone: Situation) -> None:
    assert [cell.state for cell in gone.ask().cells] == ["verified", "verified"]
    (gone.evidence / "records" / "latest-receipt").unlink()
    assert [(cell.name, cell.state) for cell in gone.ask().unsettled] == [(FIRST, "lost"), (SECOND, "lost")]


# Nothing launched


@pytest.fixture
def empty(situation: Situation) -> Situation:
    """The box was rented and its queue never came to be; approved without a receipt."""
    situation.nothing_ever_ran()
    return situation


def test_nothing_launched_needs_an_approval_and_no_receipt(empty: Situation) -> None:
    for full in (True, False):
        verdict = empty.ask(full=full)
        assert (verdict.allowed, verdict.way) == (True, "nothing-launched")
        assert verdict.headline == "cleared: nothing was ever launched on it"
        assert verdict.cells == []


def no_birth(s: Situation, _: Launch) -> None:
    s.forget_birth()


def birth_of_another_id(s: Situation, _: Launch) -> None:
    s.store.write_birth(s.birth().model_copy(update={"native_id": "local-other7"}))


def birth_without_id(s: Situation, _: Launch) -> None:
    s.store.write_birth(s.birth().model_copy(update={"native_id": None}))


def birth_damaged(s: Situation, _: Launch) -> None:
    (s.evidence / "records" / "births" / "box-0-g1.json").write_bytes(b'{"box":"box-0"}')


def journal_begun(s: Situation, _: Launch) -> None:
    s.log("runner-started", pid=7)


def journal_unreadable(s: Situation, _: Launch) -> None:
    s.readable = False


def launched(s: Situation, before: Launch) -> None:
    s.store.write_launch(before)


def launched_with_no_cells(s: Situation, before: Launch) -> None:
    s.store.write_launch(before.model_copy(update={"cells": {}}))


def launch_damaged(s: Situation, _: Launch) -> None:
    DEVIATIONS["launch_record_damaged"][0](s)


def journal_copied(s: Situation, _: Launch) -> None:
    live = s.folder / "boxes" / s.facts.native_id / "data" / "sweep" / "journal.jsonl"
    s.store.write_journal("box-0", 1, live.read_bytes())


def journal_copy_damaged(s: Situation, _: Launch) -> None:
    (s.evidence / "journals" / "box-0-g1.jsonl").write_bytes(b"?\n")


def launched_under_another_name(s: Situation, before: Launch) -> None:
    s.store.write_launch(before.model_copy(update={"generation": 7}))


def receipt_with_its_journal(s: Situation, _: Launch) -> None:
    (box,) = [box for box in s.latest.boxes if box.box == "box-0"]
    s.store.write_receipt(s.latest.model_copy(update={"boxes": (box.model_copy(update={"journal_head": "7" * 64}),)}))


def receipt_with_its_cells(s: Situation, _: Launch) -> None:
    (box,) = [box for box in s.latest.boxes if box.box == "box-0"]
    s.store.write_receipt(s.latest.model_copy(update={"boxes": (box.model_copy(update={"cells": (FIRST,)}),)}))


def receipt_damaged(s: Situation, _: Launch) -> None:
    (receipt,) = (s.evidence / "receipts").iterdir()
    receipt.write_bytes(receipt.read_bytes()[:-1])


def cell_pulled(s: Situation, _: Launch) -> None:
    shutil.copytree(s.folder / "boxes/local-box-01/mnt/durable" / IDENTITY / "cells" / FIRST, s.copied().parent)


NOT_EMPTY: dict[str, tuple[Callable[[Situation, Launch], None], str]] = {
    "no birth record": (no_birth, "no readable birth record"),
    "birth of another id": (birth_of_another_id, "no readable birth record"),
    "birth without id": (birth_without_id, "no readable birth record"),
    "birth damaged": (birth_damaged, "box-0-g1.json is damaged"),
    "journal begun": (journal_begun, "no launch record, but the box has a journal"),
    "journal unreadable": (journal_unreadable, "can't be shown that nothing was launched: it does not answer"),
    "launched": (launched, "names no receipt, and cells were launched"),
    "launched with no cells": (launched_with_no_cells, "names no receipt"),
    "launch record damaged": (launch_damaged, "box-0-g1.json is damaged"),
    "journal copied": (journal_copied, "no launch record, but the evidence holds a copy of its journal with"),
    "journal copy damaged": (journal_copy_damaged, "the evidence holds a copy of its journal that can't be read"),
    "launched under another name": (launched_under_another_name, "a launch record of box-0 (generation 7) names"),
    "receipt with its journal": (receipt_with_its_journal, "says that cells ran on local-box-01"),
    "receipt with its cells": (receipt_with_its_cells, "says that cells ran on local-box-01"),
    "receipt damaged": (receipt_damaged, "the evidence can't all be read"),
    "cell pulled": (cell_pulled, f"the pulled copy of {FIRST} was sealed on local-box-01"),
}


@pytest.mark.parametrize("name", NOT_EMPTY)
def test_anything_that_speaks_of_a_launch_closes_it(situation: Situation, name: str) -> None:
    before = situation.launch()
    situation.nothing_ever_ran()
    assert situation.ask().allowed
    change, reason = NOT_EMPTY[name]
    change(situation, before)
    verdict = situation.ask()
    assert not verdict.allowed
    assert reason in "; ".join(verdict.reasons)


def test_what_the_latest_receipt_says_ran_is_not_to_be_approved_as_empty(situation: Situation) -> None:
    """Launch record and journal are lost: the refusal must not name the approval that would be refused again."""
    before = situation.launch()
    situation.nothing_ever_ran()
    NOT_EMPTY["receipt with its cells"][0](situation, before)
    for approval in (None, situation.approval):
        situation.approval = approval
        text = refusal_text(situation.facts, situation.ask(), stack="t")
        assert "--box" not in text
        assert "data/box-0" in text


@pytest.mark.parametrize(
    "name",
    [
        *("the_account_is_another", "the_box_may_exist_or_not", "marker_of_another_sweep", "marker_gone"),
        *("evidence_gone", "evidence_on_another_host", "another_native_id_in_the_state", "another_verb_in_the_state"),
        *("the_name_of_the_other_box_in_the_state", "another_generation_in_the_state", "approval_of_another_verb"),
        *("approval_of_another_native_id", "approval_of_nothing", "a_waiver_written_in", "expired", "not_approved"),
        *("another_identity_in_the_state", "an_abandonment_written_in"),
    ],
)
def test_nothing_launched_needs_all_the_rest_too(empty: Situation, name: str) -> None:
    DEVIATIONS[name][0](empty)
    assert not empty.ask().allowed


def test_an_approval_with_a_receipt_serves_an_empty_box_too(situation: Situation) -> None:
    """One approval for two boxes, of which one never ran anything."""
    given = situation.approval
    situation.nothing_ever_ran()
    situation.approval = given
    assert situation.ask().way == "nothing-launched"


def test_an_empty_journal_on_a_box_that_was_given_cells_is_no_proof(situation: Situation) -> None:
    """The data tier was wiped: the launch record remembers."""
    situation.lines = b""
    situation.approve(receipt=None)
    assert not situation.ask().allowed


# Abandoned


@pytest.fixture
def abandoned(situation: Situation) -> Situation:
    """A person said that what is on box-0 may be lost."""
    situation.approve(receipt=None, actions=(action(),), abandon=(abandonment(),))
    return situation


@pytest.mark.parametrize(
    "name",
    [
        *("a_cell_was_tried_again", "the_journal_is_unreadable", "the_journal_is_empty", "the_box_may_exist_or_not"),
        *("the_queue_was_given_another_cell", "launch_record_damaged", "launch_record_lost", "copied_folder_gone"),
        *("another_roster_in_the_state", "marker_damaged", "evidence_gone", "evidence_on_another_host"),
    ],
)
def test_abandoning_needs_nothing_but_the_word(abandoned: Situation, name: str) -> None:
    """It is the way out of all that can't be mended: the journal, the evidence, a box that does not answer."""
    DEVIATIONS[name][0](abandoned)
    verdict = abandoned.ask()
    assert (verdict.allowed, verdict.way) == (True, "abandoned")
    assert verdict.headline == "cleared: abandoned, what is on it may be lost"


@pytest.mark.parametrize(
    "name",
    [
        *("the_account_is_another", "another_native_id_in_the_state", "the_name_of_the_other_box_in_the_state"),
        *("another_verb_in_the_state", "approval_of_another_verb", "approval_of_another_native_id"),
        *("approval_of_this_native_id_under_another_name", "approval_of_nothing", "a_waiver_written_in", "expired"),
        *("expires_this_moment", "not_approved", "abandonment_of_another_native_id", "abandonment_of_another_box"),
        *("abandonment_edited", "revoked", "revoked_where_the_clock_is_behind", "the_revocation_damaged"),
    ],
)
def test_the_word_must_be_for_this_box_and_now(abandoned: Situation, name: str) -> None:
    if name == "abandonment_edited":
        abandoned.edit_approval(abandon=(abandonment(native_id="local-other8"), abandonment()))
    else:
        DEVIATIONS[name][0](abandoned)
    assert not abandoned.ask().allowed


def test_abandoning_one_box_abandons_no_other(abandoned: Situation) -> None:
    abandoned.approve(actions=(action(), action("box-1", "local-box-11")))
    abandoned.state(name="box-1", native_id="local-box-11")
    verdict = abandoned.ask()
    assert not verdict.allowed
    assert verdict.reasons[0] == "the approval names no receipt, and cells were launched on this box"


def test_an_action_alone_abandons_nothing(situation: Situation) -> None:
    """To name a box without a receipt is not to give up what is on it."""
    situation.approve(receipt=None)
    assert not situation.ask().allowed


# A teardown that began


@pytest.fixture
def begun(situation: Situation) -> Situation:
    """Box-0's teardown began while the approval held; its runner's end is in the journal; the approval has expired."""
    situation.begin_teardown("local-box-01", "local-box-11")
    situation.log("runner-stopped", signal="SIGTERM")
    situation.edit_approval(expires=NOW - timedelta(minutes=30))
    return situation


def test_a_teardown_that_began_may_finish(begun: Situation) -> None:
    verdict = begun.ask()
    assert (verdict.allowed, verdict.way) == (True, "cleared")


def test_without_it_neither_expiry_nor_journal_are_forgiven(begun: Situation) -> None:
    begun.store.write_teardown(None)
    assert "expired" in begun.ask().reasons[0]
    begun.edit_approval(expires=NOW + timedelta(hours=1))
    assert "journal went on" in begun.ask().reasons[0]


def test_it_is_for_the_boxes_that_it_names(begun: Situation) -> None:
    begun.begin_teardown("local-box-11")
    assert not begun.ask().allowed


def test_it_revives_no_approval_that_had_expired_before(begun: Situation) -> None:
    """Two abandonments have no receipt: the teardown of one box must not carry an old word about another."""
    begun.edit_approval(expires=NOW - timedelta(hours=2))
    assert "expired" in begun.ask().reasons[0]


def test_it_is_for_its_own_receipt(begun: Situation) -> None:
    """An old teardown does not carry a later, expired approval."""
    begun.begin_teardown("local-box-01", receipt=NOWHERE)
    assert not begun.ask().allowed


def test_it_does_not_carry_another_receipt(begun: Situation) -> None:
    """The person approved again, something else, and let it expire."""
    begun.other_cell("lr0.9-seed0", state="missing")
    assert not begun.ask().allowed


def test_it_is_over_with_the_last_of_its_boxes_and_with_no_other(begun: Situation) -> None:
    for native_id, left in (("local-other9", 2), ("local-box-01", 1), ("local-box-11", 0)):
        close_books(begun.store, box="box-9", generation=1, native_id=native_id, how="seen", at=NOW)
        teardown = begun.store.teardown()
        assert (len(set(teardown.native_ids) - set(teardown.ended)) if teardown is not None else 0) == left


def test_a_damaged_teardown_record_carries_nothing(begun: Situation) -> None:
    (begun.evidence / "records" / "teardown.json").write_bytes(b"{}")
    assert not begun.ask().allowed


STILL_CLOSED = [
    *("receipt_edited_on_disk", "receipt_removed", "copied_file_gone", "copied_file_changed", "copied_folder_gone"),
    *("the_queue_was_given_another_cell", "the_queue_was_given_another_config", "the_journal_is_unreadable"),
    *("the_account_is_another", "another_roster_in_the_state", "another_native_id_in_the_state", "not_approved"),
    *("another_verb_in_the_state", "approval_of_another_native_id", "approval_of_another_verb", "a_waiver_written_in"),
    *("evidence_gone", "marker_of_another_sweep", "launch_record_lost", "launch_record_damaged"),
    *("the_box_may_exist_or_not", "another_identity_in_the_state", "a_file_beside"),
    *("revoked", "revoked_where_the_clock_is_behind", "the_revocation_damaged"),
]


@pytest.mark.parametrize("name", STILL_CLOSED)
def test_it_forgives_nothing_else(begun: Situation, name: str) -> None:
    DEVIATIONS[name][0](begun)
    assert not begun.ask().allowed


def ran_again(s: Situation) -> None:
    s.start(FIRST)
    s.runner_alive = True


def ran_again_and_was_sealed(s: Situation) -> None:
    s.start(FIRST)
    digest = s.launch().cells[FIRST]
    s.log("cell-sealed", cell=FIRST, attempt=2, config_digest=digest, manifest=NOWHERE, bytes=3)
    s.log("runner-stopped", signal="SIGTERM")


def ran_again_and_failed(s: Situation) -> None:
    s.start(FIRST)
    s.log("cell-failed", cell=FIRST, attempt=2, exit_code=1, reason="exit code 1", final=True)


def runner_began_again(s: Situation) -> None:
    s.log("runner-started", pid=7)


def journal_cut(s: Situation) -> None:
    DEVIATIONS["the_journal_was_cut"][0](s)
    DEVIATIONS["the_journal_was_cut"][0](s)


def journal_written_anew(s: Situation) -> None:
    s.lines = b""
    s.log("runner-stopped", signal="SIGTERM")


@pytest.mark.parametrize(
    "change",
    [ran_again, ran_again_and_was_sealed, ran_again_and_failed, runner_began_again, journal_cut, journal_written_anew],
)
def test_only_the_end_of_the_runner_may_follow_the_receipt(
    begun: Situation, change: Callable[[Situation], None]
) -> None:
    """A cell that ran again between two destroys must not die unseen."""
    change(begun)
    assert "journal went on" in begun.ask().reasons[0]


@pytest.mark.parametrize("event", ["cell-started", "cell-dropped", "runner-started"])
def test_of_a_worker_too_only_its_end_may_follow_the_receipt(situation: Situation, event: str) -> None:
    """Each line of a box with several workers names one: on Slurm, a cell that ran again would die unseen."""
    situation.log("runner-stopped", worker="6_0", signal="SIGTERM")
    situation.log("worker-ended", worker="6_0")
    assert situation.ask().allowed
    details = {"config_digest": situation.launch().cells[FIRST], "code": CODE, "argv": ["x"], "slot": 0}
    situation.log(event, worker="6_0", cell=FIRST, attempt=2, reason="x", **details)
    assert "journal went on" in situation.ask().reasons[0]


def test_the_end_of_the_lease_may_follow_the_receipt_and_no_other_line_that_names_it(situation: Situation) -> None:
    situation.log("lease-over")
    situation.log("runner-stopped", why="lease")
    assert situation.ask().allowed
    situation.log("runner-started", pid=7, why="lease")
    assert "journal went on" in situation.ask().reasons[0]


def test_the_runner_may_be_stopped_twice(begun: Situation) -> None:
    begun.log("runner-stopped", signal="SIGTERM")
    assert begun.ask().allowed


def test_a_teardown_of_abandoned_boxes_may_finish_too(abandoned: Situation) -> None:
    abandoned.begin_teardown()
    abandoned.edit_approval(expires=NOW - timedelta(hours=1))
    assert abandoned.ask().way == "abandoned"
    abandoned.begin_teardown("local-box-11")
    assert not abandoned.ask().allowed


def test_a_teardown_of_an_empty_box_may_finish_too(empty: Situation) -> None:
    empty.begin_teardown()
    empty.edit_approval(expires=NOW - timedelta(hours=1))
    assert empty.ask().way == "nothing-launched"
    empty.log("runner-started", pid=7)
    assert not empty.ask().allowed


# What the cells of a box are called


def lines_of(situation: Situation) -> dict[str, tuple[str, str]]:
    return {cell.name: (cell.state, cell.reason) for cell in situation.ask().cells}


def test_a_cell_that_was_sealed_again_is_not_verified(situation: Situation) -> None:
    """The receipt's copy is of the seal before."""
    situation.start(FIRST)
    assert lines_of(situation)[FIRST] == ("failed", "its runner is not alive; `pulumi up` resumes it")
    situation.runner_alive = True
    assert lines_of(situation)[FIRST] == ("running", "")
    situation.stopped = True
    assert lines_of(situation)[FIRST] == ("pending", "waits with its box, which is stopped")
    situation.stopped = False
    digest = situation.launch().cells[FIRST]
    situation.log("cell-sealed", cell=FIRST, attempt=2, config_digest=digest, manifest=NOWHERE, bytes=3)
    assert lines_of(situation)[FIRST] == ("sealed", "not verified yet")
    assert lines_of(situation)[SECOND][0] == "verified"


def test_cells_without_a_receipt_are_called_by_the_journal(situation: Situation) -> None:
    (situation.evidence / "records" / "latest-receipt").unlink()
    situation.relaunch(**{"lr0.5-seed0": NOWHERE, "lr0.7-seed0": NOWHERE})
    situation.start("lr0.5-seed0", attempt=1)
    situation.log("cell-failed", cell="lr0.5-seed0", attempt=1, exit_code=1, reason="exit code 1", final=True)
    situation.log("cell-dropped", cell=SECOND, reason="too slow")
    assert lines_of(situation) == {
        FIRST: ("sealed", "not verified yet"),
        SECOND: ("waived", "dropped: too slow"),
        "lr0.5-seed0": ("failed", "exit code 1"),
        "lr0.7-seed0": ("pending", ""),
    }


def test_cells_of_a_box_that_does_not_answer_are_not_called_safe(situation: Situation) -> None:
    (situation.evidence / "records" / "latest-receipt").unlink()
    situation.readable = False
    as_copied = {("sealed", "as of the last copy of the journal")}
    assert set(lines_of(situation).values()) == as_copied, "as `status` says"
    shutil.rmtree(situation.evidence / "journals")
    assert set(lines_of(situation).values()) == {("pending", "the journal could not be read")}


def test_a_damaged_copy_is_named_with_its_reasons(situation: Situation) -> None:
    situation.other_cell(FIRST, state="damaged", reasons=("metrics.json is empty", "log.txt is not there"))
    assert lines_of(situation)[FIRST] == ("damaged", "metrics.json is empty; log.txt is not there")


def test_a_refusal_counts_this_boxs_cells_only(situation: Situation) -> None:
    situation.approval = None
    assert sorted(lines_of(situation)) == [FIRST, SECOND]


def test_the_record_of_a_launch_says_what_counts_not_its_folder(situation: Situation) -> None:
    """A record put under another generation's name does not answer for it."""
    launches = situation.evidence / "records" / "launches"
    shutil.copy(launches / "box-0-g1.json", launches / "box-0-g2.json")
    situation.state(generation=2)
    assert not situation.ask().allowed


def test_waivers_in_another_order_are_the_same_waivers(situation: Situation) -> None:
    situation.other_cell(FIRST, state="missing")
    situation.approve(waive=(waiver(FIRST), waiver("lr0.9-seed0")))
    situation.edit_approval(waive=(waiver("lr0.9-seed0"), waiver(FIRST)))
    assert situation.ask().allowed


def test_a_copy_that_was_hurt_after_the_receipt_is_not_shown_as_verified(situation: Situation) -> None:
    situation.copied().unlink()
    assert lines_of(situation)[FIRST] == ("damaged", "metrics.json is not there any more")
    assert lines_of(situation)[SECOND][0] == "verified"
