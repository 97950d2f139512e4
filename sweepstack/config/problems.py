"""Turns validation errors into messages with file, line, key, value and fix, all at once."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ValidationError

from sweepstack.config.file import Document, Loc
from sweepstack.config.secrets import key_shown, may_show, without_secrets
from sweepstack.core.cells import CellsConfig
from sweepstack.core.paths import docs_page
from sweepstack.core.printable import foreign_letters, visible
from sweepstack.core.suggest import did_you_mean
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.onbox.common.units import count

DOCS = docs_page("stack-config.md")
_MOST_SHOWN = 40
MOST_HINTS = 100
"""For how many wrong keys a similar key is suggested: a message shows no more."""
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
    """One line of the message: the line, the key (with its value if that is wrong), and what to do instead."""

    line: int
    key: str
    fix: str
    shape: type[BaseModel] | None = None
    lists_keys: bool = False


def dotted(loc: Loc, *, all_ascii: bool = False) -> str:
    r"""The path as a person writes it: `cells.add[1].lr`. `all_ascii`: other letters as `\u{455}`, for wrong keys."""
    text = ""
    for index, part in enumerate(loc):
        word = f"[{part}]" if isinstance(part, int) else key_shown(part, loc[:index])
        word = foreign_letters(word)[0] if all_ascii else word
        text += f".{word}" if text and not isinstance(part, int) else word
    return text


def keyed(loc: Loc, value: Any) -> str:
    """The key with its value, if the value may be shown."""
    return f"{dotted(loc)}: {quoted_value(value)}" if may_show(loc, value) else dotted(loc)


def quoted_value(value: Any) -> str:
    """A value as messages quote it."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except ValueError:
        text = repr(value)
    return visible(text if len(text) <= 50 else f"{text[:47]}…")


def value_at(data: Any, loc: Loc) -> Any:
    """The value at `loc`; None if there is none. One text where a list may stand is its one entry."""
    for part in loc:
        if isinstance(data, str) and part == 0:
            continue
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def shape_at(shape: type[BaseModel], loc: Loc) -> type[BaseModel]:
    """The shape of the object at `loc`, or of its nearest ancestor with a shape."""
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
    """The model class in an annotation, which may be optional or annotated."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if typing.get_origin(annotation) is typing.Annotated:
        return _shape_in(typing.get_args(annotation)[0])
    options = [a for a in typing.get_args(annotation) if a is not type(None)]
    is_optional = type(None) in typing.get_args(annotation)
    return _shape_in(options[0]) if is_optional and len(options) == 1 else None


def from_validation(error: ValidationError, document: Document, at: Loc, shape: type[BaseModel]) -> list[Mistake]:
    """The mistakes of a ValidationError about the object at `at`."""
    found = []
    for item in error.errors(include_url=False, include_input=False):
        loc = tuple(part for part in item["loc"] if part != "[key]")
        found.append((document.line((*at, *loc)), loc, item))
    found.sort(key=lambda entry: entry[0])
    return [
        _mistake(item, line, loc, document, at, shape, hint=index < MOST_HINTS)
        for index, (line, loc, item) in enumerate(found)
    ]


def _mistake(
    item: Any, line: int, loc: Loc, document: Document, at: Loc, shape: type[BaseModel], *, hint: bool
) -> Mistake:
    kind, owner = item["type"], shape_at(shape, loc[:-1])
    if kind == "extra_forbidden":
        fix = unknown_key(str(loc[-1]), owner) if hint else "unknown key"
        return Mistake(line, dotted(loc, all_ascii=True), fix, owner, lists_keys=True)
    if kind == "missing":
        return Mistake(line, dotted(loc), "is missing", owner, lists_keys=True)
    if kind == "hidden":
        return Mistake(line, dotted(loc), item["ctx"]["text"], owner)
    value = value_at(document.data, (*at, *loc))
    key = keyed(loc, value)
    if kind == "expected":
        return Mistake(line, dotted(loc) if "[key]" in item["loc"] else key, item["ctx"]["text"], owner)
    if kind == "literal_error":
        wanted = item["ctx"]["expected"]
        near = did_you_mean(str(value), wanted.replace(" or ", ", ").replace("'", "").split(", "))
        return Mistake(line, key, f"expected {wanted}{near}".replace("'", '"'), owner)
    if kind in _KINDS:
        return Mistake(line, key, f"expected {_KINDS[kind]}", owner)
    if kind == "string_pattern_mismatch":
        wanted = "expected sha256: and 64 hex digits" if "sha256" in str(item["ctx"]["pattern"]) else "is not a name"
        return Mistake(line, key, f"{wanted}, as sweepctl writes it; sweepctl revoke takes it out", owner)
    text = item["msg"]
    return Mistake(line, key, text[:1].lower() + text[1:], owner)


def unknown_key(key: str, shape: type[BaseModel]) -> str:
    """The fix for a key that `shape` does not have."""
    return f"unknown key{did_you_mean(key, keys_of(shape))}{oddly_written(key)}"


def oddly_written(key: str) -> str:
    """Names the letters of a key that are not ASCII: such a letter may look like the right one."""
    return f" ({names})" if (names := foreign_letters(key)[1]) else ""


def refuse(mistakes: Iterable[Mistake], document: Document) -> ConfigError:
    """One error with all mistakes, in the order of the file, and the page of the docs."""
    ordered = sorted(set(mistakes), key=lambda mistake: (mistake.line, mistake.key, mistake.fix))
    head = f"{document.shown} has {count(len(ordered), 'mistake')}; nothing was rented"
    most = ordered[:_MOST_SHOWN]
    number_width = max(len(str(mistake.line)) for mistake in most)
    key_width = min(max(len(mistake.key) for mistake in most), _WIDEST_KEY)
    lines = [visible(without_secrets(f"line {m.line:>{number_width}}  {m.key:<{key_width}}  {m.fix}")) for m in most]
    if more := len(ordered) - len(most):
        lines.append(f"… and {more} more")
    body = "\n".join(f"  {line}" for line in lines)
    foot = "\n".join(f"  {line}" for line in _foot(ordered))
    return ConfigError(f"{head}\n\n{body}\n\n{foot}", [f"{document.shown} {line}" for line in lines])


def _foot(mistakes: list[Mistake]) -> list[str]:
    """The keys of each object with an unknown or missing key, and the page of the docs."""
    listed = dict.fromkeys(m.shape for m in mistakes if m.shape is not None and m.lists_keys)
    if listed:
        keys = {
            shape: f"keys of {getattr(shape, 'file', anchor_of(shape))}: {', '.join(keys_of(shape))}"
            for shape in listed
        }
        width = max(len(text) for text in keys.values())
        return [f"{text:<{width}}      {_page(shape)}" for shape, text in keys.items()]
    return list(dict.fromkeys(_page(m.shape) for m in mistakes if m.shape is not None)) or [DOCS]


def _page(shape: type[BaseModel]) -> str:
    """The heading of the docs that lists the keys of `shape`."""
    return f"{getattr(shape, 'page', DOCS)}#{anchor_of(shape)}"


def anchor_of(shape: type[BaseModel]) -> str:
    """The heading of docs/stack-config.md that lists the keys of `shape`."""
    return "cells" if shape is CellsConfig else getattr(shape, "anchor", "approval")


def keys_of(shape: type[BaseModel]) -> list[str]:
    """The keys of `shape` as they are written."""
    return [field.alias or name for name, field in shape.model_fields.items()]
