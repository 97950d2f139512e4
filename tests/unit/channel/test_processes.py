"""Which processes are a box's, and how they are ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sweepstack.onbox.common import processes
from sweepstack.onbox.common.errors import NotYetGone

BOX = f"local-test{os.getpid()}"
"""Its own in each worker: a box is found by its id in the environment of processes, and they share the machine."""


def test_a_process_of_the_box_does_not_end_itself() -> None:
    program = f"from sweepstack.onbox.common.processes import end_box; end_box({BOX!r}, grace=0.1)"
    env = {**os.environ, "SWEEPSTACK_BOX_ID": BOX}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, timeout=120)
    assert done.returncode == 1
    assert b"itself runs on the box" in done.stderr


def test_a_survivor_of_sigkill_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper = subprocess.Popen(["sleep", "300"], env={**os.environ, "SWEEPSTACK_BOX_ID": BOX})
    try:
        monkeypatch.setattr(processes, "_send", lambda process, number: None)
        monkeypatch.setattr(processes, "KILL_SECONDS", 0.1)
        with pytest.raises(NotYetGone, match=str(sleeper.pid)):
            processes.end_box(BOX, grace=0.1)
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_process_of_a_long_environment_is_the_boxs() -> None:
    """What it has of the box comes last, behind more than one read gives."""
    long = {f"LONG{number}": "x" * 100_000 for number in range(3)}
    sleeper = subprocess.Popen(["sleep", "600"], env={**long, processes.BOX_ID_VARIABLE: BOX})
    try:
        assert [process.pid for process in processes.of_box(BOX)] == [sleeper.pid]
    finally:
        sleeper.kill()
        sleeper.wait()


LISTED = "local-testprocess"
PS = b"""    1     0     1 Ss   /sbin/launchd
  501     1   501 Ss   /opt/python runner.py . HOME=/x SWEEPSTACK_BOX_ID=local-testprocess LANG=C
  502   501   502 S    /bin/sh -c train
  503   502   502 S    python train.py
  504     1   504 Z    (python) SWEEPSTACK_BOX_ID=local-testprocess
  505     1   505 S    vim SWEEPSTACK_BOX_ID=local-testprocesses
"""


def test_without_proc_the_processes_are_read_from_ps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(processes, "PROC", tmp_path)
    monkeypatch.setattr(processes, "_scan_ps", lambda: processes.parse_ps(PS))
    found = processes.of_box(LISTED)
    assert [process.pid for process in found] == [501, 502, 503]
    assert found[2].argv == ("python", "train.py")
