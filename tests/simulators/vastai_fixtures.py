"""For the tests of the simulated vast.ai: a world with one customer and three hosts, and the official SDK on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import requests

from tests.simulators.core import SimServer, VirtualClock
from tests.simulators.vastai import VastSimulator
from tests.simulators.vastai.market import Machine

START = 1_790_000_000.0
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB" + "x" * 43 + " ann@laptop"
IMAGE = "pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime"


def furnished() -> VastSimulator:
    """Ann's account is `5000`.

    Machine 1: an RTX 4090, 0.40 USD/h; 2: four A100 of 80 GB, 1.20 each; 3: an RTX 4090, 0.35, unverified, no volumes.
    """
    sim = VastSimulator(clock=VirtualClock(START))
    sim.add_account("ann")
    sim.world.market.add(Machine(1, 11))
    sim.world.market.add(
        Machine(2, 12, gpu_name="A100 SXM4", gpus=4, gpu_ram=81920, dph=1.20, min_bid=0.60, geolocation="Berlin, DE")
    )
    sim.world.market.add(Machine(3, 13, dph=0.35, verified=False, reliability=0.91, volume_space=0.0))
    return sim


@contextmanager
def served() -> Iterator[VastSimulator]:
    """Furnished, on a port. Violations fail the test."""
    sim = furnished()
    with SimServer(sim):
        yield sim
        sim.check()


def sdk(sim: VastSimulator, key: str | None = None, retry: int = 1) -> Any:
    """The official client, as a customer would make it."""
    from vastai import VastAI

    return VastAI(api_key=key or sim.customers["5000"].key, server_url=sim.url, retry=retry)


def offer_of(client: Any, machine: int, gpus: int | None = None, **more: Any) -> dict[str, Any]:
    """The cheapest offer of a machine, found as the search finds it."""
    query: dict[str, Any] = {"machine_id": {"eq": machine}}
    if gpus is not None:
        query["num_gpus"] = {"eq": gpus}
    found = client.search_offers(query=query, no_default=True, order="dph_total", **more)
    assert found, f"machine {machine} has no offer of {gpus} GPUs"
    first: dict[str, Any] = found[0]
    return first


def rent(client: Any, machine: int = 1, gpus: int | None = None, **more: Any) -> int:
    """A new instance on a machine; says its id."""
    asked = {"image": IMAGE, "disk": 20, "label": "box-0", "cancel_unavail": True, "ssh": True, "direct": True, **more}
    number: int = client.create_instance(offer_of(client, machine, gpus)["id"], **asked)["new_contract"]
    return number


def until(client: Any, number: int, word: str, looks: int = 12) -> dict[str, Any]:
    """Looks until the instance's actual_status is `word`."""
    seen = []
    for _ in range(looks):
        row: dict[str, Any] = client.show_instance(number)
        seen.append(row["actual_status"])
        if row["actual_status"] == word:
            return row
    raise AssertionError(f"{number} never was {word}: {seen}")


@contextmanager
def refused(status: int, error: str | None = None, text: str = "") -> Iterator[dict[str, Any]]:
    """The SDK raises for this reply; its body is put into what this yields."""
    body: dict[str, Any] = {}
    with pytest.raises(requests.HTTPError) as caught:
        yield body
    reply = caught.value.response
    assert reply.status_code == status, reply.text
    if error is not None:
        body.update(reply.json())
        assert body["error"] == error
    assert text in reply.text
