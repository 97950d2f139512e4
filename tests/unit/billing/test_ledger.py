"""The ledger: spans from entries, whoever wrote them and how often; nothing damaged is counted as zero."""

from __future__ import annotations

import re
import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweepstack.billing.budget import use_of
from sweepstack.billing.cost import box_costs
from sweepstack.billing.ledger import bill_of, record_phase, spent, total
from sweepstack.core.budget import Budget
from sweepstack.core.records import Birth, LedgerEntry, LedgerPhase
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.units import spell_rate
from sweepstack.teardown.close_box import close_books, still_billed

BEGIN = datetime(2026, 11, 21, 9, tzinfo=UTC)
ID = "local-abcdefghij"


def at(hours: float) -> datetime:
    return BEGIN + timedelta(hours=hours)


@pytest.fixture
def store(tmp_path: Path) -> EvidenceStore:
    return EvidenceStore.found(f"file://{socket.gethostname()}{tmp_path}/evidence", "abc", "project", "stack")


def record(
    store: EvidenceStore, phase: LedgerPhase, hours: float, price: float | None = 2.0, native_id: str = ID
) -> None:
    record_phase(
        store,
        box="box-0",
        native_id=native_id,
        platform="local",
        account="me",
        phase=phase,
        price_per_hour=price,
        at=at(hours),
        how="cleared" if phase == "ended" else "",
    )


def birth(native_id: str | None = ID, ended: float | None = None, price: float | None = 2.0) -> Birth:
    return Birth(
        box="box-0",
        generation=1,
        tag="t",
        platform="local",
        account="me",
        native_id=native_id,
        price_per_hour=price,
        begun_at=BEGIN,
        created_at=BEGIN,
        ended_at=None if ended is None else at(ended),
        ended_how=None if ended is None else "vanished",
    )


def files(store: EvidenceStore) -> list[Path]:
    return sorted((store.root / "records" / "ledger").glob("*.json"))


def test_a_box_that_runs_stands_still_and_ends(store: EvidenceStore) -> None:
    record(store, "running", 0, 2.0)
    record(store, "stopped", 3, 0.1)
    record(store, "running", 13, 2.0)
    record(store, "ended", 14)
    found = spent(store, at(100))
    (bill,) = found.bills
    assert [(span.phase, span.hours(at(100))) for span in bill.spans] == [
        ("running", 3),
        ("stopped", 10),
        ("running", 1),
    ]
    assert found.usd == pytest.approx(3 * 2 + 10 * 0.1 + 2)
    assert (found.hours, found.per_hour, found.complete) == (4, 0.0, True)
    assert (bill.ended_at, bill.ended_how, bill.open) == (at(14), "cleared", None)


def test_what_goes_on_is_counted_until_now(store: EvidenceStore) -> None:
    record(store, "running", 0, 2.0)
    record(store, "running", 0, 4.0, native_id="other")
    found = spent(store, at(2))
    assert (found.usd, found.hours, found.per_hour) == (12.0, 4.0, 6.0)


def test_the_same_entry_again_changes_nothing(store: EvidenceStore) -> None:
    for hours in (0, 1, 2):
        record(store, "running", hours)
    record(store, "stopped", 3, 0.1)
    record(store, "running", 0)  # an adopt that knows only when the box was made
    record(store, "stopped", 5, 0.1)
    assert len(files(store)) == 2
    assert spent(store, at(4)).usd == pytest.approx(6.1)


def test_two_who_notice_the_same_end_count_the_earlier(store: EvidenceStore) -> None:
    record(store, "running", 0)
    record(store, "ended", 5)
    record(store, "ended", 4)
    (bill,) = spent(store, at(9)).bills
    assert (bill.usd(at(9)), bill.ended_at) == (8.0, at(4))


def test_a_new_price_begins_a_new_span(store: EvidenceStore) -> None:
    record(store, "running", 0, 1.0)
    record(store, "running", 2, 3.0)
    assert spent(store, at(3)).usd == pytest.approx(5.0)


def test_an_unknown_price_is_not_zero(store: EvidenceStore) -> None:
    record(store, "running", 0, None)
    record(store, "running", 0, 1.0, native_id="other")
    found = spent(store, at(3))
    assert (found.usd, found.complete) == (3.0, False)
    assert [bill.usd(at(3)) for bill in found.bills] == [None, 3.0]


def test_a_span_without_a_price_hides_none_that_has_one(store: EvidenceStore) -> None:
    """Every sum has what is known, and says what is missing."""
    record(store, "running", 0, 2.0)
    record(store, "stopped", 2, None)
    found = spent(store, at(9))
    (bill,) = found.bills
    assert (found.usd, found.complete, bill.usd(at(9)), bill.whole) == (4.0, False, 4.0, False)
    assert found.text == "at least $4.00, plus a span without a price"
    budget = Budget(usd=5)
    assert use_of(budget, found).text() == "at least $4.00 of $5.00, plus a span without a price (80 %)"
    costs = box_costs(found, ID, budget)
    assert costs is not None
    assert (costs.so_far, costs.unpriced) == (4.0, 1)
    record(store, "running", 9, 1.0)
    record(store, "stopped", 10, None)
    assert spent(store, at(11)).text == "at least $5.00, plus 2 spans without a price"


@pytest.mark.parametrize(("recorded", "ended"), [((), 5), ((("ended", 5),), None), ((("running", 0),), 5)])
def test_the_birth_record_counts_where_the_ledger_has_no_begin_or_no_end(
    store: EvidenceStore, recorded: tuple[tuple[LedgerPhase, float], ...], ended: int | None
) -> None:
    """A box of before the ledger, one that ended since, and an end that its birth record alone has."""
    for phase, hours in recorded:
        record(store, phase, hours)
    store.write_birth(birth(ended=ended))
    (bill,) = spent(store, at(9)).bills
    assert (bill.usd(at(9)), bill.ended_at, bill.open, bill.generation) == (10.0, at(5), None, 1)
    assert bill.ended_how == ("vanished" if ended else "cleared")


def test_a_request_without_an_answer_is_no_bill(store: EvidenceStore) -> None:
    store.write_birth(birth(native_id=None))
    assert spent(store, at(9)).bills == ()


@pytest.mark.parametrize("garbage", [b"", b"{", b'{"box": "box-0"}', b"\xff\xfe", b'{"phase": "idle"}'])
def test_a_damaged_entry_is_said_and_counted_by_the_birth(store: EvidenceStore, garbage: bytes) -> None:
    record(store, "running", 0)
    record(store, "stopped", 1, 0.0)
    store.write_birth(birth())
    files(store)[0].write_bytes(garbage)
    found = spent(store, at(9))
    assert found.usd == 18.0, "never less than what it can have cost"
    assert not found.complete
    assert found.problems
    assert files(store)[0].name in found.problems[0]


def test_a_damaged_entry_of_a_box_that_nothing_else_knows(store: EvidenceStore) -> None:
    record(store, "running", 0)
    files(store)[0].write_bytes(b"{")
    (bill,) = spent(store, at(9)).bills
    assert (bill.native_id, bill.usd(at(9)), bill.per_hour) == (ID, None, None)
    assert bill.problem


def test_what_is_asked_of_one_id_is_of_that_id_alone(store: EvidenceStore) -> None:
    ids = (ID, f"{ID}--x", f"{ID}/x", f"{ID}--0123456789abcdef")
    for native_id in ids:
        record(store, "running", 0, native_id=native_id)
        record(store, "stopped", 1, 0.0, native_id=native_id)
    for native_id in ids:
        found, damaged = store.ledger(native_id)
        assert [entry.native_id for entry in found] == [native_id] * 2
        assert not damaged
    assert len(store.ledger()[0]) == 2 * len(ids)
    for native_id in ids:
        record(store, "stopped", 2, 0.0, native_id=native_id)
    assert len(files(store)) == 2 * len(ids), "said already, and not written again"


def test_births_that_were_read_are_not_read_again(store: EvidenceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write_birth(birth())
    births = store.births()
    assert spent(store, at(2), births) == spent(store, at(2))
    monkeypatch.setattr(store, "births", pytest.fail)
    assert spent(store, at(2), births).usd == 4.0


def test_the_bill_of_one_box_reads_nothing_of_another(store: EvidenceStore) -> None:
    store.write_birth(birth(ended=5.0))
    record(store, "stopped", 3, 0.1)
    store.write_birth(birth("other").model_copy(update={"box": "box-1"}))
    record(store, "running", 0, native_id="other")
    whole = spent(store, at(4)).of(ID)
    (store.root / "records" / "births" / "box-1-g1.json").write_bytes(b"{")
    found = bill_of(store, "box-0", 1, ID, at(4))
    assert found == whole
    assert found is not None
    assert found.generation == 1
    assert bill_of(store, "box-0", 2, "unknown", at(4)) is None


def test_what_stands_still_and_bills_is_found_without_another_read(
    store: EvidenceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write_birth(birth())
    store.write_birth(birth("other").model_copy(update={"box": "box-1"}))
    close_books(store, box="box-0", generation=1, native_id=ID, how="power-off", at=at(2), bills_after=0.01)
    births = store.births()
    monkeypatch.setattr(store, "birth", pytest.fail)
    (rest,) = still_billed(store, spent(store, at(3), births), births)
    assert (rest.box, rest.native_id, rest.how, rest.price_per_hour) == ("box-0", ID, "power-off", 0.01)


def test_writers_at_once(store: EvidenceStore) -> None:
    def write(number: int) -> None:
        record(store, "running", 0, native_id=f"box/{number % 5}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(40)))
    assert len(files(store)) == 5
    assert spent(store, at(1)).usd == 10.0


phases = st.sampled_from(["running", "stopped", "ended"])
prices = st.one_of(st.none(), st.floats(0, 100))
moments = st.integers(0, 5)


@given(st.lists(st.tuples(phases, prices, moments), max_size=12), st.randoms(use_true_random=False))
def test_order_of_writing_does_not_matter(facts: list[tuple[LedgerPhase, float | None, int]], shuffled: Random) -> None:
    entries = [
        LedgerEntry(box="b", native_id=ID, platform="p", account="a", phase=phase, price_per_hour=price, at=at(hours))
        for phase, price, hours in facts
    ]
    other = list(entries)
    shuffled.shuffle(other)
    assert total(entries, [], at(9)) == total(other, [], at(9))
    for bill in total(entries, [], at(9)).bills:
        for one, after in zip(bill.spans, bill.spans[1:], strict=False):
            assert one.end is not None
            assert one.begin <= one.end <= after.begin


@pytest.mark.parametrize(
    ("usd", "text"),
    [(0.0, "0.00"), (1.888, "1.89"), (0.05, "0.05"), (0.0333, "0.033"), (0.0033, "0.0033"), (0.0000123, "0.0000123")],
)
def test_a_rate_is_written_in_one_way_and_is_nothing_only_where_nothing_bills(usd: float, text: str) -> None:
    assert spell_rate(usd) == text
    rounded = re.compile(r"[.]2f\}(/h| an hour)")
    code = Path(__file__).resolve().parents[3] / "sweepstack"
    elsewhere = [file for file in code.rglob("*.py") if rounded.search(file.read_text())]
    assert not elsewhere, "a box that bills less than a cent an hour would be shown at 0.00"
