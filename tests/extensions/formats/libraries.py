"""Each format's own library reads a file whole, and raises where it refuses it."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def _text(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")


def jsonl(path: Path) -> None:
    for line in _text(path).split("\n"):
        if line.strip():
            json.loads(line)


def table(path: Path) -> None:
    list(csv.reader(io.StringIO(_text(path), newline=""), strict=True))


def yaml(path: Path) -> None:
    import yaml as library

    list(library.safe_load_all(path.read_text("utf-8")))


def image(path: Path) -> None:
    from PIL import Image

    with Image.open(path) as opened:
        opened.load()


def tar(path: Path) -> None:
    with tarfile.open(path, "r:*") as archive:
        for member in archive:
            if member.isreg():
                opened = archive.extractfile(member)
                assert opened is not None
                assert len(opened.read()) == member.size


def zipped(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None


def gguf(path: Path) -> None:
    from gguf import GGUFReader

    for tensor in GGUFReader(path).tensors:
        np.asarray(tensor.data).sum()


def onnx(path: Path) -> None:
    from onnx import checker

    checker.check_model(str(path))


def hdf5(path: Path) -> None:
    import h5py

    def read(_: str, one: Any) -> None:
        if isinstance(one, h5py.Dataset):
            one[()]

    with h5py.File(path) as root:
        root.visititems(read)


def safetensors(path: Path) -> None:
    from safetensors.numpy import load_file

    for file in path.glob("*.safetensors"):
        load_file(file)


def lightning(path: Path) -> None:
    import torch

    torch.load(path, map_location="cpu", weights_only=True)


def trainer(path: Path) -> None:
    safetensors(path)
    for name in ("optimizer.pt", "scheduler.pt"):
        if (path / name).exists():
            lightning(path / name)
    json.loads((path / "trainer_state.json").read_text())


def tensorboard(path: Path) -> None:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    assert len(list(EventFileLoader(str(path)).Load())) > 1


def zarr(path: Path) -> None:
    import zarr as library

    for _, one in library.open_group(str(path), mode="r").members():
        if isinstance(one, library.Array):
            one[...]


def dcp(path: Path) -> None:
    """Into a model of the right shape, as training goes on from it."""
    import torch.distributed.checkpoint as library

    from tests.extensions.formats.samples import _torch_model

    state = {"model": _torch_model().state_dict(), "step": 0}
    library.load(state, checkpoint_id=str(path))


LIBRARIES: dict[str, Callable[[Path], None]] = {
    **dict.fromkeys(("jsonl", "jsonl.gz"), jsonl),
    **dict.fromkeys(("tsv", "csv.gz"), table),
    "yaml": yaml,
    **dict.fromkeys(("png", "jpg"), image),
    **dict.fromkeys(("tar", "tar.gz", "wds.tar"), tar),
    **dict.fromkeys(("zip", "keras"), zipped),
    "gguf": gguf,
    "onnx": onnx,
    "h5": hdf5,
    **dict.fromkeys(("hf", "hf-whole", "adapter"), safetensors),
    "ckpt": lightning,
    "checkpoint-500": trainer,
    "tfevents": tensorboard,
    "zarr": zarr,
    "dcp": dcp,
}
"""Not those that only our own reader can be asked safely, such as pickles."""
