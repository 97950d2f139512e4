"""The loop of a sweep whose cells run over two nodes of a real Slurm cluster, through `pulumi` and `sweepctl` alone.

Real torch ranks with gloo, which `srun` starts on the second node. The nodes have networks of their own, with a switch
between them; the cluster has a node more than a cell needs.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.commands import assert_failed, assert_refused, ok
from tests.extensions.nodes.nodes import TRAIN, WEIGHT
from tests.extensions.shared_queue import overlapping_claims
from tests.rented.slurm_stack import SlurmStack
from tests.rented.test_cluster import SAME
from tests.simulators.slurm_cluster import SHARED
from tests.simulators.slurm_network import NetworkedCluster

# the loop on a cluster: test_cluster.py; cells over two of its nodes, by the handlers: extensions/slurm/test_nodes.py
pytestmark = [pytest.mark.proof, pytest.mark.torch]

ALONE = """\
import fcntl, socket
cell, here = os.environ["SWEEPSTACK_CELL"], socket.gethostname()
lock = open(control / f"alone-{cell}-{rank}", "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    (control / f"overlap-{cell}-{rank}").touch()
print(f"rank {rank} is on {here}", flush=True)
"""
"""Notes when it is not the only process that is this rank of its cell."""


class NodesStack(SlurmStack):
    """One worker of two nodes, and cells that wait in the middle while `control/hold` is there."""

    cluster_kind = NetworkedCluster

    def __post_init__(self) -> None:
        super().__post_init__()
        self.cluster.shadow("python3", f'exec {sys.executable} "$@"')  # where the cells' torch is
        begins = "weights, seen = torch"
        train = TRAIN.replace(begins, ALONE + begins).replace('f"middle-{rank}"', 'f"middle-{cell}-{rank}"')
        assert train.count("{cell}-{rank}") == 3
        (self.job / "train.py").write_text(train)

    def write_config(self) -> None:
        super().write_config()

        def several(sweep: dict[str, Any]) -> None:
            sweep["job"].update(
                nodes=2,
                timeout="1h",
                retries=2,
                run="torchrun --nproc-per-node 1 train.py {out} {control}",
                resources={"cpu": 2, "gpu": {"count": 1}, "memory": "1500MB", "partition": "main", "time": "1h"},
            )
            del sweep["job"]["env"]
            sweep["job"]["env"] = {"SWEEPSTACK_CHECK_TORCH": "0", "SEED": "{seed}"}  # the GPUs here are files
            sweep["cells"]["base"] = {"control": f"{SHARED}/control"}
            sweep["artifacts"] = {"result.json": {"load": "json", "keys": ["w"], "finite": "require"}}
            sweep["overrides"]["slurm"].update(price_per_gpu_hour=3_600_000)

        self.edit_config(several)

    def in_the_middle(self, cell: str) -> None:
        there = [self.control / f"middle-{cell}-{rank}" for rank in (0, 1)]
        self.wait_for(lambda: all(path.exists() for path in there), f"both ranks of {cell}")

    def ranks(self) -> dict[int, str]:
        """The processes of ranks of the sweep's boxes, by the pids of this machine, each with its node's number."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = dict(word.partition(b"=")[::2] for word in (path / "environ").read_bytes().split(b"\0"))
                if b"RANK" in words and words.get(b"SWEEPSTACK_BOX_ID", b"").decode() in self.born:
                    found[int(path.name)] = words[b"SWEEPSTACK_NODE"].decode()
        return found

    @property
    def born(self) -> set[str]:
        return {str(birth["native_id"]) for birth in self.births()}

    def events(self, event: str) -> list[dict[str, Any]]:
        return [entry for entry in self.journal("box-0") if entry["event"] == event]

    def status(self) -> dict[str, Any]:
        """What `status --json` says of the only box, whatever its exit code."""
        (box,) = self.sweepctl("status", "--json", timeout=120).json()["boxes"]
        return dict(box)

    def picture(self) -> str:
        parts = [super().picture(), self.cluster.told(), self.cluster.ask("scontrol", "show", "job")]
        for root in self.platform_root.glob("boxes/[!.]*/data/sweep"):
            lines = (root / "journal.jsonl").read_text().splitlines()[-20:] if (root / "journal.jsonl").exists() else []
            parts += lines
            for log in [*root.glob("cells/*/*/log.txt"), *root.glob("setup/*.log"), *root.glob("jobs/*.log")]:
                parts += [f"-- {log.relative_to(root)}", log.read_text(errors="replace")[-2000:]]
            parts += [log.read_text(errors="replace")[-2000:] for log in root.glob("workers/*/runner.log")]
        return "\n".join(parts)

    def assert_honest(self) -> None:
        """No cell ran twice at once, none was sealed twice, and each was computed whole."""
        assert not list(self.control.glob("overlap-*")), self.picture()
        journal = self.journal("box-0")
        assert overlapping_claims(journal) == []
        sealed = [entry["cell"] for entry in journal if entry["event"] == "cell-sealed"]
        assert sorted(sealed) == sorted(self.cells)
        for cell in self.cells:
            (found,) = self.platform_root.glob(f"boxes/[!.]*/mnt/durable/*/cells/{cell}/result.json")
            result = json.loads(found.read_text())
            assert (result["w"], result["seen"]) == (WEIGHT, [1, 2, 3, 4, 5, 6])

    def ends_well(self) -> None:
        """pull → verify → approve → up → destroy; then nothing is left anywhere."""
        (box,) = self.boxes_there()
        ok(self.sweepctl("pull", timeout=180))
        verify = ok(self.sweepctl("verify", "--json", timeout=180)).json()
        assert (verify["verified"], verify["total"]) == (len(self.cells), len(self.cells))
        assert_refused(self.destroy(timeout=180))
        ok(self.sweepctl("approve", verify["receipt"]))
        ok(self.up(timeout=180))
        ok(self.destroy(timeout=180))
        assert self.boxes_there() == []
        assert self.jobs(box) == []
        assert self.ranks() == {}


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[NodesStack]:
    made = NodesStack(tmp_path / "s", cells=("seed0", "seed1"), workers=1, nodes=3)
    try:
        made.write_config()
        made.init()
        yield made
    finally:
        (made.control / "hold").unlink(missing_ok=True)
        made.end()


def test_the_loop_of_cells_over_two_nodes(stack: NodesStack) -> None:
    """preview refused → preview → up → status → destroy refused → wait → pull → verify → approve → up → destroy."""
    stack.edit_config(lambda sweep: sweep["job"].update(nodes=4))
    refused = stack.pulumi("preview", timeout=180)
    assert_failed(refused, "job.nodes is 4, and main has 3 nodes with the rest: ask for less")
    stack.edit_config(lambda sweep: sweep["job"].update(nodes=2))
    preview = ok(stack.pulumi("preview", timeout=180))
    assert "its workers hold 2 GPUs while all run: 2 GPU-hours an hour ($7,200,000.00)" in preview.text
    assert stack.boxes_there() == [], "a preview makes nothing"

    (stack.control / "hold").touch()
    ok(stack.up(timeout=300))
    stack.in_the_middle("seed0")
    (worker,) = stack.status()["workers"]
    assert (worker["state"], worker["node"]) == ("RUNNING", "n[1-2]")
    status = ok(stack.sweepctl("status", timeout=120))
    assert "1 workers run (on n[1-2]), 0 wait" in status.text, status.text
    assert sorted(stack.ranks().values()) == ["0", "1"]
    before = stack.snapshot()
    assert_refused(stack.destroy(timeout=180), ["seed0", "seed1"])
    stack.assert_unchanged(before, state=False)
    planned = ok(stack.pulumi("preview", "--json", timeout=180)).json()
    changed = [(step["op"], step["urn"].split("::")[-1]) for step in planned["steps"] if step["op"] not in SAME]
    assert not changed, (changed, planned.get("diagnostics"))
    (stack.control / "hold").unlink()

    ok(stack.sweepctl("wait", "done", timeout=400))
    stack.assert_honest()
    (checked,) = stack.events("nodes-checked")
    assert [node["name"] for node in checked["nodes"]] == ["n1", "n2"]
    stack.ends_well()


def test_a_node_that_is_lost_for_good_by_the_documented_commands(stack: NodesStack) -> None:
    """Its power fails in the middle of a cell, and it never comes back. `status` says so, and `up` submits another
    worker: the cell goes on from its state on the nodes that are left."""
    (stack.control / "hold").touch()
    ok(stack.up(timeout=300))
    stack.in_the_middle("seed0")
    (box,) = stack.boxes_there()
    lost = stack.events("nodes-checked")[0]["nodes"][1]["name"]
    stack.cluster.lose(lost)
    stack.wait_for(lambda: stack.events("cell-failed"), "the failure")
    (failed,) = stack.events("cell-failed")
    assert (failed["cell"], failed["class"], failed["final"]) == ("seed0", "transient", False)
    assert f"node 1 ({lost}) is lost" in failed["reason"]
    (stack.control / "hold").unlink()
    stack.wait_for(lambda: not stack.jobs(box), "the end of the worker")
    assert [entry["cell"] for entry in stack.events("cell-started")] == ["seed0"], "no other cell is tried there"

    status = stack.sweepctl("status", timeout=120)
    assert "no worker is there" in status.text, status
    assert f"exit code 69: sweepstack: node 1 ({lost}) is lost" in status.text, status
    assert f"pulumi up --stack {stack.name}" in status.text, status
    waited = stack.sweepctl("wait", "done", timeout=400)
    assert_failed(waited, "no runner is alive, and 2 cells did not finish", "pulumi up")
    assert waited.rc == 1
    assert_refused(stack.destroy(timeout=180), ["seed0", "seed1"])

    stack.cluster.drain("n3")  # as where all other nodes have work
    ok(stack.up(timeout=300))
    status = stack.sweepctl("status", timeout=120)
    assert "0 workers run, 1 wait (" in status.text, status
    assert "ALARM" not in status.text, "what failed with a worker that has ended is not the next one's"
    stack.cluster.resume("n3")
    ok(stack.sweepctl("wait", "done", timeout=400))
    stack.assert_honest()
    assert [entry["cell"] for entry in stack.events("cell-started")] == ["seed0", "seed0", "seed1"], stack.picture()
    stack.ends_well()


def test_the_node_of_the_worker_is_lost_for_good(stack: NodesStack) -> None:
    """Slurm leaves the job its other node, where nothing runs, and calls it RUNNING until its time is over. `status`
    says so, `up` ends the job and submits another; the cell is free once a person has seen that the node is off."""
    (stack.control / "hold").touch()
    ok(stack.up(timeout=300))
    stack.in_the_middle("seed0")
    (box,) = stack.boxes_there()
    lost, other = (node["name"] for node in stack.events("nodes-checked")[0]["nodes"])
    stack.cluster.lose(lost)
    (job,) = stack.jobs(box)
    assert job.endswith(" RUNNING"), "as Slurm has it"
    stack.wait_for(lambda: not stack.ranks(), "the end of what runs on the other node")
    (stack.control / "hold").unlink()

    status = stack.sweepctl("status", timeout=120)
    held = f"1 only hold nodes: Slurm has lost that of the worker ({job.split()[0]}, which was on {lost})"
    assert held in " ".join(status.text.split()), status
    assert f"pulumi up --stack {stack.name}" in status.text, status
    waited = stack.sweepctl("wait", "done", timeout=400)
    assert_failed(waited, "no runner is alive, and 2 cells did not finish", "pulumi up")
    ok(stack.up(timeout=300))
    stack.wait_for(lambda: stack.sealed() == {"seed1"}, "the cell that was not begun")
    stack.wait_for(lambda: not stack.jobs(box), "the end of all workers")
    assert [entry["cell"] for entry in stack.events("cell-started")] == ["seed0", "seed1"], stack.picture()

    worker = stack.events("cell-started")[0]["worker"]
    status = stack.sweepctl("status", timeout=120)
    assert f"{worker} has seed0 still: " in " ".join(status.text.split()), status
    assert f"its node {lost} does not answer" in " ".join(status.text.split()), status
    assert f'next   sweepctl confirm worker --stack {stack.name} box-0 {worker} --saw "…"' in status.text, status
    said = ("--saw", "its power supply is burnt", "--by", "ann")
    ok(stack.sweepctl("confirm", "worker", "box-0", worker, *said, timeout=120))
    ok(stack.up(timeout=300))
    ok(stack.sweepctl("wait", "done", timeout=400))
    stack.assert_honest()
    (proved,) = stack.events("worker-ended")
    assert (proved["worker"], proved["proof"]) == (worker, "ann saw: its power supply is burnt")
    assert other in {node["name"] for node in stack.events("nodes-checked")[-1]["nodes"]}
    stack.ends_well()
