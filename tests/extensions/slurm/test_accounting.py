"""What a site's real accounting database adds: how tasks ended that squeue has forgotten, how much memory they had, and
the limits of accounts and QOS. tests/extensions/slurm/test_slurm_accounting.py reads its texts without a cluster."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from sweepstack.core.resources import BoxState
from tests.extensions.slurm.test_long_runs import failures, until_over
from tests.extensions.slurm.world import SlurmSweep
from tests.simulators.slurm_accounting import ACCOUNT, ENFORCED, AccountedCluster
from tests.simulators.slurm_cluster import until
from tests.simulators.test_machines import Login
from tests.unit.provider.support import QUEUE

pytestmark = pytest.mark.proof  # two minutes; test_slurm_accounting.py and test_slurm_limits.py of tests/unit/platforms
FORGETS = {"MinJobAge": "2"}
ENOUGH = re.compile(r"set `resources\.memory: (\d+)MB`")
ASKED = 200 << 20


@pytest.fixture(scope="module")
def accounted(tmp_path_factory: pytest.TempPathFactory, key: Login) -> Iterator[AccountedCluster]:
    with AccountedCluster.start(
        tmp_path_factory.mktemp("accounted"), authorized_keys=[key.public], nodes=2, settings={**FORGETS, **ENFORCED}
    ) as made:
        yield made


@pytest.fixture
def sweep(make_sweep: Callable[..., SlurmSweep], accounted: AccountedCluster) -> SlurmSweep:
    return make_sweep(on=accounted, workers=1)


def until_forgotten(sweep: SlurmSweep, box: BoxState) -> None:
    until(lambda: sweep.tasks(box) == [], "an empty queue", sweep.picture)


def workers(sweep: SlurmSweep, box: BoxState) -> Mapping[str, Any]:
    return sweep.channel(box).workers()


def ends_for_memory(sweep: SlurmSweep) -> BoxState:
    """A box whose only worker was killed, and forgotten."""
    sweep.roster = ("a",)
    (sweep.control / "eat-a").touch()
    box = sweep.box()
    sweep.queue(box)
    until(lambda: bool(sweep.tasks(box)), "a task", sweep.picture)
    until_forgotten(sweep, box)
    return box


def test_a_task_that_squeue_has_forgotten_is_told_with_the_memory_that_is_enough(sweep: SlurmSweep) -> None:
    box = ends_for_memory(sweep)
    said = workers(sweep, box)
    (task,) = said["tasks"]
    assert (task["state"], task["exit"], task["try"]) == ("FAILED", "0:9", 0), said
    assert task["max_rss"] > ASKED, said
    found = ENOUGH.search(said["words"])
    assert found is not None, said
    assert 1.2 * task["max_rss"] <= int(found[1]) * 10**6 <= 1.2 * task["max_rss"] + 10**8, said


def test_books_that_hang_change_nothing_else(sweep: SlurmSweep, accounted: AccountedCluster) -> None:
    box = ends_for_memory(sweep)
    accounted.database.run("pkill", "-STOP", "-x", "slurmdbd")
    try:
        began = time.monotonic()
        said = workers(sweep, box)
        assert time.monotonic() - began < 30, "sacct itself waits 45 s"
        assert said["tasks"] == []
        assert said["words"].startswith("no worker is there")
    finally:
        accounted.database.run("pkill", "-CONT", "-x", "slurmdbd")
    until(lambda: workers(sweep, box)["tasks"] != [], "accounting again", sweep.picture)


def test_a_cell_that_ends_its_workers_is_told_with_the_memory_that_is_enough(
    sweep: SlurmSweep, request: pytest.FixtureRequest
) -> None:
    """The next worker finds that the one before has ended, once squeue has forgotten it."""
    box = ends_for_memory(sweep)
    (sweep.control / "eat-a").unlink()
    node = sweep.node_of("a")
    sweep.cluster.drain(node)  # its processes would prove the end to a worker there
    request.addfinalizer(lambda: sweep.cluster.resume(node))
    sweep.roster = ("a", "b")
    queue = QUEUE.update(
        sweep.op("Queue"), "q", sweep.queue(box), sweep.queue_inputs(box, *sweep.roster, job={"retries": 1})
    )
    until_over(sweep, box, queue, most=3, retries=1)
    (found,) = failures(sweep, box, "a")
    assert (found["class"], found["final"]) == ("oom", False)
    assert ENOUGH.search(found["reason"]), found
    (ended,) = sweep.events(box, "worker-ended")
    assert "sacct: FAILED, exit code 0:9" in ended["proof"], ended
    sweep.assert_honest(box)


def test_a_task_that_was_cancelled_is_told_until_more_is_submitted(sweep: SlurmSweep) -> None:
    sweep.roster = ("a",)
    sweep.hold("a")
    box = sweep.box()
    queue = sweep.queue(box)
    sweep.until_begun("a")
    (task,) = sweep.live(box)
    sweep.cluster.ask("scontrol", "requeue", task)
    until(lambda: sweep.state_of(box, task) == "PENDING", "a requeue", sweep.picture)
    sweep.cluster.ask("scancel", task)
    until_forgotten(sweep, box)
    (found,) = workers(sweep, box)["tasks"]
    assert (found["name"], found["state"], found["try"]) == (task, "CANCELLED", 1)
    sweep.release()
    until_over(sweep, box, queue, most=2)
    until_forgotten(sweep, box)
    assert workers(sweep, box)["tasks"] == []


LIMITS = (
    (("modify user root set MaxSubmitJobs=3 where account=physics",), {}, 3),
    (("modify user root set MaxSubmitJobs=3 where account=physics",), {"qos": "long"}, 5),
    (("modify account physics set MaxSubmitJobs=3",), {}, 3),
    (("modify qos normal set MaxSubmitJobsPerUser=3",), {}, 2),  # the other account's job has this QOS, too
    (("modify user root set DefaultQOS=long where account=physics",), {}, 5),
)


@pytest.fixture
def limited(accounted: AccountedCluster) -> Iterator[AccountedCluster]:
    """With two more QOS; without any limit again when the test is over."""
    for name, most in (("long", 5), ("debug", 1)):
        if name not in accounted.ask("sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=name").split():
            accounted.manage(f"add qos {name} MaxSubmitJobsPerUser={most}")
            accounted.manage(f"modify user root set QOS+={name} where account={ACCOUNT}")
    yield accounted
    accounted.manage(
        f"modify account {ACCOUNT} set MaxSubmitJobs=-1",
        f"modify user root set MaxSubmitJobs=-1 MaxJobs=-1 DefaultQOS=-1 where account={ACCOUNT}",
        "modify qos normal set MaxSubmitJobsPerUser=-1",
    )


@pytest.mark.parametrize(("limit", "asks", "left"), LIMITS)
def test_so_many_workers_are_submitted_at_once_as_the_limits_leave(
    make_sweep: Callable[..., SlurmSweep],
    limited: AccountedCluster,
    limit: tuple[str, ...],
    asks: Mapping[str, str],
    left: int,
) -> None:
    """In one array: where the limit was not known, sbatch would refuse the first, and smaller ones would be tried. What
    another account runs does not count for an account, and no QOS of the site that is not asked for."""
    limited.manage(*limit)
    sweep = make_sweep(on=limited, workers=7, account=ACCOUNT, **asks)
    other = limited.submit("sleep 600", "--account=root", "--output=/dev/null")
    sweep.roster = tuple("abcdefg")
    sweep.hold(*sweep.roster)
    try:
        assert sweep.platform.refusals(sweep.scheduler) == []
        box = sweep.box()
        queue = sweep.queue(box)
        assert sweep.platform.refusals({**sweep.scheduler, "workers": 8}) == [], "nor where there is no room at all now"
        tasks = [name.split("_") for name in sweep.live(box)]
        assert sorted(task for _, task in tasks) == [str(number) for number in range(left)], sweep.picture()
        assert len({job for job, _ in tasks}) == 1, sweep.picture()
        QUEUE.update(sweep.op("Queue"), "q", queue, sweep.queue_inputs(box, *sweep.roster))
        assert len(sweep.live(box)) == left, sweep.picture()
    finally:
        limited.ask("scancel", other)


def test_workers_over_the_limit_of_jobs_that_run_wait_and_say_why(
    make_sweep: Callable[..., SlurmSweep], limited: AccountedCluster
) -> None:
    limited.manage(f"modify user root set MaxJobs=1 where account={ACCOUNT}")
    sweep = make_sweep(on=limited, workers=2, account=ACCOUNT)
    sweep.hold("a", "b")
    box = sweep.box()
    sweep.queue(box)
    until(lambda: "AssocMaxJobsLimit" in workers(sweep, box)["words"], "a reason", sweep.picture)
    said = workers(sweep, box)
    assert "a limit of the account holds it back" in said["words"], said
    assert said["at_work"] == 2
