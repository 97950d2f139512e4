"""Serves the simulated Paperspace until it is interrupted."""

from __future__ import annotations

import argparse
import signal
import threading

from tests.simulators.clock import VirtualClock
from tests.simulators.faults import draw
from tests.simulators.paperspace import API, AT_ONCE, CREATE, KEY, MENU, PaperspaceSim, Times
from tests.simulators.server import SimServer


def main() -> None:
    """Prints the URL and the key, one line each, then blocks."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulators.paperspace", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--scale", type=float, default=1.0, help="virtual seconds in a real one")
    parser.add_argument("--limits", action="store_true", help="so many requests in a minute, no more")
    parser.add_argument("--at-once", action="store_true", help="machines come up and end at once")
    parser.add_argument("--create-seconds", type=float, default=0.0, help="how long a create takes")
    parser.add_argument("--seed", type=int, help="faults drawn from this seed")
    told = parser.parse_args()
    sim = PaperspaceSim(
        clock=VirtualClock(scale=told.scale),
        latency={CREATE: told.create_seconds},
        times=AT_ONCE if told.at_once else Times(),
        limits=told.limits,
    )
    for rule in draw(told.seed, MENU) if told.seed is not None else []:
        sim.faults.append(rule)
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    with SimServer(sim, told.port) as server:
        print(f"PAPERSPACE_API_BASE_URL={server.url}{API}\nPAPERSPACE_API_KEY={KEY}", flush=True)
        over.wait()


if __name__ == "__main__":
    main()
