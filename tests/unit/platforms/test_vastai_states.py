"""Every four words that vast.ai can say of an instance have a phase; any other word is UNKNOWN."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweepstack.onbox.agent.channel import SshEndpoint
from sweepstack.onbox.host.platform import Phase, Told
from sweepstack.platforms.vastai.states import (
    CONTRACT_OVER,
    FROZEN,
    MAY_START,
    OFFLINE,
    OUTBID,
    OUTBID_OR_STOPPED,
    UNLOADED,
    WORDS,
    endpoint_of,
    is_fatal,
    phase_in,
    phase_of,
    record_of,
    settled,
)

R, S = "running", "stopped"
TABLE: list[tuple[tuple[str | None, ...], Phase, str]] = [
    ((None, R, R, R), Phase.CREATING, ""),
    (("created", R, R, R), Phase.CREATING, ""),
    (("loading", R, R, R), Phase.CREATING, ""),
    ((None, None, None, None), Phase.CREATING, ""),
    (("running", R, R, R), Phase.RUNNING, ""),
    (("running", R, None, None), Phase.RUNNING, ""),
    (("running", R, S, R), Phase.CREATING, MAY_START),
    (("running", R, R, S), Phase.STOPPING, "pausing"),
    (("running", S, R, S), Phase.STOPPING, ""),
    (("running", S, S, S), Phase.STOPPING, ""),
    (("stopped", S, S, S), Phase.STOPPED, ""),
    (("exited", S, S, S), Phase.STOPPED, ""),
    ((None, S, S, S), Phase.STOPPED, ""),  # a bid that was too low from the start
    (("loading", S, S, S), Phase.STOPPED, ""),
    (("exited", S, R, S), Phase.STOPPING, "its contract still runs"),
    (("stopped", S, S, R), Phase.STOPPED, MAY_START),
    (("stopped", R, R, R), Phase.STOPPED, OUTBID),
    (("stopped", R, S, S), Phase.STOPPED, OUTBID),
    (("exited", R, S, S), Phase.STOPPED, OUTBID),
    (("stopped", R, S, R), Phase.STOPPED, MAY_START),
    (("exited", R, R, R), Phase.UNKNOWN, "exited"),
    (("stopped", None, None, None), Phase.UNKNOWN, "says nothing"),
    (("loading", R, R, S), Phase.STOPPING, OUTBID),
    (("loading", R, S, S), Phase.STOPPED, OUTBID),
    (("loading", S, R, S), Phase.STOPPING, ""),
    (("rebooting", R, R, R), Phase.CREATING, ""),
    (("restarting", R, R, R), Phase.CREATING, ""),
    (("recycling", R, R, R), Phase.CREATING, ""),
    (("rebooting", S, S, S), Phase.STOPPING, ""),
    (("frozen", R, R, R), Phase.UNKNOWN, FROZEN),
    (("frozen", S, R, S), Phase.STOPPING, FROZEN),
    (("frozen", "frozen", R, R), Phase.UNKNOWN, FROZEN),
    (("running", "frozen", R, R), Phase.UNKNOWN, FROZEN),
    (("stopped", S, "unloaded", S), Phase.ENDING, UNLOADED),
    (("running", R, "unloaded", R), Phase.ENDING, UNLOADED),
    (("offline", R, R, R), Phase.UNKNOWN, OFFLINE),
    (("offline", S, S, S), Phase.UNKNOWN, OFFLINE),
    (("unknown", R, R, R), Phase.UNKNOWN, "may run and bill"),
    (("unknown", S, S, S), Phase.UNKNOWN, "may run and bill"),
]


@pytest.mark.parametrize(("words", "phase", "note"), TABLE, ids=[str(row[0]) for row in TABLE])
def test_the_phase_of_what_was_seen(words: tuple[Any, ...], phase: Phase, note: str) -> None:
    found, said = phase_of(*words)
    assert found is phase
    assert (note in said) if note else said == ""


def test_all_combinations_of_known_words_have_a_phase_that_is_safe() -> None:
    seen = set()
    for actual, intended, current, following in itertools.product(*WORDS.values()):
        phase, note = phase_of(actual, intended, current, following)
        seen.add(phase)
        assert phase is not Phase.GONE
        assert (phase is Phase.ENDING) == (current == "unloaded")
        if phase is Phase.RUNNING:
            assert actual == "running"
            assert "stopped" not in (intended, current, following)
        if phase is Phase.STOPPED:
            assert actual not in ("running", "frozen", "offline", "unknown")
        if phase is Phase.UNKNOWN:
            assert note
        row = {"actual_status": actual, "intended_status": intended, "cur_state": current, "next_state": following}
        if settled(row):
            assert phase is Phase.STOPPED
            assert "running" not in (intended, following)
    assert seen == set(Phase) - {Phase.GONE, Phase.FAILED}  # it has no word for the latter


@pytest.mark.parametrize("place", range(4))
@given(word=st.one_of(st.text(max_size=12), st.integers(), st.booleans(), st.lists(st.text(), max_size=2)))
def test_any_other_word_is_unknown_and_named(place: int, word: Any) -> None:
    if isinstance(word, str) and word in [*WORDS.values()][place]:
        return
    words: list[Any] = ["running", "running", "running", "running"]
    words[place] = word
    phase, note = phase_of(*words)
    assert phase is Phase.UNKNOWN
    assert ("actual_status", "intended_status", "cur_state", "next_state")[place] in note


def row(**changes: Any) -> dict[str, Any]:
    return {
        "id": 4711,
        "label": "sweepstack-a1b2c3-box-0-g1",
        "actual_status": "running",
        "intended_status": "running",
        "cur_state": "running",
        "next_state": "running",
        "dph_total": 0.41,
        "start_date": 1_790_000_000.5,
        "machine_id": 99,
        "geolocation": "Texas, US",
        "num_gpus": 2,
        "public_ipaddr": "203.0.113.9\n",
        "ports": {"22/tcp": [{"HostIp": "0.0.0.0", "HostPort": "41022"}]},
        "ssh_host": "ssh5.vast.ai",
        "ssh_port": 14711,
        **changes,
    }


def test_a_record_has_what_vast_says() -> None:
    record = record_of(row(), "77")
    assert (record.native_id, record.tag, record.account) == ("4711", "sweepstack-a1b2c3-box-0-g1", "77")
    assert (record.phase, record.price_per_hour, record.gpu_count) == (Phase.RUNNING, 0.41, 2)
    assert record.created_at == datetime.fromtimestamp(1_790_000_000.5, UTC)
    assert record.ends_at is None
    ends = datetime(2026, 12, 27, 3, tzinfo=UTC)
    assert record_of(row(end_date=ends.timestamp()), "77").ends_at == ends
    assert record.location == "vast.ai machine 99, Texas, US"
    assert record.endpoint == SshEndpoint("203.0.113.9", 41022, start="1790000000.5")


def test_a_box_whose_contract_is_over_says_that_it_never_starts_again() -> None:
    stopped = dict.fromkeys(("actual_status", "intended_status", "cur_state", "next_state"), "stopped")
    assert record_of(row(**stopped, end_date=1_790_000_000.0), "77").note.endswith(CONTRACT_OVER)
    assert CONTRACT_OVER not in record_of(row(**stopped, end_date=4_000_000_000.0), "77").note
    assert CONTRACT_OVER not in record_of(row(end_date=1_790_000_000.0), "77").note


def test_the_direct_port_comes_first_and_the_relay_after_it() -> None:
    assert endpoint_of(row(ports={})) == SshEndpoint("ssh5.vast.ai", 14711, start="1790000000.5")
    assert endpoint_of(row(public_ipaddr=None)) == SshEndpoint("ssh5.vast.ai", 14711, start="1790000000.5")
    assert endpoint_of(row(ports=None, ssh_host=None)) is None
    assert endpoint_of(row(ports={"22/tcp": [{"HostPort": "no port"}]}, ssh_port=0)) is None


@pytest.mark.parametrize("actual", [None, "loading", "stopped", "exited", "offline"])
def test_what_does_not_run_has_no_endpoint(actual: str | None) -> None:
    assert record_of(row(actual_status=actual), "77").endpoint is None


@pytest.mark.parametrize(
    ("changes", "told", "note"),
    [
        ({"min_bid": 0.31}, Told.PREEMPTED, "more than its bid now (0.3100 USD/h)"),
        ({"min_bid": 0.30}, Told.TAKEN_OR_STOPPED, OUTBID_OR_STOPPED),
        ({"min_bid": 0.10, "dph_base": None}, Told.TAKEN_OR_STOPPED, OUTBID_OR_STOPPED),
        ({"intended_status": R}, Told.PREEMPTED, OUTBID),
        ({"actual_status": "frozen", "intended_status": R}, Told.FROZEN, FROZEN),
        ({"is_bid": False, "min_bid": 0.31}, None, ""),
    ],
)
def test_a_spot_box_that_stands_still_may_have_been_outbid(
    changes: dict[str, Any], told: Told | None, note: str
) -> None:
    """vast.ai shows one that was outbid with the same words as one that was stopped (dstack reads it so, 2026)."""
    still = dict.fromkeys(("actual_status", "intended_status", "cur_state", "next_state"), S)
    record = record_of(row(**{**still, "is_bid": True, "dph_base": 0.30, "min_bid": 0.20, **changes}), "77")
    assert record.told is told
    assert (note in record.note) if note else record.note == ""


def test_what_was_ended_is_ending_while_it_is_shown() -> None:
    record = record_of(row(actual_status="exited"), "77", {4711})
    assert record.phase is Phase.ENDING
    assert record.endpoint is None


def test_a_label_that_cannot_be_read_is_said() -> None:
    record = record_of(row(label={"a": 1}), "77")
    assert (record.tag, record.phase) == ("", Phase.UNKNOWN)
    assert "label" in record.note
    assert record_of(row(label=None), "77").phase is Phase.RUNNING


def test_an_image_that_does_not_start_is_fatal_and_told() -> None:
    broken = row(actual_status="created", status_msg="Error: x : OCI runtime create failed: no such file\n")
    phase, note = phase_in(broken)
    assert phase is Phase.UNKNOWN
    assert is_fatal(broken)
    assert "OCI runtime create failed" in note
    assert not is_fatal(row(status_msg="success, running"))


@given(
    st.dictionaries(
        st.sampled_from([name for name in row() if name != "id"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=6), inner, max_size=2),
            max_leaves=4,
        ),
    )
)
def test_no_row_breaks_the_record(changes: dict[str, Any]) -> None:
    """One row of nonsense must not hide the other boxes of the account."""
    assert record_of(row(**changes), "77").native_id == "4711"
