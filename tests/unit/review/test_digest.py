"""The digest of a change binds how each box ends, and every input; what it leaves out is named by its full path."""

from __future__ import annotations

import copy
import functools
import json
import re
from typing import Any

import pytest

from sweepstack.core import spelling
from sweepstack.core.records import Abandonment, UnclaimedWaiver, Waiver
from sweepstack.core.resources import STATES
from sweepstack.provider.schema import schema_json
from sweepstack.review.digest import BY_ITSELF, FREE
from sweepstack.review.model import MAY_GO_ON, MAY_NOT
from sweepstack.teardown.box_check import CellLine
from tests.engine.commands import ROOT
from tests.unit.review.plans import approval, box, live, reviewed, step, volume

ANY = "pulumi.json#/Any"
CODE = re.compile("`([^`]+)`")
DELETE = step("delete", "Box", "box-0", old={"native_id": "id-box-0", "name": "box-0"})
LET_GO = UnclaimedWaiver(box="box-0", native_id="id-box-0", files=3, bytes=9, reason="logs")
VERIFIED = (CellLine("seed0", "verified"), CellLine("seed1", "verified"))


def ending(way: str, *cells: CellLine, **given: Any) -> str:
    """The digest of a destroy of a box that ends in this way."""
    locked = box("box-0", allowed=bool(way), way=way or None, cells=cells or VERIFIED)
    seen = live(locked, approval=approval(**given))
    digest = reviewed(seen, DELETE, destroy=True).digest
    assert digest is not None
    return digest


def test_it_binds_the_way_in_which_a_box_ends_and_the_names() -> None:
    """Verified, waived, given up, gone and locked are five changes; so are other names and other reasons."""
    waived = (VERIFIED[0], CellLine("seed1", "waived"))
    lost = (VERIFIED[0], CellLine("seed1", "damaged"))
    other = (CellLine("seed0", "damaged"), VERIFIED[1])
    gone = reviewed(live(box("box-0", exists="gone", allowed=True, way="gone")), DELETE, destroy=True).digest
    found = [
        ending("cleared"),
        ending("cleared", *waived, waive=(Waiver(cell="seed1", reason="no use"),)),
        ending("cleared", *waived, waive=(Waiver(cell="seed1", reason="lost anyway"),)),
        ending("abandoned", *lost),
        ending("abandoned", *other),
        ending("abandoned", *lost, abandon=(Abandonment(box="box-0", native_id="id-box-0", reason="x"),)),
        ending("cleared", unclaimed=(LET_GO,)),
        ending(""),
        gone,
    ]
    assert len(set(found)) == len(found)
    running = (VERIFIED[0], CellLine("seed1", "running"))
    assert ending("abandoned", *running) == ending("abandoned", *lost), "progress of what is lost is no other change"
    assert ending("", *running) == ending(""), "a locked box does not end by this change, whatever its cells do"
    others = (Abandonment(box="box-9", native_id="id-box-9", reason="of another box"),)
    assert ending("cleared", abandon=others) == ending("cleared")


def test_what_was_reviewed_as_verified_is_never_given_up() -> None:
    """The destroy was reviewed with all verified; then a copy was damaged and the box abandoned."""
    seen = live(box("box-0", allowed=True, way="cleared", cells=VERIFIED))
    first = reviewed(seen, DELETE, destroy=True)
    assert first.code == MAY_GO_ON
    assert reviewed(seen, DELETE, destroy=True, expected=first.digest or "").code == MAY_GO_ON
    lost = (VERIFIED[0], CellLine("seed1", "damaged"))
    given_up = live(box("box-0", allowed=True, way="abandoned", cells=lost))
    assert reviewed(given_up, DELETE, destroy=True).code == MAY_GO_ON
    assert reviewed(given_up, DELETE, destroy=True, expected=first.digest or "").code == MAY_NOT


def test_it_binds_who_used_a_volume_that_ends() -> None:
    gone = step(
        "delete", "Volume", "v", old={"native_id": "id-v", "name": "v", "guarded": True, "clearance": "cleared"}
    )
    fields: dict[str, Any] = {"native_id": "id-v", "guarded": True, "allowed": True}
    ways = [("cleared", ()), ("abandoned", ()), ("abandoned", ("t",))]
    found = {
        reviewed(live(volumes=(volume(**fields, way=way, users=users),)), gone, destroy=True).digest
        for way, users in ways
    }
    assert len(found) == len(ways)


INSIDE = ("job.env", "job.network.env", "job.network.folders", "dropped")


@pytest.mark.parametrize(
    "name", ["live", "clearance", "versions", "cells", "workdir", "dry_run", "elsewhere", "no_code"]
)
def test_a_name_of_ours_inside_a_free_map_counts(name: str) -> None:
    """A variable `live` of `job.env` is a variable like any other, an empty one, too."""
    for path in INSIDE:
        digests = {
            changed("Queue", path, before, after)
            for before, after in [({}, {name: "1"}), ({}, {name: ""}), ({name: "1"}, {name: "2"}), ({}, {"FOO": "1"})]
        }
        assert len(digests) == 4
        assert None not in digests


def test_groups_by_their_types_of_today_have_the_digest_of_before() -> None:
    """What was reviewed before the components had new types is what is brought up after."""
    before = step("delete", "Box", "box-0", old={"native_id": "a"})
    types = {
        "sweepstack:components:Sweep": "sweepstack:index:Sweep",
        "sweepstack:components:Box": "sweepstack:index:BoxGroup",
    }
    before["urn"] = before["urn"].replace("components:Sweep$", "components:Sweep$sweepstack:components:Box$")
    now = copy.deepcopy(before)
    for old, new in types.items():
        now["urn"] = now["urn"].replace(old, new)
    assert now["urn"] != before["urn"]
    assert reviewed(live(), now).digest == reviewed(live(), before).digest
    other = now | {"urn": now["urn"].replace("BoxGroup", "Other")}
    assert reviewed(live(), other).digest != reviewed(live(), before).digest


def changed(kind: str, path: str, before: Any, after: Any) -> str | None:
    """The digest of an update of one input; None where it is that of no change."""
    old, new = nested(path, before), nested(path, after)
    digest = reviewed(live(), step("update", kind, "box-0", old=old, new=new)).digest
    return None if digest == reviewed(live(), step("update", kind, "box-0", old=old, new=old)).digest else digest


def nested(path: str, value: Any) -> dict[str, Any]:
    """The inputs that have this value at this path."""
    for name in reversed(path.split(".")):
        value = {name: value}
    return copy.deepcopy(dict(value))


@functools.cache
def schema() -> dict[str, Any]:
    """Made when a test asks for it: each process of `make test` collects all modules."""
    return dict(json.loads(schema_json()))


@functools.cache
def inputs() -> list[tuple[str, str, dict[str, Any]]]:
    """Each input of each resource, at any depth: kind, path, its schema."""
    return [
        (token.rpartition(":")[2], spelling.path_inside(token, path), of)
        for token in STATES  # a component's inputs are in no state
        for path, of in fields_of(schema()["resources"][token]["inputProperties"], "")
    ]


def fields_of(properties: dict[str, Any], below: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for name, of in properties.items():
        held = of.get("items", of)
        held = held.get("additionalProperties", held)
        found.append((f"{below}{name}", of))
        token = held.get("$ref", "").removeprefix("#/types/")
        if token in schema()["types"] and "additionalProperties" not in of:
            found += fields_of(schema()["types"][token].get("properties", {}), f"{below}{name}.")
    return found


def test_every_input_is_bound_but_for_those_that_are_listed() -> None:
    """By the schema: whatever an input is called, its change is another change, unless its full path is listed."""
    known = {(kind, path) for kind, path, _ in inputs()}
    assert {(kind, path) for kind, paths in BY_ITSELF.items() for path in paths} <= known
    for kind, path, _ in inputs():
        out = any(path == one or path.startswith(f"{one}.") for one in BY_ITSELF[kind])
        assert (changed(kind, path, "a", "b") is None) is out, (kind, path)


def test_maps_with_free_keys_are_compared_as_they_are() -> None:
    """So an empty variable is not the same as none: those maps are the schema's."""
    free = {
        (kind, path)
        for kind, path, of in inputs()
        if of.get("$ref") == ANY
        or ("additionalProperties" in of and of["additionalProperties"].get("$ref") in (None, ANY))
    }
    listed = {(kind, path) for kind, paths in FREE.items() for path in paths}
    assert listed == {(kind, path) for kind, path in free if path not in BY_ITSELF[kind]}


def test_what_counts_only_when_a_box_is_rented_is_bound_too() -> None:
    """The engine calls it no change, and the next box is rented by it."""
    old = {"native_id": "id-box-0", "name": "box-0", "placed": {"offer": "a"}}
    one = reviewed(live(), step("same", "Box", "box-0", old=old, new={"name": "box-0", "placed": {"offer": "b"}}))
    none = reviewed(live(), step("same", "Box", "box-0", old=old, new={"name": "box-0", "placed": {"offer": "a"}}))
    assert one.digest != none.digest == reviewed(live()).digest


def test_the_page_lists_what_is_left_out() -> None:
    """docs/review.md has each path, and no other, for each resource."""
    text = (ROOT / "docs/review.md").read_text(encoding="utf-8").partition("| resource | left out | why |")[2]
    rows = [line.split("|")[1:3] for line in text.partition("\n\n")[0].splitlines()[2:]]
    told = {(kind.strip(), path) for kinds, paths in rows for kind in kinds.split(",") for path in CODE.findall(paths)}
    assert told == {(kind, path) for kind, paths in BY_ITSELF.items() for path in paths}
