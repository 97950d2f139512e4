"""Tells which verified copy each cell of a queue begins from, and which cells wait for one."""

from __future__ import annotations

from collections.abc import Mapping

from sweepstack.core.foreign_cells import CONFIG_DIGITS, same_config
from sweepstack.core.journal import Journal, started
from sweepstack.core.records import Again
from sweepstack.core.resources import QueueInputs
from sweepstack.evidence.check_files import check_cells
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.launch.retries import recorded_retries
from sweepstack.onbox.common.canonical import hex_of
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import SweepstackError

NEXT = "`pulumi up` or `sweepctl tend` brings it once that is verified"


@dataclass(frozen=True)
class Begins:
    """`sources`: cell → the manifest of the copy that it begins from. `words`: what a preview says of those that have
    not begun. `never`: of cells that will never begin, why, and what to do."""

    sources: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


def begins(
    evidence: Evidence,
    old: QueueInputs | None,
    new: QueueInputs,
    journal: Journal | None,
    counted: Mapping[str, Again],
) -> Begins:
    """What the cells of `new` begin from. One that has begun keeps what it began from; and so do all while the box
    can't be read (`journal` is None). `counted`: the retries of the stack file, of all boxes. Reads the evidence; while
    that does not answer, what was known before holds."""
    cells = [cell for cell in new.cells if cell.source and cell.name not in new.dropped]
    before = dict(old.sources or {}) if old is not None else {}
    digits = {cell.name: hex_of(cell.config_digest)[:CONFIG_DIGITS] for cell in new.cells} | new.others
    unread = ""
    known: Mapping[str, tuple[str, str]] = {}
    try:
        known = verified_sources(evidence.store, {cell.source: digits.get(cell.source, "") for cell in cells}, counted)
    except (SweepstackError, OSError) as error:
        unread = f"the evidence does not say whether it is verified ({error})"
    sources: dict[str, str] = {}
    words: list[str] = []
    never: list[str] = []
    for cell in cells:
        progress, again = (journal.cells.get(cell.name) if journal else None), (new.retries or {}).get(cell.name)
        has_begun = progress is not None and started(progress) and (again is None or again.retry <= progress.retry)
        manifest, why = known.get(cell.source, ("", unread))
        if cell.name in before and (has_begun or journal is None or unread):
            sources[cell.name] = before[cell.name]
        elif has_begun:
            continue
        elif cell.source in new.dropped:
            why = f"begins from {cell.source}, which was dropped ({new.dropped[cell.source]}): it will never begin"
            ways = f"bring {cell.source} back (sweepctl retry, or out of cells.drop), or take {cell.name} out"
            never.append(f"{cell.name} {why}. Next: {ways}")
        elif manifest:
            sources[cell.name] = manifest
            words.append(f"{cell.name} begins from {cell.source}, as verified ({hex_of(manifest)[:16]})")
        else:
            words.append(f"{cell.name} waits for {cell.source}: {why}; {NEXT}")
    return Begins(sources, tuple(words), tuple(never))


def verified_sources(
    store: EvidenceStore, asked: Mapping[str, str], counted: Mapping[str, Again]
) -> dict[str, tuple[str, str]]:
    """Cell → the manifest of its verified copy, as whole as when it was verified, and no retry asked since; or "", and
    why there is none. `asked`: cell → first digits of its config's digest."""
    digest = store.latest_receipt()
    receipt = store.receipt(digest) if digest else None
    cells = {cell.name: cell for cell in receipt.cells} if receipt is not None else {}
    retries: dict[str, Again] = {name: retry.again for name, retry in recorded_retries(store).items()} | dict(counted)
    found = dict.fromkeys(asked, ("", "it is not verified yet"))
    good = {}
    for name, digits in asked.items():
        cell, again = cells.get(name), retries.get(name)
        if cell is None or cell.state != "verified" or cell.manifest is None:
            continue
        if again is not None and again.manifest == cell.manifest:
            found[name] = "", "it was asked to run again, and the new result is not verified yet"
        elif same_config(cell.config_digest, digits):
            good[name] = cell.manifest
    problems = check_cells(store, receipt, good, full=False) if receipt is not None and good else {}
    for name, manifest in good.items():
        wrong = problems.get(name)
        found[name] = ("", wrong[0].removeprefix(f"{name}: ")) if wrong else (manifest, "")
    return found
