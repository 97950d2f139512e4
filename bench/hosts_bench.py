"""What a look at many hosts costs: `python -m bench.hosts_bench [cells] [hosts] [rounds]`.

`sweepctl status` of 1,000 cells on ten hosts, each behind an sshd of its own on loopback, against ten `ssh true` at
once over connections that are open already. The same connections: both find them open. Interleaved rounds; the ratio
compares medians. The engine's part is a `cat` of its state, as in `status_bench`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from bench.compared import compared
from bench.status_bench import RUN, SEEDS, Quiet
from sweepstack.channel.ssh import route as ssh_config
from sweepstack.platforms.registry import load_platform
from tests.simulators.host import Host
from tests.unit.cli.support import STACK, World

LIMIT = 2.0


def measure(cells: int = 1_000, count: int = 10, rounds: int = 5) -> dict[str, Any]:
    """Medians and maxima in seconds of the look, of ten warm `ssh true`, and of Python's own start."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="sweepstack-bench-") as folder:
        here, base = Path.cwd(), Path(folder)
        hosts = [Host(base / f"host-{number}") for number in range(count)]
        try:
            world, adapters = world_on(base / "world", cells, hosts, patch)
            return _rounds(world, adapters, rounds, cells)
        finally:
            os.chdir(here)
            for host in hosts:
                host.stop()


def world_on(base: Path, cells: int, hosts: list[Host], patch: pytest.MonkeyPatch) -> tuple[World, list[str]]:
    """A sweep at work. Each of its boxes is a folder of this machine, and is reached as one of a host."""
    base.mkdir()
    lrs = [round(0.001 * number, 3) for number in range(1, max(cells // SEEDS, 1) + 1)]
    world = World(base, patch, Quiet(), lrs=f"{lrs}, seed: {list(range(min(SEEDS, cells)))}")  # type: ignore[arg-type]
    for host in hosts:
        (host.folder / "authorized_keys").write_text((hosts[0].folder / "id.pub").read_text())
    patch.setenv("SWEEPSTACK_SSH_KEY", str(hosts[0].key))
    patch.setenv(ssh_config.CONFIG_VARIABLE, "none")
    patch.delenv("SSH_AUTH_SOCK", raising=False)
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        boxes = [world.add(f"box-{number}") for number in range(len(hosts))]
        world.up_roster = world.file_roster()
        by_name = {cell.name: cell for cell in world.up_roster.cells}
        world.cell = by_name.__getitem__  # type: ignore[method-assign]
        names = list(by_name)
        share = len(names) // len(boxes)
        for number, box in enumerate(boxes):
            mine = names[number * share : (number + 1) * share]
            box.launch(*mine)
            for name in mine[: share // 2]:
                box.seal(name)
            box.start(mine[share // 2], log="training\n", metrics=[{"step": 1, "loss": 0.5}])
            box.alive()
            box.beat(running=[{"cell": mine[share // 2], "attempt": 1, "verdict": "working"}])
        world.save()
    adapters = [f"ssh:{host.address}{world.platform_root}" for host in hosts]
    text = (world.engine / "state.json").read_text()
    export = json.loads(text)
    for resource in export["deployment"]["resources"]:
        for facts in (resource.get("inputs", {}), resource.get("outputs", {})):
            name = (
                facts.get("boxName")
                or facts.get("box_name")
                or (facts.get("name") if resource["type"].endswith(":Box") else None)
            )
            if name is not None:
                facts["adapter"] = adapters[int(name.removeprefix("box-"))]
    (world.engine / "state.json").write_text(json.dumps(export))
    for box, adapter in zip(boxes, adapters, strict=True):
        world.store.write_birth(box.birth(platform=adapter))
    return world, adapters


def _rounds(world: World, adapters: list[str], rounds: int, cells: int) -> dict[str, Any]:
    ways = [load_platform(adapter).way for adapter in adapters]  # type: ignore[attr-defined]
    took: dict[str, list[float]] = {"status": [], "ssh": [], "python": []}
    for number in range(rounds + 1):
        status = _status(world, cells)  # opens the connections, and leaves them open for a minute
        begun = perf_counter()
        running = [subprocess.Popen([*way.command("-T"), "true"], stdin=subprocess.DEVNULL) for way in ways]
        codes = [process.wait() for process in running]
        ssh = perf_counter() - begun
        if any(codes):
            raise RuntimeError(f"ssh true ended with {codes}")
        begun = perf_counter()
        subprocess.run(
            [
                sys.executable,
                "-c",
                "import sweepstack.cli.app, sweepstack.operations.sweep.collect, sweepstack.status.compose",
            ],
            check=True,
        )
        if number:  # the first round finds nothing open
            took["status"].append(status)
            took["ssh"].append(ssh)
            took["python"].append(perf_counter() - begun)
    return {
        "cells": cells,
        "hosts": len(adapters),
        "rounds": rounds,
        **compared(took, "status", "ssh"),
        "limit": LIMIT,
    }


def _status(world: World, cells: int) -> float:
    command = [sys.executable, "-c", RUN, str(world.engine / "pulumi"), "status", "--stack", STACK]
    begun = perf_counter()
    done = subprocess.run(command, cwd=world.root, capture_output=True, text=True)
    took = perf_counter() - begun
    if done.returncode or f"/{cells} verified" not in done.stdout or "unknown" in done.stdout:
        raise RuntimeError(f"status ended with {done.returncode}:\n{done.stdout[:2000]}{done.stderr[:2000]}")
    return took


if __name__ == "__main__":
    print(json.dumps(measure(*[int(word) for word in sys.argv[1:]]), indent=2))
