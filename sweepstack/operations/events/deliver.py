"""Tells each place of each event once. What was told is on record in the evidence, by the event's id.

At least once: a command that dies between the answer of a server and the record leaves that message to the next look,
which sends it again with the same id.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

from pydantic import AwareDatetime, Field

from sweepstack.core.records import Record
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import EvidenceError
from sweepstack.operations.events.channels import Channel
from sweepstack.operations.events.event import Event, messages

STALE = timedelta(minutes=2)
"""A message that was begun so long ago and is not on record as told: its sender died."""
FOLDER = "events"


class Telling(Record):
    """One event at one place."""

    state: Literal["sending", "told"]
    at: AwareDatetime


class Told(Record):
    """What one place was told: id of the event → how far it is."""

    events: dict[str, Telling] = Field(default={})


class Notice(Record):
    """A threshold of a budget, as versions before `events` kept it in a record of its own."""

    threshold: float
    usd: float | None
    hours: float | None
    state: Literal["sending", "told"]
    at: AwareDatetime


@dataclass
class Delivery:
    """What threads are sending; they die with the process. `told`: (place, event) that need no further try."""

    problems: list[str] = field(default_factory=list)
    told: set[tuple[str, str]] = field(default_factory=set)
    _threads: list[tuple[Channel, threading.Thread]] = field(default_factory=list)

    def under_way(self) -> bool:
        """Whether a server has still to answer."""
        return any(thread.is_alive() for _, thread in self._threads)

    def wait(self, seconds: float) -> str:
        """Blocks for at most so long: "" when all was sent, else what was not, and why."""
        deadline = time.monotonic() + seconds
        late = []
        for channel, thread in self._threads:
            thread.join(max(deadline - time.monotonic(), 0))
            if thread.is_alive():
                late.append(f"{channel.shown} has not answered within {seconds:g} s; the next look tries again")
        return "; ".join([*self.problems, *late])


def deliver(
    store: EvidenceStore,
    channels: Iterable[Channel],
    events: Sequence[Event],
    known: Collection[tuple[str, str]] = (),
) -> Delivery:
    """Begins to tell every place of what it was not told yet, each in a thread of its own. Returns at once, and never
    raises: no command waits for a server, or fails with it. `known`: what this process need not look up again."""
    delivery = Delivery()
    for channel in channels:
        wanted = [one for one in events if one.kind in channel.kinds and (channel.key, one.id) not in known]
        if wanted and (unset := channel.unset()):
            delivery.problems.append(f"{unset} is not set here, so {channel.shown} was not told: {wanted[0].words}")
        elif wanted:
            thread = threading.Thread(target=_tell, args=(delivery, store, channel, wanted), daemon=True, name="events")
            delivery._threads.append((channel, thread))
            thread.start()
    return delivery


def _tell(delivery: Delivery, store: EvidenceStore, channel: Channel, events: Sequence[Event]) -> None:
    left: set[str] = set()
    try:
        mine, done = _claim(store, channel, events)
        left = {event.id for event in mine}
        delivery.told |= {(channel.key, one) for one in done}
        for message, ids in messages(mine):
            if why := channel.send(message):
                delivery.problems.append(f"{channel.shown} was not told: {message.words}: {why}")
                break  # the others would wait for the same server
            _note(store, channel, ids, told=True)
            delivery.told |= {(channel.key, one) for one in ids}
            left -= set(ids)
        if left:
            _note(store, channel, left, told=False)  # the next look tries again at once
    except EvidenceError as error:
        delivery.problems.append(f"what {channel.shown} was told is not on record: {error}")


def _claim(store: EvidenceStore, channel: Channel, events: Sequence[Event]) -> tuple[list[Event], set[str]]:
    """The events that this process is the one to tell, and the ids of those that were told already. In neither: what
    another process is telling."""
    now = datetime.now(UTC)
    done = {event.id for event in events if _told_before(store, channel, event)}
    mine: list[Event] = []

    def claimed(known: Told | None) -> Told | None:
        before = known.events if known is not None else {}
        mine.clear()
        for event in events:
            held = before.get(event.id)
            if held is not None and held.state == "told":
                done.add(event.id)
            elif event.id not in done and (held is None or now - held.at >= STALE):
                mine.append(event)
        return Told(events=before | {event.id: Telling(state="sending", at=now) for event in mine}) if mine else known

    store.update_record(_name(channel), Told, claimed)
    return list(mine), done


def _told_before(store: EvidenceStore, channel: Channel, event: Event) -> bool:
    if channel.topic or not event.record_before:
        return False
    notice = store.record(event.record_before, Notice)
    return notice is not None and notice.state == "told"


def _note(store: EvidenceStore, channel: Channel, ids: Collection[str], *, told: bool) -> None:
    """Puts these events on record as told, or takes them off it."""
    done = {one: Telling(state="told", at=datetime.now(UTC)) for one in ids} if told else {}

    def noted(known: Told | None) -> Told:
        others = {one: how for one, how in (known.events if known else {}).items() if one not in ids}
        return Told(events=others | done)

    store.update_record(_name(channel), Told, noted)


def _name(channel: Channel) -> str:
    return f"{FOLDER}/{channel.key}.json"
