"""kill -9 at random moments, in the middle of saves too: artifacts and metrics are those of an undisturbed run.

An eighth of the whole drill, which is `python -m tests.drill --kills 100`.
"""

from __future__ import annotations

import random
from pathlib import Path

from tests.drill.play import ORDERS, add, boxed, disturbed, never_back, results, undisturbed
from tests.onbox.harness import wait_for

KILLS = 12


def test_killed_at_random_moments_ends_with_the_same_bytes(tmp_path: Path) -> None:
    found, happened = disturbed(tmp_path / "disturbed", KILLS, seed=7)
    assert sum(happened.values()) >= KILLS
    assert sum(happened[order] for order in ORDERS) > 0, happened
    assert found == undisturbed(tmp_path / "undisturbed", len(found))


def test_every_moment_of_a_save(tmp_path: Path) -> None:
    """Each order alone: the cell that dies in its save goes on from the one before, and ends the same."""
    with boxed(tmp_path / "disturbed") as box:
        name = add(box, 0)
        for order in random.Random(1).sample(ORDERS, len(ORDERS)):
            runner = box.start()
            (box.control / f"order-{order}").touch()
            wait_for(lambda o=order: not (box.control / f"order-{o}").exists(), box.log)
            runner.kill()
        assert box.start().ended(60) == 0, box.log()
        assert sorted((box.control / "obeyed").read_text().split()) == sorted(ORDERS)
        never_back(box, name)
        assert results(box, [name]) == undisturbed(tmp_path / "undisturbed", 1)
