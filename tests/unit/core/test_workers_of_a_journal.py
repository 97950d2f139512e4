"""What the journal and the heartbeats of a box with several workers say as a whole."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sweepstack.core.heartbeat import Doing, Patrol, merged
from sweepstack.core.journal import Journal, parse_journal
from sweepstack.onbox.common.canonical import GENESIS, canonical_json, sha256_hex

AT = datetime(2026, 11, 24, 9, 0, tzinfo=UTC)
STARTED = {"event": "cell-started", "attempt": 1, "config_digest": "x", "code": "y", "slot": 0}
ROOM = {"event": "queue-blocked", "why": "disk", "free": 1, "needed": 2}


def journal(*events: dict[str, Any]) -> Journal:
    data, head = b"", GENESIS
    for number, event in enumerate(events, 1):
        entry = {**event, "seq": number, "prev": head, "time": (AT + timedelta(seconds=number)).isoformat()}
        head = sha256_hex(canonical_json(entry))
        data += canonical_json({**entry, "hash": head}) + b"\n"
    return parse_journal(data)


def test_each_worker_has_its_own_end() -> None:
    found = journal(
        {"event": "runner-started", "worker": "a"},
        {"event": "runner-started", "worker": "b"},
        {**STARTED, "cell": "c", "worker": "a"},
        {"event": "worker-ended", "worker": "a", "proof": "scheduler: NODE_FAIL", "by": "b"},
        {**STARTED, "cell": "c", "attempt": 2, "worker": "b"},
        {"event": "runner-stopped", "worker": "b", "why": "wall"},
    )
    assert {one.name: one.ended for one in found.workers.values()} == {
        "a": "scheduler: NODE_FAIL",
        "b": "it ended: wall",
    }
    assert (found.cells["c"].worker, found.cells["c"].attempts) == ("b", 2)


def test_the_queue_waits_for_room_only_where_each_living_worker_does() -> None:
    events = [
        {"event": "runner-started", "worker": "a"},
        {"event": "runner-started", "worker": "b"},
        {**ROOM, "worker": "a"},
    ]
    assert journal(*events).blocked is None
    both = [*events, {**ROOM, "worker": "b"}]
    assert journal(*both).blocked is not None
    assert journal(*events, {"event": "runner-stopped", "worker": "b", "why": "wall"}).blocked is not None
    assert journal(*both, {"event": "queue-unblocked", "worker": "a"}).blocked is None


def test_heartbeats_are_merged() -> None:
    one = Patrol(AT, running={"c": Doing(1)}, alarms=("disk 99% full",), blocked={"why": "disk"})
    two = Patrol(AT + timedelta(seconds=5), running={"d": Doing(2)})
    both = merged({"a": one, "b": two})
    assert both is not None
    assert (both.time, set(both.running), both.alarms, both.blocked) == (
        two.time,
        {"c", "d"},
        ("a: disk 99% full",),
        None,
    )
    full = merged({"a": one, "b": replace(two, blocked={"why": "inodes"})})
    assert full is not None
    assert full.blocked == {"why": "inodes"}
    assert merged({}) is None


def test_a_worker_that_is_silent_while_others_write_is_told() -> None:
    """The heartbeat of a box is its latest one: it would hide the worker whose node hangs."""
    late = Patrol(AT, alarms=("disk 99% full",))
    said = [merged({"a": late, "b": Patrol(AT + timedelta(seconds=seconds))}) for seconds in (90, 91)]
    assert [one.alarms for one in said if one is not None] == [
        ("a: disk 99% full",),
        (
            "a: it has written nothing for 91 s (a heartbeat comes every 30 s), and its end is not known",
            "a: disk 99% full",
        ),
    ]
