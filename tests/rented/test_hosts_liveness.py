"""From a broken state to "nothing bills any more" in three commands, with the box behind an sshd.

The rows of tests/engine/test_liveness.py that take another way there, and what is asked of clones, copies and boxes
that vanish: its fixtures, of a host. A destroy that stopped half-way with an approval that expired: test_hosts.py; an
`up` that goes on with what was made: test_hosts_crash.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.commands import ok
from tests.engine.conftest import finish
from tests.engine.looking import tree
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
    training,
)
from tests.engine.test_pull import (  # noqa: F401
    test_copies_survive_rm_rf,
    test_copies_survive_truncation_in_place,
)
from tests.engine.test_two_clones import test_destroy_from_another_clone  # noqa: F401
from tests.rented.host_stack import HostStack

NAMES = ["a b", "it's", 'say "hi"', "-rf", "$HOME `id`", "naïve 名前", "*?[a]", "..hidden", "a..b"]
"""Of files that the job leaves beside its artifacts. One with a line break in it is refused (tests/onbox)."""


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
    with (stack.job / "train.py").open("a") as job:
        job.write(f"for name in {NAMES!r}:\n    (arguments.out / name).write_text(name)\n")
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


@pytest.fixture(scope="module")
def verified_once(finished_once: HostStack) -> HostStack:
    """With the moment `verified` saved."""
    finished_once.restore("finished")
    ok(finished_once.sweepctl("pull"))
    assert finished_once.verify()["verified"] == len(finished_once.cells)
    finished_once.save("verified")
    return finished_once


@pytest.fixture
def verified(verified_once: HostStack) -> HostStack:
    """Both cells are pulled and verified."""
    verified_once.restore("verified")
    return verified_once


@pytest.fixture(scope="module")
def cleared_once(verified_once: HostStack) -> HostStack:
    """With the moment `cleared` saved."""
    verified_once.restore("verified")
    verified_once.approve()
    ok(verified_once.up())
    verified_once.save("cleared")
    return verified_once


@pytest.fixture
def cleared(cleared_once: HostStack) -> HostStack:
    """Approved and cleared: a destroy would go through."""
    cleared_once.restore("cleared")
    return cleared_once


def test_box_killed_before_anything_was_sealed(training: HostStack) -> None:  # noqa: F811
    training.kill_box(training.native_id("box-0"))
    assert training.destroy("--refresh=false").rc != 0
    out = WayOut(training)
    out.abandons("box-0")
    out.is_over()


def test_files_of_any_name_come_home(verified: HostStack) -> None:
    for cell in verified.cells:
        there, here = tree(verified.durable_cell(cell)), tree(verified.evidence / "cells" / cell)
        assert set(NAMES) < set(there)
        assert {name: what.split()[-1] for name, what in here.items()} == {
            name: what.split()[-1] for name, what in there.items()
        }


def test_a_box_that_vanished_after_all_was_verified(verified: HostStack) -> None:
    """`up` makes no box there: no cell is left, and what was verified stays so."""
    verified.vanish("box-0")
    ok(verified.up())
    assert verified.native_ids() == []
    assert [bool(birth["ended_at"]) for birth in verified.births()] == [True]
    again = verified.run("sweepctl", "results", "--stack", verified.name, "--json")
    assert again.rc == 0, str(again)
