"""Nodes that open doors: who may start programs on them, and what ends when a door, or who holds it, is gone."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweepstack.extensions.nodes.onbox.door import AGAIN, entered
from sweepstack.onbox.common.errors import Unreachable
from tests.onbox.harness import wait_for

SECONDS = 30.0
CALL = "import sys; from sweepstack.extensions.nodes.onbox import {0}; sys.exit({0}.{1}(*sys.argv[1:]))"


class Group:
    """Two nodes of this machine: a door, and what leads."""

    def __init__(self, folder: Path) -> None:
        self.doors, self.record, self.marks = folder / "doors", folder / "held/u0.json", folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, module: str, function: str, *words: str, **how: Any) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-c", CALL.format(module, function), *words]
        self.processes.append(subprocess.Popen(argv, stdin=subprocess.PIPE, **how))
        return self.processes[-1]

    def door(self, ident: str = "u1") -> subprocess.Popen[bytes]:
        process = self.start("door", "main", str(self.doors), "1", "pod-1", ident, "127.0.0.1")
        wait_for(lambda: list(self.doors.glob("1-*.json")), lambda: "no door")
        return process

    def lead(self, program: str) -> subprocess.Popen[bytes]:
        words = (str(self.record), "2", str(self.doors), "pod-0", "u0", "127.0.0.1", "--", "sh", "-c", program)
        return self.start("lead", "main", *words)

    def working(self, rest: str = "sleep 60 & wait") -> subprocess.Popen[bytes]:
        """A lead whose worker has begun."""
        begun = self.marks / "begun"
        process = self.lead(f"trap 'touch {self.marks}/told; exit 9' TERM; touch {begun}; {rest}")
        wait_for(begun.exists, lambda: "no worker")
        return process

    def facts(self) -> dict[str, Any]:
        (file,) = self.doors.glob("1-*.json")
        assert file.stat().st_mode & 0o077 == 0, "its user alone reads the secret"
        return dict(json.loads(file.read_bytes()))

    def enter(self, *argv: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
        out = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = self.start("door", "enter", str(self.record), "pod-1", *argv, **out)
        found, err = process.communicate(stdin, timeout=SECONDS)
        return process.returncode, found, err


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    made = Group(tmp_path)
    yield made
    for process in made.processes:
        process.kill()
        process.communicate()


def test_a_program_runs_behind_a_door_for_its_holder_alone(group: Group) -> None:
    door = group.door()
    there = group.facts()
    with pytest.raises(Unreachable):
        entered({**there, "secret": "another"}, "hold", "u0")
    with pytest.raises(Unreachable, match="is held by another worker"):
        entered(there, "run", "u0", ["true"])
    lead = group.working(f"until [ -e {group.marks}/end ]; do sleep 0.1; done; exit 5")
    assert json.loads(group.record.read_bytes())["nodes"]["pod-1"]["id"] == "u1"
    assert group.enter("sh", "-c", "cat; echo wrong >&2; exit 3", stdin=b"x" * 200_000) == (
        3,
        b"x" * 200_000,
        b"wrong\n",
    )
    out = {"stdout": subprocess.PIPE}
    told = group.start("door", "enter", str(group.record), "pod-1", "sh", "-c", "echo on; read x; echo $x", **out)
    assert told.stdout is not None
    assert told.stdout.readline() == b"on\n"
    told.send_signal(signal.SIGTERM)  # as its whole group is, when the cell is told to save
    assert told.communicate(b"still\n", timeout=SECONDS)[0] == b"still\n"
    code, _, err = group.enter("/no/such")
    assert (code, b"No such file" in err) == (127, True)
    with pytest.raises(Unreachable, match="is held by another worker"):
        entered(there, "hold", "u9")
    (group.marks / "end").touch()
    assert lead.wait(SECONDS) == door.wait(SECONDS) == 5, "both end as the worker did"
    code, _, err = group.enter("true")
    assert (code, err.startswith(b"enter: error: pod-1 (127.0.0.1) can't be reached")) == (255, True)


def test_a_worker_is_killed_when_its_door_is_lost(group: Group) -> None:
    """It is not told: what it wrote down then would free a cell whose part on that node may run still."""
    door = group.door()
    lead = group.working()
    door.kill()
    assert lead.wait(SECONDS) == AGAIN
    assert not (group.marks / "told").exists()


def test_a_door_that_is_told_to_end_lets_the_worker_save_first(group: Group) -> None:
    door = group.door()
    lead = group.working()
    door.send_signal(signal.SIGTERM)
    assert (lead.wait(SECONDS), door.wait(SECONDS)) == (AGAIN, AGAIN)
    assert (group.marks / "told").exists()


def test_a_door_ends_with_its_holder(group: Group) -> None:
    door = group.door()
    lead = group.working()
    lead.kill()
    assert door.wait(SECONDS) == AGAIN
