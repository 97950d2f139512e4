"""The sweep of tests/engine on a real Slurm cluster: its box lies on the shared tier, and workers run its cells."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from tests.engine.harness import Stack
from tests.engine.looking import Snapshot
from tests.simulators.slurm_cluster import SHARED, SlurmCluster
from tests.simulators.test_machines import Login

ALIVE = re.compile(r"data/sweep/(workers/[^/]+/(patrol\.jsonl|runner\.log)|lock/.*|jobs/submit\.lock)")
"""Files that workers write while nothing happens, and the lock that a command takes in order to look."""


@dataclass
class SlurmStack(Stack):
    """A cluster, and a sweep with some workers there."""

    cells: tuple[str, ...] = ("seed0", "seed1", "seed2", "seed3")
    boxes: tuple[str, ...] = ("box-0",)
    workers: int = 2
    nodes: int = 2
    cluster_kind: ClassVar[type[SlurmCluster]] = SlurmCluster
    cluster: SlurmCluster = field(init=False)

    def __post_init__(self) -> None:
        self.base.mkdir(parents=True, exist_ok=True)
        login = Login(self.base)
        self.cluster = self.cluster_kind.start(self.base / "cluster", authorized_keys=[login.public], nodes=self.nodes)
        super().__post_init__()
        self.env |= {"SWEEPSTACK_SSH_KEY": str(login.key), "SWEEPSTACK_SSH_CONFIG": "none"}

    def boxes_there(self) -> list[str]:
        """The native ids of the boxes on the cluster, by its shared tier."""
        return [path.name for path in self.cluster.shared.glob("sweeps/boxes/[!.]*")]

    @property
    def platform_root(self) -> Path:
        """The folder on the shared tier that holds the boxes."""
        return self.cluster.shared / "sweeps"

    def jobs(self, native_id: str) -> list[str]:
        """The tasks of a box that wait or run, as Slurm itself lists them."""
        argv = ("squeue", "--all", "--array", "--noheader", f"--name={native_id}", "--format=%i %T")
        return sorted(self.cluster.ask(*argv).splitlines())

    def snapshot(self, *, state: bool = True) -> Snapshot:
        """As that of `Stack`, without what living workers write; a box's jobs are among its files."""
        found = super().snapshot(state=state)
        files: dict[str, Mapping[str, str]] = {
            name: {path: what for path, what in there.items() if not ALIVE.fullmatch(path)}
            for name, there in found.files.items()
        }
        jobs = {native_id: {"jobs": "; ".join(self.jobs(native_id))} for native_id in found.boxes}
        return replace(found, files={name: {**there, **jobs.get(name, {})} for name, there in files.items()})

    def sealed(self) -> set[str]:
        found = self.platform_root.glob("boxes/[!.]*/mnt/durable/*/cells/*/manifest.json")
        return super().sealed() | {path.parent.name for path in found}

    @property
    def address(self) -> str:
        """What `boxes.<name>.host` says."""
        at = self.cluster.login
        return f"{at.user}@{at.host}:{at.port}{SHARED}/sweeps"

    def write_config(self) -> None:
        super().write_config()
        self.control = self.cluster.shared / "control"
        self.control.mkdir(exist_ok=True)
        self.edit_config(
            lambda sweep: sweep.update(
                candidates=["slurm"],
                overrides={"slurm": {"price_per_hour": 0}},
                boxes={box: {"want": "running", "host": self.address, "workers": self.workers} for box in self.boxes},
            )
        )
        self.edit_config(lambda sweep: sweep["job"].update(run=sweep["job"]["run"].replace("python ", "python3 ")))
        self.edit_config(lambda sweep: sweep["job"]["env"].update(DRILL_CONTROL=f"{SHARED}/control"))

    def end(self) -> None:
        """Ends the cluster with all that runs there."""
        self.close()
        self.cluster.stop()
