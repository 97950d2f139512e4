"""Without the extension `signing` no signature counts: what a policy asks of people stays asked."""

from __future__ import annotations

import pytest

from sweepstack.core import extensions
from sweepstack.core.observation import Existence
from sweepstack.core.policy_text import PolicyText, written
from sweepstack.core.signature import Signature, SweepName
from tests.unit.evidence.world import IDENTITY
from tests.unit.teardown.support import Situation

POLICY = written(PolicyText(text="approvers: [ana]\n", signers="ana ssh-ed25519 AAAA\n"))


@pytest.fixture
def alone(situation: Situation, monkeypatch: pytest.MonkeyPatch) -> Situation:
    """A cleared sweep under a policy that asks for a signature, where no extension is installed."""
    monkeypatch.setattr(extensions, "ROOTS", {})
    situation.state(policies=(POLICY,))
    return situation


def signed(situation: Situation) -> None:
    assert situation.approval is not None
    one = Signature(
        principal="ana", sweep=SweepName(project="project", stack="sweep-t", identity=IDENTITY), signature="of ana"
    )
    situation.approval = situation.approval.model_copy(update={"signatures": (one,)})


def test_a_policy_that_asks_for_people_refuses_an_end_signed_or_not(alone: Situation) -> None:
    assert "the policy asks for the signature of one of ana" in alone.ask().reasons[0]
    signed(alone)
    verdict = alone.ask()
    assert not verdict.allowed
    assert (
        "signatures are made and checked by the extension `signing`, which is not installed here" in verdict.reasons[0]
    )


def test_what_is_proved_gone_ends(alone: Situation) -> None:
    alone.existence = Existence.GONE
    assert alone.ask().way == "gone"


def test_a_signed_approval_is_refused_where_no_policy_asks_for_it(alone: Situation) -> None:
    alone.state(policies=())
    assert alone.ask().way == "cleared"
    signed(alone)
    assert "signatures are made and checked by the extension `signing`" in alone.ask().reasons[0]
