"""Cells over two nodes: real torch ranks with gloo, in two networks, over a real sshd."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.extensions.nodes.nodes import TRAIN, WEIGHT, Nodes, two_nodes
from tests.onbox.harness import wait_for
from tests.simulators import wire
from tests.simulators.machines import require

pytestmark = pytest.mark.torch


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    require()
    wire.require()
    with two_nodes(tmp_path) as made:
        yield made


def result(nodes: Nodes, cell: str = "both") -> dict[str, object]:
    found = json.loads((nodes.box.sealed(cell) / "result.json").read_text())
    assert found["w"] == WEIGHT, "both ranks added theirs, once a step"
    assert found["seen"] == [1, 2, 3, 4, 5, 6]
    return dict(found)


def test_a_cell_runs_on_both_nodes_and_is_sealed_on_the_first(nodes: Nodes) -> None:
    nodes.add()
    assert nodes.box.start().ended() == 0, nodes.said()
    found = result(nodes)
    assert found["env"] == {
        "NCCL_SOCKET_IFNAME": "=wire",
        "GLOO_SOCKET_IFNAME": "wire",
        "NCCL_IB_DISABLE": "1",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }
    said = nodes.box.output("both")
    assert "rank 0 of 2 on node 0 starts at 0" in said
    assert f"[{nodes.peer.address}] rank 1 of 2 on node 1 starts at 0" in said
    manifest = nodes.box.manifest("both")
    assert [node["name"] for node in manifest.provenance["nodes"]][1] == nodes.peer.address
    (checked,) = nodes.box.events("nodes-checked")
    assert [node["interface"][0] for node in checked["nodes"]] == ["wire", "wire"]
    assert not list(nodes.there.glob("mnt/durable/**/manifest.json")), "the seal is on the first node alone"

    assert nodes.release().returncode == 0
    assert not nodes.there.exists()


@pytest.mark.parametrize("outward", [True, pytest.param(False, marks=pytest.mark.proof)])
def test_mn4_an_mtu_hole_is_found_before_a_cell_starts(nodes: Nodes, outward: bool) -> None:
    """One so narrow that ssh itself falls into it."""
    nodes.wire.narrow(**{"out" if outward else "back": 1300})
    nodes.add()
    assert nodes.box.start().ended() == 7, nodes.said()
    (failed,) = nodes.box.events("setup-failed")
    assert failed["stage"] == "nodes"
    ends = [os.uname().nodename, nodes.peer.address]
    sender, taker = ends if outward else reversed(ends)
    assert f"packets with 1472 bytes don't get from {sender} to {taker}" in failed["reason"]
    assert "ip link set dev wire mtu 1300" in failed["reason"]
    assert nodes.box.state("both") == "pending"
    assert not nodes.box.events("cell-started")
    assert not (nodes.box.root / "peers.json").exists(), "nothing was sent: nothing keeps the box"


@pytest.mark.proof  # tests/extensions/nodes/test_nodes_fit.py: how one is found; in `make test` an MTU hole is
@pytest.mark.parametrize(
    ("variable", "name", "words"),
    [
        ("NCCL_SOCKET_IFNAME", "=fab0", "no interface of that name has an address there (it has "),
        ("GLOO_SOCKET_IFNAME", "wir", "no interface of that name has an address there (it has "),
        ("NCCL_SOCKET_IFNAME", "lo", "is reached by its own loopback"),
    ],
)
def test_mn2_an_interface_of_the_job_s_own_that_leads_nowhere_is_refused(
    nodes: Nodes, variable: str, name: str, words: str
) -> None:
    """The ranks would wait for each other without a word."""
    nodes.box.set(env={**nodes.box.settings["env"], variable: name})
    nodes.add()
    assert nodes.box.start().ended() == 7, nodes.said()
    (failed,) = nodes.box.events("setup-failed")
    assert failed["reason"].startswith(f"job.env has {variable}={name}. "), failed
    assert words in failed["reason"]
    assert "Leave it out: the ranks are told the way by which the nodes see each other (wire)" in failed["reason"]
    assert not nodes.box.events("cell-started")


@pytest.mark.proof  # as above
def test_mn2_an_interface_of_the_job_s_own_that_leads_there_is_taken(nodes: Nodes) -> None:
    nodes.box.set(env={**nodes.box.settings["env"], "NCCL_SOCKET_IFNAME": "wir", "GLOO_SOCKET_IFNAME": "wire"})
    nodes.add()
    assert nodes.box.start().ended() == 0, nodes.said()


def kill(pids: list[int], number: int = signal.SIGKILL) -> None:
    assert pids, "there is something to end"
    for pid in pids:
        os.kill(pid, number)


@pytest.mark.proof  # a run on both nodes is in `make test`, and so is a cell that goes on (test_training_state.py)
def test_mn5_a_rank_that_is_killed_on_either_node_goes_on_from_the_checkpoint(nodes: Nodes) -> None:
    """The checkpoint is on the first node's durable tier; the peer's disk is its own."""
    nodes.hold()
    nodes.box.set(retries=2)
    nodes.add()
    runner = nodes.box.start()
    nodes.in_the_middle()
    kill(nodes.ranks(1))
    runner.until("both", "running", 2)  # it goes on behind the place where ranks wait
    wait_for(lambda: bool(nodes.ranks(0)), nodes.said)
    kill(nodes.ranks(0))
    assert runner.ended() == 0, nodes.said()
    assert result(nodes)["begun"] == 3
    first, _ = nodes.box.events("cell-failed")
    assert f"node 1 ({nodes.peer.address}): " in first["reason"]
    assert "Signal 9 (SIGKILL)" in first["reason"]
    assert "rank 1 of 2 on node 1 starts at 3" in nodes.box.output("both", 3), "the peer was brought the checkpoint"
    assert len(nodes.box.events("nodes-checked")) == 3, "the nodes are looked at again after a failure"


@pytest.mark.proof  # `bring` without a shared folder is in `make test`
def test_with_a_shared_folder_nothing_is_copied_and_nothing_of_it_is_removed(tmp_path: Path) -> None:
    require()
    wire.require()
    late = "if rank == 1: os.system(f'setsid sleep 60 > {out}/late.txt < /dev/null 2> /dev/null &')\nsys.stdout.flush()"
    with two_nodes(tmp_path, own_disk=False, grace_seconds=6) as nodes:
        code = nodes.box.ship({"train.py": TRAIN.replace("sys.stdout.flush()", late)})
        nodes.add(run="torchrun train.py {out} {control}", code=code)
        assert nodes.box.start().ended() == 0, nodes.said()
        result(nodes)
        (checked,) = nodes.box.events("nodes-checked")
        assert [node["shared"] for node in checked["nodes"]] == [True, True]
        assert not (nodes.box.root / "node-of.json").exists()
        assert nodes.release().returncode == 0
        (doubt,) = nodes.box.manifest("both").doubts
        assert doubt.startswith(f"{nodes.peer.address}: sleep (pid ")
        assert "has late.txt open for writing, 2 s after exit code 0, and was ended" in doubt
        assert not any(nodes.box.processes(cells=True))


@pytest.mark.proof  # a set-up, and a copy of the code, each of its own in `make test`
def test_the_environment_is_brought_and_code_that_was_changed_on_the_peer_is_brought_again(nodes: Nodes) -> None:
    code = nodes.box.ship({"train.py": TRAIN.replace("import json", "import made_by_setup\nimport json", 1)})
    setup = "echo 1 > $(python -c 'import sysconfig; print(sysconfig.get_paths()[\"purelib\"])')/made_by_setup.py"
    nodes.add("one", code=code, setup=setup)
    assert nodes.box.start().ended() == 0, nodes.said()
    result(nodes, "one")
    (train,) = nodes.there.glob(f"data/sweep/code/{code[7:]}/train.py")
    train.write_text("raise SystemExit('changed on the peer')\n")
    nodes.add("two", code=code, setup=setup)
    assert nodes.box.start().ended() == 0, nodes.said()
    result(nodes, "two")


@pytest.mark.proof
def test_a_node_that_is_lost_for_good_fails_the_cell_and_the_next_one_waits(nodes: Nodes) -> None:
    nodes.hold()
    nodes.add()
    nodes.add("other")
    runner = nodes.box.start()
    nodes.in_the_middle()
    nodes.peer.stop()
    assert runner.ended() == 7, nodes.said()
    assert [entry["cell"] for entry in nodes.box.events("cell-started")] == ["both"], "no other cell is tried there"
    (failed,) = nodes.box.events("cell-failed")
    assert f"node 1 ({nodes.peer.address}) is lost" in failed["reason"]
    assert failed["class"] == "transient"
    (waits,) = nodes.box.events("setup-failed")
    assert nodes.peer.address in waits["reason"]
    assert not nodes.ranks(0), "nothing of it runs on the first node"
    freed = nodes.release()
    assert freed.returncode == 1
    assert nodes.peer.address in freed.stderr, "a peer that can't be asked is not free"

    nodes.go_on()
    nodes.peer.start()
    assert nodes.box.start().ended() == 0, nodes.said()
    assert result(nodes)["begun"] == 3
    assert nodes.release().returncode == 0
    assert not nodes.there.exists()


@pytest.mark.proof
def test_a_network_that_falls_silent_ends_the_cell_on_both_sides(nodes: Nodes) -> None:
    nodes.hold()
    nodes.add()
    runner = nodes.box.start()
    nodes.in_the_middle()
    nodes.wire.silence()
    assert runner.ended() == 7, nodes.said()
    assert f"node 1 ({nodes.peer.address}) is lost" in nodes.box.output("both")
    assert not nodes.ranks(0)
    wait_for(lambda: not nodes.ranks(1), nodes.said)


@pytest.mark.proof
@pytest.mark.parametrize("how", ["drop", "stop", "kill"])
def test_the_end_of_a_cell_ends_its_ranks_on_the_other_node(nodes: Nodes, how: str) -> None:
    """The peer has processes of its own: nothing that is ended on the first node by pid is there."""
    nodes.hold()
    nodes.add()
    runner = nodes.box.start()
    nodes.in_the_middle()
    assert nodes.ranks(1)
    if how == "drop":
        nodes.box.drop("both")
        assert runner.ended() == 0, nodes.said()
        assert nodes.box.state("both") == "dropped"
    elif how == "kill":  # the machine of the first node is gone at once
        runner.kill()
    else:
        (first,) = Path(f"/proc/{runner.pid}/task/{runner.pid}/children").read_text().split()
        os.kill(int(first), signal.SIGTERM)
        assert runner.ended() == 143, nodes.said()
    wait_for(lambda: not nodes.ranks(1) and not nodes.ranks(0), nodes.said)
