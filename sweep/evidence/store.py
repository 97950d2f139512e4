"""The evidence of one sweep in one folder: records, receipts, journals, pulled cells. Everything appears by rename."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote, unquote

from sweep.canonical import (
    DIGEST_PREFIX,
    canonical_json,
    digest_of,
    fsync_directory,
    sha256_hex,
    write_atomically,
    write_json_atomically,
)
from sweep.errors import EvidenceDamaged, EvidenceError, EvidenceMissing, JournalDamaged
from sweep.evidence import files, place
from sweep.evidence.place import Marker, RecordT, parse_record
from sweep.journal import Journal, parse_journal, whole_lines
from sweep.model import Approval, Birth, Launch, Lease, LedgerEntry, Loss, Receipt, Record, Teardown

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LATEST = "latest-receipt"


class EvidenceStore:
    """See the module. Reads raise EvidenceDamaged for a record that does not parse and EvidenceError for a folder that
    can't be read; writes are atomic, idempotent, and fsync'd. No method costs money or talks to a network."""

    def __init__(self, root: Path, marker: Marker) -> None:
        self.root = root
        self.marker = marker

    @classmethod
    def open(cls, uri: str) -> EvidenceStore:
        """The evidence at `uri` (`file://<host>/<absolute path>`).

        Raises EvidenceElsewhere (another host), EvidenceMissing (no folder, or no marker in it), EvidenceDamaged.
        """
        root = place.resolve(uri)
        return cls(root, place.require_marker(root))

    @classmethod
    def found(cls, uri: str, identity: str, project: str, stack: str) -> EvidenceStore:
        """Claims the folder at `uri` for a sweep, making it where needed. Idempotent for the same sweep.

        Raises EvidenceError when it is another sweep's, or holds evidence without a marker.
        """
        root = place.resolve(uri)
        return cls(root, place.make_marker(root, identity, project, stack))

    @staticmethod
    def read_marker(uri: str) -> Marker | None:
        """Whose evidence is at `uri`; None when that folder holds no marker, or is not there on this host."""
        return place.read_marker(place.resolve(uri))

    # Boxes

    def births(self) -> list[Birth]:
        """All boxes that were ever rented, or tried to be, by box and generation."""
        return sorted(self._all("births", Birth), key=lambda birth: (birth.box, birth.generation))

    def birth(self, box: str, generation: int) -> Birth | None:
        """The birth record of one generation of a box, or None when there is none."""
        return self._one(self._record("births", box, generation), Birth)

    def write_birth(self, birth: Birth) -> None:
        """Writes the birth record of its box and generation."""
        self._write(self._record("births", birth.box, birth.generation), birth)

    def launches(self) -> list[Launch]:
        """What each box's queue was given, by box and generation."""
        return sorted(self._all("launches", Launch), key=lambda launch: (launch.box, launch.generation))

    def launch(self, box: str, generation: int) -> Launch | None:
        """The launch record of one generation of a box, or None when nothing was ever launched on it."""
        return self._one(self._record("launches", box, generation), Launch)

    def write_launch(self, launch: Launch) -> None:
        """Writes the launch record of its box and generation."""
        self._write(self._record("launches", launch.box, launch.generation), launch)

    def losses(self) -> list[Loss]:
        """Cells that are gone for good, by box and native id."""
        return sorted(self._all("losses", Loss), key=lambda loss: (loss.box, loss.native_id))

    def write_loss(self, loss: Loss) -> None:
        """Writes what was lost with one box."""
        self._write(self._records("losses") / f"{loss.box}-{quote(loss.native_id, safe='')}.json", loss)

    def ledger(self) -> tuple[list[LedgerEntry], list[tuple[str, str]]]:
        """All entries of the ledger, and (native id, why) of those that don't read; `sweep.money` adds them up."""
        entries: list[LedgerEntry] = []
        damaged: list[tuple[str, str]] = []
        for path in self._listed("ledger"):
            try:
                entry = self._one(path, LedgerEntry)
            except EvidenceDamaged as error:
                damaged.append((unquote(path.name.rpartition("--")[0]), str(error)))
                continue
            if entry is not None:
                entries.append(entry)
        return entries, damaged

    def write_ledger(self, entry: LedgerEntry) -> None:
        """Adds one entry, under a name made of its content: the same twice is one file, and none replaces another."""
        digest = digest_of(entry.model_dump(mode="json")).removeprefix(DIGEST_PREFIX)[:16]
        self._write(self._records("ledger") / f"{quote(entry.native_id, safe='')}--{digest}.json", entry)

    def clearance(self, native_id: str) -> Approval | None:
        """The approval that `up` checked and cleared this box with, or None. Proves nothing: it is checked again."""
        return self._one(self._clearance_path(native_id), Approval)

    def write_clearance(self, native_id: str, approval: Approval | None) -> None:
        """Keeps what a box was cleared with, for deletes that the program can't hand it to; None forgets it."""
        self._write(self._clearance_path(native_id), approval)

    def _clearance_path(self, native_id: str) -> Path:
        return self._records("clearances") / f"{quote(native_id, safe='')}.json"

    # The sweep as a whole

    def teardown(self) -> Teardown | None:
        """The open teardown, or None."""
        return self._one(self._records("teardown.json"), Teardown)

    def write_teardown(self, teardown: Teardown | None) -> None:
        """Writes the open teardown; None closes it."""
        self._write(self._records("teardown.json"), teardown)

    def lease(self) -> Lease | None:
        """Which backend's state holds the sweep, or None."""
        return self._one(self._records("lease.json"), Lease)

    def write_lease(self, lease: Lease) -> None:
        """Writes who holds the sweep. Says nothing about who held it before: read first."""
        self._write(self._records("lease.json"), lease)

    def release_lease(self) -> None:
        """No backend holds the sweep any more."""
        self._write(self._records("lease.json"), None)

    # Receipts

    def receipt(self, digest: str) -> Receipt:
        """The receipt of that digest, which is recomputed from the bytes. EvidenceMissing, EvidenceDamaged."""
        path = self._receipt_path(digest)
        data = self._read(path)
        if data is None:
            raise EvidenceMissing(f"the receipt {digest} is not in {self.root}")
        if DIGEST_PREFIX + sha256_hex(data) != digest:
            raise EvidenceDamaged(f"{path} was edited or damaged: its content is not what its name says")
        return parse_record(Receipt, data, path)

    def write_receipt(self, receipt: Receipt) -> str:
        """Writes the receipt under its digest, which is returned, and makes it the latest."""
        data = canonical_json(receipt.model_dump(mode="json", by_alias=True))
        digest = DIGEST_PREFIX + sha256_hex(data)
        path = self._receipt_path(digest)
        if self._read(path) != data:
            write_atomically(path, data)
        write_atomically(self._records(_LATEST), digest.encode() + b"\n")
        return digest

    def latest_receipt(self) -> str | None:
        """The digest of the receipt written last, or None. A convenience: what counts is what was approved."""
        path = self._records(_LATEST)
        data = self._read(path)
        if data is None:
            return None
        digest = data.decode("ascii", "replace").strip()
        if not _DIGEST.fullmatch(digest):
            raise EvidenceDamaged(f"{path} is damaged; `sweepctl verify` writes it anew")
        return digest

    # Pulled cells and journals

    def cell_dir(self, name: str) -> Path:
        """Where the pulled copy of a cell lies. `name` must be a plain cell name."""
        if not name or name in (".", "..") or "/" in name or "\0" in name:
            raise EvidenceError(f"{name!r} is no cell name")
        return self.root / place.CELLS / name

    def journal_path(self, box: str, generation: int) -> Path:
        """Where the last pulled copy of a box's journal lies."""
        return self.root / place.JOURNALS / f"{box}-g{generation}.jsonl"

    def journal(self, box: str, generation: int) -> Journal | None:
        """The last pulled copy of a box's journal, or None. Raises JournalDamaged."""
        data = self._read(self.journal_path(box, generation))
        return None if data is None else parse_journal(data)

    def write_journal(self, box: str, generation: int, data: bytes) -> Journal:
        """Keeps a copy of a box's journal; an older copy is replaced only by its continuation.

        Raises JournalDamaged when `data` is no journal, EvidenceDamaged when it does not continue the copy.
        """
        journal = parse_journal(data)
        try:
            before = self.journal(box, generation)
        except JournalDamaged:  # our copy was hurt here; the box's own is whole, and replaces it
            before = None
        if before is not None and not journal.continues(before):
            raise EvidenceDamaged(
                f"the journal of {box} (generation {generation}) does not continue the copy pulled before, "
                f"{self.journal_path(box, generation)}: it was cut or written anew, and the copy is kept"
            )
        if before is None or before.head != journal.head:
            write_atomically(self.journal_path(box, generation), whole_lines(data))
        return journal

    def check_files(self, receipt: Receipt, cells: Iterable[str], *, full: bool) -> list[str]:
        """Why the pulled copies of `cells` are not what the receipt says; empty when they are.

        `full` hashes every file again. Otherwise size and mtime decide, by an index written when verifying; a file of
        which the index knows nothing, or whose mtime moved, is hashed. Changes nothing.
        """
        return files.check_files(self, receipt, cells, full=full)

    # Files

    def _records(self, name: str) -> Path:
        return self.root / place.RECORDS / name

    def _record(self, kind: str, box: str, generation: int) -> Path:
        return self._records(kind) / f"{box}-g{generation}.json"

    def _receipt_path(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise EvidenceError(f"{digest!r} is no receipt digest (sha256:<64 hex>)")
        return self.root / place.RECEIPTS / f"{digest.removeprefix(DIGEST_PREFIX)}.json"

    def _read(self, path: Path) -> bytes | None:
        """None only when the file is proved not to be there while the evidence is."""
        try:
            return path.read_bytes()
        except FileNotFoundError:
            place.require_marker(self.root)
            return None
        except OSError as error:
            raise EvidenceError(f"{path} can't be read: {error.strerror}") from error

    def _one(self, path: Path, kind: type[RecordT]) -> RecordT | None:
        data = self._read(path)
        return None if data is None else parse_record(kind, data, path)

    def _all(self, folder: str, kind: type[RecordT]) -> list[RecordT]:
        return [record for path in self._listed(folder) if (record := self._one(path, kind)) is not None]

    def _listed(self, folder: str) -> list[Path]:
        try:
            names = sorted(os.listdir(self._records(folder)))
        except FileNotFoundError:
            place.require_marker(self.root)
            return []
        except OSError as error:
            raise EvidenceError(f"{self._records(folder)} can't be read: {error.strerror}") from error
        return [self._records(folder) / name for name in names if name.endswith(".json") and not name.startswith(".")]

    def _write(self, path: Path, record: Record | None) -> None:
        place.require_marker(self.root)  # a folder that vanished must not be made anew, half empty
        try:
            if record is not None:
                write_json_atomically(path, record.model_dump(mode="json", by_alias=True))
            elif path.exists():
                path.unlink()
                fsync_directory(path.parent)
        except OSError as error:
            raise EvidenceError(f"{path} can't be written: {error.strerror}") from error
