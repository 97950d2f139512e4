"""A driver's tool that hangs in the kernel: no signal ends it, and nothing waits for it."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweepstack.onbox.common import run_process


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Path]:
    """A PATH with an nvidia-smi that says its pid and ends when its standard file `on` goes away."""
    (tmp_path / "on").touch()
    tool = tmp_path / "nvidia-smi"
    tool.write_text(
        f"#!/bin/sh\necho $$ >> {tmp_path}/asked\nwhile [ -e {tmp_path}/on ]; do sleep 0.05; done\necho well\n"
    )
    tool.chmod(0o755)
    yield tmp_path
    (tmp_path / "on").unlink(missing_ok=True)


def test_a_tool_that_no_signal_ends_is_left_and_not_asked_again_meanwhile(
    hanging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_process, "signal_group", lambda *_: True)  # as where it hangs in the kernel
    monkeypatch.setattr(run_process, "TOOL_KILL_SECONDS", 0.1)
    began = time.monotonic()
    for _ in range(3):
        with pytest.raises(subprocess.TimeoutExpired):
            run_process.says("nvidia-smi", seconds=0.3, path=str(hanging))
    assert time.monotonic() - began < 5
    assert len((hanging / "asked").read_text().split()) == 1
    (hanging / "on").unlink()
    ends = time.monotonic() + 20
    while time.monotonic() < ends:  # the driver answers again
        with contextlib.suppress(subprocess.SubprocessError):
            if run_process.says("nvidia-smi", seconds=10, path=str(hanging)) == "well\n":
                return
        time.sleep(0.05)
    pytest.fail("it is not asked again")
