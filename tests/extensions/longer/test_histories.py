"""Random histories of a cell that begins from another one: sealed anew, asked for anew, lost, sent, killed in between.

At each moment its folder of checkpoints is missing, or is whole what one seal held, the one that was asked for when it
was laid there; and once the cell has written to it, nothing but the cell changes it.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweepstack.extensions.longer.onbox import begin
from sweepstack.onbox.common.canonical import canonical_json, digest_of_bytes, sha256_hex
from sweepstack.onbox.common.longer import MARK, sent_name
from sweepstack.onbox.runner.sealing import CellFailure

STEPS = ("_copy", "write_atomically", "fsync_directory", "file_sha256", "rename")


class Killed(BaseException):
    """The runner was killed here."""


class World:
    """One box, its tier, and all seals that ever were."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder, self.chance, self.seals = folder, chance, list[tuple[str, Path]]()
        self.cells, self.checkpoints = folder / "cells", folder / "checkpoints"
        self.cells.mkdir()
        self.own = b""
        self.laid = ""
        self.asked: str | None = None
        self.runner = self.fresh()

    def fresh(self) -> begin.Beginnings:
        return begin.Beginnings(self.cells, self.checkpoints, lambda: None)

    @property
    def target(self) -> Path:
        return self.checkpoints / "long" / "0123456789abcdef"

    def seal(self) -> None:
        """The source ends once more, with other bytes."""
        place = self.folder / f"seal-{len(self.seals)}"
        place.mkdir()
        files = []
        for name in ("a.bin", "b%_c.bin"):
            data = f"{name} {len(self.seals)}".encode() * self.chance.randrange(1, 200)
            (place / name).write_bytes(data)
            role = "artifact" if name == "a.bin" or self.chance.random() < 0.7 else "extra"
            files.append({"path": name, "size": len(data), "sha256": sha256_hex(data), "role": role})
        manifest = canonical_json({"files": files})
        (place / "manifest.json").write_bytes(manifest + b"\n")
        self.seals.append((digest_of_bytes(manifest), place))
        self.put(place, self.cells / "short")

    def put(self, place: Path, there: Path) -> None:
        shutil.rmtree(there, ignore_errors=True)
        shutil.copytree(place, there)

    def damage(self) -> None:
        found = list(self.cells.glob("short/*.bin"))
        if found:
            path = self.chance.choice(found)
            data = path.read_bytes()
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]) if self.chance.random() < 0.5 else data[:-1])

    def lose(self) -> None:
        shutil.rmtree(self.cells / "short", ignore_errors=True)

    def send(self) -> None:
        if self.asked is not None:
            place = next(place for digest, place in self.seals if digest == self.asked)
            self.put(place, self.target.parent / sent_name(self.asked))

    def ask(self) -> None:
        if self.seals and not self.own:
            self.asked = self.seals[-1][0]

    def box_lost(self) -> None:
        shutil.rmtree(self.checkpoints, ignore_errors=True)
        self.lose()
        self.own, self.laid, self.runner = b"", "", self.fresh()

    def train(self) -> None:
        """The cell writes a checkpoint of its own over the one that it began with."""
        if self.laid:
            self.own = f"own {self.chance.random()}".encode()
            (self.target / "a.bin").write_bytes(self.own)

    def look(self) -> None:
        """The runner looks whether the cell may start, as often as it takes."""
        if self.asked is None:
            return
        entry: Any = SimpleNamespace(cell="long", checkpoints=self.target.name, source=("short", self.asked))
        ends = time.monotonic() + 20
        before = self.laid
        while (ready := self.runner.ready(entry)) is None:
            assert time.monotonic() < ends
            time.sleep(0.0002)
            self.runner.news()
        assert ready
        try:
            self.runner.must_begin("long")
        except CellFailure:
            assert not self.target.exists()
            return
        assert self.target.is_dir()
        self.laid = before or self.asked

    def look_and_be_killed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        name, left = self.chance.choice(STEPS), self.chance.randrange(3)
        place: Any = begin.os if name == "rename" else begin
        real, after = getattr(place, name), self.chance.random() < 0.5

        def step(*words: Any) -> Any:
            nonlocal left
            left -= 1
            if left >= 0:
                return real(*words)
            if after:
                real(*words)
            raise Killed

        with monkeypatch.context() as patched:
            patched.setattr(place, name, step)
            try:
                self.look()
            except Killed:
                self.runner = self.fresh()
        if self.target.exists() and not self.laid:  # killed after the name was given
            self.laid = str(self.asked)

    def judge(self) -> None:
        if not self.target.exists():
            assert not self.laid
            return
        mark = json.loads((self.target / MARK).read_bytes())
        assert mark == {"cell": "short", "manifest": self.laid}
        place = next(place for digest, place in self.seals if digest == self.laid)
        files = json.loads((place / "manifest.json").read_bytes())["files"]
        expected = {file["path"]: (place / file["path"]).read_bytes() for file in files if file["role"] == "artifact"}
        if self.own:
            expected["a.bin"] = self.own
        assert {path.name: path.read_bytes() for path in self.target.iterdir() if path.name != MARK} == expected


def play(folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    world = World(folder, chance)
    monkeypatch.setattr(begin.os, "fsync", lambda _: None)
    for number in range(25):
        step = chance.choice(["seal", "ask", "look", "kill", "kill", "damage", "lose", "send", "train", "box_lost"])
        if step == "kill":
            world.look_and_be_killed(monkeypatch)
        else:
            getattr(world, step)()
        try:
            world.judge()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, step {number}: {step}") from error


def test_histories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(40):
        (tmp_path / str(seed)).mkdir()
        play(tmp_path / str(seed), seed, monkeypatch)


@pytest.mark.proof  # the same, more of them
def test_many_histories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(1000, 4000):
        folder = tmp_path / str(seed)
        folder.mkdir()
        play(folder, seed, monkeypatch)
        shutil.rmtree(folder)
