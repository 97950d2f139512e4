"""The loop on a real Slurm cluster, through `pulumi` and `sweepctl` alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.commands import assert_refused, ok
from tests.rented.slurm_stack import SlurmStack

SAME = ("same", "refresh")
"""Steps of a preview that change nothing."""


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[SlurmStack]:
    made = SlurmStack(tmp_path / "s")
    try:
        made.write_config()
        made.edit_config(lambda sweep: sweep["overrides"]["slurm"].update(purge_days=30, price_per_gpu_hour=3_600_000))
        made.edit_config(
            lambda sweep: sweep["job"].update(
                resources={"cpu": 2, "gpu": {"count": 1}, "memory": "1GB", "partition": "main", "time": "1h"}
            )
        )
        yield made
    finally:
        made.end()


@pytest.mark.proof  # its end, on the handlers: tests/extensions/slurm/test_must_hold.py; GPU-hours: unit/billing
def test_the_loop_on_a_cluster(stack: SlurmStack) -> None:
    """preview refused → up → destroy refused → wait → pull → verify → approve → destroy."""
    stack.init()
    stack.edit_config(lambda sweep: sweep["job"]["resources"].update(partition="mian"))
    refused = stack.pulumi("preview", timeout=180)
    assert refused.rc != 0
    assert "lab has no mian; did you mean main" in refused.text
    stack.edit_config(lambda sweep: sweep["job"]["resources"].update(partition="main"))
    preview = ok(stack.pulumi("preview", timeout=180))
    assert "its workers hold 2 GPUs while all run: 2 GPU-hours an hour ($7,200,000.00)" in preview.text
    assert stack.boxes_there() == [], "a preview makes nothing"

    stack.hold("seed0")
    up = ok(stack.up(timeout=300))
    assert "2 wait" in up.text or "2 workers run" in up.text, up
    (box,) = stack.boxes_there()
    # Workers begin some seconds after an up; then they hold a GPU each, at 1,000 dollars a second.
    stack.wait_for(lambda: dollars_used(stack) > 0, "a worker to hold a GPU", seconds=120)
    (seen,) = ok(stack.sweepctl("status", "--json", timeout=120)).json()["boxes"]
    assert any(worker["state"] == "RUNNING" and worker["node"] for worker in seen["workers"]), seen
    assert_refused(stack.destroy(timeout=180))
    planned = ok(stack.pulumi("preview", "--json", timeout=180)).json()
    changed = [(step["op"], step["urn"].split("::")[-1]) for step in planned["steps"] if step["op"] not in SAME]
    said = [told["message"] for told in planned.get("diagnostics", [])]
    assert not changed, (changed, said, stack.sweepctl("status", timeout=120).text)
    stack.release()

    ok(stack.sweepctl("wait", "done", timeout=400))
    ok(stack.sweepctl("pull", timeout=180))
    verify = ok(stack.sweepctl("verify", "--json", timeout=180)).json()
    assert (verify["verified"], verify["total"]) == (4, 4)
    ok(stack.sweepctl("approve", verify["receipt"]))
    ok(stack.up(timeout=180))
    ok(stack.destroy(timeout=180))
    assert stack.boxes_there() == []
    left = stack.cluster.ask("squeue", "--all", "--noheader", f"--name={box}")
    assert left == ""
    log = ok(stack.sweepctl("logs", "--of", "runner", timeout=120))
    assert re.search(r"worker \d+_\d+\.0 of box .*, from the copy of ", log.text), log.text
    assert "sealed" in log.text
    document = ok(stack.sweepctl("results", "--as", "html", "--json", timeout=120)).json()
    page = Path(document["file"]).read_text()
    assert re.search(r'"[a-z0-9-]+ \d+_\d+"', page), "the memory of a worker"


def dollars_used(stack: SlurmStack) -> float:
    """What `status` says that the workers' GPU-hours came to so far."""
    status = ok(stack.sweepctl("status", timeout=120))
    assert "workers run" in status.text, status.text
    (used,) = re.findall(r"used [0-9.]+ GPU-hours \(\$([0-9,.]+)\)", " ".join(status.text.split())) or [status.text]
    return float(used.replace(",", ""))
