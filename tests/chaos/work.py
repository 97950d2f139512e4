"""What a queue and `sweepctl` would do between two commands of the engine: run cells, verify them, look a box up."""

from __future__ import annotations

import hashlib
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sweepstack.core.journal import Journal, parse_journal
from sweepstack.core.records import ArtifactSpec, Cell, Launch
from sweepstack.core.roster import Roster
from sweepstack.evidence.pull import BoxSource, pull_all
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.verify import ReadBox, VerifyRequest, verify
from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import GENESIS, canonical_json, digest_of, sha256_hex
from sweepstack.platforms.registry import load_platform
from tests.chaos.disks import DISKS

ROSTER = Roster((Cell(name="a", params={"seed": 1}), Cell(name="b", params={"seed": 2})))
ARTIFACT = ArtifactSpec(path="result.json", load="json", keys=("loss",))
CODE = digest_of("code")


def run_cells(evidence: str, box: str, generation: int, native_id: str, cells: list[str], sealed: list[str]) -> None:
    """The box's queue is given `cells`; those in `sealed` are done, the first of the others has begun."""
    store = EvidenceStore.open(evidence)
    known = {cell.name: cell for cell in ROSTER.cells}
    digests = {name: known[name].config_digest for name in cells}
    now = datetime.now(UTC)
    store.write_launch(Launch(box=box, generation=generation, native_id=native_id, cells=digests, code=CODE, at=now))
    disk = _disk(native_id)
    (disk / box_layout.HOME).mkdir(parents=True, exist_ok=True)
    journal = disk / box_layout.JOURNAL
    log = _Log(journal)
    done = {name for name, progress in _journal(disk).cells.items() if progress.state == "sealed"}
    for name in sealed:
        if name not in done:
            _seal(log, disk, store.marker.identity, box, generation, native_id, known[name])
    for name in [name for name in cells if name not in sealed and name not in done][:1]:
        log.start(known[name])


def verify_cells(
    evidence: str, stack: str, boxes: list[dict[str, Any]], sealed: list[str] | None = None
) -> dict[str, Any]:
    """`sweepctl pull` and `verify`: the receipt's digest, and whether every cell of the roster is verified."""
    store = EvidenceStore.open(evidence)
    identity = store.marker.identity
    sources, views = [], []
    for box in boxes:
        disk = _disk(box["native_id"])
        if not disk.is_dir():
            continue
        channel = LocalChannel(box["native_id"], disk, {})
        sources.append(BoxSource(box["name"], box["generation"], channel))
        views.append(ReadBox(box["name"], box["native_id"], box["generation"], _journal(disk), runner_alive=False))
    pull_all(sources, identity, store)
    asked = VerifyRequest(
        identity=identity, stack=stack, roster=ROSTER, artifacts=(ARTIFACT,), store=store, boxes=views, workers=1
    )
    outcome = verify(asked)
    return {"receipt": outcome.digest, "ok": outcome.ok}


def adrift(evidence: str) -> dict[str, str]:
    """Box → native id of what was rented and whose answer was lost, as `sweepctl status` finds it by its tag."""
    found = {}
    for birth in EvidenceStore.open(evidence).births():
        if birth.ended_at is None and birth.native_id is None:
            record = load_platform(birth.platform).find_by_tag(birth.tag, birth.account)
            if record is not None:
                found[birth.box] = record.native_id
    return found


class _Log:
    """Appends to a box's journal as the runner does."""

    def __init__(self, path: Path) -> None:
        self._path = path
        journal = parse_journal(path.read_bytes() if path.exists() else b"")
        self._head, self._seq = journal.head, len(journal.entries)
        assert self._seq or self._head == GENESIS

    def add(self, event: str, **details: Any) -> None:
        self._seq += 1
        time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        entry = {"seq": self._seq, "time": time, "event": event, "prev": self._head, **details}
        self._head = sha256_hex(canonical_json(entry))
        with self._path.open("ab") as handle:
            handle.write(canonical_json({**entry, "hash": self._head}) + b"\n")

    def start(self, cell: Cell) -> None:
        digest = cell.config_digest
        self.add("cell-started", cell=cell.name, attempt=1, config_digest=digest, code=CODE, argv=["x"], slot=0)


def _seal(log: _Log, disk: Path, identity: str, box: str, generation: int, native_id: str, cell: Cell) -> None:
    folder = disk / box_layout.DURABLE / box_layout.sealed_dir(identity, cell.name)
    folder.mkdir(parents=True, exist_ok=True)
    files = {"result.json": b'{"loss": 0.5}', "log.txt": b"step 1\n"}
    entries = []
    for path, data in files.items():
        (folder / path).write_bytes(data)
        role = "log" if path == "log.txt" else "artifact"
        entries.append({"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "role": role})
    manifest = {
        "schema": 1,
        "identity": identity,
        "box": box,
        "native_id": native_id,
        "generation": generation,
        "cell": cell.name,
        "attempt": 1,
        "config_digest": cell.config_digest,
        "params": cell.params,
        "code": CODE,
        "argv": ["python", "train.py"],
        "started_at": "2026-11-21T09:00:00Z",
        "sealed_at": "2026-11-21T09:01:00Z",
        "environment": {"python": "3.11"},
        "files": entries,
    }
    data = canonical_json(manifest)
    (folder / "manifest.json").write_bytes(data + b"\n")
    log.start(cell)
    log.add(
        "cell-sealed",
        cell=cell.name,
        attempt=1,
        config_digest=cell.config_digest,
        manifest="sha256:" + sha256_hex(data),
        bytes=sum(len(data) for data in files.values()),
    )


def _disk(native_id: str) -> Path:
    return Path(os.environ[DISKS]) / native_id


def _journal(disk: Path) -> Journal:
    path = disk / box_layout.JOURNAL
    return parse_journal(path.read_bytes() if path.exists() else b"")
