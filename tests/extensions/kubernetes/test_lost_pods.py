"""Workers on a real cluster whose pods and nodes are lost: no cell is lost, and none is two workers' at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from sweepstack.extensions.kubernetes import workers
from sweepstack.extensions.kubernetes.onbox.ends import OUT_OF_SERVICE
from sweepstack.extensions.kubernetes.pod_template import SEEN
from sweepstack.onbox.common.errors import NotYetGone, SweepstackError
from tests.extensions.kubernetes.world import Held, KubeSweep

READS = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
]


@pytest.fixture
def asking(make_sweep: Callable[..., KubeSweep]) -> KubeSweep:
    """Its workers may be on any node, and ask the cluster about each other themselves."""
    sweep = make_sweep(shared=True, pods={"service_account": "default"})
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": sweep.namespace}
    sweep.cluster.allow([subject], READS[:1], sweep.namespace)
    sweep.cluster.allow([subject], READS[1:])
    return sweep


def test_a_pod_that_is_deleted_saves_and_another_goes_on(sweep: KubeSweep) -> None:
    held = Held(sweep, more=0)
    path = sweep.path("pods", sweep.pod_of(held.box, "a")["metadata"]["name"])
    sweep.admin.delete(path, gracePeriodSeconds=0)
    sweep.until(lambda: sweep.noted("told") == ["a"], "the word to it")
    assert sweep.admin.get(path), "our finalizer holds its object"
    held.ends_well(starts=2)
    sweep.until(lambda: not workers.at_work(sweep.platform.cluster, held.box.native_id), "the end of the workers")
    held.status()
    assert not [pod for pod in sweep.pods() if SEEN in (pod["metadata"].get("finalizers") or ())]
    held.roster = (*held.roster, "c")
    held.up()  # in the same Job, or in the next one, if the cluster has seen the end of that
    held.ends_well(starts=2)


def test_commands_at_once_bring_no_worker_twice_and_a_late_cell_gets_one(sweep: KubeSweep) -> None:
    """Its pods wait for the queue."""
    box = sweep.box()
    about = (sweep.platform.cluster, box.native_id, box.account, sweep.scheduler, 2)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: workers.top_up(*about), range(4)))
    (job,) = sweep.admin.list(sweep.path("jobs"))
    assert job["spec"]["completions"] == 2
    held = Held(sweep, more=0, box=box)
    sweep.release()
    sweep.until(lambda: len(sweep.events(box, "runner-stopped")) == 2, "the end of both")
    held.roster = (*held.roster, "c")  # the pods are shown as running for a moment yet
    held.up()
    sweep.until_sealed(box, *held.roster)
    held.ends_well()


def test_a_worker_that_is_killed_for_memory_frees_its_cell_by_what_its_node_says(asking: KubeSweep) -> None:
    """No command looks: the next worker does."""
    asking.roster, asking.job["retries"] = ("a",), 9
    asking.scheduler["workers"] = 1
    eats = asking.control / "eat-a"
    eats.touch()
    box = asking.box()
    asking.queue(box)
    asking.until(lambda: asking.events(box, "cell-failed"), "the cell's failure")
    eats.unlink()
    asking.until_sealed(box)
    end = asking.events(box, "worker-ended")[0]
    proof = end["proof"]  # a pod in the same process space, which the kernel gave anew, proves it as well
    assert "node" in proof or proof.endswith("is gone")
    assert "resources.memory: 300MB" in end["memory"]
    assert asking.events(box, "cell-failed")[0]["class"] == "oom"
    asking.assert_honest(box)


def test_a_node_that_is_lost_frees_nothing_until_it_answers_or_a_person_says_that_it_is_off(asking: KubeSweep) -> None:
    held = Held(asking, more=0)
    box, cluster = held.box, asking.platform.cluster
    place = {cell: asking.pod_of(box, cell)["spec"]["nodeName"] for cell in ("a", "b")}
    node = asking.cluster.nodes[place["a"]]
    lost = {cell for cell, name in place.items() if name == node.name}
    node.partition()
    try:
        node.await_ready(False)
        asking.until(lambda: asking.channel(box).workers()["lost"] == len(lost), "the count of the lost")
        assert "does not answer" in held.status()
        assert workers.at_work(cluster, box.native_id)
        held.roster = (*held.roster, "c")
        asking.let(*(set(place) - lost))

        def goes_on_elsewhere() -> bool:
            with contextlib.suppress(SweepstackError):  # it spoke through a pod there
                held.up()
            return "c" in asking.sealed(box)

        asking.until(goes_on_elsewhere, "a cell on the other node")
        assert {pod["spec"]["nodeName"] for pod in asking.pods()} == set(asking.cluster.nodes)
        assert not asking.sealed(box) & lost, "they run still, on the other side"
        with pytest.raises(NotYetGone, match="does not answer"):
            workers.end_all(cluster, box.native_id, 1.0)
    finally:
        node.heal()
    node.await_ready()
    asking.until(lambda: not workers.at_work(cluster, box.native_id), "the end of the workers")
    held.ends_well(starts=2)


@pytest.mark.proof  # that a lost node frees nothing before it is proved is the test above
def test_the_out_of_service_taint_frees_the_cells_of_a_node_that_is_off(asking: KubeSweep) -> None:
    held = Held(asking, more=0, alone=True)
    box = held.box
    node = asking.cluster.nodes[asking.pod_of(box, "a")["spec"]["nodeName"]]
    node.power_off()
    try:
        node.await_ready(False)
        asking.release()
        asking.until(lambda: asking.channel(box).workers()["lost"] == 1, "the count of the lost")
        held.up()
        assert asking.sealed(box) == set()
        node.taint(OUT_OF_SERVICE, "nodeshutdown", "NoExecute")
        asking.until(lambda: asking.channel(box).workers()["lost"] == 0, "the count of the lost")
        held.ends_well(starts=2)
    finally:
        node.power_on()
        node.await_ready()
        node.untaint(OUT_OF_SERVICE)
