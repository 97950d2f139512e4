"""A box is renamed in the stack file: a new box, and the end of the old one, which may be refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.engine.commands import ok
from tests.engine.harness import Stack

CELLS = ("seed0", "seed1", "seed2")


@pytest.fixture
def one_box(make_stack: Callable[..., Stack]) -> Iterator[Stack]:
    """One box that is held in its first cell."""
    stack = make_stack(cells=CELLS, boxes=("box-0",))
    stack.hold(*stack.cells)
    ok(stack.up())
    yield stack
    stack.close()


def rename(stack: Stack, *names: str) -> None:
    """The stack file has these boxes, all wanted running."""
    stack.edit_config(lambda sweep: sweep.update(boxes={name: {"want": "running"} for name in names}))


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_leftover.py
def test_nothing_is_rented_for_the_new_name_of_a_locked_box(one_box: Stack) -> None:
    stack = one_box
    before = stack.snapshot()
    rename(stack, "other")
    for refused in (stack.pulumi("preview"), stack.up()):
        assert refused.rc != 0, str(refused)
        stack.assert_unchanged(before, refused, state=False)
        for words in (
            "box other is not rented: the stack file does not name every box that is there and locked",
            f"box-0: {stack.native_ids()[0]}, locked (",
            "put boxes.box-0 back; other may come beside it",
        ):
            assert words in refused.text, f"{words!r}\n{refused}"
        assert "Traceback" not in refused.text

    # The way that it names: beside it, and then without it.
    rename(stack, "box-0", "other")
    ok(stack.up())
    assert len(stack.native_ids()) == 2
    stack.boxes = ("box-0", "other")
    stack.release()
    stack.wait_done()
    stack.wait_idle()
    ok(stack.sweepctl("pull"))
    ok(stack.sweepctl("finish", "--box", "box-0", str(stack.verify()["receipt"])))
    assert len(stack.native_ids()) == 1
    rename(stack, "other")
    ok(stack.up())
    assert len(stack.native_ids()) == 1


@pytest.mark.proof  # a box that is given up: test_given_up.py
def test_a_box_whose_end_is_approved_may_get_another_name(one_box: Stack) -> None:
    """In one change: the new one is rented, the old one ends."""
    stack = one_box
    (old,) = stack.native_ids()
    ok(stack.sweepctl("give-up", "data/box-0", "--reason", "a drill"))
    rename(stack, "other")
    ok(stack.pulumi("preview"))
    ok(stack.up())
    stack.boxes = ("other",)
    (new,) = stack.native_ids()
    assert new != old
