"""What verifying and the check before a destroy move over the line a second time: `python -m bench.s3_bench [MB]`.

A sweep of checkpoints in a real S3 server on this machine (VersityGW, built by set-up). The client counts the bytes.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.verify_bench import make
from sweepstack.core.records import ArtifactSpec, Cell
from sweepstack.evidence.check_files import check_files
from sweepstack.evidence.store import EvidenceStore
from sweepstack.platforms.common import s3_client
from tests.s3.server import S3Server
from tests.unit.evidence.world import World

CELLS = 4
MOST = 0.001
"""Share of the evidence that may move when nothing changed: records, manifests and the receipt."""


def measure(total_bytes: int = 800_000_000) -> dict[str, Any]:
    """Pulls, verifies twice, checks as a destroy does, and that once more from a machine with an empty cache."""
    settings = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="sweepstack-s3-") as name:
        folder = Path(name)
        server = S3Server(folder / "server")
        try:
            server.start()
            server.sdk().create_bucket(Bucket="bench")
            os.environ |= server.environment() | {"XDG_CACHE_HOME": str(folder / "cache")}
            os.environ.pop("AWS_CA_BUNDLE", None)
            s3_client.forget()
            return _measured(folder, total_bytes)
        finally:
            server.stop()
            os.environ.clear()
            os.environ.update(settings)
            s3_client.forget()


def _measured(folder: Path, total_bytes: int) -> dict[str, Any]:
    (folder / "world").mkdir()
    world = World(folder / "world", (ArtifactSpec(path="best.pt", load="torch"),), uri="s3://bench/sweep")
    world.cells = tuple(Cell(name=f"seed{seed}", params={"seed": seed}) for seed in range(CELLS))
    world.box.launch(*world.cells)
    (folder / "made").mkdir()
    for cell, path in zip(world.cells, make(folder / "made", total_bytes, CELLS), strict=True):
        world.box.seal(cell, {"best.pt": path.read_bytes(), "log.txt": b"step 1\n"})
        path.unlink()
    found: dict[str, Any] = {"bytes": total_bytes, "cells": CELLS, "steps": {}}
    receipt: Any = None

    def step(what: str, empty_cache: bool = False) -> None:
        nonlocal receipt
        if empty_cache:
            os.environ["XDG_CACHE_HOME"] = str(folder / "elsewhere")
        world.store = EvidenceStore.open(world.uri)
        began = perf_counter()
        if what == "pull":
            world.pull()
        elif what.startswith("verify"):
            outcome = world.verify(workers=None)
            assert outcome.ok, outcome.receipt
            receipt = outcome.receipt
        else:
            problems = check_files(world.store, receipt, [cell.name for cell in world.cells], full=True)
            assert not problems, problems
        traffic = world.store.traffic
        assert traffic is not None
        found["steps"][what] = {"seconds": perf_counter() - began, "moved": traffic.moved, "same": traffic.unchanged}

    for what in ("pull", "verify", "verify again", "check before destroy"):
        step(what)
    step("check, empty cache", empty_cache=True)
    later = ("verify again", "check before destroy", "check, empty cache")
    found["share"] = max(found["steps"][what]["moved"] for what in later) / total_bytes
    found["limit"] = MOST
    return found


if __name__ == "__main__":
    print(json.dumps(measure(*(int(word) * 1_000_000 for word in sys.argv[1:])), indent=2))
