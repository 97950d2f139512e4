"""Questions about copies, and a vanished box, with the box behind an sshd.

The rows of tests/engine/test_liveness.py: test_hosts_again.py. A destroy that stopped half-way with an approval that
expired: test_hosts.py. An `up` that goes on with what was made: test_hosts_crash.py.
"""

from __future__ import annotations

import pytest

from tests.engine.commands import ok
from tests.engine.looking import tree
from tests.engine.test_pull import test_copies_survive_rm_rf  # noqa: F401
from tests.rented.host_stack import NAMES, HostStack

pytestmark = pytest.mark.proof
"""Names by both channels: tests/unit/channel/test_contract.py; a pull by ssh: tests/unit/launch/test_launch_ssh.py;
what is declared once all is verified: tests/unit/launch/test_shares.py."""


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
