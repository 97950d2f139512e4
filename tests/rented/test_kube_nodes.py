"""The loop of cells over two pods of a real Kubernetes cluster, through `pulumi` and `sweepctl` alone.

Real torch ranks with gloo, on two nodes. The pods find torch on the box's volume, where each node has this checkout's
packages mounted, since the tests' image has none.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.commands import assert_refused, ok
from tests.extensions.nodes.nodes import TRAIN, WEIGHT
from tests.extensions.shared_queue import overlapping_claims
from tests.rented.kube_stack import CONTROL, JOBS, PODS, KubeStack
from tests.simulators.kubernetes import KubernetesCluster

# the loop on a cluster: test_kube.py; cells over two pods, by the handlers: extensions/kubernetes/test_several_nodes.py
pytestmark = [pytest.mark.proof, pytest.mark.torch]


class NodesStack(KubeStack):
    """One worker of two pods, and cells that wait in the middle while `control/hold` is there."""

    def write_config(self) -> None:
        super().write_config()
        train = TRAIN.replace('f"middle-{rank}"', "f\"middle-{os.environ['SWEEPSTACK_CELL']}-{rank}\"")
        (self.job / "train.py").write_text(train)
        self._torch()

        def several(sweep: dict[str, Any]) -> None:
            sweep["job"].update(
                nodes=2,
                timeout="1h",
                run=f"python3 train.py {{out}} {CONTROL}",
                env={
                    "SEED": "{seed}", "OMP_NUM_THREADS": "1",
                    "PYTHONPATH": "/sweepstack/packages", "LD_LIBRARY_PATH": "/sweepstack/libraries",
                },
                resources={"cpu": 0.1, "memory": "2GB", "disk": "1GB"},
            )  # fmt: skip
            sweep["artifacts"] = {"result.json": {"load": "json", "keys": ["w"], "finite": "require"}}

        self.edit_config(several)

    def _torch(self) -> None:
        """Gives the pods torch. What is mounted is in the nodes' own name spaces alone, and read-only."""
        for name in ("packages", "libraries"):
            (self.folder / name).mkdir()
        known = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
        for name in ("libstdc++.so.6", "libgcc_s.so.1"):
            path = next(line.split()[-1] for line in known.splitlines() if line.split()[:1] == [name])
            shutil.copy(path, self.folder / "libraries" / name)
        there = "/mnt/keep/volumes/v1/packages"
        for node in self.cluster.nodes.values():
            node.inside.run("mount", "--bind", sysconfig.get_path("purelib"), there)
            node.inside.run("mount", "-o", "remount,bind,ro", there)

    def events(self, event: str) -> list[dict[str, Any]]:
        path = self.folder / "box/data/sweep/journal.jsonl"
        entries = [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []
        return [entry for entry in entries if event in ("", entry["event"])]

    def in_the_middle(self, cell: str) -> None:
        there = [self.control / f"middle-{cell}-{rank}" for rank in (0, 1)]
        self.wait_for(lambda: all(path.exists() for path in there), f"both ranks of {cell}")

    def running(self) -> list[dict[str, Any]]:
        """The pods of workers that run, the first one first."""
        found = self.cluster.admin.list(PODS, labelSelector="sweepstack.dev/role=worker")
        return sorted(
            (pod for pod in found if pod["status"].get("phase") == "Running"), key=lambda pod: pod["metadata"]["name"]
        )

    def picture(self) -> str:
        parts = [super().picture(), self.cluster.told(), *map(str, self.events("")[-20:])]
        home = self.folder / "box/data/sweep"
        for log in [*home.glob("cells/*/*/log.txt"), *home.glob("setup/*.log"), *home.glob("workers/*/runner.log")]:
            parts += [f"-- {log.relative_to(home)}", log.read_text(errors="replace")[-3000:]]
        return "\n".join(parts)

    def ends_well(self) -> None:
        """Each cell is whole; pull → verify → approve → up → destroy; then nothing is left."""
        assert overlapping_claims(self.events("")) == []
        for cell in self.cells:
            (found,) = self.folder.glob(f"box/mnt/durable/*/cells/{cell}/result.json")
            result = json.loads(found.read_text())
            assert (result["w"], result["seen"]) == (WEIGHT, [1, 2, 3, 4, 5, 6]), "both ranks added theirs"
            assert result["env"]["GLOO_SOCKET_IFNAME"] == "eth0"
        ok(self.sweepctl("pull", timeout=180))
        verify = ok(self.sweepctl("verify", "--json", timeout=180)).json()
        assert (verify["verified"], verify["total"]) == (len(self.cells), len(self.cells))
        assert_refused(self.destroy(timeout=180))
        ok(self.sweepctl("approve", verify["receipt"], timeout=120))
        ok(self.up(timeout=180))
        ok(self.destroy(timeout=180))
        assert self.boxes_there() == []
        assert self.cluster.admin.list(PODS) == []
        assert self.cluster.admin.list(JOBS) == []


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[NodesStack]:
    with KubernetesCluster.start(tmp_path / "cluster", nodes=2) as cluster:
        made = NodesStack(tmp_path / "s", cluster=cluster, cells=("seed0", "seed1"), workers=1)
        try:
            made.write_config()
            made.init()
            yield made
        finally:
            made.close()


def test_the_loop_of_cells_over_two_pods(stack: NodesStack) -> None:
    """preview → up → status → destroy refused → wait → pull → verify → approve → up → destroy."""
    preview = ok(stack.pulumi("preview", timeout=180))
    assert "a worker is a Job of 2 pods" in " ".join(preview.text.split()), preview
    assert stack.boxes_there() == [], "a preview makes nothing"
    (stack.control / "hold").touch()
    up = ok(stack.up(timeout=300))
    assert "submitted 1 as" in up.text, up
    stack.in_the_middle("seed0")
    assert {pod["spec"]["nodeName"] for pod in stack.running()} == {"n1", "n2"}
    status = ok(stack.sweepctl("status", timeout=120))
    assert "1 workers run, 0 wait, each of 2 pods" in " ".join(status.text.split()), status
    assert_refused(stack.destroy(timeout=180), ["seed0", "seed1"])
    (stack.control / "hold").unlink()
    ok(stack.sweepctl("wait", "done", timeout=400))
    (checked,) = stack.events("nodes-checked")
    assert [node["interface"][0] for node in checked["nodes"]] == ["eth0", "eth0"]
    stack.ends_well()


def test_a_person_says_that_the_node_of_the_second_pod_is_off(stack: NodesStack) -> None:
    """`status` names what `confirm` takes. Until then the first pod's own end frees nothing."""
    (stack.control / "hold").touch()
    ok(stack.up(timeout=300))
    stack.in_the_middle("seed0")
    first, other = stack.running()
    worker, part = (f"{pod['metadata']['uid']}.0" for pod in (first, other))
    says = ("--saw", "its fan is burnt", "--by", "ann")
    refused = stack.sweepctl("confirm", "worker", "box-0", part, *says, timeout=120)
    assert refused.rc == 1, refused
    assert "runs, as the cluster shows it" in " ".join(refused.text.split()), refused

    node = stack.cluster.nodes[other["spec"]["nodeName"]]
    node.power_off()
    node.await_ready(False)
    (stack.control / "hold").unlink()
    stack.wait_for(lambda: first["metadata"]["uid"] not in str(stack.running()), "the end of the first pod")
    ok(stack.up(timeout=300))
    status = stack.sweepctl("status", timeout=180)
    assert f'sweepctl confirm worker --stack {stack.name} box-0 {part} --saw "…"' in status.text, status
    refused = stack.sweepctl("confirm", "worker", "box-0", worker, *says, timeout=180)
    assert refused.rc == 1, refused
    assert f"{part} --saw" in " ".join(refused.text.split()), refused
    assert [entry["cell"] for entry in stack.events("cell-started") if entry["cell"] == "seed0"] == ["seed0"]

    taken = ok(stack.sweepctl("confirm", "worker", "box-0", part, *says, timeout=180))
    assert f"{part} has ended (ann saw: its fan is burnt)" in " ".join(taken.text.split()), taken
    ok(stack.up(timeout=300))
    ok(stack.sweepctl("wait", "done", timeout=400))
    (proved,) = stack.events("worker-ended")
    assert proved["worker"] == worker
    stack.ends_well()
