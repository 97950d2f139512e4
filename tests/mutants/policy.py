"""Mutants of the policy: a rule that is not asked, and a place that is believed too easily."""

from __future__ import annotations

from tests.mutants.model import Mutant, Patch

TESTS = "tests/unit/teardown/test_policy.py::"
PROVIDER = "tests/unit/provider/test_policy.py::"
IN_FORCE = "sweepstack/teardown/policy_in_force.py"
CHECK = "sweepstack/teardown/policy_check.py"

POLICY = (
    Mutant(
        "policy: a weaker file follows without its approval",
        (Patch(IN_FORCE, "        return bool(self.lost) and not self.approved", "        return False"),),
        (TESTS + "test_the_file_follows_where_it_is_as_strict_and_else_by_approval",),
    ),
    Mutant(
        "policy: the project's file is not asked about an end",
        (
            Patch(
                IN_FORCE,
                "            found.append(Binding(FILE, file, policy_file.parse_policy(file)))",
                "            pass",
            ),
        ),
        (TESTS + "test_waivers_are_refused_by_the_state_and_by_the_file_with_file_and_line",),
    ),
    Mutant(
        "policy: the state is not asked about an end",
        (Patch(IN_FORCE, "    found += [_of_state(policy) for policy in held.policies if policy != file]\n", ""),),
        (TESTS + "test_an_approval_may_not_hold_longer_than_the_policy_says",),
    ),
    Mutant(
        "policy: an entry that does not read binds nothing",
        (
            Patch(
                IN_FORCE,
                'problem=f"{problem}. {UNREADABLE}") for problem in held.problems]',
                'problem="") for problem in held.problems]',
            ),
        ),
        (TESTS + "test_what_does_not_read_locks_and_names_two_ways_out",),
    ),
    Mutant(
        "policy: the birth record's digest is not asked",
        (Patch(CHECK, "    named = named_by(births)\n", "    named = {}\n"),),
        (TESTS + "test_a_birth_record_that_names_a_policy_asks_for_its_text",),
    ),
    Mutant(
        "policy: only the box's own entry binds its end",
        (
            Patch(
                "sweepstack/provider/resources/teardown.py",
                "    if differs or may_hold",
                "    if False and may_hold",
            ),
        ),
        (
            PROVIDER + "test_one_place_that_is_left_still_binds_the_delete[another-entry]",
            PROVIDER + "test_one_place_that_is_left_still_binds_the_delete[the-identity-alone]",
        ),
    ),
    Mutant(
        "policy: the Identity's alone is asked only where the birth record differs",
        (
            Patch(
                "sweepstack/provider/resources/teardown.py", "    if differs or may_hold", "    if differs and may_hold"
            ),
        ),
        (PROVIDER + "test_one_place_that_is_left_still_binds_the_delete[the-identity-alone]",),
    ),
    Mutant(
        "policy: a box that is adopted forgets the policy that it was made under",
        (
            Patch(
                "sweepstack/provider/resources/box.py",
                "policy=adopted.policy if adopted is not None else ",
                "policy=",
            ),
        ),
        (PROVIDER + "test_a_box_that_is_adopted_keeps_the_policy_that_it_was_made_under",),
    ),
    Mutant(
        "policy: a new state takes over what was made under a policy that is not here",
        (
            Patch(
                "sweepstack/provider/resources/identity.py",
                "        if old is None and (why := policy_limits.without_text(",
                "        if False and (why := policy_limits.without_text(",
            ),
        ),
        (PROVIDER + "test_a_new_state_takes_nothing_over_without_the_policy_that_the_records_name",),
    ),
    Mutant(
        "policy: --target rents without a look at the state",
        (
            Patch(
                "sweepstack/provider/resources/policy_limits.py",
                "    if IDENTITY_SEEN not in",
                "    if False and IDENTITY_SEEN not in",
            ),
        ),
        (PROVIDER + "test_a_new_box_beside_others_keeps_to_the_policy_of_the_state",),
    ),
    Mutant(
        "policy: a link that no file said asks its writer",
        (
            Patch(
                "sweepstack/core/policy_text.py",
                "        return next(said, self.links[0].policy)",
                "        return self.policy",
            ),
        ),
        (TESTS + "test_a_link_that_no_file_said_asks_for_no_consent_of_the_one_who_wrote_it",),
    ),
    Mutant(
        "policy: to go back to what a file said asks no person",
        (
            Patch(
                IN_FORCE,
                "    rules = map(rule_of, asked(held, new))",
                "    rules = [rule_of(policy) for policy in asked(held, new) if what_is_lost(policy, new)]",
            ),
        ),
        (TESTS + "test_the_people_of_what_a_person_said_are_asked_also_to_go_back_to_it",),
    ),
    Mutant(
        "policy: an approval of another sweep's change counts",
        (
            Patch(
                IN_FORCE,
                "    if not {(FROM, identity, old.digest) for old in lost}",
                "    if False and {(FROM, identity, old.digest) for old in lost}",
            ),
        ),
        (TESTS + "test_the_file_follows_where_it_is_as_strict_and_else_by_approval",),
    ),
    Mutant(
        "policy: one person gives a volume up that no state has",
        (
            Patch(
                "sweepstack/operations/strays/judge.py",
                "        return judge_request(",
                "        return Judged(given_up=self.given_up) or judge_request(",
            ),
        ),
        ("tests/unit/cli/test_end_volume.py::test_the_policy_of_its_sweep_binds_its_end_without_a_state",),
    ),
    Mutant(
        "policy: a dangling link is no policy",
        (
            Patch(
                "sweepstack/config/project.py",
                "    return os.path.lexists(root / POLICY) or ",
                "    return (root / POLICY).exists() or ",
            ),
        ),
        (TESTS + "test_what_is_no_policy_is_refused_in_words_and_is_not_none[dangling-link]",),
    ),
    Mutant(
        "policy: a date in the future makes a long approval a short one",
        (Patch(CHECK, " or approval.expires > now + most", ""),),
        (TESTS + "test_an_approval_may_not_hold_longer_than_the_policy_says",),
    ),
    Mutant(
        "policy: it is not asked about the end of a volume",
        (
            Patch(
                "sweepstack/operations/volumes/end_check.py",
                "store, lambda: policies(volume), now",
                "store, tuple, now",
            ),
        ),
        ("tests/unit/operations/volumes/test_ending.py::test_the_policy_of_its_stack_binds_its_end",),
    ),
    Mutant(
        "policy: a cosignature is written over what another person wrote meanwhile",
        (Patch("sweepstack/cli/commands/cosign.py", "    if now != shown:\n", "    if False:\n"),),
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
                "sweepstack/provider/resources/policy_limits.py",
                'if not now.rules or new.want != "running" or',
                "if True or",
            ),
        ),
        (PROVIDER + "test_a_stopped_box_is_not_started_again_against_a_stricter_policy[platforms]",),
    ),
)
