"""The tutorial, played; and the page in docs/ shows the same commands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.engine.conftest import make_stack as make_stack
from tests.engine.harness import Stack
from tests.week.pages import assert_shown
from tests.week.tutorial import tutorial


@pytest.mark.engine
@pytest.mark.proof  # the loop of the README stays in make test: tests/engine/test_loop.py
def test_played_as_the_page_shows(make_stack: Callable[..., Stack]) -> None:
    """Every command ends as it should and names the one after it."""
    assert_shown("tutorial.md", tutorial(make_stack))
