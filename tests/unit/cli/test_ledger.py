"""`sweepctl ledger`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sweep.money.ledger import record_phase
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
    assert lines[1][5:] == ["running", "2.00", "2.00", "4.00"]
    assert lines[2][2:] == ["stopped", "2.00", "0.10", "0.20", "cleared"]
    assert lines[3][5:] == ["running", "3.00", "3.00", "9.00", "goes", "on"]
    assert "total  $13.20, 5.00 hours of running boxes; $3.00/h goes on" in result.out
    assert result.out.splitlines()[-1] == "next   sweepctl status --stack sweep-t"


def test_the_document(world: World) -> None:
    box = world.add("box-0")
    charge(world, box, "running", 5, 2.0)
    document = world.run("ledger", "--json").json
    assert round(document["usd"], 2) == 10.0
    assert document["complete"] is True
    (row,) = document["boxes"]
    assert (row["box"], row["native_id"], row["to"], row["generation"]) == ("box-0", box.native_id, None, 1)
    assert [span["phase"] for span in row["spans"]] == ["running"]


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


def test_nothing_rented_yet(world: World) -> None:
    result = world.run("ledger")
    assert (result.code, result.out.splitlines()[0]) == (0, "total  $0.00, 0.00 hours of running boxes")
