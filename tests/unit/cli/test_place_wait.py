"""`sweepctl place --wait`: what ends the wait, what is told meanwhile, and what is near. The clock is the test's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweepstack.cli.commands import place
from sweepstack.cli.output import Out
from sweepstack.config.edit.stack_file import StackFile
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.records import Birth
from sweepstack.onbox.common.errors import (
    No,
    NotAuthorized,
    RateLimited,
    SweepstackError,
    Unreachable,
    Unsupported,
)
from sweepstack.onbox.host.capabilities import HasMarket
from sweepstack.onbox.host.offers import Constraints, Offer, is_meant
from sweepstack.operations import market as choice
from sweepstack.operations.market import Choice, Market
from sweepstack.operations.sweep.target import Target
from tests.unit.cli.test_place import BOXES
from tests.unit.config.helpers import write

ONE = BOXES.replace("boxes: {a: {}, b: {}}", "boxes: {a: {}}")
OFFER = Offer("k1", "A100", 1, 1.25, "US", single=True)
Answer = list[Offer] | SweepstackError | str


@dataclass
class Clock:
    """Time that passes only when the command sleeps. `slept`: each pause."""

    now: float = 1000.0
    slept: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(place, "time", clock)
    return clock


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("SWEEPSTACK_API_PACE", raising=False)
    (tmp_path / "Pulumi.yaml").write_text("name: sweepstack\nstackConfigDir: stacks\nruntime: python\n")
    write(tmp_path, ONE)
    monkeypatch.setattr(place, "read_records", lambda _target: choice.Records(None, []))
    monkeypatch.setattr(place, "nearest", lambda *_: [])
    return Target(tmp_path, "x", StackFile.locate(tmp_path, "x"))


def answers(monkeypatch: pytest.MonkeyPatch, *script: Answer) -> list[int]:
    """Each look gets the next answer of `script`, the last one for ever. Returns a list that grows by each look."""
    asked: list[int] = []

    def ask(config: StackConfig, name: str, _rented: dict[str, Birth]) -> Market:
        said = script[min(len(asked), len(script) - 1)]
        asked.append(len(asked))
        if isinstance(said, str):
            return Market(name, [said])
        if isinstance(said, SweepstackError):
            return Market(name, [str(said)], error=said)
        return Market(name, offers=dict.fromkeys(config.boxes, said))

    monkeypatch.setattr(choice, "ask_market", ask)
    return asked


def run(target: Target, hours: float = 6, **changes: Any) -> int:
    ways = {"next_one": False, "show": False, "clear": False, **changes}
    return place.place(target, Out(as_json=False), wait=timedelta(hours=hours), **ways)


def placed(target: Target) -> dict[str, Any] | None:
    found = StackConfig.load(target.root, "x").placement
    return None if found is None else found.model_dump(mode="json")["boxes"]


def test_it_takes_the_first_offer_that_fits_and_looks_no_more(
    target: Target, clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = answers(monkeypatch, [], [], [], [OFFER])
    assert run(target) == 0
    assert len(asked) == 4
    assert clock.slept == [60.0] * 3
    assert (placed(target) or {})["a"]["offer"] == "k1"
    said = capsys.readouterr()
    words = " ".join(said.err.split())
    assert "waiting nothing fits now for a; 6 h left, until " in words
    assert "looking again every 60 s; Ctrl-C ends it" in words
    assert said.out.rstrip().endswith("next   pulumi preview --stack x")


def test_where_something_fits_it_does_not_wait(target: Target, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answers(monkeypatch, [OFFER])
    assert run(target) == 0
    assert (len(asked), clock.slept) == (1, [])


def test_each_box_must_have_an_offer(target: Target, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the boxes would be rented, and the other half be waited for at their price."""
    write(target.root, BOXES)
    asked = answers(monkeypatch, [OFFER], [OFFER], [OFFER, replace(OFFER, key="k2")])
    assert run(target) == 0
    assert len(asked) == 3
    assert {box: one["offer"] for box, one in (placed(target) or {}).items()} == {"a": "k1", "b": "k2"}


def test_it_ends_at_its_deadline_and_writes_nothing(
    target: Target, clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = target.file.path.read_text()
    answers(monkeypatch, [])
    with pytest.raises(No, match=r"nothing that fits came within 60 min \(61 looks\)") as caught:
        run(target, 1)
    assert clock.now == 1000 + 3600
    assert sum(clock.slept) == 3600, "the last look is at the deadline, and none after it"
    assert target.file.path.read_text() == before
    assert any("--wait 6h" in one for one in caught.value.next)
    lines = " ".join(capsys.readouterr().err.split()).split("waiting ")[1:]
    assert len(lines) == 6, "one each ten minutes"
    assert "10 min left" in lines[-1]
    assert "51 looks so far" in lines[-1]


@pytest.mark.parametrize("error", [Unreachable("vast.ai: 502"), RateLimited("vast.ai: 429", 9)])
def test_an_outage_is_told_once_and_ends_nothing(
    target: Target,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: SweepstackError,
) -> None:
    answers(monkeypatch, [], error, error, [], [OFFER])
    assert run(target) == 0
    said = capsys.readouterr().err
    assert said.count("trouble  local gives no answer, and is asked again: vast.ai: ") == 1
    assert said.count("again    local answers") == 1


NEVER = "nothing that fits can be had, and no wait changes that"


@pytest.mark.parametrize(
    ("refusal", "words"),
    [("costs too much", NEVER), (NotAuthorized("no key"), "took no key"), (Unsupported("no such thing"), NEVER)],
)
def test_what_no_wait_changes_ends_it_at_once(
    target: Target, clock: Clock, monkeypatch: pytest.MonkeyPatch, refusal: Answer, words: str
) -> None:
    asked = answers(monkeypatch, refusal)
    with pytest.raises(No, match=words) as caught:
        run(target)
    assert (len(asked), clock.slept) == (1, [])
    assert not any("--wait" in one for one in caught.value.next)


def test_an_outage_at_the_first_look_and_a_key_that_was_good_before_are_waited_for(
    target: Target, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page in front of an API answers 403, too: hours of waiting do not end by that."""
    answers(monkeypatch, Unreachable("no route"), [OFFER])
    assert run(target) == 0
    answers(monkeypatch, [], NotAuthorized("403"), [OFFER])
    assert run(target) == 0


def test_ctrl_c_ends_it_and_says_that_nothing_is_rented(
    target: Target, clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = target.file.path.read_text()
    answers(monkeypatch, [])

    def interrupt(_seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(clock, "sleep", interrupt)
    assert run(target) == 130
    assert "nothing was written and nothing is rented" in capsys.readouterr().err
    assert target.file.path.read_text() == before


def test_the_ceiling_is_the_one_that_stands_in_the_file_when_something_fits(
    target: Target, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ceilings: list[float | None] = []

    def ask(config: StackConfig, name: str, _rented: dict[str, Birth]) -> Market:
        ceilings.append(config.max_price)
        write(target.root, ONE.replace("    boxes:", "    max_price: 0.90\n    boxes:"))
        return Market(name, offers={"a": [OFFER] if len(ceilings) == 3 else []})

    monkeypatch.setattr(choice, "ask_market", ask)
    assert run(target) == 0
    assert ceilings == [None, 0.90, 0.90]


def test_a_box_that_was_rented_meanwhile_is_not_placed(
    target: Target, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(target.root, BOXES)
    there = SimpleNamespace(box="b", platform="local", native_id="n", ended_at=None, price_per_hour=0.1, generation=1)
    read = [choice.Records(None, []), choice.Records(None, [there])]  # type: ignore[list-item]
    monkeypatch.setattr(place, "read_records", lambda _target: read.pop(0) if len(read) > 1 else read[0])
    seen: list[set[str]] = []

    def ask(config: StackConfig, name: str, rented: dict[str, Birth]) -> Market:
        seen.append(set(rented))
        to_place = [box for box in config.boxes if box not in rented]
        return Market(name, offers=dict.fromkeys(to_place, [replace(OFFER, single=False)] if len(seen) > 1 else []))

    monkeypatch.setattr(choice, "ask_market", ask)
    assert run(target) == 0
    assert seen[-1] == {"b"}
    assert set(placed(target) or {}) == {"a"}


def test_where_every_box_is_rented_nothing_is_to_be_placed(
    target: Target, clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found on 6f8d950f: it said that no offer fits, exit 1, and `--wait` looked in vain until its end."""
    write(target.root, BOXES.replace("b: {}", "b: {want: stopped}"))
    there = SimpleNamespace(box="a", platform="local", native_id="n", ended_at=None, price_per_hour=0.1, generation=1)
    monkeypatch.setattr(place, "read_records", lambda _target: choice.Records(None, [there]))  # type: ignore[list-item]
    before, asked = target.file.path.read_text(), answers(monkeypatch, [OFFER])
    assert run(target) == 0
    ways = {"next_one": False, "clear": False}
    assert place.place(target, Out(as_json=False), show=True, **ways) == 0
    assert not asked
    assert not clock.slept
    assert target.file.path.read_text() == before
    words = "nothing is to be placed: a: rented already; b: not wanted to run"
    assert capsys.readouterr().out.count(words) == 2


def test_where_the_last_box_was_rented_meanwhile_the_wait_ends(
    target: Target, clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = SimpleNamespace(box="a", platform="local", native_id="n", ended_at=None, price_per_hour=0.1, generation=1)
    read = [choice.Records(None, []), choice.Records(None, [there])]  # type: ignore[list-item]
    monkeypatch.setattr(place, "read_records", lambda _target: read.pop(0))
    assert answers(monkeypatch, [], [OFFER]) == []
    assert run(target) == 0
    assert len(clock.slept) == 1
    assert "nothing is to be placed: a: rented already" in capsys.readouterr().out


class Shop(HasMarket):
    """A market with these offers, each with the memory of its GPU and a region."""

    name = "shop"

    def __init__(self, *offers: Offer, fails: Callable[[Constraints], bool] = lambda _: False) -> None:
        self.all, self.fails = offers, fails
        self.asked: list[Constraints] = []

    def offers(self, constraints: Constraints) -> list[Offer]:
        self.asked.append(constraints)
        if self.fails(constraints):
            raise Unreachable("down")
        return [offer for offer in self.all if self._fits(offer, constraints)]

    @staticmethod
    def _fits(offer: Offer, wanted: Constraints) -> bool:
        if wanted.max_price is not None and offer.price_per_hour > wanted.max_price:
            return False
        if wanted.regions and offer.region not in wanted.regions:
            return False
        return not wanted.gpu_names or offer.gpu in wanted.gpu_names


WANTED = Constraints(gpu_names=("A100",), gpu_count=1, regions=("US",), max_price=1.0)


def near_to(shop: Shop, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> list[tuple[str, tuple[str, ...], str]]:
    monkeypatch.setattr(choice, "load_platform", lambda _name: shop)
    monkeypatch.setattr(choice, "load_profile", lambda _name: SimpleNamespace(adapter="shop"))
    wanted = replace(WANTED, **changes)
    market = Market("shop", offers={"a": shop.offers(wanted)}, asked={"a": wanted})
    return [(one.offer.key, one.fails, one.words) for one in choice.nearest([market], None)]


def test_what_is_near_names_the_one_constraint_that_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(
        Offer("dear", "A100", 1, 1.5, "US"),
        Offer("far", "A100", 1, 0.9, "EU"),
        Offer("other", "L40", 1, 0.8, "US"),
        Offer("both", "H100", 1, 3.0, "EU"),
    )
    assert near_to(shop, monkeypatch) == [
        ("dear", ("max_price",), "shop: A100 in US at $1.500/h; max_price is $1.000"),
        ("far", ("regions",), "shop: A100 in EU at $0.900/h; regions asks for US"),
        ("other", ("gpu.name",), "shop: L40 in US at $0.800/h; gpu.name asks for A100"),
    ]


def test_where_no_one_constraint_is_to_blame_the_price_and_one_more_are(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(Offer("both", "A100", 1, 3.0, "EU"))
    assert [(key, fails) for key, fails, _ in near_to(shop, monkeypatch)] == [("both", ("max_price", "regions"))]


def test_what_fits_and_went_to_another_box_is_not_near(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(Offer("fits", "A100", 1, 0.9, "US", single=True), Offer("dear", "A100", 1, 1.5, "US"))
    assert [key for key, _, _ in near_to(shop, monkeypatch)] == ["dear"]


def test_what_is_near_comes_without_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(Offer("dear", "A100", 1, 1.5, "US"), fails=lambda wanted: not wanted.regions)
    assert [key for key, _, _ in near_to(shop, monkeypatch)] == ["dear"], "what was known before the outage"


class CardShop(Shop):
    """It looks at the cards alone."""

    @staticmethod
    def _fits(offer: Offer, wanted: Constraints) -> bool:
        return is_meant(wanted, offer.gpu, maker=offer.maker)


def test_cheaper_cards_that_were_left_out_are_named_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found on 6f8d950f: MI300X and MIG slices were chosen without a word."""
    chosen = Offer("h200", "NVIDIA H200", 1, 3.59, "US", maker="nvidia")
    shop = CardShop(
        Offer("mig", "H100 MIG 1g.20gb", 1, 0.5, "US", maker="nvidia"),
        Offer("amd", "MI300X", 1, 1.99, "US", maker="amd"),
        chosen,
        Offer("dear", "MI355X", 1, 5.0, "US", maker="amd"),
    )
    monkeypatch.setattr(choice, "load_platform", lambda _name: shop)
    monkeypatch.setattr(choice, "load_profile", lambda _name: SimpleNamespace(adapter="shop"))
    wanted = Constraints(maker="nvidia")
    market = Market("shop", offers={"a": shop.offers(wanted)}, asked={"a": wanted})
    assert [offer.key for offer in market.offers["a"]] == ["h200"]
    assert [one.words for one in choice.left_out([market], Choice("shop", {"a": chosen}))] == [
        "shop: H100 MIG 1g.20gb in US at $0.500/h; it is a part of a card (MIG or vGPU), which is taken only if "
        "gpu.name says so",
        "shop: MI300X in US at $1.990/h; it is a card of AMD, and job.image is taken to be for those of NVIDIA",
    ]
    market.offers = {"a": []}
    assert [one.offer.key for one in choice.nearest([market], None)][:2] == ["mig", "amd"]
