"""`make up` changes no tracked file, and makes no stack without a stack file."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRACKED = sorted((ROOT / "stacks").glob("Pulumi.sweep-*.yaml"))


@pytest.mark.engine
def test_the_engine_leaves_a_tracked_stack_file_as_it_is(tmp_path: Path) -> None:
    """It writes a salt into a file without one, and lays out the comments anew then."""
    shutil.copy2(ROOT / "Pulumi.yaml", tmp_path)
    shutil.copytree(ROOT / "stacks", tmp_path / "stacks")
    backend = tmp_path / "backend"
    backend.mkdir()
    own = ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE", "PULUMI_STACK")
    env = {name: value for name, value in os.environ.items() if name not in own}
    env |= {"PULUMI_BACKEND_URL": backend.as_uri(), "PULUMI_SKIP_UPDATE_CHECK": "true"}
    for path in TRACKED[:1] + TRACKED[-1:]:
        stack = path.name.removeprefix("Pulumi.").removesuffix(".yaml")
        command = [ROOT / ".venv/bin/pulumi", "stack", "select", "--create", "--stack", stack, "--non-interactive"]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
    assert [path.name for path in TRACKED if path.read_bytes() != (tmp_path / "stacks" / path.name).read_bytes()] == []
    assert all("\nencryptionsalt: v1:" in path.read_text() for path in TRACKED)


def test_make_up_makes_no_stack_without_a_file() -> None:
    done = subprocess.run(
        ["make", "up", "STACK=org/nosuch", "PYTHON=false"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert "stacks/Pulumi.nosuch.yaml is not there" in done.stderr
    assert "sweepctl init nosuch" in done.stderr
    assert not (ROOT / "stacks" / "Pulumi.nosuch.yaml").exists()
