"""What is read of an exported state: by the provider's own models, and what does not read is told."""

from __future__ import annotations

from typing import Any

import pytest

from sweepstack.core import schema
from sweepstack.core.records import Approval
from sweepstack.provider import wire
from sweepstack.status.engine.state import StackState, parse_export
from tests.unit.entries import DIGEST, box_entry, identity_entry

APPROVAL = {"actions": [], "waivers_digest": DIGEST, "by": "ana", "at": "2026-11-21T12:00:00Z"} | {
    "expires": "2026-11-22T12:00:00Z"
}


def read(kind: str = "Box", **changed: Any) -> StackState:
    """The state with one entry, as the engine prints it."""
    entry = box_entry() if kind == "Box" else identity_entry()
    outputs = entry.model_dump(mode="json", exclude={"urn", "policies", "to_delete", "unread"}) | changed
    resource = {"type": f"sweepstack:index:{kind}", "urn": "urn::box-0", "id": "host-1", "outputs": outputs}
    return parse_export("s", {"deployment": {"resources": [resource]}})


def test_what_a_newer_version_added_passes() -> None:
    ends = box_entry().teardown.as_inputs() | {"later": 1}
    state = read(later={"a": 1}, teardown=ends)
    assert (state.boxes[0].name, state.problems) == ("box-0", ())


def test_a_secret_of_the_program_is_read_as_a_word() -> None:
    """The state has it encrypted; a program in another language may give a job's variable so."""
    assert schema.SIGNATURE_KEY == wire.SIGNATURE_KEY
    secret = {wire.SIGNATURE_KEY: wire.SECRET_SIGNATURE, "ciphertext": "AAAA"}
    state = read(lease=secret, resources={"deep": [secret]})
    assert (state.boxes[0].lease, state.boxes[0].resources) == ("[secret]", {"deep": ["[secret]"]})
    assert state.problems == ()


def test_an_id_that_the_state_keeps_as_a_secret_is_told_and_not_taken_for_one() -> None:
    """`additionalSecretOutputs`: a box called [secret] would be looked for, and proved gone."""
    secret = {wire.SIGNATURE_KEY: wire.SECRET_SIGNATURE, "ciphertext": "AAAA"}
    for name in ("native_id", "nativeId"):
        state = read(**{name: secret})
        assert state.boxes == ()
        assert state.problems == (
            "Box box-0 (host-1): the state keeps nativeId as a secret. Next: take `additionalSecretOutputs` out of the "
            "program, then pulumi up --stack s",
        )


@pytest.mark.parametrize("approval", [APPROVAL | {"only_on": "mondays"}, APPROVAL | {"by": 3}, "yes"])
def test_an_approval_is_read_whole_or_counts_as_none(approval: Any) -> None:
    """What a newer version added to it may take back what the rest says."""
    (box,) = read(approval=approval).boxes
    assert (box.approval, list(box.unread)) == (None, ["approval"])
    assert read(approval=APPROVAL).boxes[0].approval == Approval.model_validate(APPROVAL)


def test_a_budget_that_does_not_read_is_none() -> None:
    assert read("Identity", budget={"usd": -1}).identity == identity_entry(
        urn="urn::box-0", unread={"budget": "usd: Input should be greater than 0"}
    )


def test_a_box_stays_without_what_it_can_do_without() -> None:
    """And the state is told to be damaged: a box that is not shown bills unseen."""
    state = read(smoke={"run": 3}, lease=["2h"])
    assert (state.boxes[0].smoke, state.boxes[0].lease) == (None, None)
    assert state.problems == ("Box box-0 (host-1): smoke.run: Input should be a valid string",)


def test_an_entry_without_what_it_needs_is_a_problem() -> None:
    state = read(native_id=7, smoke={"run": 3})
    assert state.boxes == ()
    assert state.problems[0].startswith("Box box-0 (host-1): ")
