"""Mutants of the policy: a rule that is not asked, and a copy that is believed too easily."""

from __future__ import annotations

from tests.mutants.model import Mutant, Patch

TESTS = "tests/unit/teardown/test_policy.py::"
PROVIDER = "tests/unit/provider/test_policy.py::"
IN_FORCE = "sweepstack/teardown/policy_in_force.py"
CHECK = "sweepstack/teardown/policy_check.py"

POLICY = (
    Mutant(
        "policy: a weaker link of a chain counts without its approval",
        (Patch(IN_FORCE, "    if new.approval is None:\n        return", "    if False:\n        return"),),
        (TESTS + "test_a_weaker_policy_in_a_copy_does_not_count_without_its_approval",),
    ),
    Mutant(
        "policy: the copy on the box is not asked",
        (
            Patch(
                CHECK,
                "if seen.existence is Existence.EXISTS and seen.journal is not None:",
                "if False:",
            ),
        ),
        (PROVIDER + "test_one_copy_that_is_left_still_binds_the_delete[box]",),
    ),
    Mutant(
        "policy: a date in the future makes a long approval a short one",
        (Patch(CHECK, " or approval.expires > now + most", ""),),
        (TESTS + "test_an_approval_may_not_hold_longer_than_the_policy_says",),
    ),
    Mutant(
        "policy: an approval of another sweep's change counts",
        (Patch(IN_FORCE, "if not {(FROM, identity, old.digest), (TO, identity, new.digest)} <= named:", "if False:"),),
        (TESTS + "test_an_approval_counts_for_one_change_of_one_sweep",),
    ),
    Mutant(
        "policy: it is not asked about the end of a volume",
        (Patch("sweepstack/volumes/end_check.py", "    verdict.reasons += policy.problems\n", ""),),
        ("tests/unit/volumes/test_ending.py::test_the_policy_of_its_stack_binds_its_end",),
    ),
    Mutant(
        "policy: one person gives a volume up that no state has",
        (Patch("sweepstack/cli/commands/audit/end.py", "    if found.policy.problems:\n", "    if False:\n"),),
        ("tests/unit/cli/test_end_volume.py::test_the_policy_of_its_sweep_binds_its_end_without_a_state",),
    ),
)
