"""The mutants: each breaks one promise with a few characters, and names the tests that must notice."""

from __future__ import annotations

from tests.mutants.cluster import CLUSTER
from tests.mutants.facts import FACTS
from tests.mutants.gate import GATE
from tests.mutants.lease import LEASE
from tests.mutants.model import Mutant, Patch
from tests.mutants.orphan import ORPHAN
from tests.mutants.policy import POLICY
from tests.mutants.rented import MORE
from tests.mutants.stopped import STOPPED

WRONG_READ = "tests/conformance/test_faults.py::test_a_read_that_goes_wrong_never_says_gone_of_what_bills"
UNPROVED = "tests/unit/provider/test_unproved_end.py::"
UNPROVED += "test_an_end_on_record_stays_one_where_the_same_account_shows_the_box_nowhere"

MUTANTS = (
    *GATE,
    *LEASE,
    *FACTS,
    *MORE,
    *CLUSTER,
    *ORPHAN,
    *POLICY,
    *STOPPED,
    Mutant(
        "call a pod gone without the older interface and without its bill",
        (
            Patch(
                "sweepstack/platforms/runpod/api.py",
                "            self.bill.must_have_ended(native_id)\n            older = {}\n",
                "            older = {}\n",
            ),
        ),
        ("tests/unit/platforms/test_runpod_retired.py::test_an_end_is_what_the_bill_shows_and_nothing_less",),
    ),
    Mutant(
        "hold a record's end for true though another account was asked",
        (Patch("sweepstack/operations/observe.py", "isinstance(error, Unproved) and error.same_account", "True"),),
        (f"{UNPROVED}[False-True]",),
    ),
    Mutant(
        "hold a box for gone that was never proved so",
        (Patch("sweepstack/operations/observe.py", "birth.ended_at is not None and isinstance", "isinstance"),),
        (f"{UNPROVED}[True-False]",),
    ),
    Mutant(
        "end a volume without asking the sweeps that used it",
        (
            Patch(
                "sweepstack/operations/volumes/end_check.py",
                'problems += [f"{use.stack}: {problem}" for problem in use_problems(use, facts.native_id, full=full)]',
                "pass",
            ),
        ),
        (
            "tests/unit/operations/volumes/test_ending.py::test_what_keeps_it[a-copy-is-gone]",
            "tests/unit/provider/test_volume.py::test_a_sweep_without_a_verified_copy_keeps_it",
        ),
    ),
    Mutant(
        "close the records of a box that the state does not name",
        (
            Patch(
                "sweepstack/provider/resources/teardown.py", "birth.native_id not in (None, facts.native_id):", "False:"
            ),
            Patch("sweepstack/teardown/close_box.py", " and birth.native_id in (None, native_id)", ""),
        ),
        (
            "tests/unit/provider/test_box_end.py::test_a_state_with_another_id_closes_no_records",
            "tests/engine/test_by_state.py::test_state_edited_to_another_id",
        ),
    ),
    Mutant(
        "end a volume under a box",
        (
            Patch(
                "sweepstack/operations/volumes/end_check.py",
                "        return list(self.seen.alive)\n",
                "        return []\n",
            ),
        ),
        ("tests/unit/operations/volumes/test_ending.py::test_what_keeps_it[a-box-that-may-still-mount-it]",),
    ),
    Mutant(
        "skip the receipt's digest",
        (Patch("sweepstack/evidence/store.py", "if digest_of_bytes(data) != digest:", "if False:"),),
        ("tests/engine/test_approvals.py::test_receipt_edited",),
    ),
    Mutant(
        "skip the files' digests",
        (
            Patch(
                "sweepstack/evidence/cell_store.py", "file_sha256(self.folder(cell) / file.path) == file.sha256", "True"
            ),
        ),
        ("tests/unit/provider/test_box_end.py::test_clearing_reads_every_file_again",),
    ),
    Mutant(
        "trust the clearance flag in the state",
        (
            Patch(
                "sweepstack/provider/resources/teardown.py",
                "    if not judgement.verdict.allowed:\n        facts = ",
                '    flag = getattr(state, "clearance", "cleared")\n'
                '    if not judgement.verdict.allowed and not flag.startswith("cleared"):\n        facts = ',
            ),
        ),
        (
            "tests/unit/provider/test_box_end.py::test_a_state_that_only_looks_cleared_is_refused",
            "tests/engine/test_by_state.py::test_state_edited_to_cleared",
        ),
    ),
    Mutant(
        "ignore the expiry",
        (
            Patch(
                "sweepstack/teardown/approval.py",
                "    if now >= approval.ends and not begun(",
                "    if False and not begun(",
            ),
        ),
        ("tests/engine/test_approvals.py::test_approval_expired",),
    ),
    Mutant(
        "gone on any error",
        (
            Patch(
                "sweepstack/operations/observe.py",
                "        return Observation(Existence.UNKNOWN, note=of_box(str(error), box.name)), None",
                "        return Observation(Existence.GONE), None",
            ),
        ),
        ("tests/unit/provider/test_box_end.py::test_read_takes_no_trouble_for_gone",),
    ),
    Mutant(
        "take a rented host that has nothing of the box any more for its end",
        (
            Patch(
                "sweepstack/operations/observe.py",
                "    if record.phase is Phase.GONE and rented and has_address(platform.name):\n",
                "    if False:\n",
            ),
        ),
        (
            "tests/unit/provider/test_emptied_host.py::test_an_audit_names_it",
            "tests/unit/provider/test_emptied_host.py::test_a_status_searches_for_it",
        ),
    ),
    Mutant(
        "seal beside a process that can't be ended",
        (Patch("sweepstack/onbox/runner/ending.py", "            if remains.alive:\n", "            if False:\n"),),
        ("tests/onbox/test_artifacts.py::test_a_cell_whose_processes_can_not_be_ended_is_not_sealed",),
    ),
    Mutant(
        "start a cell with code that was edited on the box",
        (
            Patch(
                "sweepstack/onbox/runner/setup.py", "        if not self._is_its_code(entry):\n", "        if False:\n"
            ),
        ),
        ("tests/unit/launch/test_code_changed.py::test_no_cell_runs_it_and_the_next_up_ships_it_again",),
    ),
    Mutant(
        "seal before the copy is read back",
        (
            Patch(
                "sweepstack/onbox/runner/sealing.py",
                'if file_sha256(partial / file["path"]) != file["sha256"]:',
                "if False:",
            ),
        ),
        ("tests/onbox/test_killed.py::test_copy_that_reads_back_differently_is_not_sealed[change0]",),
    ),
    Mutant(
        "adopt by name alone",
        (
            Patch(
                "sweepstack/onbox/host/folder_platform.py",
                'if record.tag in (tag, "")]',
                'if record.tag.split("-")[-3:-1] == tag.split("-")[-3:-1] or not record.tag]',
            ),
        ),
        ("tests/engine/test_crash.py::test_two_sweeps_with_the_same_box_names",),
    ),
    Mutant(
        "a check's exit code alone counts",
        (
            Patch(
                "sweepstack/loaders/command.py",
                '    if not isinstance(said, dict) or not isinstance(said.get("ok"), bool):',
                "    if code == 0:\n        return Content()\n"
                '    if not isinstance(said, dict) or not isinstance(said.get("ok"), bool):',
            ),
        ),
        ("tests/unit/evidence/test_command.py::test_an_exit_code_is_no_answer",),
    ),
    Mutant(
        "a check that says ok and fails is believed",  # in a worker process
        (
            Patch(
                "sweepstack/loaders/command.py",
                "    if code != 0:\n        raise NoAnswer(",
                "    if False:\n        raise NoAnswer(",
            ),
        ),
        ("tests/unit/evidence/test_command.py::test_what_counts_as_an_answer[ok-and-exit-3]",),
    ),
    Mutant(
        "an artifact that is not there is no failure",  # in the runner
        (
            Patch(
                "sweepstack/onbox/runner/sealing.py",
                "        if gone:\n            missing",
                "        if False:\n            missing",
            ),
        ),
        ("tests/engine/test_artifacts.py::test_a02_job_left_something_else_behind",),
    ),
    Mutant(
        "nobody looks for NaN in an npz",
        (
            Patch(
                "sweepstack/loaders/numpy_files.py",
                "return Region(start, end, name, crc, header.format, header.big_endian, header.length)",
                "return Region(start, end, name, crc, None, header.big_endian, header.length)",
            ),
        ),
        ("tests/unit/evidence/test_numpy_files.py::test_a_nan_in_an_npz_is_found",),
    ),
    Mutant(
        "a ragged row of a CSV passes",
        (
            Patch("sweepstack/loaders/csv_file.py", "if len(row) != len(header):", "if False:"),
            Patch("sweepstack/loaders/csv_file.py", "zip(columns, row, strict=True)", "zip(columns, row)"),
        ),
        ("tests/unit/evidence/test_csv_file.py::test_a_ragged_row_is_refused",),
    ),
    Mutant(
        "what no reader could tell is verified",
        (Patch("sweepstack/evidence/verify.py", '"sealed" if untold else "suspect"', '"suspect"'),),
        ("tests/unit/evidence/test_verify.py::test_a_hung_reader_is_killed_and_its_file_is_neither_good_nor_damaged",),
    ),
    Mutant(
        "ignore how much is unclaimed",
        (
            Patch(
                "sweepstack/teardown/unclaimed.py",
                "    if found.bytes <= ABOVE and not found.artifacts:\n",
                "    if True:\n",
            ),
        ),
        (
            "tests/unit/teardown/test_unclaimed.py::test_much_of_it_locks_a_box_that_would_be_cleared",
            "tests/engine/test_unclaimed.py::test_much_of_it_needs_a_word_by_name",
        ),
    ),
    Mutant(
        "an approval of one box's unclaimed bytes counts for another",
        (
            Patch(
                "sweepstack/teardown/box_check.py",
                "if w.box == facts.name and w.native_id == facts.native_id)\n        reason",
                "if w)\n        reason",
            ),
        ),
        ("tests/unit/teardown/test_unclaimed.py::test_a_word_for_one_box_is_none_for_another",),
    ),
    Mutant(
        "send a create again after a lost answer",
        (
            Patch(
                "sweepstack/platforms/common/http_client.py",
                "except Unreachable as error:\n            lost += 1\n            if writes or lost >= ATTEMPTS",
                "except PlatformError as error:\n            lost += 1\n            if lost >= ATTEMPTS",
            ),
        ),
        (
            "tests/unit/platforms/test_vastai_platform.py::test_a_lost_answer_that_stays_lost_is_an_unknown_outcome",
            "tests/unit/platforms/test_vastai_api.py::test_a_create_whose_outcome_is_unknown_is_sent_once[reply0]",
            "tests/unit/platforms/test_http_client.py::test_a_read_survives_what_a_write_does_not_repeat[502]",
        ),
    ),
    Mutant(
        "a rented box is gone when one list lacks it",
        (
            Patch(
                "sweepstack/platforms/vastai/session.py",
                "        row = self.client.instance(identifier, self.deadline)\n        if row is None:\n",
                "        row = None\n        if row is None:\n",
            ),
        ),
        ("tests/unit/platforms/test_vastai_platform.py::test_gone_is_absent_from_the_list_and_null_and_nothing_less",),
    ),
    Mutant(
        "leave out whose key it is",
        (Patch("sweepstack/platforms/vastai/session.py", "if account and account != at_hand:", "if False:"),),
        ("tests/unit/platforms/test_vastai_platform.py::test_another_account_s_box_is_not_touched",),
    ),
    Mutant(
        "adopt a box by a part of its tag",
        (
            Patch(
                "sweepstack/platforms/vastai/session.py",
                'if row.get("label") == tag]',
                'if str(row.get("label")).startswith(tag)]',
            ),
            Patch(
                "sweepstack/platforms/vastai/session.py",
                'listed = {row["id"]: row for row in self.client.labelled([tag], self.deadline, age=age)}',
                "listed = dict(self.client.instances(self.deadline, age=age))",
            ),
        ),
        ("tests/unit/platforms/test_vastai_platform.py::test_a_box_with_the_tag_is_adopted_and_nothing_is_rented",),
    ),
    Mutant(
        "adopt a box with another volume than was asked for",
        (Patch("sweepstack/platforms/vastai/volumes.py", "if has == set(wanted):", "if True:"),),
        (
            "tests/unit/platforms/test_vastai_platform.py::"
            "test_a_box_with_the_tag_and_its_volume_is_adopted_also_where_the_list_lags",
        ),
    ),
    Mutant(
        "take a volume for one whose name ends like it",
        (
            Patch(
                "sweepstack/operations/volumes/end_check.py",
                "if (ours := box_layout.volume_of(record.tag)) is not None and ours[1] == name",
                'if record.tag.endswith(f"-volume-{name}")',
            ),
        ),
        ("tests/unit/provider/test_market_volume.py::test_a_volume_is_found_by_its_whole_name",),
    ),
    Mutant(
        "leave a start queued that would bill later",
        (
            Patch(
                "sweepstack/platforms/vastai/power.py",
                "            own.client.stop(identifier, own.deadline)\n            why = prove_stopped",
                "            why = prove_stopped",
            ),
        ),
        ("tests/unit/platforms/test_vastai_platform.py::test_a_queued_start_is_taken_back",),
    ),
    Mutant(
        "RunPod: retry a create",
        (
            Patch(
                "sweepstack/platforms/runpod/api.py",
                '        answer = self.http.write("POST", "/v2/pods", body, deadline=deadline)\n',
                "        def post() -> HttpAnswer:\n"
                '            return self.http.write("POST", "/v2/pods", body, deadline=deadline)\n\n'
                "        try:\n            answer = post()\n"
                "        except OutcomeUnknown:\n            answer = post()\n",
            ),
        ),
        ("tests/conformance/test_platforms.py::test_a_lost_answer_is_looked_up_and_adopted[runpod]",),
    ),
    Mutant(
        "call a box gone that no look has shown",
        (
            Patch(
                "sweepstack/platforms/common/box_session.py",
                "seen = replace(self.gone(native_id, account), phase=Phase.UNKNOWN)",
                "seen = self.gone(native_id, account)",
            ),
        ),
        ("tests/unit/platforms/test_renting.py::test_a_box_that_was_never_looked_at_is_not_called_gone",),
    ),
    Mutant(
        "RunPod: gone on 5xx",
        (
            Patch(
                "sweepstack/platforms/runpod/api.py",
                "        except StillListed as error:\n            if not self.is_ending(native_id):\n",
                "        except Unreachable as error:\n            return self.gone(native_id, account)\n"
                "            if not self.is_ending(native_id):\n",
            ),
        ),
        (f"{WRONG_READ}[runpod-error_before-read]",),
    ),
    Mutant(
        "RunPod: gone on an empty list",
        (
            Patch(
                "sweepstack/platforms/runpod/api.py",
                '        answer = self.http.read(f"/v2/pods/{native_id}")\n',
                "        if not self.pods().by_id:\n            return None\n"
                '        answer = self.http.read(f"/v2/pods/{native_id}")\n',
            ),
        ),
        ("tests/unit/platforms/test_runpod_api.py::test_nothing_less_is_gone[send-send1]",),
    ),
    Mutant(
        "RunPod: adopt by name alone",
        (
            Patch(
                "sweepstack/platforms/runpod/states.py",
                'return marker == tag or (marker is None and pod.get("name") == tag)',
                'return marker == tag or pod.get("name") == tag',
            ),
        ),
        ("tests/unit/platforms/test_runpod_states.py::test_a_name_alone_is_nobodys",),
    ),
    Mutant(
        "RunPod: skip the account check",
        (Patch("sweepstack/platforms/runpod/api.py", "    if account != at_hand:\n", "    if False:\n"),),
        ("tests/conformance/test_platforms.py::test_another_accounts_box_is_not_touched[runpod]",),
    ),
    Mutant(
        "vast.ai: gone on 5xx",
        (
            Patch(
                "sweepstack/platforms/vastai/platform.py",
                "        row = session.row(box_number(native_id), age=paced(READ_AGE_SECONDS))\n"
                "        if row is not None:\n            return session.record(row)\n",
                "        try:\n            row = session.row(box_number(native_id), age=paced(READ_AGE_SECONDS))\n"
                "        except Unreachable:\n            row = None\n"
                "        if row is not None:\n            return session.record(row)\n",
            ),
        ),
        (f"{WRONG_READ}[vastai-error_before-read]",),
    ),
    Mutant(
        "vast.ai: gone on an empty list",
        (
            Patch(
                "sweepstack/platforms/vastai/session.py",
                "        row = self.client.instance(identifier, self.deadline)\n        if row is None:\n",
                "        row = None\n        if row is None:\n",
            ),
        ),
        (f"{WRONG_READ}[vastai-stale_list-read]",),
    ),
    Mutant(
        "vast.ai: adopt by name alone",
        (
            Patch(
                "sweepstack/platforms/vastai/session.py",
                'if row.get("label") == tag]',
                'if str(row.get("label")).split("-")[-3:] == tag.split("-")[-3:]]',
            ),
            Patch(
                "sweepstack/platforms/vastai/session.py",
                'listed = {row["id"]: row for row in self.client.labelled([tag], self.deadline, age=age)}',
                "listed = dict(self.client.instances(self.deadline, age=age))",
            ),
        ),
        ("tests/conformance/test_platforms.py::test_a_box_of_another_sweep_is_not_ours_by_its_name[vastai]",),
    ),
    Mutant(
        "vast.ai: skip the account check",
        (
            Patch(
                "sweepstack/platforms/vastai/session.py",
                "        if account and account != at_hand:\n",
                "        if False:\n",
            ),
        ),
        ("tests/conformance/test_platforms.py::test_another_accounts_box_is_not_touched[vastai]",),
    ),
    Mutant(
        "believe a list that lacks what another command has just rented",
        (
            Patch(
                "sweepstack/platforms/common/tag_lock.py",
                "        last = self._read()\n        if last is None:\n            return None\n        what",
                "        last = None\n        if last is None:\n            return None\n        what",
            ),
        ),
        # On RunPod its second interface, which has to agree that the tag is free, knows of the box as well.
        ("tests/conformance/test_faults.py::test_a_list_that_lies_does_not_rent_what_another_process_has[vastai]",),
    ),
    Mutant(
        "rent where nobody says whether the last box is there",
        (
            Patch(
                "sweepstack/platforms/common/tag_lock.py",
                "            raise Unreachable(self._unknown(what, str(error))) from error\n",
                "            return None\n",
            ),
        ),
        ("tests/unit/platforms/test_tag_memory.py::test_who_can_not_be_asked_is_not_believed",),
    ),
    Mutant(
        "a note of the last box that can't be read is none",
        (
            Patch(
                "sweepstack/platforms/common/tag_lock.py",
                "            raise self._unreadable(error.strerror or str(error)) from error\n",
                "            return None\n",
            ),
        ),
        ("tests/unit/platforms/test_tag_memory.py::test_a_memory_that_is_no_file_rents_nothing",),
    ),
    Mutant(
        "vast.ai: prove an end by a list from before it",
        (
            Patch(
                "sweepstack/platforms/vastai/session.py",
                "            age = max(0.0, min(age, time.monotonic() - since))\n",
                "            age = max(0.0, age)\n",
            ),
        ),
        ("tests/unit/platforms/test_vastai_waiting.py::test_a_list_from_before_the_end_proves_nothing",),
    ),
    Mutant(
        "vast.ai: what a list of some does not show is gone",
        (
            Patch(
                "sweepstack/platforms/vastai/session.py",
                "        return self.row(identifier) if row is None else row\n",
                "        return row\n",
            ),
        ),
        (
            "tests/unit/platforms/test_vastai_waiting.py::"
            "test_a_look_that_does_not_show_it_proves_nothing[shows-nothing]",
        ),
    ),
    Mutant(
        "call a box up that is only shown as ended",
        (
            Patch(
                "sweepstack/provider/resources/run_or_stop.py",
                "        record = look.once()\n",
                "        record = look.once()\n        if record.phase is Phase.UNKNOWN:\n            return record\n",
            ),
        ),
        ("tests/unit/provider/test_box_comes_up.py::test_a_box_that_stays_ended_is_no_success",),
    ),
    Mutant(
        "take a yes that was typed before the question",
        (Patch("sweepstack/cli/prompt.py", "termios.tcflush(sys.stdin, termios.TCIFLUSH)", "pass"),),
        ("tests/unit/cli/test_prompt.py::test_a_yes_typed_ahead_is_no_answer",),
    ),
    Mutant(
        "quote any value of a stack config in a message",
        (Patch("sweepstack/config/problems.py", " if may_show(loc, value) else dotted(loc)", ""),),
        ("tests/unit/config/test_secrets.py::test_no_message_shows_a_secret",),
    ),
)
