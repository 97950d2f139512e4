"""Who counts as a worker when an `up` looks what is missing: none that ends, and none that will not begin. What a
person holds stays held."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sweepstack.core.resources import BoxState, QueueState
from sweepstack.provider.resources.base import Gone
from tests.extensions.slurm.world import SlurmSweep
from tests.simulators.slurm_cluster import SHARED, SlurmCluster, until
from tests.simulators.test_machines import Login
from tests.unit.provider.support import QUEUE

SPOOL = "/var/lib/slurmd"
DENIED = f"""\
[ "$1" = release ] && [ -e {SHARED}/no-release ] && {{ echo "Access/permission denied" >&2; exit 1; }}
exec "$REAL" "$@"
"""


def up(sweep: SlurmSweep, box: BoxState, queue: QueueState) -> QueueState:
    return QUEUE.update(sweep.op("Queue"), "q", queue, sweep.queue_inputs(box, *sweep.roster))


def unhealthy(sweep: SlurmSweep, queue: QueueState) -> str:
    """What a preview would plan an update for."""
    seen = QUEUE.read(sweep.op("Queue"), "q", queue)
    assert not isinstance(seen, Gone)
    return "; ".join(seen.unhealthy)


def test_a_cell_that_comes_while_the_last_worker_ends_gets_one(make_sweep: Callable[..., SlurmSweep]) -> None:
    sweep = make_sweep(workers=1)
    with sweep.cluster.slow_ends():
        sweep.roster = ("a",)
        box = sweep.box()
        queue = sweep.queue(box)
        until(lambda: [state for _, state, _ in sweep.tasks(box)] == ["COMPLETING"], "an end", sweep.picture)
        assert unhealthy(sweep, queue) == ""
        sweep.roster = ("a", "b")
        up(sweep, box, queue)
        assert len(sweep.tasks(box)) == 2, sweep.picture()
    sweep.until_sealed(box)
    sweep.until_idle(box)
    sweep.assert_honest(box)


@contextlib.contextmanager
def no_launches(sweep: SlurmSweep) -> Iterator[None]:
    """No node can start a job meanwhile: what a node keeps of its jobs is no folder."""
    for node in sweep.cluster.nodes.values():
        assert node.run("sh", "-c", f"mv {SPOOL} {SPOOL}.kept && touch {SPOOL}").returncode == 0
    try:
        yield
    finally:
        for node in sweep.cluster.nodes.values():
            assert node.run("sh", "-c", f"rm {SPOOL} && mv {SPOOL}.kept {SPOOL}").returncode == 0


def until_held_by_slurm(sweep: SlurmSweep, box: BoxState, *tasks: str) -> None:
    def held() -> bool:
        return {name for name, _, why in sweep.tasks(box) if why == "launch failed requeued held"} >= set(tasks)

    until(held, "failed launches", sweep.picture)


def test_what_slurm_holds_is_released_and_else_replaced(sweep: SlurmSweep) -> None:
    sweep.cluster.shadow("scontrol", DENIED)
    box = sweep.box()
    with no_launches(sweep):
        queue = sweep.queue(box)
        held = sorted(sweep.live(box))
        assert len(held) == 2
        until_held_by_slurm(sweep, box, *held)
        assert "2 will not begin (launch failed requeued held" in unhealthy(sweep, queue)
        for node in sweep.cluster.nodes:
            sweep.cluster.drain(node)
    denied = sweep.cluster.shared / "no-release"
    denied.touch()
    for _ in range(2):  # replaced once, and not once more at each `up`
        queue = up(sweep, box, queue)
        assert len(sweep.live(box)) == 4, sweep.picture()
    assert unhealthy(sweep, queue) == ""
    sweep.cluster.ask("scancel", *(task for task in sweep.live(box) if task not in held))
    denied.unlink()
    queue = up(sweep, box, queue)
    assert sorted(sweep.live(box)) == held, sweep.picture()
    assert unhealthy(sweep, queue) == ""
    sweep.cluster.shadow("scontrol", None)
    for node in sweep.cluster.nodes:
        sweep.cluster.resume(node)
    sweep.until_sealed(box)
    sweep.until_idle(box)
    sweep.assert_honest(box)


@pytest.mark.proof  # what is read: tests/extensions/slurm/test_slurm_answers.py
def test_a_job_without_the_node_of_its_worker_is_replaced_beside_one_that_works(
    make_sweep: Callable[..., SlurmSweep], tmp_path: Path, key: Login
) -> None:
    """Two workers of two nodes each. What the lost one had is free once its node answers again, and not before."""
    with SlurmCluster.start(tmp_path / "four", authorized_keys=[key.public], nodes=5) as four:
        sweep = make_sweep(on=four, nodes=2, cpu=8)
        sweep.roster = ("a", "b", "c")
        sweep.hold("a", "b", "c")
        box = sweep.box()
        queue = sweep.queue(box)
        sweep.until_begun("a", "b")
        assert unhealthy(sweep, queue) == ""
        lost, worker = sweep.node_of("a"), sweep.worker_of(box, "a").rpartition(".")[0]
        four.lose(lost)
        until(lambda: "only hold nodes" in unhealthy(sweep, queue), "the loss", sweep.picture)
        assert "not all workers take them: 1 workers run (on n[" in unhealthy(sweep, queue)
        queue = up(sweep, box, queue)
        until(lambda: sweep.state_of(box, worker) == "CANCELLED", "its end", sweep.picture)
        sweep.until_begun("c")
        assert sweep.starts()["a"] == 1, "its node does not answer: nothing proves that it has ended"
        assert unhealthy(sweep, queue) == ""
        four.bring_back(lost)
        sweep.release()
        sweep.until_sealed(box, "b", "c")
        sweep.until_idle(box)
        up(sweep, box, queue)  # the last worker may have ended before it asked about the lost one again
        sweep.until_sealed(box)
        sweep.until_idle(box)
        assert sweep.starts() == {"a": 2, "b": 1, "c": 1}
        sweep.assert_honest(box)
        sweep.close()


def test_what_a_person_holds_stays_held_and_gets_no_other_in_its_place(sweep: SlurmSweep) -> None:
    """By `scontrol hold`, as its user (`uhold`) and as an administrator."""
    for node in sweep.cluster.nodes:
        sweep.cluster.drain(node)
    box = sweep.box()
    queue = sweep.queue(box)
    mine, theirs = sorted(sweep.live(box))
    for verb, why in (("uhold", "JobHeldUser"), ("hold", "JobHeldAdmin")):
        sweep.cluster.ask("scontrol", "release", mine, theirs)
        sweep.cluster.ask("scontrol", verb, mine, theirs)
        queue = up(sweep, box, queue)
        assert [(name, seen) for name, _, seen in sorted(sweep.tasks(box))] == [(mine, why), (theirs, why)]
        assert unhealthy(sweep, queue) == "", "an update that changes nothing"
        said = sweep.said.warnings.splitlines()[-1]
        assert f"2 held by a person, and left so ({why}: " in said
        assert why == "JobHeldAdmin" or f"`scontrol release {mine} {theirs}`" in said
    sweep.cluster.ask("scontrol", "release", mine, theirs)
    for node in sweep.cluster.nodes:
        sweep.cluster.resume(node)
    sweep.until_sealed(box)
    sweep.until_idle(box)
    sweep.assert_honest(box)
