"""One answer for all who ask at once, and never one that is older than they accept."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from sweepstack.onbox.common.errors import Unreachable
from sweepstack.platforms.common.single_flight import Shared


class Asked:
    """Counts its questions; each waits until it is let go, and its answer is its number."""

    def __init__(self) -> None:
        self.count = 0
        self.begun = threading.Semaphore(0)
        self.let_go = threading.Semaphore(0)
        self.fails = False

    def __call__(self) -> int:
        self.count += 1
        number = self.count
        self.begun.release()
        assert self.let_go.acquire(timeout=120)
        if self.fails:
            raise Unreachable(f"no answer to {number}")
        return number


def test_a_hundred_who_ask_at_once_are_two_questions() -> None:
    """The first is on its way when the others come, who want a later answer and share the next one."""
    asked = Asked()
    shared = Shared(asked)
    with ThreadPoolExecutor(100) as pool:
        first = pool.submit(shared.get, 0)
        assert asked.begun.acquire(timeout=120)
        others = [pool.submit(shared.get, 0) for _ in range(99)]
        while pool._work_queue.qsize():
            time.sleep(0.01)
        time.sleep(0.1)
        asked.let_go.release(2)
        assert first.result(20) == 1
        assert {other.result(20) for other in others} == {2}
    assert asked.count == 2


def test_an_answer_serves_until_it_is_too_old_or_something_was_changed() -> None:
    asked = Asked()
    asked.let_go.release(9)
    shared = Shared(asked)
    assert [shared.get(60), shared.get(60), shared.get(0), shared.get(60)] == [1, 1, 2, 2]
    shared.invalidate()
    assert [shared.get(60), shared.get(60)] == [3, 3]


def test_a_question_from_before_a_change_is_no_answer_after_it() -> None:
    asked = Asked()
    shared = Shared(asked)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(shared.get, 60)
        assert asked.begun.acquire(timeout=120)
        shared.invalidate()
        second = pool.submit(shared.get, 60)
        asked.let_go.release(2)
        assert (first.result(20), second.result(20)) == (1, 2)


def test_a_failure_is_shared_and_not_kept() -> None:
    asked = Asked()
    asked.fails = True
    shared = Shared(asked)
    with ThreadPoolExecutor(20) as pool:
        first = pool.submit(shared.get, 0)
        assert asked.begun.acquire(timeout=120)
        others = [pool.submit(shared.get, 0) for _ in range(19)]
        time.sleep(0.1)
        asked.let_go.release(2)
        for one in (first, *others):
            with pytest.raises(Unreachable):
                one.result(20)
    assert asked.count == 2
    asked.fails = False
    asked.let_go.release()
    assert shared.get(60) == 3
