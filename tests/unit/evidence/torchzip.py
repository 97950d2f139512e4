"""Writes checkpoints in torch's zip format without torch: as torch lays them out, or wrong on purpose."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

STORAGE_OF = {
    "f8": "DoubleStorage",
    "f4": "FloatStorage",
    "f2": "HalfStorage",
    "bf16": "BFloat16Storage",
    "i8": "LongStorage",
    "i4": "IntStorage",
    "i2": "ShortStorage",
    "i1": "CharStorage",
    "u1": "ByteStorage",
    "bool": "BoolStorage",
    "c8": "ComplexFloatStorage",
    "c16": "ComplexDoubleStorage",
}
ITEMSIZE = {"bf16": 2, "bool": 1, "c8": 8, "c16": 16} | {
    kind: int(kind[1]) for kind in ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1")
}


@dataclass(frozen=True)
class Global:
    """A name in a pickle; never imported by the writer."""

    module: str
    name: str

    def __call__(self) -> None:
        """The pickler wants what it reduces to be callable."""


@dataclass(eq=False)
class Blob:
    """A storage: raw bytes, number type, and how many it says it holds (all of them by default)."""

    data: bytes
    kind: str = "f4"
    count: int | None = None
    global_: Global | None = None


@dataclass(eq=False)
class View:
    """A tensor on a storage."""

    blob: Blob
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    rebuild: Global = Global("torch._utils", "_rebuild_tensor_v2")
    rest: tuple[Any, ...] = (False, OrderedDict())

    def __reduce__(self) -> tuple[Any, ...]:
        return self.rebuild, (self.blob, self.offset, self.size, self.stride, *self.rest)


@dataclass(eq=False)
class Parameter:
    """A tensor that is a parameter."""

    view: View

    def __reduce__(self) -> tuple[Any, ...]:
        return Global("torch._utils", "_rebuild_parameter"), (self.view, True, OrderedDict())


@dataclass(eq=False)
class Calls:
    """What a hostile pickle does: calls something with something."""

    what: Global
    arguments: tuple[Any, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return self.what, self.arguments


def tensor(array: Any, kind: str = "f4") -> View:
    """A contiguous tensor of `array`, which holds raw uint16 for bf16."""
    array = np.asarray(array, order="C")
    strides = tuple(step // array.itemsize for step in array.strides)
    return View(Blob(array.tobytes(), kind), 0, array.shape, strides)


def bf16(values: Any) -> View:
    """A bfloat16 tensor of float32 values, cut off."""
    return tensor((np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16), "bf16")


@dataclass
class _Written:
    blobs: list[Blob] = field(default_factory=list)

    def key(self, blob: Blob) -> str:
        if blob not in self.blobs:
            self.blobs.append(blob)
        return str(self.blobs.index(blob))


class _Pickler(pickle._Pickler):  # type: ignore[misc]
    # dill, which pulumi imports, changes the table of the whole process.
    dispatch: ClassVar[Any] = {**pickle._Pickler.dispatch, type: pickle._Pickler.save_type}  # type: ignore[attr-defined]

    def __init__(self, file: io.BytesIO, written: _Written) -> None:
        super().__init__(file, protocol=2)
        self.written = written

    def save(self, obj: Any, save_persistent_id: bool = True) -> Any:
        if isinstance(obj, Global):
            return self.write(pickle.GLOBAL + f"{obj.module}\n{obj.name}\n".encode())
        return super().save(obj, save_persistent_id)

    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, Blob):
            return None
        name = obj.global_ or Global("torch", STORAGE_OF[obj.kind])
        count = len(obj.data) // ITEMSIZE[obj.kind] if obj.count is None else obj.count
        return ("storage", name, self.written.key(obj), "cpu", count)


def dump(root: Any) -> tuple[bytes, list[Blob]]:
    """The bytes of `data.pkl`, and the storages in the order of their keys."""
    written = _Written()
    out = io.BytesIO()
    _Pickler(out, written).dump(root)
    return out.getvalue(), written.blobs


def save(
    root: Any,
    path: Path,
    *,
    compression: int = zipfile.ZIP_STORED,
    pickle_bytes: bytes | None = None,
    byteorder: bytes = b"little",
    extra: dict[str, bytes] | None = None,
    lacking: tuple[str, ...] = (),
) -> None:
    """Writes `root` (dicts, lists, numbers, `View`s) to `path`: an archive of `data.pkl`, `data/0` and so on."""
    data, blobs = dump(root)
    parts: dict[str, bytes] = {"data.pkl": data if pickle_bytes is None else pickle_bytes, "byteorder": byteorder}
    parts |= {f"data/{index}": blob.data for index, blob in enumerate(blobs)}
    parts |= {"version": b"3\n", ".data/serialization_id": b"0" * 40, **(extra or {})}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in parts.items():
            if name not in lacking:
                _write_part(archive, f"archive/{name}", content, compression)


def _write_part(archive: zipfile.ZipFile, name: str, content: bytes, compression: int) -> None:
    info = zipfile.ZipInfo(name)
    info.compress_type = compression
    # torch puts every part's bytes at a multiple of 64, by a padding field in its header
    assert archive.fp is not None
    start = archive.fp.tell() + 30 + len(name)
    padding = -(start + 4) % 64
    info.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
    archive.writestr(info, content)
