"""Rents a box once and never twice: by its tag, with a record before and after the request."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sweepstack.billing.ledger import record_phase
from sweepstack.core.lease_terms import lease_seconds
from sweepstack.core.records import Birth, LedgerPhase
from sweepstack.core.resources import BoxInputs, BoxState, PlaceFacts
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.traces import finished_by, generations
from sweepstack.onbox.common.box_layout import box_tag
from sweepstack.onbox.common.errors import (
    EvidenceError,
    NoCapacity,
    OutcomeUnknown,
    PlatformError,
    RequestRefused,
    StillCreating,
    SweepstackError,
)
from sweepstack.onbox.common.units import spell_rate
from sweepstack.onbox.host.capabilities import BeginsWithQueue
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, Platform, Wait
from sweepstack.operations.observe import look_up, made_by, rented_at
from sweepstack.platforms.common.rate_limit import paced
from sweepstack.platforms.common.tag_lock import Unanswered
from sweepstack.provider.resources import host_address_change, market
from sweepstack.provider.session import Operation
from sweepstack.teardown.box_context import find_born
from sweepstack.teardown.refusal import seen_ended

READY_SECONDS = 900.0
LAG_SECONDS = 60.0
"""For so long a platform's list may lag, if no record says when the box was asked for."""
LOOKS = (0.5, 1.0, 2.0, 3.0)
"""Seconds between looks for what an interrupted create may have rented."""


def rent(op: Operation, platform: Platform, inputs: BoxInputs, birth: Birth, store: EvidenceStore) -> BoxRecord:
    """Rents the box, or adopts the one that has its tag, and records it. Costs money. Blocks until it is ready.

    Raises StillCreating with a whole state if something is rented and not ready, since the engine can't read back a
    part of one. Raises NoCapacity if nothing was rented, OutcomeUnknown if something may be.
    """
    try:
        record = _rented(op, platform, inputs, birth, store)
        _born(store, birth, record)
        _link(op, platform, inputs, record)
        if record.note:
            op.warn(f"box {inputs.name}: {record.note}")
        return record
    except StillCreating as error:
        # The platform may never say more than this error does: to ask again could lose the id.
        known = {"native_id": error.identifier, **error.outputs}
        store.write_birth(birth.model_copy(update={"native_id": error.identifier}))
        state = BoxState.model_validate(
            inputs.model_dump()
            | {"account": birth.account, "phase": "unknown", "tag": birth.tag}
            | known
            | {"generation": birth.generation}
        )
        if state.created_at is not None:
            seen = {"created_at": state.created_at, "price_per_hour": state.price_per_hour}
            store.write_birth(birth.model_copy(update={"native_id": error.identifier, **seen}))
        following = (
            f"Next: pulumi up --stack {op.stack} (adopts it); or, to end it: sweepctl give-up --stack {op.stack} "
            f'data/{inputs.name} --reason "…", then pulumi up and pulumi destroy'
        )
        reasons = [f"{reason}.{_bills(state)} {following}" for reason in error.reasons]
        charge(store, birth, error.identifier, "running", state.price_per_hour, state.created_at or birth.begun_at)
        raise StillCreating(error.identifier, outputs_of(state), reasons) from error


def _bills(state: BoxState) -> str:
    """What a box that is not ready costs: only one that runs surely bills in full."""
    if state.phase in ("stopped", "stopping"):
        return " It is stopped, and what it keeps goes on billing."
    if state.price_per_hour is None:
        return ""
    return f" It {'bills' if state.phase == 'running' else 'may bill'} ${spell_rate(state.price_per_hour)}/h."


def _rented(op: Operation, platform: Platform, inputs: BoxInputs, birth: Birth, store: EvidenceStore) -> BoxRecord:
    if birth.imported:  # its tag is on no platform: a create would not find it, and rent another
        return platform.get(birth.native_id or "", birth.account)
    asking = Asking(store, birth, inputs.list_lag)
    request = _request(op, platform, inputs, birth, places_of(inputs, store), asking)
    wait = Wait(deadline=op.seconds(READY_SECONDS), progress=op.progress, cancelled=op.session.cancelled)
    try:
        return platform.create(request, wait=wait)
    except RequestRefused:
        if asking.birth.native_id is None and asking.birth.asked_at is None:
            store.forget_birth(asking.birth)
        raise
    except NoCapacity as error:
        raise NoCapacity(market.not_to_be_had(op, platform, inputs, error, request.max_price)) from error
    except Unanswered as error:  # this machine remembers the request; this evidence may not
        asking.since(error.sent)
        raise unanswered(op, inputs.adapter, asking.birth, str(error)) from error
    except OutcomeUnknown as error:
        try:
            found = find_born(platform, birth)
        except PlatformError as outage:
            raise OutcomeUnknown(
                f"box {inputs.name}: {error}, and whether it was made is not known ({outage}): a box tagged "
                f"{birth.tag} may bill. Next: pulumi up --stack {op.stack}    (looks for it before it rents)"
            ) from outage
        if found is None:
            asked = birth if platform.sees_all else asking.birth
            raise unanswered(op, inputs.adapter, asked, str(error)) from error
        op.info(f"box {inputs.name}: the answer was lost; found {found.native_id} by its tag")
        _born(store, birth, found)
        return platform.create(request, wait=wait)


class Asking:
    """Records that a box was asked for, before each request: a later try, on any machine, must know that there may be a
    box although no list shows it. `birth`: the record as it stands."""

    def __init__(self, store: EvidenceStore, birth: Birth, lag: float) -> None:
        self.birth = birth
        self._store, self._lag = store, lag

    def __call__(self, asked: bool) -> None:
        """`asked`: true before a request goes out; false when it is proved that the last one made nothing. Raises
        PlatformError if a request can't be recorded: then it must not be sent."""
        try:
            self._put(datetime.now(UTC) if asked else None)
        except EvidenceError as error:
            if not asked:
                return  # the next `up` is only more careful
            raise PlatformError(f"nothing was rented: that it was asked for can't be put on record: {error}") from error

    def since(self, asked_at: datetime) -> None:
        """Records that a request went out at that moment, and that its answer never came."""
        self._put(asked_at)

    def _put(self, asked_at: datetime | None) -> None:
        shown_by = asked_at + timedelta(seconds=paced(self._lag)) if asked_at is not None else None
        self.birth = self.birth.model_copy(update={"asked_at": asked_at, "shown_by": shown_by})
        self._store.write_birth(self.birth)


def unanswered(op: Operation, adapter: str, birth: Birth, why: str) -> OutcomeUnknown:
    """The error while a create has no answer and no list shows a box. Until the list can't lag any more, nothing is
    rented; after that, only when a person confirms it (`never_rented`). If no request is on record, lists are
    believed."""
    shows = f"box {birth.box}: {why}. {adapter} lists nothing under {birth.tag} so far: "
    if birth.asked_at is None:
        return OutcomeUnknown(
            f"{shows}if it was made all the same, it shows there and bills. Next: pulumi up --stack {op.stack}    "
            "(looks again before it rents)"
        )
    may = f"{shows}what was asked for at {birth.asked_at:%Y-%m-%d %H:%M} UTC may be there, and bill. Nothing is rented"
    if birth.shown_by is not None and datetime.now(UTC) < birth.shown_by:
        at = f"{birth.shown_by:%H:%M:%S} UTC"
        return OutcomeUnknown(
            f"{may} before {at}, since its list may lag until then. Next: pulumi up --stack {op.stack}    (at {at} "
            "or later: looks again)"
        )
    return OutcomeUnknown(
        f"{may} without your confirmation, since no list proves that it never was. Look for {birth.tag} in the console "
        f"of {adapter}. Next: {never_rented(op.stack, birth.box)} && pulumi up --stack {op.stack}    (only where the "
        "console shows no such box)"
    )


def never_rented(stack: str, box: str) -> str:
    """The command that a person types once the console shows that nothing was rented."""
    return f'sweepctl confirm never-rented --stack {stack} {box} --saw "what the console shows"'


def _request(
    op: Operation,
    platform: Platform,
    inputs: BoxInputs,
    birth: Birth,
    places: dict[str, dict[str, Any]],
    asking: Asking,
) -> BoxRequest:
    most = market.ceiling(op, inputs)
    return BoxRequest(
        tag=birth.tag,
        name=inputs.name,
        price_per_hour=inputs.price_per_hour,
        mounts=inputs.mounts,
        resources=inputs.resources,
        max_price=most,
        offer=inputs.placed.offer if inputs.placed is not None else "",
        bid=inputs.bid,
        image=inputs.image or "",
        pods=inputs.pods.model_dump(mode="json", exclude_none=True) if inputs.pods is not None else {},
        public_key=public_key() if platform.over_ssh else "",
        rented=inputs.teardown.rented,
        places=places,
        known=birth.native_id or "",
        lease_seconds=lease_seconds(inputs.lease),
        reach=not isinstance(platform, BeginsWithQueue),
        asked=asking,
    )


def places_of(inputs: BoxInputs, store: EvidenceStore) -> dict[str, dict[str, Any]]:
    """The tiers that are a folder of the host: path on the box, or tier → that folder, and what it must be. `expect`:
    if the tier is bound to a region, the id of the one that this box's cells were sealed on before."""
    claims, places = inputs.claims or {}, {}
    for key, path in (inputs.places or {}).items():
        claim = claims.get(key) or PlaceFacts(tier=key)
        places[key] = {"path": path, **claim.model_dump()}
    births = sorted((b for b in store.births() if b.box == inputs.name), key=lambda birth: birth.generation)
    for birth in births if places else ():
        for tier, native_id in birth.mounts.items():
            if tier in places and places[tier]["region_locked"]:
                places[tier]["expect"] = native_id
    return places


def public_key() -> str:
    """The public part of the person's own SSH key, which a new box lets in. Raises as `channel.ssh.keys.public_key`."""
    from sweepstack.channel.ssh.keys import (
        public_key as own,  # reads the user's keys: for boxes that are reached over SSH alone
    )

    return own()


def _link(op: Operation, platform: Platform, inputs: BoxInputs, record: BoxRecord) -> None:
    """Makes the mounts appear at the paths that the job expects. Raises StillCreating if that fails: the box exists,
    and bills."""
    if not inputs.links or record.phase is not Phase.RUNNING or not platform.over_ssh:
        return
    try:
        channel = platform.channel(record.native_id, record.account)
        for path, mount in sorted(inputs.links.items()):
            done = channel.run(["ln", "-sfn", channel.absolute(mount), path], timeout=60)
            if done.returncode != 0:
                said = done.stderr.decode(errors="replace").strip()
                raise PlatformError(said or f"ln ended with {done.returncode}")
    except PlatformError as error:
        reason = f"box {inputs.name}: its volume can't be shown at {', '.join(inputs.links)}: {error}"
        raise StillCreating(record.native_id, record.outputs(), [reason]) from error


def _born(store: EvidenceStore, birth: Birth, record: BoxRecord) -> None:
    known = {
        "native_id": record.native_id,
        "account": record.account,
        "created_at": record.created_at,
        "price_per_hour": record.price_per_hour,
        "mounts": {**birth.mounts, **record.mounts},
        "egress_per_gb": birth.egress_per_gb if record.egress_per_gb is None else record.egress_per_gb,
    }
    store.write_birth(birth.model_copy(update=known))
    rented_at = birth.begun_at if birth.imported else record.created_at or birth.begun_at
    charge(store, birth, record.native_id, "running", record.price_per_hour, rented_at)


def charge(
    store: EvidenceStore,
    birth: Birth,
    native_id: str,
    phase: LedgerPhase,
    price_per_hour: float | None,
    at: datetime,
    how: str = "",
) -> None:
    """Writes into the ledger that this native id is in this phase at this price from `at` on."""
    price = birth.price_per_hour if price_per_hour is None else price_per_hour
    record_phase(
        store,
        box=birth.box,
        native_id=native_id,
        platform=birth.platform,
        account=birth.account,
        phase=phase,
        price_per_hour=price,
        at=at,
        how=how,
    )


def generation_of(
    op: Operation, store: EvidenceStore, platform: Platform, inputs: BoxInputs
) -> tuple[int, BoxRecord | None]:
    """The generation to create, and the box that already carries its tag. Closes the record of a box that vanished.

    Raises SweepstackError while an earlier box may still run and bill.
    """
    births = [birth for birth in store.births() if birth.box == inputs.name]
    if not births:
        return _unrecorded(op, store, platform, inputs)
    last = max(births, key=lambda birth: birth.generation)
    if last.ended_at is not None:
        return last.generation + 1, None
    if host_address_change.moves(last.platform, inputs.adapter):
        last = host_address_change.found_again(store, last, inputs.adapter)
    if last.platform != inputs.adapter:
        raise SweepstackError(
            f"box {inputs.name} was rented on {last.platform} ({last.native_id or last.tag}) and has not ended; "
            f"end it there before it is rented on {inputs.adapter}"
        )
    if last.native_id is None:
        return last.generation, _left_by_an_earlier_try(op, platform, last)
    record = look_up(platform, last.native_id, last.account, rented=rented_at(last.price_per_hour))
    if record.emptied:  # its host does not say these any more
        price = last.price_per_hour if record.price_per_hour is None else record.price_per_hour
        record = replace(record, price_per_hour=price, created_at=record.created_at or last.created_at)
    if record.phase is Phase.GONE:
        noticed = datetime.now(UTC)
        store.write_birth(last.model_copy(update={"ended_at": noticed, "ended_how": "vanished"}))
        charge(store, last, last.native_id, "ended", 0.0, noticed, "vanished")
        op.warn(
            f"box {inputs.name}: {last.native_id} is gone from {inputs.adapter}; generation {last.generation + 1} "
            "takes over, verified and sealed cells are not run again"
        )
        return last.generation + 1, None
    if record.phase is Phase.UNKNOWN:
        way = seen_ended(op.stack, inputs.name, inputs.adapter) or f"pulumi up --stack {op.stack}    (asks again)"
        raise SweepstackError(
            f"box {inputs.name}: {last.native_id} may still run and bill; nothing new is rented ({record.note}). "
            f"Next: {way}"
        )
    return last.generation, record


def _unrecorded(
    op: Operation, store: EvidenceStore, platform: Platform, inputs: BoxInputs
) -> tuple[int, BoxRecord | None]:
    """The same if the box has no birth record: it is new, or its records are lost, as copied journals and receipts
    show. Raises SweepstackError if an approval was to end it, or if no cell is left to train."""
    last = generations(store).get(inputs.name, 0)
    for generation in range(last, 0, -1):
        found = platform.find_by_tag(box_tag(inputs.identity, inputs.name, generation), platform.account())
        if found is not None:
            return generation, found
    if not last:
        return 1, None
    lost = f"box {inputs.name} was rented before, and its records are lost from {store.shown}. Nothing is rented: "
    actions = inputs.approval.actions if inputs.approval is not None else ()
    if any(action.box == inputs.name for action in actions):
        raise SweepstackError(
            f"{lost}an approval in the stack file is to end it, and {inputs.adapter} lists it no more. Next: sweepctl "
            f"status --stack {op.stack}; or, to go on with the sweep instead, sweepctl revoke --stack {op.stack}"
        )
    if digest := finished_by(store, inputs.roster_digest):
        raise SweepstackError(
            f"{lost}every cell is verified by the receipt {digest}. Next: sweepctl status --stack {op.stack}"
        )
    return last + 1, None


def _left_by_an_earlier_try(op: Operation, platform: Platform, birth: Birth) -> BoxRecord | None:
    """The box that an interrupted create rented; None if there is none. Blocks for seconds while the list may lag.
    Raises OutcomeUnknown if its request went out and no list shows a box: that proves nothing."""
    for seconds in (*LOOKS, None):
        found, proved = made_by(birth, platform)
        if platform.sees_all:
            return found
        shown_by = birth.shown_by or birth.begun_at + timedelta(seconds=paced(LAG_SECONDS))
        if found is None and seconds is not None and datetime.now(UTC) < shown_by:
            op.progress(f"looking for what an earlier try may have rented as {birth.tag}")
            if op.session.cancelled.wait(paced(seconds)):
                raise PlatformError(f"cancelled while looking for {birth.tag}, which an earlier try may have rented")
        elif not proved:
            raise unanswered(op, birth.platform, birth, "whether a box was made is not known")
        else:
            return found
    return None


def seen_of(record: BoxRecord) -> dict[str, Any]:
    """What the platform says of a box besides its phase, as outputs. What it does not say is left out."""
    where = f"{record.endpoint.host}:{record.endpoint.port}" if record.endpoint is not None else None
    found: dict[str, Any] = {
        "ssh": where,
        "region": record.region,
        "offer": record.offer,
        "gpu_count": record.gpu_count,
        "actual_image": record.image,
    }
    found["host_keys"] = list(record.host_keys) or None
    return {name: value for name, value in found.items() if value not in (None, "")}


def outputs_of(state: BoxState) -> dict[str, Any]:
    """The state as outputs, without `live`."""
    return state.model_dump(mode="json", exclude={"live"}, exclude_none=True)
