"""The loop on a real Kubernetes cluster, through `pulumi` and `sweepctl` alone; and what its own gate holds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

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
    assert stack.boxes_there() == [], "a preview makes nothing"

    stack.hold("seed0")
    up = ok(stack.up(timeout=300))
    assert "submitted 2 as" in up.text, up
    (box,) = stack.boxes_there()
    (seen,) = ok(stack.sweepctl("status", "--json", timeout=120)).json()["boxes"]
    assert (seen["native_id"], seen["phase"]) == (box, "running")
    assert_refused(stack.destroy(timeout=180))
    stack.edit_config(lambda sweep: sweep["cells"]["grid"].update(seed=[0, 1, 2, 3, 4]))
    ok(stack.up(timeout=180))
    stack.release()

    ok(stack.sweepctl("wait", "done", timeout=300))
    ok(stack.sweepctl("pull", timeout=180))
    verify = ok(stack.sweepctl("verify", "--json", timeout=180)).json()
    assert (verify["verified"], verify["total"]) == (5, 5)
    ok(stack.sweepctl("approve", verify["receipt"], timeout=120))
    ok(stack.up(timeout=180))
    ok(stack.destroy(timeout=180))
    assert stack.boxes_there() == []
    assert stack.cluster.admin.list(PODS) == []
    assert stack.cluster.admin.list(JOBS) == []


@pytest.mark.parametrize("what", ["claim", "namespace"])
def test_what_was_deleted_by_hand_is_verified_all_the_same(stack: KubeStack, what: str) -> None:
    """The policy refuses it, with our words. Where a person takes that away and goes on, the finalizer holds the claim,
    and its volume is read by another one."""
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
            admin.delete(claim if what == "claim" else f"/api/v1/namespaces/{NAMESPACE}")
        return "deletionTimestamp" in admin.get(claim)["metadata"]

    until(is_deleted, "the delete", told=stack.cluster.told)
    for pod in admin.list(PODS):
        admin.delete(f"{PODS}/{pod['metadata']['name']}")
    assert_refused(stack.destroy(timeout=180))
    ok(stack.sweepctl("pull", timeout=180))
    verify = ok(stack.sweepctl("verify", "--json", timeout=180)).json()
    assert (verify["verified"], verify["total"]) == (4, 4)
    ok(stack.sweepctl("approve", verify["receipt"], timeout=120))
    ok(stack.up(timeout=180))
    ok(stack.destroy(timeout=180))
    until(lambda: not admin.list(CLAIMS), "the end of the claim", told=stack.cluster.told)
