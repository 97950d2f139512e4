"""A sweep in a temporary folder: boxes as folder trees with real journals and sealed copies, and the evidence."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as safetensors_bytes

from sweepstack.core.journal import Journal, parse_journal
from sweepstack.core.observation import Existence, Observation
from sweepstack.core.records import Action, Approval, ArtifactSpec, Birth, Cell, Launch, ReceiptCell
from sweepstack.evidence.pull import BoxPull, BoxSource, pull_all
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.verify import ReadBox, VerifyOutcome, VerifyRequest, verify
from sweepstack.onbox.agent.channel import Listing
from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import GENESIS, canonical_json, digest_of, sha256_hex
from sweepstack.teardown.box_context import BoxFacts
from tests.unit.evidence import torchzip

IDENTITY = "abcdefghjk"
STACK = "sweep-t"
BEGIN = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
CODE = digest_of("code")
ARTIFACTS = (
    ArtifactSpec(path="best.pt", load="torch", keys=("model", "epoch")),
    ArtifactSpec(path="model.safetensors", load="safetensors", keys=("w1",)),
    ArtifactSpec(path="metrics.json", load="json", keys=("loss",), finite="report"),
)


@dataclass
class FakeRoster:
    """What verifying needs of a roster."""

    cells: tuple[Cell, ...]
    dropped: dict[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        return digest_of(sorted([cell.name, cell.config_digest] for cell in self.cells))


def checkpoint_bytes(folder: Path, seed: int = 0, **entries: Any) -> bytes:
    """A small torch checkpoint with a model, optimizer state and plain numbers."""
    numbers = np.random.default_rng(seed)
    weight = torchzip.tensor(numbers.standard_normal((16, 32), dtype=np.float32))
    root = {
        "model": OrderedDict([("head.weight", weight), ("head.bias", torchzip.bf16(numbers.standard_normal(16)))]),
        "optimizer": {
            "state": {
                0: {"step": torchzip.tensor(np.float32(3)), "exp_avg": torchzip.tensor(np.zeros((16, 32), "f4"))}
            },
            "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.999), "amsgrad": False, "foreach": None, "params": [0]}],
        },
        "epoch": seed,
        **entries,
    }
    path = folder / f"checkpoint-{seed}.tmp"
    torchzip.save(root, path)
    data = path.read_bytes()
    path.unlink()
    return data


def outputs(folder: Path, seed: int = 0) -> dict[str, bytes]:
    """Everything that a good cell leaves behind."""
    weights = {"w1": (np.arange(12, dtype=np.float32) + seed).reshape(4, 3), "w2": np.arange(3, dtype=np.int64)}
    return {
        "best.pt": checkpoint_bytes(folder, seed),
        "model.safetensors": safetensors_bytes(weights),
        "metrics.json": json.dumps({"loss": 0.25, "seed": seed}).encode(),
        "log.txt": b"step 1\n",
        "plots/curve.csv": b"1,2\n",
    }


class Box:
    """A box as a folder tree: its journal and its durable tier are real files."""

    def __init__(self, world: World, name: str, generation: int = 1) -> None:
        self.world = world
        self.name = name
        self.generation = generation
        self.native_id = f"local-{name}{generation}"
        self.root = world.folder / "boxes" / self.native_id
        (self.root / box_layout.HOME).mkdir(parents=True)
        self.durable = self.root / box_layout.DURABLE
        self.durable.mkdir(parents=True)
        self.head, self.seq = GENESIS, 0
        birth = Birth(
            box=name,
            generation=generation,
            tag=box_layout.box_tag(IDENTITY, name, generation),
            platform="local",
            account="here/1",
            native_id=self.native_id,
            price_per_hour=0.5,
            begun_at=BEGIN,
            created_at=BEGIN,
        )
        world.store.write_birth(birth)

    @property
    def journal_file(self) -> Path:
        return self.root / box_layout.JOURNAL

    @property
    def journal(self) -> Journal:
        return parse_journal(self.journal_file.read_bytes() if self.journal_file.exists() else b"")

    @property
    def channel(self) -> LocalChannel:
        return LocalChannel(self.native_id, self.root, {})

    def log(self, event: str, **details: Any) -> None:
        """Appends to the journal."""
        self.seq += 1
        time = (BEGIN + timedelta(seconds=self.seq)).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        entry = {"seq": self.seq, "time": time, "event": event, "prev": self.head, **details}
        self.head = sha256_hex(canonical_json(entry))
        with self.journal_file.open("ab") as handle:
            handle.write(canonical_json({**entry, "hash": self.head}) + b"\n")

    def launch(self, *cells: Cell) -> None:
        """Writes the launch record."""
        digests = {cell.name: cell.config_digest for cell in cells}
        self.world.store.write_launch(
            Launch(
                box=self.name, generation=self.generation, native_id=self.native_id, cells=digests, code=CODE, at=BEGIN
            )
        )

    def start(self, cell: Cell, attempt: int = 1, **more: Any) -> None:
        """Journals a start."""
        known = {"cell": cell.name, "attempt": attempt, "config_digest": cell.config_digest, "code": CODE}
        self.log("cell-started", **known, argv=["x"], slot=0, **more)

    def sealed(self, cell: str) -> Path:
        """The folder of the sealed copy."""
        return self.durable / box_layout.sealed_dir(IDENTITY, cell)

    def seal(
        self, cell: Cell, files: dict[str, bytes], attempt: int = 1, journaled: bool = True, **overrides: Any
    ) -> str:
        """Seals a cell as the runner does; the manifest's digest. `overrides` replace parts of the manifest."""
        folder = self.sealed(cell.name)
        shutil.rmtree(folder, ignore_errors=True)
        specs = {spec.path for spec in self.world.artifacts}
        entries = []
        for path, data in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
            role = "log" if path == "log.txt" else "artifact" if path in specs else "extra"
            entries.append({"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "role": role})
        manifest = {
            "schema": 1,
            "identity": IDENTITY,
            "box": self.name,
            "native_id": self.native_id,
            "generation": self.generation,
            "cell": cell.name,
            "attempt": attempt,
            "config_digest": cell.config_digest,
            "params": cell.params,
            "code": CODE,
            "argv": ["python", "train.py"],
            "started_at": "2026-11-21T09:00:00Z",
            "sealed_at": "2026-11-21T09:01:00Z",
            "environment": {"python": "3.11"},
            "files": entries,
            **overrides,
        }
        data = canonical_json(manifest)
        (folder / "manifest.json").write_bytes(data + b"\n")
        digest = "sha256:" + sha256_hex(data)
        if journaled:
            self.start(cell, attempt)
            self.log(
                "cell-sealed",
                cell=cell.name,
                attempt=attempt,
                config_digest=cell.config_digest,
                manifest=digest,
                bytes=sum(len(data) for data in files.values()),
            )
        return digest

    def view(self, **overrides: Any) -> ReadBox:
        """The box as just seen."""
        return ReadBox(self.name, self.native_id, self.generation, **{"journal": self.journal, **overrides})


class World:
    """Three cells, one box, and the evidence."""

    def __init__(self, folder: Path, artifacts: tuple[ArtifactSpec, ...] = ARTIFACTS, uri: str | None = None) -> None:
        self.folder = folder
        self.artifacts = artifacts
        self.uri = uri or f"file://{socket.gethostname()}{folder / 'evidence'}"
        self.store = EvidenceStore.found(self.uri, IDENTITY, "project", STACK)
        self.cells = tuple(Cell(name=f"lr{lr}-seed0", params={"lr": lr, "seed": 0}) for lr in (0.1, 0.3, 0.9))
        self.dropped: dict[str, str] = {}
        self.boxes = [Box(self, "box-0")]

    @property
    def box(self) -> Box:
        return self.boxes[0]

    def run(self, *cells: Cell) -> None:
        """Launches and seals good outputs for `cells` (all by default) on the first box."""
        self.box.launch(*self.cells)
        for seed, cell in enumerate(cells or self.cells):
            self.box.seal(cell, outputs(self.folder, seed))

    def pull(self, *boxes: Box) -> list[BoxPull]:
        """Pulls from the boxes (all by default)."""
        sources = [BoxSource(box.name, box.generation, box.channel) for box in boxes or self.boxes]
        return pull_all(sources, IDENTITY, self.store)

    def verify(self, **overrides: Any) -> VerifyOutcome:
        """Verifies against the boxes' journals."""
        settings = {
            "identity": IDENTITY,
            "stack": STACK,
            "roster": FakeRoster(self.cells, self.dropped),
            "artifacts": self.artifacts,
            "store": self.store,
            "workers": 1,
            **overrides,
        }
        if "boxes" not in settings:
            settings["boxes"] = [box.view() for box in self.boxes]
        return verify(VerifyRequest(**settings))

    def copy(self, cell: Cell | str) -> Path:
        """Where the pulled copy lies."""
        return self.store.cell_dir(cell if isinstance(cell, str) else cell.name)


def cell_of(outcome: VerifyOutcome, cell: Cell | str) -> ReceiptCell:
    """What the receipt says of a cell."""
    name = cell if isinstance(cell, str) else cell.name
    return next(found for found in outcome.receipt.cells if found.name == name)


def cleared_box(world: World, now: datetime) -> tuple[BoxFacts, Approval, Observation]:
    """The world's box, run to its end, pulled, verified and approved: what the check is asked with, and says yes to."""
    world.run()
    world.pull()
    outcome = world.verify()
    box = world.box
    facts = BoxFacts(
        identity=IDENTITY,
        evidence=world.uri,
        name=box.name,
        native_id=box.native_id,
        account="here/1",
        generation=box.generation,
        verb="destroy",
        kills=("data",),
        keeps=("durable",),
        roster_digest=outcome.receipt.roster_digest,
    )
    approval = Approval(
        receipt=outcome.digest,
        actions=(Action(verb="destroy", box=box.name, native_id=box.native_id),),
        waivers_digest=Approval.digest_waivers((), ()),
        by="a person",
        at=now,
        expires=now + timedelta(hours=72),
    )
    return facts, approval, Observation(Existence.EXISTS, box.journal, runner_alive=False, listing=Listing(()))


def sealed_elsewhere(world: World, seed: int, **manifest: int) -> Box:
    """The first cell was sealed on a second box, too."""
    box = Box(world, "box-1")
    world.boxes.append(box)
    box.launch(*world.cells)
    box.seal(world.cells[0], outputs(world.folder, seed), **manifest)
    return box
