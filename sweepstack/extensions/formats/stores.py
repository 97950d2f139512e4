"""The readers of folders of arrays: Zarr, Orbax, and PyTorch's distributed checkpoints."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweepstack.core.printable import printable
from sweepstack.extensions.formats.numbers import Arrays, add_parts
from sweepstack.loaders.base import Content, Folder, NoAnswer, Spec, Unreadable, Unsupported, some
from sweepstack.loaders.scan import Region, Scan
from sweepstack.loaders.torch_files.archive import restricted

PART = 64 << 20
"""Bytes of an array that are read at once, unless a row of it has more."""
CODECS = frozenset(
    (
        *("bytes", "transpose", "sharding_indexed", "crc32c", "gzip", "zstd", "blosc", "vlen-utf8", "vlen-bytes"),
        *("zlib", "lz4", "bz2", "lzma", "adler32", "crc32", "fletcher32", "jenkins_lookup3", "shuffle", "delta"),
        *("fixedscaleoffset", "quantize", "packbits", "astype", "bitround", "lz4hc", "zstandard"),
    )
)
"""What may pack a chunk: none of these runs code of the file, as `pickle` does."""
_META = ("zarr.json", ".zarray", ".zgroup", ".zmetadata", ".zattrs")


class Zarr:
    """A Zarr store, of version 2 or 3. Raises Unsupported for a chunk packed by what is not in CODECS."""

    regions: tuple[Region, ...] = ()

    def __init__(self, folder: Folder, spec: Spec) -> None:
        self.folder = folder
        for name in folder.members:
            if name.rpartition("/")[2] in _META:
                _look_at_codecs(name, _json(folder, name))

    def content(self, scanned: Scan) -> Content:
        """Paths of arrays; non-finite numbers by array. A chunk that is not there is one of fill values, and noted.
        Raises Unreadable."""
        import zarr

        found, missing = Content(), list[str]()
        try:
            root = zarr.open(self.folder.path, mode="r")
            arrays = list(_zarr_arrays(zarr, root))
            for path, array in arrays:
                found.names.add(path)
                add_parts(found, path, array, PART)
                if array.nchunks_initialized < array.nchunks:
                    missing.append(path)
        except (MemoryError, Unreadable):
            raise
        except Exception as error:  # codecs of all kinds
            raise Unreadable(f"zarr refuses it ({type(error).__name__})") from None
        if not arrays:
            raise Unreadable("holds no array")
        if missing:
            found.notes.append(f"not all chunks of {some(missing)} are there: they count as fill values")
        return found


def _zarr_arrays(zarr: Any, root: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(root, zarr.Array):
        yield "array", root
        return
    for path, one in root.members(max_depth=None):
        if isinstance(one, zarr.Array):
            yield path, one


def _json(folder: Folder, name: str) -> Any:
    try:
        return json.loads(Path(folder.file(name)).read_text("utf-8"))
    except (ValueError, RecursionError):
        raise Unreadable(f"{printable(name)} is not JSON") from None


def _look_at_codecs(name: str, root: Any) -> None:
    """Raises Unsupported for a codec that is not known: one of them is pickle."""
    pending = [root]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            for key, child in one.items():
                if key in ("compressor", "filters", "codecs", "index_codecs", "object_codec"):
                    entries = child if isinstance(child, list) else [child]
                    for entry in filter(None, entries):
                        kind = str((entry.get("id") or entry.get("name")) if isinstance(entry, dict) else entry)
                        if kind.lower().removeprefix("numcodecs.") not in CODECS:
                            raise Unsupported(
                                f"{printable(name)} asks for the codec {printable(kind, 60)}: nothing was loaded"
                            )
                pending.append(child)
        elif isinstance(one, list):
            pending += one


class Orbax:
    """A checkpoint of Orbax: what its `_METADATA` names is there, and tensorstore reads every number."""

    regions: tuple[Region, ...] = ()

    def __init__(self, folder: Folder, spec: Spec) -> None:
        self.folder = folder
        self.items = sorted(
            name.removesuffix("_METADATA") for name in folder.members if name.rpartition("/")[2] == "_METADATA"
        )
        if not self.items:
            raise Unreadable("is no checkpoint of Orbax: no _METADATA is there")

    def content(self, scanned: Scan) -> Content:
        """Dotted names of arrays; non-finite numbers by array. Raises Unreadable for one that is missing."""
        found = Content()
        for name in self.folder.members:
            if name.rpartition("/")[2] == "_CHECKPOINT_METADATA":
                _json(self.folder, name)
        for item in self.items:
            wanted = self._wanted(item)
            for name in wanted:
                shown = f"{item.rstrip('/').replace('/', '.')}.{name}".lstrip(".")
                found.names |= {name, shown}
                self._array(item, name, shown, found)
        if not found.names:
            raise Unreadable("names no array")
        return found

    def _wanted(self, item: str) -> list[str]:
        tree = _json(self.folder, f"{item}_METADATA")
        entries = tree.get("tree_metadata") if isinstance(tree, dict) else None
        if not isinstance(entries, dict):
            raise Unreadable(f"{printable(item)}_METADATA has no tree_metadata")
        self.zarr3 = bool(tree.get("use_zarr3"))
        try:
            return [
                ".".join(str(key["key"]) for key in entry["key_metadata"])
                for entry in entries.values()
                if not entry["value_metadata"]["skip_deserialize"]
                and entry["value_metadata"]["value_type"] not in ("None", "Dict", "List", "Tuple", "string")
            ]
        except (KeyError, TypeError, AttributeError):
            raise Unreadable(f"{printable(item)}_METADATA has a tree_metadata that does not read") from None

    def _array(self, item: str, name: str, shown: str, found: Content) -> None:
        import tensorstore

        base = f"{self.folder.path.rstrip('/')}/{item}"
        ocdbt = f"{item}manifest.ocdbt" in self.folder.members
        store = (
            {"driver": "ocdbt", "base": {"driver": "file", "path": base}, "path": f"{name}/"}
            if ocdbt
            else {"driver": "file", "path": f"{base}{name}/"}
        )
        kind = {"driver": "zarr3" if self.zarr3 else "zarr", "kvstore": store}
        try:
            array = tensorstore.open(kind, open=True, read=True, context=tensorstore.Context(_FEW)).result(timeout=600)
            add_parts(found, shown, _Stored(array), PART)
        except (ValueError, RuntimeError, OSError, KeyError, TypeError) as error:
            raise Unreadable(f"{printable(shown)}: tensorstore refuses it ({type(error).__name__})") from None


_FEW = {"data_copy_concurrency": {"limit": 1}, "file_io_concurrency": {"limit": 1}}


class _Stored:
    """An array of tensorstore with the slices of one of numpy."""

    def __init__(self, array: Any) -> None:
        self._array, self.shape, self.dtype = array, tuple(array.shape), array.dtype.numpy_dtype

    def __getitem__(self, part: Any) -> Any:
        return self._array[part].read().result(timeout=600)


class _Plain:
    """What stands for an object in a `.metadata`: its arguments and its state. It has no code."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __getattr__(self, name: str) -> Any:
        state = self.__dict__.get("state")
        if isinstance(state, dict) and name in state:
            return state[name]
        raise AttributeError(name)


_ALLOWED = {
    **{
        ("torch.distributed.checkpoint.metadata", name): type(name, (_Plain,), {})
        for name in (
            *("Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata", "TensorProperties"),
            *("MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING"),
        )
    },
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"): type("_StorageInfo", (_Plain,), {}),
    **{
        (module, name): type(name, (_Plain,), {})
        for module in ("pathlib", "pathlib._local")
        for name in ("PosixPath", "PurePosixPath")
    },
    ("torch", "Size"): tuple,
    ("torch.serialization", "_get_layout"): str,
    ("collections", "OrderedDict"): dict,
    ("builtins", "set"): set,
}
"""All that a `.metadata` may name, and what stands for it here: nothing of torch, nothing that the file brings, and no
class of which it could set anything, since the next file is read by the same process."""


class _Metadata(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        found = _ALLOWED.get((module, name))
        if found is None and module == "torch" and name.isidentifier():
            return f"torch.{name}"  # a number type
        if found is None:
            raise Unsupported(f".metadata names {printable(f'{module}.{name}')}: nothing was loaded")
        return found


class Dcp:
    """A distributed checkpoint of PyTorch. Its `.metadata` is a pickle, of which only names and numbers are taken; each
    part is read by torch.load with weights_only=True."""

    regions: tuple[Region, ...] = ()

    def __init__(self, folder: Folder, spec: Spec) -> None:
        self.folder = folder
        if ".metadata" not in folder.members:
            raise Unreadable("holds no .metadata: it was not written to its end, or is no distributed checkpoint")
        try:
            root = _Metadata(io.BytesIO(Path(folder.file(".metadata")).read_bytes())).load()
            self.stored = {name: _kind(one) for name, one in root.state_dict_metadata.items()}
            self.parts = [_part(index, info) for index, info in root.storage_data.items()]
            _check_names(getattr(root, "planner_data", None))
        except (Unreadable, MemoryError):
            raise
        except Exception as error:
            raise Unreadable(f"has a .metadata that does not read ({type(error).__name__})") from None

    def content(self, scanned: Scan) -> Content:
        """Names of tensors and of other values; non-finite numbers by tensor. Raises Unreadable for a part that is not
        there, is cut, or is not what .metadata says."""
        try:
            import torch
        except ImportError:
            raise NoAnswer("can't be read here: torch is not installed. Next: python -m pip install torch") from None
        found, covered = Content(set(self.stored)), dict[str, int]()
        named = {path for _, _, path, _, _ in self.parts}
        if lost := named - {*self.folder.members}:
            raise Unreadable(f"{some(sorted(lost))} is not there, and .metadata names it")
        arrays: dict[str, Arrays] = {}
        for name, offsets, path, at, length in sorted(self.parts, key=lambda part: (part[2], part[3])):
            shape, chunks = self.stored.get(name, (None, {}))
            data = self._bytes(path, at, length)
            if shape is None:
                self._torch(torch, name, data, path)
                continue
            tensor = self._torch(torch, name, data, path)
            size = chunks.get(offsets)
            if not isinstance(tensor, torch.Tensor) or size is None or tuple(tensor.shape) != size:
                raise Unreadable(f"{printable(name)} in {printable(path)} has not the shape that .metadata says")
            covered[name] = covered.get(name, 0) + tensor.numel()
            arrays.setdefault(name, Arrays()).feed(_numpy(torch, tensor))
        for name, (shape, _) in self.stored.items():
            total = 1
            for length in shape or ():
                total *= length
            if shape is not None and covered.get(name, 0) != total:
                raise Unreadable(f"holds {covered.get(name, 0):,} of the {total:,} numbers of {printable(name)}")
        for name, one in arrays.items():
            one.note(found, name)
        if not arrays:
            found.tensorless = True
        return found

    def _bytes(self, path: str, at: int, length: int) -> bytes:
        with open(self.folder.file(path), "rb") as handle:
            handle.seek(at)
            data = handle.read(length)
        if len(data) != length:
            raise Unreadable(f"{printable(path)} is cut off: {self.folder.size_of(path):,} bytes")
        return data

    @staticmethod
    def _torch(torch: Any, name: str, data: bytes, path: str) -> Any:
        try:
            return restricted(torch, io.BytesIO(data))
        except pickle.UnpicklingError as error:
            if "weights_only" in str(error).lower() or "Unsupported" in str(error):
                raise Unsupported(f"{printable(name)} is what torch.load(weights_only=True) refuses") from None
            raise Unreadable(f"{printable(name)} in {printable(path)} does not read") from None
        except (RuntimeError, ValueError, EOFError, OSError, KeyError, AttributeError) as error:
            if "allocate memory" in str(error):  # torch says so with a RuntimeError
                raise MemoryError from None
            raise Unreadable(
                f"{printable(name)} in {printable(path)}: torch refuses it ({type(error).__name__})"
            ) from None


def _kind(one: Any) -> tuple[tuple[int, ...] | None, dict[tuple[int, ...], tuple[int, ...]]]:
    """Of a tensor its shape, and the shape of each part by where it begins; (None, {}) of another value."""
    if type(one).__name__ != "TensorStorageMetadata":
        return None, {}
    return tuple(one.size), {tuple(chunk.offsets): tuple(chunk.sizes) for chunk in one.chunks}


def _check_names(paths: Any) -> None:
    """Raises Unreadable where a name is not that of the path that stands beside it, as DefaultSavePlanner writes both:
    in all other places a name is the same text in the pickle, and one that was changed is changed in all."""
    for name, path in paths.items() if isinstance(paths, dict) else ():
        if isinstance(path, tuple) and name != ".".join(map(str, path)):
            raise Unreadable(f"has a .metadata in which {printable(name)} has another path")


def _part(index: Any, info: Any) -> tuple[str, tuple[int, ...], str, int, int]:
    state = index.state
    offset = state.get("offset") if isinstance(state, dict) else None
    return index.fqn, tuple(offset or ()), info.relative_path, int(info.offset), int(info.length)


def _numpy(torch: Any, tensor: Any) -> Any:
    """As numpy has it; of number types that it lacks as one that holds them."""
    tensor = tensor.detach().cpu()
    kinds = (torch.bfloat16, *(getattr(torch, name) for name in dir(torch) if name.startswith("float8_")))
    return (tensor.float() if tensor.dtype in kinds else tensor).numpy()
