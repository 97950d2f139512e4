"""The README's loop, typed exactly as it stands there, with the example sweep."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator

import pytest

from tests.engine.commands import assert_refused, ok
from tests.engine.harness import Stack
from tests.engine.looking import tree


@pytest.fixture(scope="module")
def sweep_a(make_stack: Callable[..., Stack]) -> Iterator[Stack]:
    """The checkout's own sweep-a: its config (less epochs), its job, its data; the state where a new user's lives."""
    stack = make_stack(name="sweep-a", config=False, init=False)
    stack.edit_config(lambda sweep: sweep["cells"]["base"].update(epochs=2))
    stack.evidence = stack.checkout / "results" / "sweep-a"
    del stack.env["PULUMI_BACKEND_URL"]
    yield stack
    stack.close()


def test_the_loop_as_written(sweep_a: Stack) -> None:
    """up → status → destroy refused → pull → verify → approve → up → destroy, with what programs may rely on."""
    stack = sweep_a
    up = stack.run("pulumi", "up", "--stack", "sweep-a", "--yes")
    if up.rc != 0 and "no stack named" in up.text:
        ok(stack.run("pulumi", "stack", "init", "sweep-a"))
        up = stack.run("pulumi", "up", "--stack", "sweep-a", "--yes")
    ok(up)
    assert (stack.evidence / "stack-files" / "Pulumi.sweep-a.yaml").read_text() == stack.config_file.read_text()

    stack.wait_idle()  # until then a cell that has not started may move to the box that is ahead, on a busy machine
    preview = ok(stack.run("pulumi", "preview", "--stack", "sweep-a", "--json"))
    summary = {key: count for key, count in preview.json()["changeSummary"].items() if key not in ("same", "refresh")}
    assert not any(summary.values()), str(preview)

    status = ok(stack.run("sweepctl", "status", "--stack", "sweep-a", "--json")).json()
    assert status["stack"] == "sweep-a"
    assert len(status["cells"]) == 6
    for cell in status["cells"]:
        assert {"name", "state", "attempts", "box", "config_digest"} <= cell.keys(), cell
        assert cell["config_digest"].startswith("sha256:")
    assert len(status["boxes"]) == 2
    for box in status["boxes"]:
        assert {"name", "platform", "native_id", "phase", "price_per_hour", "cost", "age_seconds"} <= box.keys(), box
    assert {gate["box"] for gate in status["gates"]} == {"box-0", "box-1"}
    for gate in status["gates"]:
        assert {"box", "state", "receipt", "reasons"} <= gate.keys(), gate
        assert gate["state"] == "locked"
    assert {"per_hour", "so_far", "idle"} <= status["meter"].keys()
    table = ok(stack.run("sweepctl", "status", env={"PULUMI_STACK": "sweep-a"}))
    assert "\x1b" not in table.text, "NO_COLOR is set"
    for cell in status["cells"]:
        assert cell["name"] in table.text, str(table)

    refused = stack.run("pulumi", "destroy", "--stack", "sweep-a", "--yes")
    assert_refused(refused)
    assert any(cell["name"] in refused.text for cell in status["cells"]), str(refused)

    ok(stack.run("sweepctl", "wait", "--stack", "sweep-a", "done"))
    ok(stack.run("sweepctl", "pull", "--stack", "sweep-a"))
    verify = ok(stack.run("sweepctl", "verify", "--stack", "sweep-a", "--json")).json()
    assert verify["receipt"].startswith("sha256:")
    assert (verify["verified"], verify["total"]) == (6, 6)
    for cell in verify["cells"]:
        assert {"name", "state", "reasons"} <= cell.keys()
        assert cell["state"] == "verified"

    before = stack.config_file.read_text()
    approve = stack.terminal("sweepctl", "approve", "--stack", "sweep-a", answers=[("?", "yes\r")])
    assert approve.rc == 0, str(approve)
    for words in (verify["receipt"][:19], "box-0", "box-1", "destroy"):
        assert words in approve.text, f"{words!r} is not shown\n{approve}"
    written = stack.config()["approval"]
    assert written["receipt"] == verify["receipt"]
    changed = difflib.ndiff(before.splitlines(), stack.config_file.read_text().splitlines())
    assert not [line for line in changed if line.startswith("- ")], "more than the approval was written"

    up = ok(stack.run("pulumi", "up", "--stack", "sweep-a", "--yes", "--diff"))
    assert f"cleared by receipt {verify['receipt']}, 6/6 verified" in up.text, str(up)
    assert "locked" in up.text, str(up)
    gates = ok(stack.run("sweepctl", "status", "--stack", "sweep-a", "--json")).json()["gates"]
    assert {gate["state"] for gate in gates} == {"cleared"}, gates
    assert {gate["receipt"] for gate in gates} == {verify["receipt"]}, gates

    copies = tree(stack.checkout / "results" / "sweep-a" / "cells")
    durable = [tree(path) for path in stack.volume_contents()]
    destroy = stack.terminal("pulumi", "destroy", "--stack", "sweep-a", answers=[("perform this destroy?", "yes\r")])
    assert destroy.rc == 0, str(destroy)
    assert stack.native_ids() == []
    assert tree(stack.checkout / "results" / "sweep-a" / "cells") == copies
    assert [tree(path) for path in stack.volume_contents()] == durable, "the durable tier did not survive"
    assert "results/sweep-a" in destroy.text, f"it does not say what survived and where\n{destroy}"
    assert any(str(path.parent.name) in destroy.text or str(path) in destroy.text for path in stack.volume_contents())

    assert "--preserve-config" in destroy.text, str(destroy)
    ok(stack.run("sweepctl", "verify", "--stack", "sweep-a"))
    ok(stack.run("sweepctl", "results", "--evidence", str(stack.evidence)))
    after = stack.run("sweepctl", "status", "--stack", "sweep-a", "--json")
    assert after.rc == 0, str(after)
    assert after.json()["boxes"] == [] or all(box["phase"] == "gone" for box in after.json()["boxes"])
    ended = [json.loads(p.read_text())["ended_at"] for p in (stack.evidence / "records" / "births").glob("*.json")]
    assert len(ended) == 2
    assert all(ended)


@pytest.mark.proof  # what is declared once all is verified: tests/unit/launch/test_shares.py
def test_the_next_sweep_in_the_same_place(finished: Stack) -> None:
    """After a whole loop `up` rents nothing; with a new cell it rents one box for it, and trains nothing verified."""
    finished.run_loop()
    ok(finished.destroy())
    assert finished.native_ids() == []
    finished.edit_config(lambda sweep: sweep.pop("approval", None))
    assert "no box is rented" in ok(finished.up()).text
    assert finished.native_ids() == []
    finished.edit_config(lambda sweep: sweep["cells"]["grid"].update(seed=[0, 1, 2, 3, 4]))
    ok(finished.up())
    (box,) = [birth["box"] for birth in finished.births() if birth["generation"] == 2]
    finished.wait_for(lambda: "seed4" in finished.sealed(), "the new cell")
    assert finished.started(box) == ["seed4"]
    finished.run_loop()
    ok(finished.destroy())


@pytest.mark.proof  # on a real box: tests/unit/launch/test_launch.py; by `up`: test_stop.py
def test_cells_appended_to_a_live_queue(make_stack: Callable[..., Stack]) -> None:
    """Day 2: a cell more is appended by `pulumi up`; what trains goes on in the same process."""
    stack = make_stack(cells=("seed0", "seed1"), boxes=("box-0",))
    stack.hold(*stack.cells)
    ok(stack.up())
    pid, processes = stack.runner_pid("box-0"), stack.processes()
    stack.edit_config(lambda sweep: sweep["cells"]["grid"].update(seed=[0, 1, 2]))
    ok(stack.up())
    assert stack.runner_pid("box-0") == pid
    assert stack.processes() == processes
    stack.release()
    stack.cells = ("seed0", "seed1", "seed2")
    stack.wait_done()
    assert sorted(stack.started()) == ["seed0", "seed1", "seed2"]


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_queue.py
def test_config_of_a_started_cell(make_stack: Callable[..., Stack]) -> None:
    """The config of a cell that has started can't change: refused with the way out, and it trains on."""
    stack = make_stack(cells=("seed0", "seed1"), boxes=("box-0",))
    stack.hold(*stack.cells)
    ok(stack.up())
    before = stack.snapshot()
    stack.edit_config(lambda sweep: sweep["cells"].update(base={"epochs": 3}))
    result = stack.pulumi("up")
    assert result.rc != 0, str(result)
    assert "new name" in result.text, str(result)
    stack.assert_unchanged(before, result)
