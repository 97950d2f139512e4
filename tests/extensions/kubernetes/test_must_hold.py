"""What happens to a cluster and its pods: no cell is lost, none runs twice at once, and each is told in one line."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from sweepstack.core.records import Abandonment
from sweepstack.core.resources import BoxState
from sweepstack.extensions.kubernetes import kept
from sweepstack.extensions.kubernetes.onbox.ends import OUT_OF_SERVICE
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import SweepstackError, TeardownRefused
from sweepstack.onbox.host.platform import Phase
from sweepstack.provider.resources.base import Gone
from tests.extensions.kubernetes.world import SECONDS, Held, KubeSweep, forget_pods
from tests.simulators.kubernetes import KubernetesCluster
from tests.simulators.kubernetes.admin import Refused
from tests.simulators.kubernetes.node import Node
from tests.unit.provider.support import BOX, QUEUE, approval_for, approved, still_creating

proof = pytest.mark.proof
LOOKS_SECONDS = 5.0
"""In so long a worker has asked about the others, again and again."""
VERBS = ("get", "list", "create", "patch", "delete")


def one_line(work: Callable[[], object], *words: str) -> str:
    """It is refused, in one line that has these words."""
    with pytest.raises(SweepstackError) as error:
        work()
    said = str(error.value)
    assert "\n" not in said.strip(), said
    assert all(word in said for word in words), said
    return said


def done_or_told(work: Callable[[], object]) -> None:
    """It is done, or refused in one line."""
    said = ""
    try:
        work()
    except SweepstackError as error:
        said = str(error)
    assert "\n" not in said.strip(), said


def refused(held: Held) -> None:
    """A destroy is refused, and ends nothing."""
    before = {pod["metadata"]["uid"] for pod in held.sweep.pods() if "deletionTimestamp" not in pod["metadata"]}
    with pytest.raises(TeardownRefused):
        BOX.delete(held.sweep.op(), held.box.native_id, held.box)
    after = {pod["metadata"]["uid"] for pod in held.sweep.pods() if "deletionTimestamp" not in pod["metadata"]}
    assert before <= after


@proof
def test_pods_that_are_deleted_evicted_or_killed_by_force_are_followed_by_others(sweep: KubeSweep) -> None:
    held = Held(sweep, more=0)
    box = held.box
    uids = {cell: sweep.worker_of(box, cell) for cell in ("a", "b")}
    first, second = (sweep.pod_of(box, cell)["metadata"]["name"] for cell in ("a", "b"))
    sweep.admin.delete(sweep.path("pods", first), gracePeriodSeconds=0)
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": second}}
    sweep.admin.make(f"{sweep.path('pods', second)}/eviction", eviction)
    sweep.until(lambda: set(sweep.noted("told")) == {"a", "b"}, "the words to both")
    refused(held)
    held.ends_well(starts=2)
    assert set(sweep.noted("resumed")) == {"a", "b"}, "from their checkpoints"
    assert all(sweep.worker_of(box, cell) != uid for cell, uid in uids.items())
    held.ended()


@proof
def test_the_api_server_is_gone_for_a_while_and_has_forgotten_the_past(
    cluster: KubernetesCluster, sweep: KubeSweep
) -> None:
    held = Held(sweep)
    cluster.api.stop()
    try:
        one_line(held.up, "the cluster tests", "can't be reached")
        one_line(held.status, "the cluster tests", "can't be reached")
        with pytest.raises(TeardownRefused, match="can't be reached"):
            BOX.delete(sweep.op(), held.box.native_id, held.box)
        sweep.let("a")
        sweep.until_sealed(held.box, "a", "c0")  # its worker goes on
    finally:
        cluster.api.forget()
        for node in cluster.nodes.values():
            node.await_ready()
    held.up()
    held.ends_well(starts=2)  # a node that is late to say that it is back loses its pods, once
    held.ended()


def node_of(held: Held, cell: str) -> Node:
    return held.sweep.cluster.nodes[held.sweep.pod_of(held.box, cell)["spec"]["nodeName"]]


def must_not_begin(held: Held, *cells: str) -> None:
    """For longer than workers take to ask about each other, these cells are not begun anew."""
    before, ends = held.sweep.starts(), time.monotonic() + LOOKS_SECONDS
    while time.monotonic() < ends:
        assert {cell: held.sweep.starts()[cell] for cell in cells} == {cell: before[cell] for cell in cells}
        time.sleep(0.2)


@proof
def test_a_kubelet_that_is_killed_and_started_again_ends_no_cell(sweep: KubeSweep) -> None:
    held = Held(sweep, more=0, alone=True)
    node = node_of(held, "a")
    node.kubelet.kill()
    try:
        assert "1 workers run" in held.status()
        done_or_told(held.up)
    finally:
        node.kubelet.start()
    node.await_ready()
    held.ends_well(starts=2)
    held.ended()


@proof
def test_a_node_behind_a_partition_keeps_its_cells(sweep: KubeSweep) -> None:
    held = Held(sweep, more=1)
    node = node_of(held, "a")
    node.partition()
    try:
        node.await_ready(False)
        sweep.until(lambda: "does not answer" in held.status(), "words")
        done_or_told(held.up)
        must_not_begin(held, "a", "b")
        refused(held)
    finally:
        node.heal()
    node.await_ready()
    held.ends_well(starts=2)
    held.ended()


@proof
@pytest.mark.parametrize("how", ["taint", "back"])
def test_a_node_that_is_off_keeps_its_cell_until_it_is_proved(sweep: KubeSweep, how: str) -> None:
    held = Held(sweep, more=0, alone=True)
    node = node_of(held, "a")
    node.power_off()
    try:
        node.await_ready(False)
        sweep.release()
        sweep.until(lambda: OUT_OF_SERVICE in held.status(), "what a person can do")
        must_not_begin(held, "a")
        if how == "taint":
            node.taint(OUT_OF_SERVICE, "nodeshutdown", "NoExecute")
            held.ends_well(starts=2)
    finally:
        node.power_on()
        node.await_ready()
        node.untaint(OUT_OF_SERVICE)
    held.ends_well(starts=2)
    assert sweep.noted("resumed") == ["a"], "from its checkpoint"
    held.ended()


@proof
def test_a_node_that_is_deleted_while_its_pod_runs_frees_nothing_until_it_is_back(sweep: KubeSweep) -> None:
    """The cluster itself sets such a pod's last phase, and its processes go on behind the partition."""
    held = Held(sweep, more=0, alone=True)
    node = node_of(held, "a")
    node.partition()
    try:
        node.await_ready(False)
        sweep.admin.delete(f"/api/v1/nodes/{node.name}")
        sweep.until(lambda: "is not in the cluster any more" in held.status(), "words")
        done_or_told(held.up)
        must_not_begin(held, "a")
        refused(held)
    finally:
        node.heal()
        node.kubelet.kill()  # a kubelet makes its node anew when it starts
        node.kubelet.start()
        node.await_ready()
    held.ends_well(starts=2)
    held.ended()


@proof
def test_a_drain_ends_once_a_command_of_ours_has_read_the_ends_or_where_it_is_told_not_to_wait(
    sweep: KubeSweep,
) -> None:
    held = Held(sweep, more=0, alone=True)
    node = node_of(held, "a")

    def drain(*words: str) -> subprocess.CompletedProcess[str]:
        argv = ["kubectl", "--kubeconfig", str(sweep.cluster.kubeconfig), "drain", node.name, *words]
        argv += ["--delete-emptydir-data", "--ignore-daemonsets", "--force"]
        return subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS, check=False)

    try:
        late = drain("--timeout=10s")
        assert (late.returncode, sweep.noted("told")) == (1, ["a"]), late
        assert drain("--skip-wait-for-delete-timeout=1", "--timeout=120s").returncode == 0
        held.status()
        assert drain("--timeout=60s").returncode == 0
        assert not [pod for pod in sweep.pods() if pod["spec"].get("nodeName") == node.name]
    finally:
        node.cordon(False)
    held.ends_well(starts=2)
    held.ended()


SKEW = """from __future__ import annotations

import time
_time, _nanoseconds = time.time, time.time_ns
time.time = lambda: _time() + {seconds}
time.time_ns = lambda: _nanoseconds() + {seconds} * 10**9
"""
"""What a node's clock that is wrong is to a worker: its own process alone has it."""


@proof
def test_workers_whose_clocks_are_hours_apart_lose_no_cell_and_run_none_twice(sweep: KubeSweep) -> None:
    held = Held(sweep, more=2)
    (program,) = sweep.root(held.box).glob("data/sweep/runner-*/runner.py")
    right = program.read_text()
    for cell, hours in (("a", 5), ("b", -5)):
        begun = sweep.starts()[cell]
        program.write_text(right.replace("from __future__ import annotations\n", SKEW.format(seconds=hours * 3600), 1))
        sweep.admin.delete(sweep.path("pods", sweep.pod_of(held.box, cell)["metadata"]["name"]))
        sweep.until(lambda cell=cell, begun=begun: sweep.starts()[cell] > begun, f"{cell} in the next pod")
        (told,) = {entry["time"] for entry in sweep.events(held.box, "cell-started") if entry["cell"] == cell} - {
            entry["time"] for entry in sweep.events(held.box, "cell-started")[:2]
        }
        apart = (datetime.fromisoformat(told) - datetime.now(UTC)).total_seconds() / 3600
        assert abs(apart - hours) < 1, "its clock was not what it should be"
    must_not_begin(held, "a", "b")
    refused(held)
    held.ends_well(starts=2)
    held.ended()


@proof
def test_cells_that_are_killed_for_memory_are_tried_as_often_as_the_job_says(sweep: KubeSweep) -> None:
    sweep.job["retries"] = 1
    sweep.roster, sweep.scheduler["workers"] = ("a",), 1
    (sweep.control / "eat-a").touch()
    box = sweep.box()
    queue = sweep.queue(box)

    def failed() -> bool:
        told = sweep.channel(box).workers()
        if not told["at_work"]:
            QUEUE.update(sweep.op("Queue"), "q", queue, sweep.queue_inputs(box))
        return len(sweep.events(box, "cell-failed")) == 2

    sweep.until(failed, "second failure")
    assert {entry["class"] for entry in sweep.events(box, "cell-failed")} == {"oom"}
    assert "set `resources.memory: 300MB`" in sweep.channel(box).workers()["words"]
    assert sweep.starts() == {"a": 2}
    sweep.assert_honest(box)


@pytest.mark.parametrize(
    "how", ["Background", pytest.param("Foreground", marks=proof), pytest.param("Orphan", marks=proof)]
)
def test_a_job_that_is_deleted_by_hand_is_followed_by_another(sweep: KubeSweep, how: str) -> None:
    held = Held(sweep)
    path = sweep.path("jobs", f"{held.box.native_id}-1")
    sweep.admin.delete(path, propagationPolicy=how)
    if how == "Foreground":
        sweep.until(lambda: set(sweep.noted("told")) == {"a", "b"}, "the words to both")
    else:
        sweep.until(lambda: sweep.admin.get(path)["metadata"].get("deletionTimestamp"), "the delete")
    held.up()
    refused(held)
    held.ends_well(starts=2 if how == "Foreground" else 1)
    held.ended()


# -- who may do what


ALL = [
    {"apiGroups": [""], "resources": ["persistentvolumeclaims", "pods"], "verbs": [*VERBS]},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": [*VERBS]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
]
"""What the preview asks for."""


def test_a_preview_names_each_right_that_is_missing(sweep: KubeSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    user = sweep.cluster.user(f"ann-{sweep.namespace}", ALL, namespace=sweep.namespace)
    monkeypatch.setenv("KUBECONFIG", str(user))
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{sweep.namespace}/roles"
    (role,) = sweep.admin.list(roles)
    at, platform = f"{roles}/{role['metadata']['name']}", sweep.platform
    sweep.until(lambda: "you may not" not in str(platform.refusals(sweep.scheduler)), "the rights")
    assert platform.refusals(sweep.scheduler) == []
    for number, rule in enumerate(ALL):
        less = [{**rule, "verbs": rule["verbs"][1:]}] if rule["verbs"][1:] else []
        sweep.admin.patch(at, {"rules": [*ALL[:number], *less, *ALL[number + 1 :]]})
        wanted = [f"{rule['verbs'][0]} {resource}" for resource in rule["resources"]]

        def told(wanted: list[str] = wanted) -> bool:
            said = "\n".join(platform.refusals(sweep.scheduler))
            return said.count("\n") == 0 and all(word in said for word in wanted)

        sweep.until(told, f"words on {wanted}")


@proof
def test_a_token_that_ends_in_the_middle_is_told_and_the_next_one_goes_on(
    sweep: KubeSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its user has the rights that the preview asks for, and no others."""
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": sweep.namespace}
    sweep.cluster.allow([subject], ALL, sweep.namespace)
    config = sweep.folder / "kubeconfig"

    def login(number: int) -> None:
        secret = sweep.admin.make(sweep.path("secrets"), {"metadata": {"name": f"bound-{number}"}})
        bound = {"apiVersion": "v1", "kind": "Secret", "name": f"bound-{number}", "uid": secret["metadata"]["uid"]}
        said = sweep.admin.make(
            f"{sweep.path('serviceaccounts', 'default')}/token", {"spec": {"boundObjectRef": bound}}
        )
        known = json.loads(sweep.cluster.kubeconfig.read_text())
        known["users"][0]["user"] = {"token": said["status"]["token"]}
        config.write_text(json.dumps(known))

    login(1)
    monkeypatch.setenv("KUBECONFIG", str(config))
    held = Held(sweep)
    sweep.admin.delete(sweep.path("secrets", "bound-1"))

    def is_over() -> bool:
        try:
            held.status()
        except SweepstackError:
            return True
        return False

    sweep.until(is_over, "end of the token")
    for work in (held.up, held.status):
        assert "log in anew" in one_line(work, "the cluster tests", "Unauthorized")
    with pytest.raises(TeardownRefused, match="log in anew"):
        BOX.delete(sweep.op(), held.box.native_id, held.box)
    sweep.let("a")
    sweep.until_sealed(held.box, "a", "c0")
    login(2)
    held.up()
    held.ends_well()
    held.ended()


# -- what does not begin


def test_what_no_node_can_run_is_refused_by_the_preview(sweep: KubeSweep) -> None:
    def said(**more: Any) -> str:
        (found,) = sweep.platform.refusals({**sweep.scheduler, **more})
        return found

    assert "resources.cpu: a worker asks for 100" in said(cpu=100)
    assert "resources.gpu: the cluster has no H100" in said(gpus=1, gpu_names=["H100"])
    hard = {"metadata": {"name": "few"}, "spec": {"hard": {"limits.memory": "100Mi"}}}
    sweep.admin.make(sweep.path("resourcequotas"), hard)
    sweep.until(lambda: sweep.admin.get(sweep.path("resourcequotas", "few"))["status"].get("hard"), "the quota")
    assert "the namespace's quota is used up" in said()


def quota_of(sweep: KubeSweep, **hard: str) -> str:
    """A quota of the namespace; its path."""
    path = sweep.path("resourcequotas", "few")
    few = {"metadata": {"name": "few"}, "spec": {"hard": {name.replace("_", "."): most for name, most in hard.items()}}}
    sweep.admin.make(sweep.path("resourcequotas"), few)
    sweep.until(lambda: sweep.admin.get(path)["status"].get("used"), "the quota")
    return path


@proof
def test_a_new_box_that_the_quota_leaves_no_pod_says_so_in_its_time_and_begins_once_it_is_larger(
    sweep: KubeSweep,
) -> None:
    """Neither a first worker nor a reader is let in."""
    box, quota = sweep.box(), quota_of(sweep, pods="0")
    begun = time.monotonic()
    assert "quota is used up" in not_ready(sweep, box, 40)
    assert time.monotonic() - begun < 40
    assert not sweep.asked_for(), "it was taken back"
    sweep.admin.delete(quota)
    sweep.queue(box)
    sweep.until_sealed(box)
    sweep.assert_honest(box)


@proof
def test_a_quota_that_is_used_up_is_told_and_once_it_is_larger_all_goes_on(sweep: KubeSweep) -> None:
    """It lets one of two workers in, which does not wait for the other."""
    sweep.roster = ("a", "b", "c")
    sweep.hold("a")
    box, quota = sweep.box(), quota_of(sweep, pods="1")
    queue = sweep.queue(box)
    sweep.until(lambda: "quota is used up" in sweep.channel(box).workers()["words"], "words")
    sweep.until_begun("a")
    assert len(sweep.pods()) == 1
    sweep.admin.delete(quota)
    QUEUE.update(sweep.op("Queue"), "q", queue, sweep.queue_inputs(box))
    sweep.until_sealed(box, "b", "c")  # by the other one: `a` is held
    sweep.let("a")
    sweep.until_sealed(box)
    sweep.assert_honest(box)
    assert max(sweep.starts().values()) == 1


@proof
def test_a_box_is_read_where_a_quota_lets_no_pod_in_that_does_not_say_what_it_takes(sweep: KubeSweep) -> None:
    quota_of(sweep, limits_memory="2Gi", requests_memory="2Gi", requests_cpu="2")
    held = Held(sweep, more=0)
    held.ends_well(starts=1)
    sweep.until(lambda: not sweep.running(), "the end of the workers")
    forget_pods()
    assert sweep.channel(held.box).run(["true"], timeout=60).returncode == 0
    (reader,) = sweep.pods("reader")
    assert reader["spec"]["containers"][0]["resources"]["limits"]["memory"] == "512Mi"
    held.ended()


@proof
def test_workers_that_no_node_takes_are_told_and_a_mended_stack_leads_on(sweep: KubeSweep) -> None:
    box = sweep.box()
    good, sweep.scheduler = sweep.scheduler, {**sweep.scheduler, "cpu": 100}
    queue = sweep.queue(box)
    sweep.until(
        lambda: "Insufficient" not in (words := sweep.channel(box).workers()["words"]) and "too little cpu" in words,
        "words",
    )
    sweep.scheduler = {**good, "gpus": 1, "gpu_names": ["H100"]}
    queue = QUEUE.update(sweep.op("Queue"), "q", queue, sweep.queue_inputs(box))
    sweep.until(lambda: "resources.gpu" in sweep.channel(box).workers()["words"], "words")
    sweep.scheduler = {**good, "pods": {"image": "localhost/not-there:1"}}
    queue = QUEUE.update(sweep.op("Queue"), "q", queue, sweep.queue_inputs(box))
    sweep.until(lambda: "localhost/not-there:1 can't be pulled" in sweep.channel(box).workers()["words"], "words")
    sweep.scheduler = good
    QUEUE.update(sweep.op("Queue"), "q", queue, sweep.queue_inputs(box))
    sweep.until_sealed(box)
    sweep.assert_honest(box)


def test_a_box_without_a_volume_says_so_in_its_time_and_begins_once_there_is_one(
    make_sweep: Callable[..., KubeSweep],
) -> None:
    sweep = make_sweep(volume=False)
    begun, box = time.monotonic(), sweep.box()
    said = not_ready(sweep, box, 4)
    assert time.monotonic() - begun < 60
    assert "gets no volume" in said
    assert not sweep.asked_for(), "it was taken back"
    sweep.place_volume()
    sweep.queue(box)
    sweep.until_sealed(box)


def not_ready(sweep: KubeSweep, box: BoxState, seconds: float) -> str:
    """Why its box can't be reached in so long, as its queue says it."""
    op = sweep.op("Queue", timeout=seconds)
    return " ".join(still_creating(lambda: QUEUE.create(op, sweep.queue_inputs(box))).reasons)


@proof
def test_a_box_whose_image_can_t_be_pulled_says_so_and_a_mended_stack_leads_on(sweep: KubeSweep) -> None:
    box, good = sweep.box(pods={"image": "localhost/not-there:1"}), sweep.scheduler
    sweep.scheduler = {**good, "pods": {"image": "localhost/not-there:1"}}
    assert "localhost/not-there:1 can't be pulled" in not_ready(sweep, box, 40)
    sweep.scheduler = good
    box = BOX.update(sweep.op(), box.native_id, box, sweep.box_inputs())  # as an `up` does first
    sweep.queue(box)
    sweep.until_sealed(box)


# -- ways around the gate


@proof
def test_what_a_person_deletes_by_hand_is_refused_or_held(sweep: KubeSweep) -> None:
    held = Held(sweep)
    admin, claim = sweep.admin, sweep.path("persistentvolumeclaims", held.box.native_id)
    ways: list[Callable[[], object]] = [
        lambda: admin.delete(claim, gracePeriodSeconds=0, propagationPolicy="Background"),
        lambda: admin.ask("DELETE", sweep.path("persistentvolumeclaims")),
        lambda: admin.patch(claim, {"metadata": {"finalizers": None}}),
    ]
    sweep.until(lambda: refusal(ways[2]) is not None, "the policy")
    for way in ways:
        assert "results were not cleared" in (refusal(way) or "")
    assert "deletionTimestamp" not in admin.get(claim)["metadata"]
    job = sweep.path("jobs", f"{held.box.native_id}-1")
    admin.delete(job, gracePeriodSeconds=0, propagationPolicy="Background")
    admin.patch(job, {"metadata": {"finalizers": None}})
    admin.ask("DELETE", sweep.path("pods"), params={"gracePeriodSeconds": "0"})
    sweep.until(lambda: set(sweep.noted("told")) == {"a", "b"}, "the words to both")
    held.up()
    held.ends_well(starts=2)
    held.ended()


def refusal(way: Callable[[], object]) -> str | None:
    """What the API server says against it; None where it did that."""
    try:
        way()
    except Refused as error:
        return str(error)
    return None


def delete_claim(sweep: KubeSweep, box: BoxState, *, finalizers: bool = True, name: str = "") -> None:
    """An admin takes the policy's binding away, then the claim, or that of this `name`. `finalizers`: False where these
    go, too."""
    admin, claim = sweep.admin, sweep.path("persistentvolumeclaims", name or box.native_id)
    admin.delete("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/sweepstack-hold")
    sweep.until(lambda: refusal(lambda: admin.delete(claim)) is None, "the delete")
    if not finalizers:
        admin.patch(claim, {"metadata": {"finalizers": None}})
        sweep.until(lambda: not admin.get(claim), "end of the claim")


@proof
@pytest.mark.parametrize("how", ["deleted", "finalizers away"])
def test_a_claim_that_is_deleted_without_a_policy_while_its_pods_run(sweep: KubeSweep, how: str) -> None:
    """Where the finalizers went, too, the claim is gone at once. Its pods write on, and its volume stays as its reclaim
    policy says."""
    held = Held(sweep)
    delete_claim(sweep, held.box, finalizers=how == "deleted")
    if how == "deleted":
        assert not isinstance(BOX.read(sweep.op(), held.box.native_id, held.box), Gone)
        one_line(held.up, "its claim was deleted")
        refused(held)
        sweep.release()
        sweep.until_sealed(held.box)
        held.ended()
        return
    assert not isinstance(BOX.read(sweep.op(), held.box.native_id, held.box), Gone), "its pods are there"
    one_line(held.up, "has no claim")
    refused(held)
    sweep.release()
    sweep.until_sealed(held.box)
    sweep.assert_honest(held.box)
    held.ended()


def done_before(sweep: KubeSweep, record: bool = True) -> BoxState:
    """A box whose worker has ended: no pod has its claim. `record`: False where an older version made its Job."""
    sweep.roster, sweep.scheduler["workers"] = ("a",), 1
    box = sweep.box()
    sweep.queue(box)
    sweep.until_sealed(box)
    sweep.until(lambda: not sweep.channel(box).lock_held(box_layout.RUNNER_LOCK), "end of the worker")
    (job,) = sweep.admin.list(sweep.path("jobs"))
    if not record:
        marks = dict.fromkeys(job["metadata"]["annotations"])
        sweep.admin.patch(sweep.path("jobs", job["metadata"]["name"]), {"metadata": {"annotations": marks}})
    for pod in sweep.pods("reader"):
        sweep.admin.delete(sweep.path("pods", pod["metadata"]["name"]), gracePeriodSeconds=0)
    sweep.until(lambda: not sweep.pods("reader"), "end of the reader")
    forget_pods()  # its process may answer for a moment yet
    return box


def ends_well(sweep: KubeSweep, box: BoxState) -> None:
    """It is verified and ended, and no look afterwards takes its volume back from that."""
    sweep.ended(box)
    assert isinstance(BOX.read(sweep.op(), box.native_id, box), Gone)
    assert (sweep.platform.list_tagged(""), sweep.left()) == ([], [])


@proof
def test_a_job_that_a_person_lets_go_on_after_a_stop_is_seen_and_ended_again(sweep: KubeSweep) -> None:
    held = Held(sweep, alone=True)
    platform, about = sweep.platform, (held.box.native_id, held.box.account)

    def let_go_on() -> None:
        job = sweep.path("jobs", f"{held.box.native_id}-1")
        sweep.admin.patch(job, {"spec": {"suspend": False}})
        sweep.until(sweep.running, "its pod")

    platform.stop(*about)
    let_go_on()
    found = platform.get(*about)
    assert (found.phase, "go on after the stop" in found.note) == (Phase.RUNNING, True)
    platform.stop(*about)
    assert (platform.get(*about).phase, sweep.running()) == (Phase.STOPPED, [])
    let_go_on()
    lost = (Abandonment(box=held.box.name, native_id=held.box.native_id, reason="no more use"),)
    BOX.delete(sweep.op(), held.box.native_id, approved(held.box, approval_for(held.box, abandon=lost)))
    assert sweep.left() == []


@proof
@pytest.mark.parametrize("record", [True, False], ids=["", "an older version's Job"])
def test_a_claim_that_is_gone_once_its_worker_had_ended_is_read_by_another_one(sweep: KubeSweep, record: bool) -> None:
    """By a volume that the cluster would end, too: the first look keeps it."""
    volume = f"/api/v1/persistentvolumes/{sweep.namespace}"
    sweep.admin.patch(volume, {"spec": {"persistentVolumeReclaimPolicy": "Delete"}})
    box = done_before(sweep, record)
    for name in (box.native_id, kept.name_of(box.native_id)):  # and the one that took its place
        delete_claim(sweep, box, finalizers=False, name=name)
        assert "deleted by hand" in sweep.platform.get(box.native_id, box.account).note, "a look that only reads"
        assert not isinstance(BOX.read(sweep.op(), box.native_id, box), Gone)
    assert sweep.admin.get(volume)["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    (listed,) = sweep.platform.list_tagged("")
    assert (listed.native_id, listed.tag) == (box.native_id, box.tag if record else "")
    assert sweep.platform.find_by_tag(box.tag) == listed == sweep.platform.get(box.native_id, box.account)
    with pytest.raises(TeardownRefused):
        BOX.delete(sweep.op(), box.native_id, box)
    ends_well(sweep, box)
    assert sweep.admin.get(volume)["spec"]["persistentVolumeReclaimPolicy"] == "Delete"


@proof
def test_a_look_that_was_killed_with_the_volume_set_aside_is_gone_on_with_by_the_next_one(sweep: KubeSweep) -> None:
    box = done_before(sweep)
    delete_claim(sweep, box, finalizers=False)
    kept._released(sweep.platform.cluster, sweep.namespace, kept.name_of(box.native_id))
    ends_well(sweep, box)


@proof
def test_a_claim_that_is_gone_says_what_is_missing_to_read_it_and_goes_on_once_that_is_there(
    sweep: KubeSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = sweep.cluster.user(f"ann-{sweep.namespace}", ALL, namespace=sweep.namespace)
    box = done_before(sweep)
    delete_claim(sweep, box, finalizers=False)
    monkeypatch.setenv("KUBECONFIG", str(user))
    channel = sweep.channel(box)
    said = "list and patch persistentvolumes). Next: the same command by a user who may"
    one_line(lambda: channel.read(box_layout.JOURNAL), "no claim of this name", "our hold", said)
    assert said in channel.workers()["words"]
    with pytest.raises(TeardownRefused):
        BOX.delete(sweep.op(), box.native_id, box)
    assert sweep.asked_for(), "the Job is there"
    monkeypatch.setenv("KUBECONFIG", str(sweep.cluster.kubeconfig))
    ends_well(sweep, box)


@proof
def test_a_claim_that_is_gone_with_its_volume_says_so_and_is_given_up(sweep: KubeSweep) -> None:
    box = done_before(sweep)
    delete_claim(sweep, box, finalizers=False)
    volume = f"/api/v1/persistentvolumes/{sweep.namespace}"
    sweep.admin.delete(volume)
    sweep.until(lambda: not sweep.admin.get(volume), "end of the volume")
    channel = sweep.channel(box)
    said = f"what was on it is gone, unless a person gave it to another claim. Next: sweepctl give-up data/{box.name} "
    one_line(lambda: channel.read(box_layout.JOURNAL), "no claim of this name", said)
    with pytest.raises(TeardownRefused):
        BOX.delete(sweep.op(), box.native_id, box)
    assert sweep.asked_for()
    given_up = approval_for(
        box, abandon=(Abandonment(box=box.name, native_id=box.native_id, reason="its volume is gone"),)
    )
    BOX.delete(sweep.op(), box.native_id, approved(box, given_up))
    assert sweep.left() == []


@proof  # make test has the way through one command: tests/rented/test_kube.py
@pytest.mark.parametrize("finalizers", [True, False], ids=["", "finalizers away"])
def test_a_look_that_comes_late_leaves_a_deleted_claim_s_volume_where_it_is(sweep: KubeSweep, finalizers: bool) -> None:
    """Box, queue and gate look at once. To reserve it again would take it from the claim that has it by then, which is
    lost by that for good."""
    box = sweep.box() if finalizers else done_before(sweep)
    assert sweep.channel(box).run(["true"], timeout=60).returncode == 0, "of a new box, too, without a queue"
    admin, cluster = sweep.admin, sweep.platform.cluster
    volume = admin.get(sweep.path("persistentvolumeclaims", box.native_id))["spec"]["volumeName"]
    delete_claim(sweep, box, finalizers=finalizers)

    def look(_: int) -> str:
        return kept.claim_of(cluster, box.native_id, kept.saved(cluster, box.native_id))[1]

    with ThreadPoolExecutor(8) as looks:
        (found,) = set(looks.map(look, range(16)))
    path = sweep.path("persistentvolumeclaims", found)
    sweep.until(lambda: admin.get(path)["status"]["phase"] == "Bound", "the volume of the new claim")
    kept._released(cluster, volume, found)
    phases = set()
    for _ in range(10):
        phases.add(admin.get(path)["status"]["phase"])
        time.sleep(0.3)
    assert phases == {"Bound"}
