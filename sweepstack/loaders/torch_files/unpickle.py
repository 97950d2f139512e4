"""Reads the structure of a torch checkpoint without torch: tensors, names, byte ranges.

Unpickles with a list of what may be named; everything else is refused, and nothing is ever imported. What a pickle
can reach is immutable (named tuples, builtin types, objects without attributes), so that one file can't change how
the next is read. No number is read here: tensors are views on storages, proved to lie inside of them.

Of a pickle that holds more than tensors and plain values it is said what it names, and what helps.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from sweepstack.core.printable import printable
from sweepstack.loaders.base import Unreadable, Unsupported, dotted
from sweepstack.loaders.finite import DTYPES, FORMATS

UNTYPED = "untyped"
_STORAGES = {
    "DoubleStorage": "f8",
    "FloatStorage": "f4",
    "HalfStorage": "f2",
    "BFloat16Storage": "bf16",
    "LongStorage": "i8",
    "IntStorage": "i4",
    "ShortStorage": "i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "c8",
    "ComplexDoubleStorage": "c16",
    "UntypedStorage": UNTYPED,
    "QInt8Storage": "i1",
    "QUInt8Storage": "u1",
    "QInt32Storage": "i4",
}
MAX_DIMENSIONS = 64

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


class NumberType(NamedTuple):
    """What a pickle gets for a dtype or a storage class: the name of a format, or UNTYPED."""

    format: str


class Storage(NamedTuple):
    """A run of numbers in the archive's part `data/<key>`. Untyped storages count bytes."""

    key: str
    format: str
    length: int


class Tensor(NamedTuple):
    """A view: `offset`, `size` and `stride` in numbers of `format`."""

    storage: Storage
    format: str
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many numbers it shows; an expanded one counts each more than once."""
        product = 1
        for length in self.size:
            product *= length
        return product

    @property
    def reach(self) -> tuple[int, int]:
        """First number and the one after the last that it touches."""
        if not self.elements:
            return self.offset, self.offset
        last = sum((length - 1) * step for length, step in zip(self.size, self.stride, strict=True))
        return self.offset, self.offset + last + 1


class Sparse(NamedTuple):
    """A sparse tensor: `indices` as its layout has them, and the numbers that they place."""

    layout: str
    indices: tuple[Tensor, ...]
    values: Tensor
    size: tuple[int, ...]
    coalesced: bool


class Quantized(NamedTuple):
    """Whole numbers, and by what they are scaled: one number, or a tensor of them and one of zero points."""

    numbers: Tensor
    scale: float
    scales: tuple[Tensor, ...]


def is_tensor(value: Any) -> bool:
    """Whether it is what `unpickle` has for a tensor."""
    return type(value) in (Tensor, Sparse, Quantized)


def unpickle(data: bytes) -> tuple[Any, list[Storage]]:
    """The object in a checkpoint's `data.pkl`, with what `is_tensor` for tensors, and all storages that it names, which
    torch loads whether a tensor shows them or not. Raises Unreadable."""
    _check_operations(data)
    unpickler = _Restricted(io.BytesIO(data), encoding="utf-8")
    try:
        return unpickler.load(), unpickler.storages
    except (Unreadable, MemoryError):
        raise
    except Exception as error:  # a hostile pickle raises whatever it likes
        raise Unsupported(f"data.pkl holds what this reader can't build ({type(error).__name__}); {TORCH}") from None


def _check_operations(data: bytes) -> None:
    """Raises Unreadable for what pickles can say and torch.load(weights_only=True) does not read."""
    try:
        for operation, _, _ in pickletools.genops(data):
            if operation.name not in _OPERATIONS:
                raise Unsupported(
                    f"is pickled with {operation.name}, which torch.load(weights_only=True) refuses: "
                    f"save it with torch.save's own protocol, 2, {COMMAND}"
                )
    except (ValueError, UnicodeDecodeError, EOFError, OverflowError) as error:
        raise Unreadable(f"data.pkl does not unpickle ({type(error).__name__})") from None


def tensors_of(root: Any, is_tensor: Callable[[Any], bool]) -> Iterator[tuple[str, Any]]:
    """All tensors in nested dicts, lists, tuples and sets, with dotted names. Shared and endless parts come once."""
    seen: set[int] = set()
    pending: list[tuple[str, Any]] = [("", root)]
    while pending:
        name, value = pending.pop()
        if is_tensor(value):
            yield name, value
            continue
        children: list[tuple[Any, Any]]
        if isinstance(value, dict):
            children = list(dict.items(value))
        elif isinstance(value, list | tuple):
            children = list(enumerate(value))
        elif isinstance(value, set | frozenset):
            children = [("{}", child) for child in value]
        else:
            continue
        if id(value) in seen:
            continue
        seen.add(id(value))
        # str() of a key only where it is cheap: a key may be a tuple made to be endless.
        pending.extend(
            (dotted(name, _key(key)), child)
            for key, child in reversed(children)
            if is_tensor(child) or isinstance(child, dict | list | tuple | set | frozenset)
        )


def holds_nothing(root: Any) -> bool:
    """Whether there is nothing but containers, each without anything in it."""
    seen: set[int] = set()
    pending = [root]
    while pending:
        value = pending.pop()
        if value is None or not isinstance(value, dict | list | tuple | set | frozenset) or is_tensor(value):
            return False
        if id(value) not in seen:
            seen.add(id(value))
            pending.extend(dict.values(value) if isinstance(value, dict) else value)
    return True


def top_level_names(root: Any) -> set[str]:
    """The keys of a checkpoint that is a dict; nothing for all else."""
    return {_key(key) for key in dict.keys(root)} if isinstance(root, dict) else set()


def _key(key: Any) -> str:
    if isinstance(key, str):
        return key
    return str(key) if isinstance(key, int) and abs(key) < 1 << 63 else f"<{type(key).__name__}>"


class _Callable:
    """What a pickle gets for a function: it can be called, and nothing of it can be set."""

    __slots__ = ("_function",)
    _function: Callable[..., Any]

    def __init__(self, function: Callable[..., Any]) -> None:
        object.__setattr__(self, "_function", function)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name} can't be set")

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)


class _Restricted(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, *, encoding: str) -> None:
        super().__init__(file, encoding=encoding)
        self.storages: list[Storage] = []

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _SCHEMES:
            return name
        if module == "torch" or module == "torch.storage":
            if name in _STORAGES:
                return NumberType(_STORAGES[name])
            if name in DTYPES and module == "torch":
                return NumberType(DTYPES[name])
        found = _GLOBALS.get((module, name))
        if found is None:
            raise refused(module, name)
        return found

    def persistent_load(self, identifier: Any) -> Storage:
        kind, number_type, key, _location, count = identifier
        if kind != "storage" or type(number_type) is not NumberType or not isinstance(key, str):
            raise Unreadable("data.pkl refers to something that is not a storage")
        if not _whole(count):
            raise Unreadable("a storage has no proper size")
        self.storages.append(Storage(key, number_type.format, count))
        return self.storages[-1]


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _tensor(storage: Any, format_: str, offset: Any, size: Any, stride: Any) -> Tensor:
    size, stride = tuple(size), tuple(stride)
    if type(storage) is not Storage or len(size) != len(stride) or len(size) > MAX_DIMENSIONS:
        raise Unreadable("a tensor is not made of a storage, sizes and strides")
    if not all(_whole(number) for number in (offset, *size, *stride)):
        raise Unreadable("a tensor has sizes or strides that are no sizes")
    tensor = Tensor(storage, format_, offset, size, stride)
    capacity = storage.length
    if storage.format == UNTYPED:
        capacity //= FORMATS[format_].itemsize
    if tensor.reach[1] > capacity:
        raise Unreadable(f"a tensor reaches beyond its storage {printable(storage.key)}")
    return tensor


def _rebuild(storage: Any, offset: Any, size: Any, stride: Any, *_rest: Any) -> Tensor:
    """`_rebuild_tensor(storage, offset, size, stride)` and `_v2(…, requires_grad, hooks, metadata)`."""
    if type(storage) is not Storage or storage.format == UNTYPED:
        raise Unreadable("a tensor is made of something that is not a typed storage")
    return _tensor(storage, storage.format, offset, size, stride)


def _rebuild_v3(
    storage: Any, offset: Any, size: Any, stride: Any, _grad: Any, _hooks: Any, dtype: Any, *_rest: Any
) -> Tensor:
    if type(dtype) is not NumberType or dtype.format == UNTYPED or type(storage) is not Storage:
        raise Unreadable("a tensor has no number type")
    if storage.format not in (UNTYPED, dtype.format):
        raise Unreadable("a tensor and its storage disagree about the number type")
    return _tensor(storage, dtype.format, offset, size, stride)


def _sparse(layout: Any, data: Any) -> Sparse:
    *indices, values, size = data[:3] if layout == "torch.sparse_coo" else data
    coalesced = layout == "torch.sparse_coo" and len(data) > 3 and bool(data[3])
    if {type(values), *map(type, indices)} != {Tensor} or not all(_whole(length) for length in size):
        raise Unreadable("a sparse tensor is not made of tensors and a size")
    return Sparse(str(layout), tuple(indices), values, tuple(size), coalesced)


def _quantized(storage: Any, offset: Any, size: Any, stride: Any, quantizer: Any, *_rest: Any) -> Quantized:
    numbers = _rebuild(storage, offset, size, stride)
    scheme, scale, zero, *axis = quantizer
    if scheme == "per_tensor_affine":
        return Quantized(numbers, float(scale), ())
    if scheme not in ("per_channel_affine", "per_channel_affine_float_qparams") or type(scale) is not Tensor:
        raise Unsupported(f"holds a tensor that is quantized in a way that this reader does not take; {TORCH}")
    proper = type(zero) is Tensor and _whole(axis[0]) and axis[0] < len(numbers.size)
    if not proper or {scale.elements, zero.elements} != {numbers.size[axis[0]]}:
        raise Unreadable("a quantized tensor has not one scale and one zero point for each of its channels")
    return Quantized(numbers, 1.0, (scale, zero))


def _meta(*_rest: Any) -> Tensor:
    raise Unsupported(f"holds a tensor without numbers (of device meta): save the real one, {COMMAND}")


def _layout(name: Any) -> str:
    return str(name) if isinstance(name, str) else ""


def _parameter(data: Any, *_rest: Any) -> Any:
    if not is_tensor(data):
        raise Unreadable("a parameter is not made of a tensor")
    return data


def _from_type(function: Any, kind: Any, arguments: Any, _state: Any) -> Any:
    if type(function) is not _Callable or kind not in ("Tensor", "Parameter"):
        raise Unreadable("a tensor is of a class that is not on the reader's list")
    return function(*arguments)


def _size(dimensions: Any = ()) -> tuple[int, ...]:
    return tuple(dimensions)


def _device(*arguments: Any) -> str:
    return ":".join(str(argument) for argument in arguments if isinstance(argument, str | int))


def _bytes(text: Any, encoding: Any) -> bytes:
    if not isinstance(text, str) or encoding != "latin1":
        raise Unreadable("bytes are not written the way that pickle writes them")
    return text.encode("latin1")


def _bytearray(data: Any = b"", *_rest: Any) -> bytes:
    if not isinstance(data, bytes):
        raise Unreadable("a bytearray is not made of bytes")
    return data


def _counter(counts: Any = None) -> dict[Any, Any]:
    return dict(counts or {})


_OPERATIONS = frozenset(
    (
        *("GLOBAL", "NEWOBJ", "REDUCE", "BUILD", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "MARK", "BINPERSID"),
        *("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "NONE", "NEWFALSE", "NEWTRUE", "BINGET", "LONG_BINGET", "BINPUT"),
        *("EMPTY_TUPLE", "EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET", "BININT", "BININT1", "BININT2", "LONG_BINPUT"),
        *("BINFLOAT", "BINUNICODE", "SHORT_BINSTRING", "LONG1", "PROTO", "STOP"),
    )
)
"""What torch 2.15's own restricted unpickler reads (torch/_weights_only_unpickler.py)."""
_SCHEMES = frozenset(f"per_{of}_{kind}" for of in ("tensor", "channel") for kind in ("affine", "symmetric")) | {
    "per_channel_affine_float_qparams"
}
_BUILTINS: dict[str, Callable[..., Any]] = {"set": set, "complex": complex, "bytearray": _bytearray}
_GLOBALS: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,  # a builtin type: it can't be changed from a pickle
    ("collections", "Counter"): _Callable(_counter),
    ("torch._utils", "_rebuild_tensor"): _Callable(_rebuild),
    ("torch._utils", "_rebuild_tensor_v2"): _Callable(_rebuild),
    ("torch._utils", "_rebuild_tensor_v3"): _Callable(_rebuild_v3),
    ("torch._utils", "_rebuild_sparse_tensor"): _Callable(_sparse),
    ("torch._utils", "_rebuild_qtensor"): _Callable(_quantized),
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): _Callable(_meta),
    ("torch.serialization", "_get_layout"): _Callable(_layout),
    ("torch._utils", "_rebuild_parameter"): _Callable(_parameter),
    ("torch._utils", "_rebuild_parameter_with_state"): _Callable(_parameter),
    ("torch._tensor", "_rebuild_from_type_v2"): _Callable(_from_type),
    ("torch", "Tensor"): "Tensor",
    ("torch.nn.parameter", "Parameter"): "Parameter",
    ("torch", "Size"): _Callable(_size),
    ("torch", "device"): _Callable(_device),
    ("_codecs", "encode"): _Callable(_bytes),
    **{(module, name): _Callable(call) for module in ("builtins", "__builtin__") for name, call in _BUILTINS.items()},
}


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
