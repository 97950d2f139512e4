"""What the cluster says of a box, as our records."""

from __future__ import annotations

from sweepstack.extensions.kubernetes import jobs, kept, objects
from sweepstack.extensions.kubernetes.api import BOX, PREFIX, Cluster, Object, claim_name, id_of, labels_of, marks_of
from sweepstack.extensions.kubernetes.objects import ENDING, MADE, POWER, PRICE, READY, TAG
from sweepstack.onbox.host.platform import BoxRecord, Phase
from sweepstack.platforms.common.json_values import moment, number

DELETED = (
    "its claim or namespace was deleted by hand, and only our hold keeps it. Nothing of it is lost yet, and pull and "
    "verify read it by another claim of its volume"
)


def record(cluster: Cluster, pvc: Object, account: str) -> BoxRecord:
    """The box of this claim. `account`: the cluster's, as it was just asked for. Raises Unreachable."""
    marks = marks_of(pvc)
    phase, note = _phase(cluster, pvc, marks)
    for job in cluster.list("job", labels_of(id_of(pvc))) if phase is Phase.STOPPED else ():
        if not jobs.is_finished(job):
            phase, note = Phase.RUNNING, f"a person let its Job {job['metadata']['name']} go on after the stop"
    return BoxRecord(
        native_id=id_of(pvc),
        tag=marks.get(TAG, ""),
        account=account,
        phase=phase,
        price_per_hour=number(objects.read(pvc, PRICE)),
        created_at=moment(marks.get(MADE, "")),
        location=f"the claim {pvc['metadata']['name']} in {cluster}",
        note=note,
        started_at=moment(marks.get(READY, "")),
    )


def gone(cluster: Cluster, native_id: str) -> BoxRecord:
    """The record of a box that no claim is known by: gone once nothing is left that carries its id. Raises
    Unreachable."""
    here = cluster.account()  # the namespace itself is there: else nothing that it lacks proves anything
    phase, note = Phase.GONE, "no object of the cluster has its id"
    if left := left_of(cluster, native_id):
        phase, note = Phase.ENDING, f"its claim was deleted by hand, and our hold with it; left: {', '.join(left)}"
    return BoxRecord(native_id, "", here, phase, None, None, f"{cluster}", note)


def left_of(cluster: Cluster, native_id: str) -> list[str]:
    """The Jobs and pods of a box that are there, in words. Raises Unreachable."""
    return [
        f"{kind} {one['metadata']['name']}"
        for kind in ("job", "pod")
        for one in cluster.list(kind, labels_of(native_id))
    ]


def former_of(cluster: Cluster, claim: str) -> str:
    """The id of a box that had this claim, and of which Jobs, pods or a kept claim are left; "" for none. Raises
    Unreachable."""
    for kind in ("job", "pod", "pvc"):
        for one in cluster.list(kind, BOX):
            if claim_name(native_id := str(one["metadata"]["labels"][BOX])) == claim != native_id:
                return native_id
    return ""


def _phase(cluster: Cluster, pvc: Object, marks: dict[str, str]) -> tuple[Phase, str]:
    if ENDING in marks:
        return Phase.ENDING, ""
    lost = objects.phase_of(pvc) == "Lost"
    if objects.deleted(pvc) or kept.WHERE in marks or (lost and kept.ends(cluster)):
        note = DELETED
    else:
        note = "" if not lost else "its volume is lost: the cluster has none any more for its claim"
    if (power := marks.get(POWER, "stopped")) not in ("stopping", "stopped"):
        return Phase.UNKNOWN, f"its claim says {PREFIX}{POWER}: {power}, which no version of this program writes"
    if POWER in marks:
        return Phase.STOPPING if power == "stopping" else Phase.STOPPED, note
    if lost and note != DELETED:
        return Phase.FAILED, note
    return (Phase.RUNNING, note) if READY in marks or note else (Phase.CREATING, note)
