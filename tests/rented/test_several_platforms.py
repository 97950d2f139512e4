"""One sweep with a box on each of two rental platforms: one split, one roster, one gate for both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.engine.commands import assert_refused, ok
from tests.rented.world import World, beside, rented, without_internet
from tests.simulators.rental import rentals, stack_of, whole_rentals

ONE = whole_rentals()[-1]
OTHER = next(adapter for adapter in rentals() if adapter not in whole_rentals())
"""Another than tests/rented/test_loop.py plays in every run, and one without a stop, without balance or bill."""
NAME = OTHER.replace("_", "-")
"""What the stack file calls it."""


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, World]]:
    base = tmp_path_factory.mktemp("two")
    with rented(ONE, base / "one", stack_of(ONE)) as one, beside(one, OTHER, base / "other") as other:
        without_internet(one.stack)
        one.stack.edit_config(_on_both)
        yield one, other


def _on_both(sweep: dict[str, Any]) -> None:
    sweep["job"]["resources"] = {"gpu": {"count": 1}, "disk": "20GB"}
    sweep.update(when_done="keep", lease="none")
    sweep["candidates"] = [ONE, NAME]
    sweep["boxes"] = {"a": {"want": "running"}, "b": {"want": "running", "on": NAME}}


# What each command does to one box is tested on one platform; here: that both boxes are asked, counted and ended.
def test_the_loop_over_two_platforms(worlds: tuple[World, World]) -> None:
    one, other = worlds
    stack = one.stack
    ok(stack.run("pulumi", "stack", "init", stack.name, "--non-interactive"))
    placed = ok(stack.sweepctl("place", "--json")).json()["placement"]
    assert (placed["platform"], placed["boxes"]["b"]["on"]) == (ONE, NAME)
    ok(stack.up(timeout=400))
    assert (len(one.rentals()), len(other.rentals())) == (1, 1)
    status = ok(stack.sweepctl("status", "--json")).json()
    ids = {box["name"]: box["native_id"] for box in status["boxes"]}
    assert {ids["a"]} == one.rentals()
    assert {ids["b"]} == other.rentals()
    assert {cell["box"] for cell in status["cells"]} == {"a", "b"}, "both have cells"

    assert_refused(stack.destroy(timeout=180))
    assert (len(one.rentals()), len(other.rentals())) == (1, 1), "a refused destroy ends nothing on either"
    ok(stack.sweepctl("wait", "--for", "done", timeout=400))
    ok(stack.sweepctl("pull", timeout=180))
    verify = ok(stack.sweepctl("verify", "--json", timeout=180)).json()
    assert (verify["verified"], verify["total"]) == (6, 6)
    ok(stack.sweepctl("approve", "--receipt", verify["receipt"]))
    ok(stack.up(timeout=180))
    ok(stack.destroy(timeout=180))
    assert (one.rentals(), other.rentals()) == (set(), set())
    ok(stack.run("sweepctl", "audit"))
