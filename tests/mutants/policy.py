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
        (PROVIDER + "test_what_a_job_writes_on_its_box_keeps_the_box_from_no_abandonment",),
    ),
    Mutant(
        "policy: a box's copy alone is set aside where the evidence can't be read",
        (
            Patch(
                "sweepstack/teardown/policy_copies.py",
                "    if any(place.problem or (place.copy is not None and place.copy.chains) for place in others):",
                "    if any(place.copy is not None and place.copy.chains for place in others):",
            ),
        ),
        (TESTS + "test_where_a_copy_may_have_been_lost_the_last_one_binds_an_abandonment",),
    ),
    Mutant(
        "policy: one that only the evidence has comes into a state that has none",
        (
            Patch(
                "sweepstack/teardown/policy_change.py",
                "        if not had_none or (had is",
                "        if True or (had is",
            ),
        ),
        (PROVIDER + "test_a_policy_that_only_the_evidence_has_comes_into_no_state_and_no_box",),
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
    Mutant(
        "policy: who writes the evidence locks a box in",
        (Patch(IN_FORCE, "            if not seconded or chain", "            if True or chain"),),
        (TESTS + "test_who_writes_the_evidence_alone_can_not_lock_a_box_in",),
    ),
    Mutant(
        "policy: the state's chain alone rules an abandonment without a second witness",
        (
            Patch(
                IN_FORCE,
                "            if not seconded or chain",
                "            if not ours or chain",
            ),
        ),
        (TESTS + "test_elsewhere_every_copy_binds_an_abandonment_too",),
    ),
    Mutant(
        "policy: a chain that was begun anew spreads to another copy",
        (
            Patch(
                "sweepstack/teardown/policy_copies.py",
                "united([copy.within(before), *([before]",
                "united([copy, *([before]",
            ),
        ),
        (TESTS + "test_a_chain_that_was_begun_anew_spreads_to_no_other_copy",),
    ),
    Mutant(
        "policy: nothing may follow a policy that can't be read",
        (Patch(IN_FORCE, "    rules, why = _last_readable(before)\n", '    rules, why = None, "it can\'t be read"\n'),),
        (TESTS + "test_the_people_of_the_last_readable_policy_may_approve_what_follows_one_that_is_not",),
    ),
    Mutant(
        "policy: a cosignature is written over what another person wrote meanwhile",
        (Patch("sweepstack/cli/commands/approve/cosign.py", "    if now != shown:\n", "    if False:\n"),),
        (
            "tests/unit/cli/test_approve_signed.py::test_what_another_person_wrote_during_the_prompt_is_not_written_over",
        ),
    ),
    Mutant(
        "policy: a signature of a weaker policy that came meanwhile is lost",
        (
            Patch(
                "sweepstack/cli/commands/policy.py", "    if _standing(store, actions) != shown:\n", "    if False:\n"
            ),
        ),
        ("tests/unit/cli/test_policy_people.py::test_a_signature_that_came_during_the_prompt_is_not_lost",),
    ),
    Mutant(
        "policy: a stopped box starts again against a stricter policy",
        (
            Patch(
                "sweepstack/provider/resources/policy.py",
                'if not now.rules or new.want != "running" or',
                "if True or",
            ),
        ),
        (PROVIDER + "test_a_stopped_box_is_not_started_again_against_a_stricter_policy[platforms]",),
    ),
)
