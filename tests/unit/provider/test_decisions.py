"""Every input of every resource has one decision, and the schema says so."""

from __future__ import annotations

import json

import pytest

from sweepstack.provider.dispatch import HANDLERS, handler_for
from sweepstack.provider.resources.base import Decision
from sweepstack.provider.schema import COMPONENTS, schema_json


@pytest.mark.parametrize("token", HANDLERS)
def test_every_input_has_exactly_one_decision(token: str) -> None:
    """A field without a decision would be a change that nobody sees."""
    handler = handler_for(token)
    assert set(handler.decisions) == set(handler.inputs_type.model_fields)


@pytest.mark.parametrize("token", HANDLERS)
def test_a_state_extends_its_inputs(token: str) -> None:
    """A delete six weeks later has the inputs and the outputs, and nothing else."""
    handler = handler_for(token)
    assert issubclass(handler.state_type, handler.inputs_type)


def test_only_what_nobody_types_is_ignored() -> None:
    """An ignored difference is invisible: the list is short and known."""
    ignored = {
        f"{token.rsplit(':', 1)[-1]}.{name}"
        for token in HANDLERS
        for name, decision in handler_for(token).decisions.items()
        if decision is Decision.IGNORE
    }
    assert ignored == {
        "Box.budget",  # counts at the next create; the person sees its change at the identity
        "Box.ignore_balance",  # asked when a box is rented
        "Box.dry_run",
        "Box.claims",  # asked when a box is made
        "Box.pods",  # read when a box is made; of its workers the queue shows a change
        "Box.leaving",  # asked when a box is rented
        "Box.list_lag",
        "Box.live",
        "Box.named",
        "Box.no_code",  # asked when a box is rented
        "Box.placed",  # counts at the next create; a rented box is what it is
        "Box.secrets",
        "Box.volume",  # what is mounted is in mounts
        "Box.smoke",  # runs before the next create
        "Gate.approval",
        "Gate.artifacts_digest",
        "Gate.live",
        "Gate.roster_digest",
        "Identity.artifacts_digest",
        "Identity.outlook",
        "Identity.roster_digest",
        "Queue.approval",
        "Queue.elsewhere",
        "Queue.policy",  # written by Check; the gate shows it
        "Queue.roster_digest",
        "Queue.versions",
        "Volume.least_bytes",  # changes with every cell, and a volume does not
        "Volume.live",
    }


def test_the_schema_is_json_with_every_resource() -> None:
    """Other languages make their SDKs from it; each `$ref` of ours must resolve."""
    schema = json.loads(schema_json())
    assert set(schema["resources"]) == {*HANDLERS, *COMPONENTS}
    text = json.dumps(schema)
    references = {part.split('"')[0] for part in text.split('"#/types/')[1:]}
    assert references == set(schema["types"]), "and each type is used"
    assert schema["resources"]["sweepstack:index:Gate"]["inputProperties"]["box"]["willReplaceOnChanges"] is True


def test_an_adapter_that_may_move_is_said_to_replace_in_the_schema() -> None:
    """Other languages' SDKs know no third way: a program must reckon with the worse of the two."""
    resources = json.loads(schema_json())["resources"]
    moving = {
        (token, name)
        for token in HANDLERS
        for name, decision in handler_for(token).decisions.items()
        if decision is Decision.MOVE
    }
    assert moving == {(f"sweepstack:index:{resource}", "adapter") for resource in ("Box", "Queue", "Gate")}
    for token, name in moving:
        assert resources[token]["inputProperties"][name]["willReplaceOnChanges"] is True
