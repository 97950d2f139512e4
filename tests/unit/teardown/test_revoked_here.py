"""What was revoked on this computer counts, whatever an evidence says that was put back."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sweepstack.core.local_decisions import ABANDONED, REVOKED_ALL, TAKEN_BACK, Decision, record_decision
from sweepstack.teardown.revocation import REVOKED, torn
from tests.unit.evidence.world import IDENTITY
from tests.unit.teardown.support import NOW, Situation, abandonment

GIVEN = NOW - timedelta(hours=1)
"""When the approval of each situation was given."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def decided(**changes: Any) -> None:
    """A person at this computer takes back an abandonment of box-0, or decides what `changes` say."""
    known = {"what": TAKEN_BACK, "by": "grace", "at": NOW, "reason": "a mistake", "identity": IDENTITY}
    record_decision(Decision.model_validate(known | {"platform": "local", "native_id": "local-box-01"} | changes))


@pytest.mark.parametrize(
    ("changes", "abandoned", "cleared"),
    [
        ({}, False, True),
        ({"reason": REVOKED_ALL}, False, False),
        ({"at": GIVEN}, False, True),
        ({"at": GIVEN - timedelta(seconds=1), "reason": REVOKED_ALL}, True, True),
        ({"identity": "otheridxxx", "reason": REVOKED_ALL}, True, True),
        ({"native_id": "local-box-11", "reason": REVOKED_ALL}, True, True),
        ({"what": ABANDONED, "reason": REVOKED_ALL}, True, True),
    ],
    ids=["this one", "all", "at its moment", "before it was given", "another sweep", "another box", "not a revocation"],
)
def test_what_was_taken_back_here_ends_nothing(
    situation: Situation, changes: dict[str, Any], abandoned: bool, cleared: bool
) -> None:
    decided(**changes)
    verdict = situation.ask()
    assert verdict.allowed is cleared
    said = f"the approval was revoked at {changes.get('at', NOW):%Y-%m-%d %H:%M} UTC by grace"
    assert (said in verdict.reasons) is not cleared
    situation.approve(receipt=None, abandon=(abandonment(),))
    assert situation.ask().allowed is abandoned


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [({}, True), ({"unread": False}, False), ({"at": NOW}, False), ({"what": TAKEN_BACK, "at": GIVEN}, False)],
    ids=["given since then", "given when it could be read", "another one", "taken back"],
)
def test_where_the_list_does_not_read_only_an_abandonment_that_was_given_here_since_then_counts(
    situation: Situation, changes: dict[str, Any], allowed: bool
) -> None:
    assert not torn(situation.store)
    (situation.evidence / "records" / REVOKED).write_bytes(b"{")
    assert torn(situation.store)
    decided(**{"what": ABANDONED, "at": GIVEN, "unread": True} | changes)
    assert not situation.ask().allowed, "what needs the evidence is refused"
    situation.approve(receipt=None, abandon=(abandonment(),))
    assert situation.ask().allowed is allowed


def test_a_list_that_can_t_be_reached_is_not_known_and_not_torn(situation: Situation) -> None:
    (situation.evidence / "records" / REVOKED).mkdir()
    assert not torn(situation.store)
    (reason, *_) = situation.ask().reasons
    assert reason.startswith("whether the approval was revoked is not known")
    assert "sweepctl revoke" not in reason


def test_decisions_that_can_t_be_read_leave_it_to_the_evidence(
    situation: Situation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    assert situation.ask().way == "cleared"
