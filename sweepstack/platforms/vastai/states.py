"""Turns vast.ai's answers into phases, records and our errors, and reaches an instance.

Four fields describe its state: `actual_status` (the container), `intended_status` (what the container should become),
`cur_state` (the contract) and `next_state` (what the contract should become). The vendor documents the values of
`intended_status` and `cur_state` (show-instance, 2026-04); those of the others were seen (2026-11). Any other value
gives UNKNOWN, and the note quotes it. A box is reached by SSH, at the port that its machine maps at this start.

Of a refusal the body decides, since the status alone says too little. As of 2026-11: 404 means a bad key, an offer that
was taken, an instance that is not there, or a gateway's own error; 200 comes with `success: false`; and an error may
carry `new_contract`, an instance that was made all the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sweepstack.onbox.agent.channel import SshEndpoint
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import (
    InsufficientFunds,
    NoCapacity,
    NotAuthorized,
    OutcomeUnknown,
    PlatformError,
    RateLimited,
    RequestRefused,
    Unreachable,
)
from sweepstack.onbox.host.platform import BoxRecord, Phase, Told
from sweepstack.platforms.common import reach_box
from sweepstack.platforms.common.json_values import instant, number
from sweepstack.platforms.common.redact import redact

if TYPE_CHECKING:
    from sweepstack.onbox.agent.channel import Channel


PENDING = (None, "created", "loading")
AGAIN = ("restarting", "rebooting", "recycling")
AT_REST = ("stopped", "exited")
ACTUAL = (*PENDING, "running", *AT_REST, "frozen", *AGAIN, "unknown", "offline")
WORDS = {
    "actual_status": ACTUAL,
    "intended_status": (None, "running", "stopped", "frozen"),
    "cur_state": (None, "running", "stopped", "unloaded"),
    "next_state": (None, "running", "stopped"),
}
"""The values of each field. None when vast.ai leaves one out."""

OUTBID = "preempted: it was outbid, or its GPU went to an on-demand rental; its disk is kept and bills"
OUTBID_NOW = "preempted: it is outbid, since its machine asks for more than its bid now"
OUTBID_OR_STOPPED = "vast.ai shows a spot box that was outbid and one that was stopped alike"
OFFLINE = "host offline: not billed, and not to be reached"
FROZEN = "frozen: nothing on it moves, and its GPUs go on billing"
CONTRACT_OVER = "the contract with its host is over: it can't be started again, and its host may delete it"
NO_HEARTBEAT = "vast.ai hears nothing from it (unknown): it may run and bill"
UNLOADED = "vast.ai releases it (unloaded): it is being destroyed"
TELLS = {
    OUTBID: Told.PREEMPTED,
    OUTBID_NOW: Told.PREEMPTED,
    OUTBID_OR_STOPPED: Told.TAKEN_OR_STOPPED,
    FROZEN: Told.FROZEN,
}
EXITED = "its container has ended (exited). For some minutes after a start it is shown like this, too"
MAY_START = "it is scheduled to run: it may start, and bill, at any time until it is stopped"
BILLS = {
    Phase.CREATING: "it may bill in full",
    Phase.RUNNING: "it bills in full",
    Phase.STOPPED: "its disk bills",
    Phase.UNKNOWN: "it may bill in full",
}
"""What an instance costs in each phase, for messages."""
FATAL_MESSAGE = ": OCI runtime create failed:"
HOURS_A_MONTH = 730.0
_PORT = "22/tcp"

KEY_HELP = (
    "the key is looked for in VAST_API_KEY, then in $XDG_CONFIG_HOME/vastai/vast_api_key (that is, "
    "~/.config/vastai/vast_api_key), then in ~/.vast_api_key; keys are made at https://cloud.vast.ai/manage-keys/"
)
TOP_UP = "top up at https://cloud.vast.ai/billing/, then run the command again"
_THRESHOLD = re.compile(r"threshold=(\d+(?:\.\d+)?)")
_TOO_FREQUENT = re.compile(r"^api requests too frequent", re.IGNORECASE)
_BAD_KEY = re.compile(r"invalid user key|requires login", re.IGNORECASE)
_NO_FUNDS = re.compile(r"lacks credit|insufficient credit|insufficient balance", re.IGNORECASE)
_QUEUED = re.compile(r"state change queued|resources are currently unavailable", re.IGNORECASE)
_LONGEST = 300


def phase_of(actual: Any, intended: Any, current: Any, following: Any) -> tuple[Phase, str]:
    """The phase and a note, for any four values. A value that is not in the tables above gives UNKNOWN."""
    words = {"actual_status": actual, "intended_status": intended, "cur_state": current, "next_state": following}
    for name, word in words.items():
        if word is not None and (not isinstance(word, str) or word not in WORDS[name]):
            return Phase.UNKNOWN, f"vast.ai says {name} {str(word)[:60]!r}, a word that sweepstack does not know"
    if current == "unloaded":
        return Phase.ENDING, UNLOADED
    if actual == "offline":
        return Phase.UNKNOWN, OFFLINE
    if actual == "unknown":
        return Phase.UNKNOWN, NO_HEARTBEAT
    told = (intended, current, following)
    if "frozen" in (actual, intended):
        return (Phase.STOPPING if "stopped" in told else Phase.UNKNOWN), FROZEN
    if told == ("stopped",) * 3:
        return (Phase.STOPPED, "") if actual in (*PENDING, *AT_REST) else (Phase.STOPPING, "")
    if actual == "running":
        return _running(*told)
    if actual in AT_REST:
        return _at_rest(str(actual), *told)
    return _on_its_way(*told)


def _running(intended: Any, current: Any, following: Any) -> tuple[Phase, str]:
    if intended == "stopped":
        return Phase.STOPPING, ""
    if following == "stopped":
        return Phase.STOPPING, "vast.ai is pausing it: outbid, or its contract ends"
    if current == "stopped":
        return Phase.CREATING, MAY_START
    return Phase.RUNNING, ""


def _at_rest(actual: str, intended: Any, current: Any, following: Any) -> tuple[Phase, str]:
    if intended == "stopped":
        if current == "running":
            return Phase.STOPPING, "its container has ended, and its contract still runs"
        return Phase.STOPPED, MAY_START if following == "running" else ""
    if current == "stopped":
        note = OUTBID if intended == "running" else ""
        return Phase.STOPPED, f"{note}; {MAY_START}".removeprefix("; ") if following == "running" else note
    if actual == "stopped" and intended == "running":
        return Phase.STOPPED, OUTBID
    return Phase.UNKNOWN, EXITED if actual == "exited" else "its container is stopped, and its contract says nothing"


def _on_its_way(intended: Any, current: Any, following: Any) -> tuple[Phase, str]:
    if intended == "stopped":
        return Phase.STOPPING, ""
    if following == "stopped":
        return (Phase.STOPPED if current == "stopped" else Phase.STOPPING), OUTBID
    return Phase.CREATING, ""


def settled(row: Mapping[str, Any]) -> bool:
    """Whether it is stopped and stays so until it is started: an outbid box would start again by itself."""
    phase, _ = phase_in(row)
    return phase is Phase.STOPPED and row.get("intended_status") != "running" and row.get("next_state") != "running"


def phase_in(row: Mapping[str, Any]) -> tuple[Phase, str]:
    """The phase and a note of an instance's row."""
    phase, note = phase_of(*(row.get(name) for name in ("actual_status", "intended_status", "cur_state", "next_state")))
    if phase is Phase.CREATING and FATAL_MESSAGE in str(row.get("status_msg") or ""):
        return Phase.UNKNOWN, f"it can't start: {_message(row)}"
    return phase, note


def is_fatal(row: Mapping[str, Any]) -> bool:
    """Whether it can never run, since its image does not start on this host."""
    return FATAL_MESSAGE in str(row.get("status_msg") or "") and row.get("actual_status") in (*PENDING, *AT_REST)


def endpoint_of(row: Mapping[str, Any]) -> SshEndpoint | None:
    """Where its sshd listens: the port that the machine maps, else vast.ai's relay, which is slow for files.

    None unless the container runs. Ports and addresses change with every start.
    """
    if row.get("actual_status") != "running":
        return None
    start = str(row.get("start_date") or "")
    host = str(row.get("public_ipaddr") or "").strip()
    ports = row.get("ports")
    mapped = ports.get(_PORT) if isinstance(ports, dict) else None
    if host and isinstance(mapped, list) and mapped and isinstance(mapped[0], dict):
        port = _port(mapped[0].get("HostPort"))
        if port:
            return SshEndpoint(host, port, start=start)
    relay, port = str(row.get("ssh_host") or "").strip(), _port(row.get("ssh_port"))
    return SshEndpoint(relay, port, start=start) if relay and port else None


def record_of(row: Mapping[str, Any], account: str, ended: Collection[int] = ()) -> BoxRecord:
    """The record of an instance's row. Its phase is never GONE; it is ENDING when `ended` has its id. Raises
    nothing."""
    phase, note = phase_in(row)
    label = row.get("label")
    if label is not None and not isinstance(label, str):
        phase, note = Phase.UNKNOWN, f"its label can't be read: {str(label)[:60]!r}"
    if phase is Phase.STOPPED and not note and row.get("is_bid"):
        least = asked_above(row)
        note = f"{OUTBID_NOW} ({least:.4f} USD/h); its disk is kept and bills" if least else OUTBID_OR_STOPPED
    identifier = row["id"]
    if identifier in ended:
        phase, note = Phase.ENDING, "its destroy was accepted, and vast.ai still shows it"
    ends = instant(row.get("end_date"))
    if phase is Phase.STOPPED and ends is not None and ends <= datetime.now(UTC):
        note = f"{note}; {CONTRACT_OVER}".removeprefix("; ")
    place = str(row.get("geolocation") or "")
    machine = row.get("machine_id")
    return BoxRecord(
        native_id=str(identifier),
        tag=label if isinstance(label, str) else "",
        account=account,
        phase=phase,
        price_per_hour=number(row.get("dph_total")),
        created_at=instant(row.get("start_date")),
        location=", ".join(part for part in (f"vast.ai machine {machine}" if machine else "vast.ai", place) if part),
        note=note,
        endpoint=endpoint_of(row) if phase is Phase.RUNNING else None,
        gpu_count=_count(row.get("num_gpus")),
        region=place,
        image=str(row.get("image_uuid") or ""),
        stopped_per_hour=_storage(row),
        told=next((told for words, told in TELLS.items() if note.startswith(words)), None),
        ends_at=ends,
    )


def asked_above(row: Mapping[str, Any]) -> float | None:
    """USD per hour that the machine of a spot box asks for at least, where its bid is below that; None where its bid is
    as much, or one of them is not known."""
    least, bid = number(row.get("min_bid")), number(row.get("dph_base"))
    return least if row.get("is_bid") and least and bid is not None and bid < least else None


def _storage(row: Mapping[str, Any]) -> float | None:
    """USD per hour of its disk, which bills in every state until it is destroyed (the row's price: per GB and
    month)."""
    price, size = number(row.get("storage_cost")), number(row.get("disk_space"))
    return None if price is None or size is None else price * size / HOURS_A_MONTH


def _message(row: Mapping[str, Any]) -> str:
    text = " ".join(str(row.get("status_msg") or "").split())
    return text if len(text) <= 200 else f"{text[:200]}…"


def status_message(row: Mapping[str, Any]) -> str:
    """vast.ai's own message about the instance, on one line, in parentheses; "" without one."""
    text = _message(row)
    return f" (vast.ai: {text})" if text else ""


def _port(value: Any) -> int:
    try:
        port = int(value)
    except (TypeError, ValueError):
        return 0
    return port if 0 < port < 65536 else 0


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


ROOT = "/sweepstack"
FOLDERS = ("data", "scratch", "mnt/durable")
"""The folders of every box, below its root. A volume is mounted at the last one."""
_FOLDER_SECONDS = 30.0


def open_channel(
    native_id: str, endpoint: SshEndpoint, mounts: Mapping[str, str], closed: Callable[[], str] | None = None
) -> Any:
    """An SshChannel, which does not connect yet. `mounts`: box-relative path → where the volume is mounted. `closed`:
    why nothing may be started on the box, "" when it may."""
    from sweepstack.channel.ssh.channel import SshChannel

    return SshChannel(native_id, endpoint, root=ROOT, mounts=mounts, closed=closed)


def channel_to(row: Mapping[str, Any], record: BoxRecord, why_closed: Callable[[], str]) -> Channel:
    """A channel to a running box. Raises Unreachable for any other: the files of a stopped container can't be read."""
    if record.endpoint is None:
        why = (
            closed(record)
            or f"is {record.phase}{f' ({record.note})' if record.note else ''} and has no SSH endpoint now"
        )
        raise Unreachable(f"instance {record.native_id} can't be reached: it {why}")
    channel: Channel = open_channel(record.native_id, record.endpoint, mounts_of(row), why_closed)
    return channel


def closed(record: BoxRecord) -> str:
    """Why nothing may be started on the box, as the end of a sentence; "" when it may."""
    if record.phase.at_rest:
        note = f" ({record.note})" if record.note else ""
        return f"is stopped: nothing on it runs or can be read until it is started{note}"
    if record.phase is Phase.ENDING:
        return "is being destroyed: nothing is started on it"
    return "is gone" if record.phase is Phase.GONE else ""


def mounts_of(row: Mapping[str, Any]) -> dict[str, str]:
    """Box-relative path → mount point of the volume, from `volume_info`, which only the list shows."""
    info = row.get("volume_info")
    path = info.get("mount_path") if isinstance(info, dict) else None
    if not isinstance(path, str) or not path.startswith(f"{ROOT}/"):
        return {}
    return {path.removeprefix(f"{ROOT}/").rstrip("/"): path}


def answers(native_id: str, endpoint: SshEndpoint, mounts: Mapping[str, str]) -> bool:
    """Whether sshd accepts our key and the box has its folders; makes the missing ones. False while the box does not
    answer. Raises other errors of the channel."""
    channel = open_channel(native_id, endpoint, mounts)
    try:
        return reach_box.runs(channel, ["mkdir", "-p", *FOLDERS], seconds=_FOLDER_SECONDS) == ""
    except Unreachable:
        return False


class NoSuchThing(RequestRefused):
    """vast.ai says that it has no instance, or no volume, with that id. One answer alone proves nothing: see
    `Session.row`."""


class StartQueued(NoCapacity):
    """The GPU is taken, and vast.ai queued the start: it would start and bill at some later time unless it is
    stopped."""


class RentedAnyway(PlatformError):
    """vast.ai refused the request with `why`, and made instance `contract` all the same."""

    def __init__(self, contract: int, why: PlatformError) -> None:
        super().__init__(f"{why}; instance {contract} was made all the same")
        self.contract = contract
        self.why = why


@dataclass(frozen=True)
class Refusal:
    """One answer that is no success. `spoken`: the body was vast.ai's JSON, not a gateway's page. `contract`: the
    instance that was made all the same. `retry_after`: seconds."""

    status: int
    error: str = ""
    text: str = ""
    spoken: bool = False
    contract: int | None = None
    retry_after: float | None = None

    @classmethod
    def of(cls, status: int, body: str, headers: Mapping[str, str]) -> Refusal:
        """The refusal in an HTTP answer."""
        try:
            data = json.loads(body)
        except ValueError:
            data = None
        retry_after = _number(headers.get("Retry-After"))
        if isinstance(data, dict):
            return cls._of_json(status, data, retry_after)
        text = body.strip()
        if "<" in text[:200]:
            text = "a page instead of an answer"
        return cls(status, text=_short(text), retry_after=retry_after)

    @classmethod
    def _of_json(cls, status: int, data: Mapping[str, Any], retry_after: float | None = None) -> Refusal:
        error = data.get("error")
        texts = [data.get(name) for name in ("msg", "message", "detail")]
        text = next((str(item) for item in texts if item), "")
        contract = data.get("new_contract")
        spoken = bool(text or error) or "success" in data
        valid = isinstance(contract, int) and not isinstance(contract, bool) and contract > 0
        return cls(status, _short(str(error or "")), _short(text), spoken, contract if valid else None, retry_after)

    @classmethod
    def in_success(cls, data: Any) -> Refusal | None:
        """The refusal in an answer with status 200; None when it is a success."""
        if isinstance(data, dict) and (data.get("success") is False or (data.get("error") and "success" not in data)):
            return cls._of_json(200, data)
        return None

    def __str__(self) -> str:
        told = ": ".join(part for part in (self.error, self.text) if part) or "no reason given"
        return redact(f"{told} (status {self.status})")


def error_for(refusal: Refusal, what: str, *, writes: bool) -> PlatformError:
    """The error that a refusal means. `what`: the request, in words ("rent offer 7"). `writes`: it changes something.

    An answer of an unknown kind is Unreachable, and OutcomeUnknown after a write.
    """
    if refusal.contract is not None:
        bare = Refusal(refusal.status, refusal.error, refusal.text, refusal.spoken)
        return RentedAnyway(refusal.contract, error_for(bare, what, writes=writes))
    said = f"vast.ai does not {what}: {refusal}"
    for look in (_cannot_pay, _too_fast, _not_served, _not_authorized, _cannot_have, _wrong):
        found = look(refusal, said)
        if found is not None:
            return _lost(what, str(refusal)) if isinstance(found, _Lost) and writes else found
    if writes:
        return _lost(what, str(refusal))
    return Unreachable(f"vast.ai was asked to {what}, and its answer can't be read: {refusal}; nothing is known")


def lost_answer(what: str, why: str, *, writes: bool) -> PlatformError:
    """The error for a request without a readable answer: OutcomeUnknown for a write, else Unreachable."""
    if writes:
        return _lost(what, why)
    return Unreachable(f"vast.ai did not answer when asked to {what}: {redact(why)}")


def _lost(what: str, why: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"vast.ai was asked to {what}, and whether it did is not known: {redact(why)}. Nothing was sent twice"
    )


class _Lost(Unreachable):
    """A failure of the server; after a write it becomes OutcomeUnknown."""


def _cannot_pay(refusal: Refusal, said: str) -> PlatformError | None:
    """InsufficientFunds when the account spends too fast. By the error's name: the status that comes with it is not
    known."""
    if refusal.error == "spend_rate_limit":
        return InsufficientFunds(f"{said}. The account may not spend faster yet; {TOP_UP}, or rent less at a time")
    return None


def _too_fast(refusal: Refusal, said: str) -> PlatformError | None:
    if refusal.error == "search_quota_exceeded":
        return RateLimited(f"{said}; the day's searches are used up until midnight UTC", _until_midnight())
    threshold = _THRESHOLD.search(refusal.text)
    if refusal.status == 429 or refusal.error == "rate_limit_exceeded" or _TOO_FREQUENT.match(refusal.text):
        after = refusal.retry_after
        if after is None and threshold:
            after = float(threshold[1])
        return RateLimited(f"{said}; nothing was carried out", after)
    return None


def _not_served(refusal: Refusal, said: str) -> PlatformError | None:
    return _Lost(f"{said}; nothing is known") if refusal.status >= 500 or refusal.status == 408 else None


def _not_authorized(refusal: Refusal, said: str) -> PlatformError | None:
    if refusal.status == 401 or refusal.error == "auth_error" or _BAD_KEY.search(refusal.text):
        return NotAuthorized(f"{said}. The key is not one that it knows: {KEY_HELP}")
    if refusal.status == 403 and refusal.error != "invalid_args":
        return NotAuthorized(
            f"{said}. The key lacks a right: instance_read, instance_write, user_read and misc are needed; {KEY_HELP}"
        )
    return None


def _cannot_have(refusal: Refusal, said: str) -> PlatformError | None:
    told = f"{refusal.error} {refusal.text}"
    if "no_such_ask" in told:
        return NoCapacity(f"{said}: another customer has it")
    if refusal.error == "missing_billing" or _NO_FUNDS.search(told):
        return InsufficientFunds(f"{said}; {TOP_UP}")
    if _QUEUED.search(refusal.text):
        return StartQueued(f"{said}: another customer has its GPU now")
    return None


def _wrong(refusal: Refusal, said: str) -> PlatformError | None:
    if refusal.spoken and refusal.error in ("no_such_instance", "no_such_volume", "not_found"):
        return NoSuchThing(said)
    if refusal.status == 404 and not refusal.error:
        return None  # a gateway says the same
    if refusal.spoken and refusal.status < 500:
        return RequestRefused(f"{said}{_hint(refusal)}")
    if refusal.status in (400, 405, 411, 413, 415, 422):
        return RequestRefused(f"{said}. An account without credit is answered like this, too: {TOP_UP}")
    return None


def _hint(refusal: Refusal) -> str:
    if "own machines" in refusal.text:
        return ". Next: use the key of an account that is no host"
    if refusal.error == "no_ssh_key_for_vm":
        return ". Next: add a public key at https://cloud.vast.ai/manage-keys/"
    return ""


def _until_midnight() -> float:
    now = datetime.now(UTC)
    midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return (midnight - now).total_seconds()


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 <= value < 1e7 else None


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
