"""One backend's state holds a sweep: what another one wrote meanwhile, or can't be read, is no yes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sweepstack.core.records import Lease
from sweepstack.evidence import sweep_holder
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.sweep_holder import Takeover, name_of_backend, take_lease, take_over, taken_over
from sweepstack.onbox.common.errors import SweepstackError
from tests.unit.evidence.world import BEGIN, World

OURS, THEIRS = "s3://our-states", "s3://their-states"


@pytest.fixture(autouse=True)
def _our_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_BACKEND_URL", OURS)


def lease(backend: str) -> Lease:
    return Lease(backend=backend, host="h", taken_at=BEGIN)


def meanwhile(world: World, monkeypatch: pytest.MonkeyPatch, act: Callable[[EvidenceStore], Any]) -> None:
    """Another process acts between our look at the lease and our write, once."""
    write, other = world.store.write_lease, EvidenceStore.open(world.uri)

    def second(ours: Lease) -> None:
        monkeypatch.setattr(world.store, "write_lease", write)
        act(other)
        write(ours)

    monkeypatch.setattr(world.store, "write_lease", second)


def holder(world: World) -> str:
    found = EvidenceStore.open(world.uri).lease()
    assert found is not None
    return found.backend


def test_a_sweep_that_another_backend_holds_is_not_taken(world: World) -> None:
    world.store.write_lease(lease(THEIRS))
    with pytest.raises(SweepstackError, match=f"held by the state in {THEIRS}"):
        take_lease(world.store)
    assert holder(world) == THEIRS


def test_of_two_backends_that_take_it_at_once_the_second_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile(world, monkeypatch, lambda other: other.write_lease(lease(THEIRS)))
    with pytest.raises(SweepstackError, match=f"held by the state in {THEIRS}"):
        take_lease(world.store)
    assert holder(world) == THEIRS


def test_another_box_of_the_same_up_may_take_it_first(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    meanwhile(world, monkeypatch, lambda other: other.write_lease(lease(OURS)))
    take_lease(world.store)
    found = world.store.lease()
    assert found == lease(OURS), "it is not written again"


def test_a_lease_that_was_given_up_meanwhile_is_taken(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.store.write_lease(lease(OURS))
    meanwhile(world, monkeypatch, lambda other: other.release_lease())
    take_lease(world.store)
    assert holder(world) == OURS


def test_takeovers_that_do_not_read_decide_nothing(world: World) -> None:
    assert not taken_over(world.store, THEIRS, OURS)
    take_over(world.store, Takeover(held_by=THEIRS, taken_to=OURS, by="ann", at=BEGIN, reason="lost"))
    assert taken_over(world.store, THEIRS, OURS)
    assert not taken_over(world.store, OURS, THEIRS)
    (world.store.root / "records" / sweep_holder.TAKEOVERS).write_bytes(b"{")
    assert not taken_over(world.store, THEIRS, OURS)


def test_a_backend_that_nothing_names_has_a_name() -> None:
    assert name_of_backend("") == "unknown"
