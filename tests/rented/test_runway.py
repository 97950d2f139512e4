"""A balance that does not carry the boxes: said with the figures, before anything is rented."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.commands import assert_failed, ok
from tests.rented.world import World, rented, without_internet
from tests.simulators.rental import stack_of, whole_rentals


def left(world: World, usd: float) -> None:
    """So much is left on the account."""
    account = next(one for one in world.sim.accounts.values() if one.key == world.key)
    account.credit = world.sim.ledger.spent(account.id) + usd


FIRST, *OTHERS = whole_rentals()


# On the handlers: tests/unit/provider/test_balance.py.
@pytest.mark.parametrize("platform", [FIRST, *(pytest.param(other, marks=pytest.mark.proof) for other in OTHERS)])
def test_what_the_balance_does_not_carry_is_not_rented(platform: str, tmp_path: Path) -> None:
    with rented(platform, tmp_path, stack_of(platform), machines=False) as world:
        stack = world.stack
        without_internet(stack)
        stack.init()
        left(world, 0.05)
        assert_failed(
            stack.pulumi("preview", timeout=180),
            "the balance does not carry it: $0.05 left",
            "1.0 h are needed (nothing measured yet, and 1 h)",
            f"at {platform}, then pulumi up --stack {stack.name}",
        )
        asked = [f"{call.method} {call.route}" for call in world.sim.calls]
        # An answer about the account counts for seconds alone: on a busy machine it is asked once more.
        assert len(asked) <= 4, f"the market, the balance, and one more for what bills on the account: {asked}"
        if platform == FIRST:
            place = stack.sweepctl("place", timeout=120)
            assert place.rc == 1, str(place)
            assert "the balance does not carry" in place.text
            assert "placement" not in stack.config()
            stack.edit_config(lambda sweep: sweep.update(ignore_balance="a card is on file"))
            known = ok(stack.pulumi("preview", timeout=180))
            assert "Rented all the same, since ignore_balance says: a card is on file" in known.text
        assert world.rentals() == set()
