"""A cell that the rule of a search stopped settles by the log alone, and everything else of the gate still holds."""

from __future__ import annotations

import shutil

import pytest

from sweepstack.core.search_log import SearchLog, Step
from sweepstack.evidence.search_log import KEY, append, read_search_log
from tests.unit.teardown.deviations import DEVIATIONS, box_in_receipt
from tests.unit.teardown.support import NOWHERE, Situation, waiver

STOPPED = Step(kind="pruned", cell="s0", rule="asha", rung=3, x=3, value=0.4, bound=0.2, among=6, metric="loss")
DECIDED = (Step(kind="suggested", cell="s0", number=0, params={"lr": 0.1}), STOPPED)


def pruned(
    situation: Situation, why: str = STOPPED.why, *, copied: bool = True, log: tuple[Step, ...] = DECIDED
) -> None:
    """A third cell ran on box-0 and was stopped there; the receipt was made after that, and has no word of it."""
    situation.start("s0", config_digest=NOWHERE)
    situation.log("cell-dropped", cell="s0", reason=why)
    if copied:
        situation.copied_unsealed("s0", 2)
    situation.other_receipt(boxes=box_in_receipt(situation, journal_head=situation.journal.head))
    launch = situation.launch()
    situation.store.write_launch(launch.model_copy(update={"dropped": {"s0": why}}))
    append(situation.store.objects, SearchLog(), log)


def test_a_pruned_cell_lets_its_box_go_and_is_in_no_receipt(situation: Situation) -> None:
    pruned(situation)
    verdict = situation.ask()
    assert verdict.allowed, verdict.reasons
    assert (verdict.verified, verdict.total) == (3, 3)
    assert "s0" not in [cell.name for cell in situation.receipt.cells]


def test_its_line_says_pruned_by_the_log_and_not_by_its_box(situation: Situation) -> None:
    """While the launch record still gives it to the box."""
    pruned(situation)
    launch = situation.launch()
    situation.store.write_launch(launch.model_copy(update={"dropped": {}, "cells": {**launch.cells, "s0": NOWHERE}}))
    verdict = situation.ask()
    assert verdict.allowed
    assert ("s0", "pruned", STOPPED.why) in [(line.name, line.state, line.reason) for line in verdict.cells]
    (situation.evidence / KEY).unlink()
    verdict = situation.ask()
    assert not verdict.allowed
    assert [(line.name, line.state) for line in verdict.unsettled] == [("s0", "missing")]


OTHER = Step(kind="suggested", cell="s1", number=1, params={})


@pytest.mark.parametrize(
    "log",
    [
        (),
        DECIDED[:1],
        (DECIDED[0], STOPPED.model_copy(update={"value": 0.3})),
        (DECIDED[0], STOPPED.model_copy(update={"rule": "median"})),
        (DECIDED[0], OTHER, STOPPED.model_copy(update={"cell": "s1"})),
    ],
    ids=["no log", "not decided", "by other numbers", "by another rule", "another cell"],
)
def test_the_word_of_a_box_alone_settles_nothing(situation: Situation, log: tuple[Step, ...]) -> None:
    pruned(situation, log=log)
    assert situation.ask().reasons == [
        "s0 was stopped on this box as pruned, and the log of the search has no such decision"
    ]


def test_a_log_that_does_not_read_settles_nothing(situation: Situation) -> None:
    pruned(situation)
    path = situation.evidence / KEY
    path.write_bytes(path.read_bytes()[:-1])
    verdict = situation.ask()
    assert not verdict.allowed
    assert "damaged" in verdict.reasons[0]


@pytest.mark.parametrize("log", ["no log", "a damaged one"])
def test_a_persons_waiver_lets_a_box_go_whose_log_is_lost(situation: Situation, log: str) -> None:
    pruned(situation)
    path = situation.evidence / KEY
    path.unlink() if log == "no log" else path.write_bytes(path.read_bytes()[:-1])
    assert not situation.ask().allowed
    situation.approve(waive=(waiver("s0"),))
    assert situation.ask().allowed, situation.ask().reasons


def test_what_it_wrote_has_to_be_in_a_copy(situation: Situation) -> None:
    pruned(situation, copied=False)
    assert situation.ask().reasons == [
        "the log of s0 (attempt 2), not sealed, is in no copy: `sweepctl pull` copies it"
    ]


def test_one_that_was_brought_back_later_is_still_one_that_was_decided(situation: Situation) -> None:
    """Its box ends by what was on record when it was stopped there; the roster has the cell again, and so has the
    receipt that its end needs."""
    pruned(situation)
    log = read_search_log(situation.store.objects)
    append(situation.store.objects, log, [Step(kind="kept", cell="s0", by="ann", reason="looks good")])
    assert situation.ask().allowed
    situation.state(roster_digest=NOWHERE)
    assert situation.ask().reasons == ["the roster changed after the receipt"]


@pytest.mark.parametrize("name", sorted(DEVIATIONS))
def test_any_one_thing_wrong_closes_it_with_a_pruned_cell_there(situation: Situation, name: str) -> None:
    pruned(situation)
    assert situation.ask().allowed
    DEVIATIONS[name][0](situation)
    assert not situation.ask().allowed


def test_a_copy_of_a_sealed_cell_is_still_asked_for(situation: Situation) -> None:
    pruned(situation)
    shutil.rmtree(situation.evidence / "cells")
    assert not situation.ask().allowed
