"""Says whether a worker of a box may still run, as the cluster sees it: one line of JSON.

    worker_state.py NATIVE_ID HOME JOB TRY      {"state": "running" | "ended" | "unknown", "why": "…", "memory": "…"}

JOB is the uid of the worker's pod. The API server is asked with the service account of this pod, which may have no
right to that. So what a command on a person's machine was shown of a pod's end lies below HOME, too: written once the
node of that pod had told it (`ends`). A pod that the API server shows no more, and of which there is no such record, is
unknown. `memory`: that the cluster ended it for want of memory, and what to do; "" where nothing says so.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any, Mapping

from sweepstack.onbox.common.errors import NotAuthorized, SweepstackError

from . import api_server, ends
from .pilot import HELD, NAMESPACE

RECORDS = "api/ended"
"""Below HOME: a file `<uid>.json` for each pod whose end a command was shown."""
LABEL = "sweepstack.dev/box"
_UID = re.compile(r"[A-Za-z0-9-]{1,64}")
CONFIRM = 'sweepctl confirm worker BOX {worker} --saw "…"'


def record_of(pod: Mapping[str, Any], why: str) -> bytes:
    """The content of such a file, for a pod that is proved to have ended."""
    known = {
        "state": ends.ENDED,
        "why": why,
        "memory": ends.for_memory(pod),
        "pod": str(pod["metadata"]["name"]),
        "uid": str(pod["metadata"]["uid"]),
    }
    return json.dumps(known, sort_keys=True).encode() + b"\n"


def told(native_id: str, home: Path, job: str) -> dict[str, str]:
    """`state`, `why` and `memory`; see above. One of several pods has ended once all have. Never raises."""
    found = _told(native_id, home, job)
    if found["state"] == ends.ENDED:
        try:
            others = json.loads((home / HELD / f"{job}.json").read_bytes())["nodes"]
            held = {str(name): str(one["id"]) for name, one in others.items()}
        except FileNotFoundError:
            return found  # of one pod; or of several, and no worker began yet
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            return {
                **found,
                "state": ends.UNKNOWN,
                "why": f"which other pods it had does not read: {error}{_free(job)}",
            }
        for name, uid in held.items():
            one = _told(native_id, home, uid, of=job)
            if one["state"] != ends.ENDED:
                return {**one, "why": f"its other pod {name} has not ended, as far as is known: {one['why']}"}
    return found


def _told(native_id: str, home: Path, job: str, of: str = "") -> dict[str, str]:
    """The same of one pod. `of`: the first one of its worker."""
    if not _UID.fullmatch(job):
        return {"state": ends.UNKNOWN, "why": f"{job!r} is no pod's uid", "memory": ""}
    found = _recorded(home, job)
    if found is not None:
        return found
    pod: Mapping[str, Any] | None = None
    try:
        shown = api_server.pods(os.environ.get(NAMESPACE, ""), f"{LABEL}={native_id}")
        pod = next((one for one in shown if one["metadata"]["uid"] == job), None)
    except (SweepstackError, KeyError, TypeError) as error:
        return {"state": ends.UNKNOWN, "why": f"{error}{_free(of or job)}", "memory": ""}
    if pod is None:
        why = f"the API server shows the pod {job} no more, and no command saw its end{_free(of or job)}"
        return {"state": ends.UNKNOWN, "why": why, "memory": ""}
    state, why = ends.judged(pod, _node_of(pod), time.time())
    why += _free(of or job) if state == ends.UNKNOWN else ""
    return {"state": state, "why": why, "memory": ends.for_memory(pod)}


def _free(job: str) -> str:
    return (
        ". A command that shows the cluster's word may free it (sweepctl status, pulumi up); else, once you have seen "
        f"that it is off: {CONFIRM.format(worker=f'{job}.0')}"
    )


def _recorded(home: Path, job: str) -> dict[str, str] | None:
    try:
        known = json.loads((home / RECORDS / f"{job}.json").read_bytes())
        if known["state"] == ends.ENDED and known["uid"] == job:
            return {"state": ends.ENDED, "why": str(known["why"]), "memory": str(known.get("memory", ""))}
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _node_of(pod: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """None where this pod may not ask, or gets no answer."""
    name = str((pod.get("spec") or {}).get("nodeName") or "")
    if not name:
        return None
    try:
        found = api_server.node(name)
    except (NotAuthorized, SweepstackError):
        return None
    return ends.NO_NODE if found is None else found


def main(argv: list[str]) -> int:
    """Prints the answer. Returns 0, or 2 for wrong arguments."""
    if len(argv) != 5:
        sys.stderr.write("four arguments: the box's id, its home, the uid of the worker's pod, its try\n")
        return 2
    print(json.dumps(told(argv[1], Path(argv[2]), argv[3])))
    return 0
