"""From a broken state to "nothing bills any more" in three commands, with the box behind an sshd.

The rows of tests/engine/test_liveness.py that take another way there: its fixtures, of a host.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.conftest import finish
from tests.engine.test_liveness import (  # noqa: F401
    test_a_failed_cell_is_waived,
    test_abandoning_a_box_in_the_middle_of_its_work,
    test_answer_of_the_create_lost,
    test_box_deleted_by_hand,
    test_box_killed_and_up_resumes,
    test_create_failed_and_up_goes_on,
    test_create_failed_before_the_queue_existed,
    test_journal_replaced_by_nothing,
    test_journal_unreadable,
    test_wrong_settings_given_up,
    training,
)
from tests.rented.host_stack import HostStack


@pytest.fixture
def small(tmp_path: Path) -> Iterator[HostStack]:
    """One box on one host, two cells, not up yet."""
    stack = HostStack(tmp_path / "sweep")
    try:
        stack.write_config()
        stack.init()
        yield stack
    finally:
        stack.end()


@pytest.fixture(scope="module")
def finished_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostStack]:
    """With the moment `finished` saved."""
    stack = HostStack(tmp_path_factory.mktemp("sweep"))
    try:
        finish(stack)
        yield stack
    finally:
        stack.end()


@pytest.fixture
def small_finished(finished_once: HostStack) -> HostStack:
    """Both cells are sealed on the host, nothing is pulled."""
    finished_once.restore("finished")
    return finished_once
