"""A box that ends its own bill once its queue is drained: when it does, and what speaks against it."""

from __future__ import annotations

import fcntl
import os
import shlex
import signal
import stat
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweepstack.onbox.runner import off
from tests.onbox.harness import SECONDS, Box, wait_for

YEAR = 365 * 86_400.0


def armed(box: Box, **more: Any) -> Path:
    """The box is to run a command that leaves a mark, at once."""
    mark = box.control / "off"
    command = f"echo off >> {shlex.quote(str(mark))}"
    box.set(
        when_drained={"native": "power-off", "command": command}, **({"off_seconds": 0, "off_again_seconds": []} | more)
    )
    return mark


def said(box: Box) -> list[Mapping[str, Any]]:
    return box.events("box-off", None)


def waits(box: Box) -> None:
    """Until it is about to go off."""
    end = time.monotonic() + SECONDS
    while "power-off in" not in (box.home / "runner.log").read_text():
        assert time.monotonic() < end, (box.home / "runner.log").read_text()
        time.sleep(0.02)


def test_after_the_last_cell_it_goes_off_once_and_the_journal_says_so_before(box: Box) -> None:
    mark = armed(box)
    box.add("a")
    box.add("b")
    runner = box.start()
    assert runner.ended() == 0
    assert mark.read_text() == "off\n"
    assert [entry["native"] for entry in said(box)] == ["power-off"]
    assert [entry["event"] for entry in box.journal().entries][-2:] == ["box-off", "box-off-failed"]  # it is here
    assert {name: cell.state for name, cell in box.journal().cells.items()} == {"a": "sealed", "b": "sealed"}


def test_a_cell_that_failed_for_good_keeps_nobody_paying(box: Box) -> None:
    mark = armed(box)
    box.add("a", run="exit 3")
    assert box.start().ended() == 1
    assert mark.exists()


def test_a_queue_without_cells_is_new_and_not_done(box: Box) -> None:
    mark = armed(box)
    assert box.start().ended() == 0
    assert not mark.exists()


def test_nobody_asked(box: Box) -> None:
    mark = armed(box)
    box.set(when_drained=None)
    box.add("a")
    assert box.start().ended() == 0
    assert not mark.exists()
    assert said(box) == []


def test_a_cell_that_comes_meanwhile_keeps_it_on(box: Box) -> None:
    mark = armed(box, off_seconds=60)
    box.add("a")
    runner = box.start()
    waits(box)
    box.add("b")
    runner.ended()
    assert not mark.exists()
    assert said(box) == []
    box.set(off_seconds=0)
    assert box.start().ended() == 0
    assert mark.exists()


def test_a_stop_comes_first(box: Box) -> None:
    mark = armed(box, off_seconds=60)
    box.add("a")
    runner = box.start()
    waits(box)
    runner.process.send_signal(signal.SIGTERM)
    runner.ended()
    assert not mark.exists()


def test_another_box_at_work_on_the_host_keeps_it_on(box: Box) -> None:
    mark = armed(box)
    other = box.root.parent / "host-other" / "data" / "sweep"
    other.mkdir(parents=True)
    box.add("a")
    with (other / "runner.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert box.start().ended() == 0
    assert not mark.exists()
    assert said(box) == []
    assert box.start().ended() == 0
    assert mark.exists()


def test_another_box_of_which_nothing_is_known_keeps_it_on(box: Box) -> None:
    mark = armed(box)
    other = box.root.parent / "host-other" / "data" / "sweep"
    other.mkdir(parents=True)
    os.mknod(other / "runner.lock", stat.S_IFSOCK | 0o600)  # can't be opened, not even by root
    box.add("a")
    assert box.start().ended() == 0
    assert not mark.exists()
    (other / "runner.lock").unlink()
    assert box.start().ended() == 0
    assert mark.exists()


@pytest.mark.parametrize("jump", [-YEAR, 0, YEAR], ids=["back", "as it was", "forward"])
def test_a_pull_keeps_it_on_and_no_change_of_the_clock_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """It waits 600 s from the last pull, which wrote `keep-on`, by whatever clock the file system has."""
    now, wall, pulls = [50.0], [time.time()], {3: 0.0, 5: jump}
    rounds: list[float] = []

    def pause(_: float) -> None:
        now[0] += 100.0
        wall[0] += 100.0 + (jump if len(rounds) == 1 else 0.0)
        rounds.append(now[0])
        assert len(rounds) < 20, "it never ends"
        if len(rounds) in pulls:
            (tmp_path / "keep-on").touch()
            moment = wall[0] + pulls[len(rounds)]
            os.utime(tmp_path / "keep-on", (moment, moment))

    tried: list[float] = []
    monkeypatch.setattr(off, "boot_time", lambda: now[0])
    monkeypatch.setattr(off, "time", SimpleNamespace(sleep=pause, monotonic=lambda: now[0], time=lambda: wall[0]))
    monkeypatch.setattr(off, "issue", lambda *_, **__: tried.append(now[0]))
    asked = {"when_drained": {"native": "power-off", "command": "true"}, "off_seconds": 600}
    (tmp_path / "queue.jsonl").write_text("x")
    assert not off.power_off(tmp_path, asked, SimpleNamespace(), 1, bool)  # type: ignore[arg-type]
    assert tried == [50.0 + 500.0 + 600.0]


def test_a_command_that_fails_is_journaled_and_tried_again(box: Box) -> None:
    """hosts.md S1: `shutdown: not found`, and the runner was gone; the box billed on without a word."""
    mark = armed(box, off_again_seconds=[0.1, 0.1])
    command = f"echo try >> {shlex.quote(str(mark))}; no-such-shutdown"
    box.set(when_drained={"native": "power-off", "command": command})
    box.add("a")
    assert box.start().ended() == 0
    assert mark.read_text() == "try\n" * 3
    failed = box.events("box-off-failed", None)
    assert [one["tries"] for one in failed] == [1, 2, 3]
    assert all("no-such-shutdown: not found" in one["reason"] for one in failed)
    assert all("it ended with 127" in one["reason"] for one in failed)


def test_a_runner_that_waits_for_its_next_try_leaves_the_box_to_a_new_one(box: Box) -> None:
    mark = armed(box, off_again_seconds=[60])
    box.set(when_drained={"native": "power-off", "command": f"echo try >> {shlex.quote(str(mark))}; exit 5"})
    box.add("a")
    runner = box.start()
    wait_for(lambda: bool(box.events("box-off-failed", None)), box.log)
    box.set(when_drained=None)
    box.add("b")
    box.run("b")
    assert runner.ended() == 0
    assert mark.read_text() == "try\n"


def test_the_command_is_found_where_logins_find_it_and_in_sbin(box: Box) -> None:
    mark = armed(box)
    folder = box.root / "only-sessions-look-here"
    folder.mkdir()
    (folder / "end-my-bill").write_text(f"#!/bin/sh\necho $PATH > {mark}\n")
    (folder / "end-my-bill").chmod(0o755)
    box.set(when_drained={"native": "power-off", "command": "end-my-bill", "path": str(folder)})
    box.add("a")
    assert box.start().ended() == 0
    assert {"/usr/local/sbin", "/usr/sbin", "/sbin"} < set(mark.read_text().strip().split(":"))


def test_a_full_disk_does_not_keep_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no place for what the command says; it runs all the same."""

    def full() -> None:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    assert off._run({"command": "echo no; exit 3"}, 0) == "it ended with 3"
