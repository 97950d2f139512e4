"""Live runs against the simulated platforms: what they refuse, what they spend, and that nothing is left of them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.simulators.core import SimServer, VirtualClock
from tests.simulators.rental import Options, rental, rentals, whole_rentals

ROOT = Path(__file__).parents[3]
SECONDS = 240.0
PLUGINS = "tests.unit.live.plugins"
ONE = "a_rented_box_is_what_was_asked_for"


@dataclass
class Account:
    """A simulated platform, and runs against it."""

    platform: str
    sim: Any
    env: dict[str, str]
    ended: list[subprocess.Popen[str]] = field(default_factory=list)

    def begin(self, *words: str, plugins: tuple[str, ...] = ("api_only",)) -> subprocess.Popen[str]:
        """pytest on `tests/live`."""
        chosen = [word for plugin in plugins for word in ("-p", f"{PLUGINS}.{plugin}")]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, "tests/live", *words]
        running = subprocess.Popen(
            command, cwd=ROOT, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.ended.append(running)
        return running

    def run(self, *words: str, plugins: tuple[str, ...] = ("api_only",)) -> tuple[int, str]:
        running = self.begin(*words, plugins=plugins)
        said = running.communicate(timeout=SECONDS)[0]
        return running.returncode, said

    def live(self, *words: str, plugins: tuple[str, ...] = ("api_only",), spend: str = "1") -> tuple[int, str]:
        """One test of the suite, `--spend` USD at most."""
        return self.run("--live", self.platform, "--spend", spend, "-k", ONE, *words, plugins=plugins)

    def billing(self) -> set[str]:
        with self.sim.lock:
            return {rental.id for rental in self.sim.ledger.live()}

    def creates(self) -> int:
        return int(self.sim.count(rental(self.platform).create))


# `make test` plays what takes `world` on FIRST alone, and EACH on it and on those that test_loop.py leaves out; `make
# proof` everything
FIRST = whole_rentals()[0]
OTHERS = [adapter for adapter in rentals() if adapter != FIRST]
IN_THE_LOOP = set(whole_rentals()) - {FIRST}
EACH = pytest.mark.parametrize(
    "world",
    [pytest.param(one, marks=[pytest.mark.proof] if one in IN_THE_LOOP else []) for one in rentals()],
    indirect=True,
)


@pytest.fixture(params=[FIRST, *(pytest.param(other, marks=pytest.mark.proof) for other in OTHERS)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Account]:
    its = rental(request.param)
    customers = its.open(VirtualClock(scale=1.0), Options(boot_reads=0))
    sim = customers.sim
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    with SimServer(sim) as server:
        env = {key: os.environ[key] for key in ("PATH", "LANG", "TMPDIR") if key in os.environ}
        env |= {"HOME": str(tmp_path), "SWEEPSTACK_SSH_KEY": str(tmp_path / "key"), "SWEEPSTACK_API_PACE": "0.01"}
        env |= {its.url: server.api, its.key: customers.key}
        found = Account(request.param, sim, env)
        try:
            yield found
        finally:
            for running in found.ended:
                running.kill()
                running.wait()
        sim.check()


def until(ready: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + SECONDS
    while not ready():
        assert time.monotonic() < end, what
        time.sleep(0.05)


@pytest.mark.parametrize("world", ["runpod"], indirect=True)
def test_nothing_is_asked_without_a_word_a_ceiling_and_a_key(world: Account) -> None:
    code, said = world.run("--collect-only")
    assert "no tests collected" in said
    code, said = world.run("--live", "runpod")
    assert (code, "--spend 2" in said) == (pytest.ExitCode.USAGE_ERROR, True), said
    del world.env["RUNPOD_API_KEY"]
    code, said = world.live()
    assert (code, "export RUNPOD_API_KEY=" in said) == (pytest.ExitCode.USAGE_ERROR, True), said
    assert world.sim.calls == []


@EACH
def test_a_run_says_what_it_spent_and_leaves_nothing(world: Account) -> None:
    code, said = world.live()
    assert code == 0, said
    assert "1 passed" in said
    assert "spent about $0.0" in said
    assert ("the balance went from $" in said) == rental(world.platform).whole
    assert f"is left, by {world.platform}'s own list" in said
    assert (world.creates(), world.billing()) == (1, set())


def test_no_box_is_rented_that_could_break_the_ceiling(world: Account) -> None:
    code, said = world.live(spend="0.05")
    assert code == pytest.ExitCode.INTERRUPTED, said
    told = re.search(
        r"STOPPED: \$0.0000 is spent, and a box at \$(\S+)/h for 15 minutes could bring it to \$(\S+);", said
    )
    assert told is not None, said
    assert float(told[2]) == pytest.approx(float(told[1]) / 4)
    assert float(told[2]) > 0.05
    assert (world.creates(), world.billing()) == (0, set())


def test_what_a_failing_test_rented_is_ended(world: Account) -> None:
    code, said = world.live(plugins=("api_only", "fails"))
    assert (code, "1 failed" in said) == (pytest.ExitCode.TESTS_FAILED, True), said
    assert (world.creates(), world.billing()) == (1, set())


@pytest.mark.parametrize("word", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.proof)])
def test_ctrl_c_ends_what_runs(world: Account, word: signal.Signals) -> None:
    running = world.begin(
        "--live", world.platform, "--spend", "1", "-k", ONE, plugins=("api_only", "hangs")
    )  # fmt: skip
    until(world.billing, "nothing was rented")
    running.send_signal(word)
    said = running.communicate(timeout=SECONDS)[0]
    assert running.returncode == pytest.ExitCode.INTERRUPTED, said
    assert f"is left, by {world.platform}'s own list" in said
    assert (world.creates(), world.billing()) == (1, set())


@pytest.mark.parametrize("world", ["vastai"], indirect=True)
def test_a_signal_whose_interrupt_is_lost_ends_what_sleeps(world: Account, tmp_path: Path) -> None:
    running = world.begin("--live", world.platform, "--spend", "1", "-k", ONE, plugins=("api_only", "deaf"))
    until((tmp_path / "asleep").exists, "it did not begin to sleep")
    running.send_signal(signal.SIGTERM)
    said = running.communicate(timeout=SECONDS)[0]
    assert running.returncode == pytest.ExitCode.INTERRUPTED, said
    assert (world.creates(), world.billing()) == (1, set())


def test_what_still_bills_is_said_loudly(world: Account) -> None:
    world.sim.faults.add("error_before", rental(world.platform).delete, times=None, status=503)
    code, said = world.live(plugins=("api_only", "impatient"))
    (native_id,) = world.billing()
    assert code == pytest.ExitCode.INTERNAL_ERROR, said
    assert "STILL THERE, AND BILLING:" in said
    assert f"box {native_id} (sweepstack-live" in said
    (prefix,) = {line.split()[5] for line in said.splitlines() if line.startswith("Next: python -m tests.live")}
    world.sim.faults.clear()
    command = [sys.executable, "-m", "tests.live", world.platform, prefix]
    ended = subprocess.run(command, cwd=ROOT, env=world.env, capture_output=True, text=True, timeout=SECONDS)
    assert ended.returncode == 0, ended.stderr
    assert world.billing() == set()
