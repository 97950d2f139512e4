"""Copies sealed cells from boxes into the evidence: resumable, checked, put in place whole.

A copy is made below `<evidence>/.partial/<cell>/`; what a cut left there is gone on with. Every file is compared with
the box's manifest by size and SHA-256 before the folder gets its final name, so a cut never leaves a wrong file there.
A copy that another seal replaces is moved to `<evidence>/.superseded/`, not deleted. Object storage: see s3_pull.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweepstack.core.journal import Journal
from sweepstack.evidence import box_logs
from sweepstack.evidence.manifest import (
    MANIFEST,
    MAX_MANIFEST,
    ManifestRefused,
    RefusedForNow,
    manifest_digest,
    parse_manifest,
)
from sweepstack.evidence.pull_cell import CellCopy, Progress, PullResult, Settled
from sweepstack.evidence.s3.cell_store import S3Copies
from sweepstack.evidence.s3.pull import ObjectCopy
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.unsealed import Unsealed
from sweepstack.evidence.unsealed_copy import bring
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import EvidenceDamaged, EvidenceError, JournalDamaged, PlatformError
from sweepstack.onbox.common.locks import take

if TYPE_CHECKING:
    from sweepstack.onbox.agent.channel import Channel

__all__ = ["BoxPull", "BoxSource", "PullResult", "pull_all", "pull_cell"]

SAFE_CELL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")


@dataclass(frozen=True)
class BoxSource:
    """A box to pull from. `base`: the durable tier's folder for `channel`; empty where that is the volume's own root.

    `cells`: those wanted; None for all that its journal calls sealed. `volume_only`: the box is gone, and `channel` is
    that of a volume that outlived it; what was sealed is then known by the last kept copy of the journal.
    """

    box: str
    generation: int
    channel: Channel
    base: str = box_layout.DURABLE
    cells: Collection[str] | None = None
    volume_only: bool = False


@dataclass(frozen=True)
class BoxPull:
    """What pulling from one box did. `problem`: why it, or its journal, could not be read: cells may be missing.

    `unsealed`: what was copied now of attempts that ended without a seal; never a verified artifact. `warnings`: which
    of the box's own logs could not be copied, and why.
    """

    box: str
    generation: int
    journal: Journal | None
    results: tuple[PullResult, ...] = ()
    problem: str = ""
    unsealed: tuple[Unsealed, ...] = ()
    warnings: tuple[str, ...] = ()


def pull_all(
    boxes: Sequence[BoxSource], identity: str, store: EvidenceStore, progress: Progress | None = None
) -> list[BoxPull]:
    """Pulls journals, boxes' own logs, sealed cells, and what other ended attempts left. Idempotent; blocks until
    done; a box that fails stops no other.

    Raises EvidenceError when another pull into the same evidence is running, or it can't be written.
    """
    with only_one(store):
        settled = Settled(store)
        return [_pull_box(source, identity, store, progress, settled) for source in boxes]


def pull_cell(
    channel: Channel,
    identity: str,
    cell: str,
    store: EvidenceStore,
    progress: Progress | None = None,
    *,
    base: str = box_layout.DURABLE,
    sealed_as: str | None = None,
    settled: Settled | None = None,
) -> PullResult:
    """Brings the sealed copy of `cell` here. Copies only what is not here and right; idempotent; never links.

    `sealed_as`: the manifest's digest by the box's journal; another manifest is refused. `settled`: read once for many
    cells. Raises Unreachable when the box is cut off on the way (call again: it goes on), EvidenceError when the
    evidence can't be written.
    """
    if not SAFE_CELL.fullmatch(cell):  # names in a journal come from a box
        return PullResult(cell, "refused", ("it is no cell name",))
    folder = "/".join(part for part in (base, box_layout.sealed_dir(identity, cell)) if part)
    try:
        data = channel.read(f"{folder}/{MANIFEST}", limit=MAX_MANIFEST + 1)
    except FileNotFoundError:
        return PullResult(cell, "absent", ("there is no sealed copy of it there",))
    try:
        manifest = parse_manifest(data, identity, cell)
        if sealed_as is not None and manifest_digest(data) != sealed_as:
            raise RefusedForNow("its manifest is not the one that the box's journal records; pull again")
        kind = ObjectCopy if isinstance(store.copies, S3Copies) else CellCopy
        return kind(channel, folder, data, manifest, store, progress, settled or Settled(store)).run()
    except ManifestRefused as error:
        return PullResult(cell, "refused", (str(error),), for_now=isinstance(error, RefusedForNow))
    except PlatformError:
        raise
    except OSError as error:
        raise EvidenceError(f"{cell} can't be written to {store.shown}: {error.strerror}") from error


def _pull_box(
    source: BoxSource, identity: str, store: EvidenceStore, progress: Progress | None, settled: Settled
) -> BoxPull:
    journal: Journal | None = None
    results: list[PullResult] = []
    unsealed: list[Unsealed] = []
    warnings: list[str] = []
    problem = ""
    whole = not source.volume_only and source.cells is None
    try:
        journal = _journal_and_logs(source, store, warnings) if whole else _journal_of(source, store)
        sealed = {name: cell.manifest for name, cell in journal.cells.items() if cell.state == "sealed"}
        wanted = sorted(sealed) if source.cells is None else [name for name in source.cells if name in sealed]
        for name in wanted:
            results.append(
                pull_cell(
                    source.channel,
                    identity,
                    name,
                    store,
                    progress,
                    base=source.base,
                    sealed_as=sealed[name],
                    settled=settled,
                )
            )
        if whole:
            unsealed = bring(source.channel, source.box, source.generation, journal, store)
    except (PlatformError, JournalDamaged, EvidenceError) as error:
        problem = str(error)
    except OSError as error:
        problem = f"{error.filename or store.shown}: {error.strerror}"
    return BoxPull(source.box, source.generation, journal, tuple(results), problem, tuple(unsealed), tuple(warnings))


def _journal_and_logs(source: BoxSource, store: EvidenceStore, warnings: list[str]) -> Journal:
    """The journal; and the box's own logs, also where the journal does not read: they may say why."""
    before = box_logs.known(store, source.box, source.generation)
    box_logs.prefetch_logs(source.channel, before)
    try:
        journal = _journal_of(source, store)
    except (JournalDamaged, EvidenceDamaged):
        warnings += box_logs.copy(source.channel, before, store, "").problems
        raise
    warnings += box_logs.copy(source.channel, before, store, journal.head).problems
    return journal


def _journal_of(source: BoxSource, store: EvidenceStore) -> Journal:
    if source.volume_only:
        return store.journal(source.box, source.generation) or Journal()
    try:
        data = source.channel.read(box_layout.JOURNAL)
    except FileNotFoundError:
        data = b""
    return store.write_journal(source.box, source.generation, data)


@contextmanager
def only_one(store: EvidenceStore) -> Iterator[None]:
    """Holds the evidence's workplace on this machine. Raises EvidenceError while another pull holds it, and where
    that can't be written."""
    try:
        store.workplace.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(store.workplace / ".pull.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise EvidenceError(f"{store.workplace} can't be written: {error.strerror}; nothing was pulled") from error
    try:
        if not take(descriptor):
            raise EvidenceError(f"another pull into {store.shown} is running; wait for it")
        yield
    finally:
        os.close(descriptor)
