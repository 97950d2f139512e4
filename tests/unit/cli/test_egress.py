"""What a pull costs where the bytes that leave a box are billed: in status before it, after it, beside the ledger."""

from __future__ import annotations

import json

import pytest

from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.units import spell_bytes
from sweepstack.profiles.load import load_profile
from tests.unit.cli.support import Box, World
from tests.unit.cli.test_ledger import charge

BILLED = load_profile("vastai")
DEAR = 1_000_000.0
"""USD per GB, since the cells of tests have some hundred bytes."""


def priced(world: World, price: object) -> None:
    """The stack file says what a GB costs that leaves its boxes."""
    text = world.file.path.read_text()
    world.file.path.write_text(f"{text}    overrides: {{local: {{egress_per_gb: {price}}}}}\n")


def sealed(box: Box) -> int:
    entries = map(json.loads, (box.root / box_layout.JOURNAL).read_text().splitlines())
    return sum(entry["bytes"] for entry in entries if entry["event"] == "cell-sealed")


def usd(count: int) -> str:
    return f"about ${count / 1e9 * DEAR:.2f} at $1e+06/GB"


def test_before_a_pull_after_it_and_beside_the_ledger(world: World) -> None:
    boxes = first, second = world.full()
    for box in boxes:
        charge(world, box, "running", 1, 2.0)
    priced(world, DEAR)
    before = world.run("status").out
    assert (
        f"a pull of 2 sealed cells from box-0, {spell_bytes(sealed(first))}, is billed {usd(sealed(first))}" in before
    )
    assert f"a pull of 1 sealed cell from box-1, {spell_bytes(sealed(second))}, is billed" in before
    pulled = world.run("pull", "--json").json
    sizes = {box.name: sum(cell["bytes"] for cell in pulled["cells"] if cell["box"] == box.name) for box in boxes}
    assert [(one["box"], one["bytes"]) for one in pulled["egress"]] == list(sizes.items())
    assert pulled["egress"][0]["usd"] == round(sizes["box-0"] / 1e9 * DEAR, 6) > 0
    assert "left box" not in world.run("pull").out, "nothing was copied again"
    assert world.run("ledger", "--json").json["egress"] == [], "nothing is verified yet"
    assert world.run("verify").code == 0
    assert "is billed" not in world.run("status").out
    ledger, total = world.run("ledger"), world.run("ledger", "--json").json
    assert "note   not in the total: " in ledger.out
    assert f"were pulled out of box-0, which is billed {usd(sizes['box-0'])}" in ledger.out
    assert [(one["box"], one["bytes"], one["per_gb"]) for one in total["egress"]] == [
        (name, size, DEAR) for name, size in sizes.items()
    ]
    assert 4.0 <= total["usd"] < 4.1, "what a platform meters is not ours to count"


def test_a_pull_says_what_left_and_what_that_costs(world: World) -> None:
    world.full()
    priced(world, f'"{DEAR:g}"')  # `pulumi config set` writes strings
    said = world.run("pull").out
    assert "left box box-0, which is billed about $" in said
    assert "next   sweepctl verify" in said


def test_the_price_that_was_offered_counts_where_the_file_names_none(world: World) -> None:
    """As on a market, where each host has its own. One that a person wrote is newer."""
    world.full()
    for box in world.boxes:
        world.store.write_birth(box.birth(egress_per_gb=DEAR))
    assert "is billed" not in world.run("status").out, "the platform's traffic is free"
    world.monkeypatch.setattr("sweepstack.operations.sweep.egress.profiles_of", lambda *_: {"vastai": BILLED})
    assert f"at ${DEAR:g}/GB" in world.run("status").out
    text = world.file.path.read_text()
    world.file.path.write_text(f"{text}    overrides: {{vastai: {{egress_per_gb: 0}}}}\n")
    assert "is billed" not in world.run("status").out


def test_a_price_that_is_not_known_is_said(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.full()
    monkeypatch.setattr("sweepstack.operations.sweep.egress.profiles_of", lambda *_: {"vastai": BILLED})
    assert "is billed at a price that is not known" in world.run("status").out
    assert world.run("pull", "--json").json["egress"][0]["usd"] is None
