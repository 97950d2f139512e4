"""Each resource option of the engine on our resources: the gate holds, or `status` names the box that bills.

The rows of the table in docs/resources.md. One box, one cell sealed, one in the middle of its training.
"""

from __future__ import annotations

import pytest

from tests.engine.commands import ok
from tests.engine.harness import Stack
from tests.engine.one_box import Row


def asks_for_more(stack: Stack) -> None:
    """A change that replaces the box."""
    stack.edit_config(lambda sweep: sweep["job"].update(resources={"cpu": 2}))


def test_retain_on_delete_leaves_a_box_that_is_named(row: Row) -> None:
    """The engine forgets without asking: no Delete of ours is called. The box runs on, and the next `up` adopts it."""
    stack = row.stack
    row.program("opts = Options.merge(opts, Options(retain_on_delete=True))", "Identity Volume Box Queue Gate")
    ok(stack.up())
    result = stack.destroy()
    stack.assert_unchanged(row.before, result, state=False)
    assert stack.resources("Box") == [], "the engine's way: it was not asked"
    row.names_what_bills()
    row.plain()
    result = ok(stack.up())
    row.unchanged(result)
    assert len(stack.births()) == 1


@pytest.mark.proof
def test_retain_on_delete_of_the_box_alone_is_held_by_its_gate(row: Row) -> None:
    row.program("opts = Options.merge(opts, Options(retain_on_delete=True))")
    ok(row.stack.up())
    row.holds(row.stack.destroy())


@pytest.mark.proof
def test_protect_is_the_engine_s_own_lock_before_ours(row: Row) -> None:
    row.program("opts = Options.merge(opts, Options(protect=True))", "Box Queue Gate")
    ok(row.stack.up())
    result = row.stack.destroy()
    assert result.rc != 0
    assert "protected" in result.text, str(result)
    row.unchanged(result)
    row.holds(row.stack.destroy("--ignore-protect"))


@pytest.mark.proof
@pytest.mark.parametrize("path", ["resources", "resources.cpu"])
def test_ignore_changes_keeps_an_input_and_opens_nothing(row: Row, path: str) -> None:
    asks_for_more(row.stack)
    row.program(f"opts = Options.merge(opts, Options(ignore_changes=[{path!r}]))")
    row.unchanged(ok(row.stack.up()))
    row.holds(row.stack.destroy())


@pytest.mark.proof
def test_ignore_changes_of_a_clearance_or_an_approval_clears_nothing(row: Row) -> None:
    row.program("opts = Options.merge(opts, Options(ignore_changes=['clearance', 'approval', 'policy', 'live']))")
    row.unchanged(ok(row.stack.up()))
    row.holds(row.stack.destroy())


@pytest.mark.proof
def test_delete_before_replace_that_is_switched_off_rents_no_second_box(row: Row) -> None:
    asks_for_more(row.stack)
    row.program("opts.delete_before_replace = False", "Box Queue Gate")
    row.holds(row.stack.up())
    assert len(row.stack.births()) == 1


@pytest.mark.proof
@pytest.mark.parametrize("path", ["maxPrice", "teardown.paths"])
def test_replace_on_changes_asks_the_same_check(row: Row, path: str) -> None:
    """A change in place becomes a replace: the box's delete comes first, and is refused."""
    change = (
        "props['maxPrice'] = 99.0" if path == "maxPrice" else "props['teardown'] = {**props['teardown'], 'paths': {}}"
    )
    row.program(f"{change}\nopts = Options.merge(opts, Options(replace_on_changes=[{path!r}]))")
    result = row.stack.up()
    assert result.rc != 0, str(result)
    row.unchanged(result)
    assert len(row.stack.births()) == 1


@pytest.mark.proof
def test_custom_timeouts_shorten_the_wait_and_open_nothing(row: Row) -> None:
    row.program(
        "opts = Options.merge(opts, Options(custom_timeouts=CustomTimeouts(create='9s', update='9s', delete='1s')))",
        "Box Queue Gate",
    )
    row.unchanged(ok(row.stack.up()))
    row.holds(row.stack.destroy())


@pytest.mark.proof
def test_an_alias_changes_nothing(row: Row) -> None:
    row.program("opts = Options.merge(opts, Options(aliases=[Alias(name='an-old-name')]))", "Box Queue Gate")
    row.unchanged(ok(row.stack.up("--expect-no-changes")))
    row.holds(row.stack.destroy())


@pytest.mark.proof
def test_depends_on_that_is_taken_away_leaves_the_box_s_own_check(row: Row) -> None:
    row.program("opts.depends_on = []", "Queue Gate")
    row.unchanged(ok(row.stack.up()))
    row.holds(row.stack.destroy())


def test_a_transform_can_neither_clear_a_box_nor_misspell_an_input(row: Row) -> None:
    row.program("props['clearance'] = 'cleared by receipt sha256:00'", "Box Gate")
    row.unchanged(ok(row.stack.up()))
    row.holds(row.stack.destroy())
    row.program("props['maxPrise'] = 1.0")
    result = row.stack.up()
    assert result.rc != 0
    assert "maxPrise" in result.text, str(result)
    assert "has no input of this name" in result.text, str(result)
    row.unchanged(result)
    row.program("props['when_done'] = 'keep'\nprops['teardown'] = {**props['teardown'], 'billsAfter': []}")
    result = row.stack.up()
    assert result.rc != 0
    assert "teardown.billsAfter" in result.text, "named as it is spelled outside"


@pytest.mark.proof
def test_additional_secret_outputs_hide_a_box_and_are_told(row: Row) -> None:
    """The gate is handed plain values; `sweepctl` reads an exported state, says what it can't read, and what bills."""
    stack = row.stack
    row.program("opts = Options.merge(opts, Options(additional_secret_outputs=['nativeId', 'tag']))")
    ok(stack.up())
    ok(stack.up("--refresh"))
    row.unchanged(ok(stack.up()))
    said = stack.sweepctl("status")
    assert said.rc != 0, str(said)
    assert "the state keeps nativeId, tag as a secret" in said.text, str(said)
    assert row.native_id in said.text, str(said)
    row.holds(stack.destroy())
    row.plain()
    for _ in range(2):  # the engine takes the option out, then a refresh writes what Read says
        ok(stack.up())
    assert row.native_id in ok(stack.sweepctl("status")).text
