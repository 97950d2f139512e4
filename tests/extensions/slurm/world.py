"""A sweep whose box is on a real Slurm cluster, driven handler by handler: no engine."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweepstack.core.journal import parse_journal
from sweepstack.core.resources import BoxInputs, BoxState, QueueInputs, VolumeState
from sweepstack.extensions.slurm.platform import SlurmPlatform
from sweepstack.onbox.common import box_layout
from sweepstack.platforms.registry import load_platform
from tests.simulators.slurm_cluster import SHARED, SlurmCluster, until
from tests.unit.provider.support import Sweep

TRAIN = """\
word=$1 out=$2 control=$3 cell=$SWEEPSTACK_CELL
exec 9>"$control/alone-$cell"
flock -n 9 || echo "$cell" >> "$control/overlap"
hostname > "$control/node-$cell"
echo "$cell $word" >> "$control/started"
trap 'echo "$cell" >> "$control/told"; exit 143' TERM
[ ! -e "$control/eat-$cell" ] || python3 -c "x = bytearray(600_000_000); import time; time.sleep(600)"
while [ -e "$control/hold-$cell" ]; do sleep 0.1; done
if [ -e "$control/fail-$cell" ]; then echo "the last words of $cell"; exit 1; fi
printf '{"word": "%s"}' "$word" > "$out/result.json"
"""
"""The job: it notes each start, and when it is not the only process that trains its cell."""
TEARDOWN = {"verb": "destroy", "kills": ("scratch", "data", "durable"), "keeps": ()}


class SlurmSweep(Sweep):
    """As `Sweep`; its boxes lie on the shared tier of `cluster`, below a folder of their own."""

    def __init__(self, folder: Path, cluster: SlurmCluster, **scheduler: Any) -> None:
        self.cluster = cluster
        self.scheduler = {"workers": 2, "memory_bytes": 200 << 20, "grace_seconds": 2.0, **scheduler}
        self.place = f"{SHARED}/{folder.name}"
        self.here = cluster.shared / folder.name
        """The folder of `place`, as this machine sees it."""
        super().__init__(folder)
        self.control = self.here / "control"
        self.control.mkdir(parents=True)
        (self.project / "job" / "train.sh").write_text(TRAIN)
        self.slots = 1
        self.boxes: list[BoxState] = []

    # what differs from a sweep on this machine

    def adapter(self, _name: str = "") -> str:
        login = self.cluster.login
        return f"slurm:{login.user}@{login.host}:{login.port}{self.place}"

    @property
    def platform(self) -> SlurmPlatform:  # type: ignore[override]
        found = load_platform(self.adapter())
        assert isinstance(found, SlurmPlatform)
        return found

    @property
    def platform_root(self) -> Path:
        return self.here

    def keep(self) -> None:
        """Nothing outlives the boxes: the durable tier is a part of each."""

    def mounts(self) -> dict[str, str]:
        return {}

    def box_inputs(self, name: str = "box-0", **changes: Any) -> BoxInputs:
        return super().box_inputs(name, **({"teardown": TEARDOWN, "price_per_hour": 0} | changes))

    def box(self, name: str = "box-0", *, timeout: float = 0, **changes: Any) -> BoxState:
        self.boxes.append(super().box(name, timeout=timeout, **changes))
        return self.boxes[-1]

    def on_box(self, box: BoxState) -> dict[str, Any]:
        return super().on_box(box) | {"adapter": box.adapter, "teardown": box.teardown}

    def queue_inputs(self, box: BoxState, *cells: str, **changes: Any) -> QueueInputs:
        job = {
            "run": f"sh train.sh {{word}} {{out}} {self.place}/control",
            "slots": self.slots,
            "retries": 0,
            "grace_seconds": 2.0,
            "scheduler": self.scheduler,
        }
        return super().queue_inputs(box, *cells, **(changes | {"job": job | changes.get("job", {})}))

    def channel(self, box: BoxState) -> Any:
        return self.platform.channel(box.native_id, box.account)

    # what there is to see

    def home(self, box: BoxState) -> Path:
        return self.root(box) / box_layout.HOME

    def journal(self, box: BoxState) -> list[Mapping[str, Any]]:
        """The whole lines; fails where the chain is broken."""
        path = self.root(box) / box_layout.JOURNAL
        data = path.read_bytes() if path.exists() else b""
        parse_journal(data)
        return [json.loads(line) for line in data.split(b"\n")[:-1]]

    def tasks(self, box: BoxState) -> list[tuple[str, str, str]]:
        """(`<job>_<task>`, state, reason) of each of the box's, as squeue says; those that ended, too."""
        said = self.cluster.ask(
            "squeue", "-a", "-r", "-h", "--states=all", "-u", "root", f"--name={box.native_id}", "--format=%i|%T|%r"
        )
        return [tuple(line.split("|")) for line in said.splitlines()]  # type: ignore[misc]

    def live(self, box: BoxState) -> list[str]:
        """The tasks that wait or run."""
        return [name for name, state, _ in self.tasks(box) if state in ("PENDING", "RUNNING", "COMPLETING")]

    def state_of(self, box: BoxState, task: str) -> str:
        return next((state for name, state, _ in self.tasks(box) if name == task), "")

    def worker_of(self, box: BoxState, cell: str) -> str:
        """The worker that has begun a cell last."""
        return str([e["worker"] for e in self.events(box, "cell-started") if e["cell"] == cell][-1])

    def node_of(self, cell: str) -> str:
        """The node on which a cell has begun last."""
        return (self.control / f"node-{cell}").read_text().strip()

    def until_begun(self, *cells: str) -> None:
        until(lambda: {line.split()[0] for line in self.started()} >= set(cells), f"start of {cells}", self.picture)

    def until_sealed(self, box: BoxState, *cells: str) -> None:
        wanted = set(cells or self.roster)
        until(lambda: wanted <= self.sealed(box), f"seals of {wanted}", self.picture)

    def sealed(self, box: BoxState) -> set[str]:
        """Also those that a worker had sealed when it was killed: the next one finds them so."""
        return {entry["cell"] for event in ("cell-sealed", "cell-found-sealed") for entry in self.events(box, event)}

    def events(self, box: BoxState, event: str) -> list[Mapping[str, Any]]:
        return [entry for entry in self.journal(box) if entry["event"] == event]

    def until_idle(self, box: BoxState) -> None:
        """Until no worker is left, and Slurm has no job but what it holds itself."""

        def idle() -> bool:
            left = [why for _, state, why in self.tasks(box) if state in ("PENDING", "RUNNING", "COMPLETING")]
            held = self.channel(box).lock_held(box_layout.RUNNER_LOCK)
            return not held and set(left) <= {"launch failed requeued held"}

        until(idle, "end of its jobs", self.picture)

    def starts(self) -> Counter[str]:
        """How often each cell began."""
        return Counter(line.split()[0] for line in self.started())

    def assert_honest(self, box: BoxState) -> None:
        """Whatever happened: no cell ran twice at once, none was sealed twice, none is lost."""
        assert not (self.control / "overlap").exists(), (self.control / "overlap").read_text() + self.picture()
        seals = Counter(entry["cell"] for entry in self.journal(box) if entry["event"] == "cell-sealed")
        assert all(count == 1 for count in seals.values()), seals
        assert not (held_twice := overlapping_claims(self.journal(box))), held_twice

    def picture(self) -> str:
        """What is there, for a failure's message."""
        parts = [self.cluster.told()]
        for box in self.boxes:
            parts.append(f"-- {box.native_id}: {self.tasks(box)}")
            path = self.root(box) / box_layout.JOURNAL
            parts += path.read_text(errors="replace").splitlines()[-12:] if path.exists() else []
            for log in [*self.home(box).glob("workers/*.log"), *self.home(box).glob("workers/*/*.log")]:
                parts += [f"-- {log.relative_to(self.home(box))}", log.read_text(errors="replace")[-1500:]]
        return "\n".join(parts)

    def close(self) -> None:
        self.release()
        for box in self.boxes:
            self.cluster.run("scancel", "-u", "root", f"--name={box.native_id}")
            until(lambda box=box: not self.live(box), "end of its jobs", self.picture)  # type: ignore[misc]
        self.boxes.clear()

    def made_volume(self) -> VolumeState:
        raise AssertionError("a sweep on a cluster has no volume")


def overlapping_claims(journal: list[Mapping[str, Any]]) -> list[str]:
    """Claims of a cell that another worker held then, by the journal alone: in words."""
    holder: dict[str, str] = {}
    wrong = []
    for entry in journal:
        event, worker, cell = entry["event"], entry.get("worker"), entry.get("cell")
        if event == "cell-started" and worker:
            if holder.get(cell, worker) != worker:
                wrong.append(f"{cell}: {worker} began while {holder[cell]} held it (seq {entry.get('seq')})")
            holder[cell] = worker
        elif event in ("cell-sealed", "cell-failed") and cell in holder:
            del holder[cell]
        elif event in ("runner-stopped", "worker-ended") and worker:
            holder = {held: by for held, by in holder.items() if by != worker}
    return wrong
