"""Each format good, cut, flipped, zeroed, swapped: what is caught is what docs/formats.md says, and a file that our
reader takes its own library takes, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweepstack.extensions.formats.table import CAUGHT, FORMATS
from sweepstack.loaders.base import PlainSpec
from tests.extensions.formats import libraries
from tests.extensions.formats.damage import KINDS, damaged_copies, is_good, judged
from tests.extensions.formats.samples import FILES, FOLDERS, HEAVY, NEEDS_TORCH

QUICK = ("jsonl", "jsonl.gz", "tsv", "csv.gz", "yaml", "png", "tar", "wds.tar", "zip", "gguf", "h5", "keras", "msgpack")
QUICK_FOLDERS = ("hf", "adapter")
EVERY = {**FILES, **FOLDERS}


def sample(name: str, tmp_path: Path) -> tuple[Path, Path, PlainSpec]:
    """A good one, where damaged copies go, and how both are read."""
    if name in NEEDS_TORCH | HEAVY:
        pytest.importorskip("torch")
    if name in HEAVY:
        pytest.importorskip("orbax.checkpoint")
    loader, make = EVERY[name]
    good, place = tmp_path / f"good.{name}" if name in FILES else tmp_path / name, tmp_path / "copy"
    place.mkdir()
    make(good)
    return good, place / good.name, PlainSpec(loader)  # type: ignore[arg-type]


def play(name: str, tmp_path: Path) -> None:
    good, place, spec = sample(name, tmp_path)
    assert is_good(good, spec), judged(good, spec)
    library = libraries.LIBRARIES.get(name)
    if library is not None:
        library(good)
    words = []
    for kind in KINDS:
        seen = []
        for copy in damaged_copies(good, place, kind):
            taken = is_good(copy, spec)
            seen.append(not taken)
            if taken and library is not None:
                library(copy)  # raises where the library refuses what our reader takes
        words.append("all" if all(seen) else "some" if any(seen) else "none")
    assert CAUGHT.get(name) == " ".join(words), name


@pytest.mark.parametrize("name", [*QUICK, *QUICK_FOLDERS])
def test_what_is_caught(name: str, tmp_path: Path) -> None:
    play(name, tmp_path)


@pytest.mark.proof  # the rest of them, which import what is large: test_what_is_caught
@pytest.mark.parametrize("name", [name for name in EVERY if name not in (*QUICK, *QUICK_FOLDERS)])
def test_what_is_caught_of_each(name: str, tmp_path: Path) -> None:
    play(name, tmp_path)


def test_each_format_has_a_sample() -> None:
    assert set(FORMATS) <= {loader for loader, _ in EVERY.values()}
    assert set(CAUGHT) == set(EVERY)
