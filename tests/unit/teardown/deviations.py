"""What may be wrong with a box that looks cleared: each of these alone must close the way, and so must any of them.

They are applied in the order in which they stand here: what needs the evidence comes before what destroys it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from sweepstack.core.observation import Existence
from sweepstack.core.records import Approval, ReceiptBox
from sweepstack.core.verify_rules import artifacts_digest
from sweepstack.teardown.revocation import write_revocation
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
    waiver,
)

Deviation = Callable[[Situation], None]
DEVIATIONS: dict[str, tuple[Deviation, str]] = {}
"""name → (what happens, what the first reason then says)"""


def closes(reason: str) -> Callable[[Deviation], Deviation]:
    """Registers a deviation."""

    def register(deviation: Deviation) -> Deviation:
        DEVIATIONS[deviation.__name__] = (deviation, reason)
        return deviation

    return register


def approval_of(s: Situation) -> Approval:
    assert s.approval is not None
    return s.approval


def box_in_receipt(s: Situation, **changes: Any) -> tuple[ReceiptBox, ...]:
    """The receipt's boxes, with something else said of box-0."""
    return tuple(box.model_copy(update=changes) if box.box == "box-0" else box for box in s.receipt.boxes)


def receipt_file(s: Situation) -> Path:
    digest = approval_of(s).receipt
    assert digest is not None
    return s.evidence / "receipts" / f"{digest.removeprefix('sha256:')}.json"


# The approval was revoked


@closes("the approval was revoked at 2026-11-22 09:00 UTC by grace")
def revoked(s: Situation) -> None:
    write_revocation(s.store, [], at=NOW, by="grace")


@closes("the approval was revoked at 2026-11-22 07:00 UTC by grace")
def revoked_where_the_clock_is_behind(s: Situation) -> None:
    write_revocation(s.store, [approval_of(s)], at=NOW - timedelta(hours=2), by="grace")


@closes("whether the approval was revoked is not known")
def the_revocation_damaged(s: Situation) -> None:
    (s.evidence / "records" / "revoked.json").write_bytes(b"{")


# What was approved is another receipt: whole, valid, and not for this


@closes("the receipt is of another sweep")
def receipt_of_another_sweep(s: Situation) -> None:
    s.other_receipt(identity="zzzzzzzzzz")


@closes("the roster changed after the receipt")
def receipt_of_another_roster(s: Situation) -> None:
    s.other_receipt(roster_digest=NOWHERE)


@closes("the receipt was made without this box")
def receipt_without_the_box(s: Situation) -> None:
    s.other_receipt(boxes=tuple(box for box in s.receipt.boxes if box.box != "box-0"))


@closes("the receipt was made without this box")
def receipt_of_an_earlier_generation(s: Situation) -> None:
    s.other_receipt(boxes=box_in_receipt(s, generation=7))


@closes("the receipt was made without this box")
def receipt_of_another_native_id(s: Situation) -> None:
    s.other_receipt(boxes=box_in_receipt(s, native_id="local-other2"))


@closes("journal went on")
def receipt_made_at_another_head(s: Situation) -> None:
    s.other_receipt(boxes=box_in_receipt(s, journal_head="0" * 64))


@closes(f"{FIRST} is missing in the receipt")
def cell_missing_in_the_receipt(s: Situation) -> None:
    s.other_cell(FIRST, state="missing")


@closes(f"{SECOND} is damaged in the receipt")
def cell_damaged_in_the_receipt(s: Situation) -> None:
    s.other_cell(SECOND, state="damaged")


@closes(f"{FIRST} is sealed in the receipt")
def cell_only_sealed_in_the_receipt(s: Situation) -> None:
    s.other_cell(FIRST, state="sealed")


@closes(f"{FIRST} is lost in the receipt")
def cell_lost_in_the_receipt(s: Situation) -> None:
    s.other_cell(FIRST, state="lost")


@closes(f"{FIRST} ran with another config than the receipt's")
def cell_of_another_config_in_the_receipt(s: Situation) -> None:
    s.other_cell(FIRST, config_digest=NOWHERE)


@closes("manifest.json changed after the receipt")
def cell_of_another_manifest_in_the_receipt(s: Situation) -> None:
    s.other_cell(FIRST, manifest=NOWHERE)


@closes(f"{SECOND} ran on this box and is not in the receipt")
def cell_not_in_the_receipt(s: Situation) -> None:
    s.other_receipt(cells=tuple(cell for cell in s.receipt.cells if cell.name != SECOND))


@closes("ran on this box and is not in the receipt")
def receipt_without_cells(s: Situation) -> None:
    s.other_receipt(cells=())


# The box went on, or does not answer


@closes("a cell is running on the box")
def a_cell_runs(s: Situation) -> None:
    s.start(SECOND)
    s.runner_alive = True
    s.other_receipt(boxes=box_in_receipt(s, journal_head=s.journal.head))


@closes("journal went on")
def journal_went_on(s: Situation) -> None:
    s.log("runner-stopped", signal="SIGTERM")


@closes("journal went on")
def a_cell_was_tried_again(s: Situation) -> None:
    s.start(FIRST)


@closes("journal went on")
def the_journal_was_cut(s: Situation) -> None:
    s.lines = s.lines[: s.lines.find(b"\n") + 1]  # to the first line: one cut off would undo another deviation


@closes("journal went on")
def the_journal_is_empty(s: Situation) -> None:
    s.lines = b""


@closes("lr0.5-seed0 ran on this box and is not in the receipt")
def the_queue_was_given_another_cell(s: Situation) -> None:
    s.relaunch(**{"lr0.5-seed0": NOWHERE})


@closes(f"{FIRST} ran with another config than the receipt's")
def the_queue_was_given_another_config(s: Situation) -> None:
    s.relaunch(**{FIRST: NOWHERE})


@closes("could not be read: it does not answer")
def the_journal_is_unreadable(s: Situation) -> None:
    s.readable = False


@closes("could not be read: it does not answer")
def the_box_may_exist_or_not(s: Situation) -> None:
    s.existence, s.readable = Existence.UNKNOWN, False


@closes("the account at hand")
def the_account_is_another(s: Situation) -> None:
    s.account_problem = "this belongs to there/1, and the account at hand is here/1"


# What lies on disk is not what it was


@closes("edited or damaged")
def receipt_edited_on_disk(s: Situation) -> None:
    path = receipt_file(s)
    path.write_bytes(path.read_bytes().replace(b'"verified":3', b'"verified":4', 1) + b" ")


@closes("is not in")
def receipt_removed(s: Situation) -> None:
    receipt_file(s).unlink()


@closes("box-0-g1.json is damaged")
def launch_record_damaged(s: Situation) -> None:
    (s.evidence / "records" / "launches" / "box-0-g1.json").write_bytes(b"{}")


@closes("there is no launch record, but the box has a journal")
def launch_record_lost(s: Situation) -> None:
    s.forget_launch()


@closes("metrics.json is not there any more")
def copied_file_gone(s: Situation) -> None:
    s.copied().unlink()


@closes("metrics.json is not there any more")
def copied_file_emptied_out(s: Situation) -> None:
    s.copied().unlink(missing_ok=True)
    s.copied().mkdir()


@closes("has 3 bytes, not")
def copied_file_truncated(s: Situation) -> None:
    os.truncate(s.copied(SECOND), 3)


@closes("metrics.json changed after the receipt")
def copied_file_changed(s: Situation) -> None:
    path = s.copied(SECOND)
    keep_size_and_time(path, path.read_bytes()[::-1])


@closes("log.txt shares its bytes with another name")
def copied_file_is_a_hard_link(s: Situation) -> None:
    os.link(s.copied(SECOND, "log.txt"), s.folder / "elsewhere")


@closes("log.txt is a link, not a copy")
def copied_file_is_a_link(s: Situation) -> None:
    path = s.copied(SECOND, "log.txt")
    path.rename(s.folder / "moved")
    path.symlink_to(s.folder / "moved")


@closes("log.txt is not there any more")
def copied_log_gone(s: Situation) -> None:
    s.copied(path="log.txt").unlink()


@closes("extra.bin was not there when")
def a_file_beside(s: Situation) -> None:
    s.copied(SECOND, "extra.bin").write_bytes(b"x")


@closes("manifest.json changed after the receipt")
def copied_manifest_changed(s: Situation) -> None:
    path = s.copied(FIRST, "manifest.json")
    path.write_bytes(path.read_bytes().replace(b'"attempt":1', b'"attempt":2'))


@closes("manifest.json changed after the receipt")
def copied_manifest_gone(s: Situation) -> None:
    s.copied(FIRST, "manifest.json").unlink()


@closes("its folder is a link")
def copied_folder_is_a_link(s: Situation) -> None:
    s.copied().parent.rename(s.folder / "aside")
    s.copied().parent.symlink_to(s.folder / "aside")


@closes("is not there any more")
def copied_folder_gone(s: Situation) -> None:
    shutil.rmtree(s.copied(SECOND).parent)


@closes("belongs to another sweep (zzzzzzzzzz)")
def marker_of_another_sweep(s: Situation) -> None:
    path = s.evidence / "sweep.json"
    path.write_bytes(path.read_bytes().replace(s.facts.identity.encode(), b"zzzzzzzzzz"))


@closes("sweep.json is damaged")
def marker_damaged(s: Situation) -> None:
    (s.evidence / "sweep.json").write_bytes(b'{"schema":1')


@closes("holds no sweep.json")
def marker_gone(s: Situation) -> None:
    (s.evidence / "sweep.json").unlink()


@closes("is not there: moved, deleted, or a disk that is not mounted?")
def evidence_gone(s: Situation) -> None:
    shutil.rmtree(s.evidence)


# The state says something else of the box


@closes("sweepctl pull --to")
def evidence_on_another_host(s: Situation) -> None:
    s.state(evidence=s.facts.evidence.replace("file://", "file://far-away-"))


@closes("is not an evidence folder")
def evidence_in_no_known_place(s: Situation) -> None:
    s.state(evidence="gs://bucket/sweep")


@closes("this box is local-other3")
def another_native_id_in_the_state(s: Situation) -> None:
    s.state(native_id="local-other3")


@closes("the approval is for local-box-11, and this box is local-")
def the_name_of_the_other_box_in_the_state(s: Situation) -> None:
    s.state(name="box-1")


@closes("the approval does not name this box")
def an_unknown_name_in_the_state(s: Situation) -> None:
    s.state(name="box-9")


@closes("no readable birth record")
def another_generation_in_the_state(s: Situation) -> None:
    s.state(generation=2)


@closes("the roster changed after the receipt")
def another_roster_in_the_state(s: Situation) -> None:
    s.state(roster_digest="sha256:" + "8" * 64)


@closes("the artifacts of the stack file changed after the receipt")
def stricter_artifacts_in_the_state(s: Situation) -> None:
    stricter = ARTIFACT.model_copy(update={"min_bytes": 2})
    s.state(artifacts_digest=artifacts_digest([stricter]))


@closes("the roster changed after the receipt")
def no_roster_in_the_state(s: Situation) -> None:
    s.state(roster_digest="")


@closes("the approval allows destroy, not recycle")
def another_verb_in_the_state(s: Situation) -> None:
    s.state(verb="recycle")


@closes("belongs to another sweep (abcdefghjk)")
def another_identity_in_the_state(s: Situation) -> None:
    s.state(identity="yyyyyyyyyy")


# The approval is another


@closes("the approval allows stop, not destroy")
def approval_of_another_verb(s: Situation) -> None:
    s.approve(actions=(action(verb="stop"), action("box-1", "local-box-11")))


@closes("the approval is for local-other4, and this box is local-box-01")
def approval_of_another_native_id(s: Situation) -> None:
    s.approve(actions=(action(native_id="local-other4"),))


@closes("the approval does not name this box")
def approval_of_this_native_id_under_another_name(s: Situation) -> None:
    s.approve(actions=(action("box-1"),))


@closes("the approval allows stop, not destroy")
def approval_of_this_verb_for_another_native_id(s: Situation) -> None:
    s.approve(actions=(action(verb="stop"), action(native_id="local-other5")))


@closes("the approval does not name this box")
def approval_of_nothing(s: Situation) -> None:
    s.approve(actions=())


@closes("the approval names no receipt, and cells were launched on this box")
def abandonment_of_another_native_id(s: Situation) -> None:
    s.approve(receipt=None, abandon=(abandonment(native_id="local-other1"),))


@closes("the approval names no receipt, and cells were launched on this box")
def abandonment_of_another_box(s: Situation) -> None:
    s.approve(receipt=None, abandon=(abandonment("box-1", "local-box-11"), abandonment("box-1")))


@closes("is not in")
def receipt_of_nothing(s: Situation) -> None:
    s.edit_approval(receipt="sha256:" + "9" * 64)


@closes("the waivers of the approval were edited")
def a_waiver_written_in(s: Situation) -> None:
    s.edit_approval(waive=(*approval_of(s).waive, waiver(FIRST)))


@closes("the waivers of the approval were edited")
def an_abandonment_written_in(s: Situation) -> None:
    s.edit_approval(abandon=(*approval_of(s).abandon, abandonment()))


@closes("the waivers of the approval were edited")
def a_waivers_reason_edited(s: Situation) -> None:
    s.approve(waive=(waiver(FIRST),))
    s.edit_approval(waive=(waiver(FIRST).model_copy(update={"reason": "fine"}),))


@closes("the waivers of the approval were edited")
def a_waiver_moved_to_another_cell(s: Situation) -> None:
    s.approve(waive=(waiver(OTHER_CELL),))
    s.edit_approval(waive=(waiver(FIRST),))


@closes("the approval expired at 2026-11-22 08:59 UTC")
def expired(s: Situation) -> None:
    s.edit_approval(expires=NOW - timedelta(seconds=1))


@closes("the approval expired at 2026-11-22 09:00 UTC")
def expires_this_moment(s: Situation) -> None:
    s.edit_approval(expires=NOW)


@closes("not approved")
def not_approved(s: Situation) -> None:
    s.approval = None


OTHER_CELL = "lr0.9-seed0"
