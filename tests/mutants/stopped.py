"""Mutants of the way in which a box that we stopped ends without being started: each clause alone is taken out."""

from __future__ import annotations

from tests.mutants.model import Mutant, Patch

RESTED = "sweepstack/teardown/box_check.py"
POWER = "sweepstack/operations/power.py"
DOUBT = "tests/unit/teardown/test_rested.py::test_any_one_doubt_keeps_it"
KEPT = "tests/unit/provider/test_rested_box.py::"


def _mutant(name: str, path: str, old: str, new: str, *caught_by: str) -> Mutant:
    return Mutant(f"stopped: {name}", (Patch(path, old, new),), caught_by)


STOPPED = (
    _mutant(
        "a start that the platform tells of since the look is none",
        RESTED,
        "look.started_at != seen.started_at",
        "False",
        f"{DOUBT}[started_at_the_console_since]",
        f"{DOUBT}[started_in_the_seconds_of_our_stop]",
    ),
    _mutant(
        "a platform that tells of no start has made none",
        RESTED,
        "    if seen.started_at is None:\n        raise EvidenceError(UNTOLD)\n",
        "    seen = replace(seen, started_at=seen.started_at or getattr(store.look(rest), 'started_at', None))\n",
        f"{DOUBT}[the_platform_tells_of_no_start]",
    ),
    _mutant(
        "any journal is the one that our stop left",
        RESTED,
        "not rest.speaks_for(facts.native_id, journal)",
        "False",
        f"{DOUBT}[its_runner_was_started_since]",
        f"{DOUBT}[the_stop_was_of_another_box]",
    ),
    _mutant(
        "a look of another journal counts",
        RESTED,
        "look.head != journal.head",
        "False",
        f"{DOUBT}[the_look_read_another_journal]",
        f"{DOUBT}[the_journal_grew_and_the_record_of_the_stop_was_edited]",
    ),
    _mutant(
        "a look of another box counts",
        RESTED,
        "(look.box, look.generation, look.native_id) != (facts.name, facts.generation, facts.native_id)",
        "False",
        f"{DOUBT}[the_look_is_of_another_box]",
        f"{DOUBT}[the_look_is_of_another_native_id]",
        f"{DOUBT}[the_look_is_of_another_generation]",
    ),
    _mutant(
        "a queue that was given more is drained",
        RESTED,
        "look.queued != queued(store, facts.name, facts.generation)",
        "False",
        f"{DOUBT}[the_queue_was_given_a_cell_that_is_verified]",
        f"{DOUBT}[a_cell_was_asked_for_again]",
    ),
    _mutant(
        "a retry gives a queue nothing",
        RESTED,
        "for name, retry in recorded_retries(store).items() if name in cells}",
        "for name, retry in recorded_retries(store).items() if not cells}",
        f"{DOUBT}[a_cell_was_asked_for_again]",
    ),
    _mutant(
        "a look that was edited counts",
        "sweepstack/evidence/store.py",
        "if digest_of_bytes(data) != rest.look:",
        "if False:",
        f"{DOUBT}[the_look_was_edited]",
    ),
    _mutant(
        "a box that is not said to be stopped is read by the record",
        RESTED,
        "or not seen.stopped or seen.journal is not None",
        "or seen.journal is not None",
        f"{DOUBT}[it_is_not_said_to_be_stopped]",
    ),
    _mutant(
        "the record counts for a box that answers",
        RESTED,
        "or not seen.stopped or seen.journal is not None",
        "",
        "tests/unit/teardown/test_rested.py::test_a_box_that_answers_is_read_and_no_record_is_asked",
    ),
    _mutant(
        "what a lease wrote after the receipt is forgiven here, too",
        "sweepstack/teardown/receipt_check.py",
        "seen.kept_at is not None and seen.journal.head != box.journal_head",
        "False",
        f"{DOUBT}[the_receipt_was_made_before_the_look]",
    ),
    _mutant(
        "files that were not read die unseen",
        RESTED,
        "listing=Listing(look.files, look.problem)",
        "listing=Listing()",
        f"{DOUBT}[it_held_files_of_no_cell]",
        f"{DOUBT}[not_all_could_be_counted]",
    ),
    _mutant(
        "the evidence on the box dies with it",
        RESTED,
        "        evidence_on=look.evidence_on,\n",
        "",
        f"{DOUBT}[the_evidence_was_on_it]",
    ),
    _mutant(
        "a look during which the journal grew is one look",
        POWER,
        "seen.journal.head != rest.head",
        "False",
        KEPT + "test_no_look_stands_for_the_box[the_journal_grew_while_it_was_read]",
    ),
    _mutant(
        "a look while the runner was alive is after its end",
        POWER,
        "seen.runner_alive is not False",
        "False",
        KEPT + "test_no_look_stands_for_the_box[its_runner_was_alive]",
    ),
    _mutant(
        "a box that was started while we stopped it is as it was read",
        POWER,
        "or record.started_at != look.started_at",
        "",
        KEPT + "test_no_look_stands_for_the_box[it_was_started_while_it_was_stopped]",
    ),
    _mutant(
        "a box that still stops has been started for the last time",
        "sweepstack/operations/observe.py",
        "started = record.started_at if record.phase is Phase.STOPPED else None",
        "started = record.started_at",
        KEPT + "test_a_box_that_still_stops_is_not_known",
    ),
    _mutant(
        "a drained box that we stopped is started by the next up",
        "sweepstack/provider/resources/run_or_stop.py",
        "journal = seen.journal if seen.journal is not None else _whole_copy(box, state)",
        "journal = seen.journal",
        KEPT + "test_an_up_starts_no_box_that_has_nothing_to_run",
    ),
)
