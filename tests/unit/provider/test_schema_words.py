"""The package schema: each closed set of words is an enum, each property and each word is described."""

from __future__ import annotations

import functools
import json
import typing
from typing import Any

from pydantic import BaseModel

from sweepstack.core.choices import WORDS
from sweepstack.core.resources import STATES
from sweepstack.onbox.host.platform import Phase
from sweepstack.provider.schema import models_in, schema_json

INDEX = "sweepstack:index:"


@functools.cache
def schema() -> Any:
    return json.loads(schema_json())


def models() -> set[type[BaseModel]]:
    found: set[type[BaseModel]] = set()
    left: list[Any] = list(STATES.values())
    while left:
        model = left.pop()
        if model not in found:
            found.add(model)
            left += [held for field in model.model_fields.values() for held in models_in(field.annotation)]
    return found


def literals(annotation: Any) -> list[tuple[str, ...]]:
    """Each `Literal` that an annotation names."""
    if typing.get_origin(annotation) is typing.Literal:
        return [typing.get_args(annotation)]
    return [found for one in typing.get_args(annotation) for found in literals(one)]


def test_each_closed_set_of_words_is_an_enum() -> None:
    enums = [{one["value"] for one in kind["enum"]} for kind in schema()["types"].values() if "enum" in kind]
    found = [
        words for model in models() for field in model.model_fields.values() for words in literals(field.annotation)
    ]
    assert len(found) > 10
    assert [words for words in found if set(words) not in enums] == []
    (phase,) = [kind for token, kind in schema()["types"].items() if token == f"{INDEX}Phase"]
    assert {one["value"] for one in phase["enum"]} == {one.value for one in Phase}


def test_each_property_and_each_word_is_described() -> None:
    bare = []
    for token, kind in [*schema()["types"].items(), *schema()["resources"].items()]:
        assert kind["description"], token
        for part in ("properties", "inputProperties"):
            bare += [f"{token}.{name}" for name, one in kind.get(part, {}).items() if not one.get("description")]
        bare += [f"{token} {one['value']}" for one in kind.get("enum", ()) if not one.get("description")]
    assert bare == []
    assert WORDS not in {name for kind in schema()["types"].values() for name in kind}


def test_no_type_is_any_but_that_of_a_platform_s_own_words() -> None:
    found = []

    def look(at: str, value: Any) -> None:
        if isinstance(value, dict):
            if value.get("$ref") == "pulumi.json#/Any":
                found.append(at)
            for name, one in value.items():
                look(f"{at}.{name}", one)

    look("", schema()["types"])
    look("", {token: one["inputProperties"] for token, one in schema()["resources"].items()})
    of_cells = [at for at in found if at.startswith(f".{INDEX}CellsConfig.")]
    assert len(of_cells) == 9, "parameters of cells: text, a number or a boolean, as a person wants"
    drawn = [at for at in found if at.startswith(f".{INDEX}SearchAxis.")]
    assert [at.split(".")[3] for at in drawn] == ["choice", "when"], "the same, for cells that are drawn"
    assert [at for at in found if at not in (*of_cells, *drawn)] == [
        f".{INDEX}Override.properties.pod.additionalProperties",  # fields of a pod, as the cluster's API has them
        f".{INDEX}Box.resources.additionalProperties",
    ]


def test_names_are_those_of_the_ecosystem() -> None:
    names = {
        name
        for one in schema()["resources"].values()
        for part in ("properties", "inputProperties")
        for name in one[part]
    }
    names |= {name for kind in schema()["types"].values() for name in kind.get("properties", ())}
    assert {"nativeId", "rosterDigest", "pricePerGbMonth", "billsAfter"} <= names
    assert [name for name in names if "_" in name] == []
    for one in schema()["resources"].values():
        assert set(one["requiredInputs"]) <= set(one["inputProperties"])
        assert set(one["required"]) <= set(one["properties"])
