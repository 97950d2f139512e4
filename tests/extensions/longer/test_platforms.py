"""A chain of cells that begin from each other, typed as a user types it, on each kind of platform."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.engine.commands import ok
from tests.engine.harness import Stack
from tests.rented.host_stack import HostStack
from tests.rented.kube_stack import KubeStack
from tests.rented.slurm_stack import SlurmStack
from tests.s3.server import S3Server
from tests.simulators.kubernetes import KubernetesCluster

TRAIN = """
import json, os, sys, time
from pathlib import Path
steps, out, checkpoints = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
cell, control = os.environ["SWEEPSTACK_CELL"], Path(os.environ["DRILL_CONTROL"])
kept = checkpoints / "state.json"
state = json.loads(kept.read_text()) if kept.exists() else {"steps": [], "starts": []}
state["starts"].append([cell, len(state["steps"])])
while len(state["steps"]) < steps:
    state["steps"].append(cell)
    (checkpoints / "state.tmp").write_text(json.dumps(state))
    os.replace(checkpoints / "state.tmp", kept)
    while (control / f"hold-{cell}").exists() and len(state["steps"]) == steps - 1:
        (control / "in-the-middle").touch()
        time.sleep(0.05)
(out / "state.json").write_text(json.dumps(state))
"""
CHAIN = ("short", "longer", "longest")
STEPS = (2, 4, 6)
BUCKET = "lab"


@contextmanager
def host(folder: Path) -> Iterator[Stack]:
    stack = HostStack(folder / "s")
    try:
        yield stack
    finally:
        stack.end()


@contextmanager
def slurm(folder: Path) -> Iterator[Stack]:
    stack = SlurmStack(folder / "s")
    try:
        yield stack
    finally:
        stack.end()


@contextmanager
def kubernetes(folder: Path) -> Iterator[Stack]:
    with KubernetesCluster.start(folder / "cluster", nodes=1) as cluster:
        stack = KubeStack(folder / "s", cluster=cluster)
        try:
            yield stack
        finally:
            stack.close()


class BucketStack(Stack):
    """Checkpoints and sealed cells stand in a bucket behind the box, and the evidence is in another part of it."""

    server: S3Server

    def write_config(self) -> None:
        super().write_config()
        mount = {"source": f"s3://{BUCKET}/sweep", "mode": "MOUNT_CACHED", "endpoint": self.server.url}
        keys = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]
        self.edit_config(lambda sweep: sweep.update(mounts={"/ckpt": mount}, pull_to=f"s3://{BUCKET}/evidence"))
        self.edit_config(lambda sweep: sweep["job"].update(secrets=keys))


@contextmanager
def bucket(folder: Path) -> Iterator[Stack]:
    server = S3Server(folder)
    server.start()
    server.sdk().create_bucket(Bucket=BUCKET)
    stack = BucketStack(folder / "s", boxes=("box-0",))
    stack.server = server
    stack.env |= server.environment()
    try:
        yield stack
    finally:
        stack.close()
        server.stop()


def chain(sweep: dict[str, Any]) -> None:
    begins = dict(zip(CHAIN[1:], CHAIN, strict=False))
    named = [{"name": cell, "steps": steps} for cell, steps in zip(CHAIN, STEPS, strict=True)]
    sweep["cells"] = {
        "list": [cell | ({"from": begins[str(cell["name"])]} if cell["name"] in begins else {}) for cell in named]
    }
    sweep["job"]["run"] = "python3 train.py {steps} {out} {checkpoints}"
    sweep["artifacts"] = {"state.json": {"load": "json", "keys": ["steps", "starts"]}}


def copies(stack: Stack, file: str) -> Mapping[str, Any]:
    """This file of each cell of the chain, from the evidence."""
    if not isinstance(stack, BucketStack):
        return {cell: json.loads((stack.evidence / "cells" / cell / file).read_bytes()) for cell in CHAIN}
    sdk, found = stack.server.sdk(), {}
    keys = [one["Key"] for one in sdk.list_objects_v2(Bucket=BUCKET, Prefix="evidence/")["Contents"]]
    for cell in CHAIN:
        (key,) = (one for one in keys if f"/cells/{cell}/" in one and one.endswith(f"/{file}"))
        found[cell] = json.loads(sdk.get_object(Bucket=BUCKET, Key=key)["Body"].read())
    return found


@pytest.mark.proof  # on boxes of this machine: test_longer_loop.py
@pytest.mark.parametrize("kind", [host, slurm, bucket, kubernetes], ids=lambda kind: kind.__name__)
def test_a_chain_is_brought_by_tend_and_goes_on_from_its_own_checkpoint(
    kind: Callable[[Path], Any], tmp_path: Path
) -> None:
    """One `tend` brings it all; the last cell is ended in the middle and goes on where it was; its box ends."""
    with kind(tmp_path) as stack:
        stack.write_config()
        (stack.job / "train.py").write_text(TRAIN)
        stack.edit_config(chain)
        stack.cells = CHAIN
        stack.init()
        stack.hold("longest")
        ok(stack.up(timeout=300))
        words = ("tend", "--interval", "1s", "--timeout", "10m", "--stack", stack.name)
        tend = stack.start("sweepctl", *words)
        middle = stack.control / "in-the-middle"
        stack.wait_for(lambda: middle.exists() or tend.poll() is not None, "the last cell", seconds=400)
        if tend.poll() is not None:
            raise AssertionError(f"it ended: {tend.communicate()}\n{stack.sweepctl('status').text}")
        ok(stack.sweepctl("retry", "longest", "--reason", "to see that it goes on", timeout=180))
        # At a moment at which the tend has the engine, an `up` is refused: it is typed again.
        stack.wait_for(lambda: stack.up(timeout=300).rc == 0, "an up beside the tend", seconds=400)
        out, err = tend.communicate(timeout=400)
        assert tend.returncode == 0, out + err
        state, manifests = copies(stack, "state.json"), copies(stack, "manifest.json")
        starts = [["short", 0], ["longer", 2], ["longest", 4], ["longest", 5]]
        assert [state[cell]["starts"] for cell in CHAIN] == [starts[:1], starts[:2], starts]
        assert state["longest"]["steps"] == ["short"] * 2 + ["longer"] * 2 + ["longest"] * 2
        assert [manifests[cell].get("from", {}).get("cell") for cell in CHAIN] == [None, "short", "longer"]
        stack.approve()
        ok(stack.up(timeout=300))
        ok(stack.destroy(timeout=300))
