"""Closes the records of one box: its birth record, its bill, and the teardown if it was the last one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from datetime import UTC, datetime

from sweepstack.billing.ledger import Spent, record_phase
from sweepstack.core.local_decisions import ENDED, Decision, decisions, record_decision
from sweepstack.core.records import Birth, Teardown
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.box_layout import sealed_dir, surviving
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import EvidenceError, PlatformError, SweepstackError
from sweepstack.onbox.common.units import spell_rate
from sweepstack.onbox.host.capabilities import HasVolumes
from sweepstack.platforms.registry import volume_channel
from sweepstack.teardown.box_check import Verdict
from sweepstack.teardown.box_context import BoxContext, BoxFacts
from sweepstack.teardown.handover_records import handover_of


def close_books(
    store: EvidenceStore,
    *,
    box: str,
    generation: int,
    native_id: str,
    how: str,
    at: datetime,
    bills_after: float | None = 0.0,
) -> None:
    """Records that the box ended, `at`, and `how`. Idempotent: what is recorded already stays, as does the record of
    another native id. `bills_after`: USD per hour that it goes on to cost if its end only stopped it (None: not known);
    until `release_books` the ledger has it as stopped. Raises EvidenceError."""
    birth = store.birth(box, generation)
    if birth is not None and birth.ended_at is None and birth.native_id in (None, native_id):
        store.write_birth(birth.model_copy(update={"ended_at": at, "ended_how": how, "rests": bills_after != 0}))
        record_phase(
            store,
            box=box,
            native_id=native_id,
            platform=birth.platform,
            account=birth.account,
            phase="ended" if bills_after == 0 else "stopped",
            price_per_hour=bills_after,
            at=at,
            how=how,
        )

    def ended(open_one: Teardown | None) -> Teardown | None:
        if open_one is None or native_id not in open_one.native_ids:
            return open_one
        done = tuple(sorted({*open_one.ended, native_id}))
        closed = set(done) >= set(open_one.native_ids)
        return None if closed else open_one.model_copy(update={"ended": done})

    store.update_teardown(ended)


def lost_with(box: BoxContext, verdict: Verdict) -> tuple[str, ...] | None:
    """The cells of a box that is gone that have no verified copy, and no sealed one on a volume that outlived it; None
    if a volume can't be asked. Writes nothing."""
    facts, cells = box.facts, [cell.name for cell in verdict.unsettled]
    try:
        birth = box.store.birth(facts.name, facts.generation)
    except EvidenceError:
        birth = None
    found: set[str] = set()
    try:
        for volume in surviving(facts.kills, birth.mounts) if birth is not None else ():
            if isinstance(box.platform, HasVolumes) and box.platform.get_volume(volume) is None:
                continue  # it is gone, too
            channel = volume_channel(box.platform, volume)
            found |= {cell for cell in cells if channel.size(f"{sealed_dir(facts.identity, cell)}/manifest.json")}
    except (PlatformError, OSError):
        return None
    return tuple(name for name in cells if name not in found)


def close_gone(store: EvidenceStore, *, box: str, generation: int, native_id: str) -> None:
    """The same for a box that is proved gone. If it was handed to its host or to a person, it ended when that record
    says; else when this computer saw it end (`note_end`), or now. Idempotent. Raises EvidenceError."""
    try:
        known = handover_of(store, native_id)
    except EvidenceError:  # damaged: that it is gone was proved without it
        known = None
    how, at = "gone", _noted_end(native_id) or datetime.now(UTC)
    bills_after: float | None = 0.0
    if known is not None and known.confirmed is not None:
        how, at = f"confirmed by {known.confirmed.by}", known.confirmed.at
    elif known is not None and known.over(native_id):
        how, at, bills_after = known.native, known.silent_at or at, known.bills_after
    close_books(store, box=box, generation=generation, native_id=native_id, how=how, at=at, bills_after=bills_after)


def note_end(box: BoxFacts, why: str) -> None:
    """Notes on this computer that the box has ended by now, where its record can't be closed: its bill is to end here,
    when that record is closed later. Never raises."""
    now = datetime.now(UTC)
    with contextlib.suppress(SweepstackError):
        if _noted_end(box.native_id) is None:
            ended = Decision(what=ENDED, by="", at=now, reason=why, platform="", native_id=box.native_id, box=box.name)
            record_decision(ended)


def _noted_end(native_id: str) -> datetime | None:
    with contextlib.suppress(SweepstackError):
        return next((one.at for one in decisions(native_id) if one.what == ENDED), None)
    return None


@dataclass(frozen=True)
class StillBilled:
    """A box that has ended but only stands still, and bills until it is released. `price_per_hour`: USD, None if not
    known; `step`: what a person does to release it, "" if no record says so."""

    box: str
    native_id: str
    platform: str
    generation: int
    how: str
    price_per_hour: float | None
    step: str

    def text(self, stack: str) -> str:
        """What still bills, what ends that, and the command to type then."""
        price = "an unknown price" if self.price_per_hour is None else f"${spell_rate(self.price_per_hour)}/h"
        return (
            f"box {self.box} ({self.native_id}) stands still ({self.how}) and bills {price} until it is released: "
            f"{self.step or 'end it where it was rented'}; then {self.confirm(stack)}"
        )

    def confirm(self, stack: str) -> str:
        """The command that a person types once the console shows that it is released."""
        return f'sweepctl confirm gone --stack {stack} {self.box} --saw "…"'


def still_billed(store: EvidenceStore, bills: Spent, births: Iterable[Birth]) -> list[StillBilled]:
    """The boxes that have ended by the records and go on to bill. `births`: all birth records; no record of a box that
    runs is read. Reads only. Raises EvidenceError."""
    found, born = [], {birth.native_id: birth for birth in births}
    for bill in bills.bills:
        birth = born.get(bill.native_id)
        if birth is None or bill.open is None or not birth.rests:
            continue
        known = handover_of(store, bill.native_id)
        step = known.release if known is not None else ""
        rest = (birth.generation, birth.ended_how or "ended", bill.open.price_per_hour, step)
        found.append(StillBilled(bill.box, bill.native_id, bill.platform, *rest))
    return found


def release_books(store: EvidenceStore, box: StillBilled, *, how: str, at: datetime) -> None:
    """Records that such a box is released: it bills no more. Idempotent. Raises EvidenceError."""
    birth = store.birth(box.box, box.generation)
    if birth is None or birth.native_id != box.native_id:
        return
    record_phase(
        store,
        box=box.box,
        native_id=box.native_id,
        platform=box.platform,
        account=birth.account,
        phase="ended",
        price_per_hour=0.0,
        at=at,
        how=how,
    )
