"""Checks that an approved receipt still holds: it is of this box, and nothing has changed since."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from sweepstack.core.journal import Journal
from sweepstack.core.observation import Observation
from sweepstack.core.records import Launch, Receipt, ReceiptCell
from sweepstack.core.search_log import PRUNED
from sweepstack.evidence.check_files import check_files
from sweepstack.evidence.search_log import decided_prunes
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import EvidenceError
from sweepstack.teardown.box_context import BoxFacts
from sweepstack.teardown.launched import unnamed_cells


def receipt_problems(
    store: EvidenceStore,
    facts: BoxFacts,
    digest: str | None,
    waived: Collection[str],
    launch: Launch,
    seen: Observation,
    *,
    teardown_begun: bool,
    full: bool,
) -> list[str]:
    """Why the receipt that an approval names does not allow the end of this box; empty if it does. `waived`: the cells
    that the approval waives. `teardown_begun`: by this very approval; then the end of the runner is part of it. `full`:
    see `may_end`."""
    if digest is None:
        return ["the approval names no receipt, and cells were launched on this box"]
    try:
        receipt = store.receipt(digest)
    except EvidenceError as error:
        return [str(error)]
    if receipt.identity != facts.identity:
        return [f"the receipt is of another sweep ({receipt.identity})"]
    if receipt.roster_digest != facts.roster_digest:
        return ["the roster changed after the receipt"]
    if facts.artifacts_digest not in (None, receipt.artifacts_digest):  # None: an older version wrote the state
        return ["the artifacts of the stack file changed after the receipt: `sweepctl verify` judges by the new ones"]
    box = next((b for b in receipt.boxes if b.native_id == facts.native_id), None)
    if box is None or box.generation != facts.generation:
        return ["the receipt was made without this box"]
    if seen.journal is None:
        return [f"the box's journal could not be read{': ' + seen.note if seen.note else ''}"]
    if seen.kept_at is not None and seen.journal.head != box.journal_head:  # what was read before a stop has no grace
        return ["the receipt was made before the last look at the box, and its journal went on after the receipt"]
    if not _ends_as(seen.journal, box.journal_head, teardown_begun=teardown_begun):
        return ["the box's journal went on after the receipt"]
    if seen.runner_alive and any(cell.state == "running" for cell in seen.journal.cells.values()):
        return ["a cell is running on the box"]
    if cells := _cell_problems(store, receipt, waived, launch, seen.journal, full=full):
        return cells
    from sweepstack.evidence import unsealed

    return unsealed.why_logs_hold_box(store, facts.name, facts.generation, facts.kills, seen)


def latest_problems(
    store: EvidenceStore, facts: BoxFacts, digest: str, launch: Launch, seen: Observation, *, full: bool
) -> list[str]:
    """Why the receipt `digest` does not prove that all that ran on the box is copied, where no approval names it; empty
    if it does. The roster and the artifacts are those of the receipt: the state may be lost."""
    facts = replace(facts, roster_digest=store.receipt(digest).roster_digest, artifacts_digest=None)
    return receipt_problems(store, facts, digest, (), launch, seen, teardown_begun=False, full=full)


def _ends_as(journal: Journal, head: str, *, teardown_begun: bool) -> bool:
    """Whether nothing has happened on the box since the receipt. A teardown that has begun stops the runner itself."""
    since = journal.after(head)
    if since is None:
        return False
    # Its own stop, and the end of its lease, run no cell.
    ours = {"box-off", "box-off-failed", "lease-over", *({"runner-stopped"} if teardown_begun else ())}
    return all(entry["event"] in ours or _of_the_lease(entry) or _of_a_worker(entry) for entry in since)


def _of_the_lease(entry: Mapping[str, Any]) -> bool:
    return entry["event"] == "runner-stopped" and entry.get("why") == "lease"


def _of_a_worker(entry: Mapping[str, Any]) -> bool:
    """The end of one of several workers: it runs no cell either."""
    return "worker" in entry and entry["event"] in ("runner-stopped", "worker-ended")


def _cell_problems(
    store: EvidenceStore, receipt: Receipt, waived: Collection[str], launch: Launch, journal: Journal, *, full: bool
) -> list[str]:
    known = {cell.name for cell in receipt.cells}
    settled = {*waived, *(name for name, progress in journal.cells.items() if progress.state == "dropped")}
    # A launch record from a backup may know less than the journal. Cells that a person dropped are in no receipt.
    ran = {n: p.config_digest for n, p in journal.cells.items() if n in known and p.config_digest is not None}
    undecided = prune_problems(store, journal, launch, waived)
    unnamed = [name for name in unnamed_cells(journal, launch, known) if name not in settled]
    problems = [
        f"{n} ran on this box by its journal, and neither the receipt nor the launch record has it" for n in unnamed
    ]
    found, to_check = compare_cells(receipt, {**ran, **launch.cells}, settled, "this box")
    return [*undecided, *problems, *found] or check_files(store, receipt, to_check, full=full)


def undecided_prunes(
    store: EvidenceStore, journal: Journal | None, launch: Launch | None, waived: Collection[str] = ()
) -> list[str]:
    """Cells that a box, or what it was given, calls stopped by the rule of a search, and for which there is neither
    such a decision on record nor a person's waiver: the word of a box alone settles none. Raises EvidenceError; not
    where all of them are waived, so that a log that is lost holds no box for ever."""
    cells = journal.cells if journal is not None else {}
    claimed = {name: one.reason or "" for name, one in cells.items() if one.state == "dropped"}
    claimed |= launch.dropped if launch is not None else {}
    claimed = {name: why for name, why in claimed.items() if why.startswith(PRUNED) and name not in waived}
    return sorted(claimed.keys() - decided_prunes(store.objects, claimed))


def prune_problems(store: EvidenceStore, journal: Journal, launch: Launch | None, waived: Collection[str]) -> list[str]:
    """Why cells that count as stopped by the rule of a search are not settled; empty where each is."""
    try:
        return [
            f"{name} was stopped on this box as pruned, and the log of the search has no such decision"
            for name in undecided_prunes(store, journal, launch, waived)
        ]
    except EvidenceError as error:
        return [f"a cell was stopped as pruned, and whether that was decided is not known: {error}"]


def compare_cells(
    receipt: Receipt, ran: Mapping[str, str], settled: Collection[str], where: str
) -> tuple[list[str], list[str]]:
    """Why the receipt does not cover the cells that `ran` there (name → config digest), but for those that are settled
    without it; and the cells that it covers, whose files are still to be looked at."""
    known: dict[str, ReceiptCell] = {cell.name: cell for cell in receipt.cells}
    problems, covered = [], []
    for name, config_digest in sorted(ran.items()):
        cell = known.get(name)
        if name in settled:
            continue
        if cell is None:
            problems.append(f"{name} ran on {where} and is not in the receipt")
        elif cell.config_digest != config_digest:
            problems.append(f"{name} ran with another config than the receipt's")
        elif cell.state != "verified":  # only an approval can waive a cell, never a receipt
            problems.append(f"{name} is {cell.state} in the receipt")
        else:
            covered.append(name)
    return problems, covered
