"""10,000 cells ask no more of a cluster, and of the engine, than four do. `make bench` has the times."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.commands import Result, ok
from tests.rented.kube_stack import PODS, KubeStack
from tests.simulators.kubernetes import KubernetesCluster
from tests.simulators.kubernetes.audit import Asked, audited
from tests.simulators.kubernetes.enclosure import until

MANY = 10_000
SECONDS = 240.0


@pytest.mark.proof
def test_many_cells_cost_the_cluster_and_the_engine_what_four_do(tmp_path: Path) -> None:
    """One box: at most one watch. Requests are those that the API server has on its own record."""
    keep = tmp_path / "cluster"
    with KubernetesCluster.start(keep, nodes=1, api_options=audited(keep)) as cluster:
        stack = KubeStack(tmp_path / "s", cluster=cluster)
        watches = 0

        def requests(work: Callable[[], Result]) -> int:
            nonlocal watches
            before = Asked(keep)
            ok(work())
            counted = before.counted()
            watches += sum(times for (verb, _), times in counted.items() if verb == "watch")
            return counted.total()

        try:
            stack.write_config()
            stack.init()
            found: dict[int, dict[str, int]] = {}
            job = {"run": "sleep 600", "env": {"SEED": "{seed}", "N": "{n}"}}
            stack.edit_config(lambda sweep: sweep["job"].update(job))
            for cells, axes in ((4, (4, 1)), (MANY, (100, 100))):
                grid = {"seed": list(range(axes[0])), "n": list(range(axes[1]))}
                stack.edit_config(lambda sweep, grid=grid: sweep.update(cells={"grid": grid}))
                ok(stack.up(timeout=SECONDS))
                until(lambda: _both_run(stack), "two workers", SECONDS, cluster.told)
                state = json.loads(ok(stack.pulumi("stack", "export")).text)
                found[cells] = {
                    "preview": requests(lambda: stack.pulumi("preview", timeout=SECONDS)),
                    "status": requests(lambda: stack.sweepctl("status", timeout=SECONDS)),
                    "resources": len(state["deployment"]["resources"]),
                }
        finally:
            stack.close()
    assert watches <= len(stack.boxes)
    assert found[4]["status"] > 0, "nothing was on the record"
    assert found[MANY]["resources"] == found[4]["resources"]
    for what in ("preview", "status"):  # what the cluster just tells of its pods may ask for one look more
        assert found[MANY][what] <= found[4][what] + 3, what


def _both_run(stack: KubeStack) -> bool:
    pods = stack.cluster.admin.list(PODS, labelSelector="sweepstack.dev/role=worker")
    return sum(pod["status"].get("phase") == "Running" for pod in pods) == stack.workers
