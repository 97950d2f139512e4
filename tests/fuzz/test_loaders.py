"""What the library refuses is never good: our readers against torch, numpy, safetensors, json and csv on damaged files.

Every case is drawn from a seed that the failure names. Only one direction is asked: our readers may refuse more.
"""

from __future__ import annotations

import csv
import io
import json
import random
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweepstack.loaders.base import PlainSpec
from sweepstack.loaders.load import load

CASES = 200
NUMBERS = np.random.default_rng(7)


def _npz(save: Callable[..., None]) -> bytes:
    out = io.BytesIO()
    save(out, weight=NUMBERS.standard_normal((4, 6), np.float32), step=np.arange(5), name=np.array(["a", "bc"]))
    return out.getvalue()


def _npy(**settings: Any) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, np.asfortranarray(NUMBERS.standard_normal((3, 5), np.float32)), **settings)
    return out.getvalue()


def _safetensors() -> bytes:
    from safetensors.numpy import save

    return save({"w1": NUMBERS.standard_normal((4, 3), np.float32), "w2": np.arange(7)}, {"by": "test"})


def _read_npz(path: Path) -> None:
    with np.load(path) as archive:
        for name in archive.files:
            archive[name]


def _read_safetensors(path: Path) -> None:
    from safetensors.numpy import load_file

    load_file(path)


def _read_json(path: Path) -> None:
    json.loads(path.read_text(encoding="utf-8-sig"))


def _read_csv(path: Path) -> None:
    with path.open(encoding="utf-8-sig", newline="") as handle:
        for _ in csv.reader(handle, strict=True):
            pass


def _torch() -> bytes:
    torch = pytest.importorskip("torch")
    out = io.BytesIO()
    weights = torch.randn(4, 3, generator=torch.Generator().manual_seed(7))
    torch.save({"model": {"w": weights, "half": weights.half()}, "step": 3, "name": "run"}, out)
    return out.getvalue()


def _read_torch(path: Path) -> None:
    import torch

    torch.load(path, map_location="cpu", weights_only=True)


KINDS: dict[str, tuple[str, Callable[[], bytes], Callable[[Path], None]]] = {
    "npz": ("npz", lambda: _npz(np.savez), _read_npz),
    "npz-compressed": ("npz", lambda: _npz(np.savez_compressed), _read_npz),
    "npy-1": ("npy", _npy, lambda path: np.load(path)),
    "npy-2": ("npy", lambda: _npy(version=(2, 0)), lambda path: np.load(path)),
    "npy-3": ("npy", lambda: _npy(version=(3, 0)), lambda path: np.load(path)),
    "safetensors": ("safetensors", _safetensors, _read_safetensors),
    "json": ("json", lambda: b'{"loss": [0.5, {"a": -1e3}], "text": "a\\u00e4", "none": true}', _read_json),
    "csv": ("csv", lambda: b'step,loss\n1,0.5\n2,"0.25"\n3,"a ""b"""\n', _read_csv),
}


def damaged(good: bytes, dice: random.Random) -> bytes:
    """The same with one to three changes, where they matter most: in headers, names and directories."""
    data = bytearray(good)
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        at = dice.choice((dice.randrange(len(data)), dice.randrange(min(len(data), 160)), -dice.randrange(1, 200)))
        at = max(-len(data), min(at, len(data) - 1))
        match dice.randrange(6):
            case 0 | 1:
                data[at] ^= 1 << dice.randrange(8)
            case 2:
                data[at] = dice.choice(b"\x00\x20\xa0\xff\x09{}[](),:'\"0129LTFn\\")
            case 3:
                del data[at : at + dice.randrange(1, 9) if at >= 0 else None]
            case 4:
                data[at:at] = bytes(data[at : at + dice.randrange(1, 9)])
            case _:
                data += bytes([dice.randrange(256)])
        if not data:
            return bytes(good[: len(good) // 2])
    return bytes(data)


def agree(loader: Any, path: Path, library: Callable[[Path], None], case: str) -> bool:
    """Whether ours finds it good. Fails where ours does and the library refuses."""
    found = load(str(path), PlainSpec(loader, finite="report"))
    if found.ok:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                library(path)
            except Exception as error:
                pytest.fail(f"{case}: good for us, and the library says {type(error).__name__}: {error}")
    return found.ok


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_library_refuses_is_never_good(tmp_path: Path, kind: str) -> None:
    loader, make, library = KINDS[kind]
    good = make()
    path = tmp_path / "file"
    path.write_bytes(good)
    assert agree(loader, path, library, "undamaged")
    for seed in range(CASES):
        path.write_bytes(damaged(good, random.Random(f"{kind}-{seed}")))
        agree(loader, path, library, f"{kind}, seed {seed}")


@pytest.mark.torch
def test_what_torch_refuses_is_never_good(tmp_path: Path) -> None:
    good = _torch()
    path = tmp_path / "file"
    path.write_bytes(good)
    assert agree("torch", path, _read_torch, "undamaged")
    for seed in range(CASES):
        path.write_bytes(damaged(good, random.Random(f"torch-{seed}")))
        agree("torch", path, _read_torch, f"torch, seed {seed}")


def rewritten(good: bytes, change: Callable[[dict[str, bytes]], None]) -> bytes:
    """A zip file with other parts."""
    with zipfile.ZipFile(io.BytesIO(good)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    change(parts)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in parts.items():
            archive.writestr(name, data)
    return out.getvalue()


@pytest.mark.torch
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda parts: parts.update({"../../../tmp/evil": b"x"}), "holds parts outside of"),
        (lambda parts: parts.update({"/tmp/evil": b"x"}), "holds parts outside of"),
        (lambda parts: [parts.pop(name) for name in list(parts) if name.endswith("version")], "lacks the version"),
        (lambda parts: parts.update({n: b"99" for n in parts if n.endswith("/version")}), "is of torch's format"),
        (
            lambda parts: parts.update({n: d.replace(b"\x80\x02", b"\x80\x04\x95" + bytes(8), 1)
                                        for n, d in parts.items() if n.endswith("data.pkl")}),
            "FRAME",
        ),
    ],
    ids=["path-up", "path-absolute", "no-version", "version-99", "protocol-4"],
)  # fmt: skip
def test_zip_files_that_torch_refuses(tmp_path: Path, change: Any, words: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(rewritten(_torch(), change))
    with pytest.raises(Exception, match=r"\w"):
        _read_torch(path)
    assert words in load(str(path), PlainSpec("torch")).reasons[0]
