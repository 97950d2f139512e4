"""A sweep on disk for the command line: a project, real local boxes with real journals, evidence, and a state.

Only the engine is a stand-in: a small executable that prints the state which the world describes, and does on `up` and
`destroy` what a test told it to.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import socket
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

import pytest

from sweepstack.cli import output
from sweepstack.cli.app import app
from sweepstack.config.edit.stack_file import StackFile
from sweepstack.core.cells import CellsConfig
from sweepstack.core.records import Approval, ArtifactSpec, Birth, Cell, Launch, Teardown
from sweepstack.core.roster import Roster, expand
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import GENESIS, canonical_json, digest_of, sha256_hex
from sweepstack.onbox.common.placeholders import own_file
from sweepstack.onbox.host.folder_platform import LocalPlatform
from sweepstack.onbox.host.platform import BoxRequest, Wait
from sweepstack.platforms.local.platform import connect
from tests.screens import Screen

IDENTITY = "abcdefghjk"
STACK = "sweep-t"
CODE = digest_of("code")
ARTIFACT = ArtifactSpec(path="metrics.json", load="json", keys=("loss",))
KILLS, KEEPS = ("scratch", "data"), ("durable",)

STACK_FILE = """\
# a sweep for tests
config:
  sweepstack:sweep:
    job:
      workdir: job   # what ships
      run: python train.py --lr {{lr}} --out {{out}}
    cells:
      grid: {{lr: {lrs}}}{drop}
    artifacts:
      metrics.json:   {{load: json, keys: [loss]}}
    candidates: [local]
    boxes: {{{boxes}}}
    pull_to: results/sweep-t
"""

ENGINE = """\
#!/bin/sh
echo "$@" >> {home}/calls
case "$1" in
  stack) if [ "$2" = ls ]; then exec cat {home}/stacks.json; fi
         if [ "$2" = history ]; then exec cat {home}/history.json; fi
         if [ -f {home}/error ]; then cat {home}/error >&2; exit 6; fi; exec cat {home}/state.json;;
  *) if [ -f {home}/$1.sh ]; then . {home}/$1.sh; fi;;
esac
"""


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: Screen
    err: Screen

    @property
    def json(self) -> Any:
        """The document on stdout: all of stdout."""
        return json.loads(self.out)


class Terminal(io.StringIO):
    """A terminal at which somebody types one answer."""

    def isatty(self) -> bool:
        return True


class Box:
    """A box of the local platform."""

    def __init__(self, world: World, name: str, generation: int, price: float | None, recorded: bool) -> None:
        self.world = world
        self.name = name
        self.generation = generation
        tag = box_layout.box_tag(IDENTITY, name, generation)
        request = BoxRequest(tag, name, price, {box_layout.DURABLE: world.volume}, {})
        self.record = world.platform.create(request, wait=Wait(120))
        self.native_id = self.record.native_id
        self.root = world.platform_root / "boxes" / self.native_id
        self.head, self.seq = GENESIS, 0
        self.begin = datetime.now(UTC) - timedelta(hours=2)
        self.held: IO[bytes] | None = None
        self.clearance = "locked"
        self.retries: dict[str, dict[str, int]] = {}
        self.approval: Approval | None = None
        self.cells: dict[str, Cell] = {}
        self.want, self.gpus = "running", 0
        if recorded:
            world.store.write_birth(self.birth())

    def birth(self, **overrides: Any) -> Birth:
        """The birth record."""
        known = {
            "box": self.name,
            "generation": self.generation,
            "tag": self.record.tag,
            "platform": "local",
            "account": self.record.account,
            "native_id": self.native_id,
            "price_per_hour": self.record.price_per_hour,
            "mounts": {box_layout.DURABLE: self.world.volume},
            "begun_at": self.begin,
            "created_at": self.record.created_at,
        }
        return Birth.model_validate(known | overrides)

    # What the runner would do

    def launch(self, *cells: str) -> None:
        """Gives the queue its cells, on record."""
        for name in cells:
            self.cells[name] = self.world.cell(name)
        digests = {name: cell.config_digest for name, cell in self.cells.items()}
        self.world.store.write_launch(
            Launch(
                box=self.name,
                generation=self.generation,
                native_id=self.native_id,
                cells=digests,
                code=CODE,
                at=self.begin,
            )
        )
        (self.root / box_layout.HOME).mkdir(parents=True, exist_ok=True)

    def log(self, event: str, after: float = 10.0, **details: Any) -> None:
        """Appends to the journal, `after` seconds later."""
        self.seq += 1
        self.begin += timedelta(seconds=after)
        time = self.begin.strftime("%Y-%m-%dT%H:%M:%S.000Z")
        entry = {"seq": self.seq, "time": time, "event": event, "prev": self.head, **details}
        self.head = sha256_hex(canonical_json(entry))
        path = self.root / box_layout.JOURNAL
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as handle:
            handle.write(canonical_json({**entry, "hash": self.head}) + b"\n")

    def start(self, name: str, attempt: int = 1, log: str = "", metrics: list[dict[str, Any]] | None = None) -> None:
        """A cell starts; it has printed `log` and written `metrics` already."""
        digest = self.world.cell(name).config_digest
        self.log("cell-started", cell=name, attempt=attempt, config_digest=digest, code=CODE, argv=["x"], slot=0)
        folder = self.root / box_layout.attempt_dir(name, attempt)
        (folder / "out").mkdir(parents=True)
        (folder / "log.txt").write_text(log)
        if metrics:
            file = own_file(self.world.metrics_file, name, self.world.cell(name).params)
            (folder / "out" / file).write_text("".join(json.dumps(row) + "\n" for row in metrics))

    def fail(self, name: str, attempt: int = 1, final: bool = True, **more: Any) -> None:
        """A cell fails."""
        self.log("cell-failed", cell=name, attempt=attempt, exit_code=1, reason="exit code 1", final=final, **more)

    def seal(self, name: str, attempt: int = 1, files: dict[str, bytes] | None = None, **overrides: Any) -> None:
        """A cell finishes and is sealed on the durable tier. `overrides` replace parts of the manifest."""
        if name not in set(self.cells):
            self.launch(name)
        if not (self.root / box_layout.attempt_dir(name, attempt)).exists():
            self.start(name, attempt, log=f"training {name}\ndone\n")
        cell = self.world.cell(name)
        content = {"metrics.json": b'{"loss": 0.25}', "log.txt": f"training {name}\ndone\n".encode()} | (files or {})
        folder = self.root / box_layout.DURABLE / box_layout.sealed_dir(IDENTITY, name)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        entries = []
        for path, data in content.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
            role = "log" if path == "log.txt" else "artifact" if path == ARTIFACT.path else "extra"
            entries.append({"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "role": role})
        manifest = canonical_json(
            {
                "schema": 1,
                "identity": IDENTITY,
                "box": self.name,
                "native_id": self.native_id,
                "generation": self.generation,
                "cell": name,
                "attempt": attempt,
                "config_digest": cell.config_digest,
                "params": cell.params,
                "code": CODE,
                "argv": ["python", "train.py"],
                "started_at": "2026-11-21T09:00:00Z",
                "sealed_at": "2026-11-21T09:01:00Z",
                "environment": {},
                "files": entries,
                **overrides,
            }
        )
        (folder / "manifest.json").write_bytes(manifest + b"\n")
        self.log(
            "cell-sealed",
            after=20.0,
            cell=name,
            attempt=attempt,
            config_digest=cell.config_digest,
            manifest="sha256:" + sha256_hex(manifest),
            bytes=sum(len(data) for data in content.values()),
        )

    def beat(self, ago: float = 3.0, **details: Any) -> None:
        """Two patrol lines, 30 s apart; the last has `details`."""
        self.ago, self.beaten = ago, datetime.now(UTC) - timedelta(seconds=ago)
        for seconds, more in ((ago + 30, {}), (ago, details)):
            time = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()
            with (self.root / box_layout.PATROL).open("a") as handle:
                handle.write(json.dumps({"time": time, "running": [], **more}) + "\n")

    def beats(self, words: str) -> bool:
        """Whether these words say how long ago the last `beat` was, however long it took to ask for them."""
        found = re.search(r"heartbeat (\d+) s ago", words)
        most = (datetime.now(UTC) - self.beaten).total_seconds()
        return found is not None and self.ago <= int(found[1]) <= most

    def alive(self, yes: bool = True) -> None:
        """Whether the runner holds its lock."""
        if self.held is not None:
            self.held.close()
            self.held = None
        if yes:
            path = self.root / box_layout.RUNNER_LOCK
            path.parent.mkdir(parents=True, exist_ok=True)
            self.held = path.open("ab")
            fcntl.flock(self.held.fileno(), fcntl.LOCK_EX)

    def vanish(self) -> None:
        """The box is deleted by hand; its volume stays."""
        self.alive(False)
        shutil.rmtree(self.root)

    # What the state says

    def entries(self) -> list[dict[str, Any]]:
        """Box, queue and gate as the engine's export has them."""
        world = self.world
        common = {
            "identity": IDENTITY,
            "evidence": world.uri,
            "adapter": "local",
            "account": self.record.account,
            "generation": self.generation,
            "roster_digest": world.up_roster.digest,
            "teardown": {"verb": "destroy", "kills": list(KILLS), "keeps": list(KEEPS)},
            "approval": self.approval.model_dump(mode="json") if self.approval else None,
        }
        box = {
            "name": self.name,
            "native_id": self.native_id,
            "tag": self.record.tag,
            "phase": "running",
            "price_per_hour": self.record.price_per_hour,
            "created_at": self.begin.isoformat() if self.begin else None,
            "mounts": {box_layout.DURABLE: world.volume},
            "resources": {},
            "clearance": self.clearance,
            "want": self.want,
        }
        link = {"box": self.native_id, "box_name": self.name}
        queue = {
            "stack": STACK,
            "job": {"run": "x", "workdir": "job", "slots": 1, "code": CODE, "gpus": self.gpus or None},
            "cells": [
                {"name": name, "params": {key: json.dumps(value) for key, value in cell.params.items()}}
                for name, cell in sorted(world.queue_of(self).items())
            ],
            "elsewhere": [],
            "dropped": world.up_roster.dropped,
            "artifacts": [ARTIFACT.model_dump(mode="json")],
            "metrics": {"file": world.metrics_file, "x": world.metrics_x, "y": ["loss", *world.more_metrics]},
            "launched_at": "2026-11-21T09:00:00Z",
            **({"retries": self.retries} if self.retries else {}),
        }
        return [
            world.resource("Box", self.name, self.native_id, common | box),
            world.resource("Queue", self.name, f"{self.native_id}/queue", common | link | queue),
            world.resource("Gate", self.name, f"{self.native_id}/gate", common | link | {"clearance": self.clearance}),
        ]


@dataclass
class World:
    """A project folder with one stack. Cells are lr0.1, lr0.3, lr0.9."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    lrs: str = "[0.1, 0.3, 0.9]"
    boxes: list[Box] = field(default_factory=list)
    pending: list[dict[str, Any]] = field(default_factory=list)
    metrics_file: str = "metrics.jsonl"
    metrics_x: str = "step"
    more_metrics: tuple[str, ...] = ()
    policy: str | None = None
    """The property `policy` of each entry of the state."""

    def __post_init__(self) -> None:
        self.root = self.folder / "project"
        (self.root / "stacks").mkdir(parents=True)
        (self.root / "job").mkdir(exist_ok=True)
        (self.root / "Pulumi.yaml").write_text("name: sweepstack\nruntime: python\nstackConfigDir: stacks\n")
        self.engine = self.folder / "engine"
        self.engine.mkdir()
        self.stacks(STACK)
        launcher = self.engine / "pulumi"
        launcher.write_text(ENGINE.format(home=self.engine))
        launcher.chmod(0o755)
        self.monkeypatch.setenv("XDG_DATA_HOME", str(self.folder / "data"))
        self.monkeypatch.delenv("PULUMI_STACK", raising=False)
        self.monkeypatch.chdir(self.root)
        self.monkeypatch.setattr("sweepstack.status.engine.call.find_engine", lambda: str(launcher))
        self.monkeypatch.setattr("sweepstack.cli.commands.finish.find_engine", lambda: str(launcher))
        self.evidence = self.root / "results" / STACK
        self.uri = f"file://{socket.gethostname()}{self.evidence}"
        self.store = EvidenceStore.found(self.uri, IDENTITY, "sweepstack", STACK)
        self.platform: LocalPlatform = connect()
        self.platform.account()
        self.platform_root = self.folder / "data" / "sweepstack" / "local"
        self.volume = self.platform.ensure_volume(box_layout.volume_tag(IDENTITY, "store"), "store").native_id
        self.file = StackFile.locate(self.root, STACK)
        self.gone: list[str] = []
        self.write_stack_file()
        self.up_roster = self.file_roster()

    @property
    def volume_folder(self) -> Path:
        """The durable tier, as it lies on this machine."""
        return self.platform_root / "volumes" / self.volume / "content"

    def write_stack_file(self, *, drop: str = "") -> None:
        """(Re)writes the stack file; the state does not know yet."""
        boxes = ", ".join(f"{box.name}: {{want: running}}" for box in self.boxes) or "box-0: {want: running}"
        dropped = f"\n      drop: {drop}" if drop else ""
        self.file.path.write_text(STACK_FILE.format(lrs=self.lrs, boxes=boxes, drop=dropped))

    def file_roster(self) -> Roster:
        """The roster of the stack file."""
        return expand(CellsConfig.model_validate(self.file.sweep()["cells"]))

    def cell(self, name: str) -> Cell:
        """A cell by name, dropped ones too."""
        lr = float(name.removeprefix("lr"))
        return Cell(name=name, params={"lr": lr})

    def queue_of(self, box: Box) -> dict[str, Cell]:
        """What the state's queue of a box has: what it was given, and what no box was given."""
        given = {name for other in self.boxes for name in other.cells}
        rest = {} if box is not self.boxes[0] else {c.name: c for c in self.up_roster.cells if c.name not in given}
        return {name: cell for name, cell in (box.cells | rest).items() if name not in self.up_roster.dropped}

    def add(self, name: str = "box-0", *, generation: int = 1, price: float | None = 0.5, recorded: bool = True) -> Box:
        """Rents a box, and writes it into the stack file."""
        box = Box(self, name, generation, price, recorded)
        self.boxes.append(box)
        self.write_stack_file()
        return box

    def full(self) -> tuple[Box, Box]:
        """Two boxes; all three cells sealed."""
        first, second = self.add("box-0"), self.add("box-1")
        first.launch("lr0.1", "lr0.3")
        second.launch("lr0.9")
        first.seal("lr0.1")
        first.seal("lr0.3")
        second.seal("lr0.9")
        return first, second

    def verified(self) -> tuple[Box, Box, str]:
        """The same, pulled and verified: with the receipt."""
        first, second = self.full()
        assert self.run("pull").code == 0
        result = self.run("verify", "--json")
        assert result.code == 0, result
        return first, second, result.json["receipt"]

    def resource(self, kind: str, name: str, identifier: str, outputs: dict[str, Any]) -> dict[str, Any]:
        """One entry of the export."""
        outputs = {key: value for key, value in (outputs | {"policy": self.policy}).items() if value is not None}
        return {
            "urn": f"urn:pulumi:{STACK}::sweepstack::sweepstack:index:{kind}::{name}",
            "custom": True,
            "id": identifier,
            "type": f"sweepstack:index:{kind}",
            "inputs": outputs,
            "outputs": outputs,
        }

    def export(self) -> dict[str, Any]:
        """What `pulumi stack export` prints."""
        identity = {"identity": IDENTITY, "evidence": self.uri, "project": "sweepstack", "stack": STACK}
        volume = {"identity": IDENTITY, "evidence": self.uri, "adapter": "local", "name": "store", "location": "here"}
        resources = [{"urn": "urn:pulumi:s", "type": "pulumi:pulumi:Stack", "custom": False}]
        resources += [self.resource("Identity", "identity", IDENTITY, identity | {"pull_to": "results/sweep-t"})]
        resources += [self.resource("Volume", "store", self.volume, volume | {"native_id": self.volume})]
        for box in self.boxes:
            if box.name not in self.gone:
                resources += box.entries()
        return {"version": 3, "deployment": {"resources": resources, "pending_operations": self.pending}}

    def empty(self) -> dict[str, Any]:
        """The export of a stack after a destroy."""
        return {"version": 3, "deployment": {"resources": []}}

    def up(self) -> None:
        """The state takes the stack file's approval and roster, as `pulumi up` does."""
        self.up_roster = self.file_roster()
        for box in self.boxes:
            box.approval = self.file.approval()
            box.clearance = "cleared by receipt" if box.approval else "locked"
            launch = self.store.launch(box.name, box.generation)
            if launch is not None and (dropped := set(launch.cells) & set(self.up_roster.dropped)):
                left = {name: digest for name, digest in launch.cells.items() if name not in dropped}
                why = {name: self.up_roster.dropped[name] for name in dropped}
                self.store.write_launch(launch.model_copy(update={"cells": left, "dropped": why}))

    def remembers(self, *places: str) -> None:
        """This computer has on record that the evidence of the stack is at these places."""
        memory = self.folder / "data" / "sweepstack" / "evidence" / f"{STACK}.txt"
        memory.parent.mkdir(exist_ok=True)
        memory.write_text("".join(f"{place}\n" for place in places))

    def save(self, export: dict[str, Any] | None = None) -> None:
        """Writes the state that the engine prints."""
        (self.engine / "state.json").write_text(json.dumps(export or self.export()))

    def stacks(self, *names: str) -> None:
        """What `pulumi stack ls --all` names. The state of each is this world's."""
        (self.engine / "stacks.json").write_text(json.dumps([{"name": name} for name in names]))

    def engine_says(self, words: str) -> None:
        """The export fails with these words."""
        (self.engine / "error").write_text(words)

    def on(self, verb: str, script: str) -> None:
        """What the engine does on a verb: shell, with the world's engine folder as $home."""
        (self.engine / f"{verb}.sh").write_text(f"home={self.engine}\n{script}\n")

    def calls(self) -> list[str]:
        """What the engine was asked, without what only reads."""
        lines = (self.engine / "calls").read_text().splitlines() if (self.engine / "calls").exists() else []
        return [line for line in lines if not line.startswith(("stack", "refresh --preview-only"))]

    def run(self, *arguments: str, stack: str | None = STACK, types: str | None = None, fresh: bool = True) -> Result:
        """Runs `sweepctl`; a word such as SWEEPSTACK_SIGNER=ann is of its environment. `types`: there is a terminal,
        and this is typed. `fresh`: the state is this world's."""
        if fresh:
            self.save()
        self.monkeypatch.setattr("sys.stdin", Terminal(types + "\n") if types is not None else io.StringIO())
        self.monkeypatch.setattr(output, "_documents", 0)  # each command is a process of its own
        self.monkeypatch.setattr(output, "_done", {})
        self.capsys.readouterr()
        sets = dict(word.split("=", 1) for word in arguments if word.startswith("SWEEPSTACK_"))
        words = [word for word in arguments if not word.startswith("SWEEPSTACK_")]
        try:
            with pytest.MonkeyPatch.context() as here:
                for name, value in sets.items():
                    here.setenv(name, value)
                app([*words, *(["--stack", stack] if stack else [])])
            code = 0
        except SystemExit as exit:
            code = int(exit.code or 0)
        said = self.capsys.readouterr()
        assert "Traceback" not in said.err
        return Result(code, Screen(said.out), Screen(said.err))

    def open_teardown(self, receipt: str | None, *boxes: Box, ended: tuple[str, ...] = ()) -> None:
        """A destroy was begun."""
        ids = tuple(box.native_id for box in boxes)
        self.store.write_teardown(Teardown(receipt=receipt, native_ids=ids, ended=ended, begun_at=datetime.now(UTC)))

    def move_registry(self) -> None:
        """The local platform can't be asked any more: its folder is somewhere else."""
        os.rename(self.platform_root, self.folder / "elsewhere")


def by_name(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """JSON rows by their name."""
    return {row["name"]: row for row in rows}
