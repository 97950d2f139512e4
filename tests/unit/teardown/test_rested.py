"""A box that we stopped ends by what was read of it before, and by nothing less: each doubt alone starts it again."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sweepstack.core.journal import LastLook, Rest
from sweepstack.launch.retries import Retry, add
from sweepstack.onbox.agent.channel import Listing
from sweepstack.teardown.box_check import queued
from sweepstack.teardown.refusal import next_commands, to_be_read
from tests.unit.teardown.deviations import DEVIATIONS, box_in_receipt
from tests.unit.teardown.support import FIRST, NOW, OTHERS, Situation

STARTED = NOW - timedelta(hours=5)
STOPPED = NOW - timedelta(hours=2)
LOOK = "records/looks/box-0-g1.json"
LARGE = "data/job/model.bin"


def rests(s: Situation, **changes: Any) -> None:
    """We stopped box-0, whose queue was drained, after one look at it, and its platform tells of no later start."""
    known: dict[str, Any] = {
        "box": "box-0",
        "generation": 1,
        "native_id": "local-box-01",
        "head": s.journal.head,
        "started_at": STARTED,
        "queued": queued(s.store, "box-0", 1),
        "at": STOPPED,
        "files": s.listing.files if s.listing is not None else (),
    }
    look = LastLook.model_validate(known | changes)
    names = {"box": "box-0", "generation": 1, "native_id": "local-box-01", "at": STOPPED}
    s.store.write_rest(Rest.model_validate({**names, "head": s.journal.head, "look": s.store.write_look(look)}))
    s.readable, s.stopped, s.started_at = False, True, STARTED


@pytest.fixture
def rested(situation: Situation) -> Situation:
    rests(situation)
    return situation


@pytest.mark.parametrize("full", [True, False])
def test_it_ends_without_being_started(rested: Situation, full: bool) -> None:
    verdict = rested.ask(full=full)
    assert (verdict.allowed, verdict.way, verdict.reasons) == (True, "cleared", [])
    assert (verdict.silent, verdict.rests, verdict.unsettled) == ("", False, [])
    assert (verdict.verified, verdict.total) == (3, 3)


def test_it_needs_an_approval_as_any_box_does(rested: Situation) -> None:
    rested.approval = None
    assert rested.ask().reasons == ["not approved"]


CLOSES: dict[str, tuple[Callable[[Situation], None], str]] = {}


def closes(reason: str) -> Callable[[Callable[[Situation], None]], Callable[[Situation], None]]:
    def register(change: Callable[[Situation], None]) -> Callable[[Situation], None]:
        CLOSES[change.__name__] = (change, reason)
        return change

    return register


def edit(s: Situation, path: str, **changes: Any) -> None:
    """A record is edited where it lies."""
    file = s.evidence / path
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def grown(s: Situation, event: str = "box-off") -> None:
    """Lines that came after the look, as a copy of the journal has them: of a kind that the gate forgives elsewhere."""
    s.log(event, native="stop")
    s.store.write_journal("box-0", 1, s.lines)


@closes("was started at 2026-11-22 08:00 UTC, and that start was not looked at")
def started_at_the_console_since(s: Situation) -> None:
    s.started_at = NOW - timedelta(hours=1)


@closes("that start was not looked at")
def started_in_the_seconds_of_our_stop(s: Situation) -> None:
    s.started_at = STARTED + timedelta(seconds=1)


@closes("that start was not looked at")
def started_earlier_than_it_was(s: Situation) -> None:
    s.started_at = STARTED - timedelta(seconds=1)


@closes("does not tell when it last started it")
def the_platform_tells_of_no_start(s: Situation) -> None:
    s.started_at = None


@closes("the box's journal could not be read")
def it_is_not_said_to_be_stopped(s: Situation) -> None:
    s.stopped = False


@closes("sweepstack did not stop it")
def no_stop_of_ours_is_on_record(s: Situation) -> None:
    (s.evidence / "records/rests/box-0-g1.json").unlink(missing_ok=True)


@closes("something was started there since")
def its_runner_was_started_since(s: Situation) -> None:
    edit(s, "records/rests/box-0-g1.json", head=None)


@closes("sweepstack did not stop it")
def the_stop_was_of_another_box(s: Situation) -> None:
    edit(s, "records/rests/box-0-g1.json", native_id="local-other8")


@closes("was not read in one look")
def the_stop_is_not_proved_or_of_an_older_version(s: Situation) -> None:
    edit(s, "records/rests/box-0-g1.json", look=None)


@closes("was edited or damaged")
def the_look_was_edited(s: Situation) -> None:
    with contextlib.suppress(OSError):
        edit(s, LOOK, started_at="2026-11-22T08:00:00Z", files=[])


@closes("what was read before the stop is not known")
def the_look_was_removed(s: Situation) -> None:
    (s.evidence / LOOK).unlink(missing_ok=True)


@closes("the look on record is of box-1")
def the_look_is_of_another_box(s: Situation) -> None:
    rests(s, box="box-1")
    (s.evidence / "records/looks/box-1-g1.json").rename(s.evidence / LOOK)


@closes("the look on record is of box-0 (local-other9)")
def the_look_is_of_another_native_id(s: Situation) -> None:
    rests(s, native_id="local-other9")


@closes("the look on record is of box-0")
def the_look_is_of_another_generation(s: Situation) -> None:
    rests(s, generation=7)
    (s.evidence / "records/looks/box-0-g7.json").rename(s.evidence / LOOK)


@closes("read another journal than the copy")
def the_look_read_another_journal(s: Situation) -> None:
    rests(s, head="0" * 64)


@closes("something was started there since its journal was copied")
def the_journal_grew(s: Situation) -> None:
    grown(s)


@closes("read another journal than the copy")
def the_journal_grew_and_the_record_of_the_stop_was_edited(s: Situation) -> None:
    grown(s)
    edit(s, "records/rests/box-0-g1.json", head=s.journal.head)


@closes("its journal went on after the receipt")
def the_receipt_was_made_before_the_look(s: Situation) -> None:
    grown(s)
    rests(s)


@closes("its queue, or a retry of its cells, was changed after it was read")
def the_queue_was_given_a_cell_that_is_verified(s: Situation) -> None:
    s.relaunch(**{OTHERS: s.receipt.cells[-1].config_digest})


@closes("its queue, or a retry of its cells")
def a_cell_was_asked_for_again(s: Situation) -> None:
    add(s.store, {FIRST: Retry(retry=1, salt=0, by="ada", at=NOW)})


@closes("the evidence lies on this very box")
def the_evidence_was_on_it(s: Situation) -> None:
    rests(s, evidence_on=("data", "data/evidence"))


@closes("on it belong to no sealed cell and would die: data/job/model.bin")
def it_held_files_of_no_cell(s: Situation) -> None:
    rests(s, files=((LARGE, 200_000_000, 1.0),))


@closes("could not all be counted")
def not_all_could_be_counted(s: Situation) -> None:
    rests(s, problem="more than 200,000 files")


@pytest.mark.parametrize("name", CLOSES)
def test_any_one_doubt_keeps_it(rested: Situation, name: str) -> None:
    change, reason = CLOSES[name]
    change(rested)
    for full in (True, False):
        verdict = rested.ask(full=full)
        assert (verdict.allowed, verdict.way) == (False, None)
        assert reason in "; ".join(verdict.reasons), verdict.reasons


LIVE = {"journal_went_on", "a_cell_was_tried_again", "the_journal_was_cut", "the_journal_is_empty"}
LIVE |= {"the_journal_is_unreadable"}
"""What is on the box itself, which can't change while it stands still: a start would tell."""


@pytest.mark.proof  # test_any_one_doubt_keeps_it, and test_cleared.py for a box that answers
@pytest.mark.parametrize("name", sorted(DEVIATIONS.keys() - LIVE))
def test_what_keeps_a_box_that_runs_keeps_it_too(rested: Situation, name: str) -> None:
    DEVIATIONS[name][0](rested)
    assert not rested.ask().allowed


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@example(chosen=["an_abandonment_written_in", "cell_missing_in_the_receipt"])
@given(chosen=st.lists(st.sampled_from([*CLOSES, *(DEVIATIONS.keys() - LIVE)]), min_size=1, max_size=5, unique=True))
def test_no_row_of_doubts_opens_it(template: Path, chosen: list[str]) -> None:
    """Of the last one, since a later look may mend what came before it: that is kept by the reason alone."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(template, Path(folder, "sweep"), symlinks=True)
        situation = Situation.of(Path(folder, "sweep"))
        rests(situation)
        for name in chosen:
            with contextlib.suppress(Exception):  # what an earlier one has removed can't be hurt again
                (CLOSES[name] if name in CLOSES else DEVIATIONS[name])[0](situation)
        verdict = situation.ask()
        assert not verdict.allowed, (chosen, verdict)


def test_a_new_receipt_of_the_kept_journal_is_enough(rested: Situation) -> None:
    """`sweepctl verify` reads the copy: no start, and no box."""
    grown(rested)
    rests(rested)
    assert not rested.ask().allowed
    rested.other_receipt(boxes=box_in_receipt(rested, journal_head=rested.journal.head))
    assert rested.ask().allowed


def test_files_that_were_let_go_by_the_list_that_was_read_then_are_gone(rested: Situation) -> None:
    rests(rested, files=((LARGE, 200_000_000, 1.0),))
    found = rested.ask().unclaimed
    assert found.files == 1
    assert found.listed
    assert found == type(found)(1, 200_000_000, ((LARGE, 200_000_000),), listed=found.listed)


def test_a_box_that_answers_is_read_and_no_record_is_asked(rested: Situation) -> None:
    rested.readable, rested.listing = True, Listing(((LARGE, 200_000_000, 1.0),))
    assert "belong to no sealed cell" in rested.ask().reasons[0]


def test_the_way_out_of_one_that_must_be_started(rested: Situation) -> None:
    rested.started_at = None
    verdict = rested.ask()
    assert verdict.rests
    rows = next_commands(rested.facts, verdict, stack="s")
    assert rows[0] == ("next", to_be_read("s", ["box-0"]))
    assert rows[0][1].startswith("pulumi up --stack s && sweepctl finish --stack s    (after `when_done: keep`, and ")
    assert rows[-1][0] == "give up"
