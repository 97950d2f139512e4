"""Completeness and evidence (A), through pulumi and sweepctl on the real engine.

A01 and A02 are in tests/engine/test_artifacts.py, A09 and C01 in test_approvals.py, C06 in test_by_command.py, where
the sweeps are that they need. A05: tests/unit/core/test_roster.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.commands import Result, assert_refused, ok
from tests.engine.harness import Stack

Make = Callable[..., Stack]


def states(verify: Result) -> dict[str, str]:
    """What `verify --json` says of each cell."""
    return {cell["name"]: cell["state"] for cell in verify.json()["cells"]}


def refused(stack: Stack, *cells: str) -> Result:
    """A destroy that names the cells and changes nothing (what its refresh notes in the state is no change)."""
    before = stack.snapshot(state=False)
    result = stack.destroy()
    assert_refused(result, cells)
    stack.assert_unchanged(before, result, state=False)
    return result


@pytest.mark.proof
def test_a03_yesterday_s_success_is_not_today_s(make_stack: Make) -> None:
    """The log says that all is done, of an earlier queue: running while something runs, dead when its runner is."""
    stack = make_stack(cells=("seed0",), boxes=("box-0",))
    ok(stack.up())
    stack.wait_done()
    stack.wait_idle()
    with (stack.box_dir("box-0") / "data/sweep/runner.log").open("a") as log:
        log.write("QUEUE DONE\n")
    stack.edit_config(lambda sweep: sweep["cells"]["grid"].update({"seed": [0, 1, 2]}))
    stack.cells = ("seed0", "seed1", "seed2")
    stack.hold("seed1")
    ok(stack.up())
    stack.wait_for(lambda: "seed1" in stack.started(), "seed1 to start")
    document = stack.sweepctl("status", "--json").json()
    assert {cell["name"]: cell["state"] for cell in document["cells"]} == {
        "seed0": "sealed",
        "seed1": "running",
        "seed2": "pending",
    }
    refused(stack, "seed1", "seed2")
    stack.kill_box(stack.native_id("box-0"))
    document = stack.sweepctl("status", "--json").json()
    assert {cell["name"]: cell["state"] for cell in document["cells"]}["seed1"] == "failed"
    refused(stack, "seed1", "seed2")


def test_a04_all_done_and_one_cell_never_ran(make_stack: Make) -> None:
    """A box went away in the middle, every surviving log is clean: the roster says which cell is missing."""
    stack = make_stack()
    stack.hold(*stack.cells)
    ok(stack.up())
    missing = stack.cells_of("box-1")[-1]
    stack.release(but=(missing,))
    stack.wait_done(but=(missing,))
    stack.sweepctl("pull")
    stack.vanish("box-1")
    stack.wait_idle()
    stack.sweepctl("pull")
    result = stack.sweepctl("verify", "--json")
    assert result.rc == 1, str(result)
    found = states(result)
    assert found.pop(missing) != "verified"
    assert set(found.values()) == {"verified"}
    stack.release()
    ok(stack.up())  # the other box, which has room for it, takes exactly that cell over, with the identical config
    stack.wait_done()
    stack.wait_idle()
    assert stack.started("box-0")[-1:] == [missing]
    assert stack.native_ids() == [stack.native_id("box-0")]
    ok(stack.sweepctl("pull"))
    ok(stack.sweepctl("verify"))


@pytest.mark.proof  # on the handlers: tests/unit/launch/test_live_files.py; with the runner: test_box.py
def test_b07_script_changed_under_a_live_run(make_stack: Make) -> None:
    """New code never touches what runs: the live files stay, and appended cells take the new ones from beside them."""
    stack = make_stack(cells=("seed0", "seed1"), boxes=("box-0",))
    stack.hold(*stack.cells)
    ok(stack.up())
    pid = stack.runner_pid("box-0")
    live = live_code(stack)
    (stack.job / "train.py").write_text((stack.job / "train.py").read_text() + "\n# changed\n")
    stack.up()  # refused or not: it must not touch what runs
    assert {path: data for path, data in live_code(stack).items() if path in live} == live
    assert stack.runner_pid("box-0") == pid
    stack.edit_config(lambda sweep: sweep["cells"]["grid"]["seed"].append(2))
    stack.edit_config(lambda sweep: sweep["job"].update({"mixing": "allow"}))
    ok(stack.up())
    assert {path: data for path, data in live_code(stack).items() if path in live} == live
    assert stack.runner_pid("box-0") == pid
    assert "seed2" in stack.cells_of("box-0")
    stack.release()
    stack.cells = (*stack.cells, "seed2")
    stack.wait_done()


def live_code(stack: Stack) -> dict[Path, bytes]:
    """The shipped files on the box, all versions, and the runner's own."""
    home = stack.box_dir("box-0") / "data" / "sweep"
    found = [path for folder in ("code", "runner-*") for path in home.glob(f"{folder}/**/*.py")]
    return {path: path.read_bytes() for path in found}
