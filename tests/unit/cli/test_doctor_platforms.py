"""`sweepctl doctor` on a sweep that rents: the key, the money and the SSH key, before anything is rented."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweepstack.cli.commands.doctor import platforms
from sweepstack.cli.commands.doctor.finding import Finding
from sweepstack.config.stack_config import StackConfig
from sweepstack.onbox.common.errors import Unreachable
from sweepstack.platforms.registry import load_platform
from tests.simulators.core import SimServer, VirtualClock
from tests.simulators.vastai import VastSimulator

ROOT = Path(__file__).parents[3]


@pytest.fixture
def vast(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[VastSimulator]:
    """A customer with $20."""
    sim = VastSimulator(clock=VirtualClock())
    with SimServer(sim) as server:
        monkeypatch.setenv("VAST_URL", server.url)
        monkeypatch.setenv("VAST_API_KEY", sim.add_account("ann", credit=20.0).key)
        monkeypatch.setenv("HOME", str(tmp_path))
        yield sim
        sim.check()


def told(name: str = "sweep-vast") -> dict[str, Finding]:
    config = StackConfig.load(ROOT, name)
    return {finding.name: finding for _, check in platforms.checks(config) for finding in check()}


def test_who_we_are_and_what_is_left(vast: VastSimulator) -> None:
    found = told()["vastai"]
    assert (found.verdict, found.found) == ("ok", "account 5000, $20.00 left")
    assert vast.ledger.live() == []


def test_too_little_money_is_worth_a_word(vast: VastSimulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAST_API_KEY", vast.add_account("bob", credit=0.10).key)
    found = told()["vastai"]
    assert (found.verdict, "$0.10 left" in found.found) == ("warn", True)


def test_a_key_that_is_not_taken_fails_and_is_not_shown(vast: VastSimulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAST_API_KEY", "not-a-key-of-anybody")
    found = told()["vastai"]
    assert found.verdict == "fail"
    assert "not-a-key-of-anybody" not in found.found + found.fix


def test_no_key_fails_with_where_it_is_looked_for(vast: VastSimulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VAST_API_KEY")
    found = told()["vastai"]
    assert found.verdict == "fail"
    assert "VAST_API_KEY" in found.found


def test_a_platform_that_does_not_answer_is_unknown(vast: VastSimulator, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(self: Any) -> str:
        raise Unreachable("nobody answers")

    monkeypatch.setattr(type(load_platform("vastai")), "account", silent)
    assert told()["vastai"].verdict == "unknown"


def test_the_key_that_boxes_are_reached_with(vast: VastSimulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.setenv("SWEEPSTACK_SSH_KEY", "/nowhere/id_ed25519")
    found = told()["ssh key"]
    assert found.verdict == "fail"
    assert "ssh-keygen" in found.found


def test_this_machine_is_asked_for_nothing(vast: VastSimulator) -> None:
    assert told("sweep-a") == {}
    assert vast.calls == []
