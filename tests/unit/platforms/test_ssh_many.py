"""A cell of very many files on a host of the user's own: brought whole, in few round trips, through a cut."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bench.pull_bench import CELL, IDENTITY, seal
from sweepstack.channel.ssh import channel as bulk_fetch
from sweepstack.channel.ssh import link as ssh_link
from sweepstack.evidence.pull import pull_cell
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.agent.channel import Channel, host_identity
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import EvidenceError, Unreachable
from sweepstack.onbox.host.platform import BoxRequest, Wait
from sweepstack.platforms.registry import load_platform
from tests.simulators.host import Host

FILES = 20_000


@pytest.fixture(autouse=True)
def no_power_is_cut_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)


def sealed(host: Host, files: int) -> tuple[Channel, Path]:
    """A box with one sealed cell, and where that lies."""
    platform = load_platform(f"ssh:{host.address}")
    box = platform.create(BoxRequest("tag", "box-0", 0.0), wait=Wait(60))
    channel = platform.channel(box.native_id, box.account)
    folder = Path(channel.absolute(f"{box_layout.DURABLE}/{box_layout.sealed_dir(IDENTITY, CELL)}"))
    seal(folder, box.native_id, files, 16)
    return channel, folder


def store(tmp_path: Path) -> EvidenceStore:
    return EvidenceStore.found(f"file://{host_identity()}{tmp_path}/evidence", IDENTITY, "project", "stack")


@pytest.mark.proof
def test_a_tree_of_twenty_thousand_files(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: Counter[str] = Counter()
    request = ssh_link.Link.request

    def count(link: ssh_link.Link, verb: str, **words: Any) -> None:
        asked[verb] += 1
        request(link, verb, **words)

    monkeypatch.setattr(ssh_link.Link, "request", count)
    channel, folder = sealed(host, FILES)
    found = pull_cell(channel, IDENTITY, CELL, store(tmp_path))
    assert (found.state, found.files) == ("pulled", FILES)
    assert asked["fetch_many"] == -(-FILES // bulk_fetch.MOST_FILES)
    assert asked["fetch"] == 0
    assert (asked["walk"], asked["listdir"]) == (1, 0), "200 folders are one question"
    copies = tmp_path / "evidence" / "cells" / CELL
    names = {str(path.relative_to(folder)) for path in folder.rglob("*.bin")}
    assert {str(path.relative_to(copies)) for path in copies.rglob("*.bin")} == names
    shutil.rmtree(folder)


def test_a_cut_in_the_middle_brings_the_rest(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channel, folder = sealed(host, 600)
    channel.close()  # type: ignore[attr-defined]  # one that was used before would be replaced, and nobody would notice
    brought: list[Path] = []
    one = bulk_fetch.Receiver._one

    def cutting(receiver: bulk_fetch.Receiver, link: ssh_link.Link, target: Path, expected: int) -> Any:
        brought.append(target)
        if len(brought) == 550:
            host.cut()
        return one(receiver, link, target, expected)

    monkeypatch.setattr(bulk_fetch.Receiver, "_one", cutting)
    evidence = store(tmp_path)
    while True:
        try:
            found = pull_cell(channel, IDENTITY, CELL, evidence)
            break
        except Unreachable:
            assert len(brought) < 1200
    assert found.state == "pulled"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert len(manifest["files"]) == 600
    again = len(brought) - 600
    assert 0 <= again <= bulk_fetch.MOST_FILES, "what is here already is not brought twice"


def test_a_copy_has_its_place_only_once_all_of_it_is_on_the_disk(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are flushed while the next ones come, and none is forgotten."""
    channel, _ = sealed(host, 1100)
    flushed: set[str] = set()
    full: list[str] = ["out/005/00512.bin"]

    def flush(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if full and path.endswith(full[0]):
            raise OSError(5, "Input/output error")
        flushed.add(path)

    evidence = store(tmp_path)
    monkeypatch.setattr(os, "fsync", flush)
    with pytest.raises(EvidenceError, match="Input/output error"):
        pull_cell(channel, IDENTITY, CELL, evidence)
    place = tmp_path / "evidence" / "cells" / CELL
    assert not place.exists()
    full.clear()
    flushed.clear()
    shutil.rmtree(tmp_path / "evidence" / ".partial")
    assert pull_cell(channel, IDENTITY, CELL, evidence).state == "pulled"
    partial = tmp_path / "evidence" / ".partial" / CELL
    copied = {partial / path.relative_to(place) for path in place.rglob("*") if path.name != "manifest.json"}
    assert {str(path) for path in copied} <= flushed
    assert len(copied) == 1100 + 11 + 1


def test_a_link_on_the_box_is_told_among_many_files(host: Host, tmp_path: Path) -> None:
    channel, folder = sealed(host, 250)
    (folder / "out/001/00150.bin").rename(folder / "elsewhere")
    (folder / "out/001/00150.bin").symlink_to(folder / "elsewhere")
    found = pull_cell(channel, IDENTITY, CELL, store(tmp_path))
    assert (found.state, found.reasons) == (
        "refused",
        ("out/001/00150.bin on the box is a link, and its manifest names a file",),
    )


def test_sizes_that_are_not_kept_are_not_believed(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channel, folder = sealed(host, 3)
    name = box_layout.DURABLE + "/" + box_layout.sealed_dir(IDENTITY, CELL)
    count = channel._count  # type: ignore[attr-defined]
    monkeypatch.setattr(channel, "_count", lambda value: count(value) + 1)
    with pytest.raises(Unreachable, match="nothing of it is believed"):
        channel.fetch_many([(f"{name}/out/000/00000.bin", tmp_path / "copy")])
    assert folder.is_dir()
