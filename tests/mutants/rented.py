"""Mutants of rented hosts: what ends a bill that no API ends."""

from __future__ import annotations

from tests.mutants.model import Mutant, Patch
from tests.mutants.moving import MOVING

PERSON, OFF = "tests/unit/provider/test_rented_host.py", "tests/unit/provider/test_host_off.py"

RENTED = (
    Mutant(
        "take a confirmation although the host answers",
        (
            Patch(
                "sweepstack/operations/host_shutdown.py",
                "    answered = answers(box.platform, known)\n",
                "    answered = False\n",
            ),
        ),
        (f"{PERSON}::test_it_bills_on_at_every_look_until_a_word_and_a_failed_connect",),
    ),
    Mutant(
        "take a connect that was never tried for a silence",
        (Patch("sweepstack/operations/host_shutdown.py", "    if answered is not False:\n", "    if answered:\n"),),
        (f"{OFF}::test_a_silence_that_nobody_here_could_hear_proves_nothing",),
    ),
    Mutant(
        "take a confirmation for a box whose end was never begun",
        (
            Patch(
                "sweepstack/cli/commands/confirm/gone.py",
                "    way = _allowed(target, box)\n",
                '    way = "cleared"\n',
            ),
        ),
        (f"{PERSON}::test_the_word_is_refused_where_nobody_began",),
    ),
    Mutant(
        "take the confirmation for another native id",
        (
            Patch(
                "sweepstack/teardown/handover_records.py",
                "            return self.confirmed.native_id == native_id and self.confirmed.box == self.box and",
                "            return",
            ),
        ),
        (f"{PERSON}::test_the_word_is_for_one_native_id",),
    ),
    Mutant(
        "call a rented host gone when our folder is",
        (Patch("sweepstack/onbox/host/box_folders.py", '    if facts.get("rented") is True:\n', "    if False:\n"),),
        (f"{PERSON}::test_a_delete_ends_what_is_ours_and_asks_for_the_person_s_step",),
    ),
    Mutant(
        "believe that a silent host is off",
        (
            Patch(
                "sweepstack/operations/host_shutdown.py",
                "            if known.accepted_at is None:\n",
                "            if False:\n",
            ),
        ),
        (f"{OFF}::test_silence_alone_proves_nothing",),
    ),
    Mutant(
        "switch a host off under another box",
        (Patch("sweepstack/onbox/host/agent.py", "        if others:\n", "        if False:\n"),),
        (f"{OFF}::test_another_box_at_work_on_the_same_host_keeps_it_on",),
    ),
)

MORE = (*MOVING, *RENTED)
"""All that stand in modules of their own."""
