"""Workers on a real cluster whose pods and nodes are lost: no cell is lost, and none is two workers' at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sweepstack.extensions.kubernetes import workers
from sweepstack.extensions.kubernetes.address import Address
from sweepstack.extensions.kubernetes.api import Cluster, labels_of
from sweepstack.extensions.kubernetes.onbox.ends import OUT_OF_SERVICE
from sweepstack.extensions.kubernetes.pod_template import SEEN
from sweepstack.onbox.common.errors import NotYetGone
from tests.extensions.kubernetes.laid import Laid
from tests.simulators.kubernetes import KubernetesCluster
from tests.simulators.kubernetes.fixture import fresh_namespace, shared_cluster

READS = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]},
]


@pytest.fixture(scope="module")
def there(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    found = shared_cluster(pytestconfig, tmp_path_factory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(found.kubeconfig))
        yield found


@pytest.fixture
def lay(there: KubernetesCluster, tmp_path: Path) -> Callable[[], Laid]:
    def made() -> Laid:
        namespace = fresh_namespace(there, pod_security="restricted")
        subject = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
        there.allow([subject], READS[:1], namespace)
        there.allow([subject], READS[1:])
        volume = there.volume(namespace)
        return Laid(Cluster(Address(namespace, "tests")), "k8s-0123456789abcdef", volume.folder, namespace, tmp_path)

    return made


def test_a_pod_that_is_deleted_saves_and_another_goes_on(lay: Callable[[], Laid]) -> None:
    box = lay()
    box.add("c0", "c1", hold=True)
    box.top_up()
    box.await_begun("c0", "c1")
    one = next(pod for pod in box.running() if pod["metadata"]["uid"] == box.holder("c0"))
    box.cluster.delete("pod", one, grace=0)  # its object stays: our finalizer holds it
    box.until(lambda: (box.control / "told").exists())
    assert box.cluster.get("pod", one["metadata"]["name"]) is not None
    box.release("c0", "c1")
    box.until(lambda: box.sealed() == {"c0", "c1"})
    box.must_be_well()
    box.until(lambda: not workers.at_work(box.cluster, box.native_id))
    box.top_up(0)
    assert not [pod for pod in box.pods() if SEEN in (pod["metadata"].get("finalizers") or ())]
    box.add("c2")
    box.top_up(1)  # in the same Job, or in the next one, if the cluster has seen the end of that
    box.until(lambda: "c2" in box.sealed())


def test_commands_at_once_bring_no_worker_twice_and_a_late_cell_gets_one(lay: Callable[[], Laid]) -> None:
    box = lay()
    box.add("c0", "c1", hold=True)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: box.top_up(2), range(4)))
    (job,) = box.cluster.list("job", labels_of(box.native_id))
    assert job["spec"]["completions"] == 2
    box.await_begun("c0", "c1")
    box.release("c0", "c1")
    box.until(lambda: sum(one["event"] == "runner-stopped" for one in box.events()) == 2)
    box.add("c2")  # its pods are shown as running for a moment yet
    box.top_up(1)
    box.until(lambda: box.sealed() == {"c0", "c1", "c2"})
    box.must_be_well()


def test_a_worker_that_is_killed_for_memory_frees_its_cell_by_what_its_node_says(lay: Callable[[], Laid]) -> None:
    box = lay()
    (box.control / "die-c0").touch()
    box.add("c0")
    box.top_up(1, workers=1, keep=False, pods={"service_account": "default"})
    box.until(lambda: "c0" in box.sealed())
    (end,) = (one for one in box.events() if one["event"] == "worker-ended")
    proof = end["proof"]  # a pod in the same process space, which the kernel gave anew, proves it as well
    assert "node" in proof or proof.endswith("is gone")
    assert "resources.memory: 300MB" in end["memory"]
    failed = next(one for one in box.events() if one["event"] == "cell-failed")
    assert failed["class"] == "oom"
    box.must_be_well()


def test_a_node_that_is_lost_frees_nothing_until_it_answers_or_a_person_says_that_it_is_off(
    there: KubernetesCluster, lay: Callable[[], Laid]
) -> None:
    box, pods = lay(), {"service_account": "default"}
    box.add("c0", "c1", hold=True)
    box.top_up(pods=pods)
    box.await_begun("c0", "c1")
    node = next(p["spec"]["nodeName"] for p in box.running() if p["metadata"]["uid"] == box.holder("c0"))
    (lost,) = (one for one in there.nodes.values() if one.name == node)
    held = {cell for cell in ("c0", "c1") if box.holder(cell) in {p["metadata"]["uid"] for p in box.running(node)}}
    lost.partition()
    try:
        lost.await_ready(False)
        box.until(lambda: box.told()["lost"] == len(held))
        assert "does not answer" in box.told()["words"]
        assert workers.at_work(box.cluster, box.native_id)
        box.top_up(pods=pods)
        other = next(name for name in there.nodes if name != node)
        box.until(lambda: box.running(other))
        box.release(*({"c0", "c1"} - held))
        box.add("c2")
        box.until(lambda: "c2" in box.sealed() or (box.top_up(pods=pods) and False))
        assert not box.sealed() & held  # which run still, on the other side
        with pytest.raises(NotYetGone, match="does not answer"):
            workers.end_all(box.cluster, box.native_id, 1.0)
    finally:
        lost.heal()
    lost.await_ready()
    box.until(lambda: not workers.at_work(box.cluster, box.native_id))
    box.release("c0", "c1")
    box.top_up(pods=pods)
    box.until(lambda: box.sealed() == {"c0", "c1", "c2"})
    box.must_be_well()


@pytest.mark.proof  # that a lost node frees nothing before it is proved is the test above
def test_the_out_of_service_taint_frees_the_cells_of_a_node_that_is_off(
    there: KubernetesCluster, lay: Callable[[], Laid]
) -> None:
    box, pods = lay(), {"service_account": "default"}
    box.add("c0", hold=True)
    box.top_up(1, workers=1, pods=pods)
    box.await_begun("c0")
    node = next(one for one in there.nodes.values() if box.running(one.name))
    node.power_off()
    try:
        node.await_ready(False)
        box.release("c0")
        box.until(lambda: box.told()["lost"] == 1)
        box.top_up(1, workers=1, pods=pods)
        assert box.sealed() == set()
        node.taint(OUT_OF_SERVICE, "nodeshutdown", "NoExecute")
        box.until(lambda: box.told()["lost"] == 0)
        box.until(lambda: "c0" in box.sealed() or (box.top_up(1, workers=1, pods=pods) and False))
        box.must_be_well()
    finally:
        node.power_on()
        node.await_ready()
        node.untaint(OUT_OF_SERVICE)
