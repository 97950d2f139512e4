"""Where evidence lies, and the marker that says whose it is.

It may lie on a box that is about to end, or have been moved to another folder: both are told.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import ConfigDict, Field, ValidationError
from pydantic_core import from_json

from sweepstack.core import schema, this_host
from sweepstack.core.bucket_address import SCHEME, S3Address
from sweepstack.core.records import SCHEMA as SCHEMA_VERSION
from sweepstack.core.records import Digest, Record
from sweepstack.core.workdir import EVIDENCE_MARKER
from sweepstack.evidence.object_store import ABSENT, FolderStore, ObjectStore
from sweepstack.evidence.s3.object_store import S3Store
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common.canonical import canonical_json
from sweepstack.onbox.common.errors import (
    EvidenceChanged,
    EvidenceDamaged,
    EvidenceElsewhere,
    EvidenceError,
    EvidenceMissing,
    EvidenceMoved,
)

MARKER = EVIDENCE_MARKER
MOVED = "moved-to.json"
PUBLISHED = "published.json"
CELLS = "cells"
CODE = "code"
JOURNALS = "journals"
RECEIPTS = "receipts"
RECORDS = "records"
_SCHEME = "file://"

RecordT = TypeVar("RecordT", bound=Record)

MOST_BESIDE = 200
"""So many folders beside the place are looked at."""


class Marker(Record):
    """Whose evidence a place holds. Written once."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)

    schema_: Literal[1] = Field(alias="schema", default=1)
    identity: str
    project: str
    stack: str
    created_at: datetime


def object_store_at(uri: str) -> ObjectStore:
    """The object store at `file://<host>/<absolute path>` or `s3://<bucket>/<prefix>`; it need not exist. Asks nothing.

    Raises EvidenceElsewhere when it is a folder of another host, EvidenceError when it is no such address.
    """
    if uri.startswith(SCHEME):
        return S3Store(S3Address.parse(uri))
    if not uri.startswith(_SCHEME):
        raise EvidenceError(f"{uri} is not an evidence folder (file://<host>/<path>), nor s3://<bucket>/<prefix>")
    host, slash, path = uri.removeprefix(_SCHEME).partition("/")
    if not host or not slash:
        raise EvidenceError(f"{uri} names no host and absolute path (file://<host>/<path>)")
    here, *earlier = this_host.names()
    if host not in (here, *earlier):
        raise EvidenceElsewhere(
            f"the evidence is a folder on the host {host} (/{path}), and this is {here}. Run the command there; or run "
            f"`sweepctl pull --to s3://<bucket>/<prefix>` there: it copies the evidence to object storage, for all "
            f"hosts. If this computer was {host} and was renamed: `sweepctl adopt --renamed-from {host}`"
        )
    return FolderStore(uri, Path("/" + path))


class MovedEvidence(Record):
    """Left in a folder whose evidence was published: no command may use it by mistake any more."""

    to: str
    identity: str
    at: datetime


class Published(Record):
    """Written to where evidence was published, when all of `source` had been found there by checksum."""

    source: str
    identity: str
    at: datetime
    objects: int
    bytes: int
    digest: Digest
    """Over the keys and SHA-256 of all objects."""


def read_marker(objects: ObjectStore) -> Marker | None:
    """The marker on `objects`; None when it, or the whole place, is proved not to be there.

    Raises EvidenceDamaged for one that does not read, EvidenceMoved, EvidenceError when that can't be known.
    """
    marker = marker_on(objects)
    moved = moved_on(objects) if marker is not None else None
    if moved is not None:
        raise EvidenceMoved(
            f"the evidence in {objects.shown()} moved to {moved.to} (published {moved.at:%Y-%m-%d %H:%M} UTC). Name "
            f"that as pull_to in the stack file, as `sweepctl pull --to` did; the next `pulumi up` makes the state "
            "follow"
        )
    return marker


def marker_on(objects: ObjectStore) -> Marker | None:
    """The same for evidence that may have moved on."""
    held = objects.read(MARKER)
    return None if held is None else parse_record(Marker, held.data, objects.shown(MARKER))


def moved_on(objects: ObjectStore) -> MovedEvidence | None:
    """Where the evidence on `objects` went, if it did."""
    held = objects.read(MOVED) if isinstance(objects, FolderStore) else None
    return None if held is None else parse_record(MovedEvidence, held.data, objects.shown(MOVED))


def require_marker(objects: ObjectStore) -> Marker:
    """The marker on `objects`. Raises EvidenceMissing: a place without one is unknown, not empty."""
    marker = read_marker(objects)
    if marker is None:
        why = objects.missing().format(MARKER)
        raise EvidenceMissing(f"the evidence {objects.shown()} {why}; without it nothing is known to be safe")
    return marker


def make_marker(objects: ObjectStore, identity: str, project: str, stack: str) -> Marker:
    """Claims `objects` for a sweep; two claims at once get one winner. Idempotent for the same sweep.

    Raises EvidenceError when the place is another sweep's, or holds evidence whose marker is lost, or can't keep two
    people from writing over each other.
    """
    before = read_marker(objects)
    if before is None:
        orphans = [name for name in (CELLS, CODE, JOURNALS, RECEIPTS, RECORDS) if objects.holds_any(name)]
        if orphans:
            raise EvidenceError(
                f"{objects.shown()} holds {', '.join(orphans)} and no {MARKER}: whose evidence this is can't be said. "
                f"Put the marker back, or move what is there away, or choose another pull_to"
            )
        before = Marker(identity=identity, project=project, stack=stack, created_at=datetime.now(UTC))
        try:
            objects.write(MARKER, canonical_json(before.model_dump(mode="json", by_alias=True)) + b"\n", over=ABSENT)
        except EvidenceChanged:
            before = require_marker(objects)
    if (before.identity, before.project, before.stack) != (identity, project, stack):
        raise EvidenceError(
            f"{objects.shown()} holds the evidence of {before.project}/{before.stack} ({before.identity}); "
            f"give {stack} its own pull_to"
        )
    if isinstance(objects, S3Store):  # each time: a refusal leaves the marker there
        objects.proves_conditions(MARKER)
    return before


def parse_record(kind: type[RecordT], data: bytes, where: str) -> RecordT:
    """The record in `data`. Raises EvidenceDamaged, which says where it was read, and whether a newer one wrote it."""
    raw: Any = None
    if b'"schema"' in data and "schema_" not in kind.model_fields:
        with contextlib.suppress(ValueError):
            raw = from_json(data)
    version = raw.pop(schema.KEY, None) if isinstance(raw, dict) else None
    if why := schema.why_too_new(version):
        raise EvidenceDamaged(f"{where} can't be read here: {why}")
    try:
        return kind.model_validate_json(data) if version is None else kind.model_validate(raw)
    except ValidationError as error:
        with contextlib.suppress(ValueError, AttributeError):
            why = schema.why_too_new(from_json(data).get(schema.KEY)) or schema.unknown(error)
            if why:
                raise EvidenceDamaged(f"{where} can't be read here: {why}") from error
        raise EvidenceDamaged(f"{where} is damaged: {schema.first(error)}") from error


def written_record(record: Record) -> bytes:
    """The bytes of a record, with the schema that it is of."""
    dumped = record.model_dump(mode="json", by_alias=True)
    return canonical_json({schema.KEY: SCHEMA_VERSION, **dumped}) + b"\n"


def evidence_on(channel: Channel, uri: str, tiers: tuple[str, ...]) -> tuple[str, str] | None:
    """The part of the box that the evidence at `uri`, or one of its folders, lies in, links resolved; and which folder
    that is, for people. None where it lies elsewhere, or on another machine.

    `tiers`: the box's own. Asks the box, where it is not on this machine for sure, only if the paths agree. Raises
    PlatformError, OSError where its answer is not known: then it may lie there.
    """
    try:
        objects = object_store_at(uri)
    except EvidenceError:
        return None
    if not isinstance(objects, FolderStore):
        return None
    roots = {tier: os.path.realpath(channel.absolute(tier)) for tier in tiers}
    roots[""] = os.path.realpath(os.path.dirname(channel.absolute(tiers[0])))
    for folder in _folders(str(objects.root)):
        below = _below(os.path.realpath(folder), roots)
        if below and _same(channel, below, folder):
            return below.split("/", 1)[0], folder
    return None


def moved_to(uri: str, identity: str, likely: Iterable[str | None]) -> tuple[Path, Path] | None:
    """Where the evidence of this sweep lies that is not at `uri` any more, and where it belongs. `likely`: places to
    look at; beside them each folder that lies beside `uri`. None if it is found nowhere, or is no folder of this host.
    Reads markers alone; raises nothing."""
    try:
        objects = object_store_at(uri)
    except EvidenceError:
        return None
    if not isinstance(objects, FolderStore) or os.path.lexists(objects.root):
        return None
    beside: list[str | None] = []
    with contextlib.suppress(OSError):
        beside = [f"{uri.rpartition('/')[0]}/{name}" for name in sorted(os.listdir(objects.root.parent))]
    for place in dict.fromkeys([*likely, *beside[:MOST_BESIDE]]):
        with contextlib.suppress(EvidenceError, OSError):
            there = object_store_at(place or "")
            marker = read_marker(there) if isinstance(there, FolderStore) else None
            if marker is not None and marker.identity == identity and isinstance(there, FolderStore):
                return there.root, objects.root
    return None


def _folders(root: str) -> Iterator[str]:
    yield root
    try:
        with os.scandir(root) as entries:
            yield from sorted(entry.path for entry in entries if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return


def _below(path: str, roots: Mapping[str, str]) -> str:
    """The same path as the box has it, empty where it is not below any of these."""
    for name, root in roots.items():
        if path == root or path.startswith(f"{root}/"):
            return f"{name}/{path[len(root) :]}".replace("//", "/").strip("/")
    return ""


def _same(channel: Channel, path: str, folder: str) -> bool:
    """Whether the box has the same names there: one on another machine may have a path that looks alike. Raises
    PlatformError, OSError where that can't be seen."""
    try:
        return {entry.name for entry in channel.listdir(path)} == set(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return False
