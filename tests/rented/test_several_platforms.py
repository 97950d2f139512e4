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
    assert "$" in ok(stack.pulumi("preview", timeout=180)).text
    assert (one.rentals(), other.rentals()) == (set(), set()), "a preview rents nothing"
    ok(stack.up(timeout=400))
    assert (len(one.rentals()), len(other.rentals())) == (1, 1)
    status = ok(stack.sweepctl("status", "--json")).json()
    ids = {box["name"]: box["native_id"] for box in status["boxes"]}
    price = {box["name"]: box["price_per_hour"] for box in status["boxes"]}
    (balance,) = status["balances"]
    assert balance["hours"] > 24, "the simulated account has enough"
    assert balance["per_hour"] >= price["a"] * 0.99 > 0
    assert {ids["a"]} == one.rentals()
    assert {ids["b"]} == other.rentals()
    assert {cell["box"] for cell in status["cells"]} == {"a", "b"}, "both have cells"
    again = ok(stack.pulumi("preview", "--json", timeout=180)).json()["changeSummary"]
    assert not {what: count for what, count in again.items() if what not in ("same", "refresh") and count}, again

    assert_refused(stack.destroy(timeout=180))
    assert (len(one.rentals()), len(other.rentals())) == (1, 1), "a refused destroy ends nothing on either"
    ok(stack.sweepctl("wait", "done", timeout=400))
    ok(stack.sweepctl("pull", timeout=180))
    verify = ok(stack.sweepctl("verify", "--json", timeout=180)).json()
    assert (verify["verified"], verify["total"]) == (6, 6)
    ok(stack.sweepctl("approve", verify["receipt"]))
    ok(stack.up(timeout=180))
    ok(stack.destroy(timeout=180))
    assert (one.rentals(), other.rentals()) == (set(), set())
    assert ok(stack.sweepctl("status", "--json")).json()["bills"] == "nothing"
    ok(stack.run("sweepctl", "audit"))
    ledger = stack.sweepctl("ledger", "--against-bill", "--json").json()
    assert (ledger["usd"] > 0, ledger["complete"]) == (True, True), ledger
    assert "agrees" in [line["verdict"] for line in ledger["against_bill"]["lines"]], ledger
