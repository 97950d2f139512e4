"""Evidence, registry, volume or a box's facts are lost: nothing is destroyed, and all can be ended."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable

import pytest

from tests.engine.commands import Result, assert_refused, ok
from tests.engine.harness import Stack
from tests.engine.test_liveness import WayOut


def refuses(stack: Stack, result: Result, *words: str) -> None:
    """A refusal that names what is in the way, and leaves the boxes alone."""
    assert result.rc != 0, str(result)
    for word in words:
        assert word in result.text, f"{word!r} is not said\n{result}"
    assert len(stack.native_ids()) == 1, str(result)


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_given_up.py, tests/states/test_handlers.py
def test_evidence_deleted(small_finished: Stack) -> None:
    """Without its evidence nothing clears a box; given up by name, it still ends in three commands."""
    shutil.rmtree(small_finished.evidence)
    refuses(small_finished, small_finished.destroy(), str(small_finished.evidence))
    births = small_finished.births
    small_finished.births = list  # type: ignore[method-assign]  # they were in the evidence
    out = WayOut(small_finished)
    out.abandons("box-0")
    out.is_over()
    small_finished.births = births  # type: ignore[method-assign]
    assert len(small_finished.births()) <= 1


@pytest.mark.proof
def test_evidence_deleted_of_a_cleared_sweep(cleared: Stack) -> None:
    """A clearance without the files that it stands on is none."""
    shutil.rmtree(cleared.evidence / "cells")
    before = cleared.snapshot()
    result = cleared.destroy()
    assert_refused(result)
    cleared.assert_unchanged(before, result)
    ok(cleared.sweepctl("pull"))
    ok(cleared.sweepctl("verify"))
    ok(cleared.destroy())
    assert cleared.native_ids() == []


@pytest.mark.proof  # tests/unit/platforms/test_local_platform.py; unknown is not gone: unit/provider/test_box_end.py
def test_another_data_home(cleared: Stack) -> None:
    """Asked from a shell with another XDG_DATA_HOME, the platform has no such box: unknown, never gone."""
    before = cleared.snapshot()
    elsewhere = {"XDG_DATA_HOME": str(cleared.base / "home" / "elsewhere")}
    for command in (cleared.up, cleared.destroy):
        result = command(env=elsewhere)
        assert result.rc != 0, str(result)
        assert "XDG_DATA_HOME" in result.text, str(result)
        cleared.assert_unchanged(before, result, state=False)
    assert len(cleared.resources("Box")) == 2


@pytest.mark.proof  # on the handlers: tests/states/test_handlers.py
def test_registry_lost(small_finished: Stack) -> None:
    """Whose boxes these are is not known any more: refused, with the one command that says so; then as always."""
    (small_finished.platform_root / "registry.json").unlink()
    refused = small_finished.destroy()
    refuses(small_finished, refused, "--also")
    account = small_finished.births()[0]["account"]
    assert account in refused.text, str(refused)
    ok(small_finished.run("python", "-m", "sweepstack.platforms.local", "--also", account, cwd=small_finished.checkout))
    small_finished.run_loop()
    ok(small_finished.destroy())
    assert small_finished.native_ids() == []
    assert len(small_finished.births()) == 1


@pytest.mark.proof  # on the handlers: tests/states/test_handlers.py
def test_box_that_does_not_say_what_it_is(small_finished: Stack) -> None:
    """A box whose own record is damaged is unknown, not gone: no second one is rented, and given up it ends."""
    (small_finished.box_dir("box-0") / "box.json").write_text("{")
    refuses(small_finished, small_finished.destroy(), "box-0")
    small_finished.up()
    assert len(small_finished.native_ids()) == 1
    out = WayOut(small_finished)
    out.abandons("box-0")
    out.is_over()


@pytest.mark.proof  # each local platform: tests/conformance/test_host_boxes.py
def test_folder_of_a_box_deleted_under_its_live_runner(make_stack: Callable[..., Stack]) -> None:
    """Its folder is gone and its processes run on: that is not gone. Given up, it ends with them."""
    stack = make_stack(cells=("seed0", "seed1"), boxes=("box-0",))
    stack.hold(*stack.cells)
    ok(stack.up())
    native_id = stack.native_id("box-0")
    shutil.rmtree(stack.box_dir("box-0"))
    assert stack.processes()[native_id]
    result = stack.destroy()
    assert_refused(result, stack.cells)
    assert "of its processes still run" in result.text, str(result)
    assert stack.processes()[native_id], str(result)
    out = WayOut(stack)
    out.abandons("box-0")
    out.is_over()


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_box_end.py
def test_volume_deleted_by_hand(cleared: Stack) -> None:
    """The durable tier is gone, all was pulled and verified: the sweep ends as if it were there."""
    shutil.rmtree(cleared.platform_root / "volumes")
    (cleared.platform_root / "volumes").mkdir()
    ok(cleared.destroy())
    assert cleared.native_ids() == []


@pytest.mark.proof
def test_volume_deleted_before_anything_was_pulled(small_finished: Stack) -> None:
    """The durable tier is gone with the only sealed copies: the boxes stay locked, and the cells are not verified."""
    shutil.rmtree(small_finished.platform_root / "volumes")
    (small_finished.platform_root / "volumes").mkdir()
    refuses(small_finished, small_finished.destroy(), "seed0")
    small_finished.sweepctl("pull")
    assert small_finished.verify()["verified"] == 0
    out = WayOut(small_finished)
    out.abandons("box-0")
    out.is_over()


@pytest.mark.proof  # on the handlers: tests/states/test_handlers.py
def test_launch_record_lost(small_finished: Stack) -> None:
    """A box that ran cells does not pass for one on which nothing was launched because a record is gone."""
    for record in (small_finished.evidence / "records" / "launches").iterdir():
        record.unlink()
    small_finished.sweepctl("approve", "--box", "box-0", "--reason", "a drill")
    small_finished.up()
    refuses(small_finished, small_finished.destroy())
    out = WayOut(small_finished)
    out.abandons("box-0")
    out.is_over()


@pytest.mark.proof  # on the handlers: tests/states/test_handlers.py
def test_records_damaged(small_finished: Stack) -> None:
    """Damaged records are a reason to refuse, with the file's name, and no obstacle to giving up."""
    record = next((small_finished.evidence / "records" / "launches").iterdir())
    record.write_text(json.dumps({"box": "box-0"}))
    refuses(small_finished, small_finished.destroy(), record.name)
    out = WayOut(small_finished)
    out.abandons("box-0")
    out.is_over()
