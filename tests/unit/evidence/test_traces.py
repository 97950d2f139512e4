"""What copied journals still say of boxes where the records are lost."""

from __future__ import annotations

from sweepstack.evidence.traces import generations
from tests.unit.evidence.world import World


def test_the_last_generation_counts_as_a_number(world: World) -> None:
    """In the order of names the tenth comes before the second: the next box would get a generation that was used."""
    folder = world.store.root / "journals"
    folder.mkdir(exist_ok=True)
    for name in ("box-0-g2.jsonl", "box-0-g10.jsonl", "box-1-g1.jsonl", "notes.txt"):
        (folder / name).touch()
    found = generations(world.store)
    assert (found["box-0"], found["box-1"]) == (10, 1)
