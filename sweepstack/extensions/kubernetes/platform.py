"""Clusters that run Kubernetes: a box is a claim of storage, and pods are the workers of its queue.

Everything is asked of the API server, as the person's kubeconfig reaches it. Inputs and state name the adapter with its
namespace and context, `kubernetes:NAMESPACE/CONTEXT`. The account is the namespace's own id: what a cluster lacks
proves nothing where that is another one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar

from sweepstack.core.box_end import Moves
from sweepstack.extensions.kubernetes import create, kept, manifests, objects, power, states, storage, workers_asked
from sweepstack.extensions.kubernetes.address import ADAPTER, Address, completed
from sweepstack.extensions.kubernetes.api import ID, MANAGED, MANAGER, Cluster, id_of, marks_of
from sweepstack.extensions.kubernetes.channel import PodChannel
from sweepstack.extensions.kubernetes.objects import ENDING, POWER, ROLE, TAG
from sweepstack.onbox.common.errors import ConfigError, PlatformError, RequestRefused, Unreachable, Unsupported
from sweepstack.onbox.host.capabilities import BeginsWithQueue, CanStop, HasManifests, IsCluster, TellsAhead
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, Wait

if TYPE_CHECKING:
    from sweepstack.onbox.agent.channel import Channel


def connect() -> KubernetesPlatform:
    """The platform without a cluster: it lists nothing, and every other method raises ConfigError."""
    return KubernetesPlatform(None)


def connect_to(address: str, moves: Moves | None = None) -> KubernetesPlatform:
    """The platform of one namespace, `NAMESPACE/CONTEXT`. Does not connect yet. Raises ConfigError."""
    return KubernetesPlatform(Address.parse(address))


def spelled(address: str, known: str = "") -> str:
    """See `sweepstack.platforms.registry.spelled`. `known`: what the state has, which counts for what the person leaves
    out: another current context moves no box."""
    asked = Address.parse(address)
    if known:
        kept = Address.parse(known)
        asked = Address(asked.namespace or kept.namespace, asked.context or kept.context)
        if asked == kept:  # another machine may call the cluster otherwise, and still look at its boxes
            return known
    return str(completed(asked))


def prove_same(address: str, former: str, native_id: str, account: str, host_keys: Sequence[str] | None) -> None:
    """See `sweepstack.platforms.registry.prove_same`: by the namespace's own id."""
    Cluster(Address.parse(address)).require(account)


class KubernetesPlatform(CanStop, IsCluster, HasManifests, TellsAhead, BeginsWithQueue):
    """See `sweepstack.onbox.host.platform.Platform`."""

    sees_all: ClassVar[bool] = True

    def __init__(self, address: Address | None) -> None:
        self.address = address
        self.name = f"{ADAPTER}:{address}" if address else ADAPTER
        self._cluster = Cluster(address) if address else None

    @property
    def cluster(self) -> Cluster:
        """Raises ConfigError without an address."""
        if self._cluster is None:
            raise ConfigError("a cluster has an address: kubernetes:NAMESPACE/CONTEXT")
        return self._cluster

    def account(self) -> str:
        return self.cluster.account()

    def find_by_tag(self, tag: str, account: str = "") -> BoxRecord | None:
        here = self.cluster.require(account)
        name = objects.name_of(tag)
        pvc = self.cluster.get("pvc", name)
        if pvc is None:
            found = self._record(states.former_of(self.cluster, name) or name, here)
            return None if found.phase is Phase.GONE else found
        if marks_of(pvc).get(TAG) != tag:
            raise Unreachable(f"the claim {name} in {self.cluster} has another tag: it is not ours, or was changed")
        return states.record(self.cluster, pvc, here)

    def create(self, request: BoxRequest, *, wait: Wait) -> BoxRecord:
        return create.create(self.cluster, request, wait, self._reach)

    def get(self, native_id: str, account: str) -> BoxRecord:
        return self._record(native_id, self._require(native_id, account))

    def _record(self, native_id: str, here: str) -> BoxRecord:
        pvc = kept.claim(self.cluster, native_id)
        return states.gone(self.cluster, native_id) if pvc is None else states.record(self.cluster, pvc, here)

    def begun(
        self, native_id: str, account: str, scheduler: Mapping[str, Any] | None, *, wait: Wait
    ) -> AbstractContextManager[None]:
        self._require(native_id, account)
        return create.begun(self.cluster, native_id, scheduler, wait, self._reach)

    def destroy(self, native_id: str, account: str) -> None:
        self._require(native_id, account)
        power.destroy(self.cluster, native_id)

    def stop(self, native_id: str, account: str) -> None:
        self._require(native_id, account)
        power.stop(self.cluster, native_id)

    def start(self, native_id: str, account: str, *, wait: Wait) -> BoxRecord:
        here = self._require(native_id, account)
        return power.start(self.cluster, native_id, here, wait, self._reach)

    def list_tagged(self, prefix: str) -> list[BoxRecord]:
        if self._cluster is None:
            return []
        there = self.cluster.list("pvc", f"{MANAGED}={MANAGER}")  # of two of a box the last one counts: its own
        found = {id_of(pvc): pvc for pvc in sorted(there, key=lambda pvc: ROLE not in pvc["metadata"]["labels"])}
        ours = [pvc for _, pvc in sorted(found.items()) if marks_of(pvc).get(TAG, prefix).startswith(prefix)]
        here = self.cluster.account()
        return [states.record(self.cluster, pvc, here) for pvc in ours]

    def refusals(self, scheduler: Mapping[str, Any]) -> list[str]:
        return workers_asked.refusals(self.cluster, scheduler)

    def ahead(self, resources: Mapping[str, Any]) -> list[str]:
        return storage.words(self.cluster, str(resources.get(create.STORAGE) or ""))

    def manifests(self, native_id: str, account: str) -> tuple[list[dict[str, Any]], list[str]]:
        self.cluster.require(account)
        return manifests.manifests(self.cluster, native_id)

    def power_off(self, native_id: str, account: str, command: str) -> None:
        raise Unsupported("a cluster is not shut down by a command of one box: end its node pool where it was rented")

    def who_answers(self) -> list[str]:
        return [self.cluster.account()]

    def pinned(self) -> list[str]:
        return []

    def channel(self, native_id: str, account: str) -> Channel:
        phase = self.get(native_id, account).phase
        if phase is Phase.ENDING:
            with contextlib.suppress(PlatformError):  # who needs its claim is told why it can't be kept
                kept.saved(self.cluster, native_id)
        if phase is Phase.GONE:
            raise Unreachable(f"the box {native_id} is gone: {self.cluster} has nothing of it")
        new = phase is Phase.CREATING
        return PodChannel(self.cluster, native_id, account, closed=lambda: self._closed(native_id), fresh=new)

    def _require(self, native_id: str, account: str) -> str:
        """See `Cluster.require`. Raises RequestRefused, too, for an id that is none of ours."""
        if not ID.fullmatch(native_id):
            raise RequestRefused(f"{native_id!r} is no id of a box on a cluster")
        return self.cluster.require(account)

    def _closed(self, native_id: str) -> str:
        """Why nothing may be started on the box now; "" when it may, or when the cluster can't be asked."""
        try:
            pvc = kept.claim(self.cluster, native_id)
        except PlatformError:
            return ""
        if pvc is None:
            return "is gone: nothing is started on it any more"
        marks = marks_of(pvc)
        if ENDING in marks:
            return "is being destroyed: nothing is started on it any more"
        return f"is {marks[POWER]}: nothing runs on it until it is started again" if POWER in marks else ""

    def _reach(self, native_id: str, wait: Wait) -> None:
        PodChannel(self.cluster, native_id, self.cluster.account(), wait=wait).prepare()
