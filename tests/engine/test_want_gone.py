"""`want: gone` ends one box of a sweep through the stack config, while the other runs on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.engine.commands import assert_refused, ok
from tests.engine.harness import Stack


@pytest.fixture
def half_done(make_stack: Callable[..., Stack]) -> Iterator[Stack]:
    """box-1 has finished its cells, and they were pulled; box-0 is training."""
    stack = make_stack()
    stack.hold(*stack.cells)
    ok(stack.up())
    running = stack.cells_of("box-0")
    stack.release(but=running)
    stack.wait_done(but=running)
    ok(stack.sweepctl("pull"))
    yield stack
    stack.close()


def want(stack: Stack, box: str, what: str) -> None:
    """`boxes.<box>.want: <what>`."""
    stack.edit_config(lambda sweep: sweep["boxes"].update({box: {"want": what}}))


@pytest.mark.proof
def test_one_box_goes_while_the_other_trains(half_done: Stack) -> None:
    """Approved for box-1 alone: it goes, box-0's runner is the same process, and its cells are trained once."""
    stack = half_done
    runner, kept = stack.runner_pid("box-0"), stack.native_id("box-0")
    stack.approve("--box", "box-1")
    ok(stack.up())
    want(stack, "box-1", "gone")
    preview = ok(stack.pulumi("preview", "--diff"))
    count = len(stack.cells_of("box-1"))
    for words in ("dies", "survives", f"{count} of {count}"):
        assert words in preview.text, f"{words!r} is not shown\n{preview}"
    ok(stack.up())
    assert stack.native_ids() == [kept]
    assert stack.runner_pid("box-0") == runner
    assert stack.processes()[kept]
    ok(stack.up())
    ok(stack.sweepctl("status"))
    assert stack.native_ids() == [kept]
    stack.release()
    stack.wait_done()
    assert stack.started("box-0") == stack.cells_of("box-0")
    assert len(stack.cells_of("box-0")) == 4 - count, "cells of the box that went were trained again"
    stack.wait_idle()
    ok(stack.sweepctl("pull"))
    document = stack.verify()
    assert (document["verified"], document["total"]) == (4, 4), document
    ok(stack.sweepctl("approve", document["receipt"]))
    ok(stack.up())
    ok(stack.destroy())
    assert stack.native_ids() == []


@pytest.mark.proof  # one box's end, by another way
def test_new_cells_after_a_box_has_gone(half_done: Stack) -> None:
    """The box that went leaves no open teardown behind: the other box takes new cells."""
    stack = half_done
    stack.approve("--box", "box-1")
    ok(stack.up())
    want(stack, "box-1", "gone")
    ok(stack.up())
    stack.edit_config(lambda sweep: sweep["cells"]["grid"].update(seed=[0, 1, 2, 3, 4]))
    ok(stack.up())
    stack.release()
    stack.cells = (*stack.cells, "seed4")
    stack.wait_done()


@pytest.mark.proof  # with a stop beside it: test_stop.py
def test_approval_and_want_gone_in_one_change(half_done: Stack) -> None:
    """A pull request carries the approval and the delete: one `up` does both, as its preview has shown."""
    stack = half_done
    kept = stack.native_id("box-0")
    stack.approve("--box", "box-1")
    want(stack, "box-1", "gone")
    ok(stack.pulumi("preview", "--diff"))
    ok(stack.up())
    assert stack.native_ids() == [kept]


@pytest.mark.proof  # the next generation of a box: tests/unit/provider/test_box_create.py
def test_a_box_comes_back(half_done: Stack) -> None:
    """`want: running` again rents its next generation for what waits, which trains nothing that is verified."""
    stack = half_done
    verified = stack.cells_of("box-1")
    stack.approve("--box", "box-1")
    ok(stack.up())
    want(stack, "box-1", "gone")
    ok(stack.up())
    stack.edit_config(lambda sweep: sweep.pop("approval"))
    want(stack, "box-1", "running")
    ok(stack.up())
    assert len(stack.native_ids()) == 2
    assert not set(stack.started("box-1")) & set(verified)


@pytest.mark.proof  # one box's end, by another way
def test_both_boxes_gone(verified: Stack) -> None:
    """All boxes may go this way; the sweep stays, and `destroy` ends the rest."""
    verified.approve()
    ok(verified.up())
    for box in verified.boxes:
        want(verified, box, "gone")
    ok(verified.up())
    assert verified.native_ids() == []
    ok(verified.sweepctl("status"))
    ok(verified.destroy())


@pytest.mark.proof  # refused: test_by_command.py; the preview: tests/unit/provider/test_identity.py
def test_gone_and_locked_is_refused_in_the_preview_too(half_done: Stack) -> None:
    """`want: gone` for the training box: `up` is refused, and the preview shows what would be lost."""
    want(half_done, "box-0", "gone")
    before = half_done.snapshot()
    preview = half_done.pulumi("preview", "--diff")
    assert "locked" in preview.text.lower(), str(preview)
    half_done.assert_unchanged(before, preview)
    assert_refused(half_done.up(), half_done.cells_of("box-0")[:1])
