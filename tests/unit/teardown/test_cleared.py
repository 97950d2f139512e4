"""The way that counts most: cleared by a receipt. It opens for exactly one situation, and closes with any change."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweepstack.core.observation import Existence
from sweepstack.core.verify_rules import artifacts_digest
from sweepstack.teardown.refusal import next_commands
from sweepstack.teardown.revocation import given_at, write_revocation
from tests.unit.teardown.deviations import DEVIATIONS, box_in_receipt
from tests.unit.teardown.support import (
    ARTIFACT,
    FIRST,
    NOW,
    NOWHERE,
    SECOND,
    Situation,
    abandonment,
    action,
    keep_size_and_time,
    receipt_cell,
    waiver,
)


@pytest.mark.parametrize("full", [True, False])
def test_everything_right_opens_it(situation: Situation, full: bool) -> None:
    verdict = situation.ask(full=full)
    assert (verdict.allowed, verdict.way) == (True, "cleared")
    assert (verdict.reasons, verdict.unsettled, verdict.evidence) == ([], [], True)
    assert (verdict.verified, verdict.total) == (3, 3)
    assert situation.approval is not None
    assert verdict.headline == f"cleared by receipt {situation.approval.receipt}, 3/3 verified"


@pytest.mark.parametrize("name", DEVIATIONS)
def test_any_one_thing_wrong_closes_it(situation: Situation, name: str) -> None:
    deviate, reason = DEVIATIONS[name]
    deviate(situation)
    verdict = situation.ask()
    assert not verdict.allowed
    assert verdict.way is None
    assert reason in "; ".join(verdict.reasons)
    assert verdict.headline == f"locked ({verdict.reasons[0]})"


UNSEEN_BY_A_LOOK = {"copied_file_changed"}
"""Same size, same time: only reading the file tells. Clearing and deleting do."""


@pytest.mark.parametrize("name", sorted(DEVIATIONS.keys() - UNSEEN_BY_A_LOOK))
def test_a_preview_sees_it_too(situation: Situation, name: str) -> None:
    DEVIATIONS[name][0](situation)
    assert not situation.ask(full=False).allowed


def test_a_touched_file_is_read_again_even_by_a_preview(situation: Situation) -> None:
    """Another time alone is no harm, but nobody trusts it: the bytes decide."""
    path = situation.copied()
    path.touch()
    assert situation.ask(full=False).allowed
    path.write_bytes(path.read_bytes()[::-1])
    assert "metrics.json changed after the receipt" in situation.ask(full=False).reasons[0]


def test_only_reading_sees_bytes_that_changed_under_the_same_size_and_time(situation: Situation) -> None:
    path = situation.copied()
    keep_size_and_time(path, path.read_bytes()[::-1])
    assert situation.ask(full=False).allowed
    assert not situation.ask(full=True).allowed


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(chosen=st.sets(st.sampled_from(list(DEVIATIONS)), min_size=1, max_size=6), full=st.booleans())
def test_no_set_of_things_wrong_opens_it(template: Path, chosen: set[str], full: bool) -> None:
    """Two mistakes never make a right: whatever is wrong, and in whatever company, the box stays."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(template, Path(folder, "sweep"), symlinks=True)
        situation = Situation.of(Path(folder, "sweep"))
        for name, (deviate, _) in DEVIATIONS.items():
            if name in chosen:
                # What an earlier one has removed can't be hurt again.
                with contextlib.suppress(OSError):
                    deviate(situation)
        verdict = situation.ask(full=full or bool(chosen & UNSEEN_BY_A_LOOK))
        assert not verdict.allowed, verdict


# What does not close it


def test_a_state_of_before_it_knew_the_artifacts_is_as_it_was(situation: Situation) -> None:
    assert situation.facts.artifacts_digest is None
    assert situation.ask().allowed
    situation.state(artifacts_digest=artifacts_digest([ARTIFACT]))
    assert situation.ask().allowed


def test_the_approval_holds_until_the_second_it_expires(situation: Situation) -> None:
    assert situation.approval is not None
    situation.edit_approval(expires=NOW.replace(microsecond=1))
    assert situation.ask().allowed


def test_the_clock_is_today_s_unless_told_otherwise(situation: Situation) -> None:
    situation.now = None
    situation.edit_approval(expires=datetime.now(UTC) + timedelta(minutes=1))
    assert situation.ask().allowed
    situation.edit_approval(expires=datetime.now(UTC) - timedelta(seconds=1))
    assert "expired" in situation.ask().reasons[0]


def test_the_same_approval_dated_anew_holds(situation: Situation) -> None:
    """Nothing but the dates changed: a person may extend what they said."""
    situation.edit_approval(at=NOW, expires=NOW.replace(year=2027), by="grace")
    assert situation.ask().allowed


def test_the_pointer_to_the_latest_receipt_opens_and_closes_nothing(situation: Situation) -> None:
    pointer = situation.evidence / "records" / "latest-receipt"
    good = pointer.read_bytes()
    pointer.write_bytes(b"nonsense")
    assert situation.ask().allowed
    pointer.write_bytes(good)
    situation.other_cell(FIRST, state="missing")
    pointer.write_bytes(good)
    assert not situation.ask().allowed


def test_what_happens_to_the_other_box_s_cells_is_its_own_affair(situation: Situation) -> None:
    """Box-0 may go while box-1 trains, when the person approved a receipt that says so."""
    situation.other_cell("lr0.9-seed0", state="running")
    shutil.rmtree(situation.copied("lr0.9-seed0").parent)
    verdict = situation.ask()
    assert verdict.allowed
    situation.approve(actions=(action(),))
    assert situation.ask().allowed


def test_a_runner_that_lives_and_has_nothing_to_do_is_no_obstacle(situation: Situation) -> None:
    situation.runner_alive = True
    assert situation.ask().allowed


def test_a_cell_that_died_with_its_runner_counts_by_its_copy(situation: Situation) -> None:
    """Not alive: nothing is running, and the receipt was made knowing that."""
    situation.start(SECOND)
    boxes = tuple(
        box.model_copy(update={"journal_head": situation.journal.head}) if box.box == "box-0" else box
        for box in situation.receipt.boxes
    )
    situation.other_receipt(boxes=boxes)
    assert situation.ask().reasons[0].startswith(f"the log of {SECOND} (attempt 2), not sealed, is in no copy")
    situation.copied_unsealed(SECOND, 2)
    assert situation.ask().allowed
    situation.other_cell(SECOND, state="failed")
    assert not situation.ask().allowed


# Attempts that ended without a seal


def failed_and_waived(situation: Situation) -> None:
    """The second cell ran again, failed, and a person waived it."""
    situation.start(SECOND)
    situation.log("cell-failed", cell=SECOND, attempt=2, exit_code=1, reason="exit code 1", final=True)
    boxes = tuple(
        box.model_copy(update={"journal_head": situation.journal.head}) if box.box == "box-0" else box
        for box in situation.receipt.boxes
    )
    situation.other_receipt(boxes=boxes)
    situation.approve(waive=(waiver(SECOND),))


def test_logs_that_are_in_no_copy_keep_a_box_that_can_be_read(situation: Situation) -> None:
    failed_and_waived(situation)
    verdict = situation.ask()
    assert verdict.reasons == [f"the log of {SECOND} (attempt 2), not sealed, is in no copy: `sweepctl pull` copies it"]
    assert ("next", "sweepctl finish --stack s    (pull, verify, approve, up, destroy)") in next_commands(
        situation.facts, verdict, stack="s"
    )
    situation.copied_unsealed(SECOND, 2)
    assert situation.ask().allowed


def test_logs_on_a_tier_that_the_verb_keeps_are_no_obstacle(situation: Situation) -> None:
    failed_and_waived(situation)
    situation.state(kills=("scratch",))
    assert situation.ask().allowed


def test_a_box_that_is_given_up_may_end_with_its_logs(situation: Situation) -> None:
    failed_and_waived(situation)
    situation.approve(abandon=(abandonment(),))
    assert situation.ask().way == "abandoned"
    situation.readable = False
    assert situation.ask().way == "abandoned"


# What was revoked


def test_an_approval_that_is_given_after_a_revocation_counts(situation: Situation) -> None:
    write_revocation(situation.store, [], at=NOW - timedelta(hours=1), by="grace")
    assert not situation.ask().allowed
    situation.edit_approval(at=given_at(situation.store, NOW - timedelta(hours=5)))
    assert situation.ask().way == "cleared", "also where the clock of the person who gave it is behind"


def test_what_was_revoked_once_stays_so(situation: Situation) -> None:
    """Another revocation, by a clock that is behind, takes back more and gives nothing back."""
    first = situation.approval
    assert first is not None
    write_revocation(situation.store, [first], at=NOW - timedelta(hours=3), by="ada")
    write_revocation(situation.store, [], at=NOW - timedelta(hours=9), by="grace")
    assert not situation.ask().allowed
    situation.edit_approval(at=NOW - timedelta(hours=4))
    assert not situation.ask().allowed


def test_a_damaged_revocation_is_written_anew(situation: Situation) -> None:
    DEVIATIONS["the_revocation_damaged"][0](situation)
    write_revocation(situation.store, [], at=NOW, by="grace")
    assert "was revoked at 2026-11-22 09:00 UTC by grace" in situation.ask().reasons[0]
    situation.edit_approval(at=given_at(situation.store, NOW))
    assert situation.ask().allowed


# Waivers


@pytest.mark.parametrize("state", ["missing", "damaged", "unsupported", "failed", "pending", "lost"])
def test_a_named_waiver_lets_one_cell_go(situation: Situation, state: str) -> None:
    situation.other_cell(FIRST, state=state)
    situation.approve(waive=(waiver(SECOND),))
    assert not situation.ask().allowed
    situation.approve(waive=(waiver(FIRST),))
    verdict = situation.ask()
    assert verdict.allowed
    assert [(cell.name, cell.state, cell.reason) for cell in verdict.cells] == [
        (FIRST, "waived", "it diverges"),
        (SECOND, "verified", ""),
    ]


def test_a_waiver_does_not_cover_a_neighbour_whose_name_begins_alike(situation: Situation) -> None:
    situation.other_cell(FIRST, state="missing")
    situation.approve(waive=(waiver(FIRST[:-1]), waiver(FIRST + "0"), waiver(FIRST.upper())))
    assert not situation.ask().allowed


def test_a_waived_cell_that_runs_keeps_the_box(situation: Situation) -> None:
    """To waive its result is one thing, to end it in the middle of its work another: that is to abandon the box."""
    DEVIATIONS["a_cell_runs"][0](situation)
    situation.approve(waive=(waiver(SECOND),))
    assert "a cell is running on the box" in situation.ask().reasons


def test_a_dropped_cell_needs_no_copy(situation: Situation) -> None:
    """The stack config said that it need not exist, and the runner took it out."""
    situation.log("cell-dropped", cell=SECOND, reason="too slow")
    boxes = tuple(
        box.model_copy(update={"journal_head": situation.journal.head}) if box.box == "box-0" else box
        for box in situation.receipt.boxes
    )
    cells = tuple(cell for cell in situation.receipt.cells if cell.name != SECOND)
    situation.other_receipt(boxes=boxes, cells=cells)
    shutil.rmtree(situation.copied(SECOND).parent)
    verdict = situation.ask()
    assert verdict.allowed
    assert ("waived", "dropped: too slow") in [(cell.state, cell.reason) for cell in verdict.cells]


def test_a_waiver_in_a_receipt_is_nobody_s_word(situation: Situation) -> None:
    """A receipt says what was found. `waived` in one lets nothing go that no person waived."""
    situation.other_cell(FIRST, state="waived")
    assert receipt_cell(situation.receipt, FIRST).state == "waived"
    shutil.rmtree(situation.copied(FIRST).parent)
    assert not situation.ask().allowed


# Records that contradict each other


def test_a_cell_that_ran_here_and_is_in_no_launch_record(situation: Situation) -> None:
    """A launch record put back from before the cell was added: the journal knows better."""
    situation.other_cell(SECOND, state="missing")
    launch = situation.launch()
    situation.store.write_launch(launch.model_copy(update={"cells": {FIRST: launch.cells[FIRST]}}))
    assert not situation.ask().allowed


def test_a_cell_that_only_the_journal_knows_locks_the_box(situation: Situation) -> None:
    """Another backend over a copy of this evidence gave this box a cell: no record here has heard of it."""
    situation.start("seed5", config_digest=NOWHERE)
    situation.log("cell-sealed", cell="seed5", attempt=2, config_digest=NOWHERE, manifest=NOWHERE, bytes=7)
    boxes = box_in_receipt(situation, journal_head=situation.journal.head)
    situation.other_receipt(boxes=boxes)
    verdict = situation.ask()
    why = "seed5 ran on this box by its journal, and neither the receipt nor the launch record has it"
    assert verdict.reasons == [why]
    assert [line.name for line in verdict.unsettled] == ["seed5"]
    situation.approve(waive=(waiver("seed5"),))
    assert situation.ask().allowed, "a person may name it"


def test_a_cell_that_had_ended_and_was_dropped_is_in_no_receipt_and_locks_nothing(situation: Situation) -> None:
    """A runner writes no drop of a cell that is sealed: the launch record has it."""
    cells = tuple(cell for cell in situation.receipt.cells if cell.name != SECOND)
    situation.other_receipt(cells=cells)
    launch = situation.launch()
    left = {FIRST: launch.cells[FIRST]}
    situation.store.write_launch(launch.model_copy(update={"cells": left}))
    assert not situation.ask().allowed
    situation.store.write_launch(launch.model_copy(update={"cells": left, "dropped": {SECOND: "too slow"}}))
    assert situation.ask().allowed


def test_a_launch_record_of_another_native_id(situation: Situation) -> None:
    """It says nothing about this box: neither what ran on it, nor that nothing did."""
    launch = situation.launch()
    situation.store.write_launch(launch.model_copy(update={"native_id": "local-other6"}))
    assert not situation.ask().allowed


HARMLESS = (
    *("records/latest-receipt", "records/files-", "records/births/", "records/launches/box-1", "records/lease.json"),
    *("journals/", "cells/lr0.9-seed0/"),
)
"""What a cleared box does not stand on: pointers, an index that spares reading, copies, and what is another box's."""


def test_it_never_raises_for_what_it_finds_on_disk(situation: Situation) -> None:
    """Whatever file of the evidence that the verdict stands on is nonsense: a reason, not a traceback, and no yes."""
    others = 0
    for path in sorted(path for path in situation.evidence.rglob("*") if path.is_file()):
        before = path.read_bytes()
        name = path.relative_to(situation.evidence).as_posix()
        harmless = name.startswith(HARMLESS)
        others += not harmless
        for nonsense in (b"", b"\xff\xfe", b"[]", b"null", b"[" * 5000):
            path.write_bytes(nonsense)
            verdict = situation.ask(full=False)
            assert (verdict.allowed, bool(verdict.reasons)) == (harmless, not harmless), path
        path.write_bytes(before)
    assert others >= 7, "marker, receipt, launch record, manifests and files of two cells"
    assert situation.ask().allowed


def test_unknown_is_not_gone(situation: Situation) -> None:
    situation.existence, situation.readable = Existence.UNKNOWN, False
    for approval in (situation.approval, None):
        situation.approval = approval
        assert not situation.ask().allowed
