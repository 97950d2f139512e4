"""Cells of a host are sealed on its surviving tier, and on nothing that only looks like it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweepstack.core.resources import BoxInputs, PlaceFacts
from sweepstack.launch.launch import FirstCellFailed
from sweepstack.onbox.common import box_layout
from sweepstack.provider.resources.create import places_of
from tests.simulators import machines
from tests.unit.launch.host_site import HostSite
from tests.unit.launch.support import IDENTITY, Clock


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostSite]:
    machines.require()
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr("sweepstack.launch.first_step.SETTLE_SECONDS", 0.0)
    (tmp_path / "fs").mkdir()
    durable = {"tier": "durable", "path": str(tmp_path / "fs"), "files": 5}
    found = HostSite(tmp_path, monkeypatch, places={box_layout.DURABLE: durable})
    yield found
    found.close()


def complaints(site: HostSite) -> int:
    log = site.root / box_layout.RUNNER_LOG
    return log.read_text().count("the durable tier is not mounted") if log.exists() else 0


def has_ended(site: HostSite, before: int) -> bool:
    """Whether the runner has said why once more, and is no more."""
    return complaints(site) > before and not site.channel.lock_held(box_layout.RUNNER_LOCK)


def test_cells_are_sealed_on_the_tier_and_wait_while_it_is_not_mounted(
    site: HostSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.launch("a", seconds=60)
    site.until_state("sealed", "a")
    site.drained()
    tier, away = site.folder / "fs/sweepstack", site.folder / "away"
    assert (tier / IDENTITY / "cells/a/manifest.json").is_file()
    tier.rename(away)  # the host was started again without it
    for empty in (False, True):
        if empty:
            tier.mkdir()
        before = complaints(site)
        with monkeypatch.context() as quick:
            quick.setattr("sweepstack.launch.first_step.RUNNER_START_SECONDS", 0.5)
            quick.setattr("sweepstack.launch.first_step.time", Clock(lambda before=before: has_ended(site, before)))
            with pytest.raises(
                FirstCellFailed, match=r"the durable tier is not mounted at .*/fs/sweepstack: mount it in the"
            ):
                site.launch("a", "b", seconds=60)
    assert os.listdir(tier) == [], "nothing is sealed into the folder below it"
    assert site.states() == {"a": "sealed"}
    tier.rmdir()
    away.rename(tier)
    site.launch("a", "b", seconds=60)
    site.until_state("sealed", "b")


def test_a_later_generation_must_see_the_same_file_system(site: HostSite) -> None:
    """Where the tier is bound to a region: what was sealed by the box before lies on one file system alone."""
    native_id = site.record.mounts[box_layout.DURABLE]
    site.store.write_birth(site.birth(platform="ssh", mounts={box_layout.DURABLE: native_id}))

    def asked(name: str, *, region_locked: bool = True) -> dict[str, object]:
        claims = {box_layout.DURABLE: PlaceFacts(tier="durable", region_locked=region_locked)}
        inputs = BoxInputs.model_construct(name=name, places={box_layout.DURABLE: "/fs"}, claims=claims)
        return places_of(inputs, site.store)[box_layout.DURABLE]

    assert asked("box-0")["expect"] == native_id
    assert "expect" not in asked("box-1")
    assert asked("box-1")["path"] == "/fs"
    assert "expect" not in asked("box-0", region_locked=False)
