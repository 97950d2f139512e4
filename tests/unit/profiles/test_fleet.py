"""One sweep with boxes on several platforms: a plan for each, one split of the cells over all."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.sweep import outlook_of
from sweepstack.config.rent import Placement
from sweepstack.config.stack_config import StackConfig
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.onbox.host.offers import Offer
from sweepstack.operations.market import Market, as_placement, choose
from sweepstack.profiles.fleet import Fleet, parts_of, resolve_fleet
from sweepstack.profiles.load import load_profile
from sweepstack.profiles.resolve import resolve
from tests.unit.profiles.test_resolve import FREE, config, other

BOXES = "boxes: {box-0: {want: running}}"
MIXED = FREE.replace("candidates: [local]", "candidates: [local, other]").replace(
    "overrides: {local: {price_per_hour: 0.12}}", "overrides: {other: {price_per_hour: 0.5}}"
)
TWO = MIXED.replace(BOXES, "boxes: {a: {}, b: {on: other}}")


def fleet(root: Path, text: str) -> Fleet:
    return resolve_fleet(config(root, text), {"local": load_profile("local"), "other": other()})


def refused(root: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        fleet(root, text)
    return str(caught.value)


def test_without_on_it_is_the_one_plan_of_before(tmp_path: Path) -> None:
    made = fleet(tmp_path, MIXED)
    loaded = config(tmp_path, MIXED)
    assert made.plans == (resolve(loaded, {"local": load_profile("local"), "other": other()}),)
    assert made.names == made.staying == ("box-0",)


def test_each_box_has_the_facts_and_the_price_of_its_own_platform(tmp_path: Path) -> None:
    made = fleet(tmp_path, TWO)
    assert made.platforms == ("local", "other")
    assert [made.plan_of(name).adapter for name in ("a", "b")] == ["local", "other"]
    assert [made.plan_of(name).price_per_hour for name in ("a", "b")] == [0, 0.5]
    assert [box.name for box in made.boxes] == ["a", "b"]


def test_the_cells_are_split_once_over_all_boxes(tmp_path: Path) -> None:
    made = fleet(tmp_path, TWO)
    shares = [[cell.name for cell in box.cells] for box in made.boxes]
    assert sorted(shares[0] + shares[1]) == sorted(made.main.roster.names)
    assert abs(len(shares[0]) - len(shares[1])) <= 1


def test_a_box_beside_it_changes_nothing_for_a_box_that_is_there(tmp_path: Path) -> None:
    """Else adding a box on another platform would replace the volume of the first, and with it the box."""
    before = fleet(tmp_path, MIXED.replace(BOXES, "boxes: {a: {}}")).main
    after = fleet(tmp_path, TWO).plan_of("a")
    for name in ("adapter", "durable", "teardown", "site", "job"):
        assert getattr(before, name) == getattr(after, name), name
    assert fleet(tmp_path, TWO).plan_of("b").durable.volume == "durable-other"


def test_saying_on_for_the_platform_that_it_has_anyway_changes_nothing_either(tmp_path: Path) -> None:
    said = fleet(tmp_path, MIXED.replace(BOXES, "boxes: {a: {on: local}, b: {on: other}, c: {}}"))
    assert said.platforms == ("local", "other")
    assert [box.name for box in said.main.boxes] == ["a", "c"]
    assert said.main.durable.volume == "durable"


def test_a_box_that_goes_is_still_named(tmp_path: Path) -> None:
    made = fleet(tmp_path, MIXED.replace(BOXES, "boxes: {a: {}, b: {on: other, want: gone}}"))
    assert made.names == ("a", "b")
    assert made.staying == ("a",)


def test_on_must_be_a_candidate(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'boxes\.b\.on: "othr" .*candidates \(local, other\).*did you mean "other"'):
        config(tmp_path, TWO.replace("on: other", "on: othr"))


def test_what_one_platform_can_t_have_is_refused_with_its_name(tmp_path: Path) -> None:
    text = TWO.replace("price_per_hour: 0.5", "price_per_hour: 3").replace("    boxes:", "    max_price: 2\n    boxes:")
    assert "other: costs $3/h a box, above max_price $2/h" in refused(tmp_path, text)


def test_one_volume_can_t_be_on_two_platforms(tmp_path: Path) -> None:
    text = TWO.replace("    boxes:", "    mounts: {/ckpt: {source: store}}\n    boxes:")
    said = refused(tmp_path, text)
    assert "mounts./ckpt" in said
    assert "local, other" in said


def markets(part: StackConfig, **offers: list[Offer]) -> list[Market]:
    return [Market(name, [], dict.fromkeys(part.boxes, offers[name])) for name in part.candidates]


def test_each_part_is_placed_on_its_platform_and_a_single_offer_once(tmp_path: Path) -> None:
    loaded = config(tmp_path, MIXED.replace(BOXES, "boxes: {a: {}, b: {on: other}}"))
    one, two = Offer("m1", "A100", 1, 0.4, "US", single=True), Offer("m2", "A100", 1, 0.6, "US", single=True)
    first, second = parts_of(loaded)
    chosen = choose(first, markets(first, local=[], other=[one, two]), next_one=False)
    assert chosen is not None
    both = chosen.beside(choose(second, markets(second, other=[one, two]), next_one=False, beside=chosen))
    assert {box: (both.where(box), offer.key) for box, offer in both.offers.items()} == {
        "a": ("other", "m1"),
        "b": ("other", "m2"),
    }
    written = Placement.model_validate(as_placement(both, loaded, {}))
    assert written.part("other").boxes.keys() == {"a", "b"}


def test_a_placement_counts_for_the_boxes_of_its_platform_alone(tmp_path: Path) -> None:
    block = (
        "    placement:\n      platform: local\n      at: 2026-11-21T12:00:00Z\n      boxes:\n"
        "        a: {offer: x, price_per_hour: 0.1}\n        b: {offer: y, price_per_hour: 0.4, on: other}\n"
    )
    made = fleet(tmp_path, TWO.replace("    boxes:", f"{block}    boxes:", 1))
    assert [box.placed["offer"] for box in made.boxes] == ["x", "y"]
    moved = fleet(tmp_path, TWO.replace("on: other}", "on: local}").replace("    boxes:", f"{block}    boxes:", 1))
    assert [box.placed and box.placed["offer"] for box in moved.boxes] == ["x", None]


def test_the_forecast_takes_the_mean_of_what_the_boxes_cost(tmp_path: Path) -> None:
    made = fleet(tmp_path, TWO)
    assert outlook_of(made, made.boxes)["price_per_hour"] == pytest.approx(0.25)
