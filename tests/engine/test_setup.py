"""`job.setup` on the real engine: once for each version, before any cell; and its failures."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from tests.engine.commands import assert_failed, ok
from tests.engine.harness import Stack


def events(stack: Stack, box: str = "box-0") -> list[str]:
    return [entry["event"] for entry in stack.journal(box)]


@pytest.mark.proof  # unit/launch/test_versions.py, unit/provider/test_queue.py
def test_a_setup_that_fails_starts_nothing_and_the_next_up_tries_the_mended_one(
    make_stack: Callable[..., Stack],
) -> None:
    stack = make_stack("setup", cells=("seed0", "seed1"), boxes=("box-0",))
    stack.edit_config(lambda sweep: sweep["job"].update(setup="echo the first step; echo no such package; exit 3"))
    result = stack.up()
    assert result.rc != 0, str(result)
    for words in ("setup failed", "the first step", "no such package", "Fix job.setup", "pulumi up --stack setup"):
        assert words in result.text, f"{words}\n{result}"
    assert stack.started() == []
    assert len(stack.resources("Box")) == len(stack.resources("Queue")) == 1, "kept in the state: it bills"
    stack.wait_idle()
    stack.edit_config(lambda sweep: sweep["job"].update(setup="echo prepared > prepared.txt; command -v python"))
    stack.edit_config(lambda sweep: sweep["job"].update(run="test -f prepared.txt && " + sweep["job"]["run"]))
    ok(stack.up())
    stack.wait_done()
    stack.wait_idle()
    said = events(stack)
    assert said.count("setup-finished") == 1
    assert said.index("setup-finished") < said.index("cell-started")
    ok(stack.up())
    assert events(stack) == said, "what was prepared is not prepared again"


@pytest.mark.proof  # the copy: tests/unit/evidence/test_box_logs.py; the command: tests/unit/cli/test_commands.py
def test_the_log_of_a_setup_that_failed_outlives_the_box(make_stack: Callable[..., Stack]) -> None:
    """`tend` copies it once the runner has ended; the end of the box copies it, too, where no pull was."""
    stack = make_stack("outlived", cells=("seed0",), boxes=("box-0",))
    stack.edit_config(lambda sweep: sweep["job"].update(setup="echo no such package; exit 3"))
    assert_failed(stack.up(), "setup failed", "no such package")
    stack.wait_idle()
    kept = stack.evidence / "box-logs" / "box-0-g1"
    stack.sweepctl("tend", "--once")
    assert (kept / "runner.log").exists()
    shutil.rmtree(kept.parent)
    shutil.rmtree(stack.evidence / "records" / "box-logs")
    ok(stack.sweepctl("give-up", "data/box-0", "--reason", "a drill"))
    ok(stack.destroy())
    assert stack.native_ids() == []
    said = ok(stack.sweepctl("logs", "--of", "setup", "box-0"))
    assert "no such package" in said.out, str(said)
    assert "from the copy of " in said.err
    assert "failed (commands)" in ok(stack.sweepctl("logs", "--of", "runner")).out


@pytest.mark.proof  # on a real box: tests/unit/launch/test_versions.py
def test_the_time_of_a_setup_is_not_that_of_the_first_step(make_stack: Callable[..., Stack]) -> None:
    """The preview says what it waits for, and shows how far the setup is."""
    stack = make_stack("slow", cells=("seed0",), boxes=("box-0",))
    stack.edit_config(lambda sweep: sweep["job"].update(setup="echo downloading wheels; sleep 4; echo there"))
    result = ok(stack.up())
    assert "setup, " in result.text, str(result)
    assert "downloading wheels" in result.text, str(result)
