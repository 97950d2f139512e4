"""Rows of tests/engine again, with the box behind an sshd."""

from __future__ import annotations

import pytest

from tests.engine.commands import assert_refused
from tests.engine.test_approvals import test_cell_retried_after_the_approval  # noqa: F401
from tests.engine.test_liveness import (  # noqa: F401
    WayOut,
    test_a_failed_cell_is_waived,
    test_abandoning_a_box_in_the_middle_of_its_work,
    test_answer_of_the_create_lost,
    test_box_deleted_by_hand,
    test_box_killed_and_up_resumes,
    test_create_failed_before_the_queue_existed,
    test_journal_replaced_by_nothing,
    test_journal_unreadable,
    test_wrong_settings_given_up,
)
from tests.engine.test_pull import test_copies_survive_truncation_in_place  # noqa: F401
from tests.engine.test_two_clones import test_destroy_from_another_clone  # noqa: F401
from tests.rented.host_stack import HostStack

pytestmark = pytest.mark.proof


def test_box_killed_before_anything_was_sealed(training: HostStack) -> None:
    training.kill_box(training.native_id("box-0"))
    assert_refused(training.destroy("--refresh=false"), ["seed0", "seed1"])
    out = WayOut(training)
    out.abandons("box-0")
    out.is_over()
