"""Says of a pickle that holds more than tensors and plain values what it names, and what helps."""

from __future__ import annotations

from sweepstack.core.printable import printable
from sweepstack.loaders.base import Unsupported

COMMAND = "or judge it by load: command"
TORCH = "SWEEPSTACK_TORCH_READER=torch reads it"
_CASTS = (
    ("argparse.Namespace", "vars(args)"),
    ("types.SimpleNamespace", "vars(x)"),
    ("pathlib.", "str(path)"),
    ("collections.defaultdict", "dict(d)"),
    ("numpy.core.multiarray.scalar", "float(x)"),
    ("numpy._core.multiarray.scalar", "float(x)"),
    ("numpy.", "torch.from_numpy(x)"),
    ("omegaconf.", "OmegaConf.to_container(cfg)"),
    ("datetime.", "str(t)"),
    ("builtins.frozenset", "list(x)"),
    ("builtins.range", "list(x)"),
)
"""How a name begins → what to save in place of such an object."""
_RUNS = ("os", "posix", "nt", "sys", "subprocess", "shutil", "socket", "runpy", "importlib", "pty", "ctypes", "code")
_RUNS_BY_NAME = frozenset(
    f"{module}.{name}"
    for module in ("builtins", "__builtin__")
    for name in ("eval", "exec", "execfile", "compile", "open", "__import__", "getattr", "setattr", "delattr", "apply")
)
_TORCH_ALONE = (
    *("torch._utils._rebuild_wrapper_subclass", "torch._utils._rebuild_device_tensor_from"),
    *("torch.QUInt", "torch.sparse.", "torch.cuda.", "torch.storage.TypedStorage"),
)
"""What torch's own restricted load builds and this reader does not."""
_LEGACY = bytes.fromhex("8a0a6cfc9c46f9206aa850192e")
"""How every file begins, behind two bytes, that torch.save wrote before 1.6: a pickle of its magic number."""


def refused(module: str, name: str) -> Unsupported:
    """Why a pickle that names this is not loaded, and what helps. One that could run programs is never to be loaded."""
    full = f"{module}.{name}"
    said = f"names {printable(full)}, which is not on the reader's list: nothing was loaded"
    if module.partition(".")[0] in _RUNS or full in _RUNS_BY_NAME:
        return Unsupported(f"{said}. It could run any program: open it with nothing that unpickles")
    if full.startswith(_TORCH_ALONE):
        return Unsupported(f"{said}; {TORCH}")
    cast = next((cast for begin, cast in _CASTS if full.startswith(begin)), "its state_dict, or plain values,")
    return Unsupported(f"{said}; save {cast} in its place, {COMMAND}")


def no_torch_zip(begin: bytes) -> Unsupported | None:
    """What a file is that is no zip file and yet whole for all that is known, by its first bytes; None: no such."""
    if begin[2:].startswith(_LEGACY):
        return Unsupported(f"was saved by torch before 1.6, or in its old format: {TORCH}")
    if begin[:1] == b"\x80" and begin[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return Unsupported(
            f"is a pickle, and not one of torch.save: nothing was loaded; save it by torch.save, {COMMAND}"
        )
    return None
