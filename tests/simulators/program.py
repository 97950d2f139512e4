"""What `python -m tests.simulators.<platform>` does alike for all of them: options, and serving until it is ended."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.simulators.faults import Choice, draw
from tests.simulators.server import SimServer
from tests.simulators.simulator import Simulator


def options(platform: str, *, machines: bool) -> argparse.ArgumentParser:
    """Those that each has. `machines`: its boxes can be real machines."""
    words = argparse.ArgumentParser(
        prog=f"python -m tests.simulators.{platform}", description="Serves it on 127.0.0.1 until it is interrupted."
    )
    words.add_argument("--port", type=int, default=0, help="0: any that is free")
    words.add_argument("--scale", type=float, default=1.0, help="virtual seconds in a real one")
    words.add_argument("--create-seconds", type=float, default=0.0, help="how long a create takes")
    words.add_argument("--seed", type=int, help="faults drawn from this seed")
    if machines:
        words.add_argument("--state", type=Path, help="a folder for machines and volumes")
        words.add_argument("--machines", action="store_true", help="boxes are real machines with an sshd; needs root")
    return words


def serve(sim: Simulator, told: argparse.Namespace, menu: Sequence[Choice], say: Callable[[str], str]) -> None:
    """Prints what `say` makes of the API's address, then blocks until it is ended. `menu`: what a seed draws from."""
    for rule in draw(told.seed, menu) if told.seed is not None else []:
        sim.faults.append(rule)
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    with SimServer(sim, told.port) as server:
        print(say(server.api), flush=True)
        over.wait()
