"""Brings the workers of a box, ends them, and says how it is with them.

All of it begins with a look at what is there: a Job's name has a number, so the server itself refuses a second one of
two commands. A pod's object stays, by our finalizer, until what it says of its end is on record below the box's home:
there the other workers find it, whose pods may have no right to ask.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweepstack.channel import agent_source
from sweepstack.extensions.kubernetes import jobs, kept, objects, pods, standing, workers_asked
from sweepstack.extensions.kubernetes.api import PREFIX, Cluster, Conflict, Exists, Object, change, let_go, marks_of
from sweepstack.extensions.kubernetes.objects import ENDING, HOLD, POWER
from sweepstack.extensions.kubernetes.onbox import ends
from sweepstack.extensions.kubernetes.onbox.worker_state import RECORDS, record_of
from sweepstack.extensions.kubernetes.pod_template import SEEN
from sweepstack.extensions.kubernetes.reader import FIRST
from sweepstack.extensions.kubernetes.standing import Standing, uid_of
from sweepstack.extensions.kubernetes.workers_asked import WorkersAsked
from sweepstack.onbox.common.canonical import canonical_json, sha256_hex
from sweepstack.onbox.common.dataclass import replace
from sweepstack.onbox.common.errors import NotYetGone, OutcomeUnknown, PlatformError, RequestRefused, Unreachable

Keep = Callable[[Mapping[str, bytes]], None]
"""Writes files below the box's home, path → content, and returns once they are there. Raises Unreachable."""
ASKED = "asked"
"""An annotation of a Job: a digest of what its pods ask for."""
TRACKED = "batch.kubernetes.io/job-tracking"
"""The Job controller's own finalizer on pods. It waits for the node, also where a person said that it is off; and as
long as the object is there, no other pod of the box is put on another node."""
SHIPPED = ("common", "kubernetes")
"""The folders of code that pods get."""
LOOKS, POLL_SECONDS = 5, 0.5
SURE_SECONDS = 1.0
"""Between the two looks that prove that no pod of a box is left."""
MOST_EVENTS = 4
"""Of pods that wait, so many are asked about."""
MOST_NAMED = 3


def pilot_files() -> list[tuple[str, Path, int]]:
    """What a pod runs: (path in its folder, source, mode). `pilot.py` starts a worker; `worker_state.py` says whether
    another one may still run. For `Channel.put_tree`, a folder a version."""
    own = Path(__file__).parent / "onbox"
    programs = [(f"{name}.py", own / "start.py", 0o644) for name in ("pilot", "worker_state")]
    return [*programs, *agent_source.files(*SHIPPED)]


# -- brings them


def top_up(
    cluster: Cluster,
    native_id: str,
    account: str,
    scheduler: Mapping[str, Any],
    cells: int,
    keep: Keep | None = None,
    stopped: Callable[[], Mapping[str, str]] = dict,
) -> str:
    """Brings the workers that are missing: as many as there are cells to do, and `workers` at most, less those that are
    there. A Job that a person suspended stays so, and none is brought in its place. A Job that asks for something else
    than is asked for now, and none of whose pods began, is taken back. Idempotent. Returns in words what there is now.
    Call it once the queue has its cells, and `pilot.START` is there.

    `keep`: puts on record how pods ended, which then are let go. `stopped`: says which workers' ends the journal has
    (`ends_in`): one that has ended reads no line that comes later, also where the cluster shows its pod for a moment
    yet. Raises RequestRefused with what the cluster says against it; OutcomeUnknown: called again, it looks first."""
    cluster.require(account)
    asked = _asked(cluster, native_id, scheduler)
    new = native_id in FIRST
    FIRST.discard(native_id)
    for _ in range(LOOKS):
        seen = standing.look(cluster, native_id)
        _keep_ends(cluster, seen, keep)
        _clear(cluster, seen)
        with contextlib.suppress(Exists, Conflict):  # another command was first: look again
            ended = {} if new or not seen.may_run else stopped()  # no worker has written anything yet
            made = _bring(cluster, native_id, asked, min(asked.workers, cells), seen, ended)
            return "; ".join(filter(None, [_summary(cluster, standing.look(cluster, native_id)), made]))
    raise Unreachable(f"the Jobs of {native_id} are changed all the time by others: the same command again")


_TOLD = r"re.compile(b'\x22(runner-stopped|worker-ended)\x22')"
ENDS = f"import re, sys; sys.stdout.buffer.writelines(filter({_TOLD}.search, open(sys.argv[1], 'rb')))"
"""A program that prints the lines of a journal by which workers ended: its argument is the journal's path."""


def ends_in(lines: bytes) -> dict[str, str]:
    """Worker → why it ended, of what `ENDS` printed; "" where another wrote that down. What does not read is left out:
    that could only cost a worker that finds nothing to do."""
    found: dict[str, str] = {}
    for line in lines.splitlines():
        with contextlib.suppress(ValueError, KeyError, TypeError):
            entry = json.loads(line)
            if entry["event"] in ("runner-stopped", "worker-ended"):
                found[str(entry["worker"])] = str(entry.get("why", ""))
    return found


def ask_first(cluster: Cluster, native_id: str, scheduler: Mapping[str, Any]) -> str:
    """Asks for one worker of a box that no pod has had yet, before its files are there: its pod waits for them
    (`jobs.WAIT_SECONDS` at most) until `top_up`. Idempotent: one that an earlier command left is used. Returns in words
    what it asked for; "" where Kueue decides when it begins, or others of its worker come later. Raises as `top_up`."""
    asked = _asked(cluster, native_id, scheduler)
    if asked.pod.nodes > 1 or asked.pods.get("queue"):
        return ""
    FIRST.add(native_id)
    with contextlib.suppress(Exists, Conflict):  # another command was first
        return _bring(cluster, native_id, asked, 1, standing.look(cluster, native_id), {})
    return ""


def take_back(cluster: Cluster, native_id: str) -> None:
    """Ends the Jobs of `ask_first`, unless `top_up` was called since. Never raises: their pods end by themselves."""
    with contextlib.suppress(PlatformError):
        for job in standing.look(cluster, native_id).open_jobs if native_id in FIRST else ():
            change(cluster, "job", job["metadata"]["name"], lambda now: _closing(now, "its queue was not brought up"))
    FIRST.discard(native_id)


def _asked(cluster: Cluster, native_id: str, scheduler: Mapping[str, Any]) -> WorkersAsked:
    """What is asked for; the claim has it then, for its readers, too. Raises RequestRefused where none may begin."""
    claim = cluster.get("pvc", native_id)
    if claim is None:
        raise RequestRefused(f"the box {native_id} has no claim in {cluster}: no worker can begin")
    marks = marks_of(claim)
    if ENDING in marks or objects.deleted(claim):
        raise RequestRefused(f"the box {native_id} is being destroyed, or its claim was deleted: no worker can begin")
    if POWER in marks:
        raise RequestRefused(f"the box {native_id} is {marks[POWER]}: no worker begins until it is started again")
    asked = WorkersAsked.of(scheduler, one_node=not objects.is_shared(claim))
    if asked.pod.nodes > 1 and asked.pod.one_node:
        raise RequestRefused(
            f"job.nodes is {asked.pod.nodes}, and the box's claim {claim['metadata']['name']} is ReadWriteOnce: one "
            "node alone mounts it. A box that is made with job.nodes has one that is ReadWriteMany: make another one"
        )
    if asked.pods != objects.pods_of(claim):
        claim = cluster.patch("pvc", native_id, objects.mark(pods=objects.spelled(asked.pods))) or claim
    return replace(asked, record=objects.record_of(claim))


def _bring(
    cluster: Cluster, native_id: str, asked: WorkersAsked, wanted: int, seen: Standing, stopped: Mapping[str, str]
) -> str:
    """Brings what is missing; returns what it did. Raises Exists and Conflict where another command was first."""
    nodes = workers_asked.nodes_of(cluster) if asked.gpu_names else None
    body = jobs.worker_job(native_id, 1, 1, asked.pods, asked.placed(nodes))
    digest = sha256_hex(canonical_json(body["spec"]["template"]))[:16]
    done = [_take_back(cluster, job) for job in seen.open_jobs if _is_stale(job, digest, seen)]
    if done:
        seen = standing.look(cluster, native_id)
    slots = seen.slots(stopped)
    there = slots.live + slots.held + slots.queued
    missing = min(wanted - there, 2 * asked.workers - there - slots.lost)
    if missing <= 0:
        return "; ".join(done)
    same = [job for job in seen.open_jobs if marks_of(job).get(ASKED) == digest]
    room = next((job for job in same if _grows(job)), None)
    if room is not None:
        count = int(room["spec"]["completions"]) + missing
        grown = {"completions": count, "parallelism": count}
        version = {"resourceVersion": room["metadata"]["resourceVersion"]}
        cluster.patch("job", room["metadata"]["name"], {"metadata": version, "spec": grown})
        return "; ".join([*done, f"{room['metadata']['name']} has {missing} more"])
    number = max(map(jobs.number_of, seen.jobs), default=0) + 1
    for more, count in enumerate([1] * missing if asked.pod.nodes > 1 else [missing]):
        job = jobs.worker_job(native_id, number + more, count, asked.pods, asked.placed(nodes))
        job["metadata"]["annotations"] = {f"{PREFIX}{ASKED}": digest, **asked.record}
        done.append(_submit(cluster, job, count))
    return "; ".join(done)


def _grows(job: Object) -> bool:
    """Whether more may be asked of a Job: neither a person, nor Kueue, nor another tool decides how many it has."""
    as_made = job["spec"].get("parallelism", 1) == job["spec"].get("completions")
    return as_made and jobs.nodes_of(job) == 1 and not (jobs.is_suspended(job) or jobs.is_queued(job))


def _submit(cluster: Cluster, job: Object, count: int) -> str:
    name = str(job["metadata"]["name"])
    try:
        cluster.create("job", job)
    except OutcomeUnknown:
        if cluster.get("job", name) is None:
            raise
    except (Exists, Conflict):
        raise
    except RequestRefused as error:
        raise RequestRefused(f"nothing was submitted: {pods.refused(str(error))}") from error
    return f"submitted {count} as {name}"


def _is_stale(job: Object, digest: str, seen: Standing) -> bool:
    """Whether a Job asks for something else than is asked for now, and none of its pods has begun."""
    if marks_of(job).get(ASKED, digest) == digest or jobs.is_suspended(job):
        return False
    return not any(_has_begun(pod) for pod in seen.of_job(job) if uid_of(pod) not in seen.ended)


def _has_begun(pod: Object) -> bool:
    """Whether a process of a pod may run, or may have run."""
    if not ends.node_of(pod):
        return False
    told_ = objects.status_of(pod).get("containerStatuses") or [{}]
    return not all("waiting" in (one.get("state") or {}) and not one.get("restartCount") for one in told_)


def _take_back(cluster: Cluster, job: Object) -> str:
    """Ends a Job none of whose pods has begun. One that begins just now is told to end, and its cells are saved."""
    name = str(job["metadata"]["name"])
    cluster.patch("job", name, _closing(job, "asked for otherwise"))
    return f"took back {name}, which had not begun and asks for something else than the stack does now"


def _closing(job: Object, why: str) -> Object:
    version = {"resourceVersion": job["metadata"]["resourceVersion"]}
    return {"metadata": {**version, "annotations": {f"{PREFIX}{jobs.CLOSED}": why}}, "spec": {"suspend": True}}


# -- what their ends leave


def _keep_ends(cluster: Cluster, seen: Standing, keep: Keep | None) -> None:
    """Puts on record how pods ended, and lets them go. Without `keep`, or where it fails, they stay as the record."""
    ended = {uid: pod for uid, pod in seen.ended.items() if SEEN in (pod["metadata"].get("finalizers") or ())}
    if not ended or keep is None:
        return
    with contextlib.suppress(PlatformError):
        keep({f"{RECORDS}/{uid}.json": record_of(pod, seen.why[uid]) for uid, pod in ended.items()})
        _let_pods_go(cluster, list(seen.ended.values()))


def _let_pods_go(cluster: Cluster, ended: Sequence[Object]) -> None:
    """And all that ended on a node of which a person says that it is off: it ends no object any more."""
    off = {ends.node_of(pod) for pod in ended if ends.SAW in (pod["metadata"].get("annotations") or {})}
    for pod in ended:
        metadata = pod["metadata"]
        let_go(cluster, "pod", str(metadata["name"]), SEEN)
        metadata["finalizers"] = [one for one in metadata.get("finalizers") or () if one != SEEN]
        if ends.node_of(pod) in off and objects.deleted(pod) and not objects.is_over(pod):
            cluster.delete("pod", pod, grace=0)
            let_go(cluster, "pod", str(metadata["name"]), TRACKED)


def _clear(cluster: Cluster, seen: Standing) -> None:
    """Deletes finished Jobs whose pods have all ended and were let go; the last one stays, to be read."""
    over = [job for job in seen.jobs if jobs.is_finished(job)]
    last = max(over, key=jobs.number_of, default=None)
    for job in over:
        own = seen.of_job(job)
        kept = any(SEEN in (pod["metadata"].get("finalizers") or ()) for pod in own)
        left = kept or any(uid_of(pod) not in seen.ended for pod in own)
        if left or (job is last and not objects.deleted(job)):
            continue
        cluster.delete("job", job, propagation="Background")
        let_go(cluster, "job", str(job["metadata"]["name"]), HOLD)


# -- ends them


def end_all(cluster: Cluster, native_id: str, seconds: float, keep: Keep | None = None) -> None:
    """Ends all workers of a box, also those that wait; none begins until `top_up`. Each is told, and has its grace.
    Blocks until it is proved that none is left, `seconds` at most; idempotent. What proves it is kept by the pods, or
    with `keep` on the box; of a box that is being destroyed they are let go. Raises NotYetGone, Unreachable."""
    until, none_since = time.monotonic() + seconds, 0.0
    while True:
        seen = standing.look(cluster, native_id)
        suspended = _suspended(cluster, seen)
        left = [*_told_to_end(cluster, seen), *suspended]
        if left:
            none_since = 0.0
        elif none_since and time.monotonic() - none_since >= SURE_SECONDS:
            break
        none_since = none_since or (0.0 if left else time.monotonic())
        if time.monotonic() > until:
            more = f" and {len(left) - MOST_NAMED} more" if left[MOST_NAMED:] else ""
            raise NotYetGone(
                f"the workers of {native_id} were told to end, and that is not proved yet: "
                f"{'; '.join(left[:MOST_NAMED])}{more}. Next: the same command again"
            )
        time.sleep(POLL_SECONDS)
    _keep_ends(cluster, seen, keep)
    claim = cluster.get("pvc", native_id)
    if claim is None or ENDING in marks_of(claim):
        ended = list(seen.ended.values())
        _let_pods_go(cluster, ended)
        for pod in ended:
            cluster.delete("pod", pod)


def _suspended(cluster: Cluster, seen: Standing) -> list[str]:
    """Sees to it that no Job brings another pod. Returns which may still do so, in words."""
    left: list[str] = []
    for job in seen.jobs:
        name = str(job["metadata"]["name"])
        if not jobs.is_finished(job):
            with contextlib.suppress(Conflict):
                cluster.patch("job", name, _closing(job, "its workers were ended"))
            left.append(f"{name} was just suspended")
        elif jobs.CLOSED in marks_of(job) and not (jobs.has(job, "Suspended", *jobs.OVER[:2]) or objects.deleted(job)):
            left.append(f"{name} is suspended, and the cluster's Job controller has not taken notice")
    return left


def _told_to_end(cluster: Cluster, seen: Standing) -> list[str]:
    """Sees to it that each pod is told to end. Returns those whose end is not proved, in words: first those whose node
    does not answer, about which a person has to do something."""
    for pod in seen.at_work.values():
        cluster.delete("pod", pod)
    return [
        f"{seen.why[uid_of(pod)]}{_way_on(seen, pod)}"
        for pod in (*seen.lost.values(), *seen.at_work.values(), *seen.leaving.values())
    ]


def _way_on(seen: Standing, pod: Object) -> str:
    """What a person can do about a pod whose node does not answer."""
    uid = uid_of(pod)
    if uid not in seen.lost:
        return ""
    taint = f"; for all that was on it: {pods.off(seen.kubectl, pod)}"
    return (
        " (once it answers this is settled by itself; once you have seen that it is off: "
        f'`sweepctl confirm worker {seen.box} {uid}.0 --saw "…"`'
        f"{'' if 'not in the cluster' in seen.why[uid] else taint})"
    )


def person_saw(
    cluster: Cluster, native_id: str, account: str, worker: str, saw: str, keep: Keep, parts: Callable[[], bytes]
) -> str:
    """See `TakesWord.worker_ended`; each pod of a worker is told of by its own name. It is written on the pod, whose
    object then ends as soon as its end is on record. For one of several that record is made here: `keep`. `parts`: the
    records of workers of several pods; asked where the pod's object is gone."""
    cluster.require(account)
    seen, uid = standing.look(cluster, native_id), worker.rpartition(".")[0]
    if uid in seen.at_work or uid in seen.leaving:
        raise RequestRefused(
            f"{worker} runs, as the cluster shows it: {seen.why[uid]}. A node is known to be silent after some 40 s: "
            "where it is off, the same command again then"
        )

    def put_on_record(pod: Object) -> None:
        keep({f"{RECORDS}/{uid}.json": record_of(pod, f"a person saw that it has ended ({saw})")})

    if (pod := seen.lost.get(uid)) is not None:
        name = str(pod["metadata"]["name"])
        cluster.patch("pod", name, {"metadata": {"annotations": {ends.SAW: saw}}})
        cluster.delete("pod", pod, grace=0)
        if jobs.nodes_of(pod) > 1:
            with contextlib.suppress(PlatformError):  # the next command that sees the pod makes it
                put_on_record(pod)
        return f"the pod {name} has it that {worker} has ended"
    if uid in seen.ended or f'"{uid}"'.encode() not in parts():
        return ""
    put_on_record({"metadata": {"name": "", "uid": uid}})
    return f"it is on record that {worker} has ended"


PARTS = "import glob, sys; [sys.stdout.write(open(path).read()) for path in glob.glob(sys.argv[1] + '/*.json')]"
"""A program that prints which pods workers of several have: its argument is the folder of these records."""


# -- says how it is with them


def at_work(cluster: Cluster, native_id: str) -> bool:
    """Whether a worker of the box runs, or will by itself, or may; also where that can't be known: never raises."""
    try:
        seen = standing.look(cluster, native_id)
    except PlatformError:
        return True
    slots = seen.slots()
    return bool(seen.may_run or slots.live or slots.queued)


def told(cluster: Cluster, native_id: str, account: str, keep: Keep | None = None) -> dict[str, Any]:
    """The box's workers, for people: see `Scheduled.workers`. A task's `name` is its pod's uid, as the names of workers
    have it. Beside that `lost`: of how many the end is not known. `keep`: puts on record how pods ended. Raises
    Unreachable."""
    cluster.require(account)
    seen = standing.look(cluster, native_id)
    _keep_ends(cluster, seen, keep)
    slots = seen.slots()
    shown = [*seen.may_run, *(pod for pod in seen.ended.values() if _is_of_last(seen, pod))]
    shown = [pod for pod in shown if jobs.leads(pod) or uid_of(pod) in seen.lost]
    events = _events_of(cluster, seen)
    return {
        "tasks": [_task(seen, pod, events.get(uid_of(pod), [])) for pod in shown],
        "before": None,
        "at_work": slots.live + slots.queued,
        "held": slots.held,
        "lost": len(seen.lost),
        "words": "; ".join([_summary(cluster, seen, events), *of_claim(cluster, native_id)]),
    }


def of_claim(cluster: Cluster, native_id: str) -> list[str]:
    """Why a box has no claim, or that no volume, or what becomes of its bytes at its end, in words; none where that
    can't be read."""
    try:
        claim = kept.saved(cluster, native_id)
    except PlatformError as error:
        return [str(error)]
    with contextlib.suppress(PlatformError):
        volume = str(claim["spec"].get("volumeName") or "")
        pv = cluster.get("pv", volume) if volume else None
        words = pods.reclaim_words(pv) if pv else pods.claim_words(claim, cluster.events(native_id))
        return [words] if words else []
    return []


def _is_of_last(seen: Standing, pod: Object) -> bool:
    last = max(seen.jobs, key=jobs.number_of, default=None)
    kept = SEEN in (pod["metadata"].get("finalizers") or ())
    return kept or (last is not None and jobs.owner_of(pod) == last["metadata"]["uid"])


def _task(seen: Standing, pod: Object, events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    uid, status, words = uid_of(pod), objects.status_of(pod), ""
    state = "RUNNING" if objects.phase_of(pod) == "Running" else "PENDING"
    if uid in seen.lost:
        state, words = "LOST", f"{seen.why[uid]}{_way_on(seen, pod)}"
    found = {"name": uid, "state": state, "try": 0, "starts": None, "node": ends.node_of(pod), "words": words}
    if uid in seen.ended:
        code = pods.exit_of(pod)
        ending = pods.ending(pod)
        starved = ends.starved(pod) and code != 0
        kind = "OOMKilled" if starved else str(status.get("reason") or status.get("phase") or "ended")
        return {**found, "state": kind, "words": "" if code == 0 else ending, "exit": "" if code is None else str(code)}
    if state == "PENDING":
        found["words"] = pods.waiting(pod, events)
    return found


def _events_of(cluster: Cluster, seen: Standing) -> dict[str, list[Object]]:
    """Events of some pods that wait."""
    waiting = [pod for pod in seen.at_work.values() if objects.phase_of(pod) != "Running"]
    return {uid_of(pod): cluster.events(str(pod["metadata"]["name"])) for pod in waiting[:MOST_EVENTS]}


def _summary(cluster: Cluster, seen: Standing, events: Mapping[str, list[Object]] | None = None) -> str:
    """All of it in one line: how many run, how many wait and why, what ended badly, and what to do about it."""
    events = _events_of(cluster, seen) if events is None else events
    slots = seen.slots()
    run = [pod for pod in seen.at_work.values() if objects.phase_of(pod) == "Running"]
    waiting = [pod for pod in seen.at_work.values() if pod not in run]
    parts: list[str] = []
    if slots.live or run:
        run, waiting_first = list(filter(jobs.leads, run)), list(filter(jobs.leads, waiting))
        wait = max(slots.live - len(run), len(waiting_first))
        why = dict.fromkeys(filter(None, (pods.waiting(pod, events.get(uid_of(pod), [])) for pod in waiting)))
        reasons = f" ({'; '.join(list(why)[:2])})" if why else ""
        each = max(map(jobs.nodes_of, [*run, *waiting_first]), default=1)
        has = f", each of {each} pods" if each > 1 else ""
        parts.append(f"{len(run)} workers run, {wait} wait{reasons}{has}")
    parts += [f"{len(seen.leaving)} just end"] if seen.leaving else []
    parts += list(dict.fromkeys(_of_jobs(cluster, seen)))
    parts += [f"{seen.why[uid]}{_way_on(seen, pod)}" for uid, pod in list(seen.lost.items())[:MOST_NAMED]]
    parts += [f"{len(seen.lost) - MOST_NAMED} more like it"] if len(seen.lost) > MOST_NAMED else []
    parts += _bad_ends(seen)
    return "; ".join(parts) or "no worker is there"


def _of_jobs(cluster: Cluster, seen: Standing) -> list[str]:
    """Jobs that a person or Kueue keeps from beginning, that get no pods, or that were deleted by hand."""
    parts: list[str] = []
    for job in seen.jobs:
        name, there = str(job["metadata"]["name"]), seen.open_of(job)
        own = [pod for pod in seen.of_job(job) if uid_of(pod) not in seen.ended]
        if objects.deleted(job) and own:
            parts.append(f"{name} was deleted by hand: its pods end, or go on as they are, and none follows them")
        elif there and job["spec"].get("parallelism", 1) != job["spec"].get("completions"):
            parts.append(
                f"{name} has another parallelism than it was made with, and is left so: sweepctl show BOX --manifests"
            )
        elif there and jobs.is_suspended(job):
            undo = f'{cluster.kubectl} patch job {name} -p \'{{"spec":{{"suspend":false}}}}\''
            held = f"is suspended by a person, and left so; `{undo}` lets it go on"
            parts.append(f"{name} {'waits in its queue of Kueue' if jobs.is_queued(job) else held}")
        elif len(there) > len(own):
            if why := pods.job_words(cluster.events(name)):
                parts.append(f"{name} gets no pod: {why}")
                continue
            bare = there - {jobs.index_of(pod) for pod in own}
            if any(jobs.index_of(pod) in bare for pod in seen.of_job(job)):
                parts.append(
                    f"{name}: after each pod that was ended the cluster waits longer for the next, 10 s at first"
                )
    return parts


def _bad_ends(seen: Standing) -> list[str]:
    """How pods of the last Job ended, where there is something to do about it: each kind once."""
    found: dict[str, str] = {}
    for pod in seen.ended.values():
        if _is_of_last(seen, pod) and not pods.ended_well(pod):
            found.setdefault(pods.ending(pod), str(pod["metadata"]["name"]))
    return [f"{name} {ending}" for ending, name in found.items()][:MOST_NAMED]
