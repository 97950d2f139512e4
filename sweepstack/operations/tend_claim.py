"""Lets one `sweepctl tend` at a time work on a sweep, by a record in the evidence.

Each round renews the claim, which lasts a little longer than a round. After a tend was killed, another one may begin
when the claim has run out; on the same host at once, since there it is seen that the process is gone. Writing is
conditional: if two claim at the same moment, one of them is refused.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from pydantic import AwareDatetime

from sweepstack.core.records import Record
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.agent.channel import host_identity
from sweepstack.onbox.common.errors import EvidenceChanged, SweepstackError

NAME = "tend.json"


class Tending(Record):
    """A claim. `until`: when it runs out, unless it is renewed."""

    host: str
    pid: int
    since: AwareDatetime
    at: AwareDatetime
    until: AwareDatetime


class AlreadyTended(SweepstackError):
    """Another process tends this sweep; the message says which, and when its claim runs out."""


def claim(store: EvidenceStore, lasts: timedelta, mine: Tending | None, *, now: datetime | None = None) -> Tending:
    """Claims the sweep, or renews the claim `mine`. Idempotent. Talks to the evidence only. Raises AlreadyTended."""
    now = now or datetime.now(UTC)
    host, pid = host_identity(), os.getpid()
    found = store.record(NAME, Tending)
    if found is not None and (found.host, found.pid) != (host, pid) and _holds(found, now, host):
        raise AlreadyTended(_words(found, now))
    since = mine.since if mine is not None else now
    fresh = Tending(host=host, pid=pid, since=since, at=now, until=now + lasts)
    try:
        store.write_record(NAME, fresh)
    except EvidenceChanged as error:
        raise AlreadyTended("another tend claimed this sweep at the same moment") from error
    after = store.record(NAME, Tending)
    if after is None or (after.host, after.pid) != (host, pid):
        raise AlreadyTended("another tend claimed this sweep at the same moment")
    return fresh


def let_go(store: EvidenceStore, mine: Tending) -> None:
    """Gives the claim up, if it is still ours. Never raises: it runs out by itself."""
    try:
        found = store.record(NAME, Tending)
        if found is not None and (found.host, found.pid) == (mine.host, mine.pid):
            store.write_record(NAME, None)
    except SweepstackError:
        return


def _holds(found: Tending, now: datetime, host: str) -> bool:
    if now >= found.until:
        return False
    if found.host != host:
        return True
    try:
        os.kill(found.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _words(found: Tending, now: datetime) -> str:
    ago, left = (now - found.at).total_seconds(), (found.until - now).total_seconds()
    return (
        f"this sweep is tended by process {found.pid} on {found.host} since {found.since:%Y-%m-%d %H:%M} UTC; it was "
        f"at work {max(ago, 0):.0f} s ago, and its claim runs out in {left:.0f} s if it is dead"
    )
