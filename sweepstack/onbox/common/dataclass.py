"""`dataclass` of the standard library, for a third of the time that it takes at import.

`dataclasses` compiles up to six methods for each class: a fifth of what it took to start a command. Here a frozen class
has one that is compiled, `__init__`, when it is first called: a command makes no object of most that it imports.
The other methods are the same for all classes. Types are checked as with the library.
"""

from __future__ import annotations

import dataclasses
import operator
import reprlib
from collections.abc import Callable, Iterator
from dataclasses import MISSING, FrozenInstanceError, asdict, field, fields, replace
from typing import TYPE_CHECKING, Any

__all__ = ["asdict", "dataclass", "field", "fields", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, *, frozen=False):
        """The same, with one of its parameters. A frozen class has no field that is left out of `__init__`."""
        if cls is None:
            return lambda cls: dataclass(cls, frozen=frozen)
        made = dataclasses.dataclass(init=not frozen, repr=False, eq=False)(cls)
        for name, method in _methods(made, frozen):
            if name not in vars(made):
                setattr(made, name, method)
        return made


def _methods(cls: Any, frozen: bool) -> Iterator[tuple[str, Callable[..., Any] | None]]:
    shown = [one.name for one in fields(cls) if one.repr]
    values = operator.attrgetter(*(one.name for one in fields(cls) if one.compare), "__class__")

    def equal(self: Any, other: Any) -> bool:
        return bool(values(self) == values(other)) if type(self) is type(other) else NotImplemented

    def first(self: Any, *given: Any, **named: Any) -> None:
        cls.__init__ = _init(cls)
        cls.__init__(self, *given, **named)

    @reprlib.recursive_repr()
    def told(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    yield from (("__eq__", equal), ("__repr__", told))
    if frozen:
        yield from (("__init__", first), ("__hash__", lambda self: hash(values(self))))
        yield from (("__setattr__", _refuse), ("__delattr__", _refuse))
    else:
        yield "__hash__", None


def _init(cls: Any) -> Callable[..., None]:
    """Fields are set past `__setattr__`, which refuses that."""
    words, lines = ["self"], []
    scope: dict[str, Any] = {"_put": object.__setattr__, "_new": MISSING}
    for one in fields(cls):
        name = value = one.name
        if one.default_factory is not MISSING:
            scope[f"_{name}"] = one.default_factory
            words.append(f"{name}=_new")
            value = f"_{name}() if {name} is _new else {name}"
        elif one.default is not MISSING:
            scope[f"_{name}"] = one.default
            words.append(f"{name}=_{name}")
        else:
            words.append(name)
        lines.append(f"_put(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    exec(f"def __init__({', '.join(words)}):\n  " + "\n  ".join(lines or ["pass"]), scope)
    scope["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    return scope["__init__"]  # type: ignore[no-any-return]


def _refuse(self: object, name: str, *value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")
