"""What happens to a cluster and its jobs: no cell is lost, none runs twice at once, and the verdicts are right.

None of these clusters has an accounting database: `sacct` is disabled there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sweepstack.core.resources import BoxState, QueueState
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import SweepstackError, TeardownRefused
from sweepstack.provider.resources.base import Gone
from tests.extensions.slurm.world import SlurmSweep
from tests.simulators.slurm_cluster import LIMITED, OTHER_USER, SlurmCluster, at_most, until
from tests.simulators.test_machines import Login
from tests.unit.provider.support import BOX, QUEUE, approval_for, approved

LOOKS_SECONDS = 5.0
"""In so long a worker has asked about the others, again and again."""


class Held:
    """A sweep whose two workers hold a cell each; `more` cells wait. `alone`: one worker holds both; `submitted`: what
    is done once their jobs are."""

    def __init__(
        self, sweep: SlurmSweep, more: int = 1, *, alone: bool = False, submitted: Callable[[], object] | None = None
    ) -> None:
        self.sweep = sweep
        if alone:
            sweep.slots, sweep.scheduler["workers"] = 2, 1
        self.roster = ("a", "b", *(f"c{number}" for number in range(more)))
        sweep.roster = self.roster
        sweep.hold("a", "b")
        self.box = sweep.box()
        self.queue = sweep.queue(self.box)
        if submitted is not None:
            submitted()
        sweep.until_begun("a", "b")

    def up(self) -> QueueState:
        """What an `up` does to the queue."""
        self.queue = QUEUE.update(
            self.sweep.op("Queue"), "q", self.queue, self.sweep.queue_inputs(self.box, *self.roster)
        )
        return self.queue

    def ends_well(self, *, starts: int = 1) -> None:
        """Lets all go on, with as many `up`s as workers are missing: every cell is sealed once, none began more often
        than `starts`, and the box may end once it is verified."""
        self.sweep.release()

        def done() -> bool:
            if set(self.roster) <= self.sweep.sealed(self.box):
                return True
            failed = self.sweep.events(self.box, "cell-failed")  # no test of this file has a cell that fails
            assert not failed, f"{failed}\n{self.sweep.picture()}"
            waits = " ".join(why for _, _, why in self.sweep.tasks(self.box))
            if not self.sweep.live(self.box) or "BeginTime" in waits or "held" in waits:
                self.up()
            return False

        until(done, "all seals", self.sweep.picture, 120)
        self.sweep.until_idle(self.box)
        self.sweep.assert_honest(self.box)
        assert max(self.sweep.starts().values()) <= starts, self.sweep.picture()


def refused(sweep: SlurmSweep, box: BoxState) -> None:
    """A destroy is refused, and cancels nothing. A worker that has nothing more to do may end meanwhile."""

    def cancelled() -> list[str]:
        return [name for name, state, _ in sweep.tasks(box) if state == "CANCELLED"]

    before = cancelled()
    with pytest.raises(TeardownRefused):
        BOX.delete(sweep.op(), box.native_id, box)
    assert cancelled() == before
    assert sweep.root(box).is_dir()


def ended(sweep: SlurmSweep, box: BoxState) -> None:
    """It ends after pull, verify and approval; then nothing of it is left."""
    state = approved(box, approval_for(box, receipt=sweep.verified(box)))
    BOX.delete(sweep.op(), box.native_id, state)
    assert not sweep.root(box).exists()
    assert sweep.live(box) == []


def test_a_destroy_is_refused_until_all_is_verified(sweep: SlurmSweep) -> None:
    held = Held(sweep)
    refused(sweep, held.box)
    held.ends_well()
    refused(sweep, held.box)
    ended(sweep, held.box)


def test_the_controller_and_the_login_node_restart_in_the_middle_of_an_array(sweep: SlurmSweep) -> None:
    held = Held(sweep, alone=True)
    sweep.cluster.restart_controller()
    sweep.cluster.reboot_login()
    refused(sweep, held.box)
    held.up()
    assert len(sweep.tasks(held.box)) == 1, "its worker is there still"
    held.ends_well()


@pytest.mark.parametrize("verb", [pytest.param("requeue", marks=pytest.mark.proof), "scancel"])  # alike to a worker
def test_a_job_is_requeued_or_cancelled_from_outside(sweep: SlurmSweep, verb: str) -> None:
    held = Held(sweep)
    (first, *_) = sweep.live(held.box)
    command = ["scancel", first] if verb == "scancel" else ["scontrol", "requeue", first]
    sweep.cluster.ask(*command)
    until(lambda: sweep.state_of(held.box, first) not in ("RUNNING", "COMPLETING"), f"a {verb}", sweep.picture)
    refused(sweep, held.box)
    held.ends_well(starts=2)


def test_another_user_s_job_of_the_same_name_is_none_of_ours(sweep: SlurmSweep) -> None:
    held = Held(sweep, alone=True)
    named = f"--job-name={held.box.native_id}"
    other = sweep.cluster.submit("sleep 600", named, "--output=/dev/null", user=OTHER_USER)
    try:
        held.ends_well()
        ended(sweep, held.box)
        assert sweep.cluster.state(other) in ("PENDING", "RUNNING"), "another user's job was ended"
    finally:
        sweep.cluster.ask("scancel", other)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1", id="silent"),
        pytest.param("echo what is this; exit 0", id="strange", marks=pytest.mark.proof),  # no answer, either
    ],
)
def test_an_answer_of_squeue_that_is_none_is_never_an_end(sweep: SlurmSweep, fault: str) -> None:
    held = Held(sweep, alone=True)
    sweep.cluster.shadow("squeue", fault)
    try:
        assert sweep.channel(held.box).lock_held(box_layout.RUNNER_LOCK)
        with pytest.raises(SweepstackError):
            BOX.delete(sweep.op(), held.box.native_id, held.box)
        seen = BOX.read(sweep.op(), held.box.native_id, held.box)
        assert not isinstance(seen, Gone)
        with pytest.raises(SweepstackError):
            held.up()
        assert sweep.channel(held.box).lock_held(box_layout.RUNNER_LOCK), "what was known is no longer fresh"
    finally:
        sweep.cluster.shadow("squeue", None)
    assert len(sweep.live(held.box)) == 1, sweep.picture()
    held.ends_well()


def test_an_answer_of_sbatch_that_is_lost_submits_nothing_twice(sweep: SlurmSweep) -> None:
    sweep.hold("a", "b")
    box = sweep.box()
    sweep.cluster.shadow(
        "sbatch", 'case "$*" in *--test-only*) exec "$REAL" "$@";; esac; "$REAL" "$@" >/dev/null; exit 1'
    )
    try:
        queue = sweep.queue(box)
    finally:
        sweep.cluster.shadow("sbatch", None)
    QUEUE.update(sweep.op("Queue"), "q", queue, sweep.queue_inputs(box))
    assert len(sweep.tasks(box)) == 2, sweep.picture()
    sweep.release()
    sweep.until_sealed(box)
    sweep.assert_honest(box)


@pytest.mark.proof  # the next test but one proves a restart without a preemption
def test_a_preempted_job_goes_on_later(make_sweep: Callable[..., SlurmSweep]) -> None:
    sweep = make_sweep(partition="cheap")
    held = Held(sweep)
    urgent = sweep.cluster.submit("sleep 3", "-p", "urgent", "--exclusive", "-N2", "--output=/dev/null")
    sweep.cluster.await_state(urgent, "COMPLETED")
    held.ends_well(starts=2)


@pytest.mark.proof  # a requeue, above, is the same to a worker
def test_a_drained_node_and_a_lost_node(make_sweep: Callable[..., SlurmSweep]) -> None:
    sweep = make_sweep(cpu=8)  # a whole node each
    held = Held(sweep, more=3)
    node = sweep.node_of("a")
    sweep.cluster.drain(node)
    (sweep.control / "hold-a").unlink()
    sweep.until_sealed(held.box, "a")
    other = sweep.node_of("b")
    sweep.cluster.resume(node)
    sweep.cluster.lose(other)
    refused(sweep, held.box)
    sweep.cluster.bring_back(other)
    sweep.cluster.drain(other)  # so the next try is on the other node, where only Slurm can prove the end
    held.ends_well(starts=2)


@pytest.mark.proof
def test_a_node_that_was_given_up_and_runs_on_keeps_its_cell(sweep: SlurmSweep) -> None:
    """Slurm requeues the job at once; the processes on a node that it can't reach go on."""
    held = Held(sweep, more=0)
    node = sweep.node_of("a")
    of_node = [cell for cell in ("a", "b") if sweep.node_of(cell) == node]
    sweep.cluster.nodes[node].down()
    sweep.cluster.give_up(node)
    until(lambda: any("BeginTime" in why for _, _, why in sweep.tasks(held.box)), "a requeue", sweep.picture)
    held.up()
    workers = sweep.root(held.box) / box_layout.HOME / "workers"
    until(lambda: any(workers.glob("*.1/worker.json")), "the next try", sweep.picture)
    ends = time.monotonic() + LOOKS_SECONDS
    while time.monotonic() < ends:
        assert [sweep.starts()[cell] for cell in of_node] == [1] * len(of_node), sweep.picture()
        time.sleep(0.2)
    sweep.cluster.nodes[node].up()
    sweep.cluster.run("scontrol", "update", f"nodename={node}", "state=resume")
    held.ends_well(starts=3)


@pytest.mark.proof
def test_the_controller_forgets_that_a_job_began(sweep: SlurmSweep) -> None:
    """It knows what it knew before they began: each begins a second time, as the same try of the same task."""

    def resume() -> None:
        for node in sweep.cluster.nodes:  # refused where a restart of the controller did it
            sweep.cluster.run("scontrol", "update", f"nodename={node}", "state=resume")

    def submitted() -> None:
        sweep.cluster.remember()
        resume()

    for node in sweep.cluster.nodes:
        sweep.cluster.drain(node)
    held = Held(sweep, submitted=submitted)
    sweep.cluster.forget()
    resume()
    logs = sweep.home(held.box) / "jobs"
    said = lambda: [log.read_text() for log in logs.glob("*.log")]  # noqa: E731
    until(lambda: all("was here before" in text for text in said()), "two second beginnings", sweep.picture)
    held.ends_well(starts=2)


def test_the_shared_tier_is_read_only_for_a_while(sweep: SlurmSweep) -> None:
    held = Held(sweep)
    sweep.cluster.read_only()
    try:
        before = sweep.starts()
        (sweep.control / "hold-a").unlink()
        refused_or_unknown(sweep, held.box)
        # writable again before its worker wrote of its end, it would be a failure like any other
        until(lambda: len(sweep.live(held.box)) < 2, "the end of its worker", sweep.picture)
        assert sweep.starts() == before
    finally:
        sweep.cluster.read_only(False)
    held.ends_well(starts=3)


def refused_or_unknown(sweep: SlurmSweep, box: BoxState) -> None:
    with pytest.raises(SweepstackError):
        BOX.delete(sweep.op(), box.native_id, box)
    assert sweep.root(box).is_dir()


@pytest.mark.proof
def test_a_full_submit_limit_leaves_the_rest_for_later(
    make_sweep: Callable[..., SlurmSweep], tmp_path: Path, key: Login
) -> None:
    with SlurmCluster.start(
        tmp_path / "full",
        authorized_keys=[key.public],
        nodes=1,
        settings=LIMITED,
        files={"job_submit.lua": at_most(1)},
    ) as full:
        sweep = make_sweep(on=full, workers=4)
        sweep.roster = tuple("abcd")
        box = sweep.box()
        sweep.queue(box)
        assert len(sweep.tasks(box)) == 1, sweep.picture()
        sweep.until_sealed(box)
        sweep.until_idle(box)
        sweep.assert_honest(box)
        sweep.close()


def test_a_folder_removed_by_hand_ends_no_evidence(sweep: SlurmSweep) -> None:
    held = Held(sweep, alone=True)
    root = sweep.root(held.box)
    root.rename(root.with_name(".moved"))
    try:
        seen = BOX.read(sweep.op(), held.box.native_id, held.box)
        assert not isinstance(seen, Gone), "its jobs run still"
    finally:
        root.with_name(".moved").rename(root)
    held.ends_well(starts=2)


@pytest.fixture(autouse=True)
def _nodes_are_back(cluster: SlurmCluster) -> Iterator[None]:
    yield
    for name, node in cluster.nodes.items():
        node.up() if node.alive else node.restart()
        cluster.run("scontrol", "update", f"nodename={name}", "state=resume")
