"""What failed attempts left, and the stack file, as objects: read on a machine that has nothing of the sweep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sweepstack.evidence.stack_copy import STACK_FILES, keep_stack_file, stack_file_of
from sweepstack.evidence.store import EvidenceStore
from tests.unit.evidence.test_unsealed import keep_odd_names
from tests.unit.evidence.world import World


def test_what_a_failed_attempt_left_is_kept_and_read_back(world: World) -> None:
    keep_odd_names(world)
    assert world.store.copies.cells() == [], "it is no copy of a cell"
    assert len(world.store.objects.names("unsealed")) == 1


def test_the_stack_file_is_kept_with_its_earlier_text(
    world: World, tmp_path: Path, elsewhere: Callable[[], None]
) -> None:
    path = tmp_path / "Pulumi.sweep-t.yaml"
    for text in ("config: {a: 1}\n", "config: {a: 2}\n"):
        path.write_text(text)
        assert keep_stack_file(world.uri, path).startswith(world.uri)
        keep_stack_file(world.uri, path)
    elsewhere()
    store = EvidenceStore.open(world.uri)
    assert stack_file_of(store) == (path.name, b"config: {a: 2}\n")
    (earlier,) = store.objects.names(f"{STACK_FILES}/earlier")
    held = store.objects.read(f"{STACK_FILES}/earlier/{earlier}")
    assert held is not None
    assert held.data == b"config: {a: 1}\n"
