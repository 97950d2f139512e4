"""Mutants of what an approval asks of old facts."""

from __future__ import annotations

from tests.mutants.model import Mutant, Patch

ALONE, TYPED = "tests/unit/profiles/test_facts.py::", "tests/unit/cli/test_accepted_facts.py::"

FACTS = (
    Mutant(
        "approve although what the end of a box relies on is old",
        (Patch("sweepstack/operations/sweep/accepted_facts.py", "    if missing:\n", "    if False:\n"),),
        (f"{TYPED}test_an_approval_names_the_facts_and_the_command_that_accepts_them",),
    ),
    Mutant(
        "take an acceptance for another month of its fact",
        (Patch("sweepstack/profiles/dated_facts.py", "acceptance.month != fact.stamp or ", ""),),
        (f"{ALONE}test_an_acceptance_is_for_one_month_of_one_fact_and_for_a_while",),
    ),
    Mutant(
        "let an acceptance last for ever",
        (Patch("sweepstack/profiles/dated_facts.py", "age is not None and age <= MONTHS", "age is not None"),),
        (f"{TYPED}test_an_acceptance_runs_out",),
    ),
)
