"""A sweep whose resources are driven handler by handler: real boxes, real runners, real evidence; no engine."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import stat
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from sweepstack.core.records import Abandonment, Action, Approval, ArtifactSpec, Birth, Cell, Waiver
from sweepstack.core.resources import (
    BoxInputs,
    BoxState,
    GateInputs,
    GateState,
    IdentityInputs,
    IdentityState,
    QueueInputs,
    QueueState,
    VolumeInputs,
    VolumeState,
)
from sweepstack.core.roster import Roster
from sweepstack.core.workdir import collect
from sweepstack.evidence.pull import BoxSource, pull_all
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.verify import ReadBox, VerifyRequest, verify
from sweepstack.launch.launch import read_journal
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common import box_layout, processes
from sweepstack.onbox.common.errors import StillCreating
from sweepstack.onbox.host.folder_platform import LocalPlatform
from sweepstack.platforms.local.platform import connect
from sweepstack.provider.resources.base import Gone, ReadAnswer
from sweepstack.provider.resources.box import BoxHandler
from sweepstack.provider.resources.gate import GateHandler
from sweepstack.provider.resources.identity import IdentityHandler
from sweepstack.provider.resources.policy_limits import IDENTITY_SEEN
from sweepstack.provider.resources.queue import QueueHandler
from sweepstack.provider.resources.volume import VolumeHandler
from sweepstack.provider.session import Operation, Session, Severity
from tests.unit.launch.support import TRAIN, until

InputsT, StateT, MadeT = TypeVar("InputsT"), TypeVar("StateT"), TypeVar("MadeT")
STACK = "sweep-t"
ARTIFACT = ArtifactSpec(path="result.json", load="json", keys=("word",))
FACTS = {"verb": "destroy", "kills": ("scratch", "data"), "keeps": ("durable",)}
BOX, GATE, QUEUE, IDENTITY, VOLUME = BoxHandler(), GateHandler(), QueueHandler(), IdentityHandler(), VolumeHandler()


@dataclass
class Said:
    """What handlers said, in order."""

    lines: list[tuple[Severity, str]] = field(default_factory=list)

    def emit(self, severity: Severity, _urn: str, text: str) -> None:
        self.lines.append((severity, text))

    def text(self, *severities: Severity) -> str:
        return "\n".join(text for severity, text in self.lines if not severities or severity in severities)

    @property
    def infos(self) -> str:
        return self.text(Severity.INFO)

    @property
    def warnings(self) -> str:
        return self.text(Severity.WARNING)


@dataclass
class Prepared:
    """What `trained` and `cleared` made of the first sweep in which nothing was done before, for all later ones of this
    process: a launch, its runner, and the copies take more than a second of a core. In a copy, files changed (ctime)
    when it was copied: code that was shipped counts as written by the job. See `Sweep.anew`."""

    folder: Path
    kept: dict[str, Any] = field(default_factory=dict)

    def keep(self, name: str, of: Sweep, what: Any) -> None:
        self.folder.mkdir(exist_ok=True)
        _copied(of.folder, self.folder / name)
        self.kept[name] = (of.identity, of.volume, what)

    def give(self, name: str, to: Sweep) -> Any:
        """In place of what the sweep has."""
        shutil.rmtree(to.folder)
        _copied(self.folder / name, to.folder)
        to.identity, to.volume, what = self.kept[name]
        return what


@functools.cache
def prepared_in(folder: Path) -> Prepared:
    """Those of this process."""
    return Prepared(folder)


def _copied(folder: Path, to: Path) -> None:
    """With links, holes, times and attributes."""
    subprocess.run(["cp", "-a", folder, to], check=True, timeout=60)


class Sweep:
    """One sweep; `boxes` are made one by one. Cells have names of the job's words."""

    used = False
    """Whether anything was done in it, or looked at."""

    def __init__(self, folder: Path, prepared: Prepared | None = None) -> None:
        self.folder = folder
        self.prepared = prepared
        self.project = folder / "project"
        self.control = folder / "control"
        for made in (self.project / "job", self.control):
            made.mkdir(parents=True)
        (self.project / "job" / "train.sh").write_text(TRAIN)
        self.said = Said()
        self.cancelled = threading.Event()
        self.roster: tuple[str, ...] = ("a", "b")
        self.identity = self.found()
        self.keep()
        self.native_ids: list[str] = []
        self.used = False

    # What the engine would send

    def op(self, kind: str = "Box", name: str = "box-0", *, timeout: float = 0) -> Operation:
        self.used = True
        session = Session(self.project, self.said.emit, self.cancelled)
        session.shared[IDENTITY_SEEN] = True  # a command checks the Identity first; else the engine is asked
        return Operation(session, f"urn:pulumi:{STACK}::project::sweepstack:index:{kind}::{name}", timeout)

    def identity_inputs(self, **changes: Any) -> IdentityInputs:
        known = {"project": "project", "stack": STACK, "pull_to": "results"}
        return IdentityInputs.model_validate(known | changes)

    def found(self, **changes: Any) -> IdentityState:
        return IDENTITY.create(self.op("Identity", "identity"), self.identity_inputs(**changes))[1]

    def keep(self) -> None:
        """Makes what outlives the boxes."""
        self.volume = self.made_volume()

    def made_volume(self) -> VolumeState:
        inputs = VolumeInputs(
            identity=self.identity.identity, evidence=self.identity.evidence, adapter="local", name="store"
        )
        return VOLUME.create(self.op("Volume", "store"), inputs)[1]

    @property
    def cells(self) -> tuple[Cell, ...]:
        return tuple(Cell(name=name, params={"word": name}) for name in self.roster)

    @property
    def roster_digest(self) -> str:
        return Roster(self.cells).digest

    def adapter(self, _name: str) -> str:
        """Of a box of this name."""
        return "local"

    def mounts(self) -> dict[str, str]:
        """Of every box."""
        return {box_layout.DURABLE: self.volume.native_id}

    def box_inputs(self, name: str = "box-0", **changes: Any) -> BoxInputs:
        known = {
            "identity": self.identity.identity,
            "evidence": self.identity.evidence,
            "adapter": self.adapter(name),
            "name": name,
            "price_per_hour": 0.5,
            "mounts": self.mounts(),
            "roster_digest": self.roster_digest,
            "teardown": FACTS,
        }
        return BoxInputs.model_validate(known | changes)

    def box(self, name: str = "box-0", *, timeout: float = 0, **changes: Any) -> BoxState:
        """Rents it."""
        identifier, state = BOX.create(self.op(name=name, timeout=timeout), self.box_inputs(name, **changes))
        assert identifier == state.native_id
        return state

    def queue_inputs(self, box: BoxState, *cells: str, **changes: Any) -> QueueInputs:
        job = {
            "run": f"sh train.sh {{word}} {{out}} {self.control}",
            "workdir": "job",
            "slots": 2,
            "code": collect(self.project / "job").digest,
        }
        known = self.on_box(box) | {
            "stack": STACK,
            "job": job | changes.pop("job", {}),
            "cells": [{"name": name, "params": {"word": f'"{name}"'}} for name in cells or self.roster],
            "artifacts": [ARTIFACT],
        }
        return QueueInputs.model_validate(known | changes)

    def queue(self, box: BoxState, *cells: str, **changes: Any) -> QueueState:
        """Gives the box these cells (all by default)."""
        return QUEUE.create(self.op("Queue", box.name), self.queue_inputs(box, *cells, **changes))[1]

    def gate_inputs(self, box: BoxState, **changes: Any) -> GateInputs:
        return GateInputs.model_validate(self.on_box(box) | changes)

    def gate(self, box: BoxState, **changes: Any) -> GateState:
        return GATE.create(self.op("Gate", box.name), self.gate_inputs(box, **changes))[1]

    def on_box(self, box: BoxState) -> dict[str, Any]:
        return {
            "identity": box.identity,
            "evidence": box.evidence,
            "adapter": self.adapter(box.name),
            "box": box.native_id,
            "box_name": box.name,
            "account": box.account,
            "generation": box.generation,
            "roster_digest": box.roster_digest,
            "teardown": FACTS,
            "approval": box.approval,
        }

    # The loop

    def anew(self) -> Sweep:
        """This sweep, in which everything is done for it alone: for a test that asks when files of the box changed, or
        what it costs."""
        self.prepared = None
        return self

    def trained(self, name: str = "box-0", *cells: str) -> BoxState:
        """A box all of whose cells are sealed, and whose runner has ended."""

        def made() -> BoxState:
            box = self.box(name)
            self.queue(box, *cells)
            self.drained(box)
            return box

        return self._once(f"trained {name} {' '.join(cells)}", made)

    def _once(self, name: str, made: Callable[[], MadeT]) -> MadeT:
        """What `made` gives; copied where it was made before, and nothing was done in this sweep."""
        if self.prepared is None or self.used:
            return made()
        if name in self.prepared.kept:
            self.used = True
            return self.prepared.give(name, self)
        what = made()
        self.prepared.keep(name, self, what)
        return what

    def verified(self, *boxes: BoxState) -> str:
        """Pulls and verifies everything; the receipt."""
        sources = [BoxSource(box.name, box.generation, self.channel(box)) for box in boxes]
        assert all(not pulled.problem for pulled in pull_all(sources, self.identity.identity, self.store))
        views = [
            ReadBox(box.name, box.native_id, box.generation, read_journal(self.channel(box)), runner_alive=False)
            for box in boxes
        ]
        outcome = verify(
            VerifyRequest(
                identity=self.identity.identity,
                stack=STACK,
                roster=Roster(self.cells),
                artifacts=(ARTIFACT,),
                store=self.store,
                boxes=views,
                workers=1,
            )
        )
        return outcome.digest

    def cleared(self, name: str = "box-0", *cells: str) -> BoxState:
        """A box that may end: trained, verified, approved, and its state says so."""

        def made() -> tuple[BoxState, str]:
            box = self.trained(name, *cells)
            return box, self.verified(box)

        box, receipt = self._once(f"verified {name} {' '.join(cells)}", made)
        return approved(box, approval_for(box, receipt=receipt))

    # What there is to see

    @property
    def store(self) -> EvidenceStore:
        self.used = True
        return EvidenceStore.open(self.identity.evidence)

    @property
    def platform(self) -> LocalPlatform:
        self.used = True
        return connect()

    @property
    def platform_root(self) -> Path:
        return Path(os.environ["XDG_DATA_HOME"]) / "sweepstack" / "local"

    def listed(self) -> list[str]:
        """The native ids of all boxes that exist."""
        folder = self.platform_root / "boxes"
        return sorted(path.name for path in folder.glob("[!.]*")) if folder.is_dir() else []

    def root(self, box: BoxState) -> Path:
        return self.platform_root / "boxes" / box.native_id

    @property
    def volume_root(self) -> Path:
        return self.platform_root / "volumes" / self.volume.native_id / "content"

    def channel(self, box: BoxState) -> Channel:
        return self.platform.channel(box.native_id, box.account)

    def born(self) -> Birth:
        """The birth record of the first box."""
        birth = self.store.birth("box-0", 1)
        assert birth is not None
        return birth

    def seen(self, box: BoxState) -> ReadAnswer[BoxInputs, BoxState]:
        """What a refresh sees of a box that is not gone."""
        return _there(BOX.read(self.op(), box.native_id, box))

    def seen_queue(self, queue: QueueState) -> ReadAnswer[QueueInputs, QueueState]:
        return _there(QUEUE.read(self.op("Queue"), "q", queue))

    def states(self, box: BoxState) -> dict[str, str]:
        return {name: progress.state for name, progress in read_journal(self.channel(box)).cells.items()}

    def drained(self, box: BoxState) -> None:
        channel = self.channel(box)
        until(lambda: not channel.lock_held(box_layout.RUNNER_LOCK), lambda: f"its runner to end: {self.states(box)}")

    def until_state(self, box: BoxState, state: str, *cells: str) -> None:
        until(lambda: all(self.states(box).get(cell) == state for cell in cells), lambda: f"{self.states(box)}")

    def at_work(self, *cells: str, name: str = "box-0") -> BoxState:
        """A box whose cells (all by default) have all begun, and don't end."""
        cells = cells or self.roster
        self.hold(*cells)
        box = self.box(name)
        self.queue(box, *cells)
        self.settled(box, *cells)
        return box

    def settled(self, box: BoxState, *cells: str) -> None:
        """Waits until these cells have begun their work, and no process begins any more."""
        until(lambda: set(self.started()) >= {f"{cell} {cell}" for cell in cells}, lambda: f"{self.states(box)}")
        until(lambda: self._quiet(box), lambda: f"{self.workers(box)}")

    def _quiet(self, box: BoxState) -> bool:
        """Whether the processes of a box are the same a moment later: a shell that has just begun still forks."""
        before = self.workers(box)
        time.sleep(0.3)
        return self.workers(box) == before

    def started(self) -> list[str]:
        """Every start of the job, in order: cell and word."""
        path = self.control / "started"
        return path.read_text().splitlines() if path.exists() else []

    def hold(self, *cells: str) -> None:
        """These cells start and do not end."""
        self.used = True
        for cell in cells:
            (self.control / f"hold-{cell}").touch()

    def release(self) -> None:
        for path in self.control.glob("hold-*"):
            path.unlink()

    def alive(self, box: BoxState) -> set[int]:
        """The processes of a box."""
        return {process.pid for process in processes.of_box(box.native_id)}

    def workers(self, box: BoxState) -> set[int]:
        """The runner, and the cells at work; those that two looks see: a shell's fork has its words for a moment."""

        def seen() -> set[int]:
            argvs = {process.pid: " ".join(process.argv) for process in processes.of_box(box.native_id)}
            return {pid for pid, argv in argvs.items() if "runner.py" in argv or "train.sh" in argv}

        before = seen()
        time.sleep(0.05)
        return before & seen()

    def vanish(self, box: BoxState) -> None:
        """The box is deleted by hand."""
        processes.end_box(box.native_id, grace=0)
        shutil.rmtree(self.root(box))

    def close(self) -> None:
        self.release()
        for native_id in self.listed():
            processes.end_box(native_id, grace=0)


def _there(seen: ReadAnswer[InputsT, StateT] | Gone) -> ReadAnswer[InputsT, StateT]:
    assert not isinstance(seen, Gone)
    return seen


def action(of: BoxState, **changes: str) -> Action:
    return Action.model_validate({"verb": "destroy", "box": of.name, "native_id": of.native_id} | changes)


def abandonment(box: BoxState) -> Abandonment:
    return Abandonment(box=box.name, native_id=box.native_id, reason="not worth it")


def approval_for(*boxes: BoxState, receipt: str | None = None, **changes: Any) -> Approval:
    """An approval, given a minute ago and good for three days."""
    waive: tuple[Waiver, ...] = changes.pop("waive", ())
    abandon: tuple[Abandonment, ...] = changes.pop("abandon", ())
    now = datetime.now(UTC)
    known = {
        "receipt": receipt,
        "actions": tuple(action(box) for box in boxes),
        "waive": waive,
        "abandon": abandon,
        "waivers_digest": Approval.digest_waivers(waive, abandon),
        "by": "ada",
        "at": now - timedelta(minutes=1),
        "expires": now + timedelta(hours=72),
    }
    return Approval.model_validate(known | changes)


def approved(box: BoxState, approval: Approval | None) -> BoxState:
    """The state after an `up` with this approval."""
    return box.model_copy(update={"approval": approval})


def expired(approval: Approval | None, *, at: datetime | None = None) -> Approval:
    """The same when it is over: since a second, or since `at`."""
    assert approval is not None
    return approval.model_copy(update={"expires": at or datetime.now(UTC) - timedelta(seconds=1)})


def still_creating(work: Any) -> StillCreating:
    """The error that `work` raises."""
    try:
        work()
    except StillCreating as error:
        return error
    raise AssertionError("it was ready")


def picture(root: Path) -> dict[str, str]:
    """Every file below a folder with its digest; links by where they lead; without what runners write by the clock."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            found[str(path)] = os.readlink(path)
        elif stat.S_ISREG(status.st_mode) and path.name != "patrol.jsonl":
            found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found
