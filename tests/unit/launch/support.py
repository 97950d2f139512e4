"""A real box of the local platform with the real runner, and what the program would tell its queue."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweepstack.core.job import JobInput
from sweepstack.core.journal import Journal
from sweepstack.core.records import ArtifactSpec, Birth, Cell, Launch
from sweepstack.core.workdir import collect
from sweepstack.evidence.store import EvidenceStore
from sweepstack.launch.launch import Launched, LaunchSpec, launch, read_journal
from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.onbox.common import box_layout, processes
from sweepstack.onbox.host.folder_platform import LocalPlatform
from sweepstack.onbox.host.platform import BoxRequest, Wait

IDENTITY = "abcdefghjk"
SECONDS = 120.0
"""A deadline, for a machine that has much else to do. What is waited for takes a moment."""
TRAIN = """\
word=$1 out=$2 control=$3 cell=$SWEEPSTACK_CELL
echo "training $cell with $word"
echo "$cell $word" >> "$control/started"
while [ -e "$control/hold-$cell" ]; do sleep 0.1; done
if [ -e "$control/fail-$cell" ]; then echo "the last words of $cell"; exit 1; fi
printf '{"word": "%s"}' "$word" > "$out/result.json"
"""
"""A shell script: Python would take longer to start than these cells to run."""


def until(there: Callable[[], bool], what: Callable[[], str]) -> None:
    """Waits until it is so; `what` says what was waited for."""
    deadline = time.monotonic() + SECONDS
    while not there():
        assert time.monotonic() < deadline, what()
        time.sleep(0.01)


class Clock:
    """Stands in for `time` where a deadline is: it stands still until `begins()`, then it runs."""

    def __init__(self, begins: Callable[[], bool]) -> None:
        self.begins = begins
        self.begun = 0.0

    def monotonic(self) -> float:
        if not self.begun and self.begins():
            self.begun = time.monotonic()
        return time.monotonic() - self.begun if self.begun else 0.0

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Site:
    """A box, its evidence, and the job's folder."""

    def __init__(self, folder: Path, name: str = "box-0") -> None:
        self.folder = folder
        self.platform = LocalPlatform(folder / "platform", grace=0.2)
        self.platform.account()
        self.volume = self.platform.ensure_volume(box_layout.volume_tag(IDENTITY, "store"), "store").native_id
        uri = f"file://{socket.gethostname()}{folder / 'evidence'}"
        self.store = EvidenceStore.found(uri, IDENTITY, "project", "sweep-t")
        self.control = folder / "control"
        self.job = folder / "job"
        for made in (self.control, self.job):
            made.mkdir(exist_ok=True)
        (self.job / "train.sh").write_text(TRAIN)
        self.name = name
        tag = box_layout.box_tag(IDENTITY, name, 1)
        self.record = self.platform.create(
            BoxRequest(tag, name, 0.5, {box_layout.DURABLE: self.volume}, {}), wait=Wait(60)
        )
        self.native_id = self.record.native_id
        self.root = folder / "platform" / "boxes" / self.native_id
        self.store.write_birth(self.birth())
        self.said: list[str] = []
        self.channel: LocalChannel = self.platform.channel(self.native_id, self.record.account)

    def birth(self, **changes: Any) -> Birth:
        known = {
            "box": self.name,
            "generation": 1,
            "tag": self.record.tag,
            "platform": "local",
            "account": self.record.account,
            "native_id": self.native_id,
            "price_per_hour": 0.5,
            "begun_at": self.record.created_at,
            "created_at": self.record.created_at,
        }
        return Birth.model_validate(known | changes)

    def spec(self, *cells: str | Cell, **changes: Any) -> LaunchSpec:
        """What `pulumi up` gives the queue: cells by name, all of the same job. `changes`: of the spec, or else of its
        job; `job`: of the job, where both have a key of that name."""
        told = {key: changes.pop(key) for key in changes.keys() - LaunchSpec.__dataclass_fields__.keys()}
        told |= changes.pop("job", {})
        made = tuple(Cell(name=cell, params={"word": cell}) if isinstance(cell, str) else cell for cell in cells)
        spec = LaunchSpec(
            identity=IDENTITY,
            box=self.name,
            native_id=self.native_id,
            generation=1,
            cells=made,
            dropped={},
            elsewhere={},
            job=JobInput.model_validate(
                {
                    "run": f"sh train.sh {{word}} {{out}} {self.control}",
                    "workdir": str(self.job),
                    "slots": 2,
                    "code": collect(self.job).digest,
                    **told,
                }
            ),
            workdir=self.job,
            artifacts=(ArtifactSpec(path="result.json", load="json", keys=("word",)),),
            metrics=None,
        )
        return replace(spec, **changes)

    def launch(self, *cells: str | Cell, channel: Any = None, seconds: float = SECONDS, **changes: Any) -> Launched:
        """Brings the queue to these cells."""
        return launch(
            self.spec(*cells, **changes),
            channel or self.channel,
            self.store,
            progress=self.said.append,
            first_step_seconds=seconds,
        )

    def hold(self, *cells: str) -> None:
        """These cells start and do not end."""
        for cell in cells:
            (self.control / f"hold-{cell}").touch()

    def release(self) -> None:
        """What is held goes on."""
        for path in self.control.glob("hold-*"):
            path.unlink()

    def fail(self, *cells: str, yes: bool = True) -> None:
        """These cells fail, or don't any more."""
        for cell in cells:
            path = self.control / f"fail-{cell}"
            path.touch() if yes else path.unlink()

    # What there is to see

    @property
    def journal(self) -> Journal:
        return read_journal(self.channel)

    def states(self) -> dict[str, str]:
        return {name: progress.state for name, progress in self.journal.cells.items()}

    def started(self) -> list[str]:
        """Every start of the job, in order: cell and word."""
        path = self.control / "started"
        return path.read_text().splitlines() if path.exists() else []

    def queue(self) -> bytes:
        try:
            return self.channel.read(box_layout.QUEUE)
        except FileNotFoundError:
            return b""

    def record_of_launch(self) -> Launch | None:
        return self.store.launch(self.name, 1)

    def recorded(self) -> Launch:
        """The same, where there is one."""
        record = self.record_of_launch()
        assert record is not None
        return record

    def runner_pid(self) -> bytes:
        return self.channel.read(box_layout.RUNNER_PID)

    def idle(self) -> bool:
        return not self.channel.lock_held(box_layout.RUNNER_LOCK)

    def until(self, there: Callable[[], bool], what: str) -> None:
        """Waits for it."""
        until(there, lambda: f"{what}: {self.states()}\n{(self.root / box_layout.RUNNER_LOG).read_text()}")

    def until_state(self, state: str, *cells: str) -> None:
        self.until(lambda: all(self.states().get(cell) == state for cell in cells), f"{cells} to be {state}")

    def drained(self) -> None:
        self.until(self.idle, "the runner to end")

    def sealed(self, cell: str, name: str) -> bytes:
        """A file of a cell's sealed copy on the volume."""
        content = self.folder / "platform" / "volumes" / self.volume / "content"
        return (content / box_layout.sealed_dir(IDENTITY, cell) / name).read_bytes()

    def close(self) -> None:
        self.release()
        processes.end_box(self.native_id, grace=0)


class Broken:
    """A channel that fails at one verb, and passes all else on."""

    def __init__(self, channel: LocalChannel, verb: str, error: Exception) -> None:
        self._channel, self._verb, self._error = channel, verb, error
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._channel, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            self.asked.append(name)
            if name == self._verb:
                raise self._error
            return found(*arguments, **options)

        return call
