"""What the cluster shows of pods: whether one has ended, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweepstack.extensions.kubernetes import pods
from sweepstack.extensions.kubernetes.onbox import ends
from sweepstack.extensions.kubernetes.onbox.ends import ENDED, NO_NODE, OUT_OF_SERVICE, RUNNING, SAW, UNKNOWN
from sweepstack.onbox.common.units import amount_of, enough_memory
from tests.extensions.kubernetes.made import LATE, NODE, NOW, RUNS, ended, node, pod

WAITS = {"waiting": {"reason": "ContainerCreating"}}


def state(of: dict[str, Any], at: Any = None) -> str:
    return ends.judged(of, node() if at is None else at, NOW)[0]


# -- the proof


def test_a_pod_has_ended_once_its_node_says_so_whether_the_node_answers_still_or_not() -> None:
    for of in (pod(ended(0), phase="Succeeded"), pod(ended(137, "OOMKilled"), phase="Failed"), pod(ended(1))):
        for at in (node(), node(ready="Unknown"), NO_NODE, None):
            assert ends.judged(of, at, NOW)[0] == ENDED


@pytest.mark.parametrize("at", [node(ready="Unknown"), NO_NODE], ids=["silent", "gone"])
def test_what_the_cluster_decides_of_a_lost_node_proves_nothing(at: Any) -> None:
    lost = {"Ready": "False", "DisruptionTarget": "True"}
    assert state(pod(RUNS, phase="Failed", manager="kube-controller-manager", conditions=lost), at) == UNKNOWN
    assert state(pod(None, phase="Failed", manager="kube-controller-manager", conditions=lost), at) == UNKNOWN
    assert state(pod(RUNS, deleted=LATE, conditions=lost), at) == UNKNOWN
    assert state(pod(RUNS), at) == UNKNOWN


def test_a_node_that_may_not_be_read_counts_by_what_the_pod_shows() -> None:
    assert ends.judged(pod(RUNS), None, NOW)[0] == RUNNING
    assert ends.judged(pod(RUNS, conditions={"Ready": "False"}), None, NOW)[0] == UNKNOWN
    assert ends.judged(pod(RUNS, conditions={"Ready": "True", "DisruptionTarget": "True"}), None, NOW)[0] == UNKNOWN


def test_a_pod_that_its_node_refused_has_ended_and_one_that_only_the_cluster_failed_has_not() -> None:
    assert state(pod(None, phase="Failed", reason="OutOfmemory")) == ENDED
    assert state(pod(None, phase="Failed", manager="kube-controller-manager")) == UNKNOWN
    two = pod(None, phase="Failed")
    two["metadata"]["managedFields"] *= 2
    assert state(two) == UNKNOWN


def test_a_pod_without_a_node_has_ended_once_it_is_deleted() -> None:
    assert state(pod(None, phase="Pending", at="")) == RUNNING
    assert state(pod(None, phase="Pending", at="", deleted=LATE)) == ENDED
    assert state(pod(None, phase="Failed", at="")) == UNKNOWN


def test_a_persons_word_counts_while_the_node_does_not_answer() -> None:
    down, up = node(ready="Unknown", taints=[OUT_OF_SERVICE]), node(taints=[OUT_OF_SERVICE])
    assert state(pod(RUNS), down) == ENDED
    assert state(pod(RUNS), up) == RUNNING
    said = pod(RUNS)
    said["metadata"]["annotations"][SAW] = "the machine was sold"
    assert state(said, NO_NODE) == ENDED
    assert state(said, node(ready="Unknown")) == ENDED
    assert state(said, node()) == RUNNING
    assert ends.judged(said, None, NOW)[0] == RUNNING


def test_a_container_that_may_be_started_again_has_not_ended() -> None:
    again = pod(ended(1))
    again["spec"]["restartPolicy"] = "OnFailure"
    assert state(again) == RUNNING
    again = pod(ended(1))
    again["spec"]["containers"][0]["restartPolicy"] = "Always"
    assert state(again) == RUNNING
    several = pod(ended(0))
    several["spec"]["containers"].append({"name": "proxy"})
    assert state(several) == RUNNING


def test_what_does_not_read_is_unknown() -> None:
    assert ends.judged({}, None, NOW)[0] == UNKNOWN
    assert ends.judged(pod(RUNS, deleted="yesterday"), node(), NOW)[0] == UNKNOWN


states = st.sampled_from([RUNS, WAITS, {}, None, ended(0), ended(137, "OOMKilled"), ended(75)])
conditions = st.fixed_dictionaries(
    {},
    optional={kind: st.sampled_from(["True", "False"]) for kind in ("Ready", "DisruptionTarget", "PodScheduled")},
)
nodes = st.one_of(
    st.none(),
    st.just(NO_NODE),
    st.builds(
        lambda ready, taints: node(ready=ready, taints=taints),
        st.sampled_from(["True", "False", "Unknown"]),
        st.lists(st.sampled_from([OUT_OF_SERVICE, "node.kubernetes.io/unreachable"]), max_size=2),
    ),
)


@given(
    states,
    st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"]),
    st.sampled_from([NODE, ""]),
    st.sampled_from(["", LATE, "2026-11-29T09:00:00Z"]),
    st.sampled_from(["kubelet", "kube-controller-manager", "kubectl"]),
    conditions,
    nodes,
    st.sampled_from(["", "Evicted", "NodeLost"]),
    st.booleans(),
)
def test_nothing_is_ended_without_the_word_of_its_node_or_of_a_person(
    found: Any, phase: str, at: str, deleted: str, manager: str, known: Any, on: Any, reason: str, saw: bool
) -> None:
    made = pod(found, phase=phase, at=at, deleted=deleted, manager=manager, conditions=known, reason=reason)
    if saw:
        made["metadata"]["annotations"][SAW] = "off"
    said, why = ends.judged(made, on, NOW)
    for late in (-86400, 86400):  # a clock that is wrong proves nothing
        assert (ends.judged(made, on, NOW + late)[0] == ENDED) == (said == ENDED)
    assert why
    assert pods.beginning(made)
    assert pods.ending(made)
    if said != ENDED:
        return
    by_node = "terminated" in (found or {})
    by_its_phase = phase in ("Succeeded", "Failed") and manager == "kubelet" and "running" not in (found or {})
    silent = on is None or not ends.is_ready(on)
    by_person = silent and (saw or (bool(on) and any(one["key"] == OUT_OF_SERVICE for one in on["spec"]["taints"])))
    never_began = not at and deleted and not found
    assert by_node or by_its_phase or by_person or never_began or (not at and deleted and found is None)


# -- memory


def test_a_worker_that_was_killed_for_memory_names_the_line_to_write() -> None:
    said = ends.for_memory(pod(ended(137, "OOMKilled"), phase="Failed"))
    assert "`resources.memory: 100MB`" in said
    assert ends.for_memory(pod(ended(1))) == ""
    assert ends.starved(pod(RUNS, phase="Failed", reason="Evicted", message="The node was low on resource: memory."))
    assert not ends.starved(pod(RUNS, phase="Failed", reason="Evicted", message="low on resource: ephemeral-storage"))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64Mi", 64 << 20),
        ("2G", 2 * 10**9),
        ("1000", 1000),
        ("1.5Gi", 3 << 29),
        ("8Ti", 8 << 40),
        ("x", 0),
        ("5e", 0),
        ("1500m", 1.5),
        ("1073741824000m", 1 << 30),
    ],
)
def test_quantities_are_read(text: str, size: float) -> None:
    assert amount_of(text) == size


@given(st.integers(1, 10**13))
def test_the_line_gives_more_than_what_was_too_little(had: int) -> None:
    number = enough_memory(had).partition(": ")[2]
    assert int(number[:-2]) * {"GB": 10**9, "MB": 10**6}[number[-2:]] >= 1.2 * had


# -- words


def waits(message: str, reason: str = "Unschedulable") -> str:
    return pods.scheduling(reason, message)


def test_why_no_node_takes_a_pod() -> None:
    said = waits(
        "0/3 nodes are available: 1 Insufficient memory, 1 node(s) had untolerated taint {nvidia.com/gpu: present}, "
        "1 node(s) didn't match Pod's node affinity/selector. preemption: 0/3 nodes are available: 3 Preemption is not "
        "helpful for scheduling."
    )
    assert said.startswith("0/3 nodes are available: 1 with too little memory left (wait, or lower resources.memory)")
    assert "1 with the taint nvidia.com/gpu: present (add it to overrides.kubernetes.tolerations" in said
    assert "no node has what resources.gpu or pod.nodeSelector names" in said
    assert "reemption" not in said
    assert "resources.gpu" in waits("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")
    assert "takes no new pod" in waits('0/1 nodes are available: persistentvolumeclaim "c1" is being deleted.')
    assert "see the claim" in waits("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.")
    assert "does not answer" in waits(
        "0/1 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }."
    )
    assert "Kueue" in waits("", "SchedulingGated")
    assert waits("something new") == "something new"


def waiting(reason: str, message: str = "", events: Any = ()) -> str:
    return pods.beginning(pod({"waiting": {"reason": reason, "message": message}}, phase="Pending"), events)


def test_why_a_container_does_not_start() -> None:
    pull = {"reason": "Failed", "message": 'Failed to pull image "box:1": not found'}
    back = {"reason": "BackOff", "message": 'Back-off pulling image "box:1"'}
    said = waiting("ImagePullBackOff", 'Back-off pulling image "box:1"', [pull, back])
    assert "box:1 can't be pulled" in said
    assert "not found" in said
    assert "imagePullSecrets" in said
    assert "runs as root" in waiting(
        "CreateContainerConfigError", "container has runAsNonRoot and image will run as root"
    )
    assert "Python 3.8" in waiting("RunContainerError", 'exec: "python3": executable file not found in $PATH')
    assert "starts on" in waiting("ContainerCreating")
    multi = [{"reason": "FailedAttachVolume", "message": "Multi-Attach error for volume"}]
    assert "another node" in waiting("ContainerCreating", "", multi)
    assert "can't be mounted" in waiting("ContainerCreating", "", [{"reason": "FailedMount", "message": "timed out"}])


def test_how_a_pod_ended() -> None:
    def of(code: int | None, why: str = "", **status: Any) -> str:
        return pods.ending(pod(ended(code, why) if code is not None else None, phase="Failed", **status))

    assert "`resources.memory: 100MB`" in of(137, "OOMKilled")
    assert "nothing was left" in pods.ending(pod(ended(0), phase="Succeeded"))
    assert "goes on with them" in of(75)
    assert "outside its volume" in of(137, reason="Evicted", message="Pod ephemeral local storage usage exceeds")
    assert "ran out of disk" in of(None, reason="Evicted", message="The node had condition: [DiskPressure].")
    assert "ran out of memory" in of(None, reason="Evicted", message="The node was low on resource: memory.")
    assert "Python 3.8" in of(128, "StartError", message="")
    assert "log says why" in of(6)
    target = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "x"}]
    preempted = pod(ended(75), phase="Failed")
    preempted["status"]["conditions"] = target
    assert "higher priority" in pods.ending(preempted)


def test_why_a_job_gets_no_pod() -> None:
    def of(message: str, *later: str) -> str:
        events = [{"reason": "FailedCreate", "message": message}, *({"reason": one} for one in later)]
        return pods.job_words(events)

    quota = 'Error creating: pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2'
    assert of(quota).startswith("the namespace's quota is used up (exceeded quota: q, requested: pods=1")
    assert of(quota, "SuccessfulCreate") == ""
    assert "Pod Security" in of('pods "x" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true')
    assert "service_account" in of(
        'pods "x" is forbidden: error looking up service account ml/x: serviceaccount not found'
    )
    assert "priority_class" in of('pods "x" is forbidden: no PriorityClass with name high was found')
    for lacks in ("limits.cpu", "limits.memory", "requests.memory"):
        assert "LimitRange" in of(f'pods "x" is forbidden: failed quota: q: must specify {lacks}')
    assert "being deleted" in of('pods "x" is forbidden: namespace a because it is being terminated')


def test_why_a_claim_has_no_volume() -> None:
    def of(reason: str, message: str = "", phase: str = "Pending") -> str:
        claim = {"metadata": {"name": "c"}, "status": {"phase": phase}}
        return pods.claim_words(claim, [{"reason": reason, "message": message}] if reason else [])

    assert of("WaitForFirstConsumer") == of("", phase="Bound") == ""
    assert "give this box up and write another storage_class" in of(
        "ProvisioningFailed", 'storageclass.storage.k8s.io "fast" not found'
    )
    none = "no persistent volumes available for this claim and no storage class is set"
    assert "default one" in of("FailedBinding", none)
    assert "lost" in of("", phase="Lost")


def test_a_storage_class_says_what_becomes_of_the_bytes_before_there_is_a_volume() -> None:
    def of(**more: str) -> str:
        return pods.class_words({"metadata": {"name": "fast"}, "provisioner": "x", **more})

    assert "fast has the reclaim policy Delete: the end of the claim ends its bytes" in of()  # as the server reads it
    assert "Retain: its bytes stay" in of(reclaimPolicy="Retain")
    assert "made at once (Immediate)" in of(volumeBindingMode="Immediate")
    assert "where and when its first pod begins" in of(volumeBindingMode="WaitForFirstConsumer")
    said = of(provisioner="kubernetes.io/no-provisioner", reclaimPolicy="Delete")
    assert "no provisioner" in said
    assert "not proved" in said
    assert "ends its bytes" not in said
