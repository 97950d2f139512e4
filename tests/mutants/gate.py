"""Mutants that survived a look at the gate from outside, and the tests that were written against them."""

from __future__ import annotations

from tests.mutants.model import Mutant, Patch

STORE = "tests/unit/evidence/test_store.py::"
PRUNED = "tests/unit/teardown/test_pruned.py::"
SEARCH = "tests/extensions/search/"
UNCLAIMED = "tests/unit/teardown/test_unclaimed.py::"


def _mutant(name: str, path: str, old: str, new: str, *caught_by: str) -> Mutant:
    return Mutant(name, (Patch(path, old, new),), caught_by)


GATE = (
    _mutant(
        "gate: more unclaimed files than were let go are none",
        "sweepstack/teardown/unclaimed.py",
        "more = found.bytes > waiver.bytes or found.files > waiver.files",
        "more = found.bytes > waiver.bytes",
        UNCLAIMED + "test_more_than_was_let_go_locks_also_where_not_all_could_be_counted[one-more-file]",
    ),
    _mutant(
        "gate: another list of unclaimed files is the one that was let go",
        "sweepstack/teardown/unclaimed.py",
        "    if waiver.listed != found.listed:\n",
        "    if False:\n",
        UNCLAIMED + "test_a_word_lets_go_what_there_was_and_nothing_else",
    ),
    _mutant(
        "gate: a stop wipes the scratch of a failed cell",
        "sweepstack/teardown/stop_check.py",
        'progress.state in ("sealed", "dropped"))\n    return frozenset',
        'progress.state in ("sealed", "dropped", "failed"))\n    return frozenset',
        "tests/unit/teardown/test_stopping.py::test_scratch_of_sealed_cells_is_dispensable_and_nothing_else_is",
    ),
    _mutant(
        "gate: a box that left the program ends after a look at sizes and times",
        "sweepstack/provider/resources/teardown.py",
        "by_records(judge_end(box, state, state.approval, full=True), full=True)",
        "by_records(judge_end(box, state, state.approval, full=True), full=False)",
        "tests/unit/provider/test_box_end.py::test_a_clearance_on_record_serves_a_state_that_lost_its_approval",
    ),
    _mutant(
        "gate: a box ends after a look at sizes and times",
        "sweepstack/provider/resources/teardown.py",
        "by_records(judge_end(box, state, state.approval, full=True), full=True)",
        "by_records(judge_end(box, state, state.approval, full=False), full=True)",
        "tests/unit/provider/test_box_end.py::test_what_is_hurt_after_the_clearance_is_refused",
    ),
    _mutant(
        "gate: the first of two boxes with one tag is adopted",
        "sweepstack/onbox/host/folder_platform.py",
        "        if len(found) > 1:\n",
        "        if False:\n",
        "tests/unit/platforms/test_local_platform.py::test_two_boxes_with_one_tag_are_never_taken_for_one",
    ),
    _mutant(
        "gate: a stop does not look again at what its cells left",
        "sweepstack/operations/power.py",
        '        if pause.verdict.way == "nothing-at-risk":\n',
        "        if False:\n",
        "tests/unit/provider/test_clocks.py::test_what_cells_leave_on_their_way_out_keeps_the_box_from_its_stop",
    ),
    _mutant(
        "gate: the index says another digest than the receipt and is believed",
        "sweepstack/evidence/check_files.py",
        "if known is None or known[2] != sha256 or len(sha256) != 64 or",
        "if known is None or len(sha256) != 64 or",
        STORE + "test_an_index_that_is_not_of_this_receipt_lets_nothing_pass[sha256]",
    ),
    _mutant(
        "gate: the index of another receipt is believed",
        "sweepstack/evidence/file_index.py",
        'if found is None or found["receipt"] != digest:',
        "if found is None:",
        STORE + "test_an_index_that_is_not_of_this_receipt_lets_nothing_pass[receipt]",
    ),
    _mutant(
        "gate: a cell that failed keeps the manifest of an earlier seal",
        "sweepstack/core/journal.py",
        '        failure_class=_text(entry, "class") if "class" in entry else None,\n        manifest=None,\n',
        '        failure_class=_text(entry, "class") if "class" in entry else None,\n',
        "tests/unit/evidence/test_journal.py::test_a_cell_that_failed_has_no_manifest_whatever_stood_before",
    ),
    _mutant(
        "gate: what a person gave up ends under a box that mounts it",
        "sweepstack/teardown/check.py",
        "    if judged.given_up and not against:\n",
        "    if judged.given_up and not judged.problems:\n",
        "tests/unit/operations/volumes/test_ending.py::test_giving_it_up_ends_nothing_under_a_box_or_of_others[seen0]",
    ),
    _mutant(
        "gate: whose account it is is not asked",
        "sweepstack/teardown/check.py",
        "ending.account_problem or ending.unknown()",
        "ending.unknown()",
        "tests/unit/operations/volumes/test_ending.py::test_giving_it_up_ends_nothing_under_a_box_or_of_others[seen1]",
    ),
    _mutant(
        "gate: what keeps it is no reason once the content is proved",
        "sweepstack/teardown/check.py",
        "    return (None, against) if against else (way, [])\n",
        "    return (None, against) if way is None else (way, [])\n",
        "tests/unit/operations/volumes/test_ending.py::test_what_keeps_it[expired]",
    ),
    _mutant(
        "gate: what is not known to be there may be deleted",
        "sweepstack/teardown/check.py",
        "ending.account_problem or ending.unknown()",
        "ending.account_problem",
        "tests/unit/operations/volumes/test_ending.py::test_what_keeps_it[whether-it-is-there-is-not-known]",
    ),
    _mutant(
        "gate: copies that lie on a volume prove what is on it",
        "sweepstack/operations/volumes/end_check.py",
        "*self.seen.unread, *self.seen.copies, ",
        "*self.seen.unread, ",
        "tests/unit/provider/test_volume.py::test_copies_that_lie_on_the_volume_itself_prove_nothing",
    ),
    _mutant(
        "gate: what the records have hides why the state's approval of a volume does not count",
        "sweepstack/provider/resources/volume.py",
        "            if by_record.allowed or state.approval is None:",
        "            if True:",
        "tests/unit/provider/test_volume.py::test_a_word_on_record_that_does_not_count_hides_no_reason_of_the_state_s",
    ),
    # Tests that passed whatever happened: each fails now on what it is there for.
    _mutant(
        "passing tests: a locked box says no reason",
        "sweepstack/provider/resources/teardown.py",
        'because=verdict.way or "; ".join(verdict.reasons),',
        'because=verdict.way or "",',
        "tests/unit/provider/test_box_end.py::test_read_works_without_evidence",
    ),
    _mutant(
        "passing tests: a number is the time of an approval",
        "sweepstack/core/timestamps.py",
        "    if isinstance(value, int | float):\n",
        "    if False:\n",
        "tests/fuzz/test_stack_config.py::test_any_approval_in_the_file",
    ),
    _mutant(
        "passing tests: a receipt that is nonsense lets a box go",
        "sweepstack/teardown/receipt_check.py",
        "        return [str(error)]\n    if receipt.identity",
        "        return []\n    if receipt.identity",
        "tests/unit/teardown/test_cleared.py::test_it_never_raises_for_what_it_finds_on_disk",
    ),
    _mutant(
        "gate: a box that is adopted keeps the clearance of the state that lost it",
        "sweepstack/provider/resources/box.py",
        "store.write_clearance(existing.native_id, None)  # another state",
        "None  # another state",
        "tests/unit/provider/test_box_create.py::test_an_adopted_box_keeps_no_clearance_of_the_state_that_lost_it",
    ),
    _mutant(
        "gate: a box is gone while its processes run",
        "sweepstack/onbox/host/folder_platform.py",
        "phase = Phase.UNKNOWN if alive else Phase.GONE",
        "phase = Phase.GONE",
        "tests/unit/platforms/test_local_platform.py::test_a_box_whose_processes_outlived_its_folder_is_not_gone",
    ),
    _mutant(
        "gate: the copy of before lets a box go whose retry failed",
        "sweepstack/evidence/seal_resolution.py",
        "for one in same if not later else ():",
        "for one in same:",
        "tests/unit/evidence/test_verify.py::test_a_retry_that_fails_on_another_box_locks_that_box",
    ),
    _mutant(
        "gate: an earlier copy counts as verified",
        "sweepstack/evidence/verify.py",
        "        state = copy.standing.state\n",
        '        state = "verified" if earlier else copy.standing.state\n',
        "tests/unit/evidence/test_verify.py::test_the_copy_of_before_stays_the_result_of_a_cell_whose_retry_failed",
    ),
    _mutant(
        "gate: the word of a box settles a cell that it calls pruned",
        "sweepstack/teardown/receipt_check.py",
        "undecided = prune_problems(store, journal, launch, waived)",
        "undecided: list[str] = []",
        PRUNED + "test_the_word_of_a_box_alone_settles_nothing",
        PRUNED + "test_a_log_that_does_not_read_settles_nothing",
    ),
    _mutant(
        "gate: a waiver of a cell that was pruned does not count, once the log is lost",
        "sweepstack/teardown/receipt_check.py",
        "why.startswith(PRUNED) and name not in waived}",
        "why.startswith(PRUNED)}",
        PRUNED + "test_a_persons_waiver_lets_a_box_go_whose_log_is_lost",
    ),
    _mutant(
        "search: a decision of another cell counts",
        "sweepstack/evidence/search_log.py",
        "if (name, why) in lines)",
        "if lines)",
        PRUNED + "test_the_word_of_a_box_alone_settles_nothing",
    ),
    _mutant(
        "search: the log is written over what another process wrote",
        "sweepstack/evidence/search_log.py",
        "over=log.tag)",
        "over=None)",
        SEARCH + "test_crashes.py::test_the_log_only_grows_and_each_line_follows_from_those_before",
    ),
    _mutant(
        "search: a broken chain is not seen",
        "sweepstack/core/search_log.py",
        'if raw.pop("previous", None) != _head(before):',
        'if raw.pop("previous", None) is None:',
        SEARCH + "test_space.py::test_a_log_is_read_as_it_was_written_and_a_changed_byte_is_seen",
    ),
    _mutant(
        "search: a cell that ended is stopped, too",
        "sweepstack/extensions/search/decisions.py",
        "step.cell in log.open and step.cell in found.running",
        "step.cell in log.open",
        SEARCH + "test_rules.py::test_a_cell_that_does_not_run_or_was_brought_back_is_not_stopped",
        SEARCH + "test_rules.py::test_no_cell_is_stopped_that_the_rule_does_not_name",
    ),
    _mutant(
        "search: a rule stops one that a person brought back",
        "sweepstack/extensions/search/rules.py",
        " or cell in log.kept:",
        ":",
        SEARCH + "test_rules.py::test_a_cell_that_does_not_run_or_was_brought_back_is_not_stopped",
    ),
    _mutant(
        "search: more cells are drawn than was reviewed",
        "sweepstack/extensions/search/decisions.py",
        "        and len(log.suggested) < search.at_most.cells\n",
        "",
        SEARCH + "test_crashes.py::test_no_cell_is_drawn_beyond_what_was_reviewed",
    ),
)
