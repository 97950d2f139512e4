"""What a stack file says of a cluster of pods: what reaches the adapter, and what is refused with its key and fix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from components.box import job_input
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.job import JobInput
from sweepstack.extensions.kubernetes import pod_template, storage
from sweepstack.extensions.kubernetes.address import Address
from sweepstack.extensions.kubernetes.api import Cluster
from sweepstack.extensions.kubernetes.platform import spelled
from sweepstack.onbox.common.errors import ConfigError, RequestRefused, Unreachable
from sweepstack.profiles.load import load_profile
from sweepstack.profiles.plan import Plan
from sweepstack.profiles.resolve import resolve
from sweepstack.provider.resources import market
from sweepstack.provider.session import Operation, Session
from tests.unit.config.helpers import load, refusal

STACK = """\
config:
  sweepstack:sweep:
    job:
      workdir: examples/digits
      run: python train.py --lr {lr} --out {out}
      resources: {cpu: 2, memory: 4GB, disk: 20GB}
    cells: {grid: {lr: [0.1, 0.03]}}
    artifacts: {best.pt: {load: torch, finite: require}}
    candidates: [kubernetes]
    boxes: {box-0: {want: running, workers: 2}}
    pull_to: results/x
    overrides: {kubernetes: {}}
encryptionsalt: v1:abc
"""
CODE = "sha256:" + "0" * 64


def with_keys(keys: str, **changes: str) -> str:
    text = STACK.replace("kubernetes: {}", f"kubernetes: {{{keys}}}")
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return text


def planned(root: Path, text: str) -> Plan:
    config: StackConfig = load(root, text)
    return resolve(config, {name: load_profile(name) for name in config.candidates})


def refused(root: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        planned(root, text)
    return str(caught.value)


def scheduler(plan: Plan) -> dict[str, Any]:
    """As the adapter gets it."""
    job = JobInput.model_validate(job_input(plan.job, plan.boxes[0], CODE))
    assert job.scheduler is not None
    return job.scheduler.model_dump(mode="json", exclude_none=True)


@pytest.mark.parametrize(
    ("keys", "address"),
    [
        ("", "/"),
        ("context: kind-kind", "/kind-kind"),
        ("namespace: ml", "ml/"),
        ('namespace: ml, context: "arn:aws:eks:eu:1:cluster/x"', "ml/arn:aws:eks:eu:1:cluster/x"),
    ],
)
def test_the_address_is_what_was_written(tmp_path: Path, keys: str, address: str) -> None:
    plan = planned(tmp_path, with_keys(keys))
    assert (plan.cluster, plan.adapter_of(plan.boxes[0])) == (address, f"kubernetes:{address}")


def test_what_was_not_written_is_left_out(tmp_path: Path) -> None:
    plan = planned(tmp_path, STACK.replace("    overrides: {kubernetes: {}}\n", ""))
    assert scheduler(plan) == {"workers": 2, "cpu": 2.0, "memory_bytes": 4 * 10**9}
    assert plan.boxes[0].resources == {"disk": "20GB"}
    assert plan.cluster == "/"


def test_every_key_reaches_the_adapter(tmp_path: Path) -> None:
    keys = (
        "storage_class: fast, service_account: runner, priority_class: low, queue: team, gpu_resource: amd.com/gpu, "
        "gpu_label: example.com/card, tolerations: [{key: a, value: b}, {operator: Exists, effect: NoExecute}], "
        "price_per_gpu_hour: 2, pod: {nodeSelector: {disk: ssd}, securityContext: {runAsUser: 1000}}"
    )
    asked = "disk: 20GB, gpu: {name: MI300X, count: 2}}\n      image: me/train:1\n      grace: 30s"
    plan = planned(tmp_path, with_keys(keys, **{"disk: 20GB}": asked}))
    found = scheduler(plan)
    pods = found.pop("pods")
    assert json.loads(pods.pop("pod")) == {"nodeSelector": {"disk": "ssd"}, "securityContext": {"runAsUser": 1000}}
    assert pods == {
        "image": "me/train:1",
        "service_account": "runner",
        "priority_class": "low",
        "queue": "team",
        "gpu_resource": "amd.com/gpu",
        "gpu_label": "example.com/card",
        "tolerations": [{"key": "a", "value": "b"}, {"operator": "Exists", "effect": "NoExecute"}],
    }
    assert found == {
        "workers": 2,
        "gpus": 2,
        "gpu_names": ["MI300X"],
        "cpu": 2.0,
        "memory_bytes": 4 * 10**9,
        "grace_seconds": 30.0,
        "price_per_gpu_hour": 2.0,
    }
    assert plan.boxes[0].resources == {"disk": "20GB", "storage_class": "fast"}


@pytest.mark.parametrize("field", sorted(pod_template.OWNED))
def test_a_field_of_ours_is_refused_with_the_key_that_sets_it(tmp_path: Path, field: str) -> None:
    said = refusal(tmp_path, with_keys(f"pod: {{{field}: 1}}"))
    assert f"overrides.kubernetes.pod.{field}  is set by {pod_template.OWNED[field]}; take it out" in said
    assert "line 12" in said


@pytest.mark.parametrize("field", pod_template.ALLOWED)
def test_a_field_of_a_persons_passes(tmp_path: Path, field: str) -> None:
    values = {"imagePullSecrets": [], "hostAliases": [], "topologySpreadConstraints": [], "dnsPolicy": "None"}
    value = values.get(field, "x" if field.endswith("Name") else {})
    plan = planned(tmp_path, with_keys(f"pod: {json.dumps({field: value})}"))
    assert json.loads(scheduler(plan)["pods"]["pod"]) == {field: value}


@pytest.mark.parametrize(
    ("pod", "where", "why"),
    [
        ("{speed: 1}", ".speed", "is no field that may be written here; those are"),
        ("{nodeSelector: [a]}", ".nodeSelector", "expected a mapping, as a pod has it"),
        ("{imagePullSecrets: {a: b}}", ".imagePullSecrets", "expected a list, as a pod has it"),
        ("{dnsPolicy: {a: b}}", ".dnsPolicy", "expected a text, as a pod has it"),
        ("{nodeSelector: {gpu: true}}", ".nodeSelector.gpu", 'expected a text: write it in quotes, such as "true"'),
        ("{labels: {a: 1}}", ".labels.a", "expected a text"),
        ("{labels: {sweepstack.dev/box: x}}", ".labels.sweepstack.dev/box", "is set by sweepstack itself"),
        ("{annotations: {kueue.x-k8s.io/queue-name: x}}", ".annotations.kueue", "is set by sweepstack itself"),
        ("{securityContext: {runAsUser: 0}}", ".securityContext.runAsUser", "lets nothing run as root"),
        ("{securityContext: {fsGroup: true}}", ".securityContext.fsGroup", "expected a number above 0"),
        ("{securityContext: {runAsNonRoot: false}}", ".securityContext.runAsNonRoot", "is set by sweepstack, by"),
        ("{securityContext: {seccompProfile: {}}}", ".securityContext.seccompProfile", "is set by sweepstack, by"),
        ("text", ': "text"', "expected keys and values"),
    ],
)
def test_what_no_pod_gets_is_refused(tmp_path: Path, pod: str, where: str, why: str) -> None:
    said = refusal(tmp_path, with_keys(f"pod: {pod}"))
    assert f"overrides.kubernetes.pod{where}" in said
    assert why in said
    assert "1 mistake;" in said


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ("namespace: ML", "expected the name of an object of the cluster"),
        ("queue: a/b", "expected the name of an object of the cluster"),
        ("gpu_resource: 'a b'", "expected a name such as nvidia.com/gpu"),
        ("context: ' '", "expected text"),
        ("tolerations: [{value: b}]", "expected a key, or operator: Exists for every taint"),
        ("tolerations: [{key: a, operator: Exists, value: b}]", "expected no value with operator: Exists"),
        ("tolerations: [{key: a, effect: Never}]", "effect"),
    ],
)
def test_a_wrong_value_is_refused(tmp_path: Path, keys: str, why: str) -> None:
    said = refusal(tmp_path, with_keys(keys))
    assert why in said
    assert "line 12" in said


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("disk: 20GB", "time: 1h", "job.resources.time can't be kept there: a worker runs until no cell is left"),
        (
            "workers: 2",
            "host: ann@login",
            "boxes.box-0.host is a host of your own, and kubernetes makes its boxes itself",
        ),
        ("kubernetes: {}", "kubernetes: {price_per_hour: 3}", "it sends a bill, so the sweep needs a budget"),
        ("kubernetes: {}", "kubernetes: {places: {data: /x}}", "is for hosts that are entered by SSH; take it out"),
        ("disk: 20GB", "spot: true", "spot"),
    ],
)
def test_what_pods_can_not_keep_is_refused(tmp_path: Path, old: str, new: str, why: str) -> None:
    assert why in refused(tmp_path, STACK.replace(old, new))


def test_a_rented_cluster_keeps_no_lease(tmp_path: Path) -> None:
    """As on other clusters: to delete its Jobs ends no bill of machines."""
    more = "    budget: {usd: 9}\n    when_done: keep\n    lease: LEASE\n    pull_to:"
    text = with_keys("price_per_hour: 3").replace("    pull_to:", more)
    assert "can't be kept there: no job of a cluster ends its bill" in refused(tmp_path, text.replace("LEASE", "2h"))
    plan = planned(tmp_path, text.replace("LEASE", "none"))
    assert plan.price_per_hour == 3
    assert plan.teardown.stop is not None
    assert plan.teardown.stop.price_per_hour == 3


def test_the_preview_says_what_is_of_one_node_and_what_ends_no_bill(tmp_path: Path) -> None:
    said = "\n".join(planned(tmp_path, STACK).notes)
    assert "the storage of a box is ReadWriteOnce: all its workers run on one node" in said
    assert "the end of a box ends no bill of machines" in said
    assert "ReadWriteOnce" not in "\n".join(planned(tmp_path, STACK.replace("workers: 2", "workers: 1")).notes)


def test_cells_over_several_nodes_ask_for_a_claim_that_all_of_them_mount(tmp_path: Path) -> None:
    text = STACK.replace("workdir:", "nodes: 2\n      timeout: 1h\n      workdir:")
    plan = planned(tmp_path, text)
    assert plan.boxes[0].resources == {"disk": "20GB", "shared": True}
    assert planned(tmp_path, STACK).boxes[0].resources == {"disk": "20GB"}, "others are as before"
    assert scheduler(plan)["nodes"] == 2
    said = "\n".join(plan.notes)
    assert "a worker is a Job of 2 pods" in said
    assert "The storage of a box is ReadWriteMany" in said
    assert "ReadWriteOnce" not in said


def test_what_has_no_effect_is_said(tmp_path: Path) -> None:
    plan = planned(tmp_path, STACK.replace("disk: 20GB", "disk: 20GB, partition: gpu, qos: high, regions: [EU]"))
    said = "\n".join(plan.notes)
    assert "job.resources.partition, job.resources.qos, job.resources.regions has no effect there" in said
    assert set(scheduler(plan)) == {"workers", "cpu", "memory_bytes"}


def test_the_keys_belong_to_no_other_platform(tmp_path: Path) -> None:
    local = with_keys("namespace: ml, queue: team").replace("kubernetes", "local").replace(", workers: 2", "")
    assert "local: overrides.local: namespace, queue is for a cluster of pods: leave it out" in refused(tmp_path, local)


def test_gpu_hours_are_counted_as_on_other_clusters(tmp_path: Path) -> None:
    text = with_keys("price_per_gpu_hour: 1.5, gpu_hours: 100", **{"disk: 20GB": "gpu: {name: A100, count: 4}"})
    said = "\n".join(planned(tmp_path, text).checked)
    assert "its workers hold 8 GPUs while all run: 8 GPU-hours an hour ($12.00)" in said


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    context = {"name": "lab", "context": {"cluster": "c", "user": "u", "namespace": "ml"}}
    known = {"clusters": [{"name": "c", "cluster": {}}], "users": [{"name": "u", "user": {}}]}
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps({**known, "contexts": [context], "current-context": "lab"}))
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


def test_what_a_stack_leaves_out_is_the_kubeconfigs(kubeconfig: Path) -> None:
    assert [spelled(text) for text in ("/", "other/", "/lab")] == ["ml/lab", "other/lab", "ml/lab"]


@pytest.mark.parametrize(
    ("files", "current"),
    [
        ("lab", "lab"),
        ("lab:far", "lab"),
        ("far:lab", "far"),
        ("none:far:lab", "far"),
        ("blank:lab", "lab"),
        ("empty:absent::lab", "lab"),
        ("lab:gone", "lab"),
    ],
)
def test_of_several_kubeconfigs_the_current_context_is_kubectl_s(
    kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: str, current: str
) -> None:
    """The first one that is named counts, as `kubectl config current-context` says: seen of kubectl 1.34."""
    known = json.loads(kubeconfig.read_text())
    far = {"name": "far", "context": {"cluster": "c", "user": "u", "namespace": "ml"}}
    for name, has in {
        "lab": known,
        "far": {**known, "contexts": [far], "current-context": "far"},
        "none": {key: value for key, value in known.items() if key != "current-context"},
        "blank": {**known, "current-context": ""},
        "gone": {**known, "current-context": "gone"},
    }.items():
        (tmp_path / name).write_text(json.dumps(has))
    (tmp_path / "empty").touch()
    monkeypatch.setenv("KUBECONFIG", ":".join(str(tmp_path / name) if name else "" for name in files.split(":")))
    assert spelled("/") == f"ml/{current}"
    assert spelled("x/lab") == "x/lab", "one that the stack names needs no current one"
    assert Cluster(Address("ml", "lab")).exec_facts("p")["path"] == "/api/v1/namespaces/ml/pods/p"


@pytest.mark.parametrize(("has", "why"), [("a: [", "flow"), ("- a", "none"), ("contexts: [lab]", "none")])
def test_a_kubeconfig_that_does_not_read_is_named(kubeconfig: Path, has: str, why: str) -> None:
    kubeconfig.write_text(has)
    for ask in (lambda: spelled("/"), lambda: Cluster(Address("ml", "lab")).account()):
        with pytest.raises(ConfigError, match=rf"the kubeconfig {kubeconfig} can't be read: .*{why}"):
            ask()


def test_a_context_that_is_not_there_is_refused_with_those_that_are(kubeconfig: Path) -> None:
    """Before anything is made, also where the stack names both. Of a box that is there nothing is known then."""
    for ask in (lambda: spelled("ml/labb"), lambda: Cluster(Address("ml", "labb")).account()):
        with pytest.raises(ConfigError, match=r'no context labb \(it has: lab\); did you mean "lab"\? Write'):
            ask()
    with pytest.raises(Unreachable, match="no context labb"):
        Cluster(Address("ml", "labb")).account()
    kubeconfig.unlink()
    with pytest.raises(ConfigError, match="KUBECONFIG names the file"):
        spelled("ml/lab")
    with pytest.raises(Unreachable, match="KUBECONFIG names the file"):
        Cluster(Address("ml", "lab")).account()


def test_a_preview_refuses_a_wrong_context_and_warns_of_what_would_not_be_made(
    kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A box that is there already may be in its own way (its class is gone): it has to get through, to be adopted."""
    said: list[str] = []
    session = Session(tmp_path, lambda _severity, _urn, text: said.append(text))
    op = Operation(session, "urn:pulumi:sweep-t::project::sweepstack:index:Box::box")
    asked = {"name": "box-0", "adapter": "kubernetes:ml/labb"}
    (failure,) = market.preview(op, asked)
    assert 'did you mean "lab"' in failure.reason

    def refused(*_: object) -> None:
        raise RequestRefused("no storage class fast")

    monkeypatch.setattr(storage, "words", refused)
    assert market.preview(op, asked) == []
    assert "would not be made now: no storage class fast" in said[-1]


def test_a_box_of_a_cluster_that_this_machine_calls_otherwise_keeps_its_address(kubeconfig: Path) -> None:
    assert spelled("ml/theirs", "ml/theirs") == "ml/theirs"
    assert spelled("/", "ml/theirs") == "ml/theirs"
