"""The simulated RunPod's books balance, whatever is asked of it and goes wrong: stock, ledger and pods agree."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.simulators.core import Request, VirtualClock, draw
from tests.simulators.runpod import KEY, MENU, OTHER_KEY, RunPodSim
from tests.simulators.test_runpod_sim import A5000, BODY

STEPS = 60


def ask(sim: RunPodSim, key: str, method: str, path: str, body: Any = None) -> int:
    """One call past the socket; faults of the platform fire, those of transport find nothing to break."""
    headers = {"user-agent": "x", "authorization": f"Bearer {key}", "content-type": "application/json"}
    request = Request(method, path, {}, headers, json.dumps(body).encode() if body else b"")
    handler = sim.find(request)
    request.faults = sim.faults.fire(f"{request.method} {request.route}")
    return sim.answer(request, handler).status


@pytest.mark.parametrize("seed", range(120))
def test_books_balance(seed: int) -> None:
    sim = RunPodSim(clock=VirtualClock(1e9))
    full = sum(sim.stock.free.values())
    for rule in draw(seed, MENU):
        sim.faults.append(rule)
    dice = random.Random(seed)
    for _ in range(STEPS):
        pod = dice.choice(sorted(sim.pods.all) or ["none"])
        calls: list[tuple[str, str, Any]] = [
            ("POST", "/v2/pods", {**BODY, "gpu": {"id": A5000, "count": dice.randint(1, 8)}}),
            ("GET", "/v2/pods", None),
            ("GET", f"/v2/pods/{pod}", None),
            ("DELETE", f"/v2/pods/{pod}", None),
            ("PATCH", f"/v2/pods/{pod}", {"disk": dice.randint(1, 90)}),
            *(("POST", f"/v2/pods/{pod}/action", {"action": verb}) for verb in ("start", "stop", "restart")),
        ]
        assert 200 <= ask(sim, dice.choice([KEY, KEY, OTHER_KEY]), *dice.choice(calls)) < 500
        sim.clock.advance(dice.choice([0, 30, 3600]))
        held = sum(pod.gpus_now for pod in sim.pods.all.values() if pod.status not in ("EXITED", "ERROR"))
        assert sum(sim.stock.free.values()) + held == full
        assert {rental.id for rental in sim.ledger.live("pod")} == set(sim.pods.all)
        assert all(rental.rate == pytest.approx(sim.pods.rate(sim.pods.all[rental.id])) for rental in sim.ledger.live())
    sim.check()
    sim.close()
