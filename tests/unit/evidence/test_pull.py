"""Copies that are copies, that resume, and that take no name a box might use to lead them astray."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sweepstack.evidence import pull_cell as pull_cell_module
from sweepstack.evidence.pull import BoxSource, PullResult, pull_all, pull_cell
from sweepstack.evidence.pull_cell import SPARE_BYTES
from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.onbox.common.canonical import canonical_json
from sweepstack.onbox.common.errors import EvidenceDamaged, EvidenceError, Unreachable
from tests.unit.evidence.world import IDENTITY, Box, World, outputs, sealed_elsewhere

NAME = "lr0.1-seed0"


class Flaky(LocalChannel):
    """Is cut off after so many bytes, like a bad line; counts what it sent."""

    def __init__(self, world: World, budget: int | None = None) -> None:
        super().__init__(world.box.native_id, world.box.root, {})
        self.budget = budget
        self.fetched: list[str] = []
        self.bytes = 0

    def fetch(self, path: str, target: Path, progress: Callable[[int], None] | None = None) -> None:
        done = target.stat().st_size if target.exists() else 0
        data = self.read(path)
        self.fetched.append(path.rpartition(f"{NAME}/")[2])
        if done > len(data):
            done = 0
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("r+b" if target.exists() else "wb") as handle:
            handle.truncate(done)
            handle.seek(done)
            for offset in range(done, len(data), 512):
                chunk = data[offset : offset + 512]
                if self.budget is not None and self.bytes + len(chunk) > self.budget:
                    raise Unreachable("cut off")
                handle.write(chunk)
                self.bytes += len(chunk)
        if progress:
            progress(len(data))


def pull(world: World, channel: LocalChannel | None = None, **settings: str) -> PullResult:
    """Pulls the first cell."""
    return pull_cell(channel or world.box.channel, IDENTITY, NAME, world.store, **settings)


def content(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_pulled_cell_is_the_sealed_one(world: World) -> None:
    world.run()
    seen: list[tuple[str, int, int]] = []
    channel = world.box.channel
    result = pull_cell(channel, IDENTITY, NAME, world.store, lambda *what: seen.append(what))
    assert (result.state, result.files, result.reasons) == ("pulled", 5, ())
    assert content(world.copy(NAME)) == content(world.box.sealed(NAME))
    assert seen[-1] == (NAME, result.bytes, result.bytes)
    assert not (world.store.root / ".partial" / NAME).exists()


def test_pulling_again_copies_nothing(world: World) -> None:
    world.run()
    pull(world)
    before = {path: path.stat().st_ino for path in world.copy(NAME).rglob("*")}
    channel = Flaky(world)
    result = pull(world, channel)
    assert (result.state, result.files, result.bytes, channel.fetched) == ("current", 0, 0, [])
    world.pull()
    world.verify()
    assert pull(world, channel).state == "current"  # this time by the receipt's index
    assert {path: path.stat().st_ino for path in world.copy(NAME).rglob("*")} == before


def test_copies_outlive_the_box(world: World) -> None:
    world.run()
    world.pull()
    before = content(world.copy(NAME))
    for path in world.box.root.rglob("*"):
        if path.is_file():
            os.truncate(path, 0)
    assert content(world.copy(NAME)) == before
    assert all(path.stat().st_nlink == 1 for path in world.copy(NAME).rglob("*") if path.is_file())
    shutil.rmtree(world.box.root)
    assert content(world.copy(NAME)) == before
    assert world.verify(boxes=[]).receipt.verified == 3


def test_a_cut_pull_goes_on_where_it_was(world: World) -> None:
    world.run()
    total = sum(len(data) for name, data in content(world.box.sealed(NAME)).items() if name != "manifest.json")
    sent = 0
    for _ in range(50):
        channel = Flaky(world, budget=1500)
        try:
            result = pull(world, channel)
        except Unreachable:
            assert not world.copy(NAME).exists()
            sent += channel.bytes
            continue
        sent += channel.bytes
        break
    else:
        pytest.fail("never done")
    assert result.state == "pulled"
    assert sent == total  # not one byte twice
    assert content(world.copy(NAME)) == content(world.box.sealed(NAME))


def test_a_leftover_that_is_something_else_is_not_gone_on_with(world: World) -> None:
    world.run()
    partial = world.store.root / ".partial" / NAME
    partial.mkdir(parents=True)
    (partial / "best.pt").write_bytes(b"x" * 100)
    (partial / "log.txt").write_bytes(b"x" * 10_000)
    (partial / "unknown").write_bytes(b"x")
    assert pull(world).state == "pulled"
    assert content(world.copy(NAME)) == content(world.box.sealed(NAME))


def test_a_leftover_with_links_is_thrown_away(world: World) -> None:
    world.run()
    victim = world.folder / "victim"
    victim.write_bytes(b"precious")
    partial = world.store.root / ".partial" / NAME
    partial.mkdir(parents=True)
    (partial / "best.pt").symlink_to(victim)
    os.link(victim, partial / "log.txt")
    assert pull(world).state == "pulled"
    assert victim.read_bytes() == b"precious"
    assert world.copy(NAME).joinpath("log.txt").stat().st_nlink == 1


def test_only_what_changed_is_copied_again(world: World) -> None:
    world.run()
    pull(world)
    files = outputs(world.folder, 0) | {"metrics.json": b'{"loss": 0.5}'}
    world.box.seal(world.cells[0], files, attempt=2)
    channel = Flaky(world)
    result = pull(world, channel)
    assert channel.fetched == ["metrics.json"]
    assert content(world.copy(NAME)) == content(world.box.sealed(NAME))
    kept = world.store.root / ".superseded" / f"{NAME}-1"
    assert (kept / "metrics.json").read_bytes() != b'{"loss": 0.5}'
    assert str(kept) in result.notes[0]


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "symlink", "hardlink", "folder"])
def test_a_damaged_copy_is_healed(world: World, damage: str) -> None:
    world.run()
    world.pull()
    path = world.copy(NAME) / "plots/curve.csv"
    data = path.read_bytes()
    if damage == "flip":
        path.write_bytes(b"9" + data[1:])
    elif damage == "truncate":
        os.truncate(path, 1)
    elif damage == "folder":
        shutil.rmtree(path.parent)
    else:
        path.unlink()
        if damage == "symlink":
            path.symlink_to(world.box.sealed(NAME) / "plots/curve.csv")
        elif damage == "hardlink":
            os.link(world.box.sealed(NAME) / "plots/curve.csv", path)
    assert not world.verify().ok
    channel = Flaky(world)
    result = pull(world, channel)
    assert (result.state, channel.fetched) == ("pulled", ["plots/curve.csv"])
    assert world.verify().ok


@pytest.mark.parametrize("damage", ["edit", "hardlink", "remove", "whole-folder-link"])
def test_a_damaged_manifest_is_healed(world: World, damage: str) -> None:
    world.run()
    world.pull()
    path = world.copy(NAME) / "manifest.json"
    if damage == "edit":
        path.write_bytes(path.read_bytes().replace(b'"attempt":1', b'"attempt":2'))
    elif damage == "hardlink":
        path.unlink()
        os.link(world.box.sealed(NAME) / "manifest.json", path)
    elif damage == "remove":
        path.unlink()
    else:
        shutil.rmtree(world.copy(NAME))
        world.copy(NAME).symlink_to(world.box.sealed(NAME))
    assert not world.verify().ok
    world.pull()
    assert world.verify().ok
    assert not world.copy(NAME).is_symlink()


def test_extra_files_are_left_alone_and_named(world: World) -> None:
    world.run()
    world.pull()
    (world.copy(NAME) / "notes.txt").write_text("mine")
    (world.copy(NAME) / "shortcut").symlink_to("notes.txt")
    result = pull(world)
    assert "shortcut is a link" in result.notes[0]
    assert "1 files in" in result.notes[1]
    assert (world.copy(NAME) / "notes.txt").read_text() == "mine"


def lie(world: World, **changes: object) -> None:
    path = world.box.sealed(NAME) / "manifest.json"
    path.write_bytes(canonical_json({**json.loads(path.read_bytes()), **changes}) + b"\n")


@pytest.mark.parametrize("path", ["../../../escaped", "/tmp/escaped", "a\nb", "manifest.json", "a/./b"])
def test_hostile_names_are_refused(world: World, path: str) -> None:
    world.run()
    lie(world, files=[{"path": path, "size": 1, "sha256": "0" * 64, "role": "extra"}])
    before = content(world.folder)
    result = pull(world)
    assert result.state == "refused"
    assert "names" in result.reasons[0]
    assert content(world.folder) == before


def test_a_link_on_the_box_is_refused(world: World) -> None:
    world.run()
    secret = world.folder / "secret"
    secret.write_bytes((world.box.sealed(NAME) / "log.txt").read_bytes())
    log = world.box.sealed(NAME) / "log.txt"
    log.unlink()
    log.symlink_to(secret)
    result = pull(world)
    assert (result.state, result.reasons) == (
        "refused",
        ("log.txt on the box is a link, and its manifest names a file",),
    )
    assert not world.copy(NAME).exists()


def test_a_linked_folder_on_the_box_is_refused(world: World) -> None:
    world.run()
    plots = world.box.sealed(NAME) / "plots"
    plots.rename(world.folder / "plots")
    plots.symlink_to(world.folder / "plots")
    assert "plots/curve.csv on the box is a link" in pull(world).reasons[0]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda path: path.write_bytes(b"stop 1\n"), "size or sha256 differs"),
        (lambda path: os.truncate(path, 2), "has 2 bytes, its manifest says 7"),
        (lambda path: path.unlink(), "is not there, and its manifest names a file"),
    ],
)
def test_what_the_box_no_longer_has_is_refused(world: World, damage: Callable[[Path], object], reason: str) -> None:
    world.run()
    damage(world.box.sealed(NAME) / "log.txt")
    result = pull(world)
    assert result.state == "refused"
    assert reason in result.reasons[0]
    assert not world.copy(NAME).exists()


def test_another_cells_or_sweeps_manifest_is_refused(world: World) -> None:
    world.run()
    shutil.rmtree(world.box.sealed(NAME))
    shutil.copytree(world.box.sealed("lr0.3-seed0"), world.box.sealed(NAME))
    assert "another cell" in pull(world).reasons[0]
    lie(world, cell=NAME, identity="zzzzzzzzzz")
    assert "another sweep" in pull(world).reasons[0]


def test_a_manifest_that_the_journal_does_not_record_is_refused(world: World) -> None:
    world.run()
    lie(world, attempt=9)
    (found,) = world.pull()
    states = {result.cell: result.state for result in found.results}
    assert states == {NAME: "refused", "lr0.3-seed0": "pulled", "lr0.9-seed0": "pulled"}


def test_a_cell_that_is_not_sealed_is_absent(world: World) -> None:
    world.run(world.cells[1])
    assert pull(world).state == "absent"
    assert pull_cell(world.box.channel, IDENTITY, "../x", world.store).state == "refused"


def test_a_cut_box_keeps_what_it_brought_and_stops_no_other(world: World) -> None:
    world.run(world.cells[0], world.cells[1])
    other = Box(world, "box-1")
    other.seal(world.cells[2], outputs(world.folder, 2))
    size = sum(len(data) for data in outputs(world.folder, 0).values())
    sources = [
        BoxSource("box-0", 1, Flaky(world, budget=size + 600)),
        BoxSource("box-1", 1, other.channel),
    ]
    first, second = pull_all(sources, IDENTITY, world.store)
    assert first.problem == "cut off"
    assert [result.state for result in first.results] == ["pulled"]
    assert [result.state for result in second.results] == ["pulled"]


def test_journals_are_kept_and_must_continue(world: World) -> None:
    world.run(world.cells[0])
    world.pull()
    copy = world.store.journal_path("box-0", 1)
    whole = world.box.journal_file.read_bytes()
    assert copy.read_bytes() == whole
    written = copy.stat().st_ino
    world.box.journal_file.write_bytes(whole + b'{"torn')
    world.pull()
    assert copy.read_bytes() == whole
    assert copy.stat().st_ino == written, "the same is not written again"
    copy.write_bytes(whole.splitlines(keepends=True)[0] + b'{"torn')
    world.pull()
    assert copy.read_bytes() == whole
    world.box.journal_file.write_bytes(whole.splitlines(keepends=True)[0])
    (found,) = world.pull()
    assert "does not continue" in found.problem
    assert copy.read_bytes() == whole
    world.box.journal_file.unlink()
    with pytest.raises(EvidenceDamaged):
        world.store.write_journal("box-0", 1, b"")


def test_a_volume_that_outlived_its_box_is_pulled_by_the_last_journal(world: World) -> None:
    world.run()
    world.pull()
    shutil.rmtree(world.copy(NAME))
    volume = LocalChannel("volume-x", world.box.durable, {})
    sources = [BoxSource("box-0", 1, volume, base="", volume_only=True)]
    (found,) = pull_all(sources, IDENTITY, world.store)
    assert {result.state for result in found.results} == {"pulled", "current"}
    assert world.verify(boxes=[]).receipt.verified == 3


def test_two_pulls_at_once_are_one_too_many(world: World) -> None:
    with (world.store.root / ".pull.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(EvidenceError, match="another pull"):
            world.pull()
    (world.store.root / ".pull.lock").unlink()
    (world.store.root / ".pull.lock").mkdir()
    with pytest.raises(EvidenceError, match="nothing was pulled"):
        world.pull()


def test_a_place_that_takes_no_copy_is_said(world: World) -> None:
    world.run()
    (world.store.root / ".partial").write_text("a file where a folder should be")
    with pytest.raises(EvidenceError, match=f"{NAME} can't be written to"):
        pull(world)


def test_of_the_cells_that_are_asked_for_those_are_pulled_that_are_sealed(world: World) -> None:
    world.run(world.cells[0], world.cells[1])
    source = BoxSource("box-0", 1, world.box.channel, cells=["none", NAME, world.cells[2].name])
    (found,) = pull_all([source], IDENTITY, world.store)
    assert (found.problem, [result.cell for result in found.results]) == ("", [NAME])


def test_a_full_disk_is_said_before_anything_is_copied(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 10, 1000))  # type: ignore[attr-defined]
    with pytest.raises(EvidenceError, match="Make room there"):
        pull(world)
    (found,) = world.pull()
    assert "Make room" in found.problem
    assert not world.copy(NAME).exists()


def test_the_room_for_a_pull_is_reckoned_without_holes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run()
    files = {**outputs(world.folder, 0), "map": bytes(8 << 20)}
    world.box.seal(world.cells[0], files, attempt=2, sparse={"map": 0})
    free = SPARE_BYTES + (4 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 10, free))  # type: ignore[attr-defined]
    assert pull(world).state == "pulled"
    assert (world.copy(NAME) / "map").read_bytes() == bytes(8 << 20)
    assert (world.copy(NAME) / "map").stat().st_blocks * 512 < 1 << 20
    world.box.seal(world.cells[0], {**files, "full": os.urandom(8 << 20)}, attempt=3)
    with pytest.raises(EvidenceError, match="Make room there"):
        pull(world)


def test_the_same_bytes_come_once(world: World) -> None:
    world.run()
    weights = os.urandom(3 << 20)
    world.box.seal(world.cells[0], {**outputs(world.folder, 0), "e9.pt": weights, "last.pt": weights}, attempt=2)
    channel = Flaky(world)
    seen: list[tuple[str, int, int]] = []
    assert pull_cell(channel, IDENTITY, NAME, world.store, lambda *what: seen.append(what)).files == 7
    assert [path for path in channel.fetched if path in ("e9.pt", "last.pt")] == ["e9.pt"]
    assert content(world.copy(NAME)) == content(world.box.sealed(NAME))
    assert (world.copy(NAME) / "last.pt").stat().st_nlink == 1
    assert seen[-1][1:] == (seen[-1][2] - len(weights), seen[-1][2]), "all but the twin came over the line"
    for name in ("e9.pt", "last.pt"):
        (world.copy(NAME) / name).write_bytes(b"x")
    assert pull(world, channel).files == 2
    assert content(world.copy(NAME)) == content(world.box.sealed(NAME))


def test_what_is_copied_from_here_counts_only_as_it_was_sealed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that gives back something else: the file comes from the box then."""
    world.run()
    pull(world)
    world.box.seal(world.cells[0], outputs(world.folder, 0) | {"metrics.json": b'{"loss": 0.5}'}, attempt=2)
    monkeypatch.setattr(pull_cell_module, "copy_file", lambda source, target: target.write_bytes(b"x"))
    channel = Flaky(world)
    assert pull(world, channel).state == "pulled"
    assert len(channel.fetched) == 5
    assert content(world.copy(NAME)) == content(world.box.sealed(NAME))


def test_nothing_is_written_through_a_link_that_a_copy_has_become(world: World) -> None:
    world.run()
    pull(world)
    plots = world.copy(NAME) / "plots"
    plots.rename(world.folder / "plots")
    plots.symlink_to(world.folder / "plots")
    (world.folder / "plots/curve.csv").write_bytes(b"precious")
    result = pull(world)
    assert (result.state, result.for_now) == ("refused", True)
    assert "plots here is not a folder" in result.reasons[0]
    assert content(world.folder / "plots") == {"curve.csv": b"precious"}
    assert plots.is_symlink()


def test_a_crash_between_the_two_renames_heals(world: World) -> None:
    world.run()
    pull(world)
    partial = world.store.root / ".partial" / NAME
    partial.parent.mkdir(exist_ok=True)
    world.copy(NAME).rename(partial)
    channel = Flaky(world)
    assert pull(world, channel).state == "pulled"
    assert channel.fetched == []
    assert content(world.copy(NAME)) == content(world.box.sealed(NAME))


def test_a_box_that_sealed_it_before_takes_no_later_copy_away(world: World) -> None:
    """The volume of a box that ended is read once more, and the box that sealed it last is gone."""
    world.run()
    later = sealed_elsewhere(world, 7, retry=1)
    world.pull()
    assert world.verify().receipt.verified == 3
    here = content(world.copy(NAME))
    assert here == content(later.sealed(NAME))
    for _ in range(2):
        (done,) = world.pull(world.box)
        (note,) = next(result.notes for result in done.results if result.cell == NAME)
        assert note == "box-0 sealed it before box-1 did, whose copy is here and stays"
        assert content(world.copy(NAME)) == here
    assert [path.name for path in (world.store.root / ".superseded").iterdir()] == [f"{NAME}-1"]
    assert world.verify().receipt.verified == 3
    later.start(world.cells[0], 2)  # a retry that has sealed nothing yet: this copy is still the result
    world.pull()
    assert content(world.copy(NAME)) == here


def test_an_earlier_generation_of_a_box_takes_no_later_copy_away(world: World) -> None:
    world.run()
    world.pull()
    heir = Box(world, "box-0", generation=2)
    heir.seal(world.cells[0], outputs(world.folder, 7))
    world.pull(heir)
    assert content(world.copy(NAME)) == content(heir.sealed(NAME)), "the later one does"
    world.pull(world.box)
    assert content(world.copy(NAME)) == content(heir.sealed(NAME))


def test_of_two_boxes_that_sealed_it_for_the_same_run_the_copy_that_is_here_stays(world: World) -> None:
    world.run()
    world.pull()
    sealed_elsewhere(world, 7)
    world.pull()
    assert content(world.copy(NAME)) == content(world.box.sealed(NAME))
    assert not (world.store.root / ".superseded").exists()


@pytest.mark.parametrize("hurt", ["a file", "its journal"])
def test_a_later_copy_that_does_not_count_goes(world: World, hurt: str) -> None:
    world.run()
    world.pull(sealed_elsewhere(world, 7, retry=1))
    if hurt == "a file":
        (world.copy(NAME) / "best.pt").write_bytes(b"x")
    else:
        world.store.journal_path("box-1", 1).unlink()
    world.pull(world.box)
    assert content(world.copy(NAME)) == content(world.box.sealed(NAME))
    assert (world.store.root / ".superseded" / f"{NAME}-1").is_dir()


def test_a_file_that_was_changed_here_is_kept(world: World) -> None:
    world.run()
    pull(world)
    (world.copy(NAME) / "plots/curve.csv").write_bytes(b"9,9\n")
    result = pull(world)
    kept = world.store.root / ".superseded" / f"{NAME}-files" / "plots/curve.csv-1"
    assert kept.read_bytes() == b"9,9\n"
    assert result.notes == (f"plots/curve.csv here was not what the box sealed, and is kept in {kept}",)
    assert content(world.copy(NAME)) == content(world.box.sealed(NAME))
