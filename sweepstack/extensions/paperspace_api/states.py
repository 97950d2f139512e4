"""Turns what Paperspace says into our records and errors, and reaches a machine.

A state that is not in the table, or a machine that can't be read, is `UNKNOWN` with the reason, never gone. That a
machine is gone is never read from a machine: one with a `dtDeleted` may still be on its way out, and its disk bills. An
error has a `code` of the HTTP status alone, and a `message`, which is all that tells a full region from a mistake.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sweepstack.onbox.agent.channel import SshEndpoint
from sweepstack.onbox.common.errors import NoCapacity, RequestRefused
from sweepstack.onbox.host.platform import BoxRecord, Phase
from sweepstack.platforms.common import reach_box
from sweepstack.platforms.common.http_client import Means, Refusals
from sweepstack.platforms.common.json_values import identifier, moment, number, text

if TYPE_CHECKING:
    from sweepstack.channel.ssh.channel import SshChannel

TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""The form of a tag that can be a machine's name."""
USER, PORT = "paperspace", 22
ROOT = "/home/paperspace/sweepstack"
"""The box's folder: `paperspace` may write there, and it lies on the machine's one disk."""
_REGION = re.compile(r"\(([A-Za-z]+\d+)\)\s*$")
_STARTING = "Paperspace says {state}: it is not ready yet"
BILLS = {
    Phase.CREATING: "its disk bills, and its compute from its start on",
    Phase.RUNNING: "it bills in full",
    Phase.STOPPING: "it may bill in full until it is off",
    Phase.STOPPED: "its compute does not bill, and its disk does until it is destroyed",
    Phase.UNKNOWN: "it may bill in full",
}
"""What a machine costs in each phase, for messages."""
REFUSALS = Refusals(
    lambda answer: text(answer.data, "code"),
    (
        Means(
            NoCapacity,
            "Paperspace has no room for {asked}: {text}",
            statuses=(400, 409, 412),
            words=re.compile(
                r"capacity|out of stock|not (currently )?available|unavailable|no available", re.IGNORECASE
            ),
        ),
        Means(
            RequestRefused,
            "Paperspace refuses {asked}, since it would be more than the team may have ({text}). Next: end what is not "
            "needed, or ask Paperspace's support for a higher limit",
            statuses=(403,),
            words=re.compile(r"\blimit|quota|maximum", re.IGNORECASE),
        ),
    ),
)


def is_deleted(row: Mapping[str, Any]) -> bool:
    """Whether Paperspace says that its delete was begun."""
    return row.get("dtDeleted") is not None


def record_of(row: Mapping[str, Any], account: str, *, ending: bool = False) -> BoxRecord:
    """The machine as a record. `ending`: Paperspace accepted its delete, whatever it shows. Raises nothing.

    The price is the machine's `usageRate`, which Paperspace's pages call a price an hour; its API gives no unit.
    """
    native_id, where = identifier(row), text(row, "region")
    phase, note = _phase(row)
    if ending and phase is not Phase.ENDING:
        phase, note = Phase.ENDING, "its delete was accepted, and Paperspace still shows it"
    return BoxRecord(
        native_id,
        text(row, "name"),
        account,
        phase,
        number(row.get("usageRate")) or None,
        moment(row.get("dtCreated")),
        f"Paperspace {where}".strip() + f", machine {native_id}",
        note,
        endpoint=_endpoint(row) if phase in (Phase.RUNNING, Phase.CREATING) else None,
        gpu_count=_cards(row),
        region=_region(where),
        offer=text(row, "machineType"),
    )


def channel_to(record: BoxRecord) -> SshChannel:
    """A channel to a machine; it does not connect yet. Raises what `probe.channel_to` raises. Each start has another
    address."""
    off = {phase: f"is {phase}: nothing runs on it until it is started" for phase in (Phase.STOPPED, Phase.STOPPING)}
    closed = {Phase.ENDING: "is being deleted: nothing is started on it any more", **off}
    return reach_box.channel_to(record, closed, root=ROOT)


def why_silent(record: BoxRecord) -> str:
    """Connects and runs a command. Returns why the box can't be used yet; "" when it can."""
    return reach_box.why_silent(lambda: channel_to(record), ["true"])


def _phase(row: Mapping[str, Any]) -> tuple[Phase, str]:
    """The phase, and a note for people where the phase alone does not say enough."""
    state = text(row, "state")
    if is_deleted(row):
        return Phase.ENDING, "Paperspace deletes it, and still shows it"
    if state == "ready":
        return (Phase.RUNNING, "") if _endpoint(row) else (Phase.CREATING, "it is ready and has no address yet")
    if state == "serviceready":
        return Phase.CREATING, _STARTING.format(state=state) + ", or was shut down from inside; it bills"
    if state in ("provisioning", "starting", "restarting", "upgrading"):
        return Phase.CREATING, _STARTING.format(state=state)
    known = {"stopping": (Phase.STOPPING, "Paperspace stops it"), "off": (Phase.STOPPED, "")}
    said = str(row.get("state"))[:60]
    return known.get(state) or (Phase.UNKNOWN, f"Paperspace says {said!r} of it, and what that means is not known")


def _endpoint(row: Mapping[str, Any]) -> SshEndpoint | None:
    """Its address, which another start does not have again; its host key stays with its disk."""
    address = row.get("publicIp")
    return SshEndpoint(address, PORT, USER, start=identifier(row)) if isinstance(address, str) and address else None


def _cards(row: Mapping[str, Any]) -> int | None:
    """The cards that it has; None when Paperspace does not say. Its numbers may come as texts."""
    found = row.get("accelerators")
    if not isinstance(found, list):
        return None
    counts = [str(one.get("count")) if isinstance(one, dict) else "" for one in found]
    return sum(int(count) for count in counts) if all(count.isdecimal() for count in counts) else None


def _region(where: str) -> str:
    """`ny2` of `East Coast (NY2)`: a create takes the first, and a machine shows the second."""
    short = _REGION.search(where)
    return short[1].lower() if short else where
