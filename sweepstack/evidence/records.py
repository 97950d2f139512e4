"""The evidence's records: read with a check, written whole, never over another process's write."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sweepstack.core.records import Record
from sweepstack.evidence import location
from sweepstack.evidence.location import RecordT, parse_record
from sweepstack.evidence.object_store import ABSENT, Held, ObjectStore
from sweepstack.evidence.s3.object_store import S3Store
from sweepstack.onbox.common.errors import EvidenceChanged, EvidenceDamaged
from sweepstack.platforms.common.s3_client import PARALLEL

AnswerT = TypeVar("AnswerT")
_TRIES = 10


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
        for left in reversed(range(_TRIES)):
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

        with ThreadPoolExecutor(PARALLEL) as pool:
            return list(pool.map(ask, names))
