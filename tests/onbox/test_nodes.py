"""Cells over two nodes: real torch ranks with gloo, in two networks, over a real sshd."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.onbox.nodes import WEIGHT, Nodes, two_nodes
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
    nodes.wire.narrow(**{"out" if outward else "back": 1400})
    nodes.add()
    assert nodes.box.start().ended() == 7, nodes.said()
    (failed,) = nodes.box.events("setup-failed")
    assert failed["stage"] == "nodes"
    ends = [os.uname().nodename, nodes.peer.address]
    sender, taker = ends if outward else reversed(ends)
    assert f"packets with 1472 bytes don't get from {sender} to {taker}" in failed["reason"]
    assert "ip link set dev wire mtu 1400" in failed["reason"]
    assert nodes.box.state("both") == "pending"
    assert not nodes.box.events("cell-started")
    assert not (nodes.box.root / "peers.json").exists(), "nothing was sent: nothing keeps the box"
