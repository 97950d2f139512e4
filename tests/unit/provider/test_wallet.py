"""A host that a person rented is paid from the balance of its platform, and `up` asks for it."""

from __future__ import annotations

import pytest

from sweepstack.evidence.open_evidence import Evidence
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.provider.resources import before_renting, market
from tests.unit.autodl_world import autodl_world
from tests.unit.provider.support import BOX, Sweep

REFUSED = "the balance does not carry it"


def test_up_refuses_what_the_wallet_does_not_carry(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, op = Evidence(sweep.identity.evidence), sweep.op()
    box = {"name": "box-0", "adapter": "local", "platform": "autodl", "resources": {}, "price_per_hour": 0.5}
    inputs = sweep.box_inputs(platform="autodl", price_per_hour=0.5)
    with autodl_world(monkeypatch) as autodl:
        autodl.act("pay_in", {"account": "ann", "yuan": -97.75})  # $0.30 is left
        assert market.preview(op, box | {"dry_run": True}, evidence) == []
        assert "balance  $0.30 (¥2.25 at 7.5 to the dollar) left at autodl lasts 0.6 h" in sweep.said.warnings
        with pytest.raises(SweepstackError, match=REFUSED):
            BOX.preview_create(op, {**box, "evidence": sweep.identity.evidence})
        with pytest.raises(SweepstackError, match=REFUSED):
            BOX.create(sweep.op(), inputs)
        before_renting.require(sweep.op(), inputs.model_copy(update={"ignore_balance": "paid tomorrow"}), evidence, 0.5)
        before_renting.require(sweep.op(), inputs.model_copy(update={"platform": None}), evidence, 0.5)


def test_without_a_token_nothing_is_refused_and_nothing_said(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTODL_TOKEN", raising=False)
    op = sweep.op()
    box = {"name": "box-0", "adapter": "local", "platform": "autodl", "resources": {}, "price_per_hour": 0.5}
    assert market.preview(op, box | {"dry_run": True}, Evidence(sweep.identity.evidence)) == []
    before_renting.require(op, sweep.box_inputs(platform="autodl"), Evidence(sweep.identity.evidence), 0.5)
    assert "balance" not in sweep.said.text()
