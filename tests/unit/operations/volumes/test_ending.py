"""Every row of the check that may end a volume: what lets it go, and what keeps it, on real evidence."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from sweepstack.core.observation import Existence
from sweepstack.core.policy_text import PolicyText, written
from sweepstack.core.records import Action, Waiver
from sweepstack.onbox.common.errors import EvidenceDamaged
from sweepstack.operations.volumes.end_check import VolumeFacts, take_inventory
from sweepstack.operations.volumes.mounting_sweeps import VERB, Survey, User, read_inventory, write_inventory
from tests.unit.operations.volumes.conftest import KEEPER, NATIVE, Kept
from tests.unit.teardown.support import FIRST, NOW, NOWHERE, SECOND, action, keep_size_and_time

OTHER_ID = "volume-aaaaaaaaaa-cccccccccc"


def test_everything_verified_and_approved_lets_it_go(kept: Kept) -> None:
    verdict = kept.ask()
    assert (verdict.allowed, verdict.way, verdict.reasons) == (True, "cleared", [])
    assert verdict.headline == "cleared: what 1 sweep left on it is verified elsewhere"


def test_proved_gone_needs_no_word(kept: Kept) -> None:
    kept.approval = None
    kept.see(existence=Existence.GONE)
    assert kept.ask().way == "gone"


def test_a_volume_that_nobody_mounted_needs_a_word_alone(kept: Kept) -> None:
    kept.survey = Survey()
    kept.approval = None
    assert kept.ask().reasons == ["not approved"]
    kept.see(alive=("box b mounts it, and is running",))
    assert kept.ask().reasons == ["not approved", "box b mounts it, and is running"]
    kept.see(alive=())
    kept.approve()
    assert kept.ask().way == "cleared"


def _forget_receipt(kept: Kept) -> None:
    latest = kept.sweep.store.latest_receipt()
    assert latest is not None
    (kept.sweep.evidence / "receipts" / f"{latest.removeprefix('sha256:')}.json").unlink()


def _edit_receipt(kept: Kept) -> None:
    (path,) = (kept.sweep.evidence / "receipts").glob("*.json")
    path.write_bytes(path.read_bytes().replace(b'"verified":3', b'"verified":2'))


def _edit_inventory(kept: Kept) -> None:
    (path,) = (kept.folder / "keeper" / "records" / "inventories").glob("*.json")
    path.write_bytes(path.read_bytes().replace(b'"waived":{}', b'"waived":{"a":"b"}'))


def _another_box_ran(kept: Kept) -> None:
    kept.sweep.relaunch(more="sha256:" + "7" * 64)


def _other_config(kept: Kept) -> None:
    kept.sweep.relaunch(**{FIRST: "sha256:" + "7" * 64})


def _not_verified(kept: Kept) -> None:
    receipt = kept.sweep.receipt
    cells = tuple(c.model_copy(update={"state": "damaged"}) if c.name == FIRST else c for c in receipt.cells)
    kept.sweep.store.write_receipt(receipt.model_copy(update={"cells": cells}))
    kept.approve()


def _only_the_journal_knows(kept: Kept) -> None:
    kept.sweep.start("seed5", config_digest=NOWHERE)
    kept.sweep.store.write_journal("box-0", 1, kept.sweep.lines)


def _receipt_of_another_sweep(kept: Kept) -> None:
    kept.sweep.store.write_receipt(kept.sweep.receipt.model_copy(update={"identity": "zzzzzzzzzz"}))
    kept.approve()


def _user_of_another_sweep(kept: Kept) -> None:
    kept.survey = Survey()
    kept.survey.add(NATIVE, User("sweep-t", "otheridxxx", kept.sweep.facts.evidence))
    kept.approve()


def _shown(kept: Kept, identity: str, facts: VolumeFacts) -> None:
    """The approval names what was shown of other volumes, or of another stack's."""
    kept.edit(receipt=write_inventory(kept.store, take_inventory(identity, [facts], kept.survey, {})))


LOCKED: dict[str, tuple[Callable[[Kept], object], str]] = {
    "no word": (lambda kept: setattr(kept, "approval", None), "not approved"),
    "another account": (lambda kept: kept.see(account_problem="it is another account's"), "it is another account's"),
    "whether it is there is not known": (
        lambda kept: kept.see(existence=Existence.UNKNOWN, note="no answer"),
        "no answer",
    ),
    "a box that may still mount it": (lambda kept: kept.see(alive=("box a mounts it",)), "box a mounts it"),
    "boxes that can't be looked up": (lambda kept: kept.see(unread=("boxes of x: no answer",)), "boxes of x"),
    "something on it that nobody left there": (lambda kept: kept.see(holds=("imagenet",)), "imagenet is on it"),
    "a stack that could not be asked": (
        lambda kept: kept.survey.problems.append("whether b uses it is not known"),
        "whether b uses it is not known",
    ),
    "a user that came after the word": (
        lambda kept: kept.survey.add(NATIVE, User("late", "lateidxxxx", "file://nowhere/x")),
        "late uses it, and was not in what was approved",
    ),
    "expired": (lambda kept: setattr(kept, "now", NOW + timedelta(days=4)), "the approval expired"),
    "an approval for another volume": (
        lambda kept: kept.edit(actions=(Action(verb=VERB, box="store", native_id=OTHER_ID),)),
        f"the approval is for {OTHER_ID}",
    ),
    "an approval for another name": (
        lambda kept: kept.edit(actions=(Action(verb=VERB, box="other", native_id=NATIVE),)),
        "does not name this volume",
    ),
    "an approval for another verb": (
        lambda kept: kept.edit(actions=(action("store", NATIVE, "destroy"),)),
        "the approval allows destroy, not delete-volume",
    ),
    "waivers edited": (
        lambda kept: kept.edit(abandon=(kept.give_up(),)),
        "the waivers of the approval were edited",
    ),
    "cells waived by hand": (
        lambda kept: kept.edit(waive=(Waiver(cell=FIRST, reason="x"),)),
        "the waivers of the approval were edited",
    ),
    "an approval without what was shown": (lambda kept: kept.edit(receipt=None), "names nothing that was shown"),
    "an approval of what was never shown": (lambda kept: kept.edit(receipt="sha256:" + "1" * 64), "is not in"),
    "an approval of what another stack was shown": (
        lambda kept: _shown(kept, "otheridxxx", kept.facts),
        "what was approved is of another stack (otheridxxx)",
    ),
    "an approval of other volumes": (
        lambda kept: _shown(kept, KEEPER, replace(kept.facts, native_id=OTHER_ID)),
        "what was approved does not list this volume",
    ),
    "what was shown, edited": (_edit_inventory, "was edited or damaged"),
    "the stack's evidence is gone": (lambda kept: shutil.rmtree(kept.folder / "keeper"), "keeper"),
    "the stack's evidence is another's": (
        lambda kept: setattr(kept, "facts", replace(kept.facts, identity="otheridxxx")),
        "belongs to another stack",
    ),
    "the user's evidence is gone": (lambda kept: shutil.rmtree(kept.sweep.evidence), "sweep-t: the evidence"),
    "the user's evidence is another's": (
        _user_of_another_sweep,
        "holds the evidence of another sweep (abcdefghjk)",
    ),
    "a copy is gone": (lambda kept: kept.sweep.copied().unlink(), f"sweep-t: {FIRST}"),
    "a copy damaged with its old size and time": (
        lambda kept: keep_size_and_time(kept.sweep.copied(), b"x" * kept.sweep.copied().stat().st_size),
        f"sweep-t: {FIRST}",
    ),
    "the receipt is gone": (_forget_receipt, "sweep-t: the receipt"),
    "the receipt was edited": (_edit_receipt, "was edited or damaged"),
    "the receipt is of another sweep": (_receipt_of_another_sweep, "the receipt is of another sweep (zzzzzzzzzz)"),
    "a cell that only the journal knows": (
        _only_the_journal_knows,
        "seed5 ran on a box that mounted it and is not in the receipt",
    ),
    "a cell ran after the receipt": (_another_box_ran, "more ran on a box that mounted it and is not in the receipt"),
    "a cell ran with another config": (_other_config, "ran with another config"),
    "a cell is not verified": (_not_verified, f"{FIRST} is damaged in the receipt"),
}


@pytest.mark.parametrize("row", LOCKED, ids=lambda row: row.replace(" ", "-"))
def test_what_keeps_it(kept: Kept, row: str) -> None:
    break_it, said = LOCKED[row]
    break_it(kept)
    verdict = kept.ask()
    assert not verdict.allowed, verdict
    assert said in "; ".join(verdict.reasons)
    assert verdict.headline.startswith("locked")


def test_a_word_names_each_of_its_reasons(kept: Kept) -> None:
    """All at once, so that nobody mends them one by one."""
    kept.survey.problems.append("b can't be asked")
    kept.sweep.copied().unlink()
    assert len(kept.ask().reasons) == 2


def test_a_cell_that_a_person_waived_for_that_receipt_is_settled(kept: Kept) -> None:
    _not_verified(kept)
    store = kept.sweep.store
    kept.sweep.approve(receipt=store.latest_receipt(), waive=(Waiver(cell=FIRST, reason="known"),))
    store.write_clearance(kept.sweep.facts.native_id, kept.sweep.approval)
    kept.approve()
    assert kept.ask().way == "cleared"


def test_a_cell_that_a_person_dropped_needs_no_copy(kept: Kept) -> None:
    """By the launch record, which the runner writes no line for where the cell had ended."""
    receipt = kept.sweep.receipt
    cells = tuple(cell for cell in receipt.cells if cell.name != SECOND)
    kept.sweep.store.write_receipt(receipt.model_copy(update={"cells": cells}))
    kept.approve()
    assert not kept.ask().allowed
    launch = kept.sweep.launch()
    kept.sweep.store.write_launch(launch.model_copy(update={"dropped": {SECOND: "too slow"}}))
    assert kept.ask().way == "cleared"


def test_a_waiver_for_another_receipt_is_none(kept: Kept) -> None:
    kept.sweep.approve(waive=(Waiver(cell=FIRST, reason="known"),))
    kept.sweep.store.write_clearance(kept.sweep.facts.native_id, kept.sweep.approval)
    _not_verified(kept)
    assert "is damaged in the receipt" in "; ".join(kept.ask().reasons)


def test_given_up_by_name_needs_no_evidence_at_all(kept: Kept) -> None:
    kept.approve(abandon=(kept.give_up(),), receipt=None)
    shutil.rmtree(kept.sweep.evidence)
    shutil.rmtree(kept.folder / "keeper")
    kept.survey.problems.append("nobody answers")
    assert kept.ask().way == "abandoned"


@pytest.mark.parametrize("changes", [{"verb": "destroy"}, {"native_id": OTHER_ID}, {"box": "other"}])
def test_giving_up_something_else_is_no_word_for_it(kept: Kept, changes: dict[str, str]) -> None:
    kept.approve(abandon=(kept.give_up(**changes),))
    kept.sweep.copied().unlink()
    assert not kept.ask().allowed


@pytest.mark.parametrize("seen", [{"alive": ("box a mounts it",)}, {"account_problem": "another account"}])
def test_giving_it_up_ends_nothing_under_a_box_or_of_others(kept: Kept, seen: dict[str, object]) -> None:
    kept.approve(abandon=(kept.give_up(),))
    kept.see(**seen)
    assert not kept.ask().allowed


def test_a_look_compares_sizes_and_a_delete_reads_every_byte(kept: Kept) -> None:
    kept.ask(full=True)
    keep_size_and_time(kept.sweep.copied(), b"x" * kept.sweep.copied().stat().st_size)
    assert kept.ask(full=False).allowed
    assert not kept.ask(full=True).allowed


def test_what_was_shown_is_named_by_its_content(kept: Kept) -> None:
    assert kept.approval is not None
    assert kept.approval.receipt is not None
    assert read_inventory(kept.store, kept.approval.receipt).digest == kept.approval.receipt
    _edit_inventory(kept)
    with pytest.raises(EvidenceDamaged):
        read_inventory(kept.store, kept.approval.receipt)


def test_the_policy_of_its_stack_binds_its_end(kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the state, and by the project's file; what it says: tests/unit/teardown/test_policy.py."""
    text = PolicyText(text="max_expiry: 1h\n")
    assert kept.ask().allowed
    kept.facts = replace(kept.facts, policies=(written(text),))
    refused = kept.ask()
    assert not refused.allowed
    assert "may hold for 1h at most" in refused.reasons[0]
    kept.facts = replace(kept.facts, policies=())
    (tmp_path / "Pulumi.yaml").write_text("name: p\n")
    (tmp_path / "policy.yaml").write_text(text.text)
    monkeypatch.chdir(tmp_path)
    assert not kept.ask().allowed
    kept.approve(abandon=(kept.give_up(),))
    assert not kept.ask().allowed
