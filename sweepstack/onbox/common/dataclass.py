"""`dataclass` as in Python's library, and cheap to declare.

Python writes and compiles six functions of each such class while its module is imported: of the hundred classes that a
command imports, these were a quarter of its work (docs/performance.md). Here all classes share five of them, and
`__init__` is compiled at its first call. What holds: all that `dataclasses` says of `@dataclass` and
`@dataclass(frozen=True)`, of `field`, `fields`, `replace` and `asdict`. Not here: its other options, and `InitVar`.
"""

from __future__ import annotations

from dataclasses import MISSING, FrozenInstanceError, field, fields, replace
from dataclasses import dataclass as _library
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Callable

__all__ = ["dataclass", "field", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, *, frozen=False):
        """Declares the class. Returns it, changed in place; called with options alone, what does that."""
        return _declare(cls, frozen) if cls is not None else lambda of: _declare(of, frozen)


def _declare(cls: Any, frozen: bool) -> Any:
    _library(init=False, repr=False, eq=False)(cls)
    own = cls.__dict__
    shared: dict[str, Any] = {"__repr__": _shown, "__eq__": _equal, "__init__": _at_first(cls, frozen)}
    if own.get("__hash__") is None:  # also where Python put None there, for an `__eq__` in the class
        cls.__hash__ = _hash if frozen else None
    if frozen:
        shared.update(__setattr__=_kept, __delattr__=_kept)
    for name, function in shared.items():
        if name not in own:
            setattr(cls, name, function)
    return cls


def _at_first(cls: Any, frozen: bool) -> Callable[..., None]:
    """The `__init__` that writes the real one in its place."""

    def first(self: Any, *args: Any, **named: Any) -> None:
        cls.__init__ = _init(cls, frozen)
        cls.__init__(self, *args, **named)

    return first


def _init(cls: Any, frozen: bool) -> Any:
    known: dict[str, Any] = {"_set": object.__setattr__, "_none": MISSING}
    words, lines = ["self"], []
    for one in fields(cls):
        name, value = one.name, one.name
        if one.default_factory is not MISSING:
            known["_make_" + name] = one.default_factory
            value = f"_make_{name}() if {name} is _none else {name}" if one.init else f"_make_{name}()"
        elif not one.init:
            continue
        if one.init and value != name:
            words.append(f"{name}=_none")
        elif one.init and one.default is not MISSING:
            known["_default_" + name] = one.default
            words.append(f"{name}=_default_{name}")
        elif one.init:
            words.append(name)
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    exec(f"def __init__({', '.join(words)}):\n " + "\n ".join(lines or ["pass"]), known)
    known["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    return known["__init__"]


def _values(one: Any) -> tuple[Any, ...]:
    """What it is compared by."""
    names: list[str] = one.__class__.__dict__.get("_compared_by")
    if names is None:
        names = one.__class__._compared_by = [each.name for each in fields(one) if each.compare]
    return tuple([getattr(one, name) for name in names])


def _equal(self: Any, other: Any) -> Any:
    return _values(self) == _values(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


@recursive_repr()
def _shown(self: Any) -> str:
    shown = [f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr]
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _kept(self: Any, name: str, *value: Any) -> None:
    raise FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")
