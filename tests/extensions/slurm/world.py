"""A sweep whose box is on a real Slurm cluster, driven handler by handler: no engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sweepstack.core.resources import BoxState, QueueInputs
from sweepstack.extensions.slurm.platform import SlurmPlatform
from sweepstack.onbox.common import box_layout
from sweepstack.platforms.registry import load_platform
from tests.extensions.shared_queue import SharedQueueSweep
from tests.simulators.slurm_cluster import SHARED, SlurmCluster, until

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


class SlurmSweep(SharedQueueSweep):
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

    def queue_inputs(self, box: BoxState, *cells: str, **changes: Any) -> QueueInputs:
        job = {
            "run": f"sh train.sh {{word}} {{out}} {self.place}/control",
            "slots": self.slots,
            "retries": 0,
            "grace_seconds": 2.0,
            "scheduler": self.scheduler,
        }
        return super().queue_inputs(box, *cells, **(changes | {"job": job | changes.get("job", {})}))

    # what there is to see

    def home(self, box: BoxState) -> Path:
        return self.root(box) / box_layout.HOME

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

    def node_of(self, cell: str) -> str:
        """The node on which a cell has begun last."""
        return (self.control / f"node-{cell}").read_text().strip()

    def until_begun(self, *cells: str) -> None:
        until(lambda: {line.split()[0] for line in self.started()} >= set(cells), f"start of {cells}", self.picture)

    def until_sealed(self, box: BoxState, *cells: str) -> None:
        wanted = set(cells or self.roster)
        until(lambda: wanted <= self.sealed(box), f"seals of {wanted}", self.picture)

    def until_idle(self, box: BoxState) -> None:
        """Until no worker is left, and Slurm has no job but what it holds itself."""

        def idle() -> bool:
            left = [why for _, state, why in self.tasks(box) if state in ("PENDING", "RUNNING", "COMPLETING")]
            held = self.channel(box).lock_held(box_layout.RUNNER_LOCK)
            return not held and set(left) <= {"launch failed requeued held"}

        until(idle, "end of its jobs", self.picture)

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
