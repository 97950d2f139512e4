"""Serves the simulated Lambda Cloud until it is interrupted."""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path

from tests.simulators.clock import VirtualClock
from tests.simulators.faults import draw
from tests.simulators.lambda_api import AT_ONCE, KEY, LAUNCH, MENU, LambdaSim, Times
from tests.simulators.lambda_api.store_routes import API
from tests.simulators.server import SimServer


def main() -> None:
    """Prints the URL and the key, one line each, then blocks."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulators.lambda_api", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--state", type=Path, help="a folder for machines and file systems")
    parser.add_argument("--machines", action="store_true", help="instances are real machines with an sshd; needs root")
    parser.add_argument("--scale", type=float, default=1.0, help="virtual seconds in a real one")
    parser.add_argument("--limits", action="store_true", help="one request a second, one launch in 12 seconds")
    parser.add_argument("--at-once", action="store_true", help="instances boot and end at once")
    parser.add_argument("--create-seconds", type=float, default=0.0, help="how long a launch takes")
    parser.add_argument("--seed", type=int, help="faults drawn from this seed")
    told = parser.parse_args()
    if told.machines and told.state is None:
        parser.error("--machines needs --state")
    sim = LambdaSim(
        clock=VirtualClock(scale=told.scale),
        latency={LAUNCH: told.create_seconds},
        state=told.state,
        machines=told.machines,
        times=AT_ONCE if told.at_once else Times(),
        limits=told.limits,
    )
    for rule in draw(told.seed, MENU) if told.seed is not None else []:
        sim.faults.append(rule)
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    with SimServer(sim, told.port) as server:
        print(f"LAMBDA_API_BASE_URL={server.url}{API}\nLAMBDA_API_KEY={KEY}", flush=True)
        over.wait()


if __name__ == "__main__":
    main()
