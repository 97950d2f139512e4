"""The cluster of the tests is a Kubernetes: what it refuses, places, limits, ends and forgets happens here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.simulators.kubernetes import IMAGE, STORAGE_CLASS, KubernetesCluster, cgroups
from tests.simulators.kubernetes.admin import Refused
from tests.simulators.kubernetes.enclosure import until
from tests.simulators.kubernetes.fixture import fresh_namespace

ROOT = Path(__file__).resolve().parents[2]
ASK_API = """
import os, ssl, urllib.request
own = "/var/run/secrets/kubernetes.io/serviceaccount/"
url = "https://{KUBERNETES_SERVICE_HOST}:{KUBERNETES_SERVICE_PORT}/api/v1/namespaces/{NAMESPACE}/pods".format(**os.environ)
asked = urllib.request.Request(url, headers={"Authorization": "Bearer " + open(own + "token").read()})
print(urllib.request.urlopen(asked, context=ssl.create_default_context(cafile=own + "ca.crt"), timeout=20).status)
"""
SERVE = "python3 -m http.server 8000"


class Pods:
    """The pods of a namespace."""

    def __init__(self, cluster: KubernetesCluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.path = f"/api/v1/namespaces/{namespace}/pods"

    def make(
        self, name: str, script: str, node: str = "", container: dict[str, Any] | None = None, **spec: Any
    ) -> None:
        env = [{"name": "NAMESPACE", "value": self.namespace}]
        one = {"name": "main", "image": IMAGE, "command": ["bash", "-c", script], "env": env, **(container or {})}
        place = {"nodeName": node} if node else {}
        spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [one], **place, **spec}
        self.cluster.admin.make(self.path, {"metadata": {"name": name}, "spec": spec})

    def get(self, name: str) -> dict[str, Any]:
        return self.cluster.admin.get(f"{self.path}/{name}")

    def await_phase(self, name: str, phase: str, seconds: float = 60) -> dict[str, Any]:
        until(lambda: self.get(name)["status"].get("phase") == phase, f"{phase} of {name}", seconds, self.cluster.told)
        return self.get(name)

    def log(self, name: str) -> str:
        return self.cluster.admin.text(f"{self.path}/{name}/log")


@pytest.fixture
def pods(kubernetes_cluster: KubernetesCluster) -> Iterator[Pods]:
    namespace = fresh_namespace(kubernetes_cluster)
    yield Pods(kubernetes_cluster, namespace)
    kubernetes_cluster.admin.delete(f"/api/v1/namespaces/{namespace}")


def test_pods_of_two_nodes_reach_each_other_and_are_entered(kubernetes_cluster: KubernetesCluster, pods: Pods) -> None:
    from kubernetes import client, config
    from kubernetes.stream import stream

    for name in ("n1", "n2"):
        pods.make(name, f"echo begun on {name}; {SERVE}", name)
    at = {name: pods.await_phase(name, "Running")["status"]["podIP"] for name in ("n1", "n2")}
    assert at["n1"].startswith("10.244.1.")
    assert at["n2"].startswith("10.244.2.")
    assert "begun on n1" in pods.log("n1")
    api = client.CoreV1Api(config.new_client_from_config(config_file=str(kubernetes_cluster.kubeconfig)))
    for name, other in (("n1", "n2"), ("n2", "n1")):
        ask = f"for i in $(seq 50); do exec 3<>/dev/tcp/{at[other]}/8000 && echo met $HOSTNAME && exit; sleep 0.1; done"
        command = ["bash", "-c", ask]
        said = stream(
            api.connect_get_namespaced_pod_exec, name, pods.namespace, command=command, stdout=True, stderr=False
        )
        assert said.strip() == f"met {name}"
    nodes = kubernetes_cluster.admin.list("/api/v1/nodes")
    assert [node["status"]["allocatable"]["nvidia.com/gpu"] for node in nodes] == ["4", "4"]


def test_restricted_pod_security_refuses_a_root_pod(kubernetes_cluster: KubernetesCluster) -> None:
    pods = Pods(kubernetes_cluster, fresh_namespace(kubernetes_cluster, pod_security="restricted"))
    with pytest.raises(Refused, match='violates PodSecurity \\\\"restricted') as refused:
        pods.make("root", "id")
    assert refused.value.code == 403
    secure = {
        "allowPrivilegeEscalation": False,
        "runAsNonRoot": True,
        "runAsUser": 4242,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    pods.make("user", "id -u; echo x > ~/own && echo wrote", container={"securityContext": secure})
    pods.await_phase("user", "Succeeded")
    assert pods.log("user").split() == ["4242", "wrote"]
    kubernetes_cluster.admin.delete(f"/api/v1/namespaces/{pods.namespace}")


def test_a_user_may_do_what_the_rules_say_and_no_more(kubernetes_cluster: KubernetesCluster, pods: Pods) -> None:
    from kubernetes import client, config

    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get"]}]
    ann = kubernetes_cluster.user("ann", rules, namespace=pods.namespace)
    api = client.CoreV1Api(config.new_client_from_config(config_file=str(ann)))
    api.create_namespaced_config_map(pods.namespace, {"metadata": {"name": "one"}, "data": {"a": "b"}})
    assert api.read_namespaced_config_map("one", pods.namespace).data == {"a": "b"}
    with pytest.raises(client.ApiException) as refused:
        api.delete_namespaced_config_map("one", pods.namespace)
    assert refused.value.status == 403
    assert 'User "ann" cannot delete resource "configmaps"' in json.loads(refused.value.body)["message"]


def test_a_policy_of_the_cluster_refuses_a_deletion(kubernetes_cluster: KubernetesCluster, pods: Pods) -> None:
    at, name = "/apis/admissionregistration.k8s.io/v1", f"held-{pods.namespace}"
    match = {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"]}]}  # fmt: skip  # noqa: E501
    held = {"expression": "!('held' in oldObject.metadata.labels)", "message": "it is held"}
    where = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": pods.namespace}}}
    admin = kubernetes_cluster.admin
    admin.make(f"{at}/validatingadmissionpolicies", {"metadata": {"name": name}, "spec": {"matchConstraints": match, "validations": [held]}})  # fmt: skip  # noqa: E501
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": where}
    admin.make(f"{at}/validatingadmissionpolicybindings", {"metadata": {"name": name}, "spec": binding})
    maps = f"/api/v1/namespaces/{pods.namespace}/configmaps"

    def refused() -> bool:
        if not admin.get(f"{maps}/x"):
            admin.make(maps, {"metadata": {"name": "x", "labels": {"held": "y"}}})
        try:
            admin.delete(f"{maps}/x")
        except Refused as error:
            return "it is held" in str(error)
        return False

    until(refused, "refusal", 20, kubernetes_cluster.told)
    admin.delete(f"{at}/validatingadmissionpolicybindings/{name}")
    admin.delete(f"{at}/validatingadmissionpolicies/{name}")


def test_a_pod_asks_the_api_server_as_its_service_account(kubernetes_cluster: KubernetesCluster, pods: Pods) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    own = {"kind": "ServiceAccount", "name": "default", "namespace": pods.namespace}
    pods.make("denied", f"python3 -c '{ASK_API}'")
    pods.await_phase("denied", "Failed")
    assert "403: Forbidden" in pods.log("denied")
    kubernetes_cluster.allow([own], rules, pods.namespace)
    pods.make("allowed", f"python3 -c '{ASK_API}'")
    pods.await_phase("allowed", "Succeeded")
    assert pods.log("allowed").strip() == "200"


def test_the_kernel_ends_a_pod_over_its_memory(pods: Pods) -> None:
    limits = {"resources": {"limits": {"memory": "64Mi"}}}
    pods.make("greedy", "python3 -c 'x = bytearray(300_000_000)'", container=limits)
    ended = pods.await_phase("greedy", "Failed")["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)


def test_a_claim_gets_a_volume_whose_files_are_seen_here(kubernetes_cluster: KubernetesCluster, pods: Pods) -> None:
    volume = kubernetes_cluster.volume(f"v-{pods.namespace}")
    (volume.folder / "here").write_text("from outside\n")
    claim = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": STORAGE_CLASS,
        "volumeName": volume.name,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    claims = f"/api/v1/namespaces/{pods.namespace}/persistentvolumeclaims"
    kubernetes_cluster.admin.make(claims, {"metadata": {"name": "c"}, "spec": claim})
    until(lambda: kubernetes_cluster.admin.get(f"{claims}/c")["status"]["phase"] == "Bound", "bound claim", 30)
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}], "securityContext": {"runAsUser": 4242}}
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    pods.make("w", "cat /v/here; echo out > /v/there", container=mounts, volumes=volumes)
    pods.await_phase("w", "Succeeded")
    assert pods.log("w") == "from outside\n"
    assert (volume.folder / "there").read_text() == "out\n"
    assert (volume.folder / "there").stat().st_uid == 4242


@pytest.mark.proof  # tests/extensions/kubernetes/test_must_hold.py plays it with a sweep
def test_the_api_server_is_gone_and_back_and_may_forget(kubernetes_cluster: KubernetesCluster, pods: Pods) -> None:
    pods.make("p", "sleep 600", "n1")
    version = pods.await_phase("p", "Running")["metadata"]["resourceVersion"]
    kubernetes_cluster.api.stop()
    with pytest.raises(httpx.TransportError):
        pods.get("p")
    kubernetes_cluster.api.start()
    assert pods.await_phase("p", "Running")["status"]["containerStatuses"][0]["restartCount"] == 0
    kubernetes_cluster.admin.patch(f"{pods.path}/p", {"metadata": {"labels": {"a": "b"}}})
    kubernetes_cluster.api.forget()
    query = f"?watch=true&timeoutSeconds=5&resourceVersion={version}"
    told = json.loads(kubernetes_cluster.admin.text(f"{pods.path}{query}").splitlines()[0])
    assert (told["type"], told["object"]["code"]) == ("ERROR", 410)
    kubernetes_cluster.nodes["n1"].await_ready()


def test_a_kubelet_that_ends_by_itself_is_started_anew(kubernetes_cluster: KubernetesCluster) -> None:
    """As on a machine with an init: kubelet panics now and then."""
    node = kubernetes_cluster.nodes["n1"]
    lines = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline | grep -q ' --node-ip=[0-9]'"
    look = f"{lines} && echo ${{p#/proc/}}; done; true"

    def pids() -> set[str]:
        found = set(node.inside.run("bash", "-c", look).split())
        return {pid for pid in found if pid.isdigit()}

    before = pids()
    node.inside.run("bash", "-c", f"kill -9 {' '.join(before)} || true")
    until(lambda: pids() - before, "kubelet", told=kubernetes_cluster.told)
    assert node.inside.states()["kubelet"] is None
    node.await_ready()


@pytest.mark.proof  # tests/extensions/kubernetes/test_lost_pods.py has a node that is silent
def test_a_node_without_kubelet_is_not_ready_and_its_pods_run_on(
    kubernetes_cluster: KubernetesCluster, pods: Pods
) -> None:
    node = kubernetes_cluster.nodes["n1"]
    volume = kubernetes_cluster.volume(f"v-{pods.namespace}")
    loop = "for ((i = 0; i < 6000; i++)); do echo $i > /v/at; sleep 0.1; done"
    way = {"type": "Directory", "path": f"/mnt/keep/volumes/{volume.name}"}
    tolerates = [{"key": "node.kubernetes.io/unreachable", "operator": "Exists"}]
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    volumes = [{"name": "v", "hostPath": way}]
    pods.make("p", loop, "n1", container=mounts, volumes=volumes, tolerations=tolerates)
    pods.await_phase("p", "Running")
    node.kubelet.kill()
    node.await_ready(False)
    before = (volume.folder / "at").read_text()
    until(lambda: (volume.folder / "at").read_text() not in ("", before), "life of the pod", 10)
    node.kubelet.start()
    node.await_ready()
    assert pods.get("p")["status"]["containerStatuses"][0]["restartCount"] == 0
    assert node.get()["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    kubernetes_cluster.admin.delete(f"/api/v1/persistentvolumes/{volume.name}")  # no claim of another test gets it


@pytest.mark.proof  # that a silent node is told is proved above
def test_a_node_without_power_loses_its_pods(kubernetes_cluster: KubernetesCluster, pods: Pods) -> None:
    node = kubernetes_cluster.nodes["n2"]
    pods.make("p", "sleep 600", "n2", terminationGracePeriodSeconds=1)
    pods.await_phase("p", "Running")
    node.power_off()
    until(lambda: "deletionTimestamp" in pods.get("p")["metadata"], "end of the pod", 60, kubernetes_cluster.told)
    assert not node.ready
    node.power_on()
    node.await_ready()
    until(lambda: not pods.get("p"), "true end of the pod", 60, kubernetes_cluster.told)
    pods.make("next", "true", "n2")
    pods.await_phase("next", "Succeeded")


@pytest.mark.proof  # the same
def test_a_node_that_is_cut_off_goes_on_and_comes_back(kubernetes_cluster: KubernetesCluster, pods: Pods) -> None:
    node = kubernetes_cluster.nodes["n2"]
    pods.make("p", "sleep 600", "n2", terminationGracePeriodSeconds=1)
    pods.await_phase("p", "Running")
    node.partition()
    until(lambda: "deletionTimestamp" in pods.get("p")["metadata"], "end of the pod", 60, kubernetes_cluster.told)
    assert "sleep" in node.inside.run("ps", "-e", "-o", "comm=")
    node.heal()
    node.await_ready()
    until(lambda: not pods.get("p"), "true end of the pod", 60, kubernetes_cluster.told)


@pytest.mark.proof  # two stand side by side in each `make test`; that nothing is left of one is proved below
def test_two_stand_side_by_side_and_nothing_is_left_of_one_whose_starter_is_killed(
    kubernetes_cluster: KubernetesCluster, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tests.simulators.kubernetes", "--keep", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as starter:
        assert starter.stdout is not None
        config = starter.stdout.readline().strip().removeprefix("KUBECONFIG=")
        assert json.loads(Path(config).read_text())["clusters"][0]["cluster"]["server"] != kubernetes_cluster.server
        inside = _processes_that_name(str(tmp_path))
        assert inside
        groups = [found for one in cgroups.own() for found in one.glob(f"sweepstack-{starter.pid}-*")]
        assert groups
        spaces = {os.readlink(f"/proc/{pid}/ns/pid") for pid in inside} - {os.readlink("/proc/self/ns/pid")}
        starter.send_signal(signal.SIGKILL)
    until(lambda: not any(one.exists() for one in groups), "end of the control groups", 30)
    # a process that has ended has no group any more, and is seen until this machine's own init has waited for it
    until(lambda: not [pid for pid in _processes() if _space(pid) in spaces], "end of the processes", 30)
    assert not _processes_that_name(str(tmp_path))
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    assert kubernetes_cluster.admin.answers()


def test_nothing_is_left_of_one_that_ends(tmp_path: Path) -> None:
    with KubernetesCluster.start(tmp_path / "c", nodes=0) as cluster:
        groups, space = list(cluster.inside.groups), _space(cluster.inside.pid)
        assert [pid for pid in _processes() if _space(pid) == space]
        assert "nodes" not in os.listdir("/sys/class/net")
    assert not [pid for pid in _processes() if _space(pid) == space]
    assert not any(one.exists() for one in groups)
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _space(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def _processes_that_name(word: str) -> list[int]:
    found = []
    for pid in _processes():
        try:
            if word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found
