"""docs/stack-config.md lists every key there is, and none that is not."""

from __future__ import annotations

import re
import typing
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from sweepstack.config.model import SweepConfig
from sweepstack.config.problems import anchor_of, keys_of
from sweepstack.config.volume_stack import StoreShape
from sweepstack.core.records import Approval

DOCS = Path(__file__).resolve().parents[3] / "docs" / "stack-config.md"


def documented() -> dict[str, list[str]]:
    """Heading → the keys in its table."""
    found: dict[str, list[str]] = {}
    heading = ""
    for line in DOCS.read_text().splitlines():
        if match := re.match(r"## (.+)", line):
            heading = match[1]
        elif match := re.match(r"\| `(\w+)` \|", line):
            found.setdefault(heading, []).append(match[1])
    return found


def shapes(shape: type[BaseModel]) -> set[type[BaseModel]]:
    """`shape` and every model below it, but those of an approval: they are described in its rows."""
    found = {shape}
    if shape is Approval:
        return found
    for field in shape.model_fields.values():
        found |= {inner for model in _models(field.annotation) for inner in shapes(model)}
    return found


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in typing.get_args(annotation) for model in _models(argument)]


def test_documented_keys_are_the_model_s() -> None:
    assert documented() == {anchor_of(shape): keys_of(shape) for shape in shapes(SweepConfig) | shapes(StoreShape)}


def test_keys_of_an_approval_s_parts_are_named_in_its_rows() -> None:
    text = DOCS.read_text().partition("## approval")[2]
    for row in ("actions", "waive", "abandon", "unclaimed"):
        line = next(line for line in text.splitlines() if line.startswith(f"| `{row}` |"))
        (model,) = _models(Approval.model_fields[row].annotation)
        assert [key for key in keys_of(model) if f"`{key}`" not in line] == []


def test_required_keys_are_marked() -> None:
    text = DOCS.read_text()
    for shape in shapes(SweepConfig) | shapes(StoreShape):
        for name, field in shape.model_fields.items():
            key = field.alias or name
            section = text.partition(f"\n## {anchor_of(shape)}\n")[2].partition("\n## ")[0]
            row = next(line for line in section.splitlines() if line.startswith(f"| `{key}` |"))
            assert (row.split("|")[2].strip() == "yes") == field.is_required(), row
