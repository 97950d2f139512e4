"""The loop on a real Kubernetes cluster, through `pulumi` and `sweepctl` alone; and what its own gate holds."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweepstack.extensions.kubernetes.api import claim_name
from tests.engine.commands import assert_refused, ok
from tests.rented.kube_stack import CLAIMS, JOBS, NAMESPACE, PODS, KubeStack
from tests.simulators.kubernetes import KubernetesCluster
from tests.simulators.kubernetes.admin import Refused
from tests.simulators.kubernetes.enclosure import until

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[KubeStack]:
    with KubernetesCluster.start(tmp_path / "cluster", nodes=1) as cluster:
        made = KubeStack(tmp_path / "s", cluster=cluster)
        try:
            made.write_config()
            yield made
        finally:
            made.close()


def test_the_loop_on_kubernetes(stack: KubeStack) -> None:
    """preview → up → destroy refused → a cell more → pull → verify → approve → destroy."""
    stack.init()
    preview = ok(stack.pulumi("preview", timeout=180))
    assert "all its workers" in preview.text
    assert "the storage class shared has no provisioner: the claim gets a volume that a person made, at once" in (
        " ".join(preview.text.split())
    ), preview
    assert stack.boxes_there() == [], "a preview makes nothing"

    stack.hold("seed0")
    up = ok(stack.up(timeout=300))
    assert "-1 has 1 more" in up.text, up
    assert "its volume v1 has the reclaim policy Retain" in up.text, up
    (box,) = stack.boxes_there()
    (seen,) = ok(stack.sweepctl("status", "--json", timeout=120)).json()["boxes"]
    assert (seen["native_id"], seen["phase"]) == (box, "running")
    assert_refused(stack.destroy(timeout=180))
    _is_shown_as_applied(stack, box)
    stack.edit_config(lambda sweep: sweep["cells"]["grid"].update(seed=[0, 1, 2, 3, 4]))
    ok(stack.up(timeout=180))
    stack.release()

    ok(stack.sweepctl("wait", "done", timeout=300))
    _is_verified_and_ends(stack, cells=5)
    assert stack.boxes_there() == []
    assert stack.cluster.admin.list(PODS) == []
    assert stack.cluster.admin.list(JOBS) == []


@pytest.mark.proof
@pytest.mark.parametrize("what", ["claim", "claim and finalizers", "namespace"])
def test_what_was_deleted_by_hand_is_verified_all_the_same(stack: KubeStack, what: str) -> None:
    """The policy refuses it, with our words. Where a person takes that away and goes on, the finalizer holds the claim,
    and its volume is read by another one; also where the finalizers are taken away, too."""
    stack.init()
    ok(stack.up(timeout=300))
    (box,) = stack.boxes_there()
    ok(stack.sweepctl("wait", "done", timeout=300))
    admin, claim = stack.cluster.admin, f"{CLAIMS}/{claim_name(box)}"
    with pytest.raises(Exception, match="results were not cleared"):
        admin.delete(claim)
    admin.delete(f"{POLICIES.replace('policies', 'policybindings')}/sweepstack-hold")
    admin.delete(f"{POLICIES}/sweepstack-hold")

    def is_deleted() -> bool:
        with contextlib.suppress(Refused):  # the server may go by the policy for a while yet
            admin.delete(what_ends)
        return "deletionTimestamp" in admin.get(what_ends)["metadata"]

    # A namespace ends its pods first, and what else it has once they are gone.
    what_ends = f"/api/v1/namespaces/{NAMESPACE}" if what == "namespace" else claim
    until(is_deleted, "the delete", told=stack.cluster.told)
    if what == "claim and finalizers":
        admin.patch(claim, {"metadata": {"finalizers": None}})
        until(lambda: not admin.get(claim), "end of the claim", told=stack.cluster.told)
        assert "was deleted by hand" in " ".join(stack.sweepctl("status", timeout=180).text.split())
    for pod in admin.list(PODS):
        admin.delete(f"{PODS}/{pod['metadata']['name']}")
    assert_refused(stack.destroy(timeout=180))
    _is_verified_and_ends(stack, cells=4)
    until(lambda: not admin.list(CLAIMS), "the end of the claim", told=stack.cluster.told)


@pytest.mark.proof
def test_a_box_whose_context_left_the_kubeconfig_is_found_under_another_or_given_up(stack: KubeStack) -> None:
    """Two files name it, and as for kubectl the first one's current context counts. Without it nothing is known of the
    box; a new name is followed once the cluster proves that it is the same; else a person says that it is gone."""
    files = {name: stack.base / name for name in ("ours", "theirs")}

    def named(file: str, context: str) -> None:
        known = json.loads(stack.cluster.kubeconfig.read_text())
        known["contexts"][0]["name"] = known["current-context"] = context
        files[file].write_text(json.dumps(known))

    named("ours", "lab")
    named("theirs", "far")
    stack.env["KUBECONFIG"] = f"{files['ours']}:{files['theirs']}"
    stack.edit_config(lambda sweep: sweep["overrides"]["kubernetes"].pop("context"))
    stack.init()
    stack.hold("seed0")
    ok(stack.up(timeout=300))

    assert f"kubernetes {NAMESPACE}/lab" in ok(stack.sweepctl("status", timeout=120)).text
    named("ours", "new")
    status = stack.sweepctl("status", timeout=120)
    assert (status.rc, "has no context lab (it has: far, new)" in " ".join(status.text.split())) == (2, True), status
    stack.edit_config(lambda sweep: sweep["overrides"]["kubernetes"].update(context="new"))
    assert "in place" in ok(stack.up(timeout=180)).text
    assert f"kubernetes {NAMESPACE}/new" in ok(stack.sweepctl("status", timeout=120)).text

    named("ours", "newer")
    ok(stack.sweepctl("give-up", "data/box-0", "--reason", "the cluster was deleted", timeout=120))
    gone = ("confirm", "gone", "box-0", "--saw", "its console has none of this name")
    assert "sweepctl confirm gone" in stack.destroy(timeout=180).text
    ok(stack.sweepctl(*gone, timeout=120))
    ok(stack.destroy(timeout=180))
    assert stack.sweepctl("status", "--json", timeout=120).json()["boxes"] == []


@pytest.mark.proof
def test_a_person_says_that_a_node_is_off_and_its_cell_goes_on(tmp_path: Path) -> None:
    """Until then nothing frees it; and it is refused while the cluster shows that the worker runs."""
    with KubernetesCluster.start(tmp_path / "cluster", nodes=2) as cluster:
        stack = KubeStack(tmp_path / "s", cluster=cluster, cells=("seed0", "seed1"))
        try:
            stack.write_config()
            stack.init()
            stack.hold("seed0")
            ok(stack.up(timeout=300))
            until(lambda: stack.sealed() == {"seed1"}, "seed1", told=cluster.told)
            worker = next(one["worker"] for one in _journal(stack) if one.get("cell") == "seed0")
            (pod,) = (one for one in cluster.admin.list(PODS) if f"{one['metadata']['uid']}.0" == worker)
            until(lambda: len(_running_workers(cluster)) == 1, "end of the other worker", told=cluster.told)
            says = ("confirm", "worker", "box-0", worker, "--saw", "its fan is burnt", "--by", "ann")
            refused = stack.sweepctl(*says, timeout=120)
            assert refused.rc == 1, refused
            assert "runs, as the cluster shows it" in " ".join(refused.text.split()), refused

            node = cluster.nodes[pod["spec"]["nodeName"]]
            node.power_off()
            node.await_ready(False)
            stack.release()
            until(lambda: not _is_ready(cluster.admin.get(f"{PODS}/{pod['metadata']['name']}")), "the silent pod")
            status = stack.sweepctl("status", timeout=180)
            assert f'sweepctl confirm worker --stack {stack.name} box-0 {worker} --saw "…"' in status.text, status
            ok(stack.up(timeout=300))
            assert stack.sealed() == {"seed1"}
            ok(stack.sweepctl(*says, timeout=180))
            ok(stack.up(timeout=300))
            until(lambda: stack.sealed() == {"seed0", "seed1"}, "seed0, in another pod", told=cluster.told)
            (proved,) = (one for one in _journal(stack) if one["event"] == "worker-ended")
            assert (proved["worker"], proved["proof"]) == (worker, "ann saw: its fan is burnt")
            verify = ok(stack.sweepctl("pull", "--verify", "--json", timeout=180)).json()
            ok(stack.sweepctl("approve", verify["receipt"], timeout=120))
            ok(stack.up(timeout=180))
            ok(stack.destroy(timeout=200))
            assert stack.boxes_there() == []
        finally:
            stack.close()


def _is_verified_and_ends(stack: KubeStack, *, cells: int) -> None:
    ok(stack.sweepctl("pull", timeout=180))
    verify = ok(stack.sweepctl("verify", "--json", timeout=180)).json()
    assert (verify["verified"], verify["total"]) == (cells, cells)
    ok(stack.sweepctl("approve", verify["receipt"], timeout=120))
    ok(stack.up(timeout=180))
    ok(stack.destroy(timeout=180))


def _journal(stack: KubeStack) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (stack.folder / "box/data/sweep/journal.jsonl").read_bytes().splitlines()]


def _running_workers(cluster: KubernetesCluster) -> list[str]:
    pods = cluster.admin.list(PODS, labelSelector="sweepstack.dev/role=worker")
    return [one["metadata"]["name"] for one in pods if one["status"].get("phase") not in ("Succeeded", "Failed")]


def _is_ready(pod: dict[str, Any]) -> bool:
    found = {one["type"]: one["status"] for one in pod["status"].get("conditions", ())}
    return found.get("Ready") == "True"


def _is_shown_as_applied(stack: KubeStack, box: str) -> None:
    """What `show BOX --manifests` prints passes the server's strict dry run; what another manager set is told."""
    shown = stack.sweepctl("show", "box-0", "--manifests", timeout=120)
    assert (shown.rc, shown.err) == (0, ""), shown
    took = _kubectl(
        stack, "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-", given=shown.out
    )
    assert took.returncode == 0, took.stderr
    assert [line.split()[0].split("/")[0].split(".")[0] for line in took.stdout.splitlines()] == [
        "persistentvolumeclaim", "job", "validatingadmissionpolicy", "validatingadmissionpolicybinding",
    ]  # fmt: skip
    job = f"{box}-1"
    _kubectl(stack, "patch", "job", job, "-p", '{"spec":{"parallelism":1}}', "--field-manager=argo")
    _kubectl(stack, "annotate", "pvc", claim_name(box), "sweepstack.dev/name=x", "--overwrite", "--field-manager=flux")
    shown = stack.sweepctl("show", "box-0", "--manifests", timeout=120)
    told = " ".join(shown.err.split())
    assert f"spec.parallelism of the Job {job} was set by argo: it is left so" in told, shown
    assert f"annotations[sweepstack.dev/name] of the PersistentVolumeClaim {claim_name(box)} was set by flux" in told, (
        shown
    )
    took = _kubectl(stack, "apply", "--server-side", "--dry-run=server", "-f", "-", given=shown.out)
    assert 'conflict with "argo"' in took.stderr, took
    assert f"{job} has another parallelism" in " ".join(stack.sweepctl("status", timeout=120).text.split())
    _kubectl(stack, "patch", "job", job, "-p", '{"spec":{"parallelism":2}}', "--field-manager=argo")
    _kubectl(
        stack, "annotate", "pvc", claim_name(box), "sweepstack.dev/name=box-0", "--overwrite", "--field-manager=flux"
    )


def _kubectl(stack: KubeStack, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    argv = ["kubectl", "--kubeconfig", str(stack.cluster.kubeconfig), "-n", NAMESPACE, *words]
    return subprocess.run(argv, input=given, capture_output=True, text=True, timeout=60, check=False)
