"""`python -m tests.simulators.vastai`: the simulated vast.ai as a program of its own."""

from __future__ import annotations

import argparse
import json
import signal
import threading
from pathlib import Path

from tests.simulators.core import SimServer, VirtualClock
from tests.simulators.vastai import Machine, VastSimulator


def parser() -> argparse.ArgumentParser:
    words = argparse.ArgumentParser(prog="python -m tests.simulators.vastai", description="vast.ai on loopback")
    words.add_argument("--port", type=int, default=0, help="of 127.0.0.1; 0: any that is free")
    words.add_argument("--state", type=Path, required=True, help="folder for machines' disks, and account.json")
    words.add_argument("--scale", type=float, default=1.0, help="virtual seconds in each real one (1)")
    words.add_argument("--hosts", type=int, default=8, help="machines on offer, of 1, 2, 4 and 8 GPUs in turn (8)")
    words.add_argument("--credit", type=float, default=100.0, help="USD of the account (100)")
    words.add_argument("--no-limits", action="store_true", help="calls may come as fast as they like")
    words.add_argument("--machines", action="store_true", help="instances are real machines with an sshd")
    return words


def furnish(sim: VastSimulator, hosts: int) -> None:
    """So many hosts, each dearer than the one before."""
    for number in range(hosts):
        gpus = (1, 2, 4, 8)[number % 4]
        sim.world.market.add(Machine(100 + number, 10 + number, gpus=gpus, dph=0.30 + 0.01 * number))


def main(arguments: list[str] | None = None) -> None:
    """Prints one line of JSON (url, account, key), then serves until SIGTERM or SIGINT."""
    told = parser().parse_args(arguments)
    told.state.mkdir(parents=True, exist_ok=True)
    sim = VastSimulator(clock=VirtualClock(scale=told.scale), state=told.state, machines=told.machines)
    sim.world.settings.limits = not told.no_limits
    account = sim.add_account("main", credit=told.credit)
    furnish(sim, told.hosts)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with SimServer(sim, told.port) as server:
        said = {"url": server.url, "account": account.id, "key": account.key}
        (told.state / "account.json").write_text(json.dumps(said))
        print(json.dumps(said), flush=True)
        ended.wait()


if __name__ == "__main__":
    main()
