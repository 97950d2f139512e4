"""How a live loop begins and ends, without the engine: what it refuses, what it leaves, and what it may propose."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sweepstack.extensions.authoring import box_answers as facts
from sweepstack.onbox.host.platform import BoxRequest, Wait
from sweepstack.platforms.common import reach_box
from sweepstack.profiles.load import load_profile
from tests.live import loop, run
from tests.live.journey import Failed
from tests.live.purse import OverBudget
from tests.live.transcript import Transcript
from tests.simulators.core import SimServer, VirtualClock
from tests.simulators.rental import Options, Rental, rental
from tests.unit.live.test_facts import HEALTHY

PLATFORM = "vastai"
FOLDER = Path(__file__).parents[3] / "profiles"


@dataclass
class Account:
    """A simulated platform. `out`: where the loop writes."""

    its: Rental
    sim: Any
    key: str
    out: Path

    def loop(self, *words: str, spend: str = "1") -> int:
        return loop.main([PLATFORM, "--spend", spend, "--out", str(self.out), *words])

    def billing(self) -> set[str]:
        with self.sim.lock:
            return {one.id for one in self.sim.ledger.live()}

    def creates(self) -> int:
        return int(self.sim.count(self.its.create))

    @property
    def said(self) -> str:
        return (self.out / "transcript.txt").read_text()


@pytest.fixture
def account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    its = rental(PLATFORM)
    customers = its.open(VirtualClock(scale=1.0), Options(boot_reads=0))
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    monkeypatch.setattr(reach_box, "ON", False)
    with SimServer(customers.sim) as server:
        for name, value in {
            its.url: server.api,
            its.key: customers.key,
            "SWEEPSTACK_SSH_KEY": str(tmp_path / "key"),
            "SWEEPSTACK_API_PACE": "0.01",
            "XDG_DATA_HOME": str(tmp_path / "share"),
        }.items():
            monkeypatch.setenv(name, value)
        yield Account(its, customers.sim, customers.key, tmp_path / "out")


@dataclass
class Played:
    """Stands for a journey: rents one box, and then does what a test says."""

    run: run.LiveRun
    transcript: Transcript
    then: Callable[[], None]
    flaws: list[str] = field(default_factory=list)

    def play(self) -> None:
        tag = f"{self.run.prefix}box-0-g1"
        self.run.purse.take(tag, 0.6)
        platform = self.run.platform()
        key = Path(os.environ["SWEEPSTACK_SSH_KEY"] + ".pub").read_text()
        platform.create(BoxRequest(tag=tag, name="live", public_key=key, max_price=0.6), wait=Wait(120.0))
        assert self.run.held("box")
        self.then()

    def facts(self) -> list[facts.FactAnswer]:
        return facts.compare_with_profile(load_profile(PLATFORM), HEALTHY, HEALTHY)


@pytest.fixture
def then(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """What the journey does once its box is rented."""

    def set_it(what: Callable[[], None]) -> None:
        monkeypatch.setattr(loop, "_journey", lambda told, live, transcript, work: Played(live, transcript, what))

    return set_it


def raises(error: BaseException) -> Callable[[], None]:
    def it() -> None:
        raise error

    return it


def test_nothing_is_asked_without_a_platform_an_amount_and_a_key(
    account: Account, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert loop.main([]) == loop.NOT_BEGUN
    assert "make live PLATFORM=" in capsys.readouterr().err
    for amount in ("", "0", "0.14", "101", "much", "nan"):
        assert account.loop(spend=amount) == loop.NOT_BEGUN
        assert "say how much at most" in capsys.readouterr().err
    monkeypatch.delenv(account.its.key)
    assert account.loop() == loop.NOT_BEGUN
    assert f"export {account.its.key}=" in capsys.readouterr().err
    assert account.sim.calls == []


@pytest.mark.parametrize("balance", [0.99, None])
def test_it_does_not_begin_below_its_amount(
    account: Account, balance: float | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run.LiveRun, "balance", lambda self: balance)
    assert account.loop() == loop.NOT_BEGUN
    assert (
        f"the balance {'is $0.99' if balance else 'can' + chr(39) + 't be read'}, and USD is 1"
        in capsys.readouterr().err
    )
    assert account.creates() == 0


@pytest.mark.parametrize(
    ("what", "code", "words"),
    [
        (raises(Failed("a step")), loop.FAILED, "FAILED: a step"),
        (raises(OverBudget("too much")), loop.FAILED, "STOPPED: too much"),
        (lambda: os.kill(os.getpid(), signal.SIGHUP), loop.INTERRUPTED, "STOPPED: interrupted"),
    ],
)
def test_what_was_rented_is_ended(
    account: Account,
    then: Callable[[Callable[[], None]], None],
    what: Callable[[], None],
    code: int,
    words: str,
) -> None:
    then(what)
    assert account.loop() == code
    assert words in account.said
    assert f"is left, by {PLATFORM}'s own list" in account.said
    assert "proved_live gets no" not in account.said, "a simulated run proposes nothing at all"
    assert (account.creates(), account.billing()) == (1, set())
    assert account.key not in account.said


def test_a_second_signal_cuts_the_end_not_short(
    account: Account, then: Callable[[Callable[[], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    end = run.LiveRun.end_all

    def interrupted(self: run.LiveRun) -> list[str]:
        for number in (signal.SIGINT, signal.SIGHUP):
            os.kill(os.getpid(), number)
        return end(self)

    monkeypatch.setattr(run.LiveRun, "end_all", interrupted)
    then(raises(Failed("a step")))
    assert account.loop() == loop.FAILED
    assert account.billing() == set()


def test_an_end_that_fails_is_no_proof(
    account: Account, then: Callable[[Callable[[], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run.LiveRun, "close", lambda self: raises(ZeroDivisionError("a bug"))())
    then(lambda: None)
    assert account.loop() == loop.LEFT
    assert "what is left is not known: ZeroDivisionError: a bug" in account.said


def test_what_still_bills_is_said_loudly(
    account: Account, then: Callable[[Callable[[], None]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "GONE_SECONDS", 20.0)
    account.sim.faults.add("error_before", account.its.delete, times=None, status=503)
    then(lambda: None)
    assert account.loop() == loop.LEFT
    assert "STILL THERE, AND BILLING" in account.said
    (native_id,) = account.billing()
    assert f"box {native_id} (sweepstack-live" in account.said
    assert f"Next: python -m tests.live {PLATFORM} sweepstack-live" in account.said
    assert not (account.out / "stamps.patch").exists()


def test_no_more_is_rented_than_fits(account: Account, then: Callable[[Callable[[], None]], None]) -> None:
    then(lambda: None)
    assert account.loop(spend="0.15") == loop.PLAYED  # one box at the most that it may cost
    assert account.creates() == 1


def test_a_simulated_run_proposes_no_stamp_for_the_real_profile(
    account: Account, then: Callable[[Callable[[], None]], None], tmp_path: Path
) -> None:
    then(lambda: None)
    assert account.loop() == loop.PLAYED
    assert "no stamps are proposed: http://127.0.0.1" in account.said
    assert not (account.out / "stamps.patch").exists()
    assert account.loop("--profiles", str(FOLDER)) == loop.PLAYED  # a person names the folder
    assert "+proved_live: " in (account.out / "stamps.patch").read_text()
