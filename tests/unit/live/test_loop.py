"""The live loop (`make live`) with the real engine, against the simulated platforms whose boxes are machines."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from sweepstack.profiles.load import load_profile
from tests.rented.world import PACE, image
from tests.simulators.core import SimServer, VirtualClock
from tests.simulators.machines import require
from tests.simulators.own_keys import OWN
from tests.simulators.rental import rental, rentals, stack_of

ROOT = Path(__file__).parents[3]
SECONDS = 800.0


def stack_file(platform: str, folder: Path) -> Path:
    """The one that ships, without the set-up that would ask the internet."""
    document = yaml.safe_load((ROOT / "stacks" / f"Pulumi.{stack_of(platform)}.yaml").read_text())
    sweep = document["config"]["sweepstack:sweep"]
    sweep["job"].pop("setup")
    sweep["cells"]["base"]["epochs"] = 2
    path = folder / "stack.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


FIRST, *OTHERS = rentals()


# `make test` plays the first platform; tests/rented/test_loop.py and test_lease.py play the parts on each.
@pytest.mark.engine
@pytest.mark.parametrize("platform", [FIRST, *(pytest.param(other, marks=pytest.mark.proof) for other in OTHERS)])
def test_the_whole_loop(platform: str, tmp_path: Path) -> None:
    require()
    image()
    its = rental(platform)
    customers = its.open(VirtualClock(scale=1.0), state=tmp_path / "platform", machines=True, pace=float(PACE))
    sim = customers.sim
    key = tmp_path / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    profiles = tmp_path / "repository" / "profiles"
    shutil.copytree(ROOT / "profiles", profiles)
    before = (profiles / f"{platform}.md").read_text()
    out = tmp_path / "out"
    with SimServer(sim) as server:
        env = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        env |= {"HOME": str(tmp_path), "SWEEPSTACK_SSH_KEY": str(key), "SWEEPSTACK_API_PACE": PACE}
        env |= {its.url: server.url, its.key: customers.key}
        command = [sys.executable, "-m", "tests.live.loop", platform, "--spend", "1", "--out", str(out)]
        command += ["--stack", str(stack_file(platform, tmp_path)), "--profiles", str(profiles)]
        ran = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=SECONDS)
        said = f"{ran.stdout}\n{ran.stderr}\n{transcript(out)[-6000:]}"
        assert ran.returncode == 0, said
        assert not [one for one in sim.ledger.live() if one.kind == its.box], said
        (box,) = [one for one in sim.ledger.all() if one.kind == its.box]
        assert [act.what for act in box.acts if act.by == OWN] == ["stop"], box.acts
    assert "is left, by" in ran.stdout
    answers = [line.split()[0] for line in ran.stdout.splitlines() if " survives a stop; the box: its mark is" in line]
    assert answers == ["agrees"] * 3, ran.stdout
    assert "agrees       own_key" in ran.stdout
    assert "CONTRADICTED china_mirror_needed" in ran.stdout or "told         china_mirror_needed" in ran.stdout
    for secret in (customers.key, *(own.key for own in sim.own_keys.ever)):
        assert secret not in transcript(out) + ran.stdout + ran.stderr
    assert "PRIVATE KEY" not in transcript(out)
    assert (profiles / f"{platform}.md").read_text() == before, "the tool never edits a profile"
    patch = out / "stamps.patch"
    subprocess.run(["git", "apply", str(patch)], cwd=profiles.parent, check=True)
    load_profile.cache_clear()
    fresh, old = load_profile(platform, profiles), load_profile(platform)
    assert fresh.proved_live != old.proved_live
    assert fresh.own_key is not None
    assert fresh.own_key.proved == fresh.proved_live
    assert not (out / "work").exists()


def transcript(out: Path) -> str:
    path = out / "transcript.txt"
    return path.read_text() if path.exists() else ""
