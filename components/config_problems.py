"""From what a validator says to what a person needs: file, line, key, value, fix; all of them at once."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from components.config_file import Document, Loc
from components.config_model import anchor_of, keys_of
from components.config_rent import LATER
from sweep.errors import ConfigError
from sweep.suggest import did_you_mean

DOCS = "docs/stack-config.md"
_MOST_SHOWN = 40
_WIDEST_KEY = 44
_KINDS = {
    "string_type": "text; quote it",
    "list_type": "a list, such as [0.1, 0.03]",
    "tuple_type": "a list, such as [a, b]",
    "dict_type": "keys and values",
    "model_type": "keys and values",
    "missing": "",
}


@dataclass(frozen=True)
class Mistake:
    """One line of the message: where, which key (with its value where that is the mistake), what to do instead."""

    line: int
    key: str
    fix: str
    shape: type[BaseModel] | None = None
    lists_keys: bool = False


def dotted(loc: Loc) -> str:
    """`cells.add[1].lr`, as a person writes a path."""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def shown(value: Any) -> str:
    """A value as it is quoted in a message."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except ValueError:
        text = repr(value)
    return text if len(text) <= 50 else f"{text[:47]}…"


def value_at(data: Any, loc: Loc) -> Any:
    """What stands at `loc`; None where nothing does."""
    for part in loc:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def shape_at(shape: type[BaseModel], loc: Loc) -> type[BaseModel]:
    """The shape of the object at `loc`, or of its nearest ancestor that has one."""
    annotation: Any = shape
    for part in loc:
        inside = _shape_in(annotation)
        if inside is not None:
            fields = {field.alias or name: field for name, field in inside.model_fields.items()}
            if part not in fields:
                break
            annotation = fields[str(part)].annotation
        else:
            arguments = [a for a in typing.get_args(annotation) if a is not type(None) and a is not Ellipsis]
            annotation = arguments[-1] if arguments else None
        shape = _shape_in(annotation) or shape
    return shape


def _shape_in(annotation: Any) -> type[BaseModel] | None:
    """The model that an annotation is, optional or annotated or not."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if typing.get_origin(annotation) is typing.Annotated:
        return _shape_in(typing.get_args(annotation)[0])
    options = [a for a in typing.get_args(annotation) if a is not type(None)]
    is_optional = type(None) in typing.get_args(annotation)
    return _shape_in(options[0]) if is_optional and len(options) == 1 else None


def from_validation(error: ValidationError, document: Document, at: Loc, shape: type[BaseModel]) -> list[Mistake]:
    """The mistakes of a ValidationError about the object at `at`."""
    mistakes = []
    for item in error.errors(include_url=False):
        loc = tuple(part for part in item["loc"] if part != "[key]")
        mistakes.append(_mistake(item, loc, document, at, shape))
    return mistakes


def _mistake(item: Any, loc: Loc, document: Document, at: Loc, shape: type[BaseModel]) -> Mistake:
    kind, line = item["type"], document.line((*at, *loc))
    owner = shape_at(shape, loc[:-1])
    if kind == "extra_forbidden":
        return Mistake(line, dotted(loc), unknown_key(str(loc[-1]), owner), owner, lists_keys=True)
    if kind == "missing":
        return Mistake(line, dotted(loc), "is missing", owner, lists_keys=True)
    if kind == "hidden":
        return Mistake(line, dotted(loc), item["ctx"]["text"], owner)
    key = f"{dotted(loc)}: {shown(value_at(document.data, (*at, *loc)))}"
    if kind == "expected":
        fix = item["ctx"]["text"]
        return Mistake(line, dotted(loc) if "[key]" in item["loc"] else key, fix, owner)
    if kind == "literal_error":
        wanted = item["ctx"]["expected"]
        hint = did_you_mean(str(item["input"]), wanted.replace(" or ", ", ").replace("'", "").split(", "))
        return Mistake(line, key, f"expected {wanted}{hint}".replace("'", '"'), owner)
    if kind in _KINDS:
        return Mistake(line, key, f"expected {_KINDS[kind]}", owner)
    text = item["msg"]
    return Mistake(line, key, text[:1].lower() + text[1:], owner)


def unknown_key(key: str, shape: type[BaseModel]) -> str:
    """What to say of a key that `shape` does not have."""
    later = LATER.get((anchor_of(shape), key))
    if later:
        return f"not available yet in this version (issue {later})"
    return f"unknown key{did_you_mean(key, keys_of(shape))}"


def refuse(mistakes: Iterable[Mistake], document: Document) -> ConfigError:
    """One error with all mistakes, in the order of the file, and where to read on."""
    ordered = sorted(set(mistakes), key=lambda mistake: (mistake.line, mistake.key, mistake.fix))
    count = len(ordered)
    head = f"{document.shown} has {count} mistake{'' if count == 1 else 's'}; nothing was rented"
    visible = ordered[:_MOST_SHOWN]
    number_width = max(len(str(mistake.line)) for mistake in visible)
    key_width = min(max(len(mistake.key) for mistake in visible), _WIDEST_KEY)
    lines = [f"line {m.line:>{number_width}}  {m.key:<{key_width}}  {m.fix}" for m in visible]
    if count > len(visible):
        lines.append(f"… and {count - len(visible)} more")
    body = "\n".join(f"  {line}" for line in lines)
    foot = "\n".join(f"  {line}" for line in _foot(ordered))
    return ConfigError(f"{head}\n\n{body}\n\n{foot}", [f"{document.shown} {line}" for line in lines])


def _foot(mistakes: list[Mistake]) -> list[str]:
    """The keys of each object that had an unknown or missing one, and the place in the docs."""
    listed = dict.fromkeys(m.shape for m in mistakes if m.shape is not None and m.lists_keys)
    if listed:
        keys = {shape: f"keys of {anchor_of(shape)}: {', '.join(keys_of(shape))}" for shape in listed}
        width = max(len(text) for text in keys.values())
        return [f"{text:<{width}}      {DOCS}#{anchor_of(shape)}" for shape, text in keys.items()]
    anchors = dict.fromkeys(anchor_of(m.shape) for m in mistakes if m.shape is not None)
    return [f"{DOCS}#{anchor}" for anchor in anchors] or [DOCS]
