"""What changed inside an input, as the engine is told it: paths outside, each added, deleted or updated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sweepstack.core import schema
from sweepstack.provider.details import Kind, details
from sweepstack.provider.dispatch import Difference
from sweepstack.provider.grpc_stubs import provider_pb2
from sweepstack.provider.properties import Properties
from sweepstack.provider.session import Operation, Session
from sweepstack.provider.wire import UNKNOWN

URN = "urn:pulumi:t::p::sweepstack:index:Box::box-0"


@pytest.mark.parametrize(
    ("before", "after", "parts"),
    [
        ({"a": 1, "b": None}, {"a": 1}, {}),
        (None, {"a": 1}, {"x": "ADD"}),
        ([1], None, {"x": "DELETE"}),
        ({"a": {"b": 1}}, {"a": {"b": 2, "c": 3}}, {"x.a.b": "UPDATE", "x.a.c": "ADD"}),
        ({"mnt/a": "1", 'q"': 1}, {"mnt/a": "2"}, {'x["mnt/a"]': "UPDATE", 'x["q\\""]': "DELETE"}),
        ([1, {"a": 1}], [1, {"a": 2}], {"x[1].a": "UPDATE"}),
        ([1, 2], [1, 2, 3], {"x": "UPDATE"}),
        ([1] * 20, [2] * 20, {"x": "UPDATE"}),
        ({"a": 1}, [1], {"x": "UPDATE"}),
        ({"a": 1}, {"a": UNKNOWN}, {"x.a": "UPDATE"}),
        (1, UNKNOWN, {"x": "UPDATE"}),
    ],
)
def test_the_smallest_parts_that_differ_are_named(before: Any, after: Any, parts: dict[str, str]) -> None:
    assert {path: kind.value for path, kind in details("x", before, after)} == parts


def answered(found: Difference, *before: dict[str, Any]) -> Any:
    return Properties(Operation(Session(Path(), lambda *_: None), URN)).difference(found, before)


def kinds(answer: Any) -> dict[str, str]:
    return {path: part.Kind.Name(part.kind) for path, part in answer.detailedDiff.items()}


def test_paths_and_names_are_spelled_as_the_schema_has_them() -> None:
    parts = (("max_price", Kind.UPDATE), ("teardown.stop.bills_after[0]", Kind.UPDATE), ("mounts.a_b", Kind.ADD))
    found = Difference(("max_price", "teardown", "mounts"), ("mounts",), True, parts)
    answer = answered(found, {"maxPrice": 1})
    assert list(answer.diffs) == ["maxPrice", "teardown", "mounts"]
    assert (list(answer.replaces), answer.deleteBeforeReplace) == (["mounts"], True)
    assert kinds(answer) == {
        "maxPrice": "UPDATE",
        "teardown.stop.billsAfter[0]": "UPDATE",
        "mounts.a_b": "ADD_REPLACE",
    }
    assert all(part.inputDiff for part in answer.detailedDiff.values())


def test_names_of_before_are_an_update_of_the_number_alone() -> None:
    nothing = Difference((), (), True)
    assert answered(nothing, {"maxPrice": 1}, {"nativeId": "x"}).changes == provider_pb2.DiffResponse.DIFF_NONE
    for old in ({"max_price": 1}, {"native_id": "x"}):
        answer = answered(nothing, {"maxPrice": 1}, old)
        assert answer.changes == provider_pb2.DiffResponse.DIFF_SOME
        assert (list(answer.diffs), list(answer.replaces)) == ([schema.KEY], [])
        assert kinds(answer) == {schema.KEY: "UPDATE"}
