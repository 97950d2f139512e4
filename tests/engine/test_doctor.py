"""`sweepctl doctor` with the real engine: when all is well, and after a killed `pulumi up`."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.engine.commands import ok
from tests.engine.harness import Stack


@pytest.mark.proof
def test_a_machine_that_is_well_and_a_lock_that_was_left(make_stack: Callable[..., Stack]) -> None:
    stack = make_stack(cells=("seed0",), boxes=("box-0",))
    well = stack.sweepctl("doctor", "--json")
    verdicts = {check["name"]: check["verdict"] for check in well.json()["checks"]}
    assert "fail" not in verdicts.values(), str(well)
    for name in ("engine", "language host", "plugin", "backend", "clock", "stack file", "engine's lock", "boxes"):
        assert verdicts[name] == "ok", f"{name}\n{well}"
    assert well.rc == 0

    up = stack.start(
        "pulumi", "up", "--stack", "t", "--yes", "--skip-preview", env={"SWEEPSTACK_DRILL_BOOT_SECONDS": "10"}
    )
    stack.wait_for(lambda: stack.native_ids(), "a box that boots")
    up.send_signal(signal.SIGKILL)
    up.wait()
    taken = ok(stack.run("pulumi", "stack", "ls"))
    assert f"note: process {up.pid}, which has ended, locked the state: took away " in taken.text, str(taken)
    assert stack.sweepctl("doctor").rc == 1, "the box that was being made is in no state yet"
    ok(stack.up())
    ok(stack.sweepctl("doctor"))
    stack.close()
