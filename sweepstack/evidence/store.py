"""The evidence of one sweep in one place: records, receipts, journals, code, pulled cells.

Its records are read with a check, written whole, never over another process's write.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, unquote

from sweepstack.core.journal import Journal, LastLook, Rest, parse_journal
from sweepstack.core.records import Approval, Birth, Launch, Lease, LedgerEntry, Loss, Receipt, Record, Teardown
from sweepstack.evidence import location
from sweepstack.evidence.cell_store import Copies, FolderCopies, Known
from sweepstack.evidence.changing_copies import SUPERSEDED, write_once
from sweepstack.evidence.file_index import read_index
from sweepstack.evidence.location import Marker, RecordT, parse_record
from sweepstack.evidence.object_store import ABSENT, FolderStore, Held, ObjectStore
from sweepstack.evidence.s3.cell_store import S3Copies
from sweepstack.evidence.s3.object_store import S3Store, Traffic
from sweepstack.onbox.common.canonical import (
    DIGEST,
    DIGEST_PREFIX,
    canonical_json,
    digest_of,
    digest_of_bytes,
    hex_of,
    sha256_hex,
)
from sweepstack.onbox.common.errors import (
    EvidenceChanged,
    EvidenceDamaged,
    EvidenceError,
    EvidenceMissing,
    JournalDamaged,
)
from sweepstack.onbox.common.xdg import cache_folder
from sweepstack.platforms.common.s3_client import PARALLEL

_LATEST = f"{location.RECORDS}/latest-receipt"
_LEASE = f"{location.RECORDS}/lease.json"
_TEARDOWN = "teardown.json"
_TRIES = 10

AnswerT = TypeVar("AnswerT")
_WRITE_TRIES = 10


class RecordFiles:
    """Remembers what it read of each key: a contested record is written over that, or taken away, and nothing else.

    EvidenceChanged is raised where another process was faster.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self.objects = objects
        self._tags: dict[str, str] = {}

    def record(self, name: str, kind: type[RecordT]) -> RecordT | None:
        """The record under `records/<name>` (such as `retries.json`), or None when there is none."""
        return self._one(f"{location.RECORDS}/{name}", kind)

    def records(self, folder: str, kind: type[RecordT]) -> list[RecordT]:
        """All records (`*.json`) directly below `records/<folder>/`, by name."""
        return self._all(folder, kind)

    def readable(self, folder: str, kind: type[RecordT]) -> tuple[list[RecordT], list[tuple[str, str]]]:
        """The same as far as they read, and (file name, why) of those that don't."""

        def ask(name: str) -> RecordT | str | None:
            try:
                return self._one(f"{location.RECORDS}/{folder}/{name}", kind)
            except EvidenceDamaged as error:
                return str(error)

        names = self._listed(folder)
        found = self._each(ask, names)
        damaged = [(name, why) for name, why in zip(names, found, strict=True) if isinstance(why, str)]
        return [record for record in found if record is not None and not isinstance(record, str)], damaged

    def write_record(self, name: str, record: Record | None) -> None:
        """Writes `records/<name>`; None takes it away. EvidenceChanged when it is not what this object read last."""
        self._write(f"{location.RECORDS}/{name}", record, contested=True)

    def update_record(self, name: str, kind: type[RecordT], change: Callable[[RecordT | None], RecordT | None]) -> None:
        """Writes what `change` makes of `records/<name>`; asks it again when another process was faster.
        Writes nothing where it changes nothing. Raises EvidenceChanged when another one was faster each time."""
        for left in reversed(range(_WRITE_TRIES)):
            before = self.record(name, kind)
            after = change(before)
            if after == before:
                return
            try:
                self.write_record(name, after)
                return
            except EvidenceChanged:
                if not left:
                    raise

    def _held(self, key: str) -> Held | None:
        """None only when the key is proved not to be there while the evidence is."""
        held = self.objects.read(key)
        if held is None:
            location.require_marker(self.objects)
        self._tags[key] = held.tag if held else ABSENT
        return held

    def _read(self, key: str) -> bytes | None:
        held = self._held(key)
        return None if held is None else held.data

    def _one(self, key: str, kind: type[RecordT]) -> RecordT | None:
        data = self._read(key)
        return None if data is None else parse_record(kind, data, self.objects.shown(key))

    def _all(self, folder: str, kind: type[RecordT]) -> list[RecordT]:
        names = self._listed(folder)
        found = self._ones([f"{location.RECORDS}/{folder}/{name}" for name in names], kind)
        return [record for record in found if record is not None]

    def _listed(self, folder: str) -> list[str]:
        """Names of the records of one kind. None at all is believed only while the evidence itself is there."""
        names = [name for name in self.objects.names(f"{location.RECORDS}/{folder}") if name.endswith(".json")]
        if not names:
            location.require_marker(self.objects)
        return names

    def _write(self, key: str, record: Record | None, *, contested: bool = False) -> None:
        location.require_marker(self.objects)  # a folder that vanished must not be made anew, half empty
        over = self._tags.get(key) if contested else None
        if record is None:
            self.objects.remove(key, over=over)
            self._tags[key] = ABSENT
            return
        self._tags[key] = self.objects.write(key, location.written_record(record), over=over)

    def _ones(self, keys: list[str], kind: type[RecordT]) -> list[RecordT | None]:
        return self._each(lambda key: self._one(key, kind), keys)

    def _each(self, ask: Callable[[str], AnswerT], names: Iterable[str]) -> list[AnswerT]:
        """`ask` of each, in order; side by side where the store is far away."""
        if not isinstance(self.objects, S3Store):
            return [ask(name) for name in names]
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(PARALLEL) as pool:
            return list(pool.map(ask, names))


class EvidenceStore(RecordFiles):
    """See the module. Reads raise EvidenceDamaged for a record that does not parse and EvidenceError where that can't
    know; writes are whole or not there, idempotent, and last. No method costs money.

    Records that two people may write (births, lease, teardown) are written only over what this object read of them
    last: EvidenceChanged, when another process wrote meanwhile.
    """

    workplace: Path
    """A folder of this machine for what is under way: the evidence itself where that is a folder, else a cache."""

    def __init__(self, objects: ObjectStore, marker: Marker) -> None:
        super().__init__(objects)
        self.marker = marker
        self.copies: Copies
        if isinstance(objects, S3Store):
            self.workplace = cache_folder() / "evidence" / marker.identity
            self.copies = S3Copies(objects, self.workplace, self._known_files)
        else:
            self.workplace = _folder(objects)
            self.copies = FolderCopies(self.workplace / location.CELLS)

    @classmethod
    def open(cls, uri: str) -> EvidenceStore:
        """The evidence at `uri` (`file://<host>/<absolute path>` or `s3://<bucket>/<prefix>`).

        Raises EvidenceElsewhere (another host), EvidenceMissing (nothing, or no marker in it), EvidenceDamaged,
        EvidenceError (unknown: no answer, wrong keys).
        """
        objects = location.object_store_at(uri)
        return cls(objects, location.require_marker(objects))

    @classmethod
    def found(cls, uri: str, identity: str, project: str, stack: str) -> EvidenceStore:
        """Claims the place at `uri` for a sweep, making it where needed. Idempotent for the same sweep.

        Raises EvidenceError when it is another sweep's, or holds evidence without a marker.
        """
        objects = location.object_store_at(uri)
        return cls(objects, location.make_marker(objects, identity, project, stack))

    @staticmethod
    def read_marker(uri: str) -> Marker | None:
        """Whose evidence is at `uri`; None when there is no marker there, or no such folder on this host."""
        return location.read_marker(location.object_store_at(uri))

    @property
    def shown(self) -> str:
        """Where it is, for people."""
        return self.objects.shown()

    @property
    def root(self) -> Path:
        """The folder, where it is one. Raises EvidenceError for another place: use the other methods for records."""
        return _folder(self.objects)

    def writable(self) -> bool:
        """Whether its folder can be written, as far as that can be told without a try: of another place, always."""
        return self.traffic is not None or os.access(self.root, os.W_OK | os.X_OK)

    # Boxes

    def births(self) -> list[Birth]:
        """All boxes that were ever rented, or tried to be, by box and generation."""
        return sorted(self._all("births", Birth), key=lambda birth: (birth.box, birth.generation))

    def birth(self, box: str, generation: int) -> Birth | None:
        """The birth record of one generation of a box, or None when there is none."""
        return self._one(self._record("births", box, generation), Birth)

    def write_birth(self, birth: Birth) -> None:
        """Writes the birth record of its box and generation.

        Where another process wrote it since it was read here, an id and an end that stand there are kept; another id
        than ours raises EvidenceChanged.
        """
        key = self._record("births", birth.box, birth.generation)
        for left in reversed(range(_TRIES)):
            try:
                self._write(key, birth, contested=True)
                return
            except EvidenceChanged:
                theirs = self._one(key, Birth)
                if not left or (theirs and not _same_box(theirs, birth)):
                    raise
                if theirs is not None:
                    birth = birth.model_copy(
                        update={
                            "native_id": birth.native_id or theirs.native_id,
                            "created_at": birth.created_at or theirs.created_at,
                            "ended_at": birth.ended_at or theirs.ended_at,
                            "ended_how": birth.ended_how or theirs.ended_how,
                        }
                    )

    def launches(self) -> list[Launch]:
        """What each box's queue was given, by box and generation."""
        return sorted(self._all("launches", Launch), key=lambda launch: (launch.box, launch.generation))

    def launch(self, box: str, generation: int) -> Launch | None:
        """The launch record of one generation of a box, or None when nothing was ever launched on it."""
        return self._one(self._record("launches", box, generation), Launch)

    def forget_birth(self, birth: Birth) -> None:
        """Removes a record that was written before a request that never went out, if it still stands as it is here."""
        name = self._record("births", birth.box, birth.generation).partition("/")[2]
        self.update_record(name, Birth, lambda now: None if now == birth else now)

    def write_launch(self, launch: Launch) -> None:
        """Writes the launch record of its box and generation."""
        self._write(self._record("launches", launch.box, launch.generation), launch)

    def rest(self, box: str, generation: int) -> Rest | None:
        """What is known of the end of a box's runner, or None when it was never ended for a stop."""
        return self._one(self._record("rests", box, generation), Rest)

    def write_rest(self, rest: Rest) -> None:
        """Writes it for its box and generation."""
        self._write(self._record("rests", rest.box, rest.generation), rest)

    def journal_at_rest(self, box: str, generation: int, native_id: str) -> Journal | None:
        """The copy of the journal of this very box, if it is the whole of it: our stop ended its runner, and nothing
        was started there since. Else None. Raises EvidenceError, JournalDamaged."""
        rest, journal = self.rest(box, generation), self.journal(box, generation)
        return journal if rest is not None and journal is not None and rest.speaks_for(native_id, journal) else None

    def look(self, rest: Rest) -> LastLook | None:
        """The look that `rest` names; its digest is worked out from its bytes. None where there is none. Raises
        EvidenceMissing, EvidenceDamaged."""
        if rest.look is None:
            return None
        key = self._record("looks", rest.box, rest.generation)
        data = self._read(key)
        if data is None:
            raise EvidenceMissing(f"{self.objects.shown(key)} is not there: what was read before the stop is not known")
        if digest_of_bytes(data) != rest.look:
            raise EvidenceDamaged(f"{self.objects.shown(key)} was edited or damaged: it is not what the stop wrote")
        return parse_record(LastLook, data, self.objects.shown(key))

    def write_look(self, look: LastLook) -> str:
        """Writes what was read before a stop, for its box and generation. Returns its digest."""
        self._write(self._record("looks", look.box, look.generation), look)
        return digest_of_bytes(location.written_record(look))

    def losses(self) -> list[Loss]:
        """Cells that are gone for good, by box and native id."""
        return sorted(self._all("losses", Loss), key=lambda loss: (loss.box, loss.native_id))

    def write_loss(self, loss: Loss) -> None:
        """Writes what was lost with one box."""
        self._write(f"{location.RECORDS}/losses/{loss.box}-{quote(loss.native_id, safe='')}.json", loss)

    def ledger(self, native_id: str | None = None) -> tuple[list[LedgerEntry], list[tuple[str, str]]]:
        """The entries of the ledger, or of one native id, and (native id, why) of those that don't read; `billing`
        adds them up."""
        names = [name for name in self._listed("ledger") if native_id in (None, _whose(name))]
        found = self._each(self._ledger_entry, names)
        entries = [entry for entry in found if isinstance(entry, LedgerEntry)]
        damaged = [(_whose(name), entry) for name, entry in zip(names, found, strict=True) if isinstance(entry, str)]
        return entries, damaged

    def _ledger_entry(self, name: str) -> LedgerEntry | str | None:
        """One entry, or why it doesn't read; None where it is not there any more."""
        try:
            return self._one(f"{location.RECORDS}/ledger/{name}", LedgerEntry)
        except EvidenceDamaged as error:
            return str(error)

    def write_ledger(self, entry: LedgerEntry) -> None:
        """Adds one entry, under a name made of its content: the same twice is one file, and none replaces another."""
        digest = hex_of(digest_of(entry.model_dump(mode="json")))[:16]
        self._write(f"{location.RECORDS}/ledger/{quote(entry.native_id, safe='')}--{digest}.json", entry)

    def clearance(self, native_id: str) -> Approval | None:
        """The approval that `up` checked and cleared this box with, or None. Proves nothing: it is checked again."""
        return self._one(_clearance(native_id), Approval)

    def write_clearance(self, native_id: str, approval: Approval | None) -> None:
        """Keeps what a box was cleared with, for deletes that the program can't hand it to; None forgets it."""
        self._write(_clearance(native_id), approval)

    # The sweep as a whole

    def teardown(self) -> Teardown | None:
        """The open teardown, or None."""
        return self.record(_TEARDOWN, Teardown)

    def write_teardown(self, teardown: Teardown | None) -> None:
        """Writes the open teardown; None closes it."""
        self.write_record(_TEARDOWN, teardown)

    def update_teardown(self, change: Callable[[Teardown | None], Teardown | None]) -> None:
        """Writes what `change` makes of the open teardown; asks it again when another process was faster."""
        self.update_record(_TEARDOWN, Teardown, change)

    def lease(self) -> Lease | None:
        """Which backend's state holds the sweep, or None."""
        return self._one(_LEASE, Lease)

    def write_lease(self, lease: Lease) -> None:
        """Writes who holds the sweep. Says nothing about who held it before: read first."""
        self._write(_LEASE, lease, contested=True)

    def release_lease(self) -> None:
        """No backend holds the sweep any more."""
        self._write(_LEASE, None)

    # Code

    def write_code(self, digest: str, archive: bytes) -> None:
        """Keeps the archive of one version of the code, by the digest of its content. Idempotent; never changed."""
        key = _code(digest)
        location.require_marker(self.objects)
        if self.objects.read(key) is None:
            try:
                self.objects.write(key, archive, over=ABSENT)
            except EvidenceChanged:  # another process kept the same version
                return

    def read_code(self, digest: str) -> bytes | None:
        """The archive of one version of the code, or None. What is in it has to be compared with `digest` again."""
        return self._read(_code(digest))

    def codes(self) -> list[str]:
        """The versions of the code that are kept (`sha256:<hex>`), sorted."""
        names = self.objects.names(location.CODE)
        return [DIGEST_PREFIX + name.removesuffix(".tar") for name in names if name.endswith(".tar")]

    # Receipts

    def receipt(self, digest: str) -> Receipt:
        """The receipt of that digest, which is recomputed from the bytes. EvidenceMissing, EvidenceDamaged."""
        key = _receipt(digest)
        data = self._read(key)
        if data is None:
            raise EvidenceMissing(f"the receipt {digest} is not in {self.shown}")
        if digest_of_bytes(data) != digest:
            raise EvidenceDamaged(
                f"{self.objects.shown(key)} was edited or damaged: its content is not what its name says"
            )
        return self._parsed_receipt(digest, data, self.objects.shown(key))

    @staticmethod
    @lru_cache(maxsize=2)
    def _parsed_receipt(digest: str, data: bytes, where: str) -> Receipt:
        """The digest is of these very bytes, and a receipt is frozen: one command parses it once, not for every box."""
        receipt = parse_record(Receipt, data, where)
        vars(receipt)["digest"] = digest  # what the property would work out, from bytes that were hashed just now
        return receipt

    def write_receipt(self, receipt: Receipt) -> str:
        """Writes the receipt under its digest, which is returned, and makes it the latest."""
        data = canonical_json(receipt.model_dump(mode="json", by_alias=True))
        digest = digest_of_bytes(data)
        location.require_marker(self.objects)  # verifying takes minutes: a folder may be published meanwhile
        if not self._has(_receipt(digest), data):
            self.objects.write(_receipt(digest), data)
        self.objects.write(_LATEST, digest.encode() + b"\n")
        return digest

    def _has(self, key: str, data: bytes) -> bool:
        """Whether these bytes are there. What can't be read is written again."""
        try:
            return self._read(key) == data
        except EvidenceError:
            return False

    def latest_receipt(self) -> str | None:
        """The digest of the receipt written last, or None. A convenience: what counts is what was approved."""
        data = self._read(_LATEST)
        if data is None:
            return None
        digest = data.decode("ascii", "replace").strip()
        if not DIGEST.fullmatch(digest):
            raise EvidenceDamaged(f"{self.objects.shown(_LATEST)} is damaged; `sweepctl verify` writes it again")
        return digest

    def receipts_naming(self, native_id: str) -> list[str]:
        """The digests of all receipts in which this native id stands, sorted. Reads all that there are."""
        names = [name.removesuffix(".json") for name in self.objects.names(location.RECEIPTS) if name.endswith(".json")]
        digests = [DIGEST_PREFIX + name for name in sorted(names) if DIGEST.fullmatch(DIGEST_PREFIX + name)]
        word = canonical_json(native_id)
        found = self._each(lambda digest: word in (self._read(_receipt(digest)) or b""), digests)
        return [digest for digest, named in zip(digests, found, strict=True) if named]

    # Pulled cells and journals

    def journal_path(self, box: str, generation: int) -> Path:
        """Where the last kept copy of a box's journal lies, in a folder."""
        return self.root / _journal(box, generation)

    def cell_dir(self, name: str) -> Path:
        """Where the pulled copy of a cell lies, in a folder. `copies` reads them wherever the evidence is."""
        return FolderCopies(self.root / location.CELLS).folder(name)

    def journal(self, box: str, generation: int) -> Journal | None:
        """The last kept copy of a box's journal, or None. Raises JournalDamaged."""
        data = self._read(_journal(box, generation))
        return None if data is None else parse_journal(data)

    def write_journal(self, box: str, generation: int, data: bytes) -> Journal:
        """Keeps a copy of a box's journal; an older copy is replaced only by its continuation.

        Raises JournalDamaged when `data` is no journal, EvidenceDamaged when it does not continue the copy.
        """
        journal = parse_journal(data)
        key = _journal(box, generation)
        for left in reversed(range(_TRIES)):
            held = self._held(key)
            grown = held is not None and journal.data.startswith(held.data)  # so it is proved already
            if grown and held is not None and len(held.data) == len(journal.data):
                break
            try:
                before = None if held is None or grown else parse_journal(held.data)
            except JournalDamaged:  # our copy was hurt here; the box's own is whole, and may be shorter
                before = None
                assert held is not None
                write_once(self.objects, f"{SUPERSEDED}/{key}.{sha256_hex(held.data)[:12]}", held.data)
            if before is not None and left < _TRIES - 1 and before.continues(journal):
                break  # another process wrote a later copy meanwhile
            if before is not None and not journal.continues(before):
                raise EvidenceDamaged(
                    f"the journal of {box} (generation {generation}) does not continue the copy kept before, "
                    f"{self.objects.shown(key)}: it was cut or written again, and the copy is kept"
                )
            if before is not None and before.head == journal.head:
                break
            try:
                self.objects.write(key, journal.data, over=held.tag if held else ABSENT)
                break
            except EvidenceChanged:
                if not left:
                    raise
        return journal

    def keep_journal(self, box: str, generation: int, journal: Journal) -> None:
        """Keeps what a look has read of a box's journal, where the copy is shorter; else it costs no more than to ask
        how long the copy is. Raises as `write_journal`."""
        held = self.objects.size(_journal(box, generation)) or 0
        if len(journal.data) > held:
            self.write_journal(box, generation, journal.data)

    @property
    def traffic(self) -> Traffic | None:
        """What was moved over the line through this object, and what was spared; None for a folder."""
        return self.objects.traffic if isinstance(self.objects, S3Store) else None

    def _known_files(self) -> Mapping[str, Known]:
        """What the last verifying wrote down of files. A convenience: without it they are read again."""
        try:
            latest = self.latest_receipt()
            return read_index(self.objects, self.receipt(latest)) if latest else {}
        except EvidenceError:
            return {}

    def _record(self, kind: str, box: str, generation: int) -> str:
        return record_file(kind, box, generation)


def record_file(kind: str, box: str, generation: int) -> str:
    """The file of one generation of a box in the evidence: `records/births/box-0-g1.json`."""
    return f"{location.RECORDS}/{kind}/{box}-g{generation}.json"


def _folder(objects: ObjectStore) -> Path:
    if not isinstance(objects, FolderStore):
        raise EvidenceError(f"{objects.shown()} is not a folder")
    return objects.root


def _same_box(one: Birth, other: Birth) -> bool:
    return one.tag == other.tag and (None in (one.native_id, other.native_id) or one.native_id == other.native_id)


def _whose(name: str) -> str:
    """The native id that the name of a ledger entry begins with."""
    return unquote(name.rpartition("--")[0])


def _clearance(native_id: str) -> str:
    return f"{location.RECORDS}/clearances/{quote(native_id, safe='')}.json"


def _journal(box: str, generation: int) -> str:
    return f"{location.JOURNALS}/{box}-g{generation}.jsonl"


def _code(digest: str) -> str:
    return f"{location.CODE}/{_hex(digest, 'code')}.tar"


def _receipt(digest: str) -> str:
    return f"{location.RECEIPTS}/{_hex(digest, 'receipt')}.json"


def _hex(digest: str, what: str) -> str:
    if not DIGEST.fullmatch(digest):
        raise EvidenceError(f"{digest!r} is no {what} digest (sha256:<64 hex>)")
    return hex_of(digest)
