"""`want: stopped` and back: what a stop ends and keeps, and that no cell is trained twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.commands import assert_failed, ok
from tests.engine.harness import Stack
from tests.engine.looking import tree


def want(stack: Stack, box: str, what: str) -> None:
    """`boxes.<box>.want: <what>`."""
    stack.edit_config(lambda sweep: sweep["boxes"].update({box: {"want": what}}))


@pytest.fixture
def at_work(make_stack: Callable[..., Stack]) -> Iterator[Stack]:
    """Both boxes train their first cell, and are held there; the others wait."""
    stack = make_stack(cells=tuple(f"seed{n}" for n in range(6)))
    stack.hold(*stack.cells)
    stack.edit_config(lambda sweep: sweep["overrides"]["local"].update(stopped_price_per_hour=0.05))
    ok(stack.up())
    yield stack
    stack.close()


def scratch(stack: Stack, box: str) -> Path:
    """The tier that a stop kills."""
    return stack.box_dir(box) / "scratch"


def phases(stack: Stack) -> dict[str, tuple[str, float]]:
    """What `status` says of the boxes: phase and price."""
    document = stack.sweepctl("status", "--json").json()
    return {box["name"]: (box["phase"], box["price_per_hour"]) for box in document["boxes"]}


def test_a_box_is_stopped_and_comes_back(at_work: Stack) -> None:
    """The preview declares what dies; the started cell waits with its box; the others move; each is trained once."""
    stack = at_work
    kept, waiting = stack.native_id("box-1"), stack.started("box-1")
    given = stack.cells_of("box-1")
    other_runner = stack.runner_pid("box-0")
    assert len(waiting) == 1
    want(stack, "box-1", "stopped")
    before = stack.snapshot()
    preview = ok(stack.pulumi("preview", "--diff"))
    for words in ('"running" => "stopped"', "a stop kills scratch, keeps data, durable", "$0.05/h"):
        assert words in preview.text, f"{words!r} is not shown\n{preview}"
    stack.assert_unchanged(before, preview)
    ok(stack.up())
    assert stack.native_id("box-1") == kept
    assert stack.processes()[kept] == []
    assert phases(stack) == {"box-0": ("running", 1.25), "box-1": ("stopped", 0.05)}
    assert stack.runner_pid("box-0") == other_runner
    status = stack.sweepctl("status", "--json").json()
    held = next(cell for cell in status["cells"] if cell["name"] == waiting[0])
    assert (held["state"], held["box"]) == ("pending", "box-1")
    assert "box-1, which is stopped" in held["note"]
    moved = sorted(set(given) - set(waiting))
    assert moved
    assert set(moved) <= set(stack.cells_of("box-0")), "unstarted cells of the stopped box are no one's"
    assert "unchanged" in ok(stack.pulumi("preview")).text.lower()
    stack.release()
    stack.wait_done(but=waiting)
    want(stack, "box-1", "running")
    ok(stack.up())
    stack.wait_done()
    assert stack.native_id("box-1") == kept
    assert stack.started("box-1") == waiting * 2, "the waiting cell was not resumed, or others ran there too"
    everywhere = stack.started("box-0") + sorted(set(stack.started("box-1")))
    assert sorted(everywhere) == sorted(stack.cells), "a cell ran on two boxes"


@pytest.mark.proof
def test_what_dies_with_a_stop_and_is_nowhere_else_must_be_let_go(at_work: Stack) -> None:
    """Refused in preview and `up`; approval of a destroy allows no stop, nor the other way round; then it stops."""
    stack = at_work
    box = stack.native_id("box-1")
    precious = scratch(stack, "box-1") / "sweep" / stack.started("box-1")[0] / "1" / "cache.bin"
    precious.parent.mkdir(parents=True, exist_ok=True)
    precious.write_bytes(b"x" * 4096)
    want(stack, "box-1", "stopped")
    before = stack.snapshot()
    for refused in (stack.pulumi("preview"), stack.up()):
        assert refused.rc != 0
        for words in ("REFUSED. Nothing was stopped", "cache.bin", "--verb stop data/box-1", "$1.25/h"):
            assert words in refused.text, f"{words!r}\n{refused}"
        stack.assert_unchanged(before, refused)
    ok(stack.sweepctl("give-up", "data/box-1", "--reason", "all of it may go"))
    refused = stack.up()
    assert refused.rc != 0
    assert "the approval allows destroy, not stop" in refused.text, str(refused)
    assert precious.exists()
    word = ok(stack.sweepctl("give-up", "--verb", "stop", "data/box-1", "--reason", "a cache"))
    assert "cache.bin" in word.text
    ok(stack.up())
    assert phases(stack)["box-1"][0] == "stopped"
    assert not any(scratch(stack, "box-1").iterdir())
    kept = tree(stack.platform_root / "boxes" / box)
    refused = stack.destroy()
    assert refused.rc != 0
    assert "the approval allows stop, not destroy" in refused.text, str(refused)
    assert tree(stack.platform_root / "boxes" / box) == kept


@pytest.mark.proof  # judged by one function: tests/unit/teardown/test_stopping.py
def test_a_sealed_cells_scratch_needs_no_word(finished: Stack) -> None:
    """What a sealed cell left on its scratch was declared dispensable."""
    stack = finished
    left = scratch(stack, "box-0") / "sweep" / stack.cells_of("box-0")[0] / "1" / "cache.bin"
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_bytes(b"x" * 4096)
    want(stack, "box-0", "stopped")
    ok(stack.up())
    assert phases(stack)["box-0"][0] == "stopped"
    free = ok(stack.sweepctl("approve", "--verb", "stop", "--box", "box-1"))
    assert "no approval is needed" in free.text
    ok(stack.sweepctl("pull"))  # a stopped box is read
    assert stack.verify()["verified"] == len(stack.cells)


@pytest.mark.proof  # the end of stopped boxes: test_tend.py
def test_both_boxes_stopped_and_destroyed_from_there(finished: Stack) -> None:
    """From "stopped" the way to "nothing bills" is the ordinary one."""
    for box in finished.boxes:
        want(finished, box, "stopped")
    ok(finished.up())
    ok(finished.sweepctl("pull"))
    finished.approve()
    ok(finished.up())
    ok(finished.destroy())
    assert finished.native_ids() == []


@pytest.mark.proof
def test_a_box_stopped_or_started_behind_our_back_is_put_right(finished: Stack) -> None:
    """Wanted running and stopped by somebody, with cells to run: started. Wanted stopped and started: stopped."""
    stack = finished
    account = next(birth["account"] for birth in stack.births() if birth["box"] == "box-0")
    native_id = stack.native_id("box-0")
    imports = "from sweepstack.platforms.local.platform import connect; from sweepstack.onbox.host.platform import Wait"
    turn = f"{imports}; connect()"
    python = str(stack.checkout / ".venv" / "bin" / "python")
    ok(stack.run(python, "-c", f"{turn}.stop({native_id!r}, {account!r})"))
    assert "stopped" in ok(stack.pulumi("preview")).text
    ok(stack.up())
    assert phases(stack)["box-0"][0] == "running"
    want(stack, "box-0", "stopped")
    ok(stack.up())
    ok(stack.run(python, "-c", f"{turn}.start({native_id!r}, {account!r}, wait=Wait(120))"))
    ok(stack.up())
    assert phases(stack)["box-0"][0] == "stopped"


def test_a_stop_rents_nothing(make_stack: Callable[..., Stack]) -> None:
    """A new box that is wanted stopped gets no cell while another runs, and so is not rented. Where all are wanted
    stopped, that is refused before anything is rented, with the way out."""
    stack = make_stack()
    want(stack, "box-1", "stopped")
    assert "box box-1: not rented: no cell" in ok(stack.pulumi("preview")).text
    want(stack, "box-0", "stopped")
    refused = stack.up()
    assert refused.rc != 0
    assert ".want: running, or gone" in refused.text, str(refused)
    assert stack.native_ids() == []


@pytest.mark.proof
def test_one_approval_with_both_verbs(finished: Stack) -> None:
    """A stop of one box and the end of the other, in one change; the stop is no part of the teardown."""
    stack = finished
    (scratch(stack, "box-0") / "notes.txt").write_text("may go")
    ok(stack.sweepctl("pull"))
    digest = stack.verify()["receipt"]
    ok(stack.sweepctl("give-up", "--verb", "stop", "data/box-0", "--reason", "notes"))
    ok(stack.sweepctl("approve", "--box", "box-1", digest))
    assert {(action["box"], action["verb"]) for action in stack.config()["approval"]["actions"]} == {
        ("box-0", "stop"),
        ("box-1", "destroy"),
    }
    kept = stack.native_id("box-0")
    want(stack, "box-0", "stopped")
    want(stack, "box-1", "gone")
    ok(stack.up())
    assert stack.native_ids() == [kept]
    assert phases(stack)["box-0"][0] == "stopped"
    assert not (stack.evidence / "records" / "teardown.json").exists()
    refused = stack.destroy()
    assert_failed(refused, "REFUSED. Nothing was deleted", "the approval allows stop, not destroy")
    assert stack.native_ids() == [kept]
