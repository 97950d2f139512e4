"""The preview shows the cells of each box; an `up` after all cells are verified rents nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.engine.commands import ok
from tests.engine.harness import Stack


@pytest.mark.proof  # tests/unit/launch/test_shares.py, unit/provider/test_sharing.py
def test_boxes_without_cells_are_not_rented_nor_any_once_all_is_verified(make_stack: Callable[..., Stack]) -> None:
    """Two cells on three boxes: one each, no third box. Both boxes are gone and all is verified: `up` makes none."""
    stack = make_stack(cells=("seed0", "seed1"), boxes=("box-0", "box-1", "box-2"))
    preview = ok(stack.pulumi("preview"))
    assert "cells of each box: box-0 1, box-1 1" in preview.text, str(preview)
    assert "box box-2: not rented: no cell" in preview.text, str(preview)
    ok(stack.up())
    assert len(stack.native_ids()) == 2
    assert [len(stack.cells_of(box)) for box in ("box-0", "box-1")] == [1, 1]
    stack.boxes = ("box-0", "box-1")
    stack.wait_done()
    stack.wait_idle()
    ok(stack.sweepctl("pull"))
    assert stack.verify()["verified"] == 2
    stack.vanish("box-0")
    stack.vanish("box-1")
    result = ok(stack.up())
    assert "all 2 cells are verified, and no box is rented" in result.text, str(result)
    assert stack.native_ids() == []
    assert not any(stack.resources(kind) for kind in ("Box", "Queue", "Gate", "Volume"))
    assert all(birth["ended_at"] for birth in stack.births()), stack.births()
    assert ok(stack.sweepctl("status", "--json")).json()["next"] == ["sweepctl results --stack t"]
