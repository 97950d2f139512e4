"""What a preview shows of a market in which every offer can be had once, and what an `up` may then pay."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sweepstack.core.resources import BoxInputs
from sweepstack.onbox.common.errors import NoCapacity
from sweepstack.onbox.host.offers import Constraints
from sweepstack.onbox.host.platform import BoxRecord, Wait
from sweepstack.provider.resources import market
from sweepstack.provider.session import Operation, Session, Severity
from tests.conformance.harness_vastai import Harness

BOXES = ("box-0", "box-1", "box-2")


@pytest.fixture
def vast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    """Six machines, of one and two cards in turn, each dearer than the one before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    _new_process(monkeypatch)
    harness = Harness(tmp_path, monkeypatch, machines=False)
    yield harness
    harness.close()


def _new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_asked", "_promised", "_remembered"):
        monkeypatch.setattr(market, name, {})


def _op(tmp_path: Path, said: list[tuple[Severity, str]]) -> Operation:
    def emit(severity: Severity, _urn: str, text: str) -> None:
        if not text.startswith("balance"):  # said once a preview, after the first offer
            said.append((severity, text))

    session = Session(tmp_path, emit)
    return Operation(session, "urn:pulumi:sweep-t::project::sweepstack:index:Box::box")


def _inputs(name: str) -> dict[str, Any]:
    return {"name": name, "adapter": "vastai", "resources": {"gpu": {"count": 1}}, "dry_run": True}


def _ceiling(op: Operation, name: str) -> float | None:
    known = {"identity": "i", "evidence": "e", "adapter": "vastai", "name": name, "roster_digest": f"sha256:{0:064}"}
    facts = {"verb": "destroy", "kills": ("data",), "keeps": ()}
    inputs = BoxInputs.model_validate({**known, "resources": {"gpu": {"count": 1}}, "teardown": facts})
    return market.ceiling(op, inputs)


def test_each_box_is_shown_an_offer_of_its_own_and_all_can_be_rented(
    vast: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[tuple[Severity, str]] = []
    op = _op(tmp_path, said)
    for name in (*BOXES, "box-0"):  # Check is asked more than once
        market.preview(op, _inputs(name))
    shown = [text.split(": ")[1] for _, text in said]
    assert len(set(shown[:3])) == 3, "two boxes were shown the offer that one can have"
    assert shown[3] == shown[0]

    _new_process(monkeypatch)  # the `up` is another command
    ceilings = {_ceiling(op, name) for name in BOXES}
    assert len(ceilings) == 1
    (most,) = ceilings
    assert most is not None
    assert f"${most:.3f}/h" in max(shown[:3])

    def rent(name: str) -> BoxRecord:
        resources = {"gpu": {"count": 1}}
        request = vast.request(f"sweepstack-i-{name}-g1", name=name, resources=resources, max_price=most)
        return vast.connect().create(request, wait=Wait(60))

    with ThreadPoolExecutor(3) as threads:
        assert len({record.native_id for record in threads.map(rent, BOXES)}) == 3


@pytest.mark.parametrize("placed", [False, True])
def test_what_the_market_lists_and_does_not_rent_is_passed_over_by_place(
    vast: Harness, tmp_path: Path, placed: bool
) -> None:
    """Found on a3c2bc8: the preview that was advised showed the same offer again, for ever."""
    platform, op = vast.connect(), _op(tmp_path, [])
    inputs = BoxInputs.model_validate(
        {
            "identity": "i",
            "evidence": "e",
            "adapter": "vastai",
            "name": "box-0",
            "roster_digest": f"sha256:{0:064}",
            "resources": {"gpu": {"count": 1}},
            "teardown": {"verb": "destroy", "kills": ("data",), "keeps": ()},
            "placed": {"offer": "x", "price_per_hour": 0.3} if placed else None,
        }
    )
    cheapest = platform.offers(Constraints.of(inputs.resources))[0].price_per_hour
    listed = market.not_to_be_had(op, platform, inputs, NoCapacity("refused"), cheapest)
    first = "" if placed else "sweepctl place --stack sweep-t && "
    assert f"  next   {first}sweepctl place next --stack sweep-t && pulumi up --stack sweep-t" in listed
    gone = market.not_to_be_had(op, platform, inputs, NoCapacity("refused"), cheapest - 0.01)
    assert "  next   pulumi preview --stack sweep-t shows the new price" in gone


def test_more_boxes_than_offers_are_said_and_bound_nobody(vast: Harness, tmp_path: Path) -> None:
    said: list[tuple[Severity, str]] = []
    op = _op(tmp_path, said)
    count = len(vast.connect().offers(Constraints.of({"gpu": {"count": 1}})))
    for number in range(count + 1):
        market.preview(op, _inputs(f"box-{number}"))
    assert [severity for severity, _ in said] == [Severity.INFO] * count + [Severity.WARNING]
    assert f"all {count} offers that vastai shows go to other boxes" in said[-1][1]


def test_a_contract_that_ends_before_the_budget_is_a_warning(vast: Harness, tmp_path: Path) -> None:
    """Found on 6f8d950f: contracts that ended in 90 minutes, and no word before 600 hours were rented."""
    said: list[tuple[Severity, str]] = []
    op = _op(tmp_path, said)
    market.preview(op, _inputs("box-0"))
    ((severity, text),) = said
    assert severity is Severity.INFO
    assert "; its host's contract ends " in text
    asked = {**_inputs("box-1"), "budget": {"hours": 1500.0}, "named": ["box-0", "box-1"]}
    market.preview(op, asked)
    severity, text = said[-1]
    assert severity is Severity.WARNING
    assert "before the 750 h that budget.hours has for each box are over: then it stops for good" in text
    assert text.endswith("Next: sweepctl place next --stack sweep-t")
