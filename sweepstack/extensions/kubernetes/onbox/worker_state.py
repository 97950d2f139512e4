"""Says whether a worker of a box may still run, as the cluster sees it: one line of JSON.

    worker_state.py NATIVE_ID HOME JOB TRY      {"state": "running" | "ended" | "unknown", "why": "…", "memory": "…",
                                                 "lacks": "…"}

JOB is the uid of the worker's pod. The API server is asked with the service account of this pod, which may have no
right to that. So what a command on a person's machine was shown of a pod's end lies below HOME, too: written once the
node of that pod had told it (`ends`). A pod that the API server shows no more, and of which there is no such record, is
unknown. `memory`: that the cluster ended it for want of memory, and what to do; "" where nothing says so. `lacks`:
which other pod of the worker has not ended, as far as is known, and what to do; "" where each has, or there is none.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any, Mapping, Sequence

from sweepstack.onbox.common.errors import SweepstackError

from . import api_server, ends
from .pilot import HELD, NAMESPACE

RECORDS = "api/ended"
"""Below HOME: a file `<uid>.json` for each pod whose end a command was shown."""
LABEL = "sweepstack.dev/box"
_UID = re.compile(r"[A-Za-z0-9-]{1,64}")


def record_of(pod: Mapping[str, Any], why: str) -> bytes:
    """The content of such a file, for a pod that is proved to have ended."""
    about = {"pod": str(pod["metadata"]["name"]), "uid": str(pod["metadata"]["uid"]), "why": why}
    known = {"state": ends.ENDED, "memory": ends.for_memory(pod), **about}
    return json.dumps(known, sort_keys=True).encode() + b"\n"


def told(native_id: str, home: Path, job: str) -> dict[str, str]:
    """See above. A worker of several pods has ended once all of them have. Never raises."""
    if not _UID.fullmatch(job):
        return {"state": ends.UNKNOWN, "why": f"{job!r} is no pod's uid", "memory": "", "lacks": ""}
    others, unread = _others(home, job)
    uids = [job, *others.values()]
    found = {uid: known for uid in uids if (known := _recorded(home, uid)) is not None}
    if len(found) < len(uids):
        found.update(_shown(native_id, [uid for uid in uids if uid not in found], _box(home)))
    said = dict(found[job], lacks="")
    if unread and said["state"] == ends.ENDED:
        said.update(state=ends.UNKNOWN, why=f"{unread}{_free(job, _box(home))}")
    for name, uid in others.items():
        one = found[uid]
        said["memory"] = said["memory"] or one["memory"]
        if one["state"] != ends.ENDED and not said["lacks"]:
            said["lacks"] = f"its other pod {name} has not ended, as far as is known: {one['why']}"
            if said["state"] == ends.ENDED:
                said.update(state=one["state"], why=said["lacks"])
    return said


def _others(home: Path, job: str) -> tuple[dict[str, str], str]:
    """The other pods of a worker, name → uid; and in words why that does not read. Of one pod, or of several in which
    no worker began yet, there is no record."""
    try:
        nodes = json.loads((home / HELD / f"{job}.json").read_bytes())["nodes"]
        return {str(name): str(one["id"]) for name, one in nodes.items()}, ""
    except FileNotFoundError:
        return {}, ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return {}, f"which other pods it had does not read: {error}"


def _shown(native_id: str, uids: Sequence[str], box: str) -> dict[str, dict[str, str]]:
    """What the API server shows of these pods, by their uids. It is asked once: one that is silent takes its time."""
    shown: dict[str, Mapping[str, Any]] = {}
    nodes: dict[str, Mapping[str, Any]] = {}
    why = ""
    try:
        pods = api_server.pods(os.environ.get(NAMESPACE, ""), f"{LABEL}={native_id}")
        shown = {str(pod["metadata"]["uid"]): pod for pod in pods}
    except (SweepstackError, KeyError, TypeError) as error:
        why = str(error)
    with contextlib.suppress(SweepstackError):  # it may not ask, or gets no answer: then none is known
        for name in sorted({ends.node_of(shown[uid]) for uid in uids if uid in shown} - {""}):
            node = api_server.node(name)
            nodes[name] = ends.NO_NODE if node is None else node
    found = {}
    for uid in uids:
        state, memory = ends.UNKNOWN, ""
        said = why or f"the API server shows the pod {uid} no more, and no command saw its end"
        if (pod := shown.get(uid)) is not None:
            state, said = ends.judged(pod, nodes.get(ends.node_of(pod)), time.time())
            memory = ends.for_memory(pod)
        said += _free(uid, box) if state == ends.UNKNOWN else ""
        found[uid] = {"state": state, "why": said, "memory": memory}
    return found


def _free(uid: str, box: str) -> str:
    return (
        ". A command that shows the cluster's word may free it (sweepctl status, pulumi up); else, once you have seen "
        f'that it is off: sweepctl confirm worker {box} {uid}.0 --saw "…"'
    )


def _box(home: Path) -> str:
    """The name of the box in the stack config."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads((home / "spec.json").read_bytes())["box"])
    return "BOX"


def _recorded(home: Path, job: str) -> dict[str, str] | None:
    try:
        known = json.loads((home / RECORDS / f"{job}.json").read_bytes())
        if known["state"] == ends.ENDED and known["uid"] == job:
            return {"state": ends.ENDED, "why": str(known["why"]), "memory": str(known.get("memory", ""))}
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def main(argv: list[str]) -> int:
    """Prints the answer. Returns 0, or 2 for wrong arguments."""
    if len(argv) != 5:
        sys.stderr.write("four arguments: the box's id, its home, the uid of the worker's pod, its try\n")
        return 2
    print(json.dumps(told(argv[1], Path(argv[2]), argv[3])))
    return 0
