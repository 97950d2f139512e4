"""Money in `sweepctl status`: spent of the budget, the end, what is idle; and the webhook, which holds nothing up."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sweepstack.cli import events
from sweepstack.operations.events import channels
from sweepstack.operations.sweep.collect import take_snapshot
from sweepstack.operations.sweep.sources import open_sources
from sweepstack.operations.sweep.target import Target
from sweepstack.status.money import running_clocks
from tests.unit.cli.support import STACK, Box, World
from tests.unit.cli.test_ledger import charge
from tests.unit.operations.events.hooks import SECRET, hook


def with_budget(world: World, **budget: Any) -> dict[str, Any]:
    """The state, with this budget in it."""
    export = world.export()
    for resource in export["deployment"]["resources"]:
        if resource["type"].endswith(":Identity"):
            resource["inputs"] = resource["outputs"] = resource["outputs"] | {"budget": budget}
    return export


def status(world: World, *words: str, **budget: Any) -> Any:
    world.save(with_budget(world, **budget))
    return world.run("status", *words, fresh=False)


@pytest.fixture
def spending(world: World) -> World:
    """$11.20 spent: $10 by a box that has ended, $1.20 so far by one that runs at $1.50/h."""
    old, box = world.add("old", price=2.0), world.add("box-0", price=1.5)
    charge(world, old, "running", 10, 2.0)
    charge(world, old, "ended", 5, 0.0, "cleared")
    charge(world, box, "running", 0.8, 1.5)
    old.vanish()
    world.store.write_birth(old.birth(ended_at=datetime.now(UTC) - timedelta(hours=5), ended_how="cleared"))
    world.gone = ["old"]
    world.boxes.remove(old)
    running(world, box)
    return world


def running(world: World, box: Box) -> None:
    """One cell sealed, one runs, one waits."""
    box.begin = datetime.now(UTC) - timedelta(seconds=60)
    box.launch("lr0.1", "lr0.3", "lr0.9")
    box.seal("lr0.1")
    box.start("lr0.3")
    box.alive()


def test_spent_of_the_budget_and_the_end(spending: World) -> None:
    result = status(spending, usd=60, hours=30)
    (line,) = [line for line in result.out.splitlines() if line.startswith("money")]
    assert line.startswith("money  $1.50/h, $11.20 of $60.00, 5.8 of 30 box-hours, about $11.2")
    assert line.endswith("at the end")
    document = status(spending, "--json", usd=60, hours=30).json
    assert document["budget"]["usd"] == 60
    assert document["budget"]["used"] == pytest.approx(5.8 / 30, abs=0.01)
    assert document["budget"]["projected_usd"] > 11.2
    assert document["meter"]["so_far"] == pytest.approx(11.2, abs=0.01)
    assert document["meter"]["projected"] == pytest.approx(document["budget"]["projected_usd"], abs=0.01)


def test_past_it_and_near_it_that_is_said_loudly_and_is_no_failure(spending: World) -> None:
    result = status(spending, usd=10)
    assert result.code == 0
    words = "BUDGET USED UP: $11.20 of $10.00 (112 %); nothing more is rented, what runs goes on at $1.50/h"
    assert words in result.out
    assert "the budget runs out before the last cell" in status(spending, usd=11.205).out
    assert "budget: $11.20 of $13.00 (86 %)" in status(spending, usd=13).out


def test_what_bills_for_nothing_is_idle(spending: World) -> None:
    assert "idle" not in next(line for line in spending.run("status").out.splitlines() if line.startswith("money"))
    spending.boxes[0].alive(False)
    assert "$1.50/h of it idle" in spending.run("status").out


def test_a_stop_and_a_new_price_are_in_what_was_spent(world: World) -> None:
    box = world.add("box-0", price=2.0)
    charge(world, box, "running", 10, 2.0)
    charge(world, box, "running", 8, 3.0)
    charge(world, box, "stopped", 4, 0.05)
    charge(world, box, "running", 2, 3.0)
    seen = world.run("status", "--json").json
    assert seen["meter"]["so_far"] == pytest.approx(2 * 2 + 4 * 3 + 2 * 0.05 + 2 * 3, abs=0.01)
    assert seen["boxes"][0]["cost"] == pytest.approx(seen["meter"]["so_far"], abs=0.01)


def test_a_damaged_entry_of_the_ledger_is_named(spending: World) -> None:
    next((spending.evidence / "records" / "ledger").glob("*.json")).write_text("{")
    result = status(spending, usd=60)
    assert result.code == 0
    assert "is damaged" in result.out


def test_the_webhook_is_told_by_whoever_looks_first(spending: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PATIENCE", 60.0)
    monkeypatch.setattr(channels, "READ_SECONDS", 60.0)
    with hook() as server:
        monkeypatch.setenv("BUDGET_HOOK", server.url)
        assert status(spending, usd=13, webhook="BUDGET_HOOK").code == 0
        result = status(spending, usd=13, webhook="BUDGET_HOOK")
        assert result.err == ""
    (body,) = server.taken
    assert body["text"].startswith("sweep-t: 80 % of the budget is used: $11.20 of $13.00 (86 %)")
    assert body["per_hour"] == 1.5


@pytest.mark.parametrize("trouble", [500, "hang", "cut"])
def test_a_webhook_in_trouble_changes_no_answer(
    spending: World, monkeypatch: pytest.MonkeyPatch, trouble: int | str
) -> None:
    monkeypatch.setattr(channels, "BACKOFF", 0.01)
    monkeypatch.setattr(events, "PATIENCE", 0.5)
    with hook(trouble) as server:
        monkeypatch.setenv("BUDGET_HOOK", server.url)
        result = status(spending, "--json", usd=13, webhook="BUDGET_HOOK")
        server.go_on.set()
    assert result.code == 0
    assert result.json["stack"] == "sweep-t"
    assert "webhook" in result.err
    assert SECRET not in result.out + result.err


def test_a_clock_that_runs_is_counted_down(world: World) -> None:
    box = world.add("box-0", price=2.0)
    charge(world, box, "running", 80, 2.0)
    charge(world, box, "stopped", 48, 0.05)
    export = world.export()
    for resource in export["deployment"]["resources"]:
        if resource["type"].endswith(":Box"):
            facts = resource["outputs"]["teardown"] | {"clocks": [{"what": "released", "days": 15, "kills": ["data"]}]}
            resource["inputs"] = resource["outputs"] = resource["outputs"] | {"teardown": facts}
    world.save(export)
    result = world.run("status", fresh=False)
    assert "clock  box box-0: released in 12 d 23 h (" in result.out
    world.save(export)
    (clock,) = world.run("status", "--json", fresh=False).json["clocks"]
    assert (clock["box"], clock["what"], clock["kills"]) == ("box-0", "released", ["data"])
    assert 12 * 86400 < clock["left_seconds"] < 13 * 86400


def test_a_box_that_stopped_itself_unseen_has_a_clock_all_the_same(world: World) -> None:
    """By the ledger it runs, since no command was there to see it stop; the platform's deadline has begun."""
    box = world.add("box-0", price=2.0)
    charge(world, box, "running", 80, 2.0)
    export = world.export()
    for resource in export["deployment"]["resources"]:
        if resource["type"].endswith(":Box"):
            facts = resource["outputs"]["teardown"] | {"clocks": [{"what": "removed", "days": 30, "kills": ["data"]}]}
            resource["inputs"] = resource["outputs"] = resource["outputs"] | {"teardown": facts}
    world.save(export)
    snapshot = take_snapshot(open_sources(Target.find(STACK, start=world.root)))
    (seen,) = snapshot.box_snapshots
    stopped = replace(snapshot, box_snapshots=(replace(seen, seen=replace(seen.seen, stopped=True)),))
    assert list(running_clocks(snapshot)) == []
    (clock,) = running_clocks(stopped)
    assert clock.what == "removed, had it gone off when it was last seen,"
    assert clock.kills == ("data",)
