"""Verbs on a sweep that the program declares: what they write into the stack file, into the evidence, and nowhere."""

from __future__ import annotations

from datetime import date

import pytest
import yaml  # type: ignore[import-untyped]

from sweepstack.config.declared import declared_path, text_of, write_declared
from sweepstack.config.edit.stack_file import PLACED, SWEEP_KEY
from sweepstack.config.stack_config import StackConfig
from sweepstack.launch.retries import recorded_retries
from sweepstack.profiles import dated_facts, dates
from tests.unit.cli.support import STACK, World

BARE = "encryptionsalt: v1:abc  # the engine's\n"
LATER = date(2027, 6, 2)
"""Seven months after the stamps of the profile of `local`."""


def declare(world: World) -> str:
    """From now on the program declares the sweep, and the stack file has none. Returns what was declared."""
    text = text_of(SWEEP_KEY, world.file.sweep())
    assert write_declared(world.file.path, text)
    world.file.path.write_text(BARE)
    return text


def own(world: World) -> dict[str, object]:
    """What the stack file itself has of the sweep."""
    return dict(yaml.safe_load(world.file.path.read_text())["config"][SWEEP_KEY])


def test_a_placement_stands_in_the_stack_file_and_goes_without_a_trace(world: World) -> None:
    text = declare(world)
    shown = world.run("place", "--show", "--json")
    assert (shown.code, shown.json["changed"], world.file.path.read_text()) == (0, False, BARE)
    placed = world.run("place", "--json")
    assert (placed.code, placed.json["changed"]) == (0, True)
    assert own(world) == {"placement": placed.json["placement"]}
    assert PLACED in world.file.path.read_text()
    config = StackConfig.load(world.root, STACK)
    assert config.placement is not None
    assert (config.placement.platform, set(config.raw)) == ("local", {"placement"})
    assert world.run("place").code == 0, "a second time, beside the first"
    assert declared_path(world.file.path).read_text() == text
    assert world.run("place", "clear").code == 0
    assert world.file.path.read_text() == BARE


def test_a_retry_is_recorded_and_needs_no_line_anywhere(world: World) -> None:
    box = world.add()
    box.launch("lr0.1", "lr0.3", "lr0.9")
    box.seal("lr0.1")
    box.fail("lr0.3")
    text = declare(world)
    asked = world.run("retry", "lr0.1", "lr0.3", "--reason", "a bug", "--json")
    assert asked.code == 0, asked
    assert asked.json["next"] == [f"pulumi up --stack {STACK}"]
    assert {name: one.retry for name, one in recorded_retries(world.store).items()} == {"lr0.1": 1, "lr0.3": 1}
    assert (world.file.path.read_text(), declared_path(world.file.path).read_text()) == (BARE, text)
    assert "to run again, as was asked for: lr0.1, lr0.3" in " ".join(world.run("status").out.split())


def test_an_old_fact_is_accepted_in_the_stack_file(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dated_facts, "_OUR_OWN", ())
    monkeypatch.setattr(dates, "today", lambda: LATER)
    world.full()
    text = declare(world)
    assert world.run("pull").code == 0
    receipt = world.run("verify", "--json").json["receipt"]
    refused = world.run("approve", receipt)
    assert (refused.code, world.file.path.read_text()) == (1, BARE)
    assert "fact/local.tiers fact/local.verbs" in " ".join(refused.err.split())
    given = world.run("give-up", receipt, "fact/local.tiers", "fact/local.verbs", "--json")
    assert (given.code, given.json["accepted_facts"]) == (0, ["local.tiers", "local.verbs"])
    assert own(world).keys() == {"accept_facts", "approval"}
    config = StackConfig.load(world.root, STACK)
    assert {name: one.accepted for name, one in config.accept_facts.items()} == {
        "local.tiers": LATER,
        "local.verbs": LATER,
    }
    assert "old fact  local.verbs" in world.run("approve", receipt).out, "the stack file accepts it from now on"
    assert world.run("revoke").code == 0
    assert own(world).keys() == {"accept_facts"}, "the approval alone goes"
    assert declared_path(world.file.path).read_text() == text


def test_what_changes_the_sweep_names_the_line_for_the_program(world: World) -> None:
    world.full()
    text = declare(world)
    refused = world.run("drop", "lr0.1", "--reason", "bad")
    assert refused.code == 2
    said = " ".join(refused.err.split())
    assert "Write into the program, and bring it up: cells: {drop: {lr0.1: bad}}" in said
    assert (world.file.path.read_text(), declared_path(world.file.path).read_text()) == (BARE, text)
