"""Mutants of cells that move, and of boxes that get another name."""

from __future__ import annotations

from tests.mutants.model import Mutant, Patch

MOVING = (
    Mutant(
        "let cells go before the other box takes them",
        (
            Patch(
                "sweepstack/operations/cell_moves.py",
                "    stay = staying(present, own, elsewhere, held)\n",
                "    stay: dict[str, object] = {}\n",
            ),
        ),
        (
            "tests/unit/launch/test_moving.py"
            "::test_cells_leave_their_queue_when_the_other_box_takes_them_and_not_before",
        ),
    ),
    Mutant(
        "give a cell again that another box took meanwhile",
        (Patch("sweepstack/launch/launch.py", "    if not todo.staying:\n", "    if True:\n"),),
        (
            "tests/unit/launch/test_staying.py::test_a_cell_that_is_taken_while_the_code_is_shipped_is_not_given_again",
            "tests/unit/launch/test_staying.py::test_a_cell_that_is_taken_without_a_tombstone_meanwhile_gets_one",
        ),
    ),
    Mutant(
        "run what was taken while the box rested",
        (
            Patch(
                "sweepstack/launch/entries.py",
                "    for name in own.cells if own is not None else ():\n        line,",
                "    for name in present:\n        line,",
            ),
        ),
        ("tests/unit/launch/test_moving.py::test_what_was_taken_from_a_box_at_rest_is_let_go_when_it_wakes",),
    ),
    Mutant(
        "rent beside a locked box that nobody names",
        (Patch("sweepstack/provider/resources/want_gone.py", "    if not locked:\n", "    if True:\n"),),
        ("tests/unit/provider/test_leftover.py::test_a_renamed_box_is_not_rented_while_the_old_one_is_locked",),
    ),
)
