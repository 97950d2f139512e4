"""`sweepctl ledger`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from sweepstack.billing.ledger import record_phase
from sweepstack.cli.commands import ledger
from sweepstack.onbox.host.capabilities import Billed
from tests.unit.cli.support import Box, World


def charge(world: World, box: Box, phase: str, hours_ago: float, price: float | None, how: str = "") -> None:
    record_phase(
        world.store,
        box=box.name,
        native_id=box.native_id,
        platform="local",
        account=box.record.account,
        phase=phase,  # type: ignore[arg-type]
        price_per_hour=price,
        at=datetime.now(UTC) - timedelta(hours=hours_ago),
        how=how,
    )


def test_every_box_with_its_hours_rates_and_end(world: World) -> None:
    first, second = world.add("box-0"), world.add("box-1")
    charge(world, first, "running", 5, 2.0)
    charge(world, first, "stopped", 3, 0.1)
    charge(world, first, "ended", 1, 0.0, "cleared")
    charge(world, second, "running", 3, 3.0)
    result = world.run("ledger")
    assert result.code == 0, result
    lines = [line.split() for line in result.out.splitlines()]
    assert lines[1][0:3] == ["box-0", first.native_id, "local"]
    assert lines[1][7:] == ["ran", "2.00", "2.00", "4.00"]
    assert lines[2][4:] == ["stood", "still", "2.00", "0.10", "0.20", "cleared"]
    assert lines[3][5:] == ["goes", "on", "running", "3.00", "3.00", "9.00"]
    assert "total  $13.20, 5.00 hours of running boxes; $3.00/h goes on" in result.out
    assert result.out.splitlines()[-1] == "next   sweepctl status --stack sweep-t"


def test_at_80_columns_nothing_is_cut(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: FROM was `2026-…22:02`, beside an id that was whole."""
    monkeypatch.setattr("sweepstack.cli.output.console", lambda: Console(file=sys.stdout, width=80))
    box = world.add("box-0")
    charge(world, box, "running", 27, 12.25)
    charge(world, box, "stopped", 5, 0.1)
    charge(world, box, "ended", 1, 0.0, "cleared")
    out = world.run("ledger").out
    assert "…" not in out
    assert max(map(len, out.splitlines())) <= 80
    shown = world.run("status", "--next").out
    assert any("box-0 is rented" in line and "UTC;" in line for line in shown.splitlines())
    assert "phase 1   rent and reach the boxes" in shown


def test_a_part_that_is_not_known_is_said(world: World) -> None:
    box = world.add("box-0", price=None)
    charge(world, box, "running", 5, None)
    result = world.run("ledger")
    assert result.code == 2
    assert "at least $0.00" in result.out
    (file,) = (world.evidence / "records" / "ledger").glob("*.json")
    file.write_text("{")
    result = world.run("ledger")
    assert result.code == 2
    assert f"{file} is damaged" in result.out


def test_a_box_that_vanished_costs_the_same_in_status_and_ledger(world: World) -> None:
    first, second = world.full()
    charge(world, first, "running", 5, 0.5)
    charge(world, second, "running", 5, 0.5)
    before = world.run("status", "--json").json["meter"]["so_far"]
    first.vanish()
    seen = world.run("status", "--json").json
    bill = world.run("ledger", "--json").json
    assert seen["meter"]["so_far"] >= before > 0, "money that was spent does not come back"
    assert bill["usd"] == pytest.approx(seen["meter"]["so_far"], rel=0.01)
    assert {box["box"]: box["gone"] for box in bill["boxes"]} == {"box-0": True, "box-1": False}
    text = world.run("ledger").out
    gone, there = (next(line for line in text.splitlines() if line.startswith(name)) for name in ("box-0", "box-1"))
    assert all(word in gone for word in ("not closed", " ran ", "gone"))
    assert all(word in there for word in ("goes on", " running "))
    assert "$0.50/h goes on" in text


def test_against_the_bill_line_by_line(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = world.add("box-0"), world.add("box-1")
    charge(world, first, "running", 5, 2.0)
    charge(world, first, "ended", 1, 0.0, "cleared")
    charge(world, second, "running", 3, 3.0)
    billed = [Billed(first.native_id, 8.9, traffic=0.9), Billed(second.native_id, 12.0), Billed("stranger", 4.0)]
    monkeypatch.setattr(ledger, "_ask", lambda *_: billed)
    result = world.run("ledger", "--against-bill")
    assert result.code == 1, result
    rows = {line.split()[0]: line.split() for line in result.out.splitlines() if line.startswith("box-")}
    assert "1 box, $4.00" in result.out
    assert "rounding: a cent, and 10 min at the box's price" in result.out
    document = world.run("ledger", "--against-bill", "--json").json["against_bill"]
    assert [(line["box"], line["verdict"], round(line["difference"], 2)) for line in document["lines"]] == [
        ("box-0", "agrees", 0.0),
        ("box-1", "differs", 3.0),
    ]
    assert document["others"] == {"boxes": 1, "usd": 4.0}
    assert rows["box-0"], "the ledger's own table comes too"
    billed[1] = Billed(second.native_id, 9.0)
    assert world.run("ledger", "--against-bill").code == 0
    del billed[1]
    assert "not billed" in world.run("ledger", "--against-bill").out


def test_spans_below_a_cent_do_not_read_as_nothing(world: World) -> None:
    """They are in the total."""
    first, second = world.add("box-0"), world.add("box-1")
    for box in (first, second):
        charge(world, box, "running", 2, 0.004)
        charge(world, box, "ended", 1, 0.0, "cleared")
    said = world.run("ledger").out
    assert [line.split()[-2] for line in said.splitlines()[1:3]] == ["<0.01", "<0.01"]
    assert "total  $0.01" in said
