"""Two boxes that copy the checkpoints of one cell into a bucket, which is a folder here.

It plays what `checkpoint_sets` decides, without rclone. After each step of a history, what must hold is looked at.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

from sweepstack.onbox.common.canonical import sha256_hex
from sweepstack.onbox.runner.checkpoint_sets import Changing, Sets, Superseded, scan

CELL, WORK, WHERE = "a", "0123456789abcdef", "sweep"
Content = dict[str, str]


class Killed(BaseException):
    """The box is gone, in the middle of what it did."""


class FolderStore:
    """A bucket as a folder. `at`: called with the number of each call, before it and after it."""

    def __init__(self, root: Path) -> None:
        self.root, self.away = root, False
        self.sent = self.calls = 0
        self.at: Callable[[int, bool], object] = lambda _number, _after: None

    def _call(self, work: Callable[[], None]) -> None:
        self.calls += 1
        self.at(self.calls, False)
        if self.away:
            raise OSError("the bucket is away")
        work()
        self.at(self.calls, True)

    def _files(self, path: str) -> dict[str, int]:
        place = self.root / path
        return {str(one.relative_to(place)): one.stat().st_size for one in place.rglob("*") if one.is_file()}

    def tree(self, path: str) -> dict[str, int]:
        found: dict[str, int] = {}
        self._call(lambda: found.update(self._files(path)))
        return found

    def read(self, path: str) -> bytes:
        found: list[bytes] = []
        self._call(lambda: found.append((self.root / path).read_bytes()))
        return found[0]

    def write(self, path: str, data: bytes) -> None:
        self._call(lambda: self._put(self.root / path, data))

    def send(self, folder: Path, path: str) -> None:
        for one in sorted(folder.rglob("*")):
            if one.is_file():
                target = self.root / path / one.relative_to(folder)
                self._call(lambda one=one, target=target: self._send_one(one, target))  # type: ignore[misc]

    def _send_one(self, one: Path, target: Path) -> None:
        data = one.read_bytes()
        self.sent += len(data)
        self._put(target, data)

    def take(self, path: str, names: Collection[str], folder: Path) -> None:
        for name in names:
            source = self.root / path / name
            if source.exists():
                self._call(lambda source=source, name=name: self._put(folder / name, source.read_bytes()))  # type: ignore[misc]

    def copy_there(self, path: str, names: Collection[str], to: str) -> None:
        for name in names:
            source, target = self.root / path / name, self.root / to / name
            self._call(lambda source=source, target=target: self._put(target, source.read_bytes()))  # type: ignore[misc]

    def remove(self, path: str, names: Collection[str]) -> None:
        for name in names:
            self._call((self.root / path / name).unlink)

    @staticmethod
    def _put(path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        staged = path.with_name(path.name + ".staged")
        staged.write_bytes(data)
        os.replace(staged, path)


class TestBox:
    """A box with a tier of its own. `states`: every content that its folder ever had."""

    __test__ = False
    names = itertools.count(1)

    def __init__(self, world: World) -> None:
        self.had = False  # whether it was ever given the cell
        self.world, self.name = world, f"box-{next(self.names)}"
        self.folder = world.root / self.name / CELL / WORK
        self.folder.mkdir(parents=True)
        self.sets = self.begin()

    def begin(self) -> Sets:
        """As a runner that starts: nothing is remembered but what lies on the tier."""
        self.sets = Sets(self.world.store, WHERE, CELL, self.folder, self.name)
        return self.sets

    def content(self, folder: Path | None = None) -> Content:
        place = folder or self.folder
        return {name: (place / name).read_text() for name in scan(place)[0]}

    def kept(self) -> list[Content]:
        """What lies in the folder, and under the names that it was set aside to."""
        places = [self.folder, *self.folder.parent.glob(f"{WORK}.superseded-*")]
        return [self.content(one) for one in places if one.is_dir()]


class World:
    """The bucket, the boxes, and what was said about them."""

    def __init__(self, root: Path) -> None:
        self.root, self.clock = root, itertools.count(10**18, 10**9)
        self.store = FolderStore(root / "bucket")
        self.store.root.mkdir(parents=True)
        self.states: list[Content] = [{}]
        self.step, self.back = 0, False
        self.owner, self.other = TestBox(self), TestBox(self)
        self.owner.had = True
        self.owner.sets.bring()
        self.copied: list[Content] = [{}]
        """What was reported as copied last, and after it what was cut off since then while it was copied."""
        self.begun = True
        """Whether the owner has copied something since the cell is its own."""

    # -- what a job does

    def save(self, box: TestBox, how: str) -> None:
        """One save: two files of one step, as a job writes them."""
        self.step += 1
        text = f"{self.step:06d} of {box.name}"
        box.folder.mkdir(parents=True, exist_ok=True)
        if how == "rotate":
            for old in sorted(box.folder.glob("step-*"))[:-1]:
                old.unlink()
            self._write(box.folder / f"step-{self.step:06d}", text, in_place=False)
        elif how == "rename" and (box.folder / "model").exists():
            os.replace(box.folder / "model", box.folder / "before")
        for name in ("model", "optimizer"):
            self._write(box.folder / name, text, in_place=how == "in place")
        self.states.append(box.content())

    def _write(self, path: Path, text: str, in_place: bool) -> None:
        target = path if in_place else path.with_name(f"{path.name}.tmp")
        target.write_text(text)
        time = 2 * 10**18 - next(self.clock) if self.back else next(self.clock)
        os.utime(target, ns=(time, time))
        if not in_place:
            os.replace(target, path)

    # -- what a box does

    def copy(self, box: TestBox) -> str:
        """Copies; returns how that ended."""
        if box is self.owner or not self.begun:
            self.copied.append(box.content())
        try:
            new = box.sets.copy(0.0, 0.0, lambda _: None)
            if new and box is self.owner:
                self.begun = True
                self.copied = [one for one in self.copied if one == self.copied_by(box)] or [{"not": "whole"}]
            box.sets.prune()
        except Superseded:
            assert box is not self.owner, "the later owner is never told that it is superseded"
            return "superseded"
        except (Changing, OSError) as error:
            return str(error)
        return ""

    def copied_by(self, box: TestBox) -> Content:
        """What a box says that it copied last: by the digests that it wrote down, as the states have them."""
        told = {name: sha256 for name, (_, sha256) in box.sets.local.files.items()}
        return next((one for one in self.states if digests(one) == told), {"none": "of the states"})

    def bring(self, box: TestBox) -> None:
        before = box.kept()
        try:
            box.sets.bring()
        finally:
            now = box.kept()
            assert all(one in now for one in before if one), "what was here is here, or kept beside"

    def hand_over(self) -> None:
        """The cell goes to the other box, which may have been its owner before."""
        new, old = self.other, self.owner
        self.bring(new)
        if self.begun:
            assert new.content() in self.copied, "it goes on with what its owner copied last, not with what lay there"
        self.owner, self.other, self.begun, new.had = new, old, False, True

    def lose(self, box: TestBox) -> TestBox:
        """A box ends, with its tier; another one comes in its place."""
        shutil.rmtree(box.folder.parent)
        return TestBox(self)

    # -- what must hold

    def check(self) -> None:
        """A new box gets what the owner reported last, or a later whole state that was cut off while it was copied."""
        at, away, self.store.at, self.store.away = self.store.at, self.store.away, lambda *_: None, False
        fresh = TestBox(self)
        fresh.sets.bring(claim=False)
        found = fresh.content()
        shutil.rmtree(fresh.folder.parent)
        self.store.at, self.store.away = at, away
        assert found in self.states, "it is a state that the folder had, whole"
        assert found in self.copied, f"{found} is none of {self.copied}"


def digests(content: Content) -> Content:
    return {name: sha256_hex(text.encode()) for name, text in content.items()}
