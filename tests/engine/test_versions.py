"""Code changes during a sweep: the change is shown, not mixed, pinned, and run again on request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sweepstack.core.workdir import collect
from tests.engine.commands import ok
from tests.engine.harness import Stack

CELLS = ("seed0", "seed1", "seed2")


def codes(stack: Stack, box: str = "box-0") -> dict[str, str]:
    """cell → the first digits of the code that it was started with last."""
    return {e["cell"]: e["code"][7:13] for e in stack.journal(box) if e["event"] == "cell-started"}


def code(stack: Stack) -> str:
    return collect(stack.job).digest[7:13]


def change_code(stack: Stack) -> tuple[str, str]:
    """A bug fix, say. The first digits before and after."""
    before = code(stack)
    note = stack.job / "note.txt"
    note.write_text((note.read_text() if note.exists() else "") + "another line\n")
    return before, code(stack)


def steps(stack: Stack) -> dict[str, int]:
    summary: dict[str, int] = ok(stack.pulumi("preview", "--json")).json()["changeSummary"]
    return {kind: count for kind, count in summary.items() if kind not in ("same", "refresh")}


@pytest.fixture(scope="module")
def half_done_once(make_stack: Callable[..., Stack]) -> Stack:
    """Two cells sealed with the first code; seed2 failed for good."""
    stack = make_stack("half", cells=CELLS, boxes=("box-0",))
    stack.tell("fail", "seed2")
    stack.up()
    stack.wait_for(lambda: {"seed0", "seed1"} <= stack.sealed(), "two to be sealed")
    stack.wait_idle()
    ok(stack.up())
    stack.save("half")
    return stack


@pytest.fixture
def half_done(half_done_once: Stack) -> Stack:
    half_done_once.restore("half")
    (half_done_once.job / "note.txt").unlink(missing_ok=True)
    (half_done_once.control / "fail-seed2").unlink(missing_ok=True)
    return half_done_once


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_queue.py
def test_new_code_beside_results_of_the_old_is_refused_with_the_ways_out(half_done: Stack) -> None:
    stack = half_done
    before, after = change_code(stack)
    snapshot = stack.snapshot()
    for result in (stack.pulumi("preview"), stack.up()):
        assert result.rc != 0, str(result)
        assert f"code {before}→{after}: 1 pending, 2 sealed with {before}" in result.text, str(result)
        for way in (f"sweepctl retry --stack {stack.name} --all", f'code: "{before}"', "job.mixing: allow"):
            assert way in result.text, str(result)
    stack.assert_unchanged(snapshot, state=False)


@pytest.mark.proof  # on a real box: tests/unit/launch/test_versions.py; the command: tests/unit/cli/test_retry_drop.py
def test_all_run_again_with_the_new_code_when_a_person_says_so(half_done: Stack) -> None:
    stack = half_done
    _, after = change_code(stack)
    result = stack.sweepctl("retry", "--all", "--reason", "the loss was wrong", "--json")
    assert [cell["retry"] for cell in ok(result).json()["cells"]] == [1, 1, 1]
    preview = ok(stack.pulumi("preview"))
    assert "3 to run again (seed0, seed1, seed2)" in preview.text, str(preview)
    ok(stack.up())
    stack.wait_for(lambda: set(codes(stack).values()) == {after}, f"all to start with {after}")
    stack.wait_idle()
    assert codes(stack) == dict.fromkeys(CELLS, after)
    assert steps(stack) == {}, "a retry that was done is no change"
    assert stack.started().count("seed0") == 2
    ok(stack.sweepctl("pull"))
    verified = stack.verify()
    assert {cell["state"] for cell in verified["cells"]} == {"verified"}, verified


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_queue.py
def test_mixing_that_is_allowed_is_said_and_done(half_done: Stack) -> None:
    stack = half_done
    before, after = change_code(stack)
    stack.edit_config(lambda sweep: sweep["job"].update(mixing="allow"))
    words = f"code {before}→{after}: 1 pending, 2 sealed with {before}"
    preview = ok(stack.pulumi("preview", "--diff"))
    assert words in preview.text, str(preview)
    ok(stack.up())
    stack.wait_for(lambda: "seed2" in stack.sealed(), "seed2 to be sealed")
    stack.wait_idle()
    assert codes(stack) == {"seed0": before, "seed1": before, "seed2": after}
    assert steps(stack) == {}
    archived = sorted(path.name[:6] for path in (stack.evidence / "code").iterdir())
    assert archived == sorted([before, after])


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_queue.py
def test_a_new_cell_may_be_pinned_to_the_old_code(half_done: Stack) -> None:
    stack = half_done
    before, after = change_code(stack)

    def pinned(pin: str) -> Callable[[dict[str, Any]], object]:
        cells = {"add": [{"seed": 7, "code": pin}], "drop": {"seed2": "it is broken"}}
        return lambda sweep: sweep["cells"].update(cells)

    stack.edit_config(pinned("00000000"))
    result = stack.pulumi("preview")
    assert result.rc != 0
    assert 'seed7 is pinned to code: "00000000", which is no version of this sweep. Known: ' in result.text, str(result)
    assert before in result.text
    stack.edit_config(pinned(before[:5]))
    ok(stack.up())
    stack.wait_for(lambda: "seed7" in stack.sealed(), "seed7 to be sealed")
    stack.wait_idle()
    assert codes(stack)["seed7"] == before
    assert after not in codes(stack).values()
    assert steps(stack) == {}


@pytest.mark.proof
def test_what_failed_is_tried_again_without_any_other_change(half_done: Stack) -> None:
    """Nothing in the config changes: the record alone makes the next `up` do something."""
    stack = half_done
    assert steps(stack) == {}
    result = ok(stack.sweepctl("retry", "--failed"))
    assert f"pulumi up --stack {stack.name}" in result.out
    assert steps(stack) == {"update": 1}
    ok(stack.up())
    stack.wait_for(lambda: "seed2" in stack.sealed(), "seed2 to be sealed")
    stack.wait_idle()
    assert stack.started().count("seed0") == 1
    assert steps(stack) == {}


@pytest.mark.proof  # on a real box: tests/unit/launch/test_launch.py
def test_a_dropped_cell_is_stopped_by_two_commands(make_stack: Callable[..., Stack]) -> None:
    stack = make_stack("drop", cells=("seed0", "seed1"), boxes=("box-0",))
    stack.hold("seed0")
    ok(stack.up())
    text = stack.config_file.read_text()
    result = ok(stack.sweepctl("drop", "seed0", "--reason", "wrong augmentation"))
    assert f"pulumi up --stack {stack.name}" in result.out
    added = [line for line in stack.config_file.read_text().splitlines() if line not in text.splitlines()]
    assert [line.strip() for line in added] == ['drop: {seed0: "wrong augmentation"}']
    ok(stack.up())
    stack.wait_idle()
    assert stack.sealed() == {"seed1"}
