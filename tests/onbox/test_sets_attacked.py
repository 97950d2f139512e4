"""Sets of checkpoints in a bucket, attacked by boxes that come and go: from the promise alone, not from the code.

A cell is handed from box to box. Boxes that have lost it may train on, copy late, die at any step, have no bucket, have
a clock that is set back, and come back with an old disk. What a box begins with is the last whole set of the last box
that made one, and nothing is lost on a disk. The bucket is a folder here: tests/s3 plays a part on a real server.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweepstack.onbox.runner.checkpoint_sets import Sets, Superseded
from tests.killing import killed_at

WORK = "0123456789abcdef"
BOX = st.integers(0, 2)
FAULT = st.one_of(st.none(), st.tuples(st.sampled_from(["kill", "away"]), st.integers(1, 30)))
STEPS = st.one_of(
    st.tuples(st.just("hand"), BOX, FAULT, st.sampled_from(["kept", "new"])),
    st.tuples(st.just("save"), BOX, st.integers(-3, 3), st.sampled_from(["in place", "by rename", "beside"])),
    st.tuples(st.just("copy"), BOX, st.none(), st.just("")),
    st.tuples(st.just("copy"), BOX, FAULT, st.just("")),
    st.tuples(st.just("restart"), BOX, st.none(), st.just("")),
)
Steps = list[tuple[str, int, Any, str]]
Content = dict[str, str]


class Bucket:
    """A bucket as a folder. `left`: calls until it is away for good; None: it stays."""

    def __init__(self, root: Path) -> None:
        self.root, self.left = root, -1

    def _call(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.left = 1
            raise OSError("the bucket does not answer")

    def tree(self, path: str) -> dict[str, int]:
        self._call()
        place = self.root / path
        found = [one for one in place.rglob("*") if one.is_file() and not one.name.endswith(".half")]
        return {one.relative_to(place).as_posix(): one.stat().st_size for one in found}

    def read(self, path: str) -> bytes:
        self._call()
        return (self.root / path).read_bytes()

    def write(self, path: str, data: bytes) -> None:
        self._call()
        self._put(self.root / path, data)

    def send(self, folder: Path, path: str) -> None:
        for one in sorted(folder.rglob("*")):
            if one.is_file():
                self._call()
                self._put(self.root / path / one.relative_to(folder), one.read_bytes())

    def take(self, path: str, names: Collection[str], folder: Path) -> None:
        for name in names:
            self._call()
            if (self.root / path / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes((self.root / path / name).read_bytes())

    def copy_there(self, path: str, names: Collection[str], to: str) -> None:
        for name in names:
            self._call()
            if (self.root / path / name).is_file():
                self._put(self.root / to / name, (self.root / path / name).read_bytes())

    def remove(self, path: str, names: Collection[str]) -> None:
        for name in names:
            self._call()
            (self.root / path / name).unlink(missing_ok=True)

    @staticmethod
    def _put(path: Path, data: bytes) -> None:
        """An object is there whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_name(f"{path.name}.half")
        half.write_bytes(data)
        os.replace(half, path)


class Box:
    """A box with a disk. `order`: when it was given the cell last, among all boxes; `base`: of which lineage its disk
    is. `dead`: its runner was killed, and has not begun again."""

    def __init__(self, name: str) -> None:
        self.name, self.order, self.base, self.disk = name, 0, 0, Path()
        self.sets: Sets | None = None


class Sweep:
    def __init__(self, folder: Path) -> None:
        self.folder, self.bucket = folder, Bucket(folder / "bucket")
        self.boxes = [Box(f"box-{number}") for number in range(3)]
        self.count, self.clock, self.hands = 0, 1_000_000_000, 0
        self.sure: list[tuple[int, int, Content]] = []
        """The sets that were said to be there: the box's place in the order, number, content."""
        self.maybe: list[tuple[int, int, Content]] = []
        """Those whose copy was cut, in the order in which they would count."""

    def new_disk(self, box: Box) -> None:
        self.count += 1
        box.disk = self.folder / f"disk-{self.count}"
        box.base = 0

    def sets_of(self, box: Box) -> Sets:
        return Sets(self.bucket, "id", "a", box.disk / "a" / WORK, box.name)

    def play(self, what: str, number: int, how: Any, where: str) -> None:
        box = self.boxes[number]
        if what == "hand":
            self.hand(box, how, where)
        elif not box.order:
            return
        elif what == "save":
            self.save(box, how, where)
        elif what == "restart":
            box.sets = self.sets_of(box)
        else:
            self.copy(box, how)

    def hand(self, box: Box, fault: Any, where: str) -> None:
        if where == "new" or not box.order:
            self.new_disk(box)
        before, folder = content_of(box.disk / "a" / WORK), box.disk / "a" / WORK
        if fault is not None:
            self.faulty(fault, lambda: self.sets_of(box).bring())
        box.sets = self.sets_of(box)
        self.bucket.left = -1
        box.sets.bring()
        now, newest = content_of(folder), self.newest()
        if before and not any(order > box.base for order, _ in newest):
            assert now == before, "what a box has, and no later one made anything of, stays"
        elif before:
            allowed = [found for order, found in newest if order > box.base]
            certain = any(order > box.base for order, _, _ in self.sure)
            assert now in allowed or (not certain and now == before)
            kept = [content_of(path) for path in folder.parent.glob(f"{WORK}.superseded-*")]
            assert now == before or before in kept, "and what it had is kept"
        else:
            assert now in [found for _, found in newest] + ([] if self.sure else [{}])
        self.hands += 1
        box.order = box.base = self.hands

    def newest(self) -> list[tuple[int, Content]]:
        """What may be the newest set: the last that is sure, and what is not sure to be there, or not, after it."""
        sure = max(self.sure, key=lambda one: one[:2], default=None)
        later = [one for one in self.maybe if sure is None or one[:2] > sure[:2]]
        return [(order, found) for order, _, found in ([sure] if sure else []) + later]

    def save(self, box: Box, ahead: int, how: str) -> None:
        """Two files that belong together. The clock is set back now and then, but never shows the same time twice."""
        folder = box.disk / "a" / WORK
        folder.mkdir(parents=True, exist_ok=True)
        self.count, self.clock = self.count + 1, self.clock + ahead
        names = [f"step-{self.count}-{half}" if how == "beside" else f"last-{half}" for half in "xy"]
        if how == "beside":
            for old in sorted(folder.glob("step-*"), key=lambda path: int(path.name.split("-")[1]))[:-2]:
                old.unlink()
        for name in names:
            path = folder / name
            if how == "by rename":
                (folder / f"{name}.tmp").write_text(f"{self.count:06}")
                os.replace(folder / f"{name}.tmp", path)
            else:
                path.write_text(f"{self.count:06}")
            at = self.clock * 10**9 + self.count
            os.utime(path, ns=(at, at))

    def copy(self, box: Box, fault: Any) -> None:
        assert box.sets is not None
        content = content_of(box.disk / "a" / WORK)
        self.count += 1
        mine = (box.order, self.count, content)
        if fault is not None:
            said: list[bool] = []
            self.faulty(fault, lambda: said.append(self.copied(box)))
            self.bucket.left = -1
            if said != [True]:
                self.maybe += [mine] if content else []
                box.sets = self.sets_of(box)
                return
        elif not self.copied(box):
            return
        self.sure.append(mine)

    def copied(self, box: Box) -> bool:
        assert box.sets is not None
        try:
            new = box.sets.copy(0.0, 0.0, lambda _: None)
            if new:
                box.sets.prune()
            return new
        except Superseded:
            assert self.hands > box.order, "no other box has it"
            return False

    def faulty(self, fault: tuple[str, int], act: Any) -> None:
        kind, at = fault
        self.bucket.left = at if kind == "away" else -1
        try:
            with killed_at(at if kind == "kill" else None):
                act()
        except OSError:
            assert kind == "away"


def content_of(folder: Path) -> Content:
    found = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".tmp")]
    return {path.relative_to(folder).as_posix(): path.read_text() for path in found}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    return tmp_path


def played(folder: Path, steps: Steps) -> None:
    place = folder / "sweep"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    sweep = Sweep(place)
    for step in [("hand", 0, None, "new"), *steps, ("hand", 2, None, "new")]:
        sweep.play(*step)


@settings(max_examples=25)
@given(steps=st.lists(STEPS, min_size=8, max_size=16))
def test_a_box_begins_with_the_last_whole_set_of_the_last_box(folder: Path, steps: Steps) -> None:
    played(folder, steps)


@pytest.mark.proof  # the test above plays 25 of them
@settings(max_examples=500)
@given(steps=st.lists(STEPS, min_size=8, max_size=40))
def test_a_box_always_begins_with_the_last_whole_set_of_the_last_box(folder: Path, steps: Steps) -> None:
    played(folder, steps)
