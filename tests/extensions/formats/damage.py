"""Damages files and folders before they are sealed, and asks our readers what they make of each."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from sweepstack.loaders.base import LoadResult, PlainSpec
from sweepstack.loaders.load import load, member_spec

FLIPS = 24
Damaged = Iterator[bytes]


def damages(data: bytes, kind: str) -> Damaged:
    """What becomes of a file's bytes. Draws are of one seed, so the same again and again."""
    size, draw = len(data), random.Random(11)
    if kind == "cut":
        yield from (data[:end] for end in (size // 3, size // 2, size * 9 // 10, size - 1))
    elif kind == "flipped":
        for at in (draw.randrange(size) for _ in range(FLIPS)):
            yield data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :]
    elif kind == "zeroed":
        yield b""
        yield bytes(size)
        yield data[: size // 4] + bytes(size // 2) + data[size // 4 + size // 2 :]
    elif kind == "swapped":
        part = size // 4
        yield data[2 * part :] + data[: 2 * part]
        yield data[:part] + data[2 * part : 3 * part] + data[part : 2 * part] + data[3 * part :]


KINDS = ("cut", "flipped", "zeroed", "swapped")


def files_below(folder: Path) -> list[str]:
    return sorted(
        os.path.relpath(os.path.join(top, name), folder) for top, _, names in os.walk(folder) for name in names
    )


def judged(path: Path, spec: PlainSpec) -> list[LoadResult]:
    """What is said of a file, or of a folder and each of its files: it is good if all are ok."""
    if path.is_file():
        return [load(str(path), spec)]
    members = tuple(files_below(path))
    results = [load(f"{path}/", spec, members=members)] if members else []
    for name in members:
        alone = member_spec(spec, name)
        results += [load(str(path / name), alone)] if alone is not None else []
    return results


def is_good(path: Path, spec: PlainSpec) -> bool:
    results = judged(path, spec)
    return bool(results) and all(result.ok for result in results)


def damaged_copies(good: Path, place: Path, kind: str) -> Iterator[Path]:
    """`place` as a damaged copy of `good`, one after the other. Of a folder each file is damaged, or is missing
    (`cut`), or is another file of the folder (`swapped`); each large one is flipped FLIPS times."""
    if good.is_file():
        for data in damages(good.read_bytes(), kind):
            place.write_bytes(data)
            yield place
        return
    names = files_below(good)
    for at, name in enumerate(names):
        data = (good / name).read_bytes()
        copies = list(damages(data, kind)) if data else []
        if kind == "swapped":
            other = names[(at + 1) % len(names)]
            copies = [(good / other).read_bytes()] if (good / other).read_bytes() != data else []
        for changed in [*copies, *([None] if kind == "cut" else [])]:
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(good, place)
            if changed is None:
                (place / name).unlink()
            else:
                (place / name).write_bytes(changed)
            yield place
