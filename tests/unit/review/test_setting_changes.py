"""A review has words for each change of the engine's diff: none is hidden, and two changes never read alike."""

from __future__ import annotations

import copy
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweepstack.core import spelling
from sweepstack.core.policy_text import PolicyText, written
from sweepstack.core.resources import STATES
from sweepstack.review.assess import WORDS
from sweepstack.review.cell_changes import value_text
from sweepstack.review.digest import BY_ITSELF
from sweepstack.review.live import Roster
from sweepstack.review.markdown import markdown
from sweepstack.review.model import Review, SettingChange
from sweepstack.review.plan import SAME
from tests.unit.review.plans import box, live, reviewed, step, volume
from tests.unit.review.test_digest import ANY, inputs, nested, schema
from tests.unit.review.test_golden import REVIEWS

ENUM = {"want": ["running", "stopped"], "when_done": ["stop", "keep"]}
NO_WORDS = re.compile(r"[_{}\[\]$]|\w\.\w")
"""What a JSON path and a field's name look like."""


def text_of(review: Review) -> tuple[Any, ...]:
    """What is said of the change itself."""
    return (review.lines, review.rents, review.settings, review.changes, review.money)


def update(kind: str, old: dict[str, Any], new: dict[str, Any], op: str = "update") -> Review:
    known = {"native_id": "id-box-0"}
    return reviewed(live(box("box-0")), step(op, kind, "box-0", old=old | known, new=new))


def test_every_property_of_the_schema_has_words() -> None:
    """At any depth: a change of it is a row, whose words are no JSON path and no field's name."""
    for kind, path, of in inputs():
        top = path.partition(".")[0]
        if any(path == one or path.startswith(f"{one}.") for one in BY_ITSELF[kind]):
            continue
        assert top in WORDS, f"{kind}: {path} needs words in review/assess.py"
        for before, after in (("a", "b"), (None, "b"), ("a", None)):
            found = update(kind, nested(path, before), nested(path, after)).settings
            assert found, (kind, path)
            assert not [one.what for one in found if NO_WORDS.search(one.what)], (kind, path, of)


def test_each_operation_of_a_real_diff_has_a_line() -> None:
    """Of every change that was recorded from the engine: as many as it makes, and none says nothing."""
    for name, review in REVIEWS.items():
        done = sum(line.startswith(("makes ", "changes ", "takes ", "replaces ")) for line in review.lines)
        assert done or review.refusals or name == "nothing" or review.settings, name
        assert ("Nothing: what is up stays as it is." in markdown(review)) is not (
            review.lines or review.settings != ()
        )
    assert REVIEWS["nothing"].settings == ()


def test_a_secret_is_told_to_change_and_not_printed() -> None:
    """The state of an older version may hold one, by its form, its name or the command that takes it."""
    key, other = "b94d27b9934d3e08a52e52d7da7dabfac484efe3", "c94d27b9934d3e08a52e52d7da7dabfac484efe3"
    old = {"job": {"run": f"wandb login {key} && python t.py", "env": {"MY_TOKEN": "hunter2", "CODE": key}}}
    new = {"job": {"run": f"wandb login {other} && python t.py", "env": {"MY_TOKEN": "hunter3", "CODE": other}}}
    review = update("Queue", old, new)
    told = {one.what: (one.before, one.after) for one in review.settings}
    assert told["environment variable: CODE"] == (key, other)
    assert "hunter" not in markdown(review)
    assert f"login {key}" not in markdown(review)
    assert all(before != after and "…" in before for what, (before, after) in told.items() if "CODE" not in what)


def test_what_was_tried_and_hidden_is_told() -> None:
    """By the real engine: price, env, budget, code, a retry and a policy."""
    told = {(one.what, one.before, one.after) for one in REVIEWS["settings"].settings}
    assert told >= {
        ("price, USD an hour", "1.25", "9"),
        ("environment variable: live", "nothing", '"1"'),
        ("budget: usd", "nothing", "5000"),
        ("when its queue is drained", "keep", "stop"),
    }
    assert round(REVIEWS["settings"].money.adds, 2) == 15.5
    assert round(REVIEWS["settings"].money.after, 2) == 18.0
    (code,) = REVIEWS["new-code"].settings
    assert (code.what, code.of) == ("code, by digest", ("box-0", "box-1"))
    assert any("0 pending, 4 sealed with" in line for line in REVIEWS["new-code"].lines)
    (again,) = REVIEWS["retry"].changes
    assert (again.name, again.change, again.why) == ("seed1", "runs again", "retry 1; now it is verified")
    assert {one.what for one in REVIEWS["policy-stricter"].settings} == {
        "policy, by digest",
        "policy, stricter: max price per hour",
    }
    assert all("for the next box that is rented" in one.what for one in REVIEWS["smoke"].settings)
    assert REVIEWS["smoke"].settings


def test_what_is_rented_is_named() -> None:
    new = {
        "name": "box-1",
        "platform": "runpod",
        "resources": {"gpu": {"name": ["A100"], "count": 2}, "disk": "50GB", "region": "EU-RO-1"},
        "image": "org/image:1",
        "lease": "2h",
        "budget": {"usd": 60},
        "max_price": 0.8,
    }
    (line,) = reviewed(live(), step("create", "Box", "box-1", new=new)).rents
    for words in (
        "rents box-1",
        "runpod",
        "A100",
        "count: 2",
        "50GB",
        "EU-RO-1",
        "org/image:1",
        "lease: 2h",
        "usd: 60",
        "0.8",
    ):
        assert words in line
    bare = reviewed(live(), step("create", "Box", "box-1", new={"name": "box-1"})).rents
    assert bare == ("rents box-1: lease: none",)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("max_price_per_hour: 1.00\n", "max_price_per_hour: 2.00\n", "policy, WEAKER: max_price_per_hour: 1 becomes 2"),
        ("max_price_per_hour: 1.00\n", "", "policy, WEAKER: max_price_per_hour: 1 is left out"),
        ("", "max_price_per_hour: 1.00\n", "policy, stricter: max price per hour"),
        ("waivers: allowed\n", "waivers: refused\n", "policy, stricter: waivers"),
    ],
)
def test_a_policy_is_weaker_or_stricter(before: str, after: str, words: str) -> None:
    old, new = ({"policy": written(PolicyText(text=text))} if text else {} for text in (before, after))
    found = update("Identity", old, new).settings
    assert words in {one.what for one in found}
    assert len({"WEAKER" in one.what for one in found if one.what != "policy, by digest"}) == 1


def test_money_after_a_change_in_place() -> None:
    """A price, a bid, a size, a price of storage; a box that stands still is not paid by the hour."""
    seen = live(box("box-0"), volumes=(volume(native_id="id-v", adapter="x", actual_size_gb=10, price_per_month=1.0),))
    old = {"native_id": "id-box-0", "price_per_hour": 2.0, "want": "running"}

    def money(kind: str, old: dict[str, Any], **new: Any) -> Any:
        given = {key: value for key, value in old.items() if key != "native_id"}
        return reviewed(seen, step("update", kind, "box-0", old=old, new=given | new)).money

    assert (money("Box", old, price_per_hour=9.0).adds, money("Box", old, price_per_hour=0.5).saves) == (7.0, 1.5)
    assert money("Box", old | {"want": "stopped"}, price_per_hour=9.0).adds == 0.0
    assert money("Box", old, bid=0.4).unknown == ("box-0: up to $0.40/h by its new bid",)
    there = {"native_id": "id-v", "size_gb": 10}
    assert round(money("Volume", there, size_gb=30).volumes, 2) == 2.0
    assert round(money("Volume", there | {"price_per_gb_month": 0.1}, price_per_gb_month=0.2).volumes, 2) == 1.0
    assert money("Box", old, max_price=3.0).adds == 0.0


def test_a_cell_that_is_changed_shows_its_config() -> None:
    rosters = {"state": Roster(cells={"a": "1"}), "file": Roster(cells={"a": "2", "b": "1"})}
    queue = {"box_name": "box-0", "cells": ['a {"lr": 0.1, "seed": 1}']}
    new = {"box_name": "box-0", "cells": ['a {"lr": 0.2, "seed": 1}', 'b {"lr": "0.2"}']}
    found = reviewed(live(rosters=rosters), step("update", "Queue", "box-0", old=queue, new=new)).changes
    assert [(one.name, one.why) for one in found] == [("a", "its config differs; lr: 0.1 → 0.2"), ("b", 'lr: "0.2"')]


def test_a_text_is_never_taken_for_another_value() -> None:
    """A variable that is spelled like no value, like yes, like a number or like two, and the values themselves."""
    values: list[Any] = [True, False, 1, 1.5, [], {}, ["a", "b"], ["a, b"], "nothing", "known once it is made"]
    values += ["yes", "no", "1", "1.5", "an empty list", "an empty map", "a", " a", "a ", "a\nb", "", "NaN", "04", "2h"]
    found = {value_text(value) for value in values}
    assert len(found) == len(values)
    assert not found & {"nothing", "known once it is made"}
    assert [value_text(value) for value in ("a", "2h", "50GB", "org/image:1")] == ["a", "2h", "50GB", "org/image:1"]


texts = st.one_of(
    st.sampled_from(["nothing", "yes", "1", "a, b", "", "x", "an empty list", "live"]), st.text(max_size=6)
)
scalars = st.one_of(texts, st.integers(0, 3), st.booleans(), st.sampled_from([0.5, 1.5]))


def values(of: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Any value of a property by its schema."""
    token = of.get("$ref", "")
    if token == ANY:
        return st.one_of(scalars, st.dictionaries(texts, scalars, max_size=2))
    if "oneOf" in of:
        return st.one_of(values(one) for one in of["oneOf"])
    if "enum" in schema()["types"].get(token.removeprefix("#/types/"), {}):
        return texts  # an engine hands on what is no word of it, too
    if token:
        fields = schema()["types"][token.removeprefix("#/types/")]["properties"]
        return st.fixed_dictionaries({}, optional={name: values(below) for name, below in fields.items()})
    if of["type"] == "array":
        return st.lists(values(of["items"]), max_size=2)
    if of["type"] == "object":
        return st.dictionaries(texts, values(of["additionalProperties"]), max_size=2)
    kinds = {
        "string": texts,
        "integer": st.integers(0, 3),
        "number": st.sampled_from([0, 0.5, 1]),
        "boolean": st.booleans(),
    }
    return kinds[of["type"]]


@st.composite
def pairs(draw: st.DrawFn) -> tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]:
    """A resource as it is, and two changes of one of its inputs."""
    token = draw(st.sampled_from(sorted(STATES)))
    properties = schema()["resources"][token]["inputProperties"]
    kind = token.rpartition(":")[2]
    left = {name for name in properties if spelling.path_inside(token, name) not in BY_ITSELF[kind]}
    name = draw(st.sampled_from(sorted(left - {"name", "boxName", "policy"})))
    old, first, second = (spelling.inside(token, {name: draw(st.none() | values(properties[name]))}) for _ in range(3))
    return kind, old, first, second


def alike_unless_another_change(found: tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]], op: str) -> None:
    kind, old, first, second = found
    one, other = (update(kind, old, copy.deepcopy(new), op) for new in (first, second))
    none = update(kind, old, copy.deepcopy(old), "same")
    assert (text_of(one) == text_of(other)) is (one.digest == other.digest)
    changes = one.digest != none.digest
    assert bool(one.settings) is changes
    assert ("Nothing: what is up" in markdown(one)) is not (changes or op not in SAME)


@given(pairs(), st.sampled_from(["update", "same"]))
@settings(max_examples=60, deadline=None)
def test_two_changes_never_read_alike(found: Any, op: str) -> None:
    """The text is the same only where the digest is, and where an input changes it is never "nothing"."""
    alike_unless_another_change(found, op)


@pytest.mark.proof  # test_two_changes_never_read_alike stays
@given(pairs(), st.sampled_from(["update", "same"]))
@settings(max_examples=5000, deadline=None)
def test_two_changes_never_read_alike_at_length(found: Any, op: str) -> None:
    alike_unless_another_change(found, op)


def test_the_document_has_the_settings() -> None:
    document = json.loads(json.dumps(update("Box", {"bid": 1}, {"bid": 2}).as_json()))
    assert document["settings"] == [{"what": "bid, USD an hour", "before": "1", "after": "2", "of": ["box-0"]}]
    assert document["lines"] == ["changes box box-0"]
    assert SettingChange(**document["settings"][0]).what == "bid, USD an hour"
