"""The mutants of the check without a state."""

from __future__ import annotations

from tests.mutants.model import Mutant, Patch

CHECK, END = "sweepstack/teardown/orphan_check.py", "sweepstack/cli/commands/audit.py"
APPROVAL = "sweepstack/teardown/approval.py"
ALONE, REAL = "tests/unit/teardown/test_orphan_check.py::", "tests/unit/cli/test_audit_end.py::"


def _mutant(name: str, path: str, old: str, new: str, *caught_by: str) -> Mutant:
    return Mutant(name, (Patch(path, old, new),), caught_by)


ORPHAN = (
    _mutant(
        "audit --end: what ran on the box does not count",
        CHECK,
        "        if unsafe or seen.journal.head != GENESIS or seen.runner_alive:\n",
        "        if False:\n",
        REAL + "test_a_duplicate_on_which_cells_ran_takes_an_abandonment",
    ),
    _mutant(
        "audit --end: an abandonment goes before the owner",
        CHECK,
        "[self.verdict.held] if self.verdict.held else []",
        "[self.verdict.held] if self.verdict.held and not self.request.reason else []",
        ALONE + "test_its_owner_s_word_counts_while_it_is_held_and_no_longer",
        REAL + "test_while_its_owner_holds_it_no_abandonment_helps",
    ),
    _mutant(
        "audit --end: an idle box of an unknown owner counts as no person's",
        CHECK,
        "        if not box.ours:\n",
        "        if False:\n",
        REAL + "test_an_idle_box_of_an_unknown_owner_may_be_about_to_be_used",
    ),
    _mutant(
        "audit --end: a cell that waits in the queue is none",
        CHECK,
        'found = dict.fromkeys(sorted(self.given or ()), "pending")',
        "found: dict[str, str] = {}",
        ALONE + "test_each_missing_link_keeps_it[cell]",
    ),
    _mutant(
        "audit --end: no record is asked whether something was launched",
        CHECK,
        "*(sign for store in stores for sign in _signs(store, box))",
        "",
        ALONE + "test_a_box_whose_journal_was_wiped_is_not_taken_for_an_idle_one",
    ),
    _mutant(
        "audit --end: the box's own work does not hold it",
        "sweepstack/teardown/ownership.py",
        "max(self.held_until, last + HELD)",
        "self.held_until",
        "tests/unit/teardown/test_ownership.py::"
        "test_it_is_held_for_a_day_after_the_last_sign_of_its_owner_or_of_its_own_work",
        REAL + "test_what_it_did_last_holds_it_too",
    ),
    _mutant(
        "audit --end: what another backend's state has ends here",
        CHECK,
        "    if box.gate:\n",
        "    if False:\n",
        ALONE + "test_what_another_backend_s_state_has_ends_there_whatever_is_said",
        REAL + "test_what_another_backend_holds_ends_there_while_it_answers[me]",
    ),
    _mutant(
        "audit --end: who has the evidence of a sweep that another backend holds owns its boxes",
        "sweepstack/operations/strays/judge.py",
        " and not others)",
        ")",
        REAL + "test_what_a_lost_backend_held_is_given_up_by_its_owner_or_with_their_word",
    ),
    _mutant(
        "audit: a web address is asked that only the box's evidence names",
        "sweepstack/operations/strays/judge.py",
        "                named_by_box.append(store)\n",
        "                stores.append(store)\n",
        REAL + "test_a_lease_in_evidence_that_only_the_box_names_is_not_trusted[box-only]",
    ),
    _mutant(
        "audit --end: a volume that another backend's state has ends here",
        "sweepstack/operations/strays/judge.py",
        "return [self.gate] if self.gate else list(self.mounted)",
        "return list(self.mounted)",
        "tests/unit/cli/test_end_volume.py::test_what_another_backend_holds_ends_there_while_it_answers[s3://states]",
    ),
    _mutant(
        "audit: other projects' states are not asked",
        "sweepstack/operations/strays/known_states.py",
        "list_stacks(root, every_project=True)",
        "[]",
        REAL + "test_a_box_of_another_project_s_state_ends_through_its_gate",
    ),
    _mutant(
        "audit: stack files name no evidence",
        "sweepstack/operations/strays/known_states.py",
        "        _read_evidence(known, marker.stack, place)\n",
        "",
        REAL + "test_a_box_whose_evidence_a_stack_file_names_ends_through_its_gate",
    ),
    _mutant(
        "audit: what an extension that was taken out has rented is forgotten",
        END,
        ", *known.not_here()",
        "",
        "tests/unit/cli/test_audit.py::test_exit_codes",
    ),
    _mutant(
        "audit --end: a decision that is kept nowhere is one",
        END,
        "    if not places:\n",
        "    if False:\n",
        REAL + "test_what_can_be_kept_nowhere_ends_nothing",
    ),
    _mutant(
        "audit --end: the box is not read again after the id was typed",
        END,
        "    found = _checked(finding, known, request, full=True)",
        "    pass",
        REAL + "test_a_copy_that_is_not_proved_any_more_locks[copy]",
    ),
    _mutant(
        "approval: a revoked one on record lends its signatures to the end of what no state has",
        APPROVAL,
        "        if problem := revocation_problem(store, approval, subject.native_id, identity, given_up=given_up):\n",
        '        if subject.name and (problem := ""):\n',
        "tests/extensions/signing/test_policy_people.py::"
        "test_who_signed_a_verified_end_did_not_give_up_a_box_that_no_state_has",
    ),
    _mutant(
        "approval: a revocation of a volume's end does not count",
        APPROVAL,
        '    if not (given_up and given == "now"):\n',
        '    if not (given_up and given == "now") and subject.what == "box":\n',
        "tests/unit/cli/test_store_commands.py::"
        "test_a_revoked_end_of_a_volume_stays_revoked_where_the_evidence_is_away",
    ),
    _mutant(
        "approval: what was revoked on this computer counts only without evidence",
        "sweepstack/teardown/revocation.py",
        "(given_up or one.reason == REVOKED_ALL)",
        "given_up and store is None",
        "tests/unit/cli/test_given_up.py::"
        "test_what_was_revoked_here_stays_so_where_the_evidence_is_put_back_to_an_earlier_day",
    ),
    _mutant(
        "approval: what this computer has on record counts for another account",
        "sweepstack/teardown/abandonment.py",
        "(known.identity, known.account) == (facts.identity, facts.account)",
        "known.identity == facts.identity",
        "tests/unit/cli/test_given_up.py::test_what_this_computer_has_on_record_is_for_one_account",
    ),
    _mutant(
        "receipt: what a worker did after it does not count",
        "sweepstack/teardown/receipt_check.py",
        'return "worker" in entry and entry["event"] in ("runner-stopped", "worker-ended")',
        'return "worker" in entry',
        "tests/unit/teardown/test_other_ways.py::"
        "test_of_a_worker_too_only_its_end_may_follow_the_receipt[cell-started]",
    ),
    _mutant(
        "audit --end: what the policy says of an approval on record is not asked, but for who signed",
        APPROVAL,
        "judge_approval(subject, found, store, lambda: binds, now=now)",
        "judge_approval(subject, found, store, tuple, now=now)",
        "tests/extensions/signing/test_policy_people.py::"
        "test_who_signed_a_verified_end_did_not_give_up_a_box_that_no_state_has",
        "tests/extensions/signing/test_policy_people.py::"
        "test_a_box_that_no_state_has_ends_only_by_an_approval_that_they_signed",
    ),
    _mutant(
        "approval: one that was revoked is cosigned",
        APPROVAL,
        '    if not (given_up and given == "now"):\n',
        '    if not (given_up and given != "before"):\n',
        "tests/unit/cli/test_approve_signed.py::test_a_revoked_abandonment_is_not_signed_again",
        "tests/unit/cli/test_approve_signed.py::test_a_revoked_end_of_a_volume_is_not_signed_again",
    ),
    _mutant(
        "approval: a revoked consent lets a weaker policy follow",
        "sweepstack/teardown/policy_in_force.py",
        "    return None if revocation_problem(store, found, sweep, sweep, given_up=False) else found\n",
        "    return found\n",
        "tests/unit/cli/test_policy.py::test_a_consent_that_waits_is_taken_back_with_all_others",
    ),
    _mutant(
        "receipt: a cell may be dropped after it",
        "sweepstack/teardown/receipt_check.py",
        'ours = {"box-off", ',
        'ours = {"cell-dropped", "box-off", ',
        "tests/unit/teardown/test_other_ways.py::"
        "test_of_a_worker_too_only_its_end_may_follow_the_receipt[cell-dropped]",
    ),
    _mutant(
        "receipt: an object of equal size without a checksum is the one that was verified",
        "sweepstack/evidence/s3/cell_store.py",
        "known[:2] == (found.size, found.stamp)",
        "known[0] == found.size",
        "tests/s3/test_cells.py::test_the_same_bytes_without_a_checksum_are_read_to_be_believed",
    ),
    _mutant(
        "approval: where the list of what was revoked is torn, an abandonment of before counts",
        "sweepstack/teardown/revocation.py",
        "one.what == ABANDONED and one.unread and one.at == approval.at",
        "one.what == ABANDONED and one.at == approval.at",
        "tests/unit/cli/test_given_up.py::"
        "test_only_an_abandonment_given_since_counts_where_what_was_revoked_is_not_known[writable]",
    ),
    _mutant(
        "approval: one key is as many people as it has names",
        "sweepstack/teardown/signatures.py",
        "        elif key in valid.values():\n",
        "        elif False:\n",
        "tests/extensions/signing/test_policy_people.py::test_one_key_and_one_name_are_one_person",
    ),
    _mutant(
        "approval: what the records have hides why the state's does not count",
        "sweepstack/provider/resources/teardown.py",
        "            if verdict.allowed or judgement.approval is None:\n",
        "            if True:\n",
        "tests/unit/provider/test_box_end.py::test_a_clearance_on_record_serves_a_state_that_lost_its_approval",
    ),
    _mutant(
        "audit --end: a receipt that names a box without its launch record is not told",
        CHECK,
        "named = any(b.native_id == box.native_id for b in store.receipt(digest).boxes)",
        "named = False",
        ALONE + "test_each_missing_link_keeps_it[launch]",
    ),
    _mutant(
        "read: a file that its own check wrote to is what was sealed",
        "sweepstack/loaders/load.py",
        "            file.check_unchanged()\n",
        "",
        "tests/unit/evidence/test_command.py::test_a_check_that_changes_the_file_is_found_out",
    ),
)
