"""The lock by generations: one owner at a time, never a second one of the same number, freed by proof alone."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.locks import FREE, MARGIN, LinkLock, state_of

TURNS = 150


def lock(folder: Path, name: str, ended: Any = lambda _: False) -> LinkLock:
    return LinkLock(folder, {"worker": name, "pid": os.getpid()}, ended)


def count_up(folder: Path, name: str, killed: bool) -> None:
    """Adds 1 to a number that lies beside the lock, TURNS times; one that is killed dies with the lock in its hand."""
    mine, number = lock(folder / "lock", name, lambda one: not os.path.exists(f"/proc/{one['pid']}")), folder / "number"
    for turn in range(TURNS):
        assert mine.take(60.0)
        now = int(number.read_text())
        if killed and turn == TURNS // 2:
            os.kill(os.getpid(), signal.SIGKILL)
        number.write_text(str(now + 1))
        mine.give_back()


def test_processes_that_are_killed_with_it_lose_no_turn(tmp_path: Path) -> None:
    (tmp_path / "number").write_text("0")
    started = [
        multiprocessing.get_context("spawn").Process(target=count_up, args=(tmp_path, f"w{n}", n == 0))
        for n in range(4)
    ]
    for one in started:
        one.start()
    for one in started:
        one.join(120)
    assert [one.exitcode for one in started] == [-signal.SIGKILL, 0, 0, 0]
    assert int((tmp_path / "number").read_text()) == 3 * TURNS + TURNS // 2


def test_an_owner_that_is_not_proved_dead_keeps_it(tmp_path: Path) -> None:
    first, asked = lock(tmp_path, "first"), []
    assert first.take(0)
    second = lock(tmp_path, "second", lambda one: bool(asked.append(one["worker"])))
    assert not second.take(0.5)
    assert set(asked) == {"first"}
    assert first.is_mine()
    third = lock(tmp_path, "third", lambda one: one["worker"] == "first")
    assert third.take(5.0)
    assert not first.is_mine()
    assert third.is_mine()
    first.give_back()  # late: it frees its own number, and no other
    assert not state_of(tmp_path).free
    assert third.is_mine()
    third.give_back()
    assert state_of(tmp_path).free


def test_a_process_that_slept_while_old_numbers_were_removed_gets_nothing(tmp_path: Path) -> None:
    slow, quick = lock(tmp_path, "slow"), lock(tmp_path, "quick")
    seen = state_of(tmp_path).number
    for _ in range(MARGIN + 5):
        assert quick.take(0)
        quick.give_back()
    assert quick.take(0)
    assert not (tmp_path / str(seen + 1)).exists()
    assert not slow._link(seen + 1)
    assert slow.number == 0
    assert quick.is_mine()
    assert not (tmp_path / str(seen + 1)).exists()


def test_an_answer_that_was_lost_is_found_by_the_inode(tmp_path: Path) -> None:
    mine, other = lock(tmp_path, "mine"), lock(tmp_path, "other")
    os.link(mine._record, tmp_path / "1")  # what the server did before its answer was lost
    assert mine._link(1)
    assert mine.is_mine()
    assert not other._link(1)
    mine.give_back()


def test_it_keeps_few_files(tmp_path: Path) -> None:
    mine = lock(tmp_path, "mine")
    for _ in range(3 * MARGIN):
        assert mine.take(0)
        mine.give_back()
    names = os.listdir(tmp_path)
    assert len(names) <= 2 * (MARGIN + 1) + 1
    assert f"{3 * MARGIN}{FREE}" in names
