"""The README's loop on a rented box, with the shipped stack files, over a real sshd."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.commands import assert_refused, ok
from tests.rented.world import World, rented, without_internet
from tests.simulators.rental import stack_of, whole_rentals


@pytest.fixture(scope="module", params=whole_rentals())
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    platform = request.param
    with rented(platform, tmp_path_factory.mktemp(platform), stack_of(platform)) as found:
        without_internet(found.stack)
        yield found


@pytest.mark.proof  # on two platforms at once: test_several_platforms.py
def test_the_loop(world: World) -> None:
    """preview → up → destroy refused → wait → pull → verify → approve → up → destroy → audit. As it is typed, with the
    engine's preview before each change: tests/engine/test_loop.py. In its middle RunPod retires its older interface;
    from the beginning without it: tests/rented/retired."""
    stack, name = world.stack, world.stack.name
    ok(stack.run("pulumi", "stack", "init", name, "--non-interactive"))
    assert "nothing was rented from this backend" in ok(stack.sweepctl("status")).text
    preview = ok(stack.pulumi("preview", timeout=180))
    assert "$" in preview.text
    assert world.rentals() == set(), "a preview rents nothing"

    ok(stack.up(timeout=400))
    rentals = world.rentals()
    assert len(rentals) == 1
    status = ok(stack.sweepctl("status", "--json")).json()
    (box,) = status["boxes"]
    assert box["native_id"] in rentals
    assert box["price_per_hour"] > 0
    (balance,) = status["balances"]
    assert balance["hours"] > 24, "the simulated account has enough"
    assert balance["per_hour"] >= box["price_per_hour"] * 0.99

    again = ok(stack.pulumi("preview", "--json", timeout=180)).json()["changeSummary"]
    assert not {what: count for what, count in again.items() if what not in ("same", "refresh") and count}, again

    assert_refused(stack.destroy(timeout=180))
    assert world.rentals() == rentals, "a refused destroy ends nothing"
    ok(stack.run("sweepctl", "audit"))

    ok(stack.sweepctl("wait", "done", timeout=400))
    ok(stack.sweepctl("pull", timeout=180))
    verify = ok(stack.sweepctl("verify", "--json", timeout=180)).json()
    assert (verify["verified"], verify["total"]) == (6, 6)
    world.retire()
    ok(stack.sweepctl("approve", verify["receipt"]))
    ok(stack.up(timeout=180))
    assert world.rentals() == rentals
    ok(stack.destroy(timeout=180))
    assert world.rentals() == set()
    assert ok(stack.sweepctl("status", "--json")).json()["bills"] == "nothing"
    ok(stack.run("sweepctl", "audit"))
    ledger = ok(stack.sweepctl("ledger", "--against-bill", "--json")).json()
    assert ledger["usd"] > 0
    assert ledger["complete"] is True
    assert [line["verdict"] for line in ledger["against_bill"]["lines"]] == ["agrees"]
