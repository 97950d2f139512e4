"""States of another version, edited by hand, or after `--replace`: a clear error with a way out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.commands import ok
from tests.engine.harness import Stack


def everywhere(change: Callable[[dict[str, Any]], object]) -> Callable[[list[dict[str, Any]]], None]:
    """The same change of inputs and outputs of every box, queue and gate."""

    def edit(resources: list[dict[str, Any]]) -> None:
        for resource in resources:
            if resource["type"].startswith("sweepstack:index:") and "teardown" in resource.get("inputs", {}):
                change(resource["inputs"])
                change(resource["outputs"])

    return edit


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_dispatch.py
@pytest.mark.parametrize("field", ["from_the_future", "schema"])
def test_a_newer_version_s_state(cleared: Stack, field: str) -> None:
    cleared.edit_state(everywhere(lambda side: side.update({field: 3})))
    for refused in (cleared.destroy(), cleared.up()):
        assert refused.rc != 0, str(refused)
        assert "Next: git pull && make setup" in refused.text, str(refused)
        assert "internal error" not in refused.text, str(refused)
    assert len(cleared.native_ids()) == 2


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_dispatch.py
def test_a_state_that_a_hand_has_damaged(small_finished: Stack) -> None:
    stack = small_finished
    stack.edit_state(everywhere(lambda side: side["teardown"].update(verb="stop") if "teardown" in side else None))
    refused = stack.destroy()
    assert refused.rc != 0, str(refused)
    assert "is damaged: teardown.verb" in refused.text, str(refused)
    assert f"Next: pulumi up --stack {stack.name}" in refused.text, str(refused)
    assert "internal error" not in refused.text, str(refused)
    ok(stack.up())
    ok(stack.sweepctl("pull"))
    ok(stack.sweepctl("finish", str(stack.verify()["receipt"])))
    assert stack.native_ids() == []


def test_after_the_identity_was_replaced(small_finished: Stack) -> None:
    """`--replace` makes a second entry of the same sweep; the end of the first one ends nothing, and no `up` is red."""
    stack = small_finished
    (identity,) = stack.resources("Identity")
    ok(stack.up("--replace", identity["urn"]))
    ok(stack.up())
    assert len(stack.resources("Identity")) == 1
    assert len(stack.native_ids()) == 1
    lease = stack.evidence / "records" / "lease.json"
    assert json.loads(lease.read_text())["backend"], "the sweep is still held"
