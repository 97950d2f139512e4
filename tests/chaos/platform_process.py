"""Simulated platforms in a process of their own: one world a plan, each on a port of its own.

    python -m tests.chaos.platform_process

speaks JSON, one line a request, one line an answer:

    {"open": "runpod", "faults": […], "strikes": […]} → {"world": 1, "url", "key", "other_key", "account"}
    {"aim": 1, "pid": 4711}   whom the strikes of world 1 hit from now on
    {"books": 1}              rentals, calls, violations, strikes so far
    {"calm": 1}               no more faults and strikes
    {"act": 1, "what": "vanish", "with": {…}}
    {"close": 1}

A strike is a signal to the provider's process at the nth call that matches, before the platform has done anything or
after: so a create is cut at a moment that a seed names, and not at one that the machine's load picks.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.simulators.core import Reply, Request, SimServer, VirtualClock, as_fault
from tests.simulators.rental import Options, rental

START = 1_790_000_000.0
SCALE = 33.0
"""Virtual seconds in a real one: the adapters' waits are scaled alike (`SWEEPSTACK_API_PACE`)."""
SIGNALS = {"kill": signal.SIGKILL, "interrupt": signal.SIGINT, "cancel": signal.SIGUSR1}
OFFERS = 8
OTHERS = "sweepstack-zzzzzzzzzz-box-0-g1"
ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Strike:
    """`match`: pattern over `METHOD /template`; `when`: before or after the call is carried out; once."""

    how: str
    match: str
    nth: int = 1
    when: str = "after"
    seen: int = 0
    hit: bool = False


class World:
    """One platform with two customers, its faults and its strikes."""

    def __init__(self, platform: str, faults: list[dict[str, Any]], strikes: list[dict[str, Any]]) -> None:
        its = rental(platform)
        self.customers = its.open(VirtualClock(START, scale=SCALE), Options(offers=OFFERS))
        self.sim = self.customers.sim
        self.server = SimServer(self.sim)
        newest = any(fault["kind"] == "odd_status" for fault in faults)  # it strikes the newest, which is to be ours
        self.bystanders = its.bystanders(self.customers, self.server.url, OTHERS, newest=newest)
        """Boxes of other sweeps, one in each account, whose tags differ from ours in the identity alone."""
        self.strikes = [Strike(**one) for one in strikes]
        self.pid = 0
        self._lock = threading.Lock()
        for fault in faults:
            self.sim.faults.append(as_fault(fault))
        self._answer, self.sim.answer = self.sim.answer, self.strike  # type: ignore[method-assign]

    def strike(self, request: Request, handler: Any) -> Reply:
        """The platform's answer, with what hits the client meanwhile."""
        due = self._due(f"{request.method} {request.route}")
        if due is not None and due.when == "before":
            self._hit(due)
            if due.how == "kill":
                return self.sim.problem(503, "nobody is there to hear this")
        reply = self._answer(request, handler)
        if due is not None and due.when == "after":
            self._hit(due)
        return reply

    def _due(self, call: str) -> Strike | None:
        with self._lock:
            for one in self.strikes:
                if one.hit or not fnmatchcase(call, one.match):
                    continue
                one.seen += 1
                if one.seen >= one.nth and self.pid:
                    one.hit = True
                    return one
        return None

    def _hit(self, strike: Strike) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, SIGNALS[strike.how])

    def books(self) -> dict[str, Any]:
        """What is true."""
        with self.sim.lock:
            return {
                "rentals": self.sim.ledger.outline(),
                "calls": self.sim.log_outline(),
                "violations": list(self.sim.violations),
                "strikes": [asdict(one) for one in self.strikes],
                "unfired": [f"{rule.kind} {rule.match}" for rule in self.sim.faults.unfired()],
            }

    def calm(self) -> None:
        """From now on nothing goes wrong by itself."""
        self.sim.faults.clear()
        with self._lock:
            self.strikes.clear()


class Platforms:
    """The process, seen from the driver. Thread-safe; a context manager."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.platform_process"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._lock = threading.Lock()

    def ask(self, **words: Any) -> Any:
        """One request and its answer. Raises AssertionError when the process has ended or calls the request wrong."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(words) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        assert line, "the simulators' process has ended"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _carry_out(worlds: dict[int, World], words: dict[str, Any]) -> dict[str, Any]:
    if "open" in words:
        world = World(words["open"], words["faults"], words["strikes"])
        number = max(worlds, default=0) + 1
        worlds[number] = world
        told: dict[str, Any] = {
            "url": world.server.api,
            "key": world.customers.key,
            "other_key": world.customers.other_key,
            "account": world.customers.account,
        }
        told["bystanders"] = world.bystanders
        return {"world": number, **told}
    verb = next(iter(words))
    world = worlds[words[verb]]
    if verb == "aim":
        world.pid = words["pid"]
    elif verb == "books":
        return world.books()
    elif verb == "calm":
        world.calm()
    elif verb == "act":
        return {"result": world.sim.act(words["what"], words["with"])}
    elif verb == "close":
        del worlds[words[verb]]
        world.server.close()
    else:
        raise ValueError(f"no such request: {verb}")
    return {}


def main() -> None:
    """Serves until its input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worlds: dict[int, World] = {}
    for line in sys.stdin:
        try:
            answer = _carry_out(worlds, json.loads(line))
        except (KeyError, ValueError, TypeError) as error:
            answer = {"error": f"{type(error).__name__}: {error} ({line.strip()[:200]})"}
        print(json.dumps(answer), flush=True)
    for world in worlds.values():
        world.server.close()


if __name__ == "__main__":
    main()
