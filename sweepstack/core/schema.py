"""Which shapes this code reads: what a newer sweepstack wrote is told apart from what is damaged.

States, records and receipts carry `schema`, a number; what has none is of before it was counted, and is read as 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from sweepstack.core import spelling
from sweepstack.core.engine_secret import SIGNATURE_KEY
from sweepstack.core.paths import update_fix
from sweepstack.core.records import SCHEMA

KEY = "schema"
STATE: Final = 2
"""Of an entry of the engine's state: since 2 its names are those of the schema (docs/adr/025)."""
UPDATE_COMMAND = update_fix()
UPDATE = f"Next: {UPDATE_COMMAND}"


def entry(resource: Mapping[str, Any]) -> dict[str, Any]:
    """What the engine has of one resource, in a state or in a plan, by the names of our models: its inputs, and its
    outputs over them. All that does not come by the plugin's wire is read by this (docs/adr/025)."""
    return {name: _plain(value) for name, value in (inputs(resource) | _known(resource, "outputs")).items()}


def inputs(resource: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs alone, as in `entry`."""
    return _known(resource, "inputs")


def _known(resource: Mapping[str, Any], part: str) -> dict[str, Any]:
    return spelling.inside(str(resource.get("type", "")), mapping(resource.get(part)))


def hidden(resource: Mapping[str, Any]) -> set[str]:
    """The properties that the engine keeps as secrets, whole: an exported state does not tell them."""
    parts = inputs(resource) | _known(resource, "outputs")
    return {name for name, value in parts.items() if isinstance(value, dict) and SIGNATURE_KEY in value}


def mapping(value: Any) -> dict[str, Any]:
    """The value, if it is a JSON object; else an empty one."""
    return value if isinstance(value, dict) else {}


def _plain(value: Any) -> Any:
    """The value, with a word in place of what a program gave as a secret: a state has it encrypted."""
    if isinstance(value, dict):
        return "[secret]" if SIGNATURE_KEY in value else {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def why_too_new(version: Any, known: int = SCHEMA) -> str:
    """Why what says that it is of this version can't be read here; empty where it can. `known`: the newest that can."""
    if not isinstance(version, int | float) or isinstance(version, bool) or version <= known:
        return ""
    return f"it was written by a newer sweepstack (schema {version:g}; this one knows {known}). {UPDATE}"


def unknown(error: ValidationError) -> str:
    """Why, where all that is wrong is fields that this code does not know; empty for other mistakes."""
    if any(item["type"] != "extra_forbidden" for item in error.errors()):
        return ""
    fields = [_at(item["loc"]) for item in error.errors()]
    return f"this sweepstack does not know {', '.join(fields[:3])}: a newer one wrote it. {UPDATE}"


def first(error: ValidationError) -> str:
    """The first mistake: where, and what."""
    item = error.errors()[0]
    at = _at(item["loc"])
    return f"{at + ': ' if at else ''}{item['msg']}"


def _at(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location)
