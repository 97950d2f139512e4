"""The journal's chain, and what it says of cells."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sweepstack.core.journal import SetupProgress, _Proved, parse_journal, whole_lines
from sweepstack.onbox.common.canonical import GENESIS, canonical_json, digest_of, sha256_hex
from sweepstack.onbox.common.errors import JournalDamaged

DIGEST = digest_of("x")
TIME = "2026-11-21T09:00:00.123Z"


def journal(*events: dict[str, Any]) -> bytes:
    """A journal of these events, chained."""
    head, lines = GENESIS, []
    for seq, event in enumerate(events, start=1):
        entry = {"seq": seq, "time": TIME, "prev": head, **event}
        head = sha256_hex(canonical_json(entry))
        lines.append(canonical_json({**entry, "hash": head}) + b"\n")
    return b"".join(lines)


def started(cell: str = "a", attempt: int = 1) -> dict[str, Any]:
    """A cell-started event."""
    return {
        "event": "cell-started",
        "cell": cell,
        "attempt": attempt,
        "config_digest": DIGEST,
        "code": DIGEST,
        "argv": ["x"],
        "slot": 0,
    }


def sealed(cell: str = "a", attempt: int = 1) -> dict[str, Any]:
    """A cell-sealed event."""
    return {
        "event": "cell-sealed",
        "cell": cell,
        "attempt": attempt,
        "config_digest": DIGEST,
        "manifest": DIGEST,
        "bytes": 1,
    }


FAILED = {"event": "cell-failed", "cell": "a", "attempt": 1, "exit_code": 1, "reason": "exit code 1", "final": False}


def test_an_empty_journal_has_the_genesis_head() -> None:
    found = parse_journal(b"")
    assert (found.head, found.entries, dict(found.cells)) == (GENESIS, (), {})


def test_states_follow_events() -> None:
    data = journal({"event": "runner-started", "pid": 1}, started(), FAILED, started(attempt=2), sealed(attempt=2))
    found = parse_journal(data)
    cell = found.cells["a"]
    assert (cell.state, cell.attempts, cell.manifest, cell.final, cell.code) == ("sealed", 2, DIGEST, True, DIGEST)
    assert cell.started_at is not None
    assert found.head == json.loads(data.splitlines()[-1])["hash"]
    middle = parse_journal(b"".join(data.splitlines(keepends=True)[:3])).cells["a"]
    assert (middle.state, middle.reason, middle.final) == ("failed", "exit code 1", False)
    assert found.continues(parse_journal(b"".join(data.splitlines(keepends=True)[:3])))


def test_a_cell_started_again_is_not_sealed_any_more() -> None:
    cell = parse_journal(journal(started(), sealed(), started(attempt=2))).cells["a"]
    assert (cell.state, cell.manifest, cell.final) == ("running", None, False)


def test_a_cell_that_failed_has_no_manifest_whatever_stood_before() -> None:
    """The runner writes a start between them. A journal that lacks it must not let a failed cell look sealed."""
    cell = parse_journal(journal(started(), sealed(), FAILED)).cells["a"]
    assert (cell.state, cell.manifest) == ("failed", None)


def test_found_sealed_dropped_and_refused() -> None:
    found = parse_journal(
        journal(
            {"event": "cell-found-sealed", "cell": "a", "manifest": DIGEST, "config_digest": DIGEST},
            {"event": "cell-dropped", "cell": "b", "reason": "wrong"},
            {"event": "cell-refused", "cell": "a", "reason": "another config"},
            {"event": "cell-refused", "cell": "c", "reason": "no such name"},
            {"event": "something-new", "cell": 7},
        )
    ).cells
    assert (found["a"].state, found["a"].manifest, found["a"].attempts) == ("sealed", DIGEST, 0)
    assert (found["b"].state, found["b"].reason) == ("dropped", "wrong")
    assert (found["c"].state, found["c"].final) == ("failed", True)


def test_a_torn_last_line_is_not_part_of_the_journal() -> None:
    data = journal(started(), sealed())
    torn = data + b'{"seq":3,"ti'
    assert parse_journal(torn) == parse_journal(data)
    assert whole_lines(torn) == data
    assert whole_lines(b'{"seq"') == b""


def edit(data: bytes, line: int, **changes: Any) -> bytes:
    """One line changed, its own hash left alone."""
    lines = data.splitlines(keepends=True)
    lines[line] = canonical_json({**json.loads(lines[line]), **changes}) + b"\n"
    return b"".join(lines)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: edit(data, 1, manifest=digest_of("y")), "line 2 does not match its own hash"),
        (lambda data: b"".join(data.splitlines(keepends=True)[1:]), "line 1 says that it is entry 2"),
        (lambda data: data.replace(b'"seq":1', b'"seq": 1', 1), "line 1 is not written in the canonical form"),
        (lambda data: data.replace(b'"seq":2', b'"seq":2,"seq":2', 1), "line 2 is not written in the canonical form"),
        (lambda data: edit(data, 1, prev=GENESIS), "line 2 does not follow"),
        (lambda data: b"\n" + data, "line 1 is not JSON"),
        (lambda data: data + b"\0\0\0\n", "line 3 is not JSON"),
        (lambda data: b"[" * 100000 + b"\n", "line 1 is not JSON"),
        (lambda data: b"7\n", "line 1 is not an event"),
        (lambda data: data.replace(b'"argv":["x"]', b'"argv":[NaN]'), "line 1 is not JSON"),
    ],
)
def test_a_broken_chain_is_refused_with_its_line(damage: Any, message: str) -> None:
    with pytest.raises(JournalDamaged, match=message):
        parse_journal(damage(journal(started(), sealed())))


def test_every_single_byte_counts() -> None:
    data = journal(started(), sealed())
    good = parse_journal(data)
    for offset in range(len(data) - 1):
        bad = data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :]
        with pytest.raises(JournalDamaged):
            parse_journal(bad)
    assert parse_journal(data[:-1]).head == good.entries[0]["hash"]


@pytest.mark.parametrize("number", [1, 500, 501, 777])
def test_of_many_lines_the_damaged_one_is_named(number: int) -> None:
    """Lines are compared with their canonical form together; which of them is not, is told all the same."""
    lines = journal(*(started(f"c{n}") for n in range(777))).splitlines(keepends=True)
    whole = parse_journal(b"".join(lines))
    assert (len(whole.entries), len(whole.cells)) == (777, 777)
    lines[number - 1] = lines[number - 1].replace(b'":', b'" :', 1)
    with pytest.raises(JournalDamaged, match=f"line {number} is not written in the canonical form"):
        parse_journal(b"".join(lines))


def test_lines_that_are_cut_at_other_places_are_no_journal() -> None:
    """Put together they are the same bytes as the entries, and no line of them is one."""
    first, second = journal(started(), sealed()).splitlines()
    at = second.index(b',"event"')
    moved = first + b"," + second[:at] + b"\n" + second[at + 1 :] + b"\n"
    assert b",".join(moved.splitlines()) == b",".join([first, second])
    with pytest.raises(JournalDamaged, match="line 1 is not JSON"):
        parse_journal(moved)
    one_line = first + b"," + second + b"\n"
    with pytest.raises(JournalDamaged, match="line 1 is not JSON"):
        parse_journal(one_line)


def test_an_event_that_lacks_what_it_must_say_is_refused() -> None:
    event = sealed()
    del event["manifest"]
    with pytest.raises(JournalDamaged, match=r"line 1 \(cell-sealed\) lacks"):
        parse_journal(journal(event))


def test_what_was_proved_is_kept_within_bounds() -> None:
    proved = _Proved(3, 100)
    journals = {bytes([letter]) * 40: parse_journal(journal(started(chr(letter)))) for letter in b"abcd"}
    for data, parsed in journals.items():
        proved.keep(data, parsed)
    assert [proved.get(data) is parsed for data, parsed in journals.items()] == [False, False, True, True]
    proved.keep(b"x" * 1000, journals[b"a" * 40])
    assert proved.get(b"x" * 1000) is journals[b"a" * 40], "the newest, whatever its size"
    assert proved.get(b"d" * 40) is None
    for data, parsed in journals.items():
        proved.keep(data[:10], parsed)
    assert [proved.get(data[:10]) is parsed for data, parsed in journals.items()] == [False, True, True, True]


def test_a_journal_that_was_proved_vouches_for_no_other() -> None:
    good = journal(started(), sealed())
    assert parse_journal(good) is parse_journal(bytes(bytearray(good)))
    with pytest.raises(JournalDamaged):
        parse_journal(good.replace(b'"attempt":1', b'"attempt":2', 1))


def test_a_rewritten_journal_does_not_continue() -> None:
    before = parse_journal(journal(started(), sealed()))
    assert not parse_journal(journal(started(), FAILED, started(attempt=2))).continues(before)
    assert not parse_journal(journal(started())).continues(before)
    assert before.continues(before)
    assert before.continues(parse_journal(b""))


# What a queue does beside its cells


def test_setups_are_read() -> None:
    begun = {"event": "setup-started", "setup": DIGEST, "code": DIGEST}
    assert parse_journal(journal(begun)).setups == {DIGEST: SetupProgress(DIGEST, "started", DIGEST)}
    failed = {"event": "setup-failed", "setup": DIGEST, "reason": "no such package"}
    found = parse_journal(journal(begun, failed)).setups[DIGEST]
    assert found == SetupProgress(DIGEST, "failed", DIGEST, reason="no such package")
    done = {"event": "setup-finished", "setup": DIGEST, "seconds": 12.5}
    assert parse_journal(journal(begun, failed, begun, done)).setups[DIGEST] == SetupProgress(
        DIGEST, "finished", DIGEST, 12.5
    )


def test_a_block_lasts_until_it_is_lifted() -> None:
    blocked = {"event": "queue-blocked", "why": "disk", "free": 5, "needed": 10, "hint": "expand it"}
    found = parse_journal(journal(blocked)).blocked
    assert found is not None
    assert (found.why, found.free, found.needed, found.hint) == ("disk", 5, 10, "expand it")
    assert parse_journal(journal(blocked, {"event": "queue-unblocked"})).blocked is None


WRONG = FAILED | {"class": "files", "final": True, "exit_code": 0}
RESEALING = {"event": "cell-resealing", "cell": "a", "attempt": 1, "version": DIGEST}
DROPPED = {"event": "cell-dropped", "cell": "a", "reason": "x"}


@pytest.mark.parametrize(
    ("events", "hold"),
    [
        ((started(), WRONG), ("a",)),
        ((started(), FAILED), ()),
        ((started(), WRONG, started("b"), sealed("b")), ()),
        ((started("b"), sealed("b"), started(), WRONG), ()),  # one was sealed before
        ((started(), WRONG, started(attempt=2)), ()),  # a person asked for it again
        ((started("b"), started(), WRONG, started("b", 2)), ("a",)),  # b had begun, and is only tried again
        ((started(), WRONG, started("b")), ()),
        ((started(), WRONG, RESEALING), ("a",)),
        ((started(), WRONG, RESEALING, WRONG), ("a",)),
        ((started(), WRONG, RESEALING, sealed()), ()),
        ((started(), WRONG, DROPPED), ()),
    ],
)
def test_the_first_cell_with_wrong_files_holds_those_that_have_not_begun(events: Any, hold: tuple[str, ...]) -> None:
    found = parse_journal(journal(*events))
    assert found.hold == hold
    assert found.waits("c") == bool(hold)
    assert not found.waits(str(events[0]["cell"]))


def test_files_that_are_sealed_later_are_at_work_until_then() -> None:
    before = parse_journal(journal(started(), WRONG)).cells["a"]
    now = parse_journal(journal(started(), WRONG, RESEALING)).cells["a"]
    assert (before.state, before.final, now.state, now.final, now.attempts) == ("failed", True, "running", False, 1)


def test_retries_and_failure_classes_are_read() -> None:
    assert parse_journal(journal(started())).cells["a"].retry == 0
    failed = FAILED | {"class": "bug", "final": True}
    assert parse_journal(journal(started(), failed)).cells["a"].failure_class == "bug"
    again = started(attempt=2) | {"retry": 3}
    found = parse_journal(journal(started(), failed, again)).cells["a"]
    assert (found.retry, found.failure_class, found.final) == (3, None, False)
    assert parse_journal(journal(again, sealed(attempt=2))).cells["a"].retry == 3
    late = {"event": "cell-found-sealed", "cell": "a", "manifest": DIGEST, "config_digest": DIGEST}
    assert parse_journal(journal(late | {"retry": 4})).cells["a"].retry == 4
    assert parse_journal(journal(again, late)).cells["a"].retry == 3


@pytest.mark.parametrize(
    "event",
    [
        {"event": "setup-started"},
        {"event": "setup-failed", "setup": "x"},
        {"event": "setup-finished", "setup": "x", "seconds": "y"},
        {"event": "queue-blocked", "why": "disk", "free": "much", "needed": 1},
        started() | {"retry": "x"},
    ],
    ids=lambda event: str(event["event"]),
)
def test_an_event_that_lacks_what_it_must_say_is_damage(event: dict[str, Any]) -> None:
    with pytest.raises(JournalDamaged, match="lacks what it must say"):
        parse_journal(journal(event))
