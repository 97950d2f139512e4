"""Turns what Lambda says into our records and errors, and reaches an instance.

A status that is not in the table, or an instance that can't be read, is `UNKNOWN` with the reason, never gone. Lambda
does not say when an instance was launched (API 1.10.0): a tag that we give it at the launch holds the time. Its errors
are told apart by their `error.code`: its texts may change, its codes do not (2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sweepstack.onbox.agent.channel import SshEndpoint
from sweepstack.onbox.common.errors import InsufficientFunds, NoCapacity, RequestRefused
from sweepstack.onbox.host.platform import BoxRecord, Phase, Told
from sweepstack.platforms.common import reach_box
from sweepstack.platforms.common.http_client import HttpAnswer, Means, Refusals
from sweepstack.platforms.common.json_values import identifier, moment, number, text

if TYPE_CHECKING:
    from sweepstack.channel.ssh.channel import SshChannel

TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""The form of a tag that can be a value of Lambda's tags."""
TAG_KEY, ASKED_KEY = "sweepstack-tag", "sweepstack-asked"
"""The keys of the tags that an instance gets at its launch: our tag, and when it was asked for (ISO 8601, UTC)."""
MOST_NAME = 64
USER, PORT = "ubuntu", 22
UNHEALTHY = (
    "unhealthy: Lambda's health check fails, or it was shut down from inside; it bills on until it is terminated"
)
PREEMPTED = (
    "preempted, as Lambda says; what that leaves of it is not documented, and it may bill until it is terminated"
)
BILLS = {
    Phase.CREATING: "it may bill in full from its first health check on",
    Phase.RUNNING: "it bills in full",
    Phase.UNKNOWN: "it may bill in full",
}
"""What an instance costs in each phase, for messages."""
ROOT = "/home/ubuntu/sweepstack"
"""The box's folder: `ubuntu` may write there, and it lies on the local disk."""
FOLDERS = ("data", "scratch", "mnt/durable")
"""The folders of the box's tiers: no runner starts without them."""
FIRST_BOOT = (
    f"#cloud-config\nruncmd:\n  - [install, -d, -o, {USER}, -g, {USER}, "
    f"{', '.join([ROOT, f'{ROOT}/mnt', *(f'{ROOT}/{folder}' for folder in FOLDERS)])}]\n"
)
"""What cloud-init does once, at an instance's first boot: a create that was cancelled makes no folders."""


def code_of(answer: HttpAnswer) -> str:
    """The `error.code` of an answer; "" when it has none."""
    return text(answer.data.get("error") if isinstance(answer.data, dict) else None, "code")


REFUSALS = Refusals(
    code_of,
    (
        Means(
            NoCapacity,
            "Lambda has no room for {asked}: {text}",
            codes=("instance-operations/launch/insufficient-capacity",),
        ),
        Means(
            InsufficientFunds,
            "Lambda does not rent to this account ({code}: {text}). Next: see to its payment method and its billing "
            "address in Lambda's console. Asked for: {asked}",
            codes=("global/account-inactive", "global/invalid-address"),
        ),
        Means(
            RequestRefused,
            "Lambda refuses {asked}, since it would be more than the account may have ({text}). Next: end what is not "
            "needed, or ask Lambda's support for a higher quota",
            codes=("global/quota-exceeded",),
        ),
    ),
)


def marked(row: Mapping[str, Any], key: str = TAG_KEY) -> str | None:
    """The value of the instance's tag `key`; "" when it has none, None when its tags can't be read or are left out."""
    tags = row.get("tags")
    if not isinstance(tags, list) or not all(isinstance(tag, dict) for tag in tags):
        return None
    found = next((tag.get("value") for tag in tags if tag.get("key") == key), "")
    return found if isinstance(found, str) else None


def carries(row: Mapping[str, Any], tag: str) -> bool:
    """Whether the instance is the box of this tag: by its tags, or by its name when they can't be read."""
    marker = marked(row)
    return marker == tag or (marker is None and row.get("name") == tag[:MOST_NAME])


def record_of(row: Mapping[str, Any], account: str, *, ending: bool = False) -> BoxRecord:
    """The instance as a record. `ending`: Lambda accepted its terminate, whatever it shows. Raises nothing."""
    native_id, name, marker = identifier(row), text(row, "name"), marked(row)
    kind, region = _dict(row, "instance_type"), str(_dict(row, "region").get("name") or "")
    cents, gpus = number(kind.get("price_cents_per_hour")), _dict(kind, "specs").get("gpus")
    phase, note = _phase(row)
    if marker is None and phase is not Phase.GONE and name.startswith("sweepstack-"):
        phase, note = Phase.UNKNOWN, "its tags can't be read, so whose box it is is not known"
    if ending and phase in (Phase.CREATING, Phase.RUNNING):
        phase, note = Phase.ENDING, "its terminate was accepted, and Lambda still shows it"
    return BoxRecord(
        native_id,
        marker or name,
        account,
        phase,
        None if cents is None else cents / 100,
        moment(marked(row, ASKED_KEY)),
        f"Lambda {region}".strip() + f", instance {native_id}",
        note,
        endpoint=_endpoint(row) if phase in (Phase.RUNNING, Phase.CREATING) else None,
        gpu_count=gpus if isinstance(gpus, int) and not isinstance(gpus, bool) else None,
        region=region,
        offer=f"{kind.get('name')}@{region}",
        told=Told.PREEMPTED if note == PREEMPTED else None,
    )


def channel_to(record: BoxRecord) -> SshChannel:
    """A channel to an instance; it does not connect yet. Raises what `probe.channel_to` raises. Another launch has
    another address."""
    closed = {Phase.ENDING: "is being terminated: nothing is started on it any more"}
    return reach_box.channel_to(record, closed, root=ROOT)


def why_silent(record: BoxRecord) -> str:
    """Connects, and makes the box's folders where they are not there. Returns why the box can't be used yet; "" when
    it can."""
    return reach_box.why_silent(lambda: channel_to(record), ["mkdir", "-p", *FOLDERS])


def _phase(row: Mapping[str, Any]) -> tuple[Phase, str]:
    """The phase, and a note for people where the phase alone does not say enough."""
    status = text(row, "status")
    if status == "active":
        return (Phase.RUNNING, "") if _endpoint(row) else (Phase.CREATING, "it is active and has no address yet")
    known = {
        "booting": (Phase.CREATING, ""),
        "unhealthy": (Phase.RUNNING, UNHEALTHY),
        "terminating": (Phase.ENDING, "Lambda terminates it"),
        "terminated": (Phase.GONE, ""),
        "preempted": (Phase.UNKNOWN, PREEMPTED),
    }
    said = str(row.get("status"))[:60]
    return known.get(status) or (Phase.UNKNOWN, f"Lambda says {said!r} of it, and what that means is not known")


def _endpoint(row: Mapping[str, Any]) -> SshEndpoint | None:
    """Its address, which another launch never has again; its host key stays as long as its disk."""
    address = row.get("ip")
    return SshEndpoint(address, PORT, USER, start=identifier(row)) if isinstance(address, str) and address else None


def _dict(row: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = row.get(key)
    return found if isinstance(found, dict) else {}
