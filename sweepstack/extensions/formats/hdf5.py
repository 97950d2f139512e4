"""The readers of HDF5 and of Keras' .keras: h5py reads every number, and no model is built."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from typing import Any

os.environ["HDF5_PLUGIN_PRELOAD"] = "::"  # before h5py: a file may name a filter, and none is loaded for it

import h5py

from sweepstack.core.printable import printable
from sweepstack.extensions.formats.numbers import add_parts
from sweepstack.extensions.formats.shared import LibraryFile
from sweepstack.loaders.base import Content, OpenFile, Spec, Unreadable, Unsupported, unique_keys
from sweepstack.loaders.scan import Scan
from sweepstack.loaders.torch_files.archive import zip_regions
from sweepstack.loaders.zipdir import is_zip, read_directory

MAX_JSON = 256 << 20
PART = 4 << 20
"""Bytes of a dataset that are read at once, unless one of its chunks is larger."""
_NO_HDF5 = (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError, UnicodeDecodeError)


class Hdf5(LibraryFile):
    """An HDF5 file. Raises Unsupported where a part of it lies in other files."""

    def content(self, scanned: Scan) -> Content:
        """Paths of groups and datasets; non-finite numbers by dataset. Raises Unreadable, also without a dataset."""
        return read(self.file.path)


class Keras:
    """A .keras: config.json, metadata.json, and weights as HDF5. Its config is read as JSON, and nothing is built."""

    def __init__(self, file: OpenFile, spec: Spec) -> None:
        if not is_zip(file):
            raise Unreadable("is no .keras file, or damaged from the start")
        self.file, self.directory = file, read_directory(file)
        self.regions = zip_regions(self.directory, {})
        for name in ("config.json", "metadata.json", "model.weights.h5"):
            if name not in self.directory.parts:
                raise Unreadable(f"is no .keras file: it holds no {name}")
        for name in ("config.json", "metadata.json"):
            try:
                json.loads(self.directory.read(file, name, MAX_JSON), object_pairs_hook=unique_keys)
            except (ValueError, RecursionError):
                raise Unreadable(f"has a {name} that is not JSON") from None

    def content(self, scanned: Scan) -> Content:
        """Paths in its weights; non-finite numbers by dataset. Raises Unreadable."""
        return read(io.BytesIO(self.directory.read(self.file, "model.weights.h5", max(self.file.size * 64, 1 << 26))))


def read(source: Any) -> Content:
    """All datasets and attributes of an HDF5 file, from its path or from memory. Raises Unreadable, Unsupported."""
    found, count = Content(), 0
    try:
        with h5py.File(source, "r", locking=False) as root:
            _attributes(root)
            for path, one in _walk(root):
                found.names.add(path)
                _attributes(one)
                if isinstance(one, h5py.Dataset):
                    count += 1
                    _read(found, path, one)
    except _NO_HDF5 as error:
        raise Unreadable(f"h5py refuses it ({type(error).__name__})") from None
    if not count:
        raise Unreadable("holds no dataset")
    return found


def _walk(root: Any) -> Iterator[tuple[str, Any]]:
    """(path, group or dataset) of each, once."""
    pending, seen = [("", root)], {hash(root.id)}
    while pending:
        above, group = pending.pop()
        for name in group:
            path = f"{above}/{name}" if above else name
            link = group.get(name, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                raise Unsupported(f"{printable(path)} lies in another file, which nothing here opens")
            if isinstance(link, h5py.SoftLink):
                continue
            one = group[name]
            if hash(one.id) in seen:
                continue
            seen.add(hash(one.id))
            yield path, one
            if isinstance(one, h5py.Group):
                pending.append((path, one))


def _attributes(one: Any) -> None:
    for name in one.attrs:
        one.attrs[name]


def _read(found: Content, path: str, one: Any) -> None:
    if one.is_virtual or one.external:
        raise Unsupported(f"{printable(path)} lies in other files, which nothing here opens")
    if one.shape is None:
        return
    add_parts(found, path, one, PART, one.chunks[0] if one.chunks else 1)
