"""Where evidence lies: a folder on a named host, and the marker that says whose it is."""

from __future__ import annotations

import os
import secrets
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import ConfigDict, Field, ValidationError

from sweep.canonical import canonical_json, fsync_directory
from sweep.errors import EvidenceDamaged, EvidenceElsewhere, EvidenceError, EvidenceMissing
from sweep.model import Record

MARKER = "sweep.json"
CELLS = "cells"
JOURNALS = "journals"
RECEIPTS = "receipts"
RECORDS = "records"
_SCHEME = "file://"

RecordT = TypeVar("RecordT", bound=Record)


class Marker(Record):
    """Whose evidence a folder holds. Written once."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    schema_: Literal[1] = Field(alias="schema", default=1)
    identity: str
    project: str
    stack: str
    created_at: datetime


def resolve(uri: str) -> Path:
    """The folder of `file://<host>/<absolute path>`; it need not exist.

    Raises EvidenceElsewhere when the host is another one, EvidenceError when it is no such address.
    """
    if not uri.startswith(_SCHEME):
        raise EvidenceError(f"{uri} is not an evidence folder (file://<host>/<path>)")
    host, slash, path = uri.removeprefix(_SCHEME).partition("/")
    if not host or not slash:
        raise EvidenceError(f"{uri} names no host and absolute path (file://<host>/<path>)")
    here = socket.gethostname()
    if host != here:
        raise EvidenceElsewhere(
            f"the evidence is a folder on the host {host} (/{path}), and this is {here}. Run the command there, or run "
            f"`sweepctl publish` there, which copies the evidence to object storage (not in this version yet)"
        )
    return Path("/" + path)


def read_marker(root: Path) -> Marker | None:
    """The marker in `root`; None when the folder, or the marker in it, is proved not to be there.

    Raises EvidenceDamaged for one that does not read, EvidenceError when nobody can know.
    """
    path = root / MARKER
    try:
        return parse_record(Marker, path.read_bytes(), path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise EvidenceError(f"{path} can't be read: {error.strerror}") from error


def require_marker(root: Path) -> Marker:
    """The marker in `root`. Raises EvidenceMissing: a folder without one is unknown, not empty."""
    marker = read_marker(root)
    if marker is None:
        what = f"holds no {MARKER}" if root.is_dir() else "is not there"
        raise EvidenceMissing(
            f"the evidence folder {root} {what}: moved, deleted, or a disk that is not mounted? Put it back; without "
            f"it nothing is known to be safe"
        )
    return marker


def make_marker(root: Path, identity: str, project: str, stack: str) -> Marker:
    """Claims `root` for a sweep; two claims at once get one winner. Idempotent for the same sweep.

    Raises EvidenceError when the folder is another sweep's, or holds evidence whose marker is lost.
    """
    before = read_marker(root)
    if before is None:
        orphans = [name for name in (CELLS, JOURNALS, RECEIPTS, RECORDS) if (root / name).exists()]
        if orphans:
            raise EvidenceError(
                f"{root} holds {', '.join(orphans)} and no {MARKER}: whose evidence this is can't be said. Put the "
                f"marker back, or move the folder away, or choose another pull_to"
            )
        marker = Marker(identity=identity, project=project, stack=stack, created_at=datetime.now(UTC))
        before = _place_once(root, marker)
    if (before.identity, before.project, before.stack) != (identity, project, stack):
        raise EvidenceError(
            f"{root} holds the evidence of {before.project}/{before.stack} ({before.identity}); give {stack} its own "
            f"pull_to"
        )
    return before


def _place_once(root: Path, marker: Marker) -> Marker:
    try:
        root.mkdir(parents=True, exist_ok=True)
        temporary = root / f".{MARKER}.{secrets.token_hex(4)}.tmp"
        with temporary.open("xb") as handle:
            handle.write(canonical_json(marker.model_dump(mode="json", by_alias=True)) + b"\n")
            handle.flush()
            os.fsync(handle.fileno())
        try:
            os.link(temporary, root / MARKER)  # whole or not at all, and only if nobody was faster
        except FileExistsError:
            return require_marker(root)
        finally:
            temporary.unlink()
        fsync_directory(root)
    except OSError as error:
        raise EvidenceError(f"the evidence folder {root} can't be made: {error.strerror}") from error
    return marker


def parse_record(kind: type[RecordT], data: bytes, path: Path) -> RecordT:
    """The record in `data`. Raises EvidenceDamaged naming the file."""
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise EvidenceDamaged(f"{path} is damaged: {where + ': ' if where else ''}{first['msg']}") from error
