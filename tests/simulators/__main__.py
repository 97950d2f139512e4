"""Serves a simulated rental platform until it is interrupted: `python -m tests.simulators runpod --state DIR`."""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path

from tests.simulators.clock import VirtualClock
from tests.simulators.faults import draw
from tests.simulators.rental import Options, rental, rentals
from tests.simulators.server import SimServer


def main() -> None:
    """Prints the variables that lead there, one a line, then blocks."""
    words = argparse.ArgumentParser(prog="python -m tests.simulators", description=__doc__)
    words.add_argument("platform", choices=rentals())
    words.add_argument("--port", type=int, default=0, help="0: any that is free")
    words.add_argument("--scale", type=float, default=1.0, help="virtual seconds in a real one")
    words.add_argument("--create-seconds", type=float, default=0.0, help="how long a create takes")
    words.add_argument("--limits", action="store_true", help="so many requests in a time as at the vendor's, no more")
    words.add_argument("--seed", type=int, help="faults drawn from this seed")
    words.add_argument("--state", type=Path, help="a folder for machines and volumes")
    words.add_argument("--machines", action="store_true", help="boxes are real machines with an sshd; needs root")
    told = words.parse_args()
    its = rental(told.platform)
    asked = Options(told.state, told.machines, offers=8, limits=told.limits, create_seconds=told.create_seconds)
    customers = its.open(VirtualClock(scale=told.scale), asked)
    for rule in draw(told.seed, its.menu) if told.seed is not None else []:
        customers.sim.faults.append(rule)
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    with SimServer(customers.sim, told.port) as server:
        print(f"{its.url}={server.api}\n{its.key}={customers.key}", flush=True)
        over.wait()


if __name__ == "__main__":
    main()
