"""The whole loop of a sweep whose cells run over two hosts, each with a network of its own, on the real engine."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.engine.commands import Result, assert_failed, assert_refused, ok
from tests.engine.harness import Stack
from tests.extensions.nodes.nodes import TRAIN, WEIGHT
from tests.rented.host_stack import HostStack
from tests.simulators import wire
from tests.simulators.machines import require
from tests.simulators.node_hosts import SSH_CONFIG, NodeHost, ssh_config
from tests.simulators.wire import Wire

pytestmark = [
    pytest.mark.proof,
    pytest.mark.torch,
]  # tests/extensions/nodes/test_nodes.py; on hosts: test_hosts.py


class NodesStack(HostStack):
    """One box on two hosts; all commands run at the near end of the wire between them."""

    cells = ("seed0",)

    def __post_init__(self) -> None:
        self.wire, hosts = Wire(), self.base / "hosts"
        self.disk, store = self.base / "peer-disk", self.base / "data" / "host"
        Stack.__post_init__(self)
        for folder in (hosts, self.disk, store):
            folder.mkdir()
        self.peer = NodeHost(hosts / "peer", self.wire, 1, {self.disk: store})
        config = ssh_config(hosts / "ssh", [self.peer])
        self.host = NodeHost(hosts / "first", self.wire, 0, {config: SSH_CONFIG})
        for host in (self.host, self.peer):
            host.say(PATH=f"{Path(sys.prefix) / 'bin'}:/usr/local/bin:/usr/bin:/bin")
        self.env |= {"SWEEPSTACK_SSH_KEY": str(self.host.key), "SWEEPSTACK_SSH_CONFIG": "none"}
        (self.job / "train.py").write_text(TRAIN)

    def write_config(self) -> None:
        super().write_config()

        def several(sweep: dict[str, Any]) -> None:
            run = "torchrun --nproc-per-node 1 train.py {out} {control}"
            sweep["job"].update(nodes=2, timeout="1h", run=run)
            sweep["job"]["env"]["SEED"] = "{seed}"
            sweep["cells"]["base"] = {"control": str(self.control)}
            sweep["artifacts"] = {"result.json": {"load": "json", "keys": ["w"], "finite": "require"}}
            sweep["boxes"]["box-0"]["peers"] = [self.peer.address]

        self.edit_config(several)

    def run(self, *argv: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, **how: Any) -> Result:
        with self.wire.near():
            return super().run(*argv, env=env, cwd=cwd, **how)

    def end(self) -> None:
        super().end()
        self.peer.stop()
        self.wire.close()


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[NodesStack]:
    require()
    wire.require()
    made = NodesStack(tmp_path)
    try:
        made.write_config()
        made.init()
        yield made
    finally:
        made.end()


def on_peer(stack: NodesStack) -> list[str]:
    return sorted(path.name for path in stack.disk.glob("boxes/*"))


def test_the_loop_on_two_nodes(stack: NodesStack) -> None:
    """up → destroy refused → wait → pull → verify → approve → up → destroy without the peer → destroy."""
    ok(stack.up())
    (box,) = stack.native_ids()
    assert on_peer(stack) == [box]
    assert_refused(stack.destroy())
    ok(stack.sweepctl("wait", "done"))
    result = json.loads((stack.durable_cell("seed0") / "result.json").read_text())
    assert result["w"] == WEIGHT
    ok(stack.sweepctl("pull"))
    stack.approve()
    ok(stack.up())

    stack.peer.stop()
    half = stack.destroy()
    assert_failed(half, "other nodes of", stack.peer.address, "the box stays until they are")
    assert stack.native_ids() == [box], "a node that can't be asked is not free"
    stack.peer.start()
    ok(stack.destroy())
    assert stack.native_ids() == []
    assert on_peer(stack) == []


def test_a_node_that_never_comes_back_keeps_no_box_for_ever(stack: NodesStack) -> None:
    """Its end in the middle of a cell; then the box is given up, and a person confirms what became of that machine."""
    (stack.control / "hold").touch()
    ok(stack.up())
    said = ("confirm", "peer", "box-0", stack.peer.address, "--saw", "given back to the lab", "--by", "ann")
    answers = stack.sweepctl(*said)
    assert answers.rc == 1, str(answers)
    assert "nothing was written" in answers.text
    assert on_peer(stack), "nothing was changed there"
    stack.peer.stop()
    ok(stack.sweepctl("give-up", "data/box-0", "--reason", "its other node is lost"))
    ok(stack.up())
    assert_failed(stack.destroy(), "sweepctl confirm peer BOX NAME")
    other = stack.sweepctl("confirm", "peer", "box-0", "ann@nowhere", "--saw", "it")
    assert other.rc == 1, str(other)
    ok(stack.sweepctl(*said))
    ok(stack.destroy())
    assert stack.native_ids() == []
    (line,) = (stack.platform_root / "peers-gone.jsonl").read_text().splitlines()
    assert json.loads(line)["said"] == "ann: given back to the lab"
