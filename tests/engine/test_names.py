"""A stack of before schema 2 lives on: its state has the names of before, and each command takes it as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from sweepstack.core import spelling
from sweepstack.core.resources import FIRST_TYPES, STATES
from tests.engine.commands import Result, assert_refused, ok
from tests.engine.conftest import Locked
from tests.engine.harness import Stack

OURS = "sweepstack:index:"
NO_WORD_OF = ("$", "restart", "resume", "rent", "replace", "pending", "cells of each box: box-0 0")


@pytest.fixture
def locked(locked_once: Locked) -> Iterator[Stack]:
    """A sweep at work: on each box one cell sealed and one held."""
    stack = locked_once.get()
    yield stack
    if old_names(stack):
        locked_once.spoil()


def before_schema_2(stack: Stack) -> None:
    """The state as the version before wrote it: snake_case, and groups by the types that they had first."""

    def edit(resources: list[dict[str, Any]]) -> None:
        for one in resources:
            if one["type"] in STATES:
                for part in ("inputs", "outputs"):
                    one[part] = spelling.inside(one["type"], one[part])
                one["outputs"]["schema"] = 1
        resources[:] = json.loads(with_first_types(json.dumps(resources)))

    stack.edit_state(edit)


def with_first_types(text: str) -> str:
    """The same state, also in each URN of it."""
    for now, before in FIRST_TYPES.items():
        text = re.sub(rf"{now}\b", before, text)
    return text


def first_types(stack: Stack) -> list[str]:
    """The entries of a type that is no more, by themselves or by what they lie in."""
    resources = stack.state()["resources"]
    return [one["urn"] for one in resources if any(before in one["urn"] for before in FIRST_TYPES.values())]


def old_names(stack: Stack) -> list[str]:
    """The entries that have any."""
    ours = [one for one in stack.state()["resources"] if one["type"] in STATES]
    return [one["urn"] for one in ours if spelling.is_old(one["type"], one["inputs"], one["outputs"])]


def seen(stack: Stack) -> Any:
    """What status says of the boxes, without what a clock moves."""
    boxes = ok(stack.sweepctl("status", "--json")).json()["boxes"]
    kept = ("name", "platform", "native_id", "phase", "price_per_hour", "runner", "clearance")
    return [{key: box.get(key) for key in kept} for box in boxes]


def steps(preview: Result) -> list[tuple[str, str]]:
    """What a preview would do: operation and type."""
    found = preview.json()["steps"]
    return sorted(
        (one["op"], one["urn"].split("::")[2].rsplit("$", 1)[-1])
        for one in found
        if one["op"] not in ("same", "refresh")
    )


def row_of(result: Result, kind: str) -> list[str]:
    """What the engine prints of each resource of this type."""
    return [line.strip() for line in result.text.splitlines() if f"{OURS}{kind} " in line]


def test_the_first_up_of_a_sweep_at_work_writes_the_new_names_and_does_nothing_else(locked: Stack) -> None:
    stack = locked
    status = seen(stack)
    started, births = stack.started(), stack.births()
    before_schema_2(stack)
    entries = old_names(stack)
    assert len(entries) == 8
    groups = len(first_types(stack))
    assert groups == 11, "with all that lies in them"
    assert seen(stack) == status
    ok(stack.pulumi("refresh", "--yes", "--skip-preview"))
    assert old_names(stack) == entries, "a refresh writes what is there as it was"
    first = ok(stack.pulumi("preview", "--json"))
    assert {op for op, _ in steps(first)} == {"update"}
    assert len(steps(first)) == len(entries)
    parts = [one["detailedDiff"] for one in first.json()["steps"] if one["op"] == "update"]
    assert {name for part in parts for name in part} == {"schema"}, parts
    shown = ok(stack.pulumi("preview", "--diff"))
    assert "nativeId" not in shown.text, str(shown)
    up = ok(stack.up())
    for kind in ("Identity", "Volume", "Box", "Queue", "Gate"):
        for row in row_of(up, kind):
            assert row.startswith("~ "), f"{row}\n{up}"
            assert not [word for word in NO_WORD_OF if word in row.removeprefix("~").lower()], f"{row}\n{up}"
    assert old_names(stack) == first_types(stack) == []
    assert {one["outputs"]["schema"] for one in stack.state()["resources"] if one["type"] in STATES} == {2}
    ok(stack.up("--expect-no-changes"))
    assert stack.started() == started
    assert stack.births() == births


def test_a_stack_of_before_ends_without_an_up(cleared: Stack) -> None:
    before_schema_2(cleared)
    ok(cleared.sweepctl("status"))
    ok(cleared.destroy())
    assert cleared.native_ids() == []


@pytest.mark.proof  # the same of each golden state: tests/golden
def test_what_a_review_showed_before_is_what_is_brought_up(locked: Stack) -> None:
    stack = locked
    assert_refused(stack.destroy())
    before_schema_2(stack)
    snapshot = stack.snapshot(state=False)
    refused = stack.destroy()
    assert_refused(refused)
    stack.assert_unchanged(snapshot, refused, state=False)


@pytest.mark.proof
def test_a_mixed_state_is_written_whole_by_the_next_up(small_finished: Stack) -> None:
    """An engine that was stopped in mid-update can leave both spellings of one property."""
    stack = small_finished

    def both(resources: list[dict[str, Any]]) -> None:
        for one in resources:
            if one["type"] in STATES:
                for part in ("inputs", "outputs"):
                    one[part] = spelling.inside(one["type"], one[part]) | one[part]

    stack.edit_state(both)
    assert old_names(stack)
    ok(stack.up())
    assert old_names(stack) == []
    assert "native_id" not in json.dumps([one["outputs"] for one in stack.resources("Box")])
    ok(stack.up("--expect-no-changes"))
