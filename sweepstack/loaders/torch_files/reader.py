"""Reads torch checkpoints with torch itself and `weights_only=True`, after the same pass."""

from __future__ import annotations

import importlib
import os
import pickle
import re
from typing import Any

from sweepstack.core.printable import printable
from sweepstack.loaders.base import Content, NoAnswer, OpenFile, Unreadable
from sweepstack.loaders.scan import Scan
from sweepstack.loaders.torch_files.archive import zip_regions
from sweepstack.loaders.torch_files.foreign import refused
from sweepstack.loaders.torch_files.unpickle import tensors_of, top_level_names
from sweepstack.loaders.zipdir import is_zip, read_directory

_FOREIGN = re.compile(r"(?:Unsupported global: GLOBAL|unsupported GLOBAL|Unsupported class) ([\w.<>]+)")
"""How torch says that a pickle names what its restricted load does not take."""


class TorchLoaded:
    """A checkpoint as torch itself loads it onto the CPU. Memory: the whole checkpoint."""

    def __init__(self, file: OpenFile) -> None:
        self.file = file
        self.regions = zip_regions(read_directory(file), {}) if is_zip(file) else []

    def content(self, scanned: Scan) -> Content:
        """Loads it. Raises Unreadable when torch refuses."""
        torch: Any = importlib.import_module("torch")
        torch.set_num_threads(1)
        try:
            with os.fdopen(os.dup(self.file.fd), "rb") as handle:
                handle.seek(0)
                root = torch.load(handle, map_location="cpu", weights_only=True)
        except MemoryError:
            raise
        except Exception as error:
            if "allocate memory" in str(error):  # torch says so with a RuntimeError
                raise MemoryError from None
            if isinstance(error, pickle.UnpicklingError) and (foreign := _FOREIGN.search(str(error))):
                raise refused(*foreign[1].rpartition(".")[::2]) from None
            raise Unreadable(f"torch.load(weights_only=True) refuses it ({type(error).__name__})") from None
        tensors = list(tensors_of(root, lambda value: isinstance(value, torch.Tensor)))
        if not any(tensor.numel() for _, tensor in tensors):
            raise Unreadable("holds no tensor")
        found = Content(top_level_names(root) | {name for name, _ in tensors})
        try:
            for name, tensor in tensors:
                count = _nonfinite(torch, tensor)
                if count:
                    found.nonfinite.append((name or "tensor", count))
                if _floats(tensor):
                    found.add_floats(name or "tensor", constant=bool((tensor == tensor.reshape(-1)[0]).all()))
        except RuntimeError as error:  # torch has loaded it: an expanded tensor may be larger than the memory
            raise NoAnswer(f"could not be checked number by number ({printable(str(error), 160)})") from None
        return found


def _floats(tensor: Any) -> bool:
    return bool(tensor.is_floating_point() and not tensor.is_quantized and tensor.numel() > 1 and _strided(tensor))


def _strided(tensor: Any) -> bool:
    return str(tensor.layout) == "torch.strided" and tensor.element_size() > 1


def _nonfinite(torch: Any, tensor: Any) -> int:
    if tensor.layout is not torch.strided:
        tensor = tensor.coalesce().values() if tensor.layout is torch.sparse_coo else tensor.values()
    if tensor.is_quantized or not (tensor.is_floating_point() or tensor.is_complex()) or not tensor.numel():
        return 0
    if tensor.element_size() == 1:
        tensor = tensor.to(torch.float32)
    return int(tensor.numel() - torch.isfinite(tensor).sum())
