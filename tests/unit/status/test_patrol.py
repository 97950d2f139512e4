"""The heartbeat as a box writes it: the last whole line counts, and what is odd is unknown, never an error."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweepstack.core.heartbeat import parse_patrol

BEGIN = datetime(2026, 11, 21, 9, tzinfo=UTC)


def lines(*rows: dict[str, Any], every: float = 30.0) -> bytes:
    made = [{"time": (BEGIN + timedelta(seconds=index * every)).isoformat(), **row} for index, row in enumerate(rows)]
    return b"".join(json.dumps(row).encode() + b"\n" for row in made)


def test_the_last_whole_line_counts() -> None:
    data = lines({"alarms": ["first"]}, {"alarms": ["second"]})
    patrol = parse_patrol(data[5:] + b'{"time": "2026-11-21T10:00')
    assert patrol is not None
    assert patrol.alarms == ("second",)
    assert patrol.time == BEGIN + timedelta(seconds=30)


def test_every_field_of_the_contract() -> None:
    patrol = parse_patrol(
        lines(
            {
                "schema": 2,
                "running": [{"cell": "a", "attempt": 2, "verdict": "hung", "why": "log still", "quiet_seconds": 700.5}],
                "disk": {"free": 25, "total": 100, "inodes_free": 10, "inodes_total": 1000},
                "memory": {"used": 5, "limit": 10, "oom_kills": 0},
                "gpus": [{"index": 0, "util": 97}],
                "alarms": ["hot"],
                "blocked": {"why": "disk", "free": 1, "needed": 2},
            }
        )
    )
    assert patrol is not None
    doing = patrol.running["a"]
    assert (doing.attempt, doing.verdict, doing.why, doing.quiet_seconds) == (2, "hung", "log still", 700.5)
    assert (patrol.disk.used, patrol.inodes.used) == (0.75, 0.99)
    assert patrol.memory == {"used": 5, "limit": 10, "oom_kills": 0}
    assert patrol.gpus[0]["util"] == 97
    assert patrol.blocked == {"why": "disk", "free": 1, "needed": 2}


def test_a_line_of_an_older_runner() -> None:
    patrol = parse_patrol(lines({"running": [{"cell": "a", "attempt": 1, "pid": 7}], "disk_free": 9, "inodes_free": 3}))
    assert patrol is not None
    assert (patrol.disk.free, patrol.disk.used) == (9, None)
    assert patrol.running["a"].verdict == ""


@pytest.mark.parametrize(
    ("every", "age", "silent"), [(30, 89, False), (30, 91, True), (120, 359, False), (5, 89, False)]
)
def test_silent_after_three_heartbeats(every: float, age: float, silent: bool) -> None:
    patrol = parse_patrol(lines({}, {}, {}, every=every), every)
    assert patrol is not None
    assert patrol.silent(patrol.time + timedelta(seconds=age)) is silent


def test_what_a_file_system_does_not_count_is_unknown() -> None:
    patrol = parse_patrol(lines({"disk": {"free": -1, "total": 0, "inodes_free": -1, "inodes_total": 0}}))
    assert patrol is not None
    assert (patrol.disk.used, patrol.disk.free, patrol.inodes.free) == (None, None, None)


@pytest.mark.parametrize("data", [b"", b"no json\n", b"[]\n", b'{"time": 5}\n', b'{"time": "2026-11-21T09:00:00"}\n'])
def test_no_line_that_reads(data: bytes) -> None:
    assert parse_patrol(data) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = ("running", "disk", "memory", "gpus", "alarms", "blocked", "disk_free", "inodes_free", "schema")


@settings(suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no finding
@given(row=st.dictionaries(st.sampled_from(KEYS), JSON, max_size=9), cell=st.dictionaries(st.text(max_size=8), JSON))
def test_whatever_a_box_writes_is_read(row: dict[str, Any], cell: dict[str, Any]) -> None:
    patrol = parse_patrol(lines(row | {"running": [{"cell": "a", **cell}]}))
    assert patrol is not None
    assert patrol.disk.used is None or 0 <= patrol.disk.used <= 1
