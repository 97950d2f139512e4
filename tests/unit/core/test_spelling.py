"""Names in the schema and in the state: camelCase by rule, from the models; both spellings are read."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import BaseModel

from sweepstack.core import schema, spelling
from sweepstack.core.resources import STATES

BOX, QUEUE = "sweepstack:index:Box", "sweepstack:index:Queue"
OLD: dict[str, Any] = {
    "roster_digest": "sha256:0",
    "resources": {"gpu_count": 1},
    "places": {"mnt/a_b": "/x_y"},
    "placed": {"price_per_hour": 1.0, "offer": "a_b"},
    "teardown": {
        "keeps_per_gb_month": {"my_tier": 0.1},
        "stop": {"bills_after": ["a_b"]},
        "clocks": [{"first_stop": True}],
    },
    "approval": {"actions": [{"native_id": "x"}], "signatures": [{"principal": "a_b", "sweep": {"identity": "i_j"}}]},
    "live": {"of_a_read": {"cells_lost": 1}},
    "not_ours": {"native_id": 1},
}
NEW: dict[str, Any] = {
    "rosterDigest": "sha256:0",
    "resources": {"gpu_count": 1},
    "places": {"mnt/a_b": "/x_y"},
    "placed": {"pricePerHour": 1.0, "offer": "a_b"},
    "teardown": {
        "keepsPerGbMonth": {"my_tier": 0.1},
        "stop": {"billsAfter": ["a_b"]},
        "clocks": [{"firstStop": True}],
    },
    "approval": {"actions": [{"nativeId": "x"}], "signatures": [{"principal": "a_b", "sweep": {"identity": "i_j"}}]},
    "live": {"of_a_read": {"cells_lost": 1}},
    "not_ours": {"native_id": 1},
}


def models() -> set[type[BaseModel]]:
    """Each model that has names of ours, at any depth."""
    found: set[type[BaseModel]] = set()

    def add(shape: Any) -> None:
        if isinstance(shape, type) and shape not in found:
            found.add(shape)
            for below in spelling._table(shape)[1].values():
                add(below)
        elif isinstance(shape, tuple):
            add(shape[0])
        elif isinstance(shape, dict):
            add(shape[""])

    for model in STATES.values():
        add(model)
    return found


def test_names_of_ours_are_spelled_at_any_depth_and_those_of_people_never() -> None:
    assert spelling.outside(BOX, OLD) == NEW
    assert spelling.inside(BOX, NEW) == OLD
    assert spelling.inside(BOX, OLD) == OLD


def test_where_both_are_there_the_new_spelling_counts() -> None:
    for both in ({"bid": 0, "max_price": 1, "maxPrice": 2}, {"maxPrice": 2, "max_price": 1, "bid": 0}):
        assert spelling.inside(BOX, both) == {"bid": 0, "max_price": 2}


def test_one_old_name_is_seen_at_any_depth() -> None:
    assert not spelling.is_old(BOX, NEW, {})
    for old in (
        {"max_price": 1},
        {"teardown": {"stop": {"bills_after": []}}},
        {"teardown": {"clocks": [{"days": 1}, {"first_stop": True}]}},
    ):
        assert spelling.is_old(BOX, NEW, old)
    assert spelling.is_old(QUEUE, {"job": {"network": {"proxy_on": ""}}})
    assert not spelling.is_old(QUEUE, {"job": {"env": {"proxy_on": ""}}, "dropped": {"box_name": "x"}})


def test_no_name_can_be_taken_for_another() -> None:
    assert len(models()) > 15
    for model in models():
        names = list(model.model_fields)
        assert all(re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) for name in names), model
        assert not any(field.alias for field in model.model_fields.values()), model
        spelled = [spelling.camel(name) for name in names]
        assert len({*names, *spelled}) == len(names) + sum(a != b for a, b in zip(names, spelled, strict=True)), model


def test_what_is_no_type_of_ours_passes() -> None:
    assert spelling.inside("pulumi:providers:x", {"maxPrice": 1}) == {"maxPrice": 1}
    assert not spelling.is_old("pulumi:providers:x", {"max_price": 1})


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ("max_price", "maxPrice"),
        ("teardown.stop.bills_after[0]", "teardown.stop.billsAfter[0]"),
        ("teardown.clocks[12].first_stop", "teardown.clocks[12].firstStop"),
        ('teardown.keeps_per_gb_month["a_b.c"]', 'teardown.keepsPerGbMonth["a_b.c"]'),
        ("resources.gpu_count", "resources.gpu_count"),
        ("live.of_a_read", "live.of_a_read"),
        ("", ""),
        ("max_price..x", "maxPrice..x"),
    ],
)
def test_a_path_is_spelled_as_its_names_are(inside: str, outside: str) -> None:
    assert spelling.path_outside(BOX, inside) == outside
    assert spelling.path_inside(BOX, outside) == inside
    assert spelling.path_inside(BOX, inside) == inside


def test_an_entry_of_a_state_is_read_in_both() -> None:
    for inputs in (OLD, NEW):
        for outputs in ({"native_id": "x", "schema": 1}, {"nativeId": "x", "schema": 1}):
            entry = schema.entry({"type": BOX, "inputs": inputs, "outputs": outputs})
            assert entry == OLD | {"native_id": "x", "schema": 1}
            assert schema.inputs({"type": BOX, "inputs": inputs}) == OLD
