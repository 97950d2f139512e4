"""The live loop (`make live`) with the real engine, against the simulated platforms whose boxes are machines."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from sweepstack.profiles.load import load_profile
from tests.rented.world import PACE, image
from tests.simulators.core import SimServer, VirtualClock
from tests.simulators.machines import require
from tests.simulators.own_keys import OWN
from tests.simulators.rental import Options, rental, stack_of, whole_rentals

ROOT = Path(__file__).parents[3]
SECONDS = 800.0


def stack_file(platform: str, folder: Path) -> Path:
    """The one that ships, without the set-up that would ask the internet."""
    document = yaml.safe_load((ROOT / "stacks" / f"Pulumi.{stack_of(platform)}.yaml").read_text())
    sweep = document["config"]["sweepstack:sweep"]
    sweep["job"].pop("setup")
    sweep["job"].setdefault("env", {}).update(SWEEPSTACK_CHECK_TORCH="0")  # the tests' torch finds no card
    sweep["cells"]["base"]["epochs"] = 2
    path = folder / "stack.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


FIRST, *_ = whole_rentals()


@dataclass
class World:
    """A simulated platform whose boxes are machines, and a copy of the profiles in a tree of its own."""

    platform: str
    sim: Any
    key: str
    base: Path
    env: dict[str, str]

    @property
    def out(self) -> Path:
        return self.base / "out"

    @property
    def profiles(self) -> Path:
        return self.base / "repository" / "profiles"

    def begin(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.live.loop", self.platform, "--spend", "1", "--out", str(self.out)]
        command += ["--stack", str(stack_file(self.platform, self.base)), "--profiles", str(self.profiles)]
        return subprocess.Popen(
            command, cwd=ROOT, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def boxes(self) -> list[Any]:
        """All that were ever rented, by the platform's own books."""
        return [one for one in self.sim.ledger.all() if one.kind == rental(self.platform).box]

    def billing(self) -> list[Any]:
        return [one for one in self.sim.ledger.live() if one.kind == rental(self.platform).box]

    def assert_no_secret(self, said: str) -> None:
        for secret in (self.key, *(own.key for own in self.sim.own_keys.ever)):
            assert secret not in transcript(self.out) + said
        assert "PRIVATE KEY" not in transcript(self.out)


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    require()
    its = rental(request.param)
    customers = its.open(VirtualClock(scale=1.0), Options(state=tmp_path / "platform", machines=True, pace=float(PACE)))
    key = tmp_path / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    shutil.copytree(ROOT / "profiles", tmp_path / "repository" / "profiles")
    with image(), SimServer(customers.sim) as server:
        env = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        env |= {"HOME": str(tmp_path), "SWEEPSTACK_SSH_KEY": str(key), "SWEEPSTACK_API_PACE": PACE}
        env |= {its.url: server.api, its.key: customers.key}
        yield World(request.param, customers.sim, customers.key, tmp_path, env)


# `make test` plays the first platform; tests/rented/test_loop.py and test_lease.py play the parts on each.
@pytest.mark.proof  # its steps: test_machinery.py; the loop by hand: tests/rented/test_several_platforms.py
@pytest.mark.engine
@pytest.mark.parametrize("world", whole_rentals(), indirect=True)
def test_the_whole_loop(world: World) -> None:
    profile = world.profiles / f"{world.platform}.md"
    before = profile.read_text()
    running = world.begin()
    said = ended(running)
    assert running.returncode == 0, f"{said}\n{transcript(world.out)[-6000:]}"
    assert world.billing() == []
    (box,) = world.boxes()
    assert [act.what for act in box.acts if act.by == OWN] == ["stop"], box.acts
    assert "is left, by" in said
    answers = [line.split()[0] for line in said.splitlines() if " survives a stop; the box: its mark is" in line]
    assert answers == ["agrees"] * 3, said
    assert "agrees       own_key" in said
    verdicts = ("CONTRADICTED", "told        ", "no answer   ")  # by what the machine of the tests reaches
    assert any(f"{verdict} china_mirror_needed" in said for verdict in verdicts)
    world.assert_no_secret(said)
    assert profile.read_text() == before, "the tool never edits a profile"
    subprocess.run(["git", "apply", str(world.out / "stamps.patch")], cwd=world.profiles.parent, check=True)
    load_profile.cache_clear()
    fresh, old = load_profile(world.platform, world.profiles), load_profile(world.platform)
    assert fresh.proved_live != old.proved_live
    assert fresh.own_key is not None
    assert fresh.own_key.proved == fresh.proved_live
    assert not (world.out / "work").exists()


# The same end, without the engine: test_loop_ends.py.
@pytest.mark.proof
@pytest.mark.engine
@pytest.mark.parametrize("world", [FIRST], indirect=True)
@pytest.mark.parametrize("until", ["rented", "asked"])
def test_ctrl_c_ends_the_engine_and_the_box(world: World, until: str) -> None:
    running = world.begin()
    ends = time.monotonic() + SECONDS / 2
    while not (world.billing() if until == "rented" else "[4/13]" in transcript(world.out)):
        assert time.monotonic() < ends, transcript(world.out)
        assert running.poll() is None, transcript(world.out)
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    said = ended(running)
    assert running.returncode == 130, said
    assert "STOPPED: interrupted" in said
    assert world.billing() == []
    assert len(world.boxes()) == 1
    assert "proved_live gets no new month" in said or "what the box says" not in said
    world.assert_no_secret(said)


def ended(running: subprocess.Popen[str]) -> str:
    """What it said until it ended."""
    try:
        return running.communicate(timeout=SECONDS)[0]
    finally:
        running.kill()
        running.wait()


def transcript(out: Path) -> str:
    path = out / "transcript.txt"
    return path.read_text() if path.exists() else ""
