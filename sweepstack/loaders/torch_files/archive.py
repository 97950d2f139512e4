"""Reads torch checkpoints (the zip format of torch 1.6 and later) without torch.

The indices of a sparse tensor have to fit its size, as in torch's own restricted load. Where it is asked for, torch
itself reads the file with `weights_only=True`, after the same pass.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import math
import mmap
import pickle
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepstack.core.printable import printable
from sweepstack.loaders.base import NONE, Bad, Content, NoAnswer, NonFinite, OpenFile, Unreadable, Unsupported, some
from sweepstack.loaders.finite import FORMATS, Constancy, FiniteCheck
from sweepstack.loaders.scan import BLOCK, Region, Scan
from sweepstack.loaders.torch_files.unpickle import (
    COMMAND,
    TORCH,
    UNTYPED,
    Quantized,
    Sparse,
    Storage,
    Tensor,
    holds_nothing,
    is_tensor,
    no_torch_zip,
    refused,
    tensors_of,
    top_level_names,
    unpickle,
)
from sweepstack.loaders.zipdir import ZipDirectory, ZipPart, is_zip, read_directory

NO_CRCS = "was saved without CRCs: judged by its directory, sizes and numbers"
INDICES = ("i8", "i4")
MAX_VERSION = 10
"""Of torch's zip format: `kMaxSupportedFileFormatVersion` of torch 2.15."""
MAX_PICKLE = 256 << 20
"""Bytes of `data.pkl`, which holds names and sizes but no tensor's numbers."""

_FOREIGN = re.compile(r"(?:Unsupported global: GLOBAL|unsupported GLOBAL|Unsupported class) ([\w.<>]+)")
"""How torch says that a pickle names what its restricted load does not take."""


def zip_regions(directory: ZipDirectory, formats: dict[str, str], *, big_endian: bool = False) -> list[Region]:
    """All parts that lie in the file as they are: the CRC to be met (None where none was computed), and by name the
    format of their numbers."""
    return [
        Region(
            part.start,
            part.end,
            part.name,
            None if directory.without_crcs else part.crc,
            formats.get(part.name),
            big_endian,
        )
        for part in directory.parts.values()
        if not part.compressed
    ]


class TorchZip:
    """A checkpoint's structure. Raises Unreadable when it is none.

    One that holds more than this reader takes has regions, too: `content` refuses it only once its CRCs are met.
    """

    def __init__(self, file: OpenFile) -> None:
        if not is_zip(file):
            begin = file.read(0, min(file.size, 16))
            raise no_torch_zip(begin) or Unreadable("is not a torch zip file: damaged from the start")
        self.file = file
        self.directory = read_directory(file)
        self.prefix = self._prefix()
        self._check_version()
        self.big_endian = self._byte_order() == b"big"
        self.refused: Unsupported | None = None
        self.tensors: list[tuple[str, Tensor]] = []
        self.beside: list[tuple[str, Tensor]] = []
        """Of sparse tensors the values (a matrix of places may be all ones) and indices; scales of quantized ones."""
        self.numbers = 0
        self.sparse: list[tuple[str, Sparse]] = []
        self.formats: dict[str, str] = {}
        self.root: Any = None
        self.unscaled: list[str] = []
        try:
            self.root, storages = unpickle(self.directory.read(file, f"{self.prefix}/data.pkl", MAX_PICKLE))
            for name, value in tensors_of(self.root, is_tensor):
                self._add(name, value)
            self.formats = self._storage_formats(storages)
        except Unsupported as refused:
            self.refused = refused
        self.regions = zip_regions(self.directory, self.formats, big_endian=self.big_endian)

    def content(self, scanned: Scan) -> Content:
        """Names, and non-finite numbers by tensor: numbers of a storage that no tensor shows do not count. Raises
        Unreadable."""
        if self.refused:
            self._check_compressed()
            raise self.refused
        names = top_level_names(self.root) | {name for name, _ in self.tensors + self.beside}
        suspects, constant = self._check_compressed()
        suspects |= set(scanned.nonfinite)
        constant |= scanned.constant
        found = Content(names)
        if holds_nothing(self.root):
            raise Unreadable("holds nothing: no tensor, and no other value")
        found.tensorless = not self.numbers
        if self.directory.without_crcs:
            found.notes.append(NO_CRCS)
        for name, sparse in self.sparse:
            check(name or "tensor", sparse, [self._shown(index) for index in sparse.indices])
        for name, tensor in self.tensors:
            if FORMATS[tensor.format].can_fail and tensor.elements > 1:
                found.add_floats(name or "tensor", constant=self._part(tensor.storage).name in constant)
        for name, tensor in self.tensors + self.beside:
            part = self._part(tensor.storage)
            if part.name in suspects and (bad := self._count(tensor, part)).total:
                found.nonfinite.append(NonFinite(name or "tensor", bad, tensor.elements == 1))
        found.nonfinite += [NonFinite(name or "tensor", Bad(1, 1)) for name in self.unscaled]
        return found

    def _add(self, name: str, value: Tensor | Sparse | Quantized) -> None:
        if isinstance(value, Sparse):
            self.sparse.append((name, value))
            self.numbers += math.prod(value.size)
            self.beside += [(name, part) for part in (value.values, *value.indices)]
        elif isinstance(value, Quantized):
            self.numbers += value.numbers.elements
            self.tensors.append((name, value.numbers))
            self.beside += [(name, scales) for scales in value.scales]
            self.unscaled += [name] if not math.isfinite(value.scale) else []
        else:
            self.numbers += value.elements
            self.tensors.append((name, value))

    def _prefix(self) -> str:
        found = [name for name in self.directory.parts if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(found) != 1:
            raise Unreadable("is a zip file, but not one of torch: it does not hold one data.pkl")
        prefix = found[0].removesuffix("/data.pkl")
        parts = self.directory.parts
        strange = [name for name in parts if not name.startswith(f"{prefix}/") or ".." in name.split("/")]
        if strange:
            raise Unreadable(f"holds parts outside of {printable(prefix)}/, which torch.load refuses: {some(strange)}")
        return prefix

    def _check_version(self) -> None:
        """torch.load refuses a file without the version of its format, and one that it does not know."""
        names = (f"{self.prefix}/.data/version", f"{self.prefix}/version")
        name = next((name for name in names if name in self.directory.parts), None)
        if name is None:
            raise Unreadable("lacks the version of its format, which torch.load needs")
        text = self.directory.read(self.file, name, 32)
        try:
            version = int(text)
        except ValueError:
            version = 0
        if not 1 <= version <= MAX_VERSION:
            raise Unreadable(f"is of torch's format {printable(repr(text))}, and 1 to {MAX_VERSION} are read")

    def _byte_order(self) -> bytes:
        name = f"{self.prefix}/byteorder"
        if name not in self.directory.parts:
            return b"little"
        order = self.directory.read(self.file, name, 16)
        if order not in (b"little", b"big"):
            raise Unreadable("has no proper byte order")
        return order

    def _part(self, storage: Storage) -> ZipPart:
        part = self.directory.parts.get(f"{self.prefix}/data/{storage.key}")
        if part is None:
            raise Unreadable(f"lacks the data of storage {printable(storage.key)}")
        return part

    def _storage_formats(self, storages: Sequence[Storage]) -> dict[str, str]:
        """Part name → format of its numbers, of all storages that tensors show. Every storage is looked at."""
        declared: dict[str, Storage] = {}
        formats: dict[str, str] = {}
        for storage in storages:
            part = self._part(storage)
            itemsize = 1 if storage.format == UNTYPED else FORMATS[storage.format].itemsize
            if storage.length * itemsize != part.size:
                raise Unreadable(
                    f"storage {printable(storage.key)} holds {part.size:,} bytes, not {storage.length * itemsize:,}"
                )
            if declared.setdefault(part.name, storage) != storage:
                raise Unsupported(f"storage {printable(storage.key)} is said to be of two number types; {TORCH}")
        for _, tensor in self.tensors + self.beside:
            part, key = self._part(tensor.storage), printable(tensor.storage.key)
            if formats.setdefault(part.name, tensor.format) != tensor.format:
                raise Unsupported(f"storage {key} is looked at as two number types; {TORCH}")
            if part.size % FORMATS[tensor.format].itemsize:
                raise Unsupported(f"storage {key} does not hold whole numbers; {TORCH}")
        return formats

    def _check_compressed(self) -> tuple[set[str], set[str]]:
        """Unpacks what was compressed, block by block: CRCs are met, and the names of parts that are not finite, and
        of those that hold one number only, again and again."""
        suspects, constant = set(), set()
        for part in self.directory.parts.values():
            if not part.compressed:
                continue
            format_ = self.formats.get(part.name)
            check = FiniteCheck(format_, block=BLOCK, big_endian=self.big_endian) if format_ else None
            same = Constancy(FORMATS[format_].itemsize) if format_ else None
            for block in self.directory.unpack(part, BLOCK):
                if check and not check.holds(memoryview(block)):
                    suspects.add(part.name)
                if same:
                    same.feed(memoryview(block))
            if same and same.holds:
                constant.add(part.name)
        return suspects, constant

    def _count(self, tensor: Tensor, part: ZipPart) -> Bad:
        check = FiniteCheck(tensor.format, block=BLOCK, big_endian=self.big_endian)
        units = FORMATS[tensor.format].itemsize // check.dtype.itemsize
        found = NONE
        for chunk in _chunks(self._numbers(part, check.dtype).reshape(-1, units), tensor):
            found = found.and_more(check.count(chunk))
        return found

    def _shown(self, tensor: Tensor) -> NDArray[Any]:
        """The whole numbers that a tensor shows, in its shape."""
        if tensor.format not in INDICES or not tensor.elements:
            return np.zeros(tensor.size, np.int64)
        dtype = np.dtype((">" if self.big_endian else "<") + tensor.format)
        values = self._numbers(self._part(tensor.storage), dtype)[tensor.offset :]
        steps = [step * dtype.itemsize for step in tensor.stride]
        return np.lib.stride_tricks.as_strided(values, tensor.size, steps, writeable=False)

    def _numbers(self, part: ZipPart, dtype: np.dtype[Any]) -> NDArray[Any]:
        """All numbers of a storage."""
        count = part.size // dtype.itemsize
        if part.compressed:
            return np.frombuffer(b"".join(self.directory.unpack(part, BLOCK)), dtype, count)
        data = mmap.mmap(self.file.fd, part.end, access=mmap.ACCESS_READ)
        return np.frombuffer(data, dtype, count, part.start)


def _chunks(values: NDArray[Any], tensor: Tensor) -> Iterator[NDArray[Any]]:
    """The numbers that a tensor shows, each once, in pieces. `values`: all numbers of its storage, one row each."""
    start, end = tensor.reach
    pairs = zip(tensor.size, tensor.stride, strict=True)
    dimensions = [(length, step) for length, step in pairs if length > 1 and step]
    shown = math.prod(length for length, _ in dimensions)
    if shown >= end - start:  # dense, or overlapping itself: all between first and last
        for first in range(start, end, BLOCK):
            yield values[first : min(end, first + BLOCK)]
        return
    width = values.itemsize * values.shape[1]
    view = np.lib.stride_tricks.as_strided(
        values[start:],
        [length for length, _ in dimensions] + [values.shape[1]],
        [step * width for _, step in dimensions] + [values.itemsize],
        writeable=False,
    )
    yield from np.nditer(view, flags=["external_loop", "buffered"], buffersize=BLOCK)


ROWS = ("torch.sparse_csr", "torch.sparse_bsr")
COLUMNS = ("torch.sparse_csc", "torch.sparse_bsc")
BLOCKS = ("torch.sparse_bsr", "torch.sparse_bsc")

Numbers = NDArray[Any]


def check(name: str, sparse: Sparse, indices: list[Numbers]) -> None:
    """Raises Unreadable where they don't; Unsupported for a layout that is not known here. `indices`: the numbers of
    `sparse.indices`."""
    if sparse.layout == "torch.sparse_coo":
        good = _places_each(sparse, indices[0])
    elif sparse.layout in ROWS + COLUMNS and len(indices) == 2:
        good = _compressed(sparse, *indices)
    else:
        raise Unsupported(f"holds a sparse tensor ({name}) of a layout that this reader does not take; {TORCH}")
    if not good:
        raise Unreadable(f"holds a sparse tensor ({name}) whose indices do not fit its size")


def _places_each(sparse: Sparse, indices: Numbers) -> bool:
    """Of COO: one column of indices for each number, in order and each once where it says so."""
    if indices.ndim != 2:
        return False
    dimensions, count = indices.shape
    if sparse.values.size != (count, *sparse.size[dimensions:]) or dimensions > len(sparse.size):
        return False
    if not _within(indices, 0, np.array(sparse.size[:dimensions]).reshape(-1, 1)):
        return False
    before, after = indices[:, :-1], indices[:, 1:]
    smaller, equal = np.zeros(max(count - 1, 0), bool), np.ones(max(count - 1, 0), bool)
    for one, next_ in zip(before, after, strict=True):
        smaller |= equal & (one < next_)
        equal &= one == next_
    return not sparse.coalesced or bool(smaller.all())


def _compressed(sparse: Sparse, starts: Numbers, places: Numbers) -> bool:
    """Of CSR, CSC and their blocks: where each row (or column) begins, and its places, in order, each once."""
    batch = starts.ndim - 1
    if batch < 0 or len(sparse.size) < batch + 2 or places.ndim != batch + 1:
        return False
    count = places.shape[-1]
    block = sparse.values.size[batch + 1 : batch + 3] if sparse.layout in BLOCKS else (1, 1)
    if sparse.values.size[: batch + 1] != places.shape or len(block) != 2 or not all(block):
        return False
    rows, columns = (length // of for length, of in zip(sparse.size[batch : batch + 2], block, strict=True))
    lines, places_in_line = (rows, columns) if sparse.layout in ROWS else (columns, rows)
    if starts.shape != (*sparse.size[:batch], lines + 1) or places.shape[:-1] != starts.shape[:-1]:
        return False
    groups = math.prod(starts.shape[:-1])
    starts, places = starts.reshape(groups, lines + 1), places.reshape(groups, count)
    if (starts[:, 0] != 0).any() or (starts[:, -1] != count).any() or not _within(places, 0, places_in_line):
        return False
    if not _within(np.diff(starts, axis=1), 0, places_in_line + 1):
        return False
    for start, place in zip(starts, places, strict=True):
        rising = np.diff(place) > 0
        begins = start[1:-1]
        rising[begins[(begins > 0) & (begins < count)] - 1] = True
        if not rising.all():
            return False
    return True


def _within(values: Numbers, least: int, below: Any) -> bool:
    return not values.size or bool((values >= least).all() and (values < below).all())


def restricted(torch: Any, handle: Any) -> Any:
    """What torch's restricted load gives. Raises what that raises.

    Where it fails, torch 2.15 keeps the sparse tensors that it had made, some without their numbers yet, and judges the
    next file of this thread by them. So an empty one is loaded then, of which it may say what it likes.
    """
    try:
        return torch.load(handle, map_location="cpu", weights_only=True)
    except Exception:
        empty = io.BytesIO()
        torch.save({}, empty)
        empty.seek(0)
        with contextlib.suppress(Exception):
            torch.load(empty, map_location="cpu", weights_only=True)
        raise


class TorchLoaded:
    """A checkpoint as torch itself loads it onto the CPU. Memory: the whole checkpoint."""

    def __init__(self, file: OpenFile) -> None:
        self.file = file
        directory = read_directory(file) if is_zip(file) else None
        self.without_crcs = directory is not None and directory.without_crcs
        self.regions = zip_regions(directory, {}) if directory is not None else []

    def content(self, scanned: Scan) -> Content:
        """Loads it. Raises Unreadable when torch refuses."""
        torch: Any = importlib.import_module("torch")
        torch.set_num_threads(1)
        try:
            with self.file.stream() as handle:
                root = restricted(torch, handle)
        except MemoryError:
            raise
        except Exception as error:
            if "allocate memory" in str(error):  # torch says so with a RuntimeError
                raise MemoryError from None
            if isinstance(error, pickle.UnpicklingError) and (foreign := _FOREIGN.search(str(error))):
                raise refused(*foreign[1].rpartition(".")[::2]) from None
            whole = isinstance(error, pickle.UnpicklingError) and bool(self.regions)  # its CRCs were met
            said = f"torch.load(weights_only=True) refuses it ({type(error).__name__})"
            if whole or "TorchScript" in str(error):
                raise Unsupported(f"{said}: save its state_dict, {COMMAND}") from None
            raise Unreadable(said) from None
        tensors = list(tensors_of(root, lambda value: isinstance(value, torch.Tensor)))
        if not tensors and holds_nothing(root):
            raise Unreadable("holds nothing: no tensor, and no other value")
        if any(tensor.is_meta for _, tensor in tensors):
            raise Unsupported(f"holds a tensor without numbers (of device meta): save the real one, {COMMAND}")
        found = Content(top_level_names(root) | {name for name, _ in tensors})
        found.tensorless = not any(tensor.numel() for _, tensor in tensors)
        found.notes += [NO_CRCS] if self.without_crcs else []
        try:
            for name, tensor in tensors:
                bad = _nonfinite(torch, tensor)
                if bad.total:
                    found.nonfinite.append(NonFinite(name or "tensor", bad, tensor.numel() == 1))
                if _floats(tensor):
                    found.add_floats(name or "tensor", constant=bool((tensor == tensor.reshape(-1)[0]).all()))
        except RuntimeError as error:  # torch has loaded it: an expanded tensor may be larger than the memory
            raise NoAnswer(f"could not be checked number by number ({printable(str(error), 160)})") from None
        return found


def _floats(tensor: Any) -> bool:
    return bool(tensor.is_floating_point() and not tensor.is_quantized and tensor.numel() > 1 and _strided(tensor))


def _strided(tensor: Any) -> bool:
    return str(tensor.layout) == "torch.strided" and tensor.element_size() > 1


def _nonfinite(torch: Any, tensor: Any) -> Bad:
    if tensor.layout is not torch.strided:
        tensor = tensor.coalesce().values() if tensor.layout is torch.sparse_coo else tensor.values()
    if tensor.is_quantized:
        each = str(tensor.qscheme()).startswith("torch.per_channel")
        tensor = tensor.q_per_channel_scales() if each else torch.tensor([tensor.q_scale()])
    if not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
        return NONE
    if tensor.element_size() == 1:
        tensor = tensor.to(torch.float32)
    odd = int(tensor.numel() - torch.isfinite(tensor).sum())
    return Bad(odd, int(torch.isnan(tensor).sum())) if odd else NONE
