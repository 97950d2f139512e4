"""Reads torch checkpoints with torch itself and `weights_only=True`, after the same pass."""

from __future__ import annotations

import importlib
import os
import pickle
import re
from typing import Any

from sweepstack.core.printable import printable
from sweepstack.loaders.base import NONE, Bad, Content, NoAnswer, NonFinite, OpenFile, Unreadable, Unsupported
from sweepstack.loaders.scan import Scan
from sweepstack.loaders.torch_files.archive import NO_CRCS, zip_regions
from sweepstack.loaders.torch_files.foreign import COMMAND, refused
from sweepstack.loaders.torch_files.unpickle import holds_nothing, tensors_of, top_level_names
from sweepstack.loaders.zipdir import is_zip, read_directory

_FOREIGN = re.compile(r"(?:Unsupported global: GLOBAL|unsupported GLOBAL|Unsupported class) ([\w.<>]+)")
"""How torch says that a pickle names what its restricted load does not take."""


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
