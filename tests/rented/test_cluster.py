"""The loop on a real Slurm cluster, through `pulumi` and `sweepctl` alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.commands import assert_refused, ok
from tests.engine.harness import Stack
from tests.simulators.slurm_cluster import SHARED, SlurmCluster
from tests.simulators.test_machines import Login


class ClusterStack(Stack):
    """One box on a cluster of its own, with two workers."""

    cluster: SlurmCluster

    def boxes_there(self) -> list[str]:
        return [path.name for path in self.cluster.shared.glob("sweeps/boxes/[!.]*")]


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[ClusterStack]:
    login = Login(tmp_path)
    with SlurmCluster.start(tmp_path / "c", authorized_keys=[login.public]) as cluster:
        made = ClusterStack(tmp_path / "s", boxes=("box-0",))
        made.cluster = cluster
        made.env |= {"SWEEPSTACK_SSH_KEY": str(login.key), "SWEEPSTACK_SSH_CONFIG": "none"}
        made.write_config()
        made.control = cluster.shared / "control"
        made.control.mkdir()
        host = f"{cluster.login.user}@{cluster.login.host}:{cluster.login.port}{SHARED}/sweeps"

        def on_cluster(sweep: dict) -> None:  # type: ignore[type-arg]
            sweep["job"] |= {
                "run": "python3 train.py --seed {seed} --out {out}",
                "env": {"DRILL_CONTROL": f"{SHARED}/control"},
                "resources": {"cpu": 2, "memory": "300MB", "partition": "main", "time": "1h"},
            }
            sweep |= {"candidates": ["slurm"], "overrides": {"slurm": {"purge_days": 30}}}
            sweep["boxes"] = {"box-0": {"want": "running", "host": host, "workers": 2}}

        made.edit_config(on_cluster)
        yield made
        made.close()


def test_the_loop_on_a_cluster(stack: ClusterStack) -> None:
    """preview refused → up → destroy refused → wait → pull → verify → approve → destroy."""
    stack.init()
    stack.edit_config(lambda sweep: sweep["job"]["resources"].update(partition="mian", gpu={"count": 1}))
    refused = stack.pulumi("preview", timeout=180)
    assert refused.rc != 0
    assert "lab has no mian; did you mean main" in refused.text
    stack.edit_config(lambda sweep: sweep["job"]["resources"].update(partition="main"))
    ok(stack.pulumi("preview", timeout=180))
    assert stack.boxes_there() == [], "a preview makes nothing"

    stack.hold("seed0")
    up = ok(stack.up(timeout=300))
    assert "2 wait" in up.text or "2 workers run" in up.text, up
    (box,) = stack.boxes_there()
    status = ok(stack.sweepctl("status", timeout=120))
    assert "workers run" in status.text, status
    assert_refused(stack.destroy(timeout=180))
    again = ok(stack.pulumi("preview", "--json", timeout=180)).json()["changeSummary"]
    assert not {what: count for what, count in again.items() if what not in ("same", "refresh") and count}, again
    stack.release()

    ok(stack.sweepctl("wait", "--for", "done", timeout=400))
    ok(stack.sweepctl("pull", timeout=180))
    verify = ok(stack.sweepctl("verify", "--json", timeout=180)).json()
    assert (verify["verified"], verify["total"]) == (4, 4)
    ok(stack.sweepctl("approve", "--receipt", verify["receipt"]))
    ok(stack.up(timeout=180))
    ok(stack.destroy(timeout=180))
    assert stack.boxes_there() == []
    left = stack.cluster.ask("squeue", "--all", "--noheader", f"--name={box}")
    assert left == ""
