"""Attempts to go round the gate by commands: rows 1–7 and 16–19 of ways-round-the-gate.md.

Also `protect` and `want: gone`. A sweep is in the middle of its work: on each of two boxes one cell is sealed and one
is training. Whatever is typed, the boxes, their tiers, their runners and the state stay as they are, and the person
reads why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from tests.engine.commands import Result, assert_failed, assert_refused, ok
from tests.engine.conftest import Locked
from tests.engine.harness import Stack
from tests.engine.looking import Snapshot, different
from tests.engine.test_preview import everything
from tests.screens import too_long

EXHAUSTIVE = pytest.mark.proof
"""Rows in which the engine takes another way to the same delete: its version is pinned, and so are its ways."""


@pytest.fixture
def locked(locked_once: Locked) -> Iterator[Attack]:
    """The sweep in the middle of its work, with what it looked like before the attack."""
    stack = locked_once.get()
    before = stack.snapshot()
    config = stack.config_file.read_text()
    stack.keep_state()
    try:
        yield Attack(stack, before, locked_once.running)
        stack.config_file.write_text(config)
        stack.put_back_state()
        stack.assert_unchanged(before, state=False)
    except BaseException:
        locked_once.spoil()
        raise


class Attack:
    """A sweep, its looks before the attack, and the cells that are training."""

    def __init__(self, stack: Stack, before: Snapshot, running: tuple[str, ...]) -> None:
        self.stack, self.before, self.running = stack, before, running

    def refused(self, result: Result, *, state: bool = True, cells: bool = True) -> None:
        """Checks the message and that nothing changed."""
        assert_refused(result, self.some_running(result) if cells else ())
        self.stack.assert_unchanged(self.before, result, state=state)

    def some_running(self, result: Result) -> tuple[str, ...]:
        """The engine may stop at the first box that refuses: one training cell at least is named."""
        named = tuple(cell for cell in self.running if cell in result.text)
        assert named, f"none of {self.running} is named\n{result}"
        return named


@EXHAUSTIVE  # with `--continue-on-error`: test_row_1_the_whole_message
@pytest.mark.parametrize(
    "flags",
    [
        tuple(flags.split())
        for flags in ("", "--refresh=false", "--parallel 32", "--exclude-protected", "--remove", "--run-program")
    ],
    ids=lambda flags: " ".join(flags) or "skip-preview",
)
def test_row_1_destroy(locked: Attack, flags: tuple[str, ...]) -> None:
    """`pulumi destroy`, however it is decorated, is refused."""
    locked.refused(locked.stack.destroy(*flags))


@pytest.mark.proof  # as it is typed: test_loop.py
def test_row_1_destroy_plain(locked: Attack) -> None:
    """And with the preview before it, as it is typed. (What follows leaves the preview out: one that fails would hide
    that the provider refuses, too.)"""
    locked.refused(locked.stack.pulumi("destroy"))


def test_row_1_the_whole_message(locked: Attack) -> None:
    """The refusal of a plain destroy names every cell, what dies, what survives, the cost and what to type, in lines
    of 80 columns."""
    result = locked.stack.destroy("--continue-on-error")
    for cell in locked.stack.cells:
        assert cell in result.text, f"{cell} is not named\n{result}"
    for words in (
        "Nothing was deleted",
        "would die",
        "would survive",
        "waiting costs",
        "$1.25/h",
        "$30.00/day",
        "next",
    ):
        assert words in result.text, f"{words!r} is not said\n{result}"
    for box in locked.stack.boxes:
        assert locked.stack.native_id(box) in result.text, str(result)
    shown = result.out.partition("Diagnostics:")[2]  # above it are the engine's own rows
    assert "not verified" in shown, str(result)
    assert not too_long(shown), str(result)
    locked.refused(result)


@pytest.mark.proof  # the engine stops by itself; with what depends on it: test_row_3_destroy_target_dependents
def test_row_2_destroy_target_box(locked: Attack) -> None:
    """`destroy --target BOX` alone is stopped by the engine, since the gate depends on it."""
    result = locked.stack.destroy("--target", locked.stack.urn("Box", "box-0"))
    assert_failed(result, "will be destroyed but was not specified in --target list")
    locked.stack.assert_unchanged(locked.before, result)


def test_row_3_destroy_target_dependents(locked: Attack) -> None:
    """`destroy --target BOX --target-dependents` asks the gate, which refuses."""
    locked.refused(locked.stack.destroy("--target", locked.stack.urn("Box", "box-0"), "--target-dependents"))


@EXHAUSTIVE
def test_row_4_destroy_exclude_gate(locked: Attack) -> None:
    """`destroy --exclude GATE` ends with rc 0 by the engine's ways, and box and data are what they were."""
    gates = [word for box in locked.stack.boxes for word in ("--exclude", locked.stack.urn("Gate", box))]
    result = locked.stack.destroy(*gates)
    locked.stack.assert_unchanged(locked.before, result)


@EXHAUSTIVE
def test_row_5_destroy_exclude_box(locked: Attack) -> None:
    """`destroy --exclude BOX` still asks the other gate, which refuses."""
    locked.refused(locked.stack.destroy("--exclude", locked.stack.urn("Box", "box-0")))


@pytest.mark.parametrize(
    "flags", [(), pytest.param(("--continue-on-error",), marks=EXHAUSTIVE)], ids=["plain", "continue-on-error"]
)
def test_row_6_box_taken_out_of_the_config(locked: Attack, flags: tuple[str, ...]) -> None:
    """A box whose entry is deleted from the stack config is not ended by the next `up`."""
    locked.stack.edit_config(lambda sweep: sweep["boxes"].pop("box-1"))
    result = locked.stack.up(*flags)
    locked.refused(result, state=False)
    assert {r["inputs"]["name"] for r in locked.stack.resources("Box")} == {"box-0", "box-1"}, str(result)


@EXHAUSTIVE
def test_row_6_box_taken_out_targeted(locked: Attack) -> None:
    """The same with `--target BOX --target-dependents`."""
    urn = locked.stack.urn("Box", "box-1")
    locked.stack.edit_config(lambda sweep: sweep["boxes"].pop("box-1"))
    locked.refused(locked.stack.up("--target", urn, "--target-dependents"), state=False)


@pytest.mark.proof  # the same delete: row 6; who may leave: tests/unit/provider/test_identity.py
def test_want_gone_without_a_clearance(locked: Attack) -> None:
    """`want: gone` is the polite way to end a box, and asks the same check."""
    locked.stack.edit_config(lambda sweep: sweep["boxes"].update({"box-1": {"want": "gone"}}))
    result = locked.stack.up()
    locked.refused(result, state=False)
    assert {r["inputs"]["name"] for r in locked.stack.resources("Box")} == {"box-0", "box-1"}, str(result)
    locked.stack.edit_config(lambda sweep: sweep["boxes"].update({"box-1": {"want": "running"}}))
    ok(locked.stack.up())


def test_row_16_replace(locked: Attack) -> None:
    """`up --replace BOX` would end the box for a new one: refused before a second box is rented."""
    locked.refused(locked.stack.up("--replace", locked.stack.urn("Box", "box-0")))


@EXHAUSTIVE
def test_row_16_replace_every_resource_of_a_box(locked: Attack) -> None:
    """`up --replace` of gate, queue and box together is refused too."""
    urns = [locked.stack.urn(kind, "box-0") for kind in ("Gate", "Queue", "Box")]
    locked.refused(locked.stack.up(*[word for urn in urns for word in ("--replace", urn)]))


@EXHAUSTIVE
def test_row_16_taint(locked: Attack) -> None:
    """A box marked with `state taint` is not replaced by the next `up`; `state untaint` is the way back."""
    urn = locked.stack.urn("Box", "box-0")
    locked.stack.edit_in_state("taint", urn)
    try:
        locked.refused(locked.stack.up(), state=False)
    finally:
        locked.stack.edit_in_state("untaint", urn)


def wants_more_cpus(stack: Stack) -> None:
    """A change that replaces the boxes: other resources can't be given to a machine that is rented."""
    stack.edit_config(lambda sweep: sweep["job"]["resources"].update({"cpu": 2}))


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(lambda stack: (), id="15 plain", marks=EXHAUSTIVE),  # the preview: test_row_15_the_preview_says_so
        pytest.param(lambda stack: ("--continue-on-error",), id="15 continue-on-error", marks=EXHAUSTIVE),
        pytest.param(lambda stack: ("--refresh=false",), id="15 refresh=false", marks=EXHAUSTIVE),
        pytest.param(lambda stack: ("--target", stack.urn("Box", "box-0")), id="17 target", marks=EXHAUSTIVE),
        pytest.param(
            lambda stack: ("--target-replace", stack.urn("Box", "box-0")), id="18 target-replace", marks=EXHAUSTIVE
        ),
        pytest.param(lambda stack: ("--exclude", stack.urn("Gate", "box-0")), id="19 exclude gate", marks=EXHAUSTIVE),
    ],
)
def test_rows_15_and_17_to_19_a_replacing_change(locked: Attack, flags: Callable[[Stack], tuple[str, ...]]) -> None:
    """C06: a change that replaces a box is a destroy, and refused, also when the gate is left out of the operation."""
    words = flags(locked.stack)
    wants_more_cpus(locked.stack)
    locked.refused(locked.stack.up(*words))


def test_row_15_the_preview_says_so(locked: Attack) -> None:
    """C06: `pulumi preview` of a replacing change fails already, and names the input that would do it."""
    wants_more_cpus(locked.stack)
    result = locked.stack.pulumi("preview")
    assert "resources" in result.text, str(result)
    locked.refused(result)


@EXHAUSTIVE
def test_row_18_target_replace_without_a_change(locked: Attack) -> None:
    """`--target-replace` needs no changed input to replace a box, and is refused."""
    locked.refused(locked.stack.up("--target-replace", locked.stack.urn("Box", "box-0")))


@EXHAUSTIVE
def test_ignore_protect_and_state_unprotect(locked: Attack) -> None:
    """Protection is not the lock: `--ignore-protect` and `state unprotect` open nothing."""
    stack, urn = locked.stack, locked.stack.urn("Box", "box-0")
    stack.edit_in_state("protect", urn)
    try:
        locked.refused(stack.destroy("--ignore-protect"), state=False)
        stack.edit_in_state("unprotect", urn)
        locked.refused(stack.destroy())
    finally:
        stack.edit_in_state("unprotect", urn)


def test_looking_changes_nothing(locked: Attack) -> None:
    """A preview of one cell more, and `status`, of a sweep at work: not a byte is written, here or on a box, and what
    trains goes on. Without a terminal a preview says once for each box that it is locked."""
    stack = locked.stack
    stack.edit_config(lambda sweep: sweep["cells"].update(add=[{"seed": 9}]))
    before = everything(stack)
    result = ok(stack.pulumi("preview"))
    ok(stack.sweepctl("status"))
    after = everything(stack)
    assert after == before, f"{different(before, after)}\n{result}"
    assert sorted(re.findall(r"box (\S+) LOCKED", result.out)) == sorted(stack.boxes), str(result)
    stack.assert_unchanged(locked.before, result)


@pytest.mark.proof  # an `up` begins with one: row 6 beside it; on the handlers: tests/unit/provider/test_box_end.py
def test_refresh(locked: Attack) -> None:
    """`pulumi refresh` looks and forgets nothing."""
    result = ok(locked.stack.run("pulumi", "refresh", "--yes", "--stack", locked.stack.name, "--non-interactive"))
    locked.stack.assert_unchanged(locked.before, result)


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_dispatch.py
def test_import_into_another_stack(locked: Attack) -> None:
    """`pulumi import` of a box by its id, so that another stack may destroy it, is refused."""
    stack = locked.stack
    ok(stack.run("pulumi", "stack", "init", "thief", "--non-interactive"))
    native_id = stack.native_id("box-0")
    words = ("sweepstack:index:Box", "stolen", native_id, "--stack", "thief", "--yes", "--protect=false")
    result = stack.run("pulumi", "import", *words, "--generate-code=false")
    assert_failed(
        result, f"{native_id} does not say where the box is", f"sweepstack:index:Box stolen PLATFORM:{native_id}"
    )
    stack.run("pulumi", "destroy", "--stack", "thief", "--yes", "--non-interactive")
    stack.assert_unchanged(locked.before, result)
    ok(stack.run("pulumi", "stack", "rm", "thief", "--yes", "--force"))
    ok(stack.run("pulumi", "stack", "select", stack.name))
