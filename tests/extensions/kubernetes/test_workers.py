"""Workers are brought, raised, taken back and ended by what the cluster shows; a small store stands in for its API
server here, where only our own decisions are asked about. What a real one does is played in `test_on_a_cluster`."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from sweepstack.extensions.kubernetes import jobs, pod_template, power, standing, storage, workers, workers_asked
from sweepstack.extensions.kubernetes.api import PREFIX, Exists
from sweepstack.extensions.kubernetes.onbox.worker_state import RECORDS
from sweepstack.extensions.kubernetes.pod_template import READER, SEEN, WORKER, PodRequest
from sweepstack.onbox.common.errors import NotAuthorized, NotYetGone, RequestRefused, Unreachable
from sweepstack.onbox.host.platform import Phase, Wait
from tests.extensions.kubernetes.made import BOX, LATE, NOW, RUNS, ended, job, node, pod

SCHEDULER = {"workers": 3, "cpu": 1, "memory_bytes": 64 << 20, "pods": {"image": "box:1"}}
Objects = dict[str, dict[str, dict[str, Any]]]


class Store:
    """Objects by kind and name, and what was done to them."""

    def __init__(self) -> None:
        spec = {"accessModes": ["ReadWriteOnce"], "volumeName": "v1"}
        claim = {"metadata": {"name": BOX, "annotations": {}}, "spec": spec, "status": {"phase": "Bound"}}
        self.objects: Objects = {"pvc": {BOX: claim}, "job": {}, "pod": {}, "node": {"node-a": node()}}
        self.done: list[tuple[str, str, str]] = []
        self.refuses: dict[str, Exception] = {}
        self.lacks: set[tuple[str, str, str]] = set()
        self.dry: list[tuple[str, dict[str, Any]]] = []
        self.told: dict[str, list[dict[str, Any]]] = {}
        self.before: Callable[[str], None] = lambda _: None

    kubectl = "kubectl --context lab -n ml"

    def account(self) -> str:
        return "a"

    def add(self, kind: str, *bodies: Mapping[str, Any]) -> None:
        for body in bodies:
            self.objects[kind][body["metadata"]["name"]] = dict(body)

    def names(self, kind: str) -> list[str]:
        return sorted(self.objects[kind])

    def require(self, account: str) -> None:
        assert account == "a"

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        return copy.deepcopy(self.objects.get(kind, {}).get(name))

    def list(self, kind: str, labels: str = "") -> list[dict[str, Any]]:
        if kind in self.refuses:
            raise self.refuses[kind]
        return [copy.deepcopy(one) for one in self.objects.get(kind, {}).values()]

    def create(self, kind: str, body: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        if dry_run:
            self.dry.append((kind, body))
        self.before(kind)
        if f"create {kind}" in self.refuses:
            raise self.refuses[f"create {kind}"]
        if dry_run:
            return body
        name = body["metadata"]["name"]
        if name in self.objects[kind]:
            raise Exists(name)
        self.done.append(("create", kind, name))
        self.add(kind, {**body, "metadata": {**body["metadata"], "uid": f"uid-{name}", "resourceVersion": "1"}})
        return body

    def patch(self, kind: str, name: str, body: Mapping[str, Any]) -> None:
        self.done.append(("patch", kind, name))
        found = self.objects[kind][name]
        for part, fields in body.items():
            for key, value in fields.items():
                if isinstance(value, dict):
                    found[part].setdefault(key, {}).update(value)
                elif value is None:
                    found[part].pop(key, None)
                else:
                    found[part][key] = value
        if found["metadata"].get("deletionTimestamp") and not found["metadata"].get("finalizers"):
            del self.objects[kind][name]
        if kind == "job" and found["spec"].get("suspend"):
            found.setdefault("status", {})["conditions"] = [{"type": "Suspended", "status": "True"}]

    def delete(self, kind: str, one: Mapping[str, Any], *, grace: Any = None, propagation: str = "") -> None:
        name = one["metadata"]["name"]
        self.done.append(("delete", kind, name))
        found = self.objects[kind].get(name)
        if found is None:
            return
        found["metadata"]["deletionTimestamp"] = LATE
        if not found["metadata"].get("finalizers"):
            del self.objects[kind][name]

    def may(self, verb: str, kind: str, *, subresource: str = "", name: str = "") -> bool:
        return (verb, kind, subresource) not in self.lacks

    def events(self, name: str) -> list[dict[str, Any]]:
        return self.told.get(name, [])

    def __str__(self) -> str:
        return "the namespace ml of the cluster kind"


@pytest.fixture
def store() -> Store:
    return Store()


def top_up(store: Store, cells: int = 10, keep: workers.Keep | None = None, **scheduler: Any) -> str:
    asked = {**SCHEDULER, **scheduler}
    return workers.top_up(store, BOX, "a", asked, cells, keep=keep)  # type: ignore[arg-type]


def running(store: Store, of: dict[str, Any], *indices: int) -> list[dict[str, Any]]:
    found = [pod(RUNS, index=index, job=of) for index in indices]
    store.add("pod", *found)
    return found


# -- how many


def test_a_box_without_workers_gets_a_job_of_as_many_as_there_are_cells(store: Store) -> None:
    said = top_up(store, 2)
    made = store.objects["job"][f"{BOX}-1"]
    assert (made["spec"]["completions"], made["spec"]["parallelism"]) == (2, 2)
    assert "submitted 2 as" in said
    assert top_up(store, 2).startswith("0 workers run, 2 wait")
    assert store.names("job") == [f"{BOX}-1"]
    assert json.loads(store.objects["pvc"][BOX]["metadata"]["annotations"][f"{PREFIX}pods"]) == {"image": "box:1"}


def test_a_job_that_has_too_few_is_raised_and_one_that_is_through_is_followed_by_another(store: Store) -> None:
    top_up(store, 1)
    first = store.objects["job"][f"{BOX}-1"]
    assert "has 2 more" in top_up(store)
    assert (first["spec"]["completions"], first["spec"]["parallelism"]) == (3, 3)
    first["status"] = {"completedIndexes": "0-1", "failedIndexes": ""}
    assert "has 2 more" in top_up(store)
    assert first["spec"]["completions"] == 5
    first["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    assert "submitted 3 as" in top_up(store)
    assert store.names("job") == [f"{BOX}-1", f"{BOX}-2"]


def test_a_worker_that_has_written_its_end_reads_no_later_line_and_another_one_is_brought(store: Store) -> None:
    top_up(store, 2)
    first = store.objects["job"][f"{BOX}-1"]
    one, two = running(store, first, 0, 1)
    journal = b"\n".join(
        json.dumps({"event": "runner-stopped", "worker": f"{each['metadata']['uid']}.0", "why": why}).encode()
        for each, why in ((one, "nothing to take"), (two, "signal"))
    )
    said = workers.ends_in(b"torn" + journal + b"\n{}\n" + journal)
    assert set(said.values()) == {"nothing to take", "signal"}
    asked = (store, BOX, "a", SCHEDULER, 2)
    assert "has 1 more" in workers.top_up(*asked, stopped=lambda: said)  # type: ignore[arg-type]
    store.objects["pod"][one["metadata"]["name"]]["status"]["containerStatuses"][0]["state"] = ended(0)
    first["spec"].update(completions=2, parallelism=2)
    assert "has 1 more" in top_up(store, 2)  # the cluster's Job controller has not counted it yet


def test_a_job_that_a_person_suspended_stays_so(store: Store) -> None:
    top_up(store)
    store.objects["job"][f"{BOX}-1"]["spec"]["suspend"] = True
    store.done.clear()
    said = top_up(store)
    assert f"is suspended by a person, and left so; `kubectl --context lab -n ml patch job {BOX}-1 -p" in said
    assert not [one for one in store.done if one[1] == "job"]
    told = workers.told(store, BOX, "a")  # type: ignore[arg-type]
    assert (told["held"], told["at_work"]) == (3, 0)
    assert not workers.at_work(store, BOX)  # type: ignore[arg-type]


def test_kueue_decides_when_a_job_with_its_label_begins(store: Store) -> None:
    top_up(store, pods={"queue": "gpus"})
    made = store.objects["job"][f"{BOX}-1"]
    assert made["spec"]["suspend"] is True
    assert made["metadata"]["labels"][jobs.QUEUE] == "gpus"
    assert "in its queue of Kueue" in top_up(store, pods={"queue": "gpus"})
    assert store.names("job") == [f"{BOX}-1"]
    assert workers.at_work(store, BOX)  # type: ignore[arg-type]


def test_a_worker_on_a_lost_node_is_replaced_but_not_without_end(store: Store) -> None:
    top_up(store)
    first = store.objects["job"][f"{BOX}-1"]
    running(store, first, 0, 1, 2)
    store.objects["node"]["node-a"] = node(ready="Unknown")
    said = top_up(store)
    assert "has 3 more" in said
    assert "its node node-a does not answer" in said
    assert "out-of-service" in said
    for index in (3, 4, 5):
        running(store, first, index)
    assert "more" not in top_up(store).partition("has ")[2]
    assert first["spec"]["completions"] == 6


def test_a_pod_that_was_orphaned_counts_as_the_worker_that_it_is(store: Store) -> None:
    top_up(store, 2)
    first = store.objects["job"][f"{BOX}-1"]
    for one in running(store, first, 0, 1):
        store.objects["pod"][one["metadata"]["name"]]["metadata"]["ownerReferences"] = []
    first["metadata"]["deletionTimestamp"] = LATE
    store.done.clear()
    assert top_up(store, 2).startswith("2 workers run, 0 wait")
    assert not [one for one in store.done if one[0] == "create"]
    assert "submitted 1 as" in top_up(store, 3)


def test_what_cannot_begin_is_taken_back_once_the_stack_asks_for_something_else(store: Store) -> None:
    top_up(store, 2)
    first = store.objects["job"][f"{BOX}-1"]
    store.add("pod", pod({"waiting": {"reason": "ImagePullBackOff"}}, phase="Pending", job=first))
    said = top_up(store, 2, pods={"image": "box:2"})
    assert "took back" in said
    assert first["spec"]["suspend"] is True
    spec = store.objects["job"][f"{BOX}-2"]["spec"]
    assert spec["template"]["spec"]["containers"][0]["image"] == "box:2"
    assert spec["completions"] == 2, "the one whose pod is there still is no worker any more"


def test_what_runs_goes_on_as_it_was_asked_for(store: Store) -> None:
    top_up(store, 1)
    running(store, store.objects["job"][f"{BOX}-1"], 0)
    assert "submitted 1 as" in top_up(store, 2, memory_bytes=128 << 20)
    assert not store.objects["job"][f"{BOX}-1"]["spec"]["suspend"]


def test_of_two_commands_the_second_one_looks_again(store: Store) -> None:
    def another(kind: str) -> None:
        store.before = lambda _: None
        top_up(store)

    store.before = another
    said = top_up(store)
    assert "submitted" not in said
    assert [one for one in store.done if one[:2] == ("create", "job")] == [("create", "job", f"{BOX}-1")]


@pytest.mark.parametrize("mark", ["ending-at", "power"])
def test_no_worker_begins_on_a_box_that_ends_or_is_stopped(store: Store, mark: str) -> None:
    store.objects["pvc"][BOX]["metadata"]["annotations"][f"{PREFIX}{mark}"] = "stopped"
    with pytest.raises(RequestRefused):
        top_up(store)
    assert store.names("job") == []


def test_a_preview_says_which_storage_class_a_box_gets_or_that_there_is_none(store: Store) -> None:
    def said(name: str = "") -> str:
        (found,) = storage.words(store, name)  # type: ignore[arg-type]
        return found

    with pytest.raises(RequestRefused, match="no default storage class; it has none"):
        said()
    marks = {storage.DEFAULT: "true"}
    store.objects["storageclass"] = {
        name: {"metadata": {"name": name, "annotations": own}, "reclaimPolicy": policy}
        for name, own, policy in (("slow", marks, "Delete"), ("kept", {}, "Retain"))
    }
    assert "the storage class slow has the reclaim policy Delete" in said()
    assert "the storage class kept has the reclaim policy Retain" in said("kept")
    with pytest.raises(RequestRefused, match="no storage class fast; it has kept, slow"):
        said("fast")
    store.objects["pv"] = {"v": {"metadata": {"name": "v"}, "spec": {"storageClassName": "fast"}}}
    assert "no storage class fast" in said("fast"), "a claim may get that volume all the same"
    store.refuses["pv"] = NotAuthorized("no")
    assert "no storage class slower" in said("slower"), "what may not be read is not refused"
    store.refuses["storageclass"] = NotAuthorized("no")
    assert "you may not list storage classes" in said()


def test_a_start_leaves_a_box_that_no_pod_had_to_its_queue(store: Store) -> None:
    """Its pods may be mended just now: the queue brings what they are like, and only then one is asked for."""

    def never(*_: object) -> None:
        raise AssertionError("a pod was asked for, as the claim has it")

    metadata = store.objects["pvc"][BOX]["metadata"]
    metadata.update(uid="0123456789", annotations={f"{PREFIX}fresh": "1"})
    begun = power.start(store, BOX, "a", Wait(), never)  # type: ignore[arg-type]
    assert begun.phase is Phase.RUNNING
    metadata["annotations"] = {}
    with pytest.raises(AssertionError, match="was asked for"):
        power.start(store, BOX, "a", Wait(), never)  # type: ignore[arg-type]


def test_a_first_worker_is_asked_for_once_and_the_queue_brings_the_others(store: Store) -> None:
    def first() -> str:
        return workers.ask_first(store, BOX, SCHEDULER)  # type: ignore[arg-type]

    assert first() == f"submitted 1 as {BOX}-1"
    assert first() == "", "one that a killed command left is used"
    assert "has 2 more" in top_up(store)
    workers.take_back(store, BOX)  # type: ignore[arg-type]
    made = store.objects["job"][f"{BOX}-1"]["spec"]
    assert (store.names("job"), made["completions"], made["suspend"]) == ([f"{BOX}-1"], 3, False)


def test_a_first_worker_is_taken_back_where_no_queue_came(store: Store) -> None:
    workers.ask_first(store, BOX, SCHEDULER)  # type: ignore[arg-type]
    for _ in range(2):
        workers.take_back(store, BOX)  # type: ignore[arg-type]
    assert jobs.is_finished(store.objects["job"][f"{BOX}-1"])
    assert "submitted 2 as" in top_up(store, 2)
    assert store.names("job") == [f"{BOX}-2"] or store.names("job") == [f"{BOX}-1", f"{BOX}-2"]


@pytest.mark.parametrize("more", [{"pods": {"queue": "gpus"}}, {"nodes": 2}])
def test_no_first_worker_is_asked_for_where_others_decide_when_it_begins(store: Store, more: dict[str, Any]) -> None:
    store.objects["pvc"][BOX]["spec"]["accessModes"] = ["ReadWriteMany"]
    assert workers.ask_first(store, BOX, {**SCHEDULER, **more}) == ""  # type: ignore[arg-type]
    assert store.names("job") == []


# -- what ends leave


def test_an_end_is_on_record_before_its_pod_is_let_go(store: Store) -> None:
    top_up(store, 1)
    first = store.objects["job"][f"{BOX}-1"]
    one = pod(ended(137, "OOMKilled"), phase="Failed", job=first)
    store.add("pod", one)
    top_up(store, 1)
    assert store.objects["pod"][one["metadata"]["name"]]["metadata"]["finalizers"] == [SEEN]

    def full(files: Mapping[str, bytes]) -> None:
        raise Unreachable("the disk is full")

    top_up(store, 1, full)
    assert store.objects["pod"][one["metadata"]["name"]]["metadata"]["finalizers"] == [SEEN]
    kept: dict[str, bytes] = {}
    top_up(store, 1, kept.update)
    assert "finalizers" not in store.objects["pod"][one["metadata"]["name"]]["metadata"]
    record = json.loads(kept[f"{RECORDS}/{one['metadata']['uid']}.json"])
    assert record["state"] == "ended"
    assert "resources.memory: 100MB" in record["memory"]


def test_finished_jobs_are_cleared_but_the_last_one_and_none_whose_pods_may_run(store: Store) -> None:
    for number in (1, 2, 3):
        store.add("job", job(number, status={"conditions": [{"type": "Complete", "status": "True"}]}))
    store.add("pod", pod(ended(0), phase="Succeeded", job=store.objects["job"][f"{BOX}-1"]))
    store.add("pod", pod(RUNS, job=store.objects["job"][f"{BOX}-2"]))
    kept: dict[str, bytes] = {}
    top_up(store, 1, kept.update)
    top_up(store, 1, kept.update)
    assert store.names("job") == [f"{BOX}-2", f"{BOX}-3"]  # our hold was taken from the first one
    assert not store.objects["job"][f"{BOX}-2"]["metadata"].get("deletionTimestamp")
    assert not store.objects["job"][f"{BOX}-3"]["metadata"].get("deletionTimestamp")


# -- the end


def end_all(store: Store, seconds: float = 5.0) -> None:
    workers.end_all(store, BOX, seconds)  # type: ignore[arg-type]


def test_the_end_is_proved_by_the_nodes_and_no_pod_begins_after_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(workers, "SURE_SECONDS", 0.05)
    top_up(store, 2)
    first = store.objects["job"][f"{BOX}-1"]
    one, two = running(store, first, 0, 1)
    with pytest.raises(NotYetGone, match="told to end"):
        end_all(store, 0.1)
    assert first["spec"]["suspend"] is True
    assert store.objects["pod"][one["metadata"]["name"]]["metadata"]["deletionTimestamp"]
    for each in (one, two):
        store.objects["pod"][each["metadata"]["name"]]["status"]["containerStatuses"][0]["state"] = ended(75)
    end_all(store)
    assert len(store.names("pod")) == 2  # they are the record of their ends
    assert not workers.at_work(store, BOX)  # type: ignore[arg-type]
    store.objects["pvc"][BOX]["metadata"]["annotations"][f"{PREFIX}ending-at"] = LATE
    end_all(store)
    assert store.names("pod") == []


def test_a_pod_on_a_node_that_does_not_answer_keeps_the_end_open(store: Store) -> None:
    top_up(store, 1)
    store.objects["pvc"][BOX]["metadata"]["annotations"][f"{PREFIX}name"] = "box-0"
    (lost,) = running(store, store.objects["job"][f"{BOX}-1"], 0)
    worker, kept = f"{lost['metadata']['uid']}.0", dict[str, bytes]()

    def saw() -> str:
        return workers.person_saw(store, BOX, "a", worker, "ann: it burnt", kept.update, bytes)  # type: ignore[arg-type]

    with pytest.raises(RequestRefused, match="runs, as the cluster shows it"):
        saw()
    store.objects["node"].clear()
    with pytest.raises(NotYetGone, match="is not in the cluster any more") as found:
        end_all(store, 0.1)
    assert f'`sweepctl confirm worker box-0 {worker} --saw "…"`' in str(found.value)
    assert "taint" not in str(found.value), "there is no node that could have one"
    assert worker in saw()
    assert saw() == ""
    assert kept == {}, "the pod itself is the record"
    end_all(store)


# -- words


def test_status_says_what_becomes_of_the_bytes(store: Store) -> None:
    def said() -> str:
        return str(workers.told(store, BOX, "a")["words"])  # type: ignore[arg-type]

    assert said() == "no worker is there", "this user may read no volumes"
    volume: dict[str, Any] = {"metadata": {"name": "v1"}, "spec": {"persistentVolumeReclaimPolicy": "Delete"}}
    store.objects["pv"] = {"v1": volume}
    assert said().endswith("its volume v1 has the reclaim policy Delete: the end of the claim ends its bytes")
    volume["spec"]["persistentVolumeReclaimPolicy"] = "Retain"
    assert said().endswith("Retain: its bytes stay after the claim's end")
    volume["metadata"]["annotations"] = {f"{PREFIX}reclaim": "Delete"}  # which it gets back before its end
    assert "the reclaim policy Delete" in said()
    claim = store.objects["pvc"][BOX]
    claim["spec"].pop("volumeName")
    claim["status"]["phase"] = "Pending"
    store.told[BOX] = [{"reason": "ProvisioningFailed", "message": 'storageclass "x" not found'}]
    assert "gets no volume" in said()
    assert "give this box up and write another storage_class" in said()


def test_status_has_each_pod_by_the_name_of_its_worker(store: Store) -> None:
    top_up(store, 3)
    first = store.objects["job"][f"{BOX}-1"]
    (run,) = running(store, first, 0)
    wait = pod({"waiting": {"reason": "ErrImagePull", "message": "not found"}}, phase="Pending", index=1, job=first)
    dead = pod(ended(137, "OOMKilled"), phase="Failed", index=2, job=first)
    store.add("pod", wait, dead)
    told = workers.told(store, BOX, "a")  # type: ignore[arg-type]
    by_name = {task["name"]: task for task in told["tasks"]}
    assert set(by_name) == {each["metadata"]["uid"] for each in (run, wait, dead)}
    assert by_name[run["metadata"]["uid"]]["state"] == "RUNNING"
    assert "can't be pulled" in by_name[wait["metadata"]["uid"]]["words"]
    assert by_name[dead["metadata"]["uid"]]["exit"] == "137"
    assert "resources.memory: 100MB" in told["words"]
    assert told["words"].startswith("1 workers run, 2 wait (the image box:1 can't be pulled")
    assert (told["before"], told["held"], told["lost"]) == (None, 0, 0)


def test_a_job_that_gets_no_pod_says_why(store: Store) -> None:
    top_up(store, 1)
    store.told[f"{BOX}-1"] = [{"reason": "FailedCreate", "message": 'pods "x" is forbidden: exceeded quota: q'}]
    assert "quota is used up" in str(workers.told(store, BOX, "a")["words"])  # type: ignore[arg-type]


def test_a_cluster_that_does_not_answer_counts_as_at_work(store: Store) -> None:
    store.refuses["job"] = Unreachable("no")
    assert workers.at_work(store, BOX)  # type: ignore[arg-type]


# -- the preview


def refusals(store: Store, **scheduler: Any) -> list[str]:
    return workers_asked.refusals(store, {**SCHEDULER, **scheduler})  # type: ignore[arg-type]


BIG = {"allocatable": {"cpu": "3500m", "memory": "8Gi", "nvidia.com/gpu": "2"}}
LABEL = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}


def test_the_preview_names_what_the_cluster_does_not_give(store: Store) -> None:
    store.objects["node"] = {"node-a": node(labels=LABEL, **BIG)}
    assert refusals(store) == []
    assert [kind for kind, _ in store.dry] == ["job", "pod"]
    assert "3.5 of cpu" in refusals(store, cpu=4)[0]
    assert "8.6 GB of memory" in refusals(store, memory_bytes=10**10)[0]
    assert refusals(store, gpus=1, gpu_names=["A100"]) == []
    affinity = store.dry[-1][1]["spec"]["affinity"]["nodeAffinity"][pod_template._REQUIRED]
    assert affinity["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] == ["NVIDIA-A100-SXM4-80GB"]
    assert "its nodes have NVIDIA-A100-SXM4-80GB" in refusals(store, gpus=1, gpu_names=["H100"])[0]
    assert "2 of nvidia.com/gpu" in refusals(store, gpus=4, gpu_names=["A100"])[0]
    on_demand = json.dumps({"nodeSelector": {"pool": "h100"}})
    assert refusals(store, gpus=8, pods={"pod": on_demand}) == []


def test_the_preview_names_each_right_that_is_missing(store: Store) -> None:
    store.lacks = {("create", "job", ""), ("get", "pod", "log")}
    (said,) = refusals(store)
    assert said.startswith("you may not create jobs, get pods/log in the namespace ml of the cluster kind")


def test_the_preview_names_what_is_not_there_and_what_the_server_refuses(store: Store) -> None:
    store.objects["node"] = {"node-a": node(**BIG)}
    store.objects["serviceaccount"] = {"default": {"metadata": {"name": "default"}}}
    assert "has no service account trainer; it has default" in refusals(store, pods={"service_account": "trainer"})[0]
    assert "has no local queue of Kueue gpus" in refusals(store, pods={"queue": "gpus"})[0]
    store.refuses["create pod"] = RequestRefused('pods "x" is forbidden: exceeded quota: q')
    assert "quota is used up" in refusals(store)[0]
    store.refuses["node"] = NotAuthorized("no")
    del store.refuses["create pod"]
    assert refusals(store, cpu=400) == []  # nodes that may not be read are not judged


# -- the objects


def test_pods_pass_the_restricted_standard_and_carry_what_the_pilot_needs() -> None:
    made = pod_template.template(BOX, WORKER, {"service_account": "t"}, ["/py"], PodRequest(gpus=2, grace=60.5))
    spec, container = made["spec"], made["spec"]["containers"][0]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert spec["terminationGracePeriodSeconds"] == 61 + 30
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2"}
    assert made["metadata"]["finalizers"] == [SEEN]
    assert spec["automountServiceAccountToken"] is True
    reader = pod_template.template(BOX, READER, {}, ["/py"], claim="other")
    assert "finalizers" not in reader["metadata"]
    assert reader["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "other"}


def test_the_escape_sets_what_is_not_ours_and_nothing_else() -> None:
    escape = {
        "nodeSelector": {"pool": "a"},
        "labels": {"team": "x"},
        "securityContext": {"runAsUser": 1000},
        "affinity": {"nodeAffinity": {pod_template._REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [{}]}]}}},
    }
    asked = PodRequest(gpus=1, gpu_products=("A100",), one_node=True)
    made = pod_template.template(BOX, WORKER, {"pod": json.dumps(escape)}, ["/py"], asked)
    assert made["metadata"]["labels"]["team"] == "x"
    assert made["spec"]["securityContext"]["runAsUser"] == 1000
    assert made["spec"]["securityContext"]["runAsNonRoot"] is True
    terms = made["spec"]["affinity"]["nodeAffinity"][pod_template._REQUIRED]["nodeSelectorTerms"]
    assert len(terms[0]["matchExpressions"]) == 2
    assert made["spec"]["affinity"]["podAffinity"]
    for name in ("containers", "restartPolicy", "tolerations", "hostPID", "new"):
        with pytest.raises(RequestRefused, match=rf"kubernetes\.pod\.{name} is "):
            pod_template.template(BOX, WORKER, {"pod": json.dumps({name: 1})}, ["/py"])
    with pytest.raises(RequestRefused, match="take it out"):
        pod_template.template(BOX, WORKER, {"pod": {"labels": {f"{PREFIX}box": "x"}}}, ["/py"])
    assert "no mapping" in pod_template.refusals({"pod": "["})[0]


def test_indices_are_read_as_the_cluster_writes_them() -> None:
    assert jobs.indices("0,2-4,x") == {0, 2, 3, 4}
    assert jobs.indices("") == set()
    found = job(1, 4, status={"completedIndexes": "0", "failedIndexes": "2"})
    assert jobs.open_indices(found) == {1, 3}
    assert standing.judged([found], [], {}, 0.0).slots().live == 2


# -- of several pods


def test_a_worker_of_several_pods_is_a_job_of_its_own(store: Store) -> None:
    store.objects["pvc"][BOX]["spec"]["accessModes"] = ["ReadWriteMany"]
    said = top_up(store, 2, nodes=3)
    made = [store.objects["job"][f"{BOX}-{number}"] for number in (1, 2)]
    assert [one["spec"]["completions"] for one in made] == [3, 3]
    assert made[0]["spec"]["maxFailedIndexes"] == 0
    assert made[0]["spec"]["successPolicy"] == {"rules": [{"succeededIndexes": "0"}]}
    assert "0 workers run, 2 wait" in said
    assert len(store.objects["job"]) == 2, "no more than cells"
    top_up(store, 2, nodes=3)
    assert len(store.objects["job"]) == 2, "they are there"


def test_a_worker_without_one_of_its_pods_is_no_worker(store: Store) -> None:
    store.objects["pvc"][BOX]["spec"]["accessModes"] = ["ReadWriteMany"]
    top_up(store, 1, nodes=2)
    made = store.objects["job"][f"{BOX}-1"]
    first, other = running(store, made, 0, 1)
    for one in (first, other):
        one["metadata"]["labels"] = {pod_template.NODES: "2"}
    other["spec"]["nodeName"] = "node-b"
    nodes = {"node-a": node(), "node-b": node(ready="Unknown", name="node-b")}
    slots = standing.judged([made], [first, other], nodes, NOW).slots()
    assert (slots.live, slots.lost) == (0, 1)
    slots = standing.judged([made], [first, other], {**nodes, "node-b": node(name="node-b")}, NOW).slots()
    assert (slots.live, slots.lost) == (1, 0)


def test_a_claim_of_one_node_takes_no_worker_of_several_pods(store: Store) -> None:
    with pytest.raises(RequestRefused, match=r"job\.nodes is 2, and the box's claim \S+ is ReadWriteOnce"):
        top_up(store, nodes=2)
    assert not store.objects["job"]


def test_storage_that_one_node_mounts_is_refused_for_several(store: Store) -> None:
    disks = {"metadata": {"name": "gp3", "annotations": {storage.DEFAULT: "true"}}, "provisioner": "ebs.csi.aws.com"}
    store.objects |= {"storageclass": {"gp3": disks}, "pv": {}}
    node_a = store.objects["node"]["node-a"]
    node_a["status"]["allocatable"] = {"cpu": "4", "memory": "8Gi"}
    (said,) = workers_asked.refusals(store, {**SCHEDULER, "nodes": 2})  # type: ignore[arg-type]
    assert "the storage gp3 (ebs.csi.aws.com) gives volumes that one node mounts" in said
    assert not workers_asked.refusals(store, SCHEDULER)  # type: ignore[arg-type]
    store.objects["storageclass"]["nfs"] = {"metadata": {"name": "nfs"}, "provisioner": "nfs.csi.k8s.io"}
    assert not workers_asked.refusals(store, {**SCHEDULER, "nodes": 2})  # type: ignore[arg-type]
    assert storage.refusals(store, 2, ""), "the default one is meant"  # type: ignore[arg-type]
    assert not storage.refusals(store, 2, "nfs")  # type: ignore[arg-type]
