"""Cells that are to move to a box that is not there: they stay in their queue, run there, and never run twice."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from sweepstack.core.foreign_cells import elsewhere_text, read_elsewhere
from sweepstack.core.records import Cell, Launch
from sweepstack.core.workdir import collect
from sweepstack.launch.entries import changes, entry
from sweepstack.launch.launch import Launched, launch
from sweepstack.operations.cell_moves import release
from tests.unit.launch.support import Site
from tests.unit.launch.test_launch import given_elsewhere, later
from tests.unit.launch.test_moving import free
from tests.unit.launch.test_versions import change_code, lines

__all__ = ["later"]  # a fixture


def others(*names: str) -> Mapping[str, str]:
    """Cells that the program gives another box, as the queue is told."""
    return read_elsewhere(elsewhere_text(Cell(name=name, params={"word": name})) for name in names)


def at_work(site: Site) -> None:
    """`a` runs and is held; `b` and `c` wait."""
    site.hold("a")
    site.launch("a", "b", "c", slots=1)
    site.until_state("running", "a")


def recorded(site: Site) -> list[str]:
    record = site.record_of_launch()
    return sorted(record.cells) if record else []


def test_they_stay_and_run_when_it_is_their_turn(site: Site) -> None:
    at_work(site)
    before = site.queue()
    done = site.launch("a", slots=1, elsewhere=others("b", "c"))
    assert (done.staying, done.appended, done.removed) == (("b", "c"), (), ())
    assert site.queue() == before
    assert recorded(site) == ["a", "b", "c"]
    site.release()
    site.drained()
    assert site.started() == ["a a", "b b", "c c"]
    assert site.launch("a", slots=1, elsewhere=others("b", "c")) == Launched()


def test_a_runner_that_died_is_started_again_for_them_alone(site: Site) -> None:
    at_work(site)
    os.kill(json.loads(site.runner_pid())["pid"], signal.SIGKILL)
    site.drained()
    site.release()
    assert site.launch(slots=1, elsewhere=others("a", "b", "c")).started_runner
    site.drained()
    assert {name: state for name, state in site.states().items() if state != "sealed"} == {}
    assert site.started().count("b b") == site.started().count("c c") == 1


def test_they_take_new_code_where_they_wait_and_a_pinned_one_keeps_its_own(site: Site) -> None:
    at_work(site)
    old = change_code(site)
    done = site.launch("a", slots=1, elsewhere=others("b", "c"), pins={"c": old, "a": old})
    assert done.appended == ("b",)
    assert lines(site)[-1]["code"] == collect(site.job).digest
    assert lines(site)[-1]["params"] == {"word": "b"}


def test_what_is_verified_does_not_wait_to_run_again(later: Site) -> None:
    digest = Cell(name="b", params={"word": "b"}).config_digest
    record = Launch(
        box="box-2", generation=1, native_id=later.native_id, cells={"b": digest}, code=digest, at=datetime.now(UTC)
    )
    later.store.write_launch(record)
    spec = later.spec("z", elsewhere=others("b"))
    todo = changes(spec, later.store, later.journal, {"b": entry(Cell(name="b", params={"word": "b"}), spec)})
    assert sorted(todo.wanted) == ["z"]
    assert [drop["cell"] for drop in todo.drops] == ["b"]


def test_a_cell_that_is_taken_while_the_code_is_shipped_is_not_given_again(site: Site) -> None:
    """Its line was to be written anew, for the new code: after the tombstone it would run here and there."""
    at_work(site)
    change_code(site)

    def take() -> None:
        assert release(site.store, site.record_of_launch(), site.channel, {"b"}, "taken") == {"b"}
        given_elsewhere(site, "b")

    done = _launched_meanwhile(site, take)
    assert done.appended == ("a", "c")
    assert recorded(site) == ["a", "c"]
    site.release()
    site.drained()
    assert site.started() == ["a a", "c c"]


def test_a_cell_that_is_taken_without_a_tombstone_meanwhile_gets_one(site: Site) -> None:
    """This box was at rest when the other looked: only the record says that the cell has gone."""
    at_work(site)
    change_code(site)

    def take() -> None:
        record = site.record_of_launch()
        assert record is not None
        cells = {name: digest for name, digest in record.cells.items() if name != "b"}
        site.store.write_launch(record.model_copy(update={"cells": cells}))

    done = _launched_meanwhile(site, take)
    assert (done.appended, done.removed) == (("a", "c"), ("b",))
    assert recorded(site) == ["a", "c"]
    site.release()
    site.drained()
    assert site.started() == ["a a", "c c"]


def test_what_is_given_and_its_record_are_written_in_one_go(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between them, a taker would find a record that does not say what the queue does."""
    seen: list[bool] = []
    append, write = site.channel.append_locked, site.store.write_launch

    def appended(*words: Any, **more: Any) -> bool:
        seen.append(free(site.native_id))
        return append(*words, **more)

    monkeypatch.setattr(site.channel, "append_locked", appended)
    monkeypatch.setattr(site.store, "write_launch", lambda *a: (seen.append(free(site.native_id)), write(*a)))
    site.launch("a")
    assert seen == [False, False]


def _launched_meanwhile(site: Site, what: Callable[[], None]) -> Launched:
    """A launch that gives `b` and `c` away; `what` happens when it begins to ship."""
    happened = []

    def progress(text: str) -> None:
        if text.startswith("shipping") and not happened:
            happened.append(text)
            what()

    spec = site.spec("a", slots=1, elsewhere=others("b", "c"))
    done = launch(spec, site.channel, site.store, progress=progress, first_step_seconds=120)
    assert happened
    return done
