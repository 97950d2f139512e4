"""A budget on the real engine: it refuses what is too dear, in the preview too, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.commands import ok
from tests.engine.harness import Stack
from tests.unit.operations.events.hooks import SECRET, hook

DEAR = 3_600_000.0
"""USD per hour: $1,000 a second, so that a test's seconds use up any budget."""


@pytest.fixture(scope="module")
def dear_once(make_stack: Callable[..., Stack]) -> Stack:
    """See `dear`; the moment is saved under that name."""
    stack = make_stack(boxes=("box-0",), cells=("seed0", "seed1"))
    budget(stack, {"usd": 500})
    stack.edit_config(lambda sweep: sweep["overrides"]["local"].update(price_per_hour=DEAR))
    ok(stack.up())
    stack.wait_done()
    stack.wait_idle()
    stack.save("dear")
    return stack


@pytest.fixture
def dear(dear_once: Stack) -> Stack:
    """One box at that price, with a budget that its first second used up; all its cells are sealed."""
    dear_once.restore("dear")
    return dear_once


def budget(stack: Stack, value: dict[str, Any]) -> None:
    stack.edit_config(lambda sweep: sweep.update(budget=value))


def one_more(stack: Stack, want: str = "running") -> None:
    """Another box, and two cells, so that there is one for it."""
    stack.edit_config(lambda sweep: sweep["boxes"].update({"box-1": {"want": want}}))
    stack.edit_config(lambda sweep: sweep["cells"]["grid"].update(seed=[0, 1, 2, 3]))


@pytest.mark.proof
def test_past_the_budget_nothing_is_rented_and_all_else_goes_on(dear: Stack) -> None:
    stack = dear
    before = stack.native_ids()
    one_more(stack)
    preview = ok(stack.pulumi("preview"))
    assert "used up: nothing more is rented" in preview.text, str(preview)
    refused = stack.up()
    assert refused.rc != 0
    assert stack.native_ids() == before, "nothing was rented"
    assert refused.text.count("box box-1 is not rented: the budget is used up") >= 1, str(refused)
    assert re.search(r"box-0  \d+\.\d\d h x \$3600000\.00 = \$\d", refused.text), str(refused)
    for words in (
        "raise budget.usd",
        "boxes.box-1: {want: gone}",
        "sweepctl finish",
    ):
        assert words in refused.text, f"{words!r} is not said\n{refused}"
    assert "Traceback" not in refused.text

    # One of the ways that the message names: without the box.
    one_more(stack, want="gone")
    ok(stack.up())
    stack.wait_for(lambda: {"seed2", "seed3"} <= stack.sealed(), "the further cells")
    stack.wait_idle()
    ok(stack.sweepctl("pull"))
    stack.approve()
    ok(stack.up())
    ok(stack.destroy())
    assert stack.native_ids() == []
    ledger = ok(stack.sweepctl("ledger", "--json")).json()
    assert [(row["box"], row["ended"]) for row in ledger["boxes"]] == [("box-0", "cleared")]
    assert ledger["usd"] > 500


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_budget.py
def test_a_raised_budget_rents_again_and_shows_in_the_diff(dear: Stack) -> None:
    stack = dear
    one_more(stack)
    budget(stack, {"usd": 1e9})
    preview = ok(stack.pulumi("preview", "--diff"))
    assert "budget" in preview.text
    assert "MORE THAN THE BUDGET" not in preview.text
    ok(stack.up())
    assert len(stack.native_ids()) == 2
    stack.wait_idle()
    assert re.search("no changes|unchanged", ok(stack.pulumi("preview")).text)


@pytest.mark.proof  # tests/unit/operations/events/test_deliver.py (real server), tests/unit/cli/test_budget_status.py
def test_an_up_tells_the_webhook_once_and_a_preview_nobody(dear: Stack) -> None:
    stack = dear
    with hook() as server:
        env = {"BUDGET_HOOK": server.url}
        budget(stack, {"usd": 499, "webhook": "BUDGET_HOOK"})
        ok(stack.pulumi("preview", env=env))
        assert server.taken == []
        ups = ok(stack.up(env=env))
        ok(stack.up(env=env))
        ok(stack.sweepctl("status", env=env))
    (body,) = server.taken
    assert (body["stack"], body["threshold"]) == ("t", 1.0)
    assert SECRET not in ups.text
    kept = "".join(path.read_text() for path in (stack.base / "backend").rglob("*.json"))
    assert "BUDGET_HOOK" in kept, "the name travels"
    assert SECRET not in kept


@pytest.mark.proof  # against a real server: tests/unit/operations/events/test_deliver.py
def test_a_webhook_that_hangs_holds_no_up_up(dear: Stack) -> None:
    stack = dear
    with hook("hang") as server:
        budget(stack, {"usd": 498, "webhook": "BUDGET_HOOK"})
        ok(stack.up(env={"BUDGET_HOOK": server.url}))
        server.go_on.set()
