"""Cells over two pods on two nodes of a real cluster: who may begin, and what frees a cell whose pods were lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweepstack.core.resources import BoxState
from sweepstack.extensions.kubernetes.onbox.ends import OUT_OF_SERVICE
from tests.extensions.kubernetes.world import CONTROL, KubeSweep
from tests.simulators.kubernetes import KubernetesCluster
from tests.unit.provider.support import QUEUE

proof = pytest.mark.proof
RUNNING = """
import os, runpy, sys
options = dict(word.lstrip("-").split("=", 1) for word in sys.argv[1:] if word.startswith("--"))
os.environ.update(RANK=options["node-rank"], MASTER=options["master-addr"], PORT=options["master-port"])
sys.argv = [word for word in sys.argv[1:] if not word.startswith("--")]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Stands for torch's own start of ranks, as an image for tests has no torch: one rank a node, with the same options."""
RANKS = """
import fcntl, json, os, socket, sys, time
out, control, cell = sys.argv[1], sys.argv[2], os.environ["SWEEPSTACK_CELL"]
rank, at = int(os.environ["RANK"]), (os.environ["MASTER"], int(os.environ["PORT"]))
alone = open(f"{control}/alone-{cell}-{rank}", "w")
try:
    fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    open(f"{control}/overlap", "a").write(cell + chr(10))
if rank == 0:
    open(f"{control}/started", "a").write(cell + " x" + chr(10))
    with socket.create_server(at) as door:
        other = door.accept()[0]
    said = other.recv(100).decode()
else:
    for _ in range(200):
        try:
            first = socket.create_connection(at)
            break
        except OSError:
            time.sleep(0.1)
    first.sendall(socket.gethostname().encode())
open(f"{control}/on-{cell}-{rank}", "w").write(socket.gethostname())
while os.path.exists(f"{control}/hold-{cell}"):
    time.sleep(0.1)
if rank == 0:
    json.dump({"first": socket.gethostname(), "other": said}, open(f"{out}/result.json", "w"))
"""


class Pair(KubeSweep):
    """A sweep whose workers have two pods, and whose cells run on both."""

    def __init__(self, folder: Path, cluster: KubernetesCluster) -> None:
        super().__init__(folder, cluster, shared=True, workers=1, nodes=2)
        self.roster = ("a",)
        run = f"python3 train.py {{out}} {CONTROL}"
        self.job |= {"run": run, "env": {"SWEEPSTACK_NODES": "2"}, "nodes": {"allocated": True, "restores": True}}
        code = self.project / "job"
        (code / "train.py").write_text(RANKS)
        for package in ("torch", "torch/distributed", "torch-2.0.dist-info"):
            (code / package).mkdir()
            (code / package / "__init__.py").touch()
        (code / "torch/distributed/run.py").write_text(RUNNING)
        about = "Metadata-Version: 2.1\nName: torch\nVersion: 2.0\n"
        (code / "torch-2.0.dist-info/METADATA").write_text(about)

    def both_run(self, cell: str) -> bool:
        return all((self.control / f"on-{cell}-{rank}").exists() for rank in (0, 1))

    def up(self, box: BoxState, queue: Any) -> Any:
        return QUEUE.update(self.op("Queue"), "q", queue, self.queue_inputs(box, *self.roster))

    def picture(self) -> str:
        parts = [super().picture()]
        for box in self.boxes:
            home = self.root(box) / "data/sweep"
            for log in [*home.glob("cells/*/*/log.txt"), *home.glob("setup/*.log")]:
                parts += [f"-- {log.relative_to(home)}", log.read_text(errors="replace")[-3000:]]
        return "\n".join(parts)


@pytest.fixture
def pair(make_sweep: Callable[..., Pair]) -> Pair:
    return make_sweep(Pair)


def result(pair: Pair, box: BoxState, cell: str = "a") -> dict[str, Any]:
    (found,) = pair.root(box).glob(f"mnt/durable/**/cells/{cell}/result.json")
    return dict(json.loads(found.read_text()))


def test_a_cell_runs_in_two_pods_on_two_nodes(pair: Pair) -> None:
    """Its ranks reach each other by the pods' addresses; it is one cell, and one worker that ends as a whole."""
    pair.hold("a")
    box = pair.box()
    pair.queue(box)
    pair.until(lambda: pair.both_run("a"), "both ranks")
    assert len({pod["spec"]["nodeName"] for pod in pair.running()}) == 2
    told = pair.channel(box).workers()
    assert "1 workers run, 0 wait, each of 2 pods" in told["words"]
    assert [task["name"] for task in told["tasks"]] == [pair.worker_of(box, "a").removesuffix(".0")]
    pair.let("a")
    pair.until_sealed(box, "a")
    found = result(pair, box)
    assert (found["first"][-2:], found["other"][-2:]) == ("-0", "-1")
    (checked,) = pair.events(box, "nodes-checked")
    assert [node["interface"][0] for node in checked["nodes"]] == ["eth0", "eth0"]
    pair.until(lambda: not pair.channel(box).lock_held("data/sweep/runner.lock"), "the worker's end")
    pair.assert_honest(box)


@proof
@pytest.mark.parametrize("how", ["back", "taint"])
def test_a_lost_pod_frees_the_cell_by_its_own_end_alone(pair: Pair, how: str) -> None:
    """The node of the second pod is silent: the first one's end frees nothing, and the cell begins again once the
    node is back and has said that both ended, or once a person says by a taint that it is off."""
    pair.hold("a")
    box = pair.box()
    queue = pair.queue(box)
    pair.until(lambda: pair.both_run("a"), "both ranks")
    first = pair.worker_of(box, "a").removesuffix(".0")
    other = next(pod for pod in pair.running() if pod["metadata"]["uid"] != first)
    node = pair.cluster.nodes[other["spec"]["nodeName"]]
    node.partition() if how == "back" else node.power_off()
    try:
        pair.until(lambda: first not in {pod["metadata"]["uid"] for pod in pair.running()}, "the first pod's end")
        queue = pair.up(box, queue)
        state = pair.channel(box).state_command()
        asked = pair.channel(box).run([*state, first, "0"], timeout=60)
        assert json.loads(asked.stdout)["state"] == "unknown", asked
        assert other["metadata"]["name"] in json.loads(asked.stdout)["why"]
        assert pair.starts()["a"] == 1
        pair.let("a")
        if how == "taint":
            node.taint(OUT_OF_SERVICE, "nodeshutdown", "NoExecute")
            pair.until(lambda: pair.up(box, queue) and "a" in pair.sealed(box), "the seal, on the other node")
    finally:
        node.heal() if how == "back" else node.power_on()
        node.await_ready()
        node.untaint(OUT_OF_SERVICE)
    pair.until(lambda: pair.up(box, queue) and "a" in pair.sealed(box), "the seal")
    assert pair.starts()["a"] == 2
    pair.assert_honest(box)


@proof
@pytest.mark.parametrize("which", ["first", "other"])
def test_a_pod_that_is_evicted_takes_its_whole_worker_along(pair: Pair, which: str) -> None:
    pair.hold("a")
    box = pair.box()
    pair.queue(box)
    pair.until(lambda: pair.both_run("a"), "both ranks")
    first = pair.worker_of(box, "a").removesuffix(".0")
    pod = next(one for one in pair.running() if (one["metadata"]["uid"] == first) == (which == "first"))
    pair.admin.delete(pair.path("pods", pod["metadata"]["name"]))
    pair.until(lambda: pair.starts()["a"] == 2, "another start")
    pair.let("a")
    pair.until_sealed(box, "a")
    pair.assert_honest(box)
