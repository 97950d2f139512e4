"""The loop on a real Slurm cluster, by `pulumi` and `sweepctl` alone: workers of a job array share one queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.commands import assert_refused, ok
from tests.rented.slurm_stack import SlurmStack


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[SlurmStack]:
    made = SlurmStack(tmp_path / "sweep")
    try:
        made.write_config()
        made.init()
        yield made
    finally:
        made.end()


def test_the_loop(stack: SlurmStack) -> None:
    """preview → up → destroy refused → pull → verify → approve → up → destroy."""
    (stack.there / "hold-seed3").touch()
    assert "slurm" in ok(stack.pulumi("preview", timeout=180)).text
    assert stack.jobs() == [], "a preview submits nothing"
    ok(stack.up(timeout=300))
    tasks = {job for job, _, _ in stack.jobs()}
    assert tasks, "workers were submitted"
    status = ok(stack.sweepctl("status", "--json")).json()
    assert {cell["cell"] if "cell" in cell else cell["name"] for cell in status["cells"]} == set(stack.cells)
    assert_refused(stack.destroy(timeout=180))
    assert {job for job, _, _ in stack.jobs()} & tasks, "a refused destroy cancels nothing"
    (stack.there / "hold-seed3").unlink()
    ok(stack.sweepctl("wait", "--for", "done", timeout=300))
    ok(stack.sweepctl("pull", timeout=180))
    verify = ok(stack.sweepctl("verify", "--json", timeout=180)).json()
    assert (verify["verified"], verify["total"]) == (4, 4)
    ok(stack.sweepctl("approve", "--receipt", verify["receipt"]))
    ok(stack.up(timeout=180))
    ok(stack.destroy(timeout=180))
    assert stack.jobs() == []
    assert list((stack.cluster.shared / "sweeps" / "boxes").glob("slurm-*")) == []
