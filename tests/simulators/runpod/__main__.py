"""Serves the simulated RunPod until it is interrupted."""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path

from tests.simulators.clock import VirtualClock
from tests.simulators.faults import draw
from tests.simulators.runpod import KEY, MENU, Boot, RunPodSim
from tests.simulators.server import SimServer


def main() -> None:
    """Prints the URL and the key, one line each, then blocks."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulators.runpod", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--state", type=Path, help="a folder for volumes and machines")
    parser.add_argument("--machines", action="store_true", help="pods are real machines with an sshd; needs root")
    parser.add_argument("--scale", type=float, default=1.0, help="virtual seconds in a real one")
    parser.add_argument("--per-minute", type=int, help="quota of calls; none unless given")
    parser.add_argument("--create-seconds", type=float, default=0.0, help="how long a create takes")
    parser.add_argument("--boot-reads", type=int, default=1, help="how often a pod is read before it is ready")
    parser.add_argument("--boot-seconds", type=float, default=0.0, help="virtual seconds before a pod is ready")
    parser.add_argument("--seed", type=int, help="faults drawn from this seed")
    told = parser.parse_args()
    if told.machines and told.state is None:
        parser.error("--machines needs --state")
    sim = RunPodSim(
        clock=VirtualClock(scale=told.scale),
        latency={"POST /v2/pods": told.create_seconds},
        state=told.state,
        machines=told.machines,
        boot=Boot(reads=told.boot_reads, seconds=told.boot_seconds),
        per_minute=told.per_minute,
    )
    for rule in draw(told.seed, MENU) if told.seed is not None else []:
        sim.faults.append(rule)
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    with SimServer(sim, told.port) as server:
        print(f"RUNPOD_API_BASE_URL={server.url}\nRUNPOD_API_KEY={KEY}", flush=True)
        over.wait()


if __name__ == "__main__":
    main()
