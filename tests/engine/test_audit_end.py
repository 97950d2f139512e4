"""`audit --end` by a colleague with the same account, who finds a box that trains."""

from __future__ import annotations

import pytest

from tests.engine.commands import ok
from tests.engine.harness import Stack, copy_checkout


@pytest.mark.proof  # on real boxes: tests/unit/cli/test_audit_end.py
def test_a_box_that_trains_outlives_a_colleague_s_audit_and_its_own_state_s_removal(small_finished: Stack) -> None:
    """Told whose it is, refused with and without an abandonment; and the owner gets it back."""
    stack = small_finished
    native_id = stack.native_id("box-0")
    stack.edit_config(lambda config: config["cells"]["grid"].__setitem__("seed", [0, 1, 2]))
    stack.hold("seed2")
    ok(stack.up())
    stack.wait_for(lambda: "seed2" in stack.started(), "seed2 to train")
    clone, backend = stack.base / "colleague", stack.base / "their-backend"
    copy_checkout(clone)
    backend.mkdir()
    env = {"PULUMI_BACKEND_URL": f"file://{backend}", "LOGNAME": "colleague"}
    found = stack.run("sweepctl", "audit", env=env, cwd=clone)
    assert found.rc == 1
    assert "3 cells: 1 running, 2 sealed; no copy is proved here" in found.text
    assert f"for sweepstack/{stack.name}, backend file://" in found.text
    assert "audit --end" not in found.text
    end = ("sweepctl", "audit", "--end", f"local:{native_id}", "--yes", native_id)
    for more in ((), ("--abandon", "--reason", "a drill")):
        refused = stack.run(*end, *more, env=env, cwd=clone)
        assert refused.rc == 1
        assert "REFUSED. Nothing was ended" in refused.text
        assert "answers and still holds t: it ends through its gate there" in " ".join(refused.text.split())
    assert stack.native_ids() == [native_id]
    ok(stack.pulumi("stack", "rm", "--force", "--yes", "--preserve-config"))
    refused = stack.run(*end)
    assert refused.rc == 1
    assert "on record as rented" in refused.text
    assert f"pulumi stack init {stack.name} && pulumi up --stack {stack.name}" in refused.text
    assert stack.native_ids() == [native_id]
    stack.release()
    stack.init()
    ok(stack.up())
    assert stack.native_ids() == [native_id]
    stack.wait_done()
    assert stack.started().count("seed2") == 1
