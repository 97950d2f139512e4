"""What reads well and hardly came out of a training run: named, and an error where the stack says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweepstack.loaders.base import LoadResult, PlainSpec
from sweepstack.loaders.load import load
from tests.unit.evidence.torchzip import save, tensor

SAME, VARIED = np.zeros((4, 8), np.float32), np.arange(32, dtype=np.float32).reshape(4, 8)
BOTH = "looks untrained: every number is the same within w, x"
ONE = "looks untrained: every number is the same within w"


def write(path: Path, loader: str, arrays: dict[str, np.ndarray]) -> None:
    if loader == "torch":
        kinds = {"f": "f4", "i": "i8"}
        save({name: tensor(array, kinds[array.dtype.kind]) for name, array in arrays.items()}, path)
    elif loader == "safetensors":
        from safetensors.numpy import save_file

        save_file(arrays, path)
    else:
        (np.savez_compressed if "compressed" in path.name else np.savez)(path, **arrays)


def read(path: Path, loader: Any, *, keys: tuple[str, ...] = (), **settings: Any) -> LoadResult:
    return load(str(path), PlainSpec(loader, keys, **settings))


@pytest.mark.parametrize(
    ("loader", "file"), [("torch", "a.pt"), ("safetensors", "a.st"), ("npz", "a.npz"), ("npz", "compressed.npz")]
)
def test_weights_that_are_all_the_same_are_named(tmp_path: Path, loader: str, file: str) -> None:
    path = tmp_path / file
    write(path, loader, {"w": SAME, "x": SAME})
    found = read(path, loader)
    assert (found.ok, found.notes) == (True, (BOTH,))
    strict = read(path, loader, plausible="require")
    assert (strict.ok, strict.reasons) == (False, (BOTH,))
    write(path, loader, {"w": SAME, "x": VARIED})  # a bias of zeros, a norm of ones
    assert read(path, loader).notes == ()
    assert read(path, loader, keys=("w",)).notes == (ONE,)
    write(path, loader, {"w": VARIED, "x": VARIED, "step": np.zeros(1, np.float32), "ids": np.zeros(9, np.int64)})
    assert read(path, loader, keys=("step", "ids")).notes == ()


def test_what_differs_late_in_a_large_array_is_not_the_same(tmp_path: Path) -> None:
    array = np.ones(700_000, np.float32)
    path = tmp_path / "a.npy"
    np.save(path, array)
    assert read(path, "npy").notes == ("looks untrained: every number is the same within array",)
    array[600_000] = 2
    np.save(path, array)
    assert read(path, "npy").notes == ()


@pytest.mark.parametrize("text", ["null", '"NaN"', '"-inf"', '"tensor(nan)"', '" None "', '"#DIV/0!"', '"NaT"'])
def test_a_null_in_place_of_a_number_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "metrics.json"
    path.write_text('{"loss": [0.5, ' + text + "]}")
    words = "has null or a text in place of a number (loss.1)"
    assert read(path, "json").notes == (words,)
    assert read(path, "json", finite="report").notes == ()
    assert read(path, "json", plausible="require").reasons == (words,)


@pytest.mark.parametrize("text", ["nano", "information", "nonesuch", "inf-model", "infinite", "name: nan"])
def test_other_texts_are_texts(tmp_path: Path, text: str) -> None:
    path = tmp_path / "metrics.json"
    path.write_text(json.dumps({"model": text}))
    assert read(path, "json", plausible="require").ok


def test_a_text_in_place_of_a_number_in_a_csv(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("step,loss,name\n1,tensor(nan),a\n2,#DIV/0!,b\n")
    assert "has null or a text in place of a number (loss)" in read(path, "csv").notes


@pytest.mark.parametrize("text", ["NaN%", "nan %", "-inf%"])
def test_a_percentage_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"step,accuracy,name\n1,97.5%,a\n2,{text},50%\n")
    words = "has null or a text in place of a number (accuracy)"
    assert read(path, "csv").notes == (words,)
    assert read(path, "csv", plausible="require").reasons == (words,)
    assert read(path, "csv", finite="report").notes == ()


@pytest.mark.parametrize("save_as", [np.savez, np.savez_compressed], ids=["stored", "compressed"])
@pytest.mark.parametrize("kind", ["U6", ">U6", "S6"])
def test_a_text_in_place_of_a_number_in_an_array(tmp_path: Path, save_as: Any, kind: str) -> None:
    path = tmp_path / "a.npz"
    record = np.array([(1.0, " NaN")], dtype=[("x", "f8"), ("y", kind)])
    loss, names = np.array(["0.5", "nan"], kind), np.array(["nano", "\u1e80"] if "U" in kind else ["nano"], kind)
    save_as(path, loss=loss, names=names, record=record, x=np.arange(3.0))
    words = "has null or a text in place of a number (loss, record)"
    assert read(path, "npz").notes == (words,)
    assert read(path, "npz", plausible="require").reasons == (words,)
    assert read(path, "npz", finite="report").notes == ()


def test_texts_of_no_characters_are_read_over(tmp_path: Path) -> None:
    """Numbers beyond Unicode in an array of texts: numpy loads it, and so it is good."""
    path = tmp_path / "a.npy"
    np.save(path, np.frombuffer(b"\xff\xff\xff\xff" * 4, "<U2"))
    assert read(path, "npy").ok


def test_a_key_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for text in ('{"loss": NaN, "loss": 1}', '{"a": [{"loss": 1, "loss": 1}]}'):
        path.write_text(text)
        assert read(path, "json").reasons == ("names a key twice: loss",)


def test_no_time_is_no_number(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, when=np.array(["NaT", "2026-11-22"], dtype="M8[s]"))
    assert read(path, "npz").reasons == ("1 non-finite (when)",)


def test_the_size_alone_settles_what_is_too_long(tmp_path: Path) -> None:
    """A sparse file of a terabyte is not read to its end."""
    path = tmp_path / "a.pt"
    path.touch()
    with path.open("r+b") as handle:
        handle.truncate(1 << 40)
    found = load(str(path), PlainSpec("torch"), "0" * 64, expected_size=878)
    assert (found.unknown, found.reasons) == (False, ("too long: 1,099,511,627,776 of 878 bytes",))
