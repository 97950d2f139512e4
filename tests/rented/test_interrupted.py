"""A platform changes a rented box between two commands: stopped, outbid, removed, without GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.commands import assert_refused, ok
from tests.rented.world import World, rented, without_internet


@pytest.fixture
def vast(tmp_path: Path) -> Iterator[World]:
    with rented("vastai", tmp_path, "sweep-vast") as world:
        without_internet(world.stack)
        world.stack.init()
        yield world


@pytest.fixture
def runpod(tmp_path: Path) -> Iterator[World]:
    with rented("runpod", tmp_path, "sweep-runpod") as world:
        without_internet(world.stack)
        world.stack.init()
        yield world


def grid(world: World, **axes: list[Any]) -> None:
    world.stack.edit_config(lambda sweep: sweep["cells"].update(grid=axes))


def want(world: World, what: str) -> None:
    world.stack.edit_config(lambda sweep: sweep["boxes"]["box-0"].update(want=what))


def up(world: World) -> None:
    ok(world.stack.up(timeout=400))


def box(world: World) -> dict[str, Any]:
    (found,) = ok(world.stack.sweepctl("status", "--json", timeout=120)).json()["boxes"]
    return dict(found)


def states(world: World) -> dict[str, str]:
    said = world.stack.sweepctl("status", "--json", timeout=120)
    return {cell["name"]: cell["state"] for cell in said.json()["cells"]}


def assert_leads_to_a_start(world: World) -> None:
    """Of status, and of a pull that can't reach the box."""
    for words in ("status",), ("pull",):
        first = world.stack.sweepctl(*words, "--json", timeout=120).json()["next"][0]
        assert first.startswith("pulumi up --stack "), first
        assert "starts box-0, with which cells wait; where another customer has its place" in first


def finish(world: World) -> None:
    """The rest of the loop, from cells that run to nothing that bills."""
    ok(world.stack.sweepctl("wait", "done", timeout=400))
    ok(world.stack.sweepctl("pull", timeout=180))
    world.stack.approve()
    ok(world.stack.up(timeout=180))
    ok(world.stack.destroy(timeout=180))
    assert world.rentals() == set()


@pytest.mark.proof  # without cards it is stopped and started, too; each adapter: tests/conformance/test_boxes.py
def test_stopped_and_started_it_is_the_same_box_at_another_port(vast: World) -> None:
    """The stop keeps the disk and its price; the start reads the port anew; a new cell runs, sealed ones are kept."""
    grid(vast, lr=[0.1], seed=[0, 1])
    up(vast)
    ok(vast.stack.sweepctl("wait", "done", timeout=400))
    before = box(vast)
    rentals = vast.rentals()
    want(vast, "stopped")
    up(vast)
    assert box(vast)["phase"] == "stopped"
    assert vast.rentals() == rentals, "a stop ends nothing"
    rate = sum(rental.rate for rental in vast.sim.ledger.live())
    assert 0 < rate < before["price_per_hour"] / 5, "the disk goes on billing, the card does not"
    ledger = ok(vast.stack.sweepctl("ledger", "--json", timeout=120)).json()
    assert ledger["per_hour"] == pytest.approx(rate, rel=0.05), "by the ledger, too"
    assert ledger["complete"] is True
    assert ledger["usd"] > 0
    status = ok(vast.stack.sweepctl("status", timeout=120))
    assert "nothing bills there" not in status.text
    assert "$0.00/h" not in status.text
    grid(vast, lr=[0.1], seed=[0, 1, 2])
    want(vast, "running")
    up(vast)
    assert box(vast)["native_id"] == before["native_id"]
    ok(vast.stack.sweepctl("wait", "done", timeout=400))
    assert set(states(vast).values()) == {"sealed"}
    finish(vast)


@pytest.mark.proof  # tests/unit/provider/test_box_end.py; each adapter: tests/conformance/test_platforms.py
def test_a_box_that_was_taken_away_is_followed_by_its_next_generation(vast: World) -> None:
    """Verified cells come from the evidence; what was on the box alone is run again; nothing is rented twice."""
    grid(vast, lr=[0.1], seed=[0, 1])
    up(vast)
    ok(vast.stack.sweepctl("wait", "done", timeout=400))
    ok(vast.stack.sweepctl("pull", timeout=180))
    vast.stack.verify()
    first = box(vast)["native_id"]
    vast.sim.act("vanish", {"id": first})
    assert vast.rentals() == set()
    grid(vast, lr=[0.1], seed=[0, 1, 2])
    up(vast)
    second = box(vast)["native_id"]
    assert vast.rentals() == {second} != {first}
    ok(vast.stack.sweepctl("wait", "done", timeout=400))
    verified = vast.stack.verify()
    assert {cell["name"]: cell["state"] for cell in verified["cells"]}["lr0.1-seed0"] == "verified"
    finish(vast)


@pytest.mark.proof  # each adapter: tests/conformance/test_spot.py; the bid: tests/unit/provider/test_box_comes_up.py
def test_an_outbid_box_is_said_to_be_so_and_comes_back_by_a_higher_bid(vast: World) -> None:
    grid(vast, lr=[0.1], seed=[0])
    vast.stack.edit_config(lambda sweep: sweep["job"]["resources"].update(spot=True))
    vast.stack.edit_config(lambda sweep: sweep.update(bid=0.35))
    up(vast)
    ok(vast.stack.sweepctl("wait", "done", timeout=400))
    native_id = box(vast)["native_id"]
    vast.sim.act("outbid", {"id": native_id})
    refreshed = vast.stack.pulumi("preview", timeout=180)
    assert "stopped" in refreshed.text
    assert "outbid" in refreshed.text or "preempted" in refreshed.text, str(refreshed)
    assert box(vast)["told"] == "preempted"
    assert states(vast) == {"lr0.1-seed0": "sealed"}, "as it was last seen"
    assert_leads_to_a_start(vast)
    vast.stack.edit_config(lambda sweep: sweep.update(bid=0.75))
    grid(vast, lr=[0.1], seed=[0, 1])
    up(vast)
    assert box(vast)["native_id"] == native_id
    finish(vast)


@pytest.mark.proof
def test_a_box_that_comes_back_without_cards_runs_nothing(runpod: World) -> None:
    """B03: 0 of 1 GPUs are seen, no cell starts, and nothing is ended by itself."""
    grid(runpod, lr=[0.1], seed=[0])
    up(runpod)
    ok(runpod.stack.sweepctl("wait", "done", timeout=400))
    want(runpod, "stopped")
    up(runpod)
    grid(runpod, lr=[0.1], seed=[0, 1])
    want(runpod, "running")
    runpod.sim.faults.add("zero_gpus", "POST /v2/pods/{id}/action")
    refused = runpod.stack.up(timeout=300)
    assert refused.rc != 0
    assert "came up with 0 of 1 GPUs" in refused.text, str(refused)
    assert states(runpod)["lr0.1-seed1"] == "pending"
    assert box(runpod)["alarms"] == ["it came up with 0 of 1 GPUs: nothing is started on it, and it bills"]
    assert len(runpod.rentals()) == 1, "nothing was ended, nothing was rented beside it"
    assert_refused(runpod.stack.destroy(timeout=180))
    want(runpod, "stopped")
    up(runpod)
    want(runpod, "running")
    up(runpod)
    finish(runpod)


def rest(world: World) -> None:
    """One cell is sealed, and `tend` pulls it, verifies it and stops the box."""
    grid(world, lr=[0.1], seed=[0])
    up(world)
    ok(world.stack.sweepctl("wait", "done", timeout=400))
    ok(world.stack.sweepctl("tend", "--once", timeout=300))
    assert box(world)["phase"] == "stopped"
    pulled = ok(world.stack.sweepctl("pull", "--json", timeout=120)).json()
    assert [cell["state"] for cell in pulled["cells"]] == ["current"], "nothing more is to be had from it"
    up(world)
    assert box(world)["phase"] == "stopped", "an up starts no box that has nothing to run"


@pytest.mark.proof  # tests/unit/provider/test_rested_box.py; each clause: tests/unit/teardown/test_rested.py
def test_a_box_that_tend_stopped_ends_without_being_started(runpod: World) -> None:
    rest(runpod)
    ok(runpod.stack.sweepctl("ledger", "--against-bill", timeout=120))  # its disk is counted as it is billed
    runpod.stack.approve()
    up(runpod)
    assert box(runpod)["phase"] == "stopped"
    ok(runpod.stack.destroy(timeout=180))
    assert runpod.rentals() == set()
    starts = [pod for pod in runpod.sim.pods.gone.values() if pod.restarts]
    assert starts == []


@pytest.mark.proof  # as above
def test_where_no_last_start_is_told_it_is_started_to_be_read(vast: World) -> None:
    rest(vast)
    refused = vast.stack.sweepctl("approve", timeout=120)
    said = " ".join(refused.text.split())
    assert "does not tell when it last started it" in said, str(refused)
    assert "pulumi up --stack sweep-vast && sweepctl finish --stack sweep-vast (after `when_done: keep`" in said
    vast.stack.edit_config(lambda sweep: sweep.update(when_done="keep"))
    up(vast)
    assert box(vast)["phase"] == "running"
    finish(vast)
