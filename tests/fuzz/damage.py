"""What can become of bytes, as a strategy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import strategies as st

from sweepstack.onbox.common.errors import SweepstackError

T = TypeVar("T")

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)

_WORDS = [
    b"",
    b"\n",
    b"null",
    b'"',
    b"{}",
    b"0",
    b"-1",
    b"1e999",
    b"\xff",
    b"\x00",
    b"sha256:",
    b"\\ud800",
    b"[" * 2000,
]


def _flip(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :]


@st.composite
def touched(draw: st.DrawFn, data: bytes) -> bytes:
    """`data` after one to three accidents."""
    for _ in range(draw(st.integers(1, 3))):
        if data:
            data = _accident(draw, data)
    return data


def _accident(draw: st.DrawFn, data: bytes) -> bytes:
    at = draw(st.integers(0, len(data) - 1))
    to = draw(st.integers(at, min(len(data), at + 80)))
    match draw(st.sampled_from(["bit", "cut", "hole", "put in", "twice", "swapped"])):
        case "bit":
            return _flip(data, at, draw(st.integers(0, 7)))
        case "cut":
            return data[:at]
        case "hole":
            return data[:at] + data[to:]
        case "put in":
            return data[:at] + draw(st.sampled_from(_WORDS) | st.binary(max_size=8)) + data[at:]
        case "twice":
            return data[:to] + data[at:]
        case _:
            return _lines_swapped(data, at)


def tried(call: Callable[..., T], *args: Any, **more: Any) -> T | SweepstackError:
    """What the call returned, or the error of ours that it raised, which says something. Any other error is a crash."""
    try:
        return call(*args, **more)
    except SweepstackError as error:
        if not str(error):
            raise AssertionError(f"{type(error).__name__} without a message") from error
        return error


@st.composite
def one_byte(draw: st.DrawFn, data: bytes) -> bytes:
    """`data` with one byte changed."""
    at = draw(st.integers(0, len(data) - 1))
    return data[:at] + bytes([draw(st.integers(0, 255).filter(lambda byte: byte != data[at]))]) + data[at + 1 :]


def _lines_swapped(data: bytes, at: int) -> bytes:
    lines = data.split(b"\n")
    first = data[:at].count(b"\n")
    second = (first + 1) % len(lines)
    lines[first], lines[second] = lines[second], lines[first]
    return b"\n".join(lines)
