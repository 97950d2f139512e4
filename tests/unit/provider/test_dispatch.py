"""Property values become models in one place: what does not fit is refused there, and a preview touches nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from sweepstack.onbox.common.errors import SweepstackError, TeardownRefused
from sweepstack.provider import dispatch
from sweepstack.provider.resources.base import Failure
from sweepstack.provider.session import Operation, token_of
from sweepstack.provider.wire import UNKNOWN, Unknown
from tests.unit.provider.support import Sweep, approval_for, approved, picture


def properties(model: Any) -> dict[str, Any]:
    return dispatch.to_properties(model)


def op(sweep: Sweep, kind: str = "Box", *, preview: bool = False) -> Operation:
    return replace(sweep.op(kind), preview=preview)


# Names and shapes


def test_inputs_that_do_not_exist_are_refused_by_name(sweep: Sweep) -> None:
    """All at once, before anything else is judged; `__defaults` is the engine's own."""
    news = properties(sweep.box_inputs()) | {"prise_per_hour": 1, "aproval": {}, "__defaults": []}
    _, failures = dispatch.check(op(sweep), {}, news)
    assert failures == [
        Failure("aproval", "sweepstack:index:Box has no input of this name"),
        Failure("prise_per_hour", "sweepstack:index:Box has no input of this name"),
    ]


def test_inputs_of_the_wrong_shape_are_refused_by_path(sweep: Sweep) -> None:
    news = properties(sweep.box_inputs()) | {"name": "Box 0", "teardown": {"verb": "destroy", "kills": 3, "keeps": []}}
    del news["roster_digest"]
    _, failures = dispatch.check(op(sweep), {}, news)
    assert {failure.property for failure in failures} == {"name", "teardown.kills", "roster_digest"}


@pytest.mark.parametrize(
    "broken",
    [
        {"expires": "tomorrow"},
        {"expires": "2026-11-21T09:00:00"},
        {"waivers_digest": "sha256:0"},
        {"actions": [{"verb": "destroy", "box": "box-0"}]},
        {"actions": [{"verb": "destroy; stop", "box": "box-0", "native_id": "local-abcdefghij"}]},
        {"receipt": "latest"},
        {"force": True},
    ],
)
def test_a_malformed_approval_is_a_check_failure(sweep: Sweep, broken: dict[str, Any]) -> None:
    box = sweep.box()
    approval = approval_for(box).model_dump(mode="json") | broken
    _, failures = dispatch.check(op(sweep), {}, properties(sweep.box_inputs()) | {"approval": approval})
    assert failures
    assert all(failure.property.startswith("approval.") for failure in failures)


def test_an_unknown_type_is_refused(sweep: Sweep) -> None:
    urn = f"urn:pulumi:{'sweep-t'}::project::sweepstack:index:Pod::p"
    with pytest.raises(SweepstackError, match="has no resource type sweepstack:index:Pod; it has sweepstack:index:Id"):
        dispatch.delete(replace(sweep.op(), urn=urn), "p", {}, {})


def test_the_type_of_a_nested_resource_is_its_own() -> None:
    urn = "urn:pulumi:s::p::sweepstack:index:Sweep$sweepstack:index:BoxGroup$sweepstack:index:Box::box-0"
    assert token_of(urn) == "sweepstack:index:Box"


def test_what_may_never_change_is_refused(sweep: Sweep) -> None:
    old = properties(sweep.box_inputs())
    _, failures = dispatch.check(op(sweep), old, old | {"identity": "zzzzzzzzzz", "evidence": "file://there/x"})
    assert {failure.property for failure in failures} == {"identity", "evidence"}
    assert "may not change once box exists" in failures[0].reason


def test_what_is_of_a_sweep_already_is_not_imported(sweep: Sweep) -> None:
    """What a person rented by hand is: tests/rented/test_imported.py."""
    box = sweep.box()
    with pytest.raises(SweepstackError, match=r"does not say where the box is. Next: pulumi import --stack sweep-t .*"):
        dispatch.find(op(sweep), box.native_id)
    with pytest.raises(SweepstackError, match=r"cannot be imported by its id.*pulumi up --stack sweep-t"):
        dispatch.find(sweep.op("Queue"), f"local:{box.native_id}")


# What a preview does not know


def test_a_preview_without_the_box_goes_through(sweep: Sweep) -> None:
    """The clearance is nobody's to give: neither the program's nor an unknown's."""
    news = properties(sweep.box_inputs()) | {"mounts": {"mnt/durable": UNKNOWN}, "clearance": "cleared by receipt x"}
    inputs, failures = dispatch.check(op(sweep), {}, news)
    assert (inputs["clearance"], failures) == ("locked", [])
    inputs, _ = dispatch.check(op(sweep), {"clearance": "locked (expired)"}, news)
    assert inputs["clearance"] == "locked (expired)"


def test_a_previewed_create_makes_nothing(sweep: Sweep) -> None:
    before = picture(sweep.folder)
    identifier, outputs = dispatch.create(op(sweep, preview=True), properties(sweep.box_inputs()))
    assert identifier == ""
    assert isinstance(outputs["native_id"], Unknown)
    assert outputs["name"] == "box-0"
    assert picture(sweep.folder) == before


def test_a_previewed_update_changes_nothing(sweep: Sweep) -> None:
    box = sweep.trained()
    approval = approval_for(box, receipt=sweep.verified(box))
    before = picture(sweep.folder)
    old = properties(sweep.box_inputs())
    news, failures = dispatch.check(op(sweep), old, old | {"approval": approval.model_dump(mode="json")})
    assert failures == []
    found = dispatch.diff(op(sweep), old, properties(box), news)
    assert (set(found.changed), found.replaces) == ({"approval", "clearance"}, ())
    outputs = dispatch.update(op(sweep, preview=True), box.native_id, old, properties(box), news)
    assert outputs["clearance"].startswith("cleared by receipt")
    assert picture(sweep.folder) == before


def test_what_changes_and_what_replaces(sweep: Sweep) -> None:
    old = properties(sweep.box_inputs())
    found = dispatch.diff(op(sweep), old, old, old | {"price_per_hour": 0.75, "resources": {"cpu": 2}})
    assert (set(found.changed), found.replaces) == ({"price_per_hour", "resources"}, ("resources",))
    assert found.delete_before_replace
    assert dispatch.diff(op(sweep), old | {"max_price": None}, old, old).changed == ()
    seen = old | {"live": {"seen": "exists"}}
    assert dispatch.diff(op(sweep), seen, old, old).changed == ()


def test_an_odd_old_state_can_still_be_compared_and_checked(sweep: Sweep) -> None:
    """An edited state must not stop `up`: its delete is checked anyway."""
    sweep.box()
    odd = {"name": 7, "mounts": "none", "extra": [1]}
    assert "name" in dispatch.diff(op(sweep), odd, odd, properties(sweep.box_inputs())).changed
    assert dispatch.check(op(sweep), odd, properties(sweep.box_inputs()))[1] == []


# What the state remembers


def test_a_round_trip_through_the_engine_s_memory(sweep: Sweep) -> None:
    inputs = properties(sweep.box_inputs())
    identifier, outputs = dispatch.create(op(sweep), inputs)
    assert sweep.listed() == [identifier]
    found = dispatch.read(op(sweep), identifier, inputs, outputs)
    assert found is not None
    seen_inputs, seen_outputs, unhealthy = found
    assert (seen_outputs, unhealthy) == (outputs, ())
    assert seen_inputs.pop("live")["state"] == "locked"
    assert seen_inputs == inputs
    with pytest.raises(TeardownRefused):
        dispatch.delete(op(sweep), identifier, inputs, outputs)


def test_a_withdrawn_approval_is_not_found_in_old_outputs(sweep: Sweep) -> None:
    """The engine keeps outputs as they were; what counts are the inputs as they are."""
    box = sweep.cleared()
    inputs, outputs = properties(sweep.box_inputs()), properties(box)
    assert outputs["approval"]
    for kind, given, kept in (
        ("Box", inputs, outputs),
        ("Gate", properties(sweep.gate_inputs(approved(box, None))), properties(sweep.gate(box))),
    ):
        with pytest.raises(TeardownRefused, match="not approved"):
            dispatch.delete(op(sweep, kind), "x", given, kept)
    assert sweep.listed() == [box.native_id]


def test_the_platform_s_price_is_kept_where_a_person_named_none(sweep: Sweep) -> None:
    inputs = properties(sweep.box_inputs(price_per_hour=None))
    identifier, outputs = dispatch.create(op(sweep), inputs)
    with pytest.raises(TeardownRefused, match=r"\$2\.00/h"):
        dispatch.delete(op(sweep), identifier, inputs, outputs | {"price_per_hour": 2})


@pytest.mark.parametrize(
    "edit", [{"extra": 1}, {"native_id": None}, {"generation": "first"}, {"teardown": {"verb": "stop"}}]
)
def test_a_state_that_is_none_ends_nothing(sweep: Sweep, edit: dict[str, Any]) -> None:
    box = sweep.cleared()
    outputs = properties(box) | edit
    inputs = {name: value for name, value in outputs.items() if name in type(sweep.box_inputs()).model_fields}
    with pytest.raises((SweepstackError, ValidationError)):
        dispatch.delete(op(sweep), box.native_id, inputs, outputs)
    assert sweep.listed() == [box.native_id]


# What another version, or a hand, has written


def remembered(sweep: Sweep, **edit: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """A box in the state: id, inputs, outputs; `edit` in both, as far as it is an input."""
    box = sweep.box()
    outputs = properties(box) | edit
    inputs = {name: value for name, value in outputs.items() if name in type(sweep.box_inputs()).model_fields}
    return box.native_id, inputs | {name: value for name, value in edit.items() if name == "from_the_future"}, outputs


@pytest.mark.parametrize("edit", [{"schema": 3}, {"from_the_future": 1}, {"schema": 3, "native_id": None}])
def test_what_a_newer_version_wrote_is_told_and_never_written_over(sweep: Sweep, edit: dict[str, Any]) -> None:
    identifier, inputs, outputs = remembered(sweep, **edit)
    for command in (
        lambda: dispatch.read(op(sweep), identifier, inputs, outputs),
        lambda: dispatch.update(op(sweep), identifier, inputs, outputs, properties(sweep.box_inputs())),
        lambda: dispatch.delete(op(sweep), identifier, inputs, outputs),
    ):
        with pytest.raises(SweepstackError, match=r"Box box-0 .*newer .*Next: git pull && make setup"):
            command()
    assert sweep.listed() == [identifier]


def test_what_is_made_now_carries_its_schema_and_what_has_none_works_on(sweep: Sweep) -> None:
    identifier, outputs = dispatch.create(op(sweep), properties(sweep.box_inputs()))
    assert outputs["schema"] == 2
    inputs = properties(sweep.box_inputs())
    found = dispatch.read(op(sweep), identifier, inputs, outputs)
    assert found is not None
    assert found[1]["schema"] == 2
    del outputs["schema"]
    found = dispatch.read(op(sweep), identifier, inputs, outputs)
    assert found is not None
    assert "schema" not in found[1], "a refresh shows no change"
    assert dispatch.update(op(sweep), identifier, inputs, outputs, inputs)["schema"] == 2


@pytest.mark.parametrize("edit", [{"teardown": {"verb": "stop"}}, {"roster_digest": None}])
def test_inputs_that_were_damaged_are_mended_by_an_up(sweep: Sweep, edit: dict[str, Any]) -> None:
    """The verb was edited, or a field is missing: what is wrong is said, with the command that mends it."""
    identifier, inputs, outputs = remembered(sweep, **edit)
    found = dispatch.read(op(sweep), identifier, inputs, outputs)
    assert found is not None
    (reason,) = found[2]
    assert f"Box box-0 in the engine's state is damaged: {next(iter(edit))}" in reason
    assert "Next: pulumi up --stack sweep-t" in reason
    with pytest.raises(SweepstackError, match=r"is damaged: .* Next: pulumi up --stack sweep-t"):
        dispatch.delete(op(sweep), identifier, inputs, outputs)
    mended = dispatch.update(op(sweep), identifier, inputs, outputs, properties(sweep.box_inputs()))
    assert mended["teardown"]["verb"] == "destroy"
    assert sweep.listed() == [identifier]


def test_outputs_that_were_damaged_are_found_again_by_the_tag(sweep: Sweep) -> None:
    identifier, inputs, outputs = remembered(sweep, native_id=None)
    way = "pulumi state delete --stack sweep-t --target-dependents 'urn:"
    found = dispatch.read(op(sweep), identifier, inputs, outputs)
    assert found is not None
    assert way in found[2][0]
    for command in (
        lambda: dispatch.update(op(sweep), identifier, inputs, outputs, properties(sweep.box_inputs())),
        lambda: dispatch.delete(op(sweep), identifier, inputs, outputs),
    ):
        with pytest.raises(SweepstackError, match=way):
            command()


def test_a_renamed_stack_is_told_to_be_renamed_back(sweep: Sweep) -> None:
    old = properties(sweep.identity_inputs())
    _, failures = dispatch.check(op(sweep, "Identity"), old, old | {"stack": "another"})
    assert [failure.property for failure in failures] == ["stack"]
    assert "pulumi stack rename sweep-t --stack another" in failures[0].reason


# Many cells


def test_cells_are_one_text_each_and_not_repeated_in_outputs(sweep: Sweep) -> None:
    """The engine carries inputs and outputs through every step: 10,000 cells as objects made a preview of minutes."""
    box = sweep.box()
    inputs = properties(sweep.queue_inputs(box))
    assert inputs["cells"] == ['a {"word": "a"}', 'b {"word": "b"}']
    queue = op(sweep, "Queue")
    identifier, outputs = dispatch.create(queue, inputs)
    sweep.drained(box)
    assert not {"cells", "elsewhere"} & set(outputs)
    found = dispatch.read(queue, identifier, inputs, outputs)
    assert found is not None
    assert found[0]["cells"] == inputs["cells"]
    assert not {"cells", "elsewhere"} & set(found[1])
    assert dispatch.diff(queue, inputs, outputs, inputs).changed == ()
    for preview in (True, False):
        updated = dispatch.update(op(sweep, "Queue", preview=preview), identifier, inputs, outputs, inputs)
        assert "cells" not in updated
    assert "cells" not in dispatch.create(op(sweep, "Queue", preview=True), inputs)[1]
    more = sweep.queue_inputs(box, "a", "b", "c")
    assert dispatch.diff(queue, inputs, outputs, properties(more)).changed == ("cells",)


@pytest.mark.parametrize("cell", ["a", "a {", "a 3", "a b {}", "../a {}", {"name": "a", "params": {"word": "a"}}, 3])
def test_a_cell_that_is_none_is_refused_by_path(sweep: Sweep, cell: Any) -> None:
    news = properties(sweep.queue_inputs(sweep.box())) | {"cells": ['b {"word": "b"}', cell]}
    _, failures = dispatch.check(op(sweep, "Queue"), {}, news)
    assert {failure.property.split(".")[0] for failure in failures} <= {"cells", ""}
    assert failures
