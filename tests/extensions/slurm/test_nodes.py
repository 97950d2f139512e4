"""Cells over two nodes of a real Slurm cluster: real torch ranks with gloo, which `srun` starts on the second node.

The nodes have networks of their own, with a switch between them; the box lies on the tier that both see.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweepstack.core.resources import BoxState, QueueInputs, QueueState
from tests.extensions.nodes.nodes import TRAIN, WEIGHT
from tests.extensions.slurm.world import SlurmSweep
from tests.simulators.slurm_cluster import until
from tests.simulators.slurm_network import CARD, NetworkedCluster
from tests.simulators.test_machines import Login
from tests.unit.provider.support import QUEUE

pytestmark = pytest.mark.torch
SECONDS = 180.0


class Pair(SlurmSweep):
    """A sweep whose only worker has two nodes, and whose cells run on both."""

    def __init__(self, folder: Path, cluster: NetworkedCluster, **scheduler: Any) -> None:
        self.job: dict[str, Any] = {}
        super().__init__(folder, cluster, **{"workers": 1, "nodes": 2, "memory_bytes": 1500 << 20, **scheduler})
        train = TRAIN.replace('found = {"w"', 'found = {"word": sys.argv[3], "cards": os.environ.get(CARDS), "w"')
        train = train.replace(
            "weights, seen =", 'print(f"rank {rank} has cards {os.environ.get(CARDS)}")\nweights, seen ='
        )
        train = f'CARDS = "CUDA_VISIBLE_DEVICES"\n{train}'
        (self.project / "job" / "train.py").write_text(train)

    def queue_inputs(self, box: BoxState, *cells: str, **changes: Any) -> QueueInputs:
        self.job = {
            "run": f"python train.py {{out}} {self.place}/control {{word}}",
            "env": {"SWEEPSTACK_NODES": "2"},
            "nodes": {"allocated": True},
            **self.job,
            **changes.pop("job", {}),
        }
        return super().queue_inputs(box, *cells, job=self.job, **changes)

    def update(self, box: BoxState, queue: QueueState) -> None:
        """What an `up` does to the queue."""
        QUEUE.update(self.op("Queue"), "q", queue, self.queue_inputs(box, *self.roster))

    def in_the_middle(self) -> None:
        until(lambda: all((self.control / f"middle-{n}").exists() for n in (0, 1)), "both ranks", self.said, SECONDS)

    def hold_in_the_middle(self) -> None:
        (self.control / "hold").touch()

    def go_on(self) -> None:
        (self.control / "hold").unlink()

    def ranks(self, node: int, box: BoxState) -> list[int]:
        """Processes of ranks on a node, by the pids of this machine."""
        found = []
        marks = {f"SWEEPSTACK_NODE={node}".encode(), f"SWEEPSTACK_BOX_ID={box.native_id}".encode()}
        for path in Path("/proc").glob("[0-9]*"):
            try:
                words = (path / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if marks <= set(words) and any(word.startswith(b"RANK=") for word in words):
                found.append(int(path.name))
        return found

    def said(self) -> str:
        parts = [self.picture()]
        for box in self.boxes:
            home = self.home(box)
            for log in [*home.glob("cells/*/*/log.txt"), *home.glob("setup/*.log"), *home.glob("jobs/*.log")]:
                parts += [f"-- {log.relative_to(home)}", log.read_text(errors="replace")[-3000:]]
        return "\n".join(parts)

    def close(self) -> None:
        (self.control / "hold").unlink(missing_ok=True)
        super().close()


@pytest.fixture(scope="module")
def pair_cluster(tmp_path_factory: pytest.TempPathFactory, key: Login) -> Iterator[NetworkedCluster]:
    with NetworkedCluster.start(tmp_path_factory.mktemp("cluster"), authorized_keys=[key.public]) as made:
        made.shadow("python3", f'exec {sys.executable} "$@"')  # where the cells' torch is
        yield made


@pytest.fixture
def pair(pair_cluster: NetworkedCluster, key: Login, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}/state")
    monkeypatch.setenv("SWEEPSTACK_API_PACE", "0.01")
    monkeypatch.setenv("SWEEPSTACK_SSH_KEY", str(key.key))
    monkeypatch.setenv("SWEEPSTACK_SSH_CONFIG", "none")
    made = Pair(tmp_path / f"sweep-{tmp_path.name}", pair_cluster)
    made.roster = ("a",)
    yield made
    made.close()


def killed(pids: list[int]) -> None:
    assert pids, "there is something to end"
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def result(pair: Pair, box: BoxState, cell: str = "a") -> dict[str, Any]:
    (found,) = pair.root(box).glob(f"mnt/durable/*/cells/{cell}/result.json")
    return dict(json.loads(found.read_text()))


@pytest.mark.proof  # over ssh: tests/extensions/nodes/test_nodes.py; one node of Slurm: test_must_hold.py
def test_a_cell_runs_on_both_nodes_of_an_allocation(pair: Pair) -> None:
    """Looked at first, each rank on its node, sealed once on the first; then nothing is left anywhere."""
    box = pair.box()
    pair.queue(box)
    until(lambda: pair.sealed(box) == {"a"}, "the seal", pair.said, SECONDS)
    pair.until_idle(box)
    found = result(pair, box)
    assert (found["w"], found["seen"], found["begun"]) == (WEIGHT, [1, 2, 3, 4, 5, 6], 0), "both ranks added theirs"
    assert found["env"]["GLOO_SOCKET_IFNAME"] == CARD
    (checked,) = pair.events(box, "nodes-checked")
    nodes = [(node["name"], node["interface"][0], node["shared"]) for node in checked["nodes"]]
    assert nodes == [("n1", CARD, True), ("n2", CARD, True)]
    log = (pair.home(box) / "cells/a/1/log.txt").read_text()
    assert "rank 0 of 2 on node 0 starts at 0" in log
    assert "[n2] rank 1 of 2 on node 1 starts at 0" in log
    assert not (pair.root(box) / "peers.json").exists(), "nothing was brought: nothing has to be freed"
    assert not pair.ranks(0, box)
    assert not pair.ranks(1, box)
    pair.assert_honest(box)


@pytest.mark.proof  # over ssh: tests/extensions/nodes/test_nodes.py; it goes on: tests/onbox/test_training_state.py
def test_a_rank_that_is_killed_on_the_second_node_goes_on_from_the_checkpoint(pair: Pair) -> None:
    pair.hold_in_the_middle()
    box = pair.box()
    pair.queue(box, job={"retries": 1})
    pair.in_the_middle()
    killed(pair.ranks(1, box))
    until(lambda: bool(pair.events(box, "cell-failed")), "the failure", pair.said, SECONDS)
    pair.go_on()
    until(lambda: pair.sealed(box) == {"a"}, "the seal", pair.said, SECONDS)
    (failed,) = pair.events(box, "cell-failed")
    assert "node 1 (n2): " in failed["reason"]
    assert "Signal 9 (SIGKILL)" in failed["reason"]
    found = result(pair, box)
    assert (found["begun"], found["w"]) == (3, WEIGHT), "it went on with its state"
    pair.until_idle(box)
    pair.assert_honest(box)


@pytest.mark.proof
def test_a_node_that_is_lost_ends_the_cell_and_another_up_goes_on(pair: Pair, pair_cluster: NetworkedCluster) -> None:
    """The cell is free only when what ran on the lost node has ended by itself; then it goes on from its state."""
    pair.hold_in_the_middle()
    box = pair.box()
    queue = pair.queue(box, job={"retries": 1})
    pair.in_the_middle()
    lost = "n2" if pair.events(box, "nodes-checked")[0]["nodes"][1]["name"] == "n2" else "n1"
    pair_cluster.lose(lost)
    try:
        until(lambda: bool(pair.events(box, "cell-failed")), "the failure", pair.said, SECONDS)
        (failed,) = pair.events(box, "cell-failed")
        assert f"node 1 ({lost}) is lost" in failed["reason"]
        assert failed["class"] == "transient"
        assert not pair.ranks(0, box), "nothing of it runs on the first node"
        pair.until_idle(box)
        assert pair.sealed(box) == set()
    finally:
        pair_cluster.bring_back(lost)
    pair.go_on()
    pair.update(box, queue)
    until(lambda: pair.sealed(box) == {"a"}, "the seal", pair.said, SECONDS)
    assert result(pair, box)["begun"] == 3
    pair.until_idle(box)
    pair.assert_honest(box)


@pytest.mark.proof
def test_a_worker_that_is_told_to_end_while_a_node_is_lost_leaves_its_end_to_be_proved(
    pair: Pair, pair_cluster: NetworkedCluster
) -> None:
    """Ranks there may still write, for half a minute: only nodes that answer prove that they ended."""
    pair.hold_in_the_middle()
    box = pair.box()
    queue = pair.queue(box)
    pair.in_the_middle()
    lost = pair.events(box, "nodes-checked")[0]["nodes"][1]["name"]
    pair_cluster.lose(lost)
    try:
        note = pair.home(box) / "cells/a/1/lost-until"
        until(note.exists, "the loss", pair.said, SECONDS)
        job = pair.live(box)[0].partition("_")[0]
        pair_cluster.ask("scancel", "--batch", "--signal=TERM", job)
        pair_cluster.await_state(f"{job}_0", "PENDING")  # its worker has ended, and cells are left
        assert not pair.events(box, "runner-stopped"), pair.said()
        assert not pair.events(box, "cell-failed"), pair.said()
    finally:
        pair_cluster.bring_back(lost)
    pair.go_on()
    pair.update(box, queue)
    until(lambda: pair.sealed(box) == {"a"}, "the seal", pair.said, SECONDS)
    (proved,) = pair.events(box, "worker-ended")
    assert "scheduler: " in proved["proof"], "that its process on the first node is gone proves nothing of the second"
    pair.until_idle(box)
    pair.assert_honest(box)


@pytest.mark.proof  # a hole is found over ssh in `make test`
def test_mn4_an_mtu_hole_of_the_switch_is_found_before_a_cell_starts(
    pair: Pair, pair_cluster: NetworkedCluster
) -> None:
    pair_cluster.switch.narrow("n2", 1400)
    try:
        box = pair.box()
        pair.queue(box)
        until(lambda: bool(pair.events(box, "setup-failed")), "the refusal", pair.said, SECONDS)
        (failed,) = pair.events(box, "setup-failed")
        assert failed["stage"] == "nodes"
        assert "packets with 1472 bytes don't get from n1 to n2" in failed["reason"]
        assert not pair.events(box, "cell-started")
        pair.until_idle(box)
    finally:
        pair_cluster.switch.narrow("n2", 1500)


@pytest.mark.proof
def test_each_node_uses_the_cards_that_it_was_given(pair: Pair, pair_cluster: NetworkedCluster) -> None:
    """On the second node another job has the first card."""
    pair.scheduler["gpus"] = 1
    pair.job = {"gpus": 1, "env": {"SWEEPSTACK_NODES": "2", "SWEEPSTACK_CHECK_TORCH": "0"}}
    other = pair_cluster.submit("sleep 300", "--nodelist=n2", "--gres=gpu:1", "--mem=10M", "--output=/dev/null")
    try:
        pair_cluster.await_state(other, "RUNNING")
        box = pair.box()
        pair.queue(box)
        until(lambda: pair.sealed(box) == {"a"}, "the seal", pair.said, SECONDS)
        log = (pair.home(box) / "cells/a/1/log.txt").read_text()
        assert result(pair, box)["cards"] == "0"
        assert "[n2] rank 1 has cards 1" in log, log
    finally:
        pair_cluster.ask("scancel", other)
    pair.until_idle(box)
