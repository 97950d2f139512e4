"""How to break a login node, and put it right again: a real sshd, and the commands of a real cluster behind it."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import pytest

from tests.conformance import harness_ssh
from tests.simulators.slurm_cluster import SlurmCluster


@functools.cache
def cluster_settings() -> str:
    """The path of a slurm.conf with which this machine is a login node of the one cluster of this process."""
    keep = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    cluster = SlurmCluster.start(keep, nodes=1)  # ends with this process
    text = (cluster.etc / "slurm.conf").read_text().replace("socket=/run/munge/socket", f"socket={keep}/munge/socket")
    here = keep / "here"
    here.mkdir()
    for file in cluster.etc.iterdir():
        (here / file.name).write_text(file.read_text())
    (here / "slurm.conf").write_text(text)
    _KEPT.append(cluster)
    return str(here / "slurm.conf")


_KEPT: list[SlurmCluster] = []


class Harness(harness_ssh.Harness):
    """See `harness.Harness`. The host is one of the cluster's login nodes; its boxes submit no jobs here."""

    adapter = "slurm"
    proved_by = "ssh: the same folders and the same agent; jobs are played by tests/rented/test_cluster.py"

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machines: bool) -> None:
        super().__init__(tmp_path, monkeypatch, machines)
        self._root = self._host.home / ".local/share/sweepstack/cluster"
        self._host.say(SLURM_CONF=cluster_settings())

    def _drill(self, **environment: str) -> None:
        super()._drill(SLURM_CONF=cluster_settings(), **environment)
