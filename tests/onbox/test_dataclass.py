"""Our `dataclass` against the standard library's: the same class, made by both."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from sweepstack.onbox.common.dataclass import asdict, dataclass, field, replace


def made(decorate: Callable[..., Any], frozen: bool) -> Any:
    @decorate(frozen=frozen)
    class Record:
        name: str
        size: int = 3
        files: list[str] = field(default_factory=list)
        note: str = field(default="", compare=False, repr=False)

        def __post_init__(self) -> None:
            if self.size < 0:
                raise ValueError("less than nothing")

    return Record


@dataclass(frozen=True)
class Kept:
    """Of a module, so that it can be pickled."""

    name: str
    size: float = 1.0


@dataclass(frozen=True)
class More(Kept):
    """Has the fields of both."""

    note: str = ""


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("use", [
    lambda one: repr(one("a", files=["b"], note="c")),
    lambda one: one("a", 4) == one("a", size=4, note="c"),
    lambda one: (one("a") == one("b"), one("a") != one("a"), one("a") == 3),
    lambda one: hash(one("a", files=())) == hash(one("a", 3, (), "c")),
    lambda one: hash(one("a")),
    lambda one: asdict(replace(one("a"), size=5)),
    lambda one: one("a").files is one("a").files,
    lambda one: one(),
    lambda one: one("a", other=1),
    lambda one: one("a", -1),
    lambda one: setattr(one("a"), "size", 4),
    lambda one: delattr(one("a"), "name"),
    lambda one: setattr(one("a"), "name_", ""),
    lambda one: one.__match_args__,
])  # fmt: skip
def test_does_what_the_library_does(use: Callable[[Any], Any], frozen: bool) -> None:
    assert _said(use, made(dataclass, frozen)) == _said(use, made(dataclasses.dataclass, frozen))


def _said(use: Callable[[Any], Any], one: Any) -> Any:
    try:
        return use(one)
    except Exception as error:
        return type(error), str(error).replace("cannot delete", "cannot assign to")


def test_survives_a_copy_and_a_pickle() -> None:
    one = More("a", float("nan"), note="b")
    assert pickle.loads(pickle.dumps(replace(one, size=2.0))) == replace(one, size=2.0)
    assert copy.copy(one) == one, "a value equals itself, as in the library's tuples"
    assert one != Kept("a", one.size)
    assert repr(one) == "More(name='a', size=nan, note='b')"
