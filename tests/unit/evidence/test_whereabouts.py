"""Whether the evidence lies on the box itself, and which records name it: what can't be seen is no "no"."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from sweepstack.evidence.location import evidence_on
from sweepstack.evidence.manifest import MANIFEST
from sweepstack.onbox.agent.channel import DirEntry
from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import Unreachable
from sweepstack.teardown.launched import signs_of_a_launch
from tests.unit.evidence.world import World


class Silent(LocalChannel):
    """A box that does not answer when its folders are asked for."""

    def listdir(self, path: str) -> list[DirEntry]:
        raise Unreachable("no answer")


class Other(LocalChannel):
    """A box on another machine, whose paths look like those of this one."""

    def listdir(self, path: str) -> list[DirEntry]:
        raise FileNotFoundError(path)


def test_a_box_that_does_not_say_whether_the_evidence_lies_on_it_is_unknown(tmp_path: Path) -> None:
    evidence = tmp_path / "box" / "data" / "results"
    evidence.mkdir(parents=True)
    uri = f"file://{socket.gethostname()}{evidence}"
    assert evidence_on(LocalChannel("local-x", tmp_path / "box", {}), uri, box_layout.OWN_TIERS) == (
        "data",
        str(evidence),
    )
    with pytest.raises(Unreachable):
        evidence_on(Silent("local-x", tmp_path / "box", {}), uri, box_layout.OWN_TIERS)
    assert evidence_on(Silent("local-x", tmp_path / "other", {}), uri, box_layout.OWN_TIERS) is None, "it is not asked"
    assert evidence_on(Other("local-x", tmp_path / "box", {}), uri, box_layout.OWN_TIERS) is None, "it has no such path"


def test_a_manifest_that_can_not_be_read_may_name_any_box(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert signs_of_a_launch(world.store, "box-0", 1, "local-x") == []
    folder = world.store.root / "cells" / "lr0.3"
    folder.mkdir(parents=True)
    (folder / MANIFEST).symlink_to("nowhere")
    (sign,) = signs_of_a_launch(world.store, "box-0", 1, "local-x")
    assert sign.startswith("the evidence can't all be read")
