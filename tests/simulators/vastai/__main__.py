"""Serves the simulated vast.ai until it is interrupted."""

from __future__ import annotations

import json

from tests.simulators.core import VirtualClock
from tests.simulators.program import options, serve
from tests.simulators.vastai import Machine, VastSimulator
from tests.simulators.vastai.rental import CREATE, MENU


def furnish(sim: VastSimulator, hosts: int) -> None:
    """So many hosts, each dearer than the one before."""
    for number in range(hosts):
        gpus = (1, 2, 4, 8)[number % 4]
        sim.world.market.add(Machine(100 + number, 10 + number, gpus=gpus, dph=0.30 + 0.01 * number))


def main() -> None:
    """Prints one line of JSON (url, account, key), which it also writes to account.json in `--state`, then blocks."""
    parser = options("vastai", machines=True)
    parser.add_argument("--hosts", type=int, default=8, help="machines on offer, of 1, 2, 4 and 8 GPUs in turn (8)")
    parser.add_argument("--credit", type=float, default=100.0, help="USD of the account (100)")
    parser.add_argument("--no-limits", action="store_true", help="calls may come as fast as they like")
    told = parser.parse_args()
    if told.state is None:
        parser.error("--state is needed")
    told.state.mkdir(parents=True, exist_ok=True)
    clock, latency = VirtualClock(scale=told.scale), {CREATE: told.create_seconds}
    sim = VastSimulator(clock=clock, state=told.state, machines=told.machines, latency=latency)
    sim.world.settings.limits = not told.no_limits
    account = sim.add_account("main", credit=told.credit)
    furnish(sim, told.hosts)

    def say(url: str) -> str:
        said = json.dumps({"url": url, "account": account.id, "key": account.key})
        (told.state / "account.json").write_text(said)
        return said

    serve(sim, told, MENU, say)


if __name__ == "__main__":
    main()
