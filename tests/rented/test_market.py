"""What may be rented and at which price: shown by preview, placed like a lock file, held by `up`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.commands import assert_failed, ok
from tests.rented.world import World, rented, without_internet


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Four hosts with an RTX 3090 each, 0.30 to 0.45 USD an hour and the disk beside."""
    with rented("vastai", tmp_path, "sweep-vast", machines=False) as found:
        without_internet(found.stack)
        found.stack.init()
        yield found


def placement(world: World) -> dict[str, Any]:
    return dict(world.stack.config()["placement"])


def writes(world: World) -> int:
    """Creates that reached the platform."""
    return int(world.sim.count("PUT */asks/*"))


def test_up_takes_nothing_dearer_than_the_preview_showed(world: World) -> None:
    shown = ok(world.stack.pulumi("preview", timeout=180))
    assert "RTX 3090 in Texas, US at $0.30" in shown.text, str(shown)
    assert "sweepctl profile show vastai" in shown.text, "the first contact is told"
    for machine in range(100, 104):
        world.sim.act("price", {"machine": machine, "dph": 0.60})
    refused = world.stack.up(timeout=180)
    assert refused.rc != 0
    assert "first contact" not in refused.text, "and told once"
    assert "was not rented at $0.30" in refused.text, str(refused)
    assert "the next offers: RTX 3090" in refused.text
    assert "pulumi preview --stack sweep-vast" in refused.text
    assert (writes(world), world.rentals()) == (0, set())


@pytest.mark.proof  # tests/unit/cli/test_place_wait.py
def test_a_wait_takes_what_comes_below_the_ceiling_and_rents_nothing_itself(world: World, tmp_path: Path) -> None:
    """All that fits is above the ceiling; then the market is down for some looks; then one machine gets cheaper."""
    world.stack.edit_config(lambda sweep: sweep.update(max_price=0.50))
    for machine in range(100, 104):
        world.sim.act("price", {"machine": machine, "dph": 0.60})

    out, err = tmp_path / "out", tmp_path / "err"
    typed = f"exec sweepctl place --wait 1h --json --stack {world.stack.name} > {out} 2> {err}"
    command = world.stack.start("sh", "-c", typed)

    def says(words: str) -> None:
        def said() -> bool:
            text = " ".join(err.read_text().split()) if err.exists() else ""
            assert words in text or command.poll() is None, f"it ended, and never said {words!r}: {text}"
            return words in text

        world.stack.wait_for(said, words)

    try:
        says("near vastai: RTX 3090 in Texas, US at $0.60")
        says("max_price is $0.500")
        world.sim.faults.add("error_before", "POST */bundles*", times=None, status=503)
        says("trouble vastai gives no answer, and is asked again: ")
        world.sim.act("price", {"machine": 102, "dph": 0.40})
        world.sim.faults.drop("error_before")
        says("again vastai answers")
        assert command.wait(timeout=300) == 0, err.read_text()
    finally:
        command.kill()
        command.wait()
    assert json.loads(out.read_text())["changed"] is True
    assert 0.40 <= placement(world)["boxes"]["box-0"]["price_per_hour"] < 0.42
    assert (writes(world), world.rentals()) == (0, set())


@pytest.mark.proof
def test_place_is_a_lock_file_and_next_goes_on(world: World) -> None:
    placed = ok(world.stack.sweepctl("place", timeout=120))
    assert "$/H" in placed.text
    assert placed.out.rstrip().endswith("pulumi preview --stack sweep-vast")
    first = placement(world)
    assert first["platform"] == "vastai"
    offer = first["boxes"]["box-0"]
    assert 0.30 < offer["price_per_hour"] < 0.32
    again = ok(world.stack.pulumi("preview", timeout=180))
    assert "vastai: chosen, as placed" in again.text

    world.sim.act("take", {"machine": 100, "gpus": 1})
    gone = ok(world.stack.pulumi("preview", timeout=180))
    assert f"the offer {offer['offer']} that was placed is not to be had now" in gone.text, str(gone)
    assert "sweepctl place next --stack sweep-vast" in gone.text
    refused = world.stack.up(timeout=180)
    assert_failed(refused, "it is not to be had any more as it was chosen", "pulumi preview --stack sweep-vast")
    assert world.rentals() == set()

    ok(world.stack.sweepctl("place", "next", timeout=120))
    second = placement(world)["boxes"]["box-0"]
    assert second["offer"] != offer["offer"]
    assert second["price_per_hour"] > offer["price_per_hour"]
    shown = ok(world.stack.sweepctl("place", "--show", "--json", timeout=120)).json()
    assert [found["platform"] for found in shown["candidates"]] == ["vastai"]
    assert shown["changed"] is False


@pytest.mark.proof  # tests/conformance/test_faults.py; the adapter: unit/platforms/test_vastai_platform.py
def test_no_money_is_no_reason_to_try_the_next_offer(world: World) -> None:
    world.sim.faults.add("lacks_credit", "PUT */asks/*", times=None)
    refused = world.stack.up(timeout=180)
    assert refused.rc != 0
    assert "credit" in refused.text, str(refused)
    assert writes(world) == 1
    assert world.rentals() == set()


@pytest.mark.proof  # the command: tests/unit/cli/test_doctor_platforms.py, test_doctor.py
def test_without_a_key_it_says_where_one_is_looked_for(world: World) -> None:
    refused = world.stack.up(env={"VAST_API_KEY": ""}, timeout=180)
    assert refused.rc != 0
    assert "VAST_API_KEY" in refused.text, str(refused)
    assert "Traceback" not in refused.text
    assert world.rentals() == set()


def test_a_ceiling_below_the_market_rents_nothing(world: World) -> None:
    world.stack.edit_config(lambda sweep: sweep.update(max_price=0.05))
    preview = ok(world.stack.pulumi("preview", timeout=180))
    assert "has nothing now that fits" in preview.text, str(preview)
    place = world.stack.sweepctl("place", timeout=120)
    assert place.rc == 1
    assert "nothing that fits can be had" in place.text
    assert "placement" not in world.stack.config()
    refused = world.stack.up(timeout=180)
    assert_failed(refused, "has no offer that has all that is asked for for 0.05 USD/h or less", "nothing was rented")
    assert world.rentals() == set()
