"""The reader of pickles: it goes over their operations, and builds nothing of what they name.

joblib writes an array as an object that stands for it, and behind that, in the middle of the pickle, its bytes. So the
operations are followed with a stack of plain values, as far as is needed to know where such bytes lie.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickletools
import zlib
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import numpy as np

from sweepstack.core.printable import printable
from sweepstack.extensions.formats.numbers import Arrays
from sweepstack.extensions.formats.shared import LibraryFile
from sweepstack.loaders.base import Content, Unreadable, Unsupported, beyond
from sweepstack.loaders.scan import BLOCK, Scan

MAX_OPERATIONS = 50_000_000
MAX_ZLIB = 1 << 30
"""Bytes that what is packed by zlib, and so unpacked as a whole, may have."""
_OPEN: tuple[tuple[bytes, Callable[[BinaryIO], Any]], ...] = (
    (b"\x1f\x8b", lambda handle: gzip.GzipFile(fileobj=handle)),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ", lzma.LZMAFile),
    (b"\x5d\x00", lzma.LZMAFile),
)
_NO_PICKLE = (
    EOFError,
    OSError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    zlib.error,
    lzma.LZMAError,
)
_TAKEN = ("sklearn.", "numpy.", "scipy.", "joblib.numpy_pickle.", "xgboost.", "lightgbm.")
_PLAIN = frozenset(
    (
        *("builtins.set", "builtins.frozenset", "builtins.list", "builtins.dict", "builtins.tuple", "builtins.object"),
        *(
            "builtins.slice",
            "builtins.complex",
            "builtins.bytearray",
            "builtins.range",
            "builtins.bytes",
            "_codecs.encode",
        ),
        *("builtins.int", "builtins.float", "builtins.str", "builtins.bool", "collections.OrderedDict"),
        *("copyreg._reconstructor", "collections.defaultdict", "collections.Counter", "functools.partial"),
        *("__builtin__.set", "__builtin__.object", "copy_reg._reconstructor"),
    )
)


class _Made:
    """What stands for an object that the pickle would build: what it is made by, of what, and its state."""

    def __init__(self, by: Any, arguments: Any) -> None:
        self.by, self.arguments, self.state = by, arguments, None


class _Mark:
    pass


class Joblib(LibraryFile):
    """A pickle. Raises Unsupported where it names a type that is not of scikit-learn, numpy or scipy."""

    def content(self, scanned: Scan) -> Content:
        """No names; non-finite numbers by array, in their order. Raises Unreadable for one that is cut or damaged."""
        with self.file.stream() as handle:
            try:
                return _Walk(self._unpacked(handle)).run()
            except MemoryError:
                raise
            except _NO_PICKLE as error:
                raise Unreadable(f"is cut off or damaged: it does not unpickle ({type(error).__name__})") from None

    def _unpacked(self, handle: BinaryIO) -> Any:
        for magic, opened in _OPEN:
            if self.file.begins_with(magic):
                return io.BufferedReader(opened(handle))
        if self.file.begins_with(b"\x78"):
            return io.BytesIO(_zlib(handle))
        return handle


def _zlib(handle: BinaryIO) -> bytes:
    one, data, size = zlib.decompressobj(), [], 0
    while block := handle.read(BLOCK):
        data.append(one.decompress(block))
        size += len(data[-1])
        if size > MAX_ZLIB:
            raise beyond("unpacks to more than a reader is given")
    data.append(one.flush())
    if not one.eof or one.unused_data:
        raise EOFError
    return b"".join(data)


class _Walk:
    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.found = Content()
        self.arrays = 0

    def run(self) -> Content:
        """To the end of the file, before which the pickle may not end."""
        self.follow()
        if self.stream.read(1):
            raise Unreadable("has something behind its end")
        return self.found

    def follow(self) -> None:
        """To the end of the pickle."""
        for count, (operation, argument, _) in enumerate(pickletools.genops(self.stream), 1):
            if count > MAX_OPERATIONS:
                raise beyond(f"has more than {MAX_OPERATIONS:,} operations")
            step = _STEPS.get(operation.name)
            if step is not None:
                step(self, argument)
            elif operation.name in _VALUES:
                self.stack.append(argument)
            elif operation.name not in _NOTHING:
                raise Unsupported(f"is pickled with {operation.name}, which this reader does not follow")

    def named(self, name: str) -> None:
        """A type or function that it would look up."""
        if name not in _PLAIN and not name.startswith(_TAKEN):
            raise Unsupported(
                f"names {printable(name)}, which is not of scikit-learn, numpy or scipy: nothing was loaded; "
                "save it with skops, or judge it by load: command"
            )
        self.stack.append(name)

    def top_mark(self) -> list[Any]:
        """What stands above the last mark, which goes."""
        at = max(i for i, one in enumerate(self.stack) if isinstance(one, _Mark))
        taken = self.stack[at + 1 :]
        del self.stack[at:]
        return taken

    def built(self, _: Any) -> None:
        """A state for the object below it. Behind that of an array of joblib stand its bytes."""
        state = self.stack.pop()
        made = self.stack[-1]
        if isinstance(made, _Made):
            made.state = state
            if made.by == "joblib.numpy_pickle.NumpyArrayWrapper" and isinstance(state, dict):
                self.array(state)
            elif made.by == "numpy.ndarray" or "_reconstruct" in str(made.by):
                self.plain_array(state)

    def array(self, state: Mapping[Any, Any]) -> None:
        """The bytes of an array of joblib, in C or Fortran order; of objects a pickle stands there in their place."""
        kind = _dtype(state["dtype"])
        if kind is None or kind.hasobject:
            inner = _Walk(self.stream)
            inner.found = self.found
            inner.follow()
            return
        if state.get("numpy_array_alignment_bytes"):
            padding = self.stream.read(1)
            if len(padding) != 1 or len(self.stream.read(padding[0])) != padding[0]:
                raise EOFError
        left = kind.itemsize
        for length in state["shape"]:
            left *= length
        arrays, step = Arrays(), max(1, BLOCK // max(1, kind.itemsize)) * max(1, kind.itemsize)
        while left:
            data = self.stream.read(min(left, step))
            if len(data) != min(left, step):
                raise EOFError
            left -= len(data)
            arrays.feed(np.frombuffer(data, kind))
        self.note(arrays)

    def plain_array(self, state: Any) -> None:
        """The state of an array of numpy: (version, shape, dtype, order, bytes)."""
        if isinstance(state, tuple) and len(state) == 5 and isinstance(state[4], bytes):
            kind = _dtype(state[2])
            if kind is not None and not kind.hasobject and kind.itemsize:
                size = kind.itemsize
                for length in state[1]:
                    size *= length
                if size != len(state[4]):
                    raise EOFError
                arrays = Arrays()
                arrays.feed(np.frombuffer(state[4], kind))
                self.note(arrays)

    def note(self, arrays: Arrays) -> None:
        """Under the number of the array."""
        arrays.note(self.found, f"array {self.arrays}")
        self.arrays += 1


def _dtype(made: Any) -> Any:
    """A number type, of what stands for it: numpy.dtype("f8", False, True) with a state; None where it is another."""
    if not isinstance(made, _Made) or made.by != "numpy.dtype":
        return None
    order = made.state[1] if isinstance(made.state, tuple) and len(made.state) > 1 else "="
    kind = np.dtype(str(made.arguments[0]))
    return kind.newbyteorder(">") if order == ">" else kind


def _reduce(walk: _Walk, _: Any) -> None:
    arguments, by = walk.stack.pop(), walk.stack.pop()
    walk.stack.append(_Made(by, arguments))


def _setitems(walk: _Walk, _: Any) -> None:
    items = walk.top_mark()
    if isinstance(walk.stack[-1], dict):
        for key, value in zip(items[::2], items[1::2], strict=True):
            if isinstance(key, str | int | float | bytes | bool):
                walk.stack[-1][key] = value


def _setitem(walk: _Walk, _: Any) -> None:
    value, key = walk.stack.pop(), walk.stack.pop()
    if isinstance(walk.stack[-1], dict) and isinstance(key, str | int | float | bytes | bool):
        walk.stack[-1][key] = value


def _tuple(count: int) -> Callable[[_Walk, Any], None]:
    def step(walk: _Walk, _: Any) -> None:
        taken = tuple(walk.stack[-count:])
        if len(taken) != count:
            raise IndexError
        del walk.stack[-count:]
        walk.stack.append(taken)

    return step


def _global(walk: _Walk, argument: Any) -> None:
    module, name = argument.split(" ", 1)
    walk.named(f"{module}.{name}")


def _stack_global(walk: _Walk, _: Any) -> None:
    name, module = walk.stack.pop(), walk.stack.pop()
    walk.named(f"{module}.{name}")


def _memoize(walk: _Walk, _: Any) -> None:
    walk.memo[len(walk.memo)] = walk.stack[-1]


def _put(walk: _Walk, argument: Any) -> None:
    walk.memo[int(argument)] = walk.stack[-1]


def _instead(walk: _Walk, made: Any) -> None:
    walk.top_mark()
    walk.stack.append(made)


def _newobj_ex(walk: _Walk, _: Any) -> None:
    walk.stack.pop()
    _reduce(walk, None)


_STEPS: dict[str, Callable[[_Walk, Any], Any]] = {
    "MARK": lambda walk, _: walk.stack.append(_Mark()),
    "POP": lambda walk, _: walk.stack.pop(),
    "POP_MARK": lambda walk, _: walk.top_mark(),
    "DUP": lambda walk, _: walk.stack.append(walk.stack[-1]),
    "STOP": lambda walk, _: walk.stack.pop(),
    "GLOBAL": _global,
    "STACK_GLOBAL": _stack_global,
    "REDUCE": _reduce,
    "NEWOBJ": _reduce,
    "NEWOBJ_EX": _newobj_ex,
    "BUILD": _Walk.built,
    "MEMOIZE": _memoize,
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _put),
    **dict.fromkeys(
        ("GET", "BINGET", "LONG_BINGET"), lambda walk, argument: walk.stack.append(walk.memo[int(argument)])
    ),
    "EMPTY_DICT": lambda walk, _: walk.stack.append({}),
    "EMPTY_LIST": lambda walk, _: walk.stack.append([]),
    "EMPTY_SET": lambda walk, _: walk.stack.append(_Made("builtins.set", ())),
    "EMPTY_TUPLE": lambda walk, _: walk.stack.append(()),
    "TUPLE": lambda walk, _: walk.stack.append(tuple(walk.top_mark())),
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "LIST": lambda walk, _: walk.stack.append(walk.top_mark()),
    "DICT": lambda walk, _: _instead(walk, {}),
    "FROZENSET": lambda walk, _: _instead(walk, _Made("builtins.frozenset", ())),
    "APPEND": lambda walk, _: walk.stack.pop(),
    "APPENDS": lambda walk, _: walk.top_mark(),
    "ADDITEMS": lambda walk, _: walk.top_mark(),
    "SETITEM": _setitem,
    "SETITEMS": _setitems,
    "NONE": lambda walk, _: walk.stack.append(None),
    "NEWTRUE": lambda walk, _: walk.stack.append(True),
    "NEWFALSE": lambda walk, _: walk.stack.append(False),
}
_VALUES = frozenset(
    (
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    )
)
_NOTHING = frozenset(("PROTO", "FRAME"))
