"""How properties are spelled: snake_case in our models, camelCase in the schema and the state.

One table, made from the models of `core.resources` at any depth (docs/adr/025). Keys of a map are names of people and
pass as they are; so does what a model has as `Any`. Both spellings are read, one is written.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Final

from pydantic import BaseModel

from sweepstack.core.resources import STATES

Shape = type[BaseModel] | tuple["Shape"] | dict[str, "Shape"] | None
"""Where a value has names of ours: a model; `(shape,)`: each item of a list; `{"": shape}`: each value of a map; None:
nowhere."""
_STEP: Final = re.compile(r'\.?([^.\[\]]+)|\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]')


def camel(name: str) -> str:
    """A field's name as it is spelled outside: `price_per_gb_month` → `pricePerGbMonth`."""
    first, *others = name.split("_")
    return first + "".join(other[:1].upper() + other[1:] for other in others)


def inside(token: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs or outputs of a resource by the names of its model, whichever spelling they have. Where one property is
    there in both, the new spelling counts: an engine that was stopped in mid-update can leave both."""
    return dict(_inside(values, STATES.get(token)))


def outside(token: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The same by the names of the schema."""
    return dict(_outside(values, STATES.get(token)))


def of_model(model: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    """What a program gives by the names of the schema, by the names of the model: those that a file has."""
    return dict(_inside(values, model))


def is_old(token: str, *values: Mapping[str, Any]) -> bool:
    """Whether anything in these inputs or outputs is spelled as before schema 2."""
    return any(_is_old(value, STATES.get(token)) for value in values)


def path_outside(token: str, path: str) -> str:
    """A path of the engine (`teardown.stop.bills_after[0]`, `env["A_B"]`) with our names as the schema has them."""
    return _path(token, path, camel)


def path_inside(token: str, path: str) -> str:
    """The reverse, from either spelling."""
    return _path(token, path, None)


def _path(token: str, path: str, spell: Callable[[str], str] | None) -> str:
    shape: Shape = STATES.get(token)
    found, at = "", 0
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            return found + path[at:]
        text = step.group(0)
        said = str(step.group(1) or "")
        if isinstance(shape, type) and said:
            names, below = _table(shape)
            name = names.get(said, said)
            text, shape = text.replace(said, spell(name) if spell and name in below else name), below.get(name)
        else:
            shape = shape[0] if isinstance(shape, tuple) else shape[""] if isinstance(shape, dict) else None
        found, at = found + text, step.end()
    return found


def _inside(value: Any, shape: Shape) -> Any:
    if isinstance(shape, type) and isinstance(value, Mapping):
        names, below = _table(shape)
        found: dict[str, Any] = {}
        for key, one in value.items():
            name = names.get(str(key), str(key))
            if name != key or name not in found:
                found[name] = _inside(one, below.get(name))
        return found
    return _each(value, shape, _inside)


def _outside(value: Any, shape: Shape) -> Any:
    if isinstance(shape, type) and isinstance(value, Mapping):
        below = _table(shape)[1]
        return {camel(key) if key in below else key: _outside(one, below.get(key)) for key, one in value.items()}
    return _each(value, shape, _outside)


def _is_old(value: Any, shape: Shape) -> bool:
    if isinstance(shape, type) and isinstance(value, Mapping):
        below = _table(shape)[1]
        return any((key in below and key != camel(key)) or _is_old(one, below.get(key)) for key, one in value.items())
    if isinstance(shape, tuple) and isinstance(value, list | tuple):
        return any(_is_old(one, shape[0]) for one in value)
    if isinstance(shape, dict) and isinstance(value, Mapping):
        return any(_is_old(one, shape[""]) for one in value.values())
    return False


def _each(value: Any, shape: Shape, spell: Callable[[Any, Shape], Any]) -> Any:
    """The value, with what lies in a list or a map spelled; all else as it is, an unknown or secret one, too."""
    if isinstance(shape, tuple) and isinstance(value, list | tuple):
        return [spell(one, shape[0]) for one in value]
    if isinstance(shape, dict) and isinstance(value, Mapping):
        return {key: spell(one, shape[""]) for key, one in value.items()}
    return value


@cache
def _table(model: type[BaseModel]) -> tuple[dict[str, str], dict[str, Shape]]:
    """Spelling outside → field; and field → where its value has names of ours."""
    below = {field.alias or name: _shape(field.annotation) for name, field in model.model_fields.items()}
    return {camel(name): name for name in below}, below


def _shape(annotation: Any) -> Shape:
    """None also for a model in which each name is spelled alike at any depth: a queue has 10,000 cells."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        names, below = _table(annotation)
        return annotation if any(below.values()) or any(name != key for key, name in names.items()) else None
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _shape(arguments[0])
    if origin in (tuple, list):
        shape = _shape(arguments[0])
        return (shape,) if shape else None
    if origin is dict:
        shape = _shape(arguments[1])
        return {"": shape} if shape else None
    return next((shape for shape in map(_shape, arguments) if shape), None) if arguments else None
