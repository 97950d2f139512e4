"""Makes the claim of a box, and waits until a pod reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from sweepstack.extensions.kubernetes import gate, objects, states
from sweepstack.extensions.kubernetes.api import Cluster, Exists, Object, marks_of
from sweepstack.extensions.kubernetes.objects import READY, TAG
from sweepstack.onbox.common.errors import (
    NotYetGone,
    OutcomeUnknown,
    PlatformError,
    RequestRefused,
    StillCreating,
    Unreachable,
)
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, Wait

STORAGE = "storage_class"
"""Of `BoxRequest.resources`."""


def create(cluster: Cluster, request: BoxRequest, wait: Wait, reach: Callable[[str, Wait], None]) -> BoxRecord:
    """See `Platform.create`. Its name is made of its tag: the server itself refuses a second one. `reach`: blocks until
    a pod has the box, and makes its folders. Raises what it raises as StillCreating, since the claim is there then."""
    if wait.cancelled.is_set():
        raise PlatformError(f"cancelled before {request.name} was made: nothing exists, nothing bills")
    native_id = objects.native_id_of(request.tag)
    pvc = cluster.get("pvc", native_id)
    if pvc is None:
        if left := states.left_of(cluster, native_id):
            raise NotYetGone(f"the box of {request.tag} is ending still: {', '.join(left)}")
        pvc = _made(cluster, request, native_id)
        wait.progress(f"{request.name}: made the claim {native_id} in {cluster}")
        if said := gate.install(cluster):
            wait.progress(f"{request.name}: {said}")
    elif marks_of(pvc).get(TAG) != request.tag:
        raise RequestRefused(
            f"{cluster} has a claim {native_id} that is not ours: it has another tag. Nothing was made, and it is left "
            "as it is"
        )
    found = states.record(cluster, pvc)
    if found.phase is Phase.ENDING:
        raise NotYetGone(f"the box of {request.tag} is being destroyed")
    if found.phase is not Phase.CREATING:
        return found
    if (asked := pods_asked(request)) and asked != objects.pods_of(pvc):  # its image was mended, say
        cluster.patch("pvc", native_id, objects.mark(pods=json.dumps(asked, sort_keys=True)))
    try:
        reach(native_id, wait)
        cluster.patch("pvc", native_id, objects.mark(ready_at=objects.now()))
        ready = cluster.get("pvc", native_id)
        if ready is None or READY not in marks_of(ready):
            raise Unreachable(f"the claim {native_id} is gone again")
    except PlatformError as error:
        raise StillCreating(native_id, found.outputs(), [f"{request.name} is not ready: {error}"]) from error
    return states.record(cluster, ready)


def _made(cluster: Cluster, request: BoxRequest, native_id: str) -> Object:
    body = objects.claim(request, pods_asked(request), str(request.resources.get(STORAGE) or ""))
    request.asked(True)
    try:
        return cluster.create("pvc", body)
    except Exists:
        pass  # another command was first
    except (RequestRefused, Unreachable):
        request.asked(False)
        raise
    except OutcomeUnknown:
        if cluster.get("pvc", native_id) is None:
            raise
    found = cluster.get("pvc", native_id)
    if found is None:
        raise OutcomeUnknown(f"whether the claim {native_id} was made is not known: it is not there now")
    return found


def pods_asked(request: BoxRequest) -> dict[str, Any]:
    """What a new box's pods are like, until its queue says more: the image, and what its resources have for it."""
    known = request.resources.get("pods")
    found: dict[str, Any] = {}
    if isinstance(known, str) and known:
        found = json.loads(known)
    elif isinstance(known, Mapping):
        found = dict(known)
    return {**found, **({"image": request.image} if request.image else {})}
