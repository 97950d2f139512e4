"""Rents a pod, reaches it, stops, starts and destroys it.

One offer after another is asked for, cheapest first, until RunPod grants one. Each verb is proved by what RunPod shows
afterwards.

RunPod refuses unknown fields. `disk` and `gpu.count` are always sent: without `disk` a create fails after a machine was
matched, without `gpu.count` it fails with a text about capacity. A body has exactly one of `gpu` and `cpu`, and at most
one of the two kinds of `mounts`.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from sweepstack.onbox.common.box_layout import HOME, ON_START, RUNNER_PID
from sweepstack.onbox.common.errors import (
    InsufficientFunds,
    NoCapacity,
    NotAuthorized,
    NotYetGone,
    NotYetStopped,
    OutcomeUnknown,
    PlatformError,
    RequestRefused,
    Retired,
    Unproved,
    Unreachable,
    Unsupported,
)
from sweepstack.onbox.host.capabilities import OwnStop
from sweepstack.onbox.host.offers import Constraints, Offer, no_offer_left
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, Told, Wait, not_as_asked
from sweepstack.platforms.common import reach_box, renting
from sweepstack.platforms.common.deadline import Deadline, Lasting, Watch
from sweepstack.platforms.common.http_client import HttpAnswer
from sweepstack.platforms.common.json_values import number
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.common.renting import Comes, Hooks, Try, first_granted, must_not_be_too_dear, with_key
from sweepstack.platforms.common.tag_lock import Memory
from sweepstack.platforms.runpod import offers
from sweepstack.platforms.runpod.api import NEW_TAG_SECONDS, Session, base_url, session
from sweepstack.platforms.runpod.balance import BILL_SECONDS, PROOF_SECONDS
from sweepstack.platforms.runpod.offers import (
    CLOUD,
    Candidate,
    VolumeSite,
    candidates,
    catalog_params,
    disks,
    gpu_count,
    must_be_possible,
    volume_for_box,
)
from sweepstack.platforms.runpod.states import BILLS, MARKER, PRICE, SSH_PORT, TAG, bid_of, gpus_of, refused

if TYPE_CHECKING:
    from sweepstack.channel.ssh.channel import SshChannel

WAKE_SECONDS = 20.0
"""For so long a pod that was told to start may still be shown as stopped."""
GRACE_SECONDS = 30.0
"""A new pod counts as removed when it was neither listed nor found by its id for so long."""


def create(request: BoxRequest, wait: Wait) -> BoxRecord:
    """See `Platform.create`."""
    must_be_possible(request.constraints)
    if not TAG.fullmatch(request.tag):
        raise RequestRefused(f"the tag {request.tag!r} can't be a pod's name: letters, digits, '.', '_' and '-'")
    at_hand, deadline = session(), Deadline(wait.deadline, wait.cancelled)
    account = at_hand.account()
    volume = volume_for_box(at_hand, request)

    def ready(record: BoxRecord, made: bool) -> BoxRecord:
        if record.phase is Phase.STOPPED and not made:
            return record
        return until_ready(at_hand, request.name, record, wait, deadline=deadline)

    hooks = Hooks(
        "runpod",
        account,
        by_id=at_hand.by_id,
        by_tag=lambda age: at_hand.by_tag(request.tag, max_age=age, known=request.known),
        rent=lambda memory: _rent(at_hand, with_key(request), volume, wait, memory),
        adopt=lambda record: must_fit(record, at_hand.mounts_of(record), request, volume),
        ready=ready,
        dear=lambda record: must_not_be_too_dear(record, request.name, request.max_price),
        # When this machine never asked for this tag, a list that another caller has just read is enough.
        first_look=lambda memory: paced(NEW_TAG_SECONDS) if memory.first else 0.0,
    )
    return renting.create(hooks, request, wait)


def _rent(session: Session, request: BoxRequest, volume: VolumeSite | None, wait: Wait, memory: Memory) -> BoxRecord:
    """Makes the pod, or adopts the one that a create with a lost answer made. Costs money. See `Hooks.rent`.

    Raises NoCapacity with every refusal when no offer could be rented; RequestRefused when RunPod refused all offers
    for the same other reason, which then lies in the request; InsufficientFunds and OutcomeUnknown at once.
    """
    wanted, deadline = request.constraints, Deadline(wait.deadline, wait.cancelled)
    refusals: list[str] = []
    center = volume.data_center if volume else ""
    if wanted.spot:
        found = offers.spot_candidates(session, wanted, center)
    else:
        found = candidates(session.gpus(catalog_params(wanted)), wanted, center)
    if request.offer:
        if request.offer not in [one.offer.key for one in found]:
            refusals.append(f"{request.offer}: not in the market now, or above the price that you allow")
        found.sort(key=lambda one: one.offer.key != request.offer)
    tries = []
    for one in found:
        offer = one.offer
        what = f"{offer.gpu_count}× {offer.gpu} at {offer.price_per_hour:.3f} USD/h"
        body = create_pod(request, offer, one.gpu_id, list(one.data_centers), volume.id if volume else "")
        send = partial(_asked, session, body, one, what, deadline)
        tries.append(Try(offer.key, f"RunPod for {what} ({offer.region})", send))
    look = partial(session.by_tag, request.tag, max_age=0)
    granted = first_granted(tries, look, request, wait, deadline, memory, refusals, partial(_none_left, request.name))
    return granted if isinstance(granted, BoxRecord) else session.recorded(granted)


def _asked(
    session: Session, body: Mapping[str, Any], one: Candidate, what: str, deadline: Deadline
) -> dict[str, Any] | PlatformError:
    """The pod, or the refusal where the next offer is worth a try. Raises what no other offer can do better."""
    if one.offer.spot:
        return offers.rent_spot(session, body, one, deadline)
    answer = session.create_pod(body, deadline)
    return dict(answer.data) if answer.ok else _refusal(session, answer, what)


def must_fit(record: BoxRecord, mounts: dict[str, str], request: BoxRequest, volume: VolumeSite | None) -> None:
    """Returns when the box has the volumes that the request asks for, so that it may be adopted. `mounts`: what the box
    has (path → volume id). Raises NotYetGone for a box that is being destroyed, and `not_as_asked`."""
    if record.phase is Phase.ENDING:
        raise NotYetGone(f"{record.native_id} carries the tag {request.tag} and is being destroyed: finish that first")
    if record.phase is Phase.UNKNOWN:
        return
    wanted = {f"{ROOT}/{mount}": volume.id for mount in request.mounts} if volume else {}
    if mounts != wanted:
        raise not_as_asked(record.location, request.tag, _spelled(mounts), _spelled(wanted))


def _spelled(mounts: dict[str, str]) -> str:
    return ", ".join(f"{volume} at {path}" for path, volume in sorted(mounts.items()))


def until_ready(
    session: Session,
    name: str,
    record: BoxRecord,
    wait: Wait,
    *,
    deadline: Deadline | None = None,
    restarted: bool = False,
) -> BoxRecord:
    """Blocks until the pod runs, has an address, and answers there. Every error that leaves it rented is StillCreating
    with its id. `deadline`: given when the clock of `wait` runs already. `restarted`: the pod was told to start, so it
    may be shown as stopped for a short time."""
    begin, deadline = time.monotonic(), deadline or Deadline(wait.deadline, wait.cancelled)
    absent = Lasting(deadline, paced(GRACE_SECONDS))  # not every answer knows a pod that was made a moment ago

    def look() -> BoxRecord | None:
        known = session.pods(max_age=session.poll_seconds()).by_id
        pod = known.get(record.native_id) or session.box(record.native_id)
        if absent.held(pod is None):
            return BoxRecord(record.native_id, record.tag, record.account, Phase.GONE, None, None, record.location)
        seen = session.recorded(pod) if pod is not None else None
        wakes = restarted and time.monotonic() - begin < WAKE_SECONDS
        return None if seen is not None and seen.phase is Phase.STOPPED and wakes else seen

    def silent(seen: BoxRecord) -> str:
        answer = why_silent(session, seen)
        return f"it runs, and does not answer: {answer}" if answer else ""

    cause = "its image can't be run, or it was stopped, not by this command"
    watch = Watch(deadline, f"{name} ({record.native_id}) to be ready", session.poll_seconds, wait)
    return renting.until_ready(name, record, Comes(look, silent, BILLS, "removed", cause), watch)


def _refusal(session: Session, answer: HttpAnswer, what: str) -> PlatformError:
    """The error of a refused offer, when the next offer is worth a try. Raises it when no other offer can do better."""
    error = refused(session.http, answer, what)
    if isinstance(error, InsufficientFunds) or answer.status in (404, 409, 413, 422):
        raise error
    return error


def _none_left(name: str, reasons: list[PlatformError], refusals: list[str]) -> PlatformError:
    """The error when every offer was refused."""
    if reasons and all(isinstance(reason, NotAuthorized) for reason in reasons):
        return NotAuthorized("\n".join([f"{name}: every offer was forbidden; nothing was rented", *refusals]))
    if any(isinstance(reason, NoCapacity) for reason in reasons) or not reasons:
        return no_offer_left(refusals, name)
    texts = {str(reason).rpartition(": ")[2] for reason in reasons if isinstance(reason, RequestRefused)}
    if len(texts) == 1 and all(isinstance(reason, RequestRefused) for reason in reasons):
        return RequestRefused("\n".join([f"{name}: RunPod refuses the request; nothing was rented", *refusals]))
    return no_offer_left(refusals, name)


def channel_to(session: Session, record: BoxRecord) -> SshChannel:
    """A channel to a running pod; it does not connect yet. Its direct address changes with each start. Raises what
    `probe.channel_to` raises, and Unreachable for a pod without a direct address."""
    still = (Phase.STOPPED, Phase.STOPPING, Phase.ENDING)
    why = "nothing runs there and RunPod shows no file of it. Start it to read it"
    closed = {phase: f"is {phase}: {why}" for phase in still}
    closed[Phase.FAILED] = f"runs nothing, and what is on it can't be read: {record.note}"
    mounts: dict[str, str] = {}
    if record.endpoint is not None and record.phase not in closed:
        if record.endpoint.proxied:
            raise Unreachable(
                f"{record.native_id} can be reached only through RunPod's relay, which passes a shell and no files: "
                f"wait for its direct address"
            )
        mounts = session.mounts_of(record)
    below = {path.removeprefix(f"{ROOT}/"): path for path in mounts if path.startswith(f"{ROOT}/")}
    return reach_box.channel_to(record, closed, root=ROOT, mounts=below)


def why_silent(session: Session, record: BoxRecord) -> str:
    """Connects and runs a command. Returns why the pod can't be used yet; "" when it can."""
    return reach_box.why_silent(lambda: channel_to(session, record), ["true"])


ROOT = "/sweepstack"
"""The folder on a pod below which the box's files lie."""
IMAGE = "ubuntu:22.04"
"""The image when a request names none; the start command installs what a box needs."""

LAST_SECONDS = 4
HEED = (
    f'p=$(tr -dc "0-9," < {ROOT}/{RUNNER_PID} 2> /dev/null | cut -d, -f1); [ -z "$p" ] || kill -TERM $p 2> /dev/null; '
    f'n=0; while [ -n "$p" ] && [ $n -lt {LAST_SECONDS} ] && kill -0 $p 2> /dev/null; do sleep 1; n=$((n + 1)); done'
)
"""Upon SIGTERM, which RunPod sends to a container's first process alone: passes it on to the runner, and waits for it.
RunPod kills a spot pod 5 s after the signal."""
START = (
    f"mkdir -p {ROOT}/data {ROOT}/scratch {ROOT}/mnt/durable /run/sshd /root/.ssh; chmod 700 /root/.ssh; "
    'printf "%s\\n" "$PUBLIC_KEY" > /root/.ssh/authorized_keys; chmod 600 /root/.ssh/authorized_keys; '
    'need=""; [ -x /usr/sbin/sshd ] || need="$need openssh-server"; '
    'command -v python3 > /dev/null || need="$need python3"; '
    'tries=0; while [ -n "$need" ] && [ $tries -lt 5 ]; do tries=$((tries + 1)); apt-get update && '
    "DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $need && break; sleep 5; done; "
    "rm -f /etc/ssh/ssh_host_*; ssh-keygen -A; "
    "/usr/sbin/sshd -o PasswordAuthentication=no -o PermitRootLogin=prohibit-password; "
    f"[ ! -x {ROOT}/{ON_START} ] || {ROOT}/{ON_START}; "
    f"end() {{ {HEED}; exit 0; }}; trap end TERM; while :; do sleep 3600 & wait $!; done"
)
"""The start command: starts sshd for the key in $PUBLIC_KEY, with new host keys at each start, and keeps running. It
holds no secret, and no single quote, since it is sent as one quoted argument of `sh -c`."""

OWN_STOP = "mutation Stop($id: String!) { podStop(input: {podId: $id}) { id desiredStatus } }"


def create_pod(
    request: BoxRequest, offer: Offer, gpu_id: str, data_centers: list[str], volume_id: str = ""
) -> dict[str, Any]:
    """The body of POST /v2/pods. `volume_id`: the network volume behind the request's mount, if it has one.

    Without a volume the box's root is a volume disk, which a stop keeps; with one the root is the container disk, which
    a stop wipes, and the volume is mounted in it. Raises RequestRefused for what a pod can't have.
    """
    wanted = request.constraints
    if len(request.mounts) > 1:
        raise RequestRefused(f"a RunPod pod mounts one volume, and {request.name} asks for {len(request.mounts)}")
    if bool(request.mounts) != bool(volume_id):
        raise RequestRefused(f"{request.name}: the mount and its volume do not belong together")
    disk, size = disks(wanted)
    if volume_id:
        (mount,) = request.mounts
        mounts: dict[str, Any] = {"network": [{"volumeId": volume_id, "path": f"{ROOT}/{mount}"}]}
    else:
        mounts = {"persistent": {"size": size, "path": ROOT}}
    body: dict[str, Any] = {
        "name": request.tag,
        "image": request.image or IMAGE,
        "gpu": _gpu(wanted, gpu_id),
        "cloud": CLOUD,
        "disk": disk,
        "mounts": mounts,
        "ports": [SSH_PORT],
        "env": {
            **request.env,
            "PUBLIC_KEY": request.public_key,
            MARKER: request.tag,
            PRICE: f"{offer.price_per_hour:.6f}",
        },
        "args": f"sh -c '{START}'",
    }
    if request.lease_seconds is not None:
        stop = own_stop(renting.HERE)
        held = renting.lease_text(request.lease_seconds, f"{ROOT}/{HOME}", "RUNPOD_API_KEY", "RUNPOD_POD_ID", stop)
        body["env"][renting.LEASE_VARIABLE] = held
        body["args"] = f"sh -c '{renting.LEASE_COMMAND} {START}'"
    if data_centers:
        body["dataCenterIds"] = data_centers
    return body


def own_stop(pod: str) -> tuple[OwnStop, ...]:
    """See `CanStopItself.own_stop`. REST is said to answer 403 to the key of a pod, while the older query interface,
    which the vendor's own tool in a pod uses, takes it (2026-11; neither is proved)."""
    return (
        OwnStop("POST", f"{base_url()}/v2/pods/{pod}/action", {"action": "stop"}),
        OwnStop("POST", f"{base_url()}/graphql", {"query": OWN_STOP, "variables": {"id": pod}}),
    )


def _gpu(wanted: Constraints, gpu_id: str) -> Mapping[str, Any]:
    count = gpu_count(wanted)
    gpu: dict[str, Any] = {"id": gpu_id, "count": count}
    if wanted.cuda and wanted.cuda_at_least:
        gpu["minCudaVersion"] = wanted.cuda
    elif wanted.cuda:
        gpu["allowedCudaVersions"] = [wanted.cuda]
    if wanted.cpu:
        gpu["minVcpuCountPerGpu"] = math.ceil(wanted.cpu / count)
    if wanted.memory_gb:
        gpu["minRamPerGpu"] = math.ceil(wanted.memory_gb / count)
    return gpu


STOP_SECONDS = 20.0
MOST_BID = 1000.0
_SAME = 1e-4


def destroy(session: Session, native_id: str, account: str) -> None:
    """See `Platform.destroy`."""
    if not session.mine(account, f"the box {native_id}") and session.get(native_id, account).phase is Phase.GONE:
        return  # else the key shows it, so it is of the account
    if not session.is_unfound(native_id):
        _ask_to_end(session, native_id, account)
    record = _seen(session, native_id, account)
    if record.phase is not Phase.GONE:
        raise NotYetGone(f"RunPod still has {native_id} ({record.phase}): it may bill until it is proved gone")


def _ask_to_end(session: Session, native_id: str, account: str) -> None:
    try:
        answer = session.delete_pod(native_id)
    except OutcomeUnknown as error:
        if _seen(session, native_id, account).phase is Phase.GONE:
            return
        raise NotYetGone(f"{native_id}: {error}. Destroy it again: a second time does no harm") from error
    if not answer.ok and answer.status != 404:
        lock = ", and is locked in RunPod's console" if _is_locked(session, native_id) else ""
        raise refused(session.http, answer, f"the end of {native_id} (it still exists and bills{lock})")


def _seen(session: Session, native_id: str, account: str) -> BoxRecord:
    """The box while it is being destroyed. Raises NotYetGone, and how long a proof takes, where only its bill is
    missing."""
    try:
        return session.get(native_id, account)
    except Unproved as error:
        within, pause = paced(PROOF_SECONDS), paced(BILL_SECONDS)
        raise NotYetGone(str(error), within=within, pause=pause) from error


def stop(session: Session, native_id: str, account: str) -> None:
    """See `CanStop.stop`."""
    if _living(session, native_id, account, "stopped").phase is Phase.STOPPED:
        return
    if _is_locked(session, native_id):
        raise RequestRefused(f"{native_id} is locked in RunPod, so it can't be stopped: unlock it in the console")
    try:
        answer = session.act(native_id, "stop")
    except OutcomeUnknown as error:
        if session.get(native_id, account).phase is Phase.STOPPED:
            return
        raise NotYetStopped(f"{native_id}: {error}. Stop it again: a second time does no harm") from error
    if not answer.ok:
        seen = session.get(native_id, account)
        if seen.phase is Phase.STOPPED:
            return
        if answer.status == 404:
            raise NotYetStopped(f"RunPod does not find {native_id} to stop it, and lists it as {seen.phase}")
        raise refused(session.http, answer, f"a stop of {native_id} (it is {seen.phase}, and bills)")
    phase: Phase | None = None

    def stopped() -> bool:
        nonlocal phase
        if phase is not None:
            session.pods(max_age=session.poll_seconds() / 2)  # an older list may not show the stop yet
        phase = session.get(native_id, account).phase
        if phase in (Phase.GONE, Phase.ENDING):
            raise PlatformError(f"{native_id} is {phase}: it was ended from elsewhere while it was being stopped")
        return phase is Phase.STOPPED

    if Watch(Deadline(paced(STOP_SECONDS)), f"{native_id} to stand still", session.poll_seconds).until(stopped):
        raise NotYetStopped(f"RunPod accepted the stop of {native_id}, which is {phase} and may bill in full")


def start(session: Session, native_id: str, account: str, wait: Wait) -> BoxRecord:
    """See `CanStop.start`."""
    record = _living(session, native_id, account, "started")
    restarted = record.phase is Phase.STOPPED
    if record.phase is Phase.UNKNOWN:
        raise Unreachable(f"{native_id} is not started, since its state is not known: {record.note}")
    if restarted:
        try:
            answer = _asked_to_start(session, native_id)
        except OutcomeUnknown as error:
            wait.progress(f"{native_id}: {error}; looking what came of it")
        else:
            if answer is not None and not answer.ok:
                seen = session.get(native_id, account)
                if seen.phase not in (Phase.RUNNING, Phase.CREATING):
                    raise refused(session.http, answer, f"a start of {native_id} (it stays {seen.phase})")
        wait.progress(f"{native_id} is started again")
    return until_ready(session, native_id, record, wait, restarted=restarted)


def _asked_to_start(session: Session, native_id: str) -> HttpAnswer | None:
    """Asks for the pod again: for its last bid, if it is a spot pod (then None), which can't be had on demand."""
    pod = session.box(native_id) or {}
    bid = bid_of(pod)
    if bid is None:
        return session.act(native_id, "start")
    count = gpus_of(pod)
    change = None
    with contextlib.suppress(Retired):  # then the resume says so
        change = session.last_changes().get(native_id)
    if change is not None and change.price is not None:  # it may have been resumed for more than it was rented for
        bid = max(bid, offers.per_gpu(change.price, count))
    _resume(session, native_id, pod, bid)
    return None


def change_bid(session: Session, native_id: str, account: str, bid: float) -> None:
    """See `RentsSpot.change_bid`. RunPod takes a bid only as it rents or resumes a pod: this resumes one that it took
    away, and refuses everything else that would change anything."""
    record = _living(session, native_id, account, "given another bid")
    pod = session.box(native_id) or {}
    bidden = bid_of(pod)
    if bidden is None:
        raise RequestRefused(
            f"{native_id} was rented on demand, at its own price: only a spot box has a bid, and a box can't become "
            "one. Take `bid` out"
        )
    if not 0 < bid <= MOST_BID:
        raise RequestRefused(f"a bid of {bid:g} USD/h for {native_id}: above 0 and up to {MOST_BID:g} is possible")
    if record.phase is Phase.STOPPED and session.retired:
        raise Unsupported(offers.NO_RESUME)
    if record.phase is Phase.STOPPED and record.told is Told.PREEMPTED:
        _resume(session, native_id, pod, offers.per_gpu(bid, gpus_of(pod)))
        return
    now = number(pod.get("cost")) or bidden * gpus_of(pod)
    if abs(now - bid) < _SAME * gpus_of(pod):
        return
    raise RequestRefused(
        f"RunPod takes another bid only for a pod that it has taken away, and {native_id} is {record.phase}: write "
        "`bid` as it was, until it is preempted"
    )


def _resume(session: Session, native_id: str, pod: Mapping[str, Any], bid: float) -> None:
    """`bid`: USD per hour and GPU. Raises NoCapacity with the bid that would do, where RunPod says it."""
    gpu, count = pod.get("gpu"), gpus_of(pod)
    try:
        offers.resume_spot(session, native_id, bid, count)
    except NoCapacity as error:
        least = offers.least_bid(session, str(gpu.get("id") if isinstance(gpu, dict) else ""), count)
        more = f" Set `bid` to {least:.4f} USD/h or more, then pulumi up." if least and least > bid * count else ""
        raise NoCapacity(f"{error}{more}") from error


def _living(session: Session, native_id: str, account: str, verb: str) -> BoxRecord:
    record = session.living(native_id, account, verb)
    if record.phase is Phase.FAILED:
        raise RequestRefused(f"{native_id} can be neither stopped nor started: {record.note}")
    return record


def _is_locked(session: Session, native_id: str) -> bool:
    pod: Any = session.pods().by_id.get(native_id, {})
    return pod.get("locked") is True
