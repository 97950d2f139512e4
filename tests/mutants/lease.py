"""Mutants of the lease: what keeps a box from stopping itself too early, or with what is nowhere else."""

from __future__ import annotations

from tests.mutants.model import Mutant, Patch

RUNNER, TESTS = "sweepstack/onbox/runner", "tests/onbox/test_lease.py"
START, START_TESTS = "sweepstack/onbox/start_lease.py", "tests/onbox/test_start_lease.py"

LEASE = (
    Mutant(
        "stop a box whose stop wipes the journal",
        (Patch(f"{RUNNER}/lease.py", "    if kills:\n", "    if False:\n"),),
        (f"{TESTS}::test_it_stays_where_a_stop_wipes_what_is_nowhere_else_and_says_so_once",),
    ),
    Mutant(
        "stop a box under a cell without a runner",
        (Patch(f"{RUNNER}/lease.py", "        return of_cells(", "        return [] and of_cells("),),
        (f"{TESTS}::test_cells_that_outlive_a_killed_runner_keep_it_on",),
    ),
    Mutant(
        "end a cell that works when the lease is over",
        (
            Patch(
                f"{RUNNER}/main.py",
                "if all(patrol.hung(one)[0] for one in running.values()) else",
                "if True else",
            ),
        ),
        (f"{TESTS}::test_a_cell_that_works_keeps_it_on",),
    ),
    Mutant(
        "let no look renew the lease",
        (Patch(f"{RUNNER}/off.py", "        if mark != self._seen:\n", "        if False:\n"),),
        (f"{TESTS}::test_each_look_renews_it",),
    ),
    Mutant(
        "send the vendor's key where a redirect points",
        (Patch(f"{RUNNER}/vendor.py", "build_opener(_NoRedirect())", "build_opener()"),),
        (f"{TESTS}::test_an_answer_that_is_no_yes[redirect]",),
    ),
    Mutant(
        "write the vendor's key into the journal",
        (Patch(f"{RUNNER}/vendor.py", 'text.replace(key, "***")', "text"),),
        (f"{TESTS}::test_the_vendor_is_asked_with_its_own_key_and_asked_again",),
    ),
    Mutant(
        "give up after the first request that is refused",
        (Patch(f"{RUNNER}/vendor.py", "        reasons.append(reason)\n", "        return reason\n"),),
        (f"{TESTS}::test_the_second_request_is_sent_where_the_first_one_is_refused",),
    ),
    Mutant(
        "stop before the journal has it",
        (
            Patch(
                f"{RUNNER}/off.py",
                '        journal.append("box-off", native=native, command=command, **more)\n',
                "",
            ),
        ),
        (f"{TESTS}::test_a_drained_box_stops_itself_once_no_command_looked_for_so_long",),
    ),
    Mutant(
        "let a start command stop a box without the runner's lock",
        (Patch(START, 'self.alone("runner.lock", self.stop)', "self.stop(0)"),),
        (f"{START_TESTS}::test_a_launch_that_finds_the_timer_at_any_line_of_its_look_is_never_stopped",),
    ),
    Mutant(
        "let a start command stop a box that a launch reached a moment ago",
        (Patch(START, "        if not self.due():\n            return\n", ""),),
        (f"{START_TESTS}::test_a_launch_that_finds_the_timer_at_any_line_of_its_look_is_never_stopped",),
    ),
    Mutant(
        "let a runner begin while the stop that a start command asked for may come",
        (Patch(START, '        time.sleep(self.asked["gone"])\n', ""),),
        (f"{START_TESTS}::test_a_launch_that_finds_the_timer_at_any_line_of_its_look_is_never_stopped",),
    ),
    Mutant(
        "destroy the pod instead of stopping it",
        (Patch("sweepstack/platforms/runpod/create.py", '{"action": "stop"})', '{"action": "terminate"})'),),
        ("tests/unit/profiles/test_lease.py::test_the_box_is_told_the_request_and_no_key",),
    ),
    Mutant(
        "let a config that rents say nothing of a lease",
        (Patch("sweepstack/profiles/resolve.py", "    if bills and config.lease is None:\n", "    if False:\n"),),
        ("tests/unit/profiles/test_lease.py::test_a_platform_that_sends_a_bill_needs_a_lease_or_none[runpod]",),
    ),
    Mutant(
        "let one error end the watcher",
        (
            Patch(
                f"{RUNNER}/lease.py",
                "                except Exception as error:",
                "                except ZeroDivisionError as error:",
            ),
        ),
        (f"{TESTS}::test_without_a_file_or_a_process_it_tries_again_and_says_so",),
    ),
    Mutant(
        "take a cell that only writes for one that does nothing",
        (Patch(f"{RUNNER}/patrol.py", " or wrote != self._wrote or ", " or "),),
        (f"{TESTS}::test_a_cell_without_a_runner_that_hardly_computes_is_not_ended[writes]",),
    ),
    Mutant(
        "end a runner that hangs while a cell works",
        (
            Patch(
                f"{RUNNER}/patrol.py",
                "self._still = 0.0 if works else self._still + passed",
                "self._still = self._still + passed",
            ),
        ),
        (f"{TESTS}::test_a_cell_that_works_keeps_a_runner_that_hangs[log]",),
    ),
    Mutant(
        "take a folder that was put aside for an attempt",
        (Patch(f"{RUNNER}/lease.py", "            if folder.name.isdigit():", "            if True:"),),
        (f"{TESTS}::test_an_attempt_that_was_put_aside_after_a_power_cut_keeps_no_box_on",),
    ),
    Mutant(
        "leave a file open at each try to stop",
        (Patch(f"{RUNNER}/off.py", "            own.close()\n", "            pass\n"),),
        (f"{TESTS}::test_a_try_leaves_no_file_open",),
    ),
)
