"""A sweep on disk that may be torn down, to be bent out of shape: real evidence, receipt and journals; no platform.

Two boxes: box-0 ran lr0.1 and lr0.3, box-1 ran lr0.9. Everything was sealed, copied, verified, and is approved.
"""

from __future__ import annotations

import os
import shutil
import socket
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sweepstack.core.journal import Journal, parse_journal
from sweepstack.core.observation import Existence, Observation
from sweepstack.core.records import (
    Abandonment,
    Action,
    Approval,
    ArtifactSpec,
    Birth,
    Launch,
    Receipt,
    ReceiptCell,
    Teardown,
    UnclaimedWaiver,
    Waiver,
)
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.unsealed import Unsealed, UnsealedOfBox
from sweepstack.onbox.agent.channel import Listing
from sweepstack.onbox.common.canonical import GENESIS, canonical_json, sha256_hex
from sweepstack.teardown.box_check import BoxEnding, Verdict
from sweepstack.teardown.box_context import BoxContext, BoxFacts
from sweepstack.teardown.check import may_end
from tests.unit.evidence.world import BEGIN, CODE, IDENTITY, Box, World

ARTIFACT = ArtifactSpec(path="metrics.json", load="json", keys=("loss",))
NOW = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)
FIRST, SECOND = "lr0.1-seed0", "lr0.3-seed0"
"""The cells of box-0."""
OTHERS = "lr0.9-seed0"
NOWHERE = "sha256:" + "7" * 64


def build(folder: Path) -> None:
    """Makes the sweep in `folder`, once: tests work on copies of it."""
    world = World(folder, (ARTIFACT,))
    world.boxes.append(Box(world, "box-1"))
    for box, cells in zip(world.boxes, (world.cells[:2], world.cells[2:]), strict=True):
        box.launch(*cells)
        for number, cell in enumerate(cells):
            box.seal(cell, {"metrics.json": b'{"loss": 0.%d}' % number, "log.txt": b"step 1\n"})
            shutil.copytree(box.sealed(cell.name), world.copy(cell))
        world.store.write_journal(box.name, box.generation, box.journal_file.read_bytes())
    assert world.verify().ok


@dataclass
class Situation:
    """What the check is asked about box-0. Changed in place by tests; `ask` asks."""

    folder: Path
    facts: BoxFacts
    approval: Approval | None
    lines: bytes
    existence: Existence = Existence.EXISTS
    readable: bool = True
    runner_alive: bool | None = False
    account_problem: str = ""
    now: datetime | None = NOW
    listing: Listing | None = field(default_factory=Listing)
    stopped: bool = False
    started_at: datetime | None = None
    given: Approval | None = None
    """The approval as it was given, where it was edited after that."""

    @classmethod
    def of(cls, folder: Path) -> Situation:
        """The situation in a copy of what `build` made: box-0 is cleared."""
        evidence = folder / "evidence"
        uri = f"file://{socket.gethostname()}{evidence}"
        digest = EvidenceStore.open(uri).latest_receipt()
        assert digest is not None
        receipt = EvidenceStore.open(uri).receipt(digest)
        facts = BoxFacts(
            identity=IDENTITY,
            evidence=uri,
            name="box-0",
            native_id="local-box-01",
            account="here/1",
            generation=1,
            verb="destroy",
            kills=("scratch", "data"),
            keeps=("durable",),
            roster_digest=receipt.roster_digest,
            price_per_hour=0.5,
            created_at=BEGIN,
        )
        journal = folder / "boxes" / facts.native_id / "data" / "sweep" / "journal.jsonl"
        return cls(folder, facts, approval(digest), journal.read_bytes())

    @property
    def evidence(self) -> Path:
        return self.folder / "evidence"

    @property
    def store(self) -> EvidenceStore:
        return EvidenceStore.open(f"file://{socket.gethostname()}{self.evidence}")

    @property
    def journal(self) -> Journal:
        return parse_journal(self.lines)

    @property
    def receipt(self) -> Receipt:
        assert self.approval is not None
        assert self.approval.receipt is not None
        return self.store.receipt(self.approval.receipt)

    @property
    def latest(self) -> Receipt:
        digest = self.store.latest_receipt()
        assert digest is not None
        return self.store.receipt(digest)

    def seen(self) -> Observation:
        return Observation(
            self.existence,
            journal=self.journal if self.readable else None,
            runner_alive=self.runner_alive if self.readable else None,
            account_problem=self.account_problem,
            note="" if self.readable else "it does not answer",
            listing=self.listing if self.readable else None,
            stopped=self.stopped,
            started_at=self.started_at,
        )

    def ask(self, *, full: bool = True) -> Verdict:
        return may_end(BoxEnding(BoxContext(self.facts, "local"), self.approval, self.seen()), now=self.now, full=full)

    # What tests change

    def state(self, **changes: Any) -> None:
        """What the engine's state says of the box."""
        self.facts = replace(self.facts, **changes)

    def approve(self, **changes: Any) -> None:
        """The approval is given anew with these changes, its waivers' digest right: what was only edited into the one
        before is not in it."""
        before, self.given = self.given or self.approval, None
        assert before is not None
        given = before.model_copy(update=changes)
        digest = Approval.digest_waivers(given.waive, given.abandon)
        self.approval = given.model_copy(update={"waivers_digest": digest})

    def edit_approval(self, **changes: Any) -> None:
        """A person edits the approval in the stack config, and nothing else."""
        assert self.approval is not None
        self.given = self.given or self.approval
        self.approval = self.approval.model_copy(update=changes)

    def other_receipt(self, **changes: Any) -> None:
        """Another receipt is made, and approved."""
        self.approve(receipt=self.store.write_receipt(self.receipt.model_copy(update=changes)))

    def other_cell(self, name: str, **changes: Any) -> None:
        """A receipt is made, and approved, that says something else of a cell."""
        cells = tuple(cell.model_copy(update=changes) if cell.name == name else cell for cell in self.receipt.cells)
        self.other_receipt(cells=cells)

    def log(self, event: str, **details: Any) -> None:
        """The box's journal goes on."""
        head, seq = self.journal.head, len(self.journal.entries) + 1
        time = (BEGIN + timedelta(hours=1, seconds=seq)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        entry = {"seq": seq, "time": time, "event": event, "prev": head, **details}
        self.lines += canonical_json({**entry, "hash": sha256_hex(canonical_json(entry))}) + b"\n"

    def start(self, name: str, attempt: int = 2, config_digest: str | None = None) -> None:
        """A cell starts on the box."""
        launch = self.launch()
        digest = config_digest or launch.cells.get(name, NOWHERE)
        self.log("cell-started", cell=name, attempt=attempt, config_digest=digest, code=CODE, argv=["x"], slot=0)

    def copied_unsealed(self, name: str, attempt: int) -> None:
        """What an attempt without a seal left behind was pulled."""
        known = UnsealedOfBox(box="box-0", generation=1, attempts=(Unsealed(cell=name, attempt=attempt),))
        self.store.write_record("unsealed/box-0-g1.json", known)

    def launch(self) -> Launch:
        found = self.store.launch("box-0", 1)
        assert found is not None
        return found

    def relaunch(self, **cells: str) -> None:
        """The queue is given more cells, or others."""
        launch = self.launch()
        self.store.write_launch(launch.model_copy(update={"cells": {**launch.cells, **cells}}))

    def forget_launch(self) -> None:
        (self.evidence / "records" / "launches" / "box-0-g1.json").unlink(missing_ok=True)

    def birth(self) -> Birth:
        found = self.store.birth("box-0", 1)
        assert found is not None
        return found

    def forget_birth(self) -> None:
        (self.evidence / "records" / "births" / "box-0-g1.json").unlink(missing_ok=True)

    def nothing_ever_ran(self) -> None:
        """No launch record, an empty journal, an approval without a receipt: the state after a failed create.

        The receipt that is there saw the box as it is: empty.
        """
        seen = self.receipt
        self.forget_launch()
        self.lines = b""
        (self.evidence / "journals" / "box-0-g1.jsonl").unlink(missing_ok=True)
        for name in (FIRST, SECOND):
            shutil.rmtree(self.copied(name).parent)
        for path in (self.evidence / "receipts").iterdir():
            path.unlink()
        boxes = tuple(
            b.model_copy(update={"journal_head": GENESIS, "cells": ()}) if b.box == "box-0" else b for b in seen.boxes
        )
        cells = tuple(cell for cell in seen.cells if cell.name not in (FIRST, SECOND))
        self.store.write_receipt(seen.model_copy(update={"boxes": boxes, "cells": cells}))
        self.approve(receipt=None)

    def begin_teardown(self, *native_ids: str, receipt: str | None = None) -> None:
        """A destroy was begun for these boxes, by this receipt (the approval's by default)."""
        assert self.approval is not None
        by = receipt or self.approval.receipt
        ids = native_ids or (self.facts.native_id,)
        self.store.write_teardown(Teardown(receipt=by, native_ids=ids, begun_at=NOW - timedelta(hours=1)))

    def copied(self, name: str = FIRST, path: str = "metrics.json") -> Path:
        """A file of the pulled copies."""
        return self.evidence / "cells" / name / path


def approval(receipt: str | None, **changes: Any) -> Approval:
    """An approval for box-0 and box-1, given before `NOW` and good for three days."""
    waive: tuple[Waiver, ...] = changes.pop("waive", ())
    abandon: tuple[Abandonment, ...] = changes.pop("abandon", ())
    unclaimed: tuple[UnclaimedWaiver, ...] = changes.pop("unclaimed", ())
    known = {
        "receipt": receipt,
        "actions": (action("box-0", "local-box-01"), action("box-1", "local-box-11")),
        "waive": waive,
        "abandon": abandon,
        "unclaimed": unclaimed,
        "waivers_digest": Approval.digest_waivers(waive, abandon, unclaimed),
        "by": "ada",
        "at": NOW - timedelta(hours=1),
        "expires": NOW + timedelta(hours=71),
    }
    return Approval.model_validate(known | changes)


def action(box: str = "box-0", native_id: str = "local-box-01", verb: str = "destroy") -> Action:
    """One verb on one box."""
    return Action(verb=verb, box=box, native_id=native_id)


def abandonment(box: str = "box-0", native_id: str = "local-box-01") -> Abandonment:
    """A person's decision that a box may be lost."""
    return Abandonment(box=box, native_id=native_id, reason="not worth it")


def waiver(cell: str) -> Waiver:
    """A person's decision that a cell need not be verified."""
    return Waiver(cell=cell, reason="it diverges")


def receipt_cell(receipt: Receipt, name: str) -> ReceiptCell:
    """What a receipt says of a cell."""
    return next(cell for cell in receipt.cells if cell.name == name)


def keep_size_and_time(path: Path, data: bytes) -> None:
    """Other bytes in a file, of the same size and with the same times: what a look at the folder can't see."""
    status = path.stat()
    assert len(data) == status.st_size
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
