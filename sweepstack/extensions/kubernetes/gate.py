"""The gate inside the cluster: a policy that refuses the delete of a claim that is not cleared.

It prevents; the finalizer on the claim (`objects.HOLD`) saves what was deleted all the same. Both are let go by the
same mark, which only `destroy` sets: that runs after the gate of the sweep. The policy holds for the whole cluster, and
for claims that carry our label alone. Where the user may not install one, the finalizer is what holds.
"""

from __future__ import annotations

from sweepstack.extensions.kubernetes.api import BOX, MANAGED, MANAGER, PREFIX, Cluster, Object, marks_of
from sweepstack.extensions.kubernetes.objects import ENDING, HOLD, NAME
from sweepstack.onbox.common.canonical import canonical_json, sha256_hex
from sweepstack.onbox.common.errors import PlatformError

POLICY = "sweepstack-hold"
VERSION = "version"
_CLEARED = f"has(oldObject.metadata.annotations) && '{PREFIX}{ENDING}' in oldObject.metadata.annotations"
_HELD = f"has(oldObject.metadata.finalizers) && '{HOLD}' in oldObject.metadata.finalizers"
_KEEPS = f"object != null && has(object.metadata.finalizers) && '{HOLD}' in object.metadata.finalizers"
_WORDS = (
    "'this claim is the box ' + (has(oldObject.metadata.annotations) && '{name}' in oldObject.metadata.annotations ? "
    "oldObject.metadata.annotations['{name}'] : oldObject.metadata.name) + ' of a sweep, and its results were not "
    "cleared. Where its stack is: sweepctl status names what is missing; then sweepctl approve and pulumi destroy end "
    "it. To let it go without: sweepctl give-up data/BOX --reason, then pulumi destroy'"
).format(name=f"{PREFIX}{NAME}")


def objects() -> list[Object]:
    """The policy, and the binding that puts it into force in all namespaces, as they are applied."""
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
    specs: dict[str, Object] = {
        "ValidatingAdmissionPolicy": {"failurePolicy": "Fail", "matchConstraints": matched, "validations": rules},
        "ValidatingAdmissionPolicyBinding": {"policyName": POLICY, "validationActions": ["Deny"]},
    }
    version = sha256_hex(canonical_json(specs))[:12]
    metadata = {"name": POLICY, "labels": {MANAGED: MANAGER}, "annotations": {f"{PREFIX}{VERSION}": version}}
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": metadata}
    return [{**head, "kind": kind, "spec": spec} for kind, spec in specs.items()]


def install(cluster: Cluster) -> str:
    """Puts the policy into the cluster where this user may, unless it is there as it should be. Idempotent. Returns
    what it did, or why nothing, in words; "" where the policy was there. Never raises: what saves is the finalizer."""
    wanted = dict(zip(("policy", "policybinding"), objects(), strict=True))
    try:
        there = {kind: marks_of(cluster.get(kind, POLICY) or {}).get(VERSION) for kind in wanted}
        if all(there[kind] == marks_of(body)[VERSION] for kind, body in wanted.items()):
            return ""
        if not all(cluster.may(verb, kind) for kind in wanted for verb in ("create", "patch")):
            return _without("this user may not install one")
        for kind, body in wanted.items():
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
