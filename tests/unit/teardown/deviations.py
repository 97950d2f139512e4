"""What may be wrong with a box that looks cleared: each of these alone must close the way, and so must any of them.

They are applied in this order, and each works on what those before it have left.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from datetime import timedelta

from sweep.canonical import canonical_json
from sweep.model import Approval, ReceiptBox
from sweep.teardown import Existence
from tests.unit.teardown.support import (
    FIRST,
    NOWHERE,
    NOW,
    SECOND,
    Situation,
    abandonment,
    action,
    keep_size_and_time,
    waiver,
)

Deviation = Callable[[Situation], None]


def approval_of(s: Situation) -> Approval:
    assert s.approval is not None
    return s.approval


def boxes_of(s: Situation, **changes: object) -> tuple[ReceiptBox, ...]:
    """The receipt's boxes, with something else said of box-0."""
    return tuple(b.model_copy(update=changes) if b.box == "box-0" else b for b in s.receipt.boxes)


def edit_receipt(s: Situation) -> None:
    digest = approval_of(s).receipt
    assert digest is not None
    path = s.evidence / "receipts" / f"{digest.removeprefix('sha256:')}.json"
    if path.exists():
        path.write_bytes(path.read_bytes().replace(b'"verified"', b'"verified" ', 1))


def remove_receipt(s: Situation) -> None:
    digest = approval_of(s).receipt
    assert digest is not None
    (s.evidence / "receipts" / f"{digest.removeprefix('sha256:')}.json").unlink(missing_ok=True)


def damage(path_in_evidence: str) -> Deviation:
    def work(s: Situation) -> None:
        (s.evidence / path_in_evidence).write_bytes(b'{"schema":1')

    return work


def damage_launch(s: Situation) -> None:
    (s.evidence / "records" / "launches" / "box-0-g1.json").write_bytes(b"{}")


def change_copy(s: Situation) -> None:
    path = s.copied()
    if path.exists():
        keep_size_and_time(path, path.read_bytes()[::-1])


def truncate_copy(s: Situation) -> None:
    if s.copied().exists():
        os.truncate(s.copied(), 3)


def link_copy(s: Situation) -> None:
    """A copy that shares its bytes with another name dies with that other name's content."""
    if s.copied(SECOND).exists():
        (s.folder / "elsewhere").unlink(missing_ok=True)
        os.link(s.copied(SECOND), s.folder / "elsewhere")


def point_copy(s: Situation) -> None:
    path = s.copied(SECOND)
    if path.exists():
        data = path.read_bytes()
        (s.folder / "other").write_bytes(data)
        path.unlink()
        path.symlink_to(s.folder / "other")


def other_manifest(s: Situation) -> None:
    path = s.copied(FIRST, "manifest.json")
    if path.exists():
        path.write_bytes(path.read_bytes().replace(b'"attempt":1', b'"attempt":2'))


def other_marker(s: Situation) -> None:
    path = s.evidence / "sweep.json"
    path.write_bytes(path.read_bytes().replace(s.facts.identity.encode(), b"zzzzzzzzzz"))


def running_cell(s: Situation) -> None:
    s.start(SECOND)
    s.runner_alive = True
    s.other_receipt(boxes=boxes_of(s, journal_head=s.journal.head))


def abandon_other(s: Situation) -> None:
    s.approve(abandon=(abandonment(native_id="local-other1"),))


SINGLE: dict[str, tuple[Deviation, str]] = {
    # the receipt that was approved says something else (a new, valid receipt each time)
    "receipt of another sweep": (lambda s: s.other_receipt(identity="zzzzzzzzzz"), "another sweep"),
    "receipt of another roster": (lambda s: s.other_receipt(roster_digest=NOWHERE), "roster changed"),
    "receipt without the box": (
        lambda s: s.other_receipt(boxes=tuple(b for b in s.receipt.boxes if b.box != "box-0")),
        "without this box",
    ),
    "receipt of an earlier generation": (lambda s: s.other_receipt(boxes=boxes_of(s, generation=7)), "without this box"),
    "receipt of another native id": (
        lambda s: s.other_receipt(boxes=boxes_of(s, native_id="local-other2")),
        "without this box",
    ),
    "receipt made at another head": (
        lambda s: s.other_receipt(boxes=boxes_of(s, journal_head="0" * 64)),
        "journal went on",
    ),
    "cell missing in the receipt": (lambda s: s.other_cell(FIRST, state="missing"), f"{FIRST} is missing"),
    "cell damaged in the receipt": (lambda s: s.other_cell(SECOND, state="damaged"), f"{SECOND} is damaged"),
    "cell only sealed in the receipt": (lambda s: s.other_cell(FIRST, state="sealed"), f"{FIRST} is sealed"),
    "cell lost in the receipt": (lambda s: s.other_cell(FIRST, state="lost"), f"{FIRST} is lost"),
    "cell with another config in the receipt": (
        lambda s: s.other_cell(FIRST, config_digest=NOWHERE),
        f"{FIRST} ran with another config",
    ),
    "cell not in the receipt": (
        lambda s: s.other_receipt(cells=tuple(c for c in s.receipt.cells if c.name != SECOND)),
        f"{SECOND} ran on this box and is not in the receipt",
    ),
    "receipt without cells": (lambda s: s.other_receipt(cells=()), "is not in the receipt"),
    "receipt with another manifest": (lambda s: s.other_cell(FIRST, manifest=NOWHERE), "changed after the receipt"),
    # the box went on
    "a cell runs": (running_cell, "a cell is running"),
    "the journal went on": (lambda s: s.log("runner-stopped", signal="SIGTERM"), "journal went on"),
    "a cell was tried again": (lambda s: s.start(FIRST), "journal went on"),
    "the journal was cut": (lambda s: setattr(s, "lines", s.lines[: s.lines[:-1].rfind(b"\n") + 1]), "journal went on"),
    "the journal is empty": (lambda s: setattr(s, "lines", b""), "journal went on"),
    "the queue was given another cell": (
        lambda s: s.relaunch(**{"lr0.5-seed0": NOWHERE}),
        "lr0.5-seed0 ran on this box and is not in the receipt",
    ),
    "the queue was given another config": (lambda s: s.relaunch(**{FIRST: NOWHERE}), "another config"),
    "the journal can't be read": (lambda s: setattr(s, "readable", False), "could not be read: it does not answer"),
    "nobody knows whether the box exists": (
        lambda s: (setattr(s, "existence", Existence.UNKNOWN), setattr(s, "readable", False))[0],
        "could not be read",
    ),
    "the account is another": (
        lambda s: setattr(s, "account_problem", "this belongs to there/1, and the account at hand is here/1"),
        "the account at hand",
    ),
    # the state says something else
    "another native id in the state": (lambda s: s.state(native_id="local-other3"), "this box is local-other3"),
    "another name in the state": (lambda s: s.state(name="box-1"), "the approval is for local-box-11"),
    "an unknown name in the state": (lambda s: s.state(name="box-9"), "does not name this box"),
    "another generation in the state": (lambda s: s.state(generation=2), "no readable birth record"),
    "another roster in the state": (lambda s: s.state(roster_digest="sha256:" + "8" * 64), "roster changed"),
    "no roster in the state": (lambda s: s.state(roster_digest=""), "roster changed"),
    "another verb in the state": (lambda s: s.state(verb="recycle"), "allows destroy, not recycle"),
    "another identity in the state": (lambda s: s.state(identity="yyyyyyyyyy"), "belongs to another sweep"),
    # the approval is another
    "approval of another verb": (
        lambda s: s.approve(actions=(action(verb="stop"), action("box-1", "local-box-11"))),
        "allows stop, not destroy",
    ),
    "approval of another native id": (
        lambda s: s.approve(actions=(action(native_id="local-other4"),)),
        "the approval is for local-other4",
    ),
    "approval of another box": (lambda s: s.approve(actions=(action("box-1", "local-box-01"),)), "does not name this"),
    "approval of no box": (lambda s: s.approve(actions=()), "does not name this box"),
    "approval of this verb elsewhere": (
        lambda s: s.approve(actions=(action(verb="stop"), action(native_id="local-other5"))),
        "the approval",
    ),
    "expired": (lambda s: s.edit_approval(expires=NOW - timedelta(seconds=1)), "expired at"),
    "expires this moment": (lambda s: s.edit_approval(expires=NOW), "expired at"),
    "abandoned by another id": (lambda s: (abandon_other(s), s.edit_approval(receipt=None))[0], "names no receipt"),
    "a waiver written in": (
        lambda s: s.edit_approval(waive=(*approval_of(s).waive, waiver(FIRST))),
        "waivers of the approval were edited",
    ),
    "a waiver's reason edited": (
        lambda s: (s.approve(waive=(waiver(FIRST),)), s.edit_approval(waive=(waiver(FIRST).model_copy(
            update={"reason": "other"}),)))[0],
        "waivers of the approval were edited",
    ),
    "abandoned by an edit": (
        lambda s: s.edit_approval(abandon=(abandonment(),)),
        "waivers of the approval were edited",
    ),
    "receipt of nothing": (lambda s: s.edit_approval(receipt="sha256:" + "9" * 64), "is not in"),
    "no approval": (lambda s: setattr(s, "approval", None), "not approved"),
}
"""deviation → (what happens, what the first reason says)"""
DESTRUCTIVE: dict[str, tuple[Deviation, str]] = {
    "receipt edited on disk": (edit_receipt, "edited or damaged"),
    "receipt removed": (remove_receipt, "is not in"),
    "launch record damaged": (damage_launch, "box-0-g1.json is damaged"),
    "launch record lost": (lambda s: s.forget_launch(), "records were tampered with"),
    "pulled file gone": (lambda s: s.copied().unlink(missing_ok=True), "metrics.json is not there any more"),
    "pulled file truncated": (truncate_copy, "has 3 bytes"),
    "pulled file changed": (change_copy, "changed after the receipt"),
    "pulled file is a hard link": (link_copy, "shares its bytes"),
    "pulled file is a link": (point_copy, "is a link"),
    "pulled log gone": (lambda s: s.copied(path="log.txt").unlink(missing_ok=True), "log.txt is not there any more"),
    "a file beside": (lambda s: s.copied(SECOND, "extra.bin").write_bytes(b"x"), "was not there when"),
    "manifest changed": (other_manifest, "manifest.json changed"),
    "manifest gone": (lambda s: s.copied(FIRST, "manifest.json").unlink(missing_ok=True), "manifest.json changed"),
    "a cell's folder gone": (lambda s: shutil.rmtree(s.copied().parent, ignore_errors=True), "is not there any more"),
    "a cell's folder empty": (
        lambda s: (shutil.rmtree(s.copied().parent, ignore_errors=True), s.copied().parent.mkdir())[0],
        "manifest.json changed",
    ),
    "marker of another sweep": (other_marker, "belongs to another sweep"),
    "marker damaged": (damage("sweep.json"), "sweep.json is damaged"),
    "marker gone": (lambda s: (s.evidence / "sweep.json").unlink(), "holds no sweep.json"),
    "evidence gone": (lambda s: shutil.rmtree(s.evidence), "is not there"),
    "evidence on another host": (
        lambda s: s.state(evidence=s.facts.evidence.replace("file://", "file://far-away-")),
        "sweepctl publish",
    ),
    "evidence in no known place": (lambda s: s.state(evidence="s3://bucket/sweep"), "is not an evidence folder"),
}
"""The same, for what is lost on disk; these come last."""
