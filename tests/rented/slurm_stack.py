"""The sweep of tests/engine on a real Slurm cluster: its box lies on the shared tier, and workers run its cells."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tests.engine.harness import Stack
from tests.simulators.slurm_cluster import SHARED, SlurmCluster
from tests.simulators.test_machines import Login


@dataclass
class SlurmStack(Stack):
    """A cluster of two nodes, and a sweep with two workers there."""

    cells: tuple[str, ...] = ("seed0", "seed1", "seed2", "seed3")
    boxes: tuple[str, ...] = ("box-0",)
    workers: int = 2
    cluster: SlurmCluster = field(init=False)

    def __post_init__(self) -> None:
        self.base.mkdir(parents=True, exist_ok=True)
        login = Login(self.base)
        self.cluster = SlurmCluster.start(self.base / "cluster", authorized_keys=[login.public])
        super().__post_init__()
        self.env |= {"SWEEPSTACK_SSH_KEY": str(login.key), "SWEEPSTACK_SSH_CONFIG": "none"}

    @property
    def there(self) -> Path:
        """What the job reads to be held: the shared tier, as this machine sees it."""
        return self.cluster.shared / "control"

    @property
    def address(self) -> str:
        """What `boxes.<name>.host` says."""
        at = self.cluster.login
        return f"{at.user}@{at.host}:{at.port}{SHARED}/sweeps"

    def write_config(self) -> None:
        super().write_config()
        self.there.mkdir(exist_ok=True)
        self.edit_config(
            lambda sweep: sweep.update(
                candidates=["slurm"],
                overrides={"slurm": {"price_per_hour": 0}},
                boxes={box: {"want": "running", "host": self.address, "workers": self.workers} for box in self.boxes},
            )
        )
        self.edit_config(lambda sweep: sweep["job"].update(run=sweep["job"]["run"].replace("python ", "python3 ")))
        self.edit_config(lambda sweep: sweep["job"]["env"].update(DRILL_CONTROL=f"{SHARED}/control"))

    def jobs(self) -> list[tuple[str, str, str]]:
        """(task, state, reason) of every job that waits or runs."""
        return [job for job in self.cluster.jobs() if job[1] in ("PENDING", "RUNNING", "COMPLETING")]

    def end(self) -> None:
        """Ends the cluster with all that runs there."""
        self.close()
        self.cluster.stop()
