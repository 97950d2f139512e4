"""The bars of a page, by the journal of a box with several workers."""

from __future__ import annotations

from sweepstack.extensions.pages.timeline import attempts
from tests.unit.core.test_workers_of_a_journal import AT, STARTED, journal


def test_a_worker_s_start_cuts_off_no_cell_of_another() -> None:
    found = attempts(
        journal(
            {"event": "runner-started", "worker": "a"},
            {**STARTED, "cell": "c", "worker": "a"},
            {"event": "runner-started", "worker": "b"},
            {**STARTED, "cell": "d", "worker": "b"},
            {"event": "worker-ended", "worker": "b", "proof": "gone", "by": "a"},
            {"event": "cell-sealed", "cell": "c", "attempt": 1, "config_digest": "x", "manifest": "m", "worker": "a"},
        ),
        AT,
        working=True,
    )
    assert {(one.cell, one.what) for one in found} == {("c", "sealed"), ("d", "cut off")}
