"""The sweep of tests/engine on a real Slurm cluster: its box lies on the shared tier, and workers run its cells."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.engine.harness import Stack
from tests.simulators.slurm_cluster import SHARED, SlurmCluster
from tests.simulators.test_machines import Login


@dataclass
class SlurmStack(Stack):
    """A cluster, and a sweep with some workers there."""

    cells: tuple[str, ...] = ("seed0", "seed1", "seed2", "seed3")
    boxes: tuple[str, ...] = ("box-0",)
    workers: int = 2
    nodes: int = 2
    cluster: SlurmCluster = field(init=False)

    def __post_init__(self) -> None:
        self.base.mkdir(parents=True, exist_ok=True)
        login = Login(self.base)
        self.cluster = SlurmCluster.start(self.base / "cluster", authorized_keys=[login.public], nodes=self.nodes)
        super().__post_init__()
        self.env |= {"SWEEPSTACK_SSH_KEY": str(login.key), "SWEEPSTACK_SSH_CONFIG": "none"}

    def boxes_there(self) -> list[str]:
        """The native ids of the boxes on the cluster, by its shared tier."""
        return [path.name for path in self.cluster.shared.glob("sweeps/boxes/[!.]*")]

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
