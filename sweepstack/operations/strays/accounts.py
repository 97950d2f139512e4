"""Finds what the accounts hold with a tag of ours, and which state knows it.

Compares the accounts with the states of this backend, in both directions. Reads only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from sweepstack.billing.stray import Standing, Stray, end_command, import_command
from sweepstack.core.parallel import in_parallel
from sweepstack.onbox.common.box_layout import TAGS, box_of, volume_of
from sweepstack.onbox.common.errors import (
    NotAuthorized,
    NotInstalled,
    PlatformError,
    SweepstackError,
    Unproved,
    WrongAccount,
)
from sweepstack.onbox.common.units import spell_rate
from sweepstack.onbox.host.capabilities import HasMarket, HasVolumes
from sweepstack.onbox.host.platform import BoxRecord, Phase, Platform, VolumeRecord
from sweepstack.operations.observe import look_up, rented_at
from sweepstack.operations.strays.known_states import KnownStates
from sweepstack.operations.strays.volumes import used_bytes
from sweepstack.platforms.registry import has_address, load_platform
from sweepstack.status.engine.state import BoxEntry
from sweepstack.teardown.refusal import seen_ended

ASK_SECONDS = 300.0
"""The most seconds for all accounts, which are asked in parallel: one may list hundreds of boxes page by page."""


def ask(names: Sequence[str], known: KnownStates) -> tuple[list[str], list[Stray]]:
    """Asks all adapters in parallel. Returns those that answered, in the order of `names`, and what they hold.

    An adapter that does not answer becomes a problem of `known`, unless this shell has no key for it and nothing on it
    is known.
    """
    answers = in_parallel({adapter: partial(_asked, adapter, known) for adapter in names}, ASK_SECONDS)
    asked: list[str] = []
    findings: list[Stray] = []
    for adapter in names:
        answer = answers.get(adapter, PlatformError(f"no answer within {ASK_SECONDS:.0f} s"))
        if not isinstance(answer, SweepstackError):
            asked.append(adapter)
            findings += answer
        elif not isinstance(answer, NotAuthorized) or isinstance(answer, NotInstalled):
            known.problems.append(f"{adapter} could not be asked: {answer}")
        elif known.speaks_of(adapter):
            known.problems.append(f"{adapter}: boxes of it are on record, and it can't be asked: {answer}")
    return asked, findings


def _asked(adapter: str, known: KnownStates) -> list[Stray] | SweepstackError:
    try:
        return findings_in(adapter, load_platform(adapter), known)
    except SweepstackError as error:
        return error


def findings_in(adapter: str, platform: Platform, known: KnownStates) -> list[Stray]:
    """What this account holds with one of our tags, and what the states expect in it. What a person rented there by
    hand is put into `known.by_hand`. Raises PlatformError."""
    tagged = "" if isinstance(platform, HasMarket) else TAGS
    every = [record for record in platform.list_tagged(tagged) if record.phase is not Phase.GONE]
    listed = [record for record in every if record.tag.startswith(TAGS) or not record.tag or known.by_id(record)]
    known.by_hand += [
        Stray(
            "box",
            adapter,
            record.native_id,
            phase=record.phase.value,
            price_per_hour=record.bills(),
            next=import_command("STACK", "NAME", f"{adapter}:{record.native_id}"),
        )
        for record in every
        if box_of(record.tag) is None and record.native_id and not known.by_id(record)
    ]
    account = platform.account() if listed or known.speaks_of(adapter) else ""
    tags = [record.tag for record in listed]
    found = [_box(adapter, record, known, alone=tags.count(record.tag) == 1) for record in listed]
    there = {record.native_id for record in listed}
    found += [
        finding
        for name, state in known.states.items()
        for box in state.boxes
        if box.adapter == adapter and box.native_id not in there
        for finding in _missing(platform, name, box, account)
    ]
    known.problems += _not_found(adapter, platform, known, there, account)
    if isinstance(platform, HasVolumes):
        found += [_volume(adapter, platform, record, known) for record in platform.list_volumes(TAGS)]
    return found


def _not_found(adapter: str, platform: Platform, known: KnownStates, listed: set[str], at_hand: str) -> Iterable[str]:
    """A line for each box on record that is in no state, not in the account's list, and not proved gone."""
    stated = {box.native_id for state in known.states.values() for box in state.boxes}
    for stack, births in known.births.items():
        for birth in births:
            if birth.platform != adapter or birth.ended_at is not None or birth.native_id is None:
                continue
            if birth.native_id in listed | stated:
                continue
            price = "" if birth.price_per_hour is None else f", ${spell_rate(birth.price_per_hour)}/h"
            what = f"box {birth.box} of {stack} ({birth.native_id} on {adapter}{price}) is on record as rented"
            try:
                record = look_up(platform, birth.native_id, birth.account, rented=rented_at(birth.price_per_hour))
            except WrongAccount:
                yield f"{what}, with the account {birth.account}, and this shell's key is for {at_hand}: it may bill"
                continue
            except SweepstackError as error:
                yield f"{what}, and is not known: {error}"
                continue
            if record.emptied:
                yield f"{what}: {record.note}"
            elif record.phase is not Phase.GONE:
                way = seen_ended(stack, birth.box, adapter)
                yield f"{what}, is not in the account's list, and is not proved gone: it may bill{way and f'. {way}'}"


def _box(adapter: str, record: BoxRecord, known: KnownStates, *, alone: bool) -> Stray:
    """The finding of one box. `alone`: no other listed box has its tag."""
    whose = known.stacks_with("box", record.native_id)
    standing: Standing = "known"
    if not whose:
        # A record without an answer knows only the tag: if two boxes have that tag, `up` adopts none of them.
        by_tag = known.recorded_by(record, by_tag=True)
        whose = known.recorded_by(record, by_tag=alone)
        standing = "recorded"
        if not whose and by_tag:
            whose, standing = by_tag, "duplicate"
    if not whose:
        whose, standing = known.doubled_by(record), "duplicate"
    if not whose:
        standing = "unknown"
    return Stray(
        "box",
        adapter,
        record.native_id,
        record.tag,
        standing=standing,
        phase=record.phase.value,
        price_per_hour=record.bills(),
        where=record.region or record.location,
        whose=whose,
        next=known.standing_still(record, whose) if standing == "known" else "",
        account=record.account,
    )


def _volume(adapter: str, platform: Platform, record: VolumeRecord, known: KnownStates) -> Stray:
    whose = known.stacks_with("volume", record.native_id)
    standing: Standing = "known"
    following, used, more = "", None, False
    if not whose:
        whose = known.keepers_of(record)
        standing = "recorded" if whose else "unknown"
        if known.is_over((volume_of(record.tag) or ("", ""))[0]):
            standing, following = "survived", end_command(adapter, record.native_id)
        elif whose:
            following = f"pulumi up --stack {whose[0]}    (adopts it, if its stack file names it)"
        if record.size_gb is None:
            used, more = used_bytes(platform, record.native_id)
    return Stray(
        "volume",
        adapter,
        record.native_id,
        record.tag,
        standing=standing,
        phase="unknown" if record.unknown else "lost" if record.lost else "kept",
        price_per_month=record.price_per_month,
        where=record.region or record.location,
        whose=whose,
        next=following,
        account=record.account,
        size_gb=record.size_gb,
        used_bytes=used,
        used_more=more,
    )


def _missing(platform: Platform, stack: str, box: BoxEntry, at_hand: str) -> Iterable[Stray]:
    """The finding of a box that a state has and the account's list has not."""
    found = partial(Stray, "box", box.adapter, box.native_id, box.tag)
    try:
        record = look_up(platform, box.native_id, box.account, rented=box.teardown.rented)
    except WrongAccount:
        words = f"in the account {box.account}; this shell's key is for {at_hand}"
        yield found(standing="foreign", phase=words, whose=(stack,))
        return
    except Unproved:
        unproved = Phase.UNKNOWN.value
        yield found(standing="known", phase=unproved, price_per_hour=box.price_per_hour, whose=(stack,))
        return
    if record.phase is Phase.GONE:
        again = f"pulumi up --stack {stack}    (rents it again), or pulumi destroy"
        yield found(standing="vanished", phase="gone", whose=(stack,), next=again)
    else:
        price = record.bills(box.teardown.stop.price_per_hour if box.teardown.stop else None)
        price = box.price_per_hour if price is None and record.phase is not Phase.STOPPED else price
        yield found(standing="known", phase=record.phase.value, price_per_hour=price, whose=(stack,))


def still_billed_boxes(known: KnownStates) -> list[Stray]:
    """The boxes that an end only stopped: they bill until a person releases them, and no state has them."""
    return [
        Stray(
            *("box", rest.platform, rest.native_id),
            standing="recorded",
            phase="stopped",
            price_per_hour=rest.price_per_hour,
            whose=(stack,),
            next=f"{rest.confirm(stack)}    (once it is released)",
        )
        for stack, rest in known.still_billed
    ]


def without_duplicates(findings: Sequence[Stray]) -> list[Stray]:
    """Removes duplicates: two addresses may lead to one host, which then lists its boxes twice. Keeps the known one."""
    kept: dict[tuple[str, str], Stray] = {}
    for finding in findings:
        # On hosts ids are random, so equal ids are one box; on a rental platform another account may have the same id.
        key = ("" if has_address(finding.platform) else finding.platform, f"{finding.kind} {finding.native_id}")
        if key not in kept or (kept[key].bills_unknown and not finding.bills_unknown):
            kept[key] = finding
    return list(kept.values())
