"""Makes the claim of a box, and waits until a pod has it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sweepstack.extensions.kubernetes import gate, objects, states, storage, workers
from sweepstack.extensions.kubernetes.api import Cluster, Exists, Object, marks_of
from sweepstack.extensions.kubernetes.objects import FRESH, READY, TAG
from sweepstack.onbox.common.dataclass import replace
from sweepstack.onbox.common.errors import (
    NotAuthorized,
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
Reach = Callable[[str, Wait], None]


def create(cluster: Cluster, request: BoxRequest, wait: Wait, reach: Reach) -> BoxRecord:
    """See `Platform.create`. Its name is made of its tag: the server itself refuses a second one. `reach`: blocks until
    a pod has the box, and makes its folders. Raises what it raises as StillCreating, since the claim is there then."""
    if wait.cancelled.is_set():
        raise PlatformError(f"cancelled before {request.name} was made: nothing exists, nothing bills")
    name = objects.name_of(request.tag)
    pvc = cluster.get("pvc", name)
    if pvc is None:
        if former := states.former_of(cluster, name):
            left = states.left_of(cluster, former)
            raise NotYetGone(f"the box of {request.tag} is ending still: {', '.join(left) or former}")
        pvc = _made(cluster, request, name)
        wait.progress(f"{request.name}: made the claim {name} in {cluster}")
        if said := gate.install(cluster):
            wait.progress(f"{request.name}: {said}")
    elif marks_of(pvc).get(TAG) != request.tag:
        raise RequestRefused(f"{cluster} has a claim {name} with another tag, which is not ours: it is left as it is")
    found = states.record(cluster, pvc, cluster.account())
    if found.phase is Phase.ENDING:
        raise NotYetGone(f"the box of {request.tag} is being destroyed")
    if found.phase is Phase.CREATING and request.pods != objects.pods_of(pvc):  # mended, say
        cluster.patch("pvc", name, objects.mark(pods=objects.spelled(request.pods)))
    if found.phase is Phase.CREATING and not request.reach:
        return replace(found, phase=Phase.RUNNING)  # it needs no machine until its queue is there: `begun`
    return made_ready(cluster, found, wait, reach)


@contextlib.contextmanager
def begun(
    cluster: Cluster, native_id: str, scheduler: Mapping[str, Any] | None, wait: Wait, reach: Reach
) -> Iterator[None]:
    """See `BeginsWithQueue.begun`."""
    pvc = cluster.get("pvc", native_id)
    found = states.record(cluster, pvc, cluster.account()) if pvc is not None and FRESH in marks_of(pvc) else None
    if found is None or found.phase is not Phase.CREATING:
        yield
        return
    try:
        if scheduler and (said := workers.ask_first(cluster, native_id, scheduler)):
            wait.progress(f"{native_id}: {said}: its pod waits for its files")
        made_ready(cluster, found, wait, reach)
        yield
    finally:
        workers.take_back(cluster, native_id)


def made_ready(cluster: Cluster, found: BoxRecord, wait: Wait, reach: Reach) -> BoxRecord:
    """The box, once a pod has it; at once where that was so before, or where it is stopped. Raises StillCreating."""
    if found.phase not in (Phase.CREATING, Phase.UNKNOWN):
        return found
    native_id = found.native_id
    try:
        if found.phase is Phase.UNKNOWN:
            raise Unreachable(found.note)
        reach(native_id, wait)
        for words in workers.of_claim(cluster, native_id):
            wait.progress(f"{native_id}: {words}")
        ready = cluster.get("pvc", native_id)
        if ready is None or READY not in marks_of(ready):
            raise Unreachable(f"the claim {native_id} is gone again")
        return states.record(cluster, ready, found.account)
    except PlatformError as error:
        raise StillCreating(native_id, found.outputs(), [f"{native_id} is not ready: {error}"]) from error


def _made(cluster: Cluster, request: BoxRequest, name: str) -> Object:
    asked = str(request.resources.get(STORAGE) or "")
    if lacks := storage.refusals(cluster, 2 if request.resources.get(objects.SHARED) else 1, asked):
        raise RequestRefused(f"nothing was made: {lacks[0]}")
    storage.words(cluster, asked)  # raises where there is no such class
    body = objects.claim(request, asked)
    request.asked(True)
    try:
        return cluster.create("pvc", body)
    except (Exists, OutcomeUnknown) as error:  # another command was first, or an answer was lost
        if (found := cluster.get("pvc", name)) is not None:
            return found
        raise OutcomeUnknown(f"whether the claim {name} was made is not known: it is not there now: {error}") from error
    except (RequestRefused, NotAuthorized, Unreachable):
        request.asked(False)
        raise
