"""Two nodes for the tests: networks, processes and disks of their own, and a wire between them.

The first has the box and its runner; the other is entered through a real sshd, and sees nothing of the first one's disk
at the place where the box lies.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.onbox.harness import Box, wait_for
from tests.simulators.node_hosts import SSH_CONFIG, NodeHost, on_node, ssh_config
from tests.simulators.wire import Wire

TRAIN = """
import json, os, sys, time
from pathlib import Path
import torch
import torch.distributed as dist
from sweepstack_checkpoint import TrainingState

out, control = Path(sys.argv[1]), Path(sys.argv[2])
dist.init_process_group("gloo")
rank, node = dist.get_rank(), os.environ["SWEEPSTACK_NODE"]
weights, seen = torch.zeros(1000), []
state = TrainingState({"weights": {"w": weights}, "seen": seen})
begun = state.load_latest()
print(f"rank {rank} of {dist.get_world_size()} on node {node} starts at {begun}", flush=True)
weights = state.parts["weights"]["w"]
for step in range(begun + 1, 7):
    mine = torch.full((1000,), float(step * (rank + 1)))
    dist.all_reduce(mine)
    weights += mine
    seen.append(step)
    state.save(step)
    if step == 3:
        (control / f"middle-{rank}").write_text(str(os.getpid()))
        while (control / "hold").exists():
            time.sleep(0.02)
    if state.stop:
        sys.exit(143)
if rank == 0:
    names = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_DISABLE", "TORCH_NCCL_ASYNC_ERROR_HANDLING")
    found = {"w": weights[0].item(), "seen": seen, "begun": begun, "env": {name: os.environ[name] for name in names}}
    (out / "result.json").write_text(json.dumps(found))
sys.stdout.flush()
os._exit(0)
"""
"""Six steps of two ranks; told to, they wait in the middle. Gloo's threads may abort a Python that ends by itself."""
RUN = "python train.py {out} {control}"
WEIGHT = 3.0 * sum(range(1, 7))


class Nodes:
    """`box`: on the first node. `disk`: what the peer has where the box's folder is; with `own_disk=False` the same."""

    def __init__(self, base: Path, *, own_disk: bool = True, **spec: Any) -> None:
        self.wire = Wire()
        root, self.disk = base / "boxes", base / "disk" if own_disk else base / "boxes"
        for folder in (root, self.disk, base / "control"):
            folder.mkdir(exist_ok=True)
        self.peer = NodeHost(base / "peer", self.wire, 1, {self.disk: root})
        self.box = Box(root, python=sys.executable, nodes={"peers": [self.peer.address]}, **spec)
        self.code = self.box.ship({"train.py": TRAIN})
        self.box.around = on_node(self.wire, 0, {ssh_config(base / "ssh", [self.peer]): SSH_CONFIG})
        self.control = base / "control"

    def add(self, cell: str = "both", run: str = RUN, code: str = "", **more: Any) -> None:
        """Adds a cell over both nodes."""
        ran = {"code": code or self.code, **more}
        self.box.add(cell, run, env={"SWEEPSTACK_NODES": "2"}, more=ran, control=str(self.control))

    @property
    def there(self) -> Path:
        """The box's folder on the peer."""
        return self.disk / self.box.native_id

    def hold(self) -> None:
        (self.control / "hold").touch()

    def go_on(self) -> None:
        (self.control / "hold").unlink()

    def in_the_middle(self) -> None:
        """Blocks until both ranks wait."""
        wait_for(lambda: all((self.control / f"middle-{rank}").exists() for rank in (0, 1)), self.said)

    def said(self) -> str:
        logs = [
            *self.box.home.glob("cells/*/*/log.txt"),
            *self.box.home.glob("setup/*.log"),
            self.box.home / "runner.log",
        ]
        return "\n".join(f"--- {path}\n{path.read_text()}" for path in logs if path.exists())

    def ranks(self, node: int) -> list[int]:
        """The processes of ranks on a node, by the pids of this machine."""
        found = []
        marks = {f"SWEEPSTACK_NODE={node}".encode(), f"SWEEPSTACK_BOX_ID={self.box.native_id}".encode()}
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (path / "environ").read_bytes().split(b"\0")
                if marks <= set(words) and any(word.startswith(b"RANK=") for word in words):
                    found.append(int(path.name))
        return found

    def release(self) -> subprocess.CompletedProcess[str]:
        """Runs on the first node what the box's host runs before it ends the box."""
        argv = json.loads((self.box.root / "peers.json").read_text())["argv"]
        return subprocess.run([*self.box.around, *argv], capture_output=True, text=True, timeout=120)

    def close(self) -> None:
        self.box.clean()
        self.peer.stop()
        self.wire.close()


@contextlib.contextmanager
def two_nodes(base: Path, **how: Any) -> Iterator[Nodes]:
    """Two nodes, until the end of the block."""
    nodes = Nodes(base, **how)
    try:
        yield nodes
    finally:
        nodes.close()
