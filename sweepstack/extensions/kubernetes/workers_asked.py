"""What the workers of a box ask of the cluster, and whether it would run them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sweepstack.extensions.kubernetes import jobs, pod_template, pods, storage
from sweepstack.extensions.kubernetes.api import KINDS, Cluster, NoNamespace, Object
from sweepstack.extensions.kubernetes.onbox.ends import is_ready
from sweepstack.extensions.kubernetes.pod_template import GRACE_SECONDS, NVIDIA, PodRequest
from sweepstack.extensions.kubernetes.storage import MOST_NAMED
from sweepstack.onbox.common.dataclass import dataclass, field, replace
from sweepstack.onbox.common.errors import NotAuthorized, PlatformError, RequestRefused
from sweepstack.onbox.common.units import amount_of, spell_bytes
from sweepstack.onbox.host.offers import same_gpu

NEEDED: tuple[tuple[str, str, str], ...] = (
    *((verb, kind, "") for kind in ("pvc", "job", "pod") for verb in ("get", "list", "create", "patch", "delete")),
    ("get", "pod", "log"),
    ("create", "pod", "exec"),
    ("get", "pod", "exec"),
    ("list", "event", ""),
    ("get", "namespace", ""),
)
"""Verb, kind and subresource that a person needs here."""
PREVIEW = "sweepstack-preview"


@dataclass(frozen=True)
class WorkersAsked:
    """`workers`: how many at once. `pods`: what their pods are like (`pod_template.template`). `gpu_names`: of which
    one must match; `pod`: what each asks for, but for the names of its GPUs; `record`: see `objects.record_of`."""

    workers: int = 1
    pods: dict[str, Any] = field(default_factory=dict)
    gpu_names: tuple[str, ...] = ()
    pod: PodRequest = field(default_factory=PodRequest)
    record: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, facts: Mapping[str, Any], *, one_node: bool = False) -> WorkersAsked:
        """Of a queue's `scheduler` input. Raises RequestRefused for what is none."""
        try:
            known = dict(facts.get("pods") or {})
            grace = facts.get("grace_seconds")
            kind = (str(known.get("gpu_resource") or NVIDIA[0]), str(known.get("gpu_label") or NVIDIA[1]))
            asked = PodRequest(
                cpu=float(facts["cpu"]) if facts.get("cpu") else None,
                memory=int(facts["memory_bytes"]) if facts.get("memory_bytes") else None,
                gpus=int(facts.get("gpus") or 0),
                gpu_kind=kind,
                grace=GRACE_SECONDS if grace is None else float(grace),
                one_node=one_node,
                nodes=int(facts.get("nodes") or 1),
            )
            names = tuple(str(name) for name in facts.get("gpu_names") or ())
            return cls(int(facts.get("workers") or 1), known, names, asked)
        except (TypeError, ValueError) as error:
            raise RequestRefused(f"what the workers ask for can't be read: {error}") from error

    def placed(self, nodes: Sequence[Object] | None) -> PodRequest:
        """What a pod asks for, with the values of the nodes' label that the names of the GPUs mean. `nodes`: None where
        they can't be listed: then a name is taken for such a value."""
        if not (self.pod.gpus and self.gpu_names):
            return self.pod
        found = products(nodes or (), self.gpu_names, self.pod.gpu_kind[1])
        spelled = dict.fromkeys(name.replace(" ", "-") for name in self.gpu_names)
        return replace(self.pod, gpu_products=tuple(found or spelled))


def products(nodes: Sequence[Object], names: Sequence[str], label: str) -> list[str]:
    """The values of this label that one of the names means, sorted."""
    there = {str(value) for node in nodes if (value := labels_of_node(node).get(label))}
    return sorted(value for value in there if any(same_gpu(name, value.replace("-", " ")) for name in names))


def labels_of_node(node: Object) -> Mapping[str, Any]:
    return node["metadata"].get("labels") or {}


def nodes_of(cluster: Cluster) -> list[Object] | None:
    """All nodes; None where this user may not list them. Raises Unreachable."""
    try:
        return cluster.list("node")
    except NotAuthorized:
        return None


def refusals(cluster: Cluster, scheduler: Mapping[str, Any]) -> list[str]:
    """Why the cluster would not run such workers, each with the key and the fix; empty where nothing is known against
    it. The server itself judges the very Job and pod, in a dry run: nothing is made. Raises Unreachable."""
    asked = WorkersAsked.of(scheduler)
    if lacks := pod_template.refusals(asked.pods) or _rights(cluster):
        return lacks
    try:
        cluster.account()
    except NoNamespace as error:
        return [str(error)]
    nodes = nodes_of(cluster)
    found = [*storage.refusals(cluster, asked.pod.nodes), *_names(cluster, asked.pods)]
    if nodes is not None and "nodeSelector" not in str(asked.pods.get("pod") or ""):
        found += _fits(asked, nodes)
    if found:
        return found
    job = jobs.worker_job(PREVIEW, 1, asked.workers, asked.pods, asked.placed(nodes))
    pod = dict(job["spec"]["template"], apiVersion="v1", kind="Pod")
    pod["metadata"] = {**pod["metadata"], "generateName": f"{PREVIEW}-"}
    for kind, body in (("job", job), ("pod", pod)):
        try:
            cluster.create(kind, body, dry_run=True)
        except RequestRefused as error:
            found.append(pods.refused(str(error)))
    return found[:1]


def _rights(cluster: Cluster) -> list[str]:
    """What this user may not do here, and has to."""
    lacks = [
        f"{verb} {KINDS[kind][1]}{f'/{subresource}' if subresource else ''}"
        for verb, kind, subresource in NEEDED
        if not cluster.may(verb, kind, subresource=subresource)
    ]
    said = (
        f"you may not {', '.join(lacks)} in {cluster}: ask who runs it for a Role with these rights, or write another "
        "overrides.kubernetes.context or namespace"
    )
    return [said] if lacks else []


def _names(cluster: Cluster, known: Mapping[str, Any]) -> Iterator[str]:
    """Names of objects that a stack has, and the cluster does not. What this user may not read is not judged."""
    for key, kind, what in (
        ("service_account", "serviceaccount", "service account"),
        ("priority_class", "priorityclass", "priority class"),
        ("queue", "localqueue", "local queue of Kueue"),
    ):
        name = str(known.get(key) or "")
        if not name:
            continue
        there: list[str] = []
        try:
            if cluster.get(kind, name) is not None:
                continue
        except PlatformError:
            continue  # the dry run has the last word
        with contextlib.suppress(PlatformError):  # Kueue is not there at all, say
            there = sorted(str(one["metadata"]["name"]) for one in cluster.list(kind))[:MOST_NAMED]
        has = f"; it has {', '.join(there)}" if there else ""
        yield f"overrides.kubernetes.{key}: {cluster} has no {what} {name}{has}"


def _fits(asked: WorkersAsked, nodes: Sequence[Object]) -> list[str]:
    """Whether one node is large enough for one worker, were it empty; else what the nearest has."""
    label = asked.pod.gpu_kind[1]
    fitting = [node for node in nodes if is_ready(node)]
    if not fitting:
        return ["no node of the cluster is ready (kubectl get nodes); for such made on demand write pod.nodeSelector"]
    hint = "; for nodes that are made on demand write overrides.kubernetes.pod.nodeSelector, and none is looked at"
    if asked.pod.gpus and asked.gpu_names:
        wanted = products(fitting, asked.gpu_names, label)
        if not wanted:
            has = sorted({str(labels_of_node(node)[label]) for node in fitting if label in labels_of_node(node)})
            there = f"its nodes have {', '.join(has[:MOST_NAMED])}" if has else f"no node has the label {label}"
            return [f"resources.gpu: the cluster has no {' or '.join(asked.gpu_names)}: {there}{hint}"]
        fitting = [node for node in fitting if labels_of_node(node).get(label) in wanted]
    needs: list[tuple[str, str, float, Any]] = [
        (asked.pod.gpu_kind[0], "resources.gpu", float(asked.pod.gpus), "{:g}".format),
        ("cpu", "resources.cpu", asked.pod.cpu or 0.0, "{:g}".format),
        ("memory", "resources.memory", float(asked.pod.memory or 0), spell_bytes),
    ]
    for resource, key, wanted_amount, spell in needs:
        left = [node for node in fitting if amount(node, resource) >= wanted_amount]
        if not left:
            most = max(fitting, key=lambda node: amount(node, resource))
            name, has_amount = most["metadata"]["name"], amount(most, resource)
            return [
                f"{key}: a worker asks for {spell(wanted_amount)}, and the largest node that has the rest, {name}, "
                f"gives pods {spell(has_amount)} of {resource}{hint}"
            ]
        fitting = left
    return []


def amount(node: Object, resource: str) -> float:
    """What a node gives to all of its pods."""
    return amount_of(str(((node.get("status") or {}).get("allocatable") or {}).get(resource, "0")))
