"""Asking several things at once: all that wait for each other are begun, and none waits for one that hangs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import pytest

from sweepstack.core.parallel import AT_FIRST, in_parallel

LONG = 300.0
MANY = 10 * AT_FIRST


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """An event that comes when the test is over."""
    event = threading.Event()
    yield event
    event.set()


def test_all_begin_while_none_is_finished() -> None:
    together = threading.Barrier(MANY)
    assert set(in_parallel({number: lambda: together.wait(LONG) for number in range(MANY)}, LONG)) == set(range(MANY))


def test_none_waits_for_those_that_hang(never: threading.Event) -> None:
    hanging = dict.fromkeys(range(MANY), never.wait)
    after = threading.Event()
    later = {"last": after.set}
    asked = threading.Thread(target=in_parallel, args=({**hanging, **later}, LONG), daemon=True)
    asked.start()
    assert after.wait(LONG)
    never.set()
    asked.join(LONG)
    assert not asked.is_alive()


def test_what_is_late_is_left_behind(never: threading.Event) -> None:
    tasks = {"late": never.wait, "done": lambda: True}
    assert in_parallel(tasks, 0.2) == {"done": True}
    assert in_parallel({}, LONG) == {}


def test_an_error_is_raised_when_the_others_are_done() -> None:
    came = []
    tasks = {number: partial(came.append, number) for number in range(MANY)}
    with pytest.raises(ZeroDivisionError):
        in_parallel({"bad": lambda: came.append(1 // 0), **tasks}, LONG)
    assert sorted(came) == list(range(MANY))
