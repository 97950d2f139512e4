"""What verifying says of cells together: a note, and no cell is bad for it."""

from __future__ import annotations

from sweepstack.core.records import ArtifactSpec, Cell
from tests.unit.evidence.world import Box, World, outputs


def sealed(world: World, *seeds: int, **shared: bytes) -> list[str]:
    """The notes of a sweep whose cells have the weights of these seeds."""
    world.box.launch(*world.cells)
    for cell, seed in zip(world.cells, seeds, strict=True):
        world.box.seal(cell, {**outputs(world.folder, seed), **shared})
    world.pull()
    outcome = world.verify()
    assert outcome.ok
    return outcome.notes


def test_two_cells_with_the_same_weights_are_named_once(world: World) -> None:
    (note,) = sealed(world, 1, 2, 1)
    same = "the same best.pt, model.safetensors, byte for byte, in lr0.1-seed0, lr0.9-seed0"
    assert note == f"{same}, whose lr differ: does the job use it?"


def test_weights_that_differ_are_no_doubt(world: World) -> None:
    assert sealed(world, 1, 2, 3) == []


def test_one_weights_file_that_all_cells_share_is_no_doubt(world: World) -> None:
    """A frozen part, a split of the data."""
    world.artifacts = (*world.artifacts, ArtifactSpec(path="frozen", load="safetensors"))
    assert sealed(world, 1, 2, 3, frozen=outputs(world.folder, 9)["model.safetensors"]) == []


def test_cells_that_repeat_each_other_on_purpose_are_no_doubt(world: World) -> None:
    world.cells = (*world.cells[:2], Cell(name="again", params=world.cells[0].params))
    assert sealed(world, 1, 2, 1) == []


def test_files_without_weights_are_no_doubt(world: World) -> None:
    world.artifacts = world.artifacts[2:]
    assert sealed(world, 1, 2, 1) == []


def test_a_cell_that_a_second_box_sealed_too_is_named(world: World) -> None:
    world.run()
    world.pull()
    other = Box(world, "box-1")
    world.boxes.append(other)
    other.launch(world.cells[0])
    other.seal(world.cells[0], outputs(world.folder, 7))
    outcome = world.verify()
    assert outcome.ok
    assert outcome.notes == ["lr0.1-seed0: box-1 sealed it, too; the copy here is that of box-0"]
    world.store.write_journal("box-1", 1, other.journal_file.read_bytes())
    gone = world.verify(boxes=[world.box.view()])
    assert gone.notes == [], "nothing ends any more with a box that is no more"


def test_an_earlier_seal_of_a_second_box_is_no_doubt(world: World) -> None:
    """What is here is that of a later retry: the other one is what it took the place of."""
    world.run()
    other = Box(world, "box-1")
    world.boxes.append(other)
    other.launch(world.cells[0])
    other.start(world.cells[0], retry=1)
    digest = other.seal(world.cells[0], outputs(world.folder, 7), journaled=False, retry=1)
    other.log(
        "cell-sealed",
        cell=world.cells[0].name,
        attempt=1,
        config_digest=world.cells[0].config_digest,
        manifest=digest,
        bytes=1,
    )
    world.pull()
    outcome = world.verify()
    assert (outcome.ok, outcome.notes) == (True, [])
