"""One answer for all who ask at once, and never one that is older than they accept."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from sweepstack.onbox.common.errors import Unreachable
from sweepstack.platforms.common.deadline import Deadline, DeadlineOver
from sweepstack.platforms.common.single_flight import SingleFlight


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


def until_waiting(shared: SingleFlight[int], count: int) -> None:
    """Blocks until `count` callers wait for another caller's answer: who comes later needs a later one."""
    end = time.monotonic() + 120
    while len(shared._turn._waiters) != count:  # type: ignore[attr-defined]
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_hundred_who_ask_at_once_are_two_questions() -> None:
    """The first is on its way when the others come, who want a later answer and share the next one."""
    asked = Asked()
    shared = SingleFlight[int]()
    with ThreadPoolExecutor(100) as pool:
        first = pool.submit(shared.get, asked)
        assert asked.begun.acquire(timeout=120)
        others = [pool.submit(shared.get, asked) for _ in range(99)]
        until_waiting(shared, 99)
        asked.let_go.release(2)
        assert first.result(120) == 1
        assert {other.result(120) for other in others} == {2}
    assert asked.count == 2


def test_an_answer_serves_until_it_is_too_old_or_something_was_changed() -> None:
    asked = Asked()
    asked.let_go.release(9)
    shared = SingleFlight[int]()
    assert [shared.get(asked, max_age=age) for age in (60, 60, 0, 60)] == [1, 1, 2, 2]
    shared.forget()
    assert shared.get(asked, max_age=60, forgotten=True) == 2, "who looks again and again anyway"
    assert [shared.get(asked, max_age=60) for _ in range(2)] == [3, 3]


def test_a_question_from_before_a_change_is_no_answer_after_it() -> None:
    asked = Asked()
    shared = SingleFlight[int]()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(shared.get, asked, max_age=60)
        assert asked.begun.acquire(timeout=120)
        shared.forget()
        second = pool.submit(shared.get, asked, max_age=60)
        asked.let_go.release(2)
        assert (first.result(120), second.result(120)) == (1, 2)


def test_a_failure_is_shared_and_not_kept() -> None:
    asked = Asked()
    asked.fails = True
    shared = SingleFlight[int]()
    with ThreadPoolExecutor(20) as pool:
        first = pool.submit(shared.get, asked)
        assert asked.begun.acquire(timeout=120)
        others = [pool.submit(shared.get, asked) for _ in range(19)]
        until_waiting(shared, 19)
        asked.let_go.release(2)
        for one in (first, *others):
            with pytest.raises(Unreachable):
                one.result(120)
    assert asked.count == 2
    asked.fails = False
    asked.let_go.release()
    assert shared.get(asked, max_age=60) == 3


def test_a_deadline_that_is_over_is_nobody_elses() -> None:
    asked = Asked()
    shared = SingleFlight[int]()

    def too_late() -> int:
        asked()
        raise DeadlineOver("not within 1 s")

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(shared.get, too_late)
        assert asked.begun.acquire(timeout=120)
        others = [pool.submit(shared.get, asked, Deadline(120)) for _ in range(2)]
        until_waiting(shared, 2)
        asked.let_go.release(2)
        with pytest.raises(DeadlineOver):
            first.result(120)
        assert {other.result(120) for other in others} == {2}


def test_another_s_question_is_waited_for_until_the_deadline_or_a_cancel() -> None:
    asked = Asked()
    shared = SingleFlight[int]()
    cancelled = threading.Event()
    cancelled.set()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(shared.get, asked)
        assert asked.begun.acquire(timeout=120)
        for deadline, why in ((Deadline(0.01), "not within 0.01 s"), (Deadline(60, cancelled), "cancelled")):
            with pytest.raises(DeadlineOver, match=why):
                shared.get(asked, deadline)
        asked.let_go.release()
        assert first.result(120) == 1
    assert asked.count == 1


def test_an_answer_that_came_with_another_is_kept_like_one_of_its_own() -> None:
    flight = SingleFlight[str]()
    assert flight.kept(60.0) is None
    begun = time.monotonic()
    flight.keep(begun, "new")
    flight.keep(begun - 1.0, "older")
    assert flight.kept(60.0) == "new"
    assert flight.get(lambda: "asked", max_age=60.0) == "new"
    assert flight.kept(0.0) is None
    flight.forget()
    assert flight.kept(60.0) is None
    flight.keep(begun, "from before")
    assert flight.kept(60.0) is None
    assert flight.get(lambda: "asked", max_age=60.0) == "asked"
