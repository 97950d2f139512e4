"""The gate inside the cluster: a policy that refuses the delete of a claim that is not cleared.

It prevents; the finalizer on the claim (`objects.HOLD`) saves what was deleted all the same. Both are let go by the
same mark, which only `destroy` sets: that runs after the gate of the sweep. The policy holds for the whole cluster, and
for claims that carry our label alone. Where the user may not install one, the finalizer is what holds.
"""

from __future__ import annotations

from sweepstack.extensions.kubernetes.api import BOX, MANAGED, MANAGER, PREFIX, Cluster, Object
from sweepstack.extensions.kubernetes.objects import ENDING, HOLD, NAME
from sweepstack.onbox.common.canonical import canonical_json, sha256_hex
from sweepstack.onbox.common.errors import PlatformError

POLICY = "sweepstack-hold"
VERSION = f"{PREFIX}version"
_CLEARED = f"has(oldObject.metadata.annotations) && '{PREFIX}{ENDING}' in oldObject.metadata.annotations"
_HELD = f"has(oldObject.metadata.finalizers) && '{HOLD}' in oldObject.metadata.finalizers"
_KEEPS = f"object != null && has(object.metadata.finalizers) && '{HOLD}' in object.metadata.finalizers"
_WORDS = (
    "'this claim is the box ' + (has(oldObject.metadata.annotations) && '{name}' in oldObject.metadata.annotations ? "
    "oldObject.metadata.annotations['{name}'] : oldObject.metadata.name) + ' of a sweep, and its results were not "
    "cleared. Where its stack is: sweepctl status names what is missing; then sweepctl approve and pulumi destroy end "
    "it. To let it go without: sweepctl give-up data/BOX --reason, then pulumi destroy'"
).format(name=f"{PREFIX}{NAME}")


def policy() -> Object:
    """The policy, as it is applied."""
    ours = {"matchLabels": {MANAGED: MANAGER}, "matchExpressions": [{"key": BOX, "operator": "Exists"}]}
    core = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["persistentvolumeclaims"], "scope": "*"}
    matched = {  # whole, with the server's defaults: else who applies the same has a conflict
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": ours,
        "resourceRules": [{**core, "operations": ["DELETE", "UPDATE"]}],
    }
    may = f"({_CLEARED}) || (request.operation == 'UPDATE' && (!({_HELD}) || {_KEEPS}))"
    rules = [{"expression": may, "messageExpression": _WORDS, "reason": "Forbidden"}]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": POLICY, "labels": {MANAGED: MANAGER}},
        "spec": {"failurePolicy": "Fail", "matchConstraints": matched, "validations": rules},
    }


def binding() -> Object:
    """What puts the policy into force, in all namespaces."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": POLICY, "labels": {MANAGED: MANAGER}},
        "spec": {"policyName": POLICY, "validationActions": ["Deny"]},
    }


def objects() -> list[Object]:
    """Policy and binding, as they are applied."""
    found = [policy(), binding()]
    for body in found:
        body["metadata"]["annotations"] = {VERSION: _version()}
    return found


def _version() -> str:
    return sha256_hex(canonical_json([policy(), binding()]))[:12]


def install(cluster: Cluster) -> str:
    """Puts the policy into the cluster where this user may, unless it is there as it should be. Idempotent. Returns
    what it did, or why nothing, in words; "" where the policy was there. Never raises: what saves is the finalizer."""
    wanted = _version()
    try:
        there = [cluster.get(kind, POLICY) or {"metadata": {}} for kind in ("policy", "policybinding")]
        if all((one["metadata"].get("annotations") or {}).get(VERSION) == wanted for one in there):
            return ""
        if not all(cluster.may(verb, kind) for kind in ("policy", "policybinding") for verb in ("create", "patch")):
            return _without("this user may not install one")
        for kind, body in zip(("policy", "policybinding"), objects(), strict=True):
            cluster.apply(kind, POLICY, body)
    except PlatformError as error:
        return _without(str(error))
    return (
        f"installed the policy {POLICY} in the cluster {cluster.address.context}: a claim of a sweep is not deleted by "
        "hand before its results are cleared"
    )


def _without(why: str) -> str:
    return (
        f"no policy of the cluster refuses a delete of its claim by hand ({why}): one that is deleted stays, held by "
        f"{HOLD}, until the sweep's end is cleared"
    )
