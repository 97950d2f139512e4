"""How a box comes to be rented once and never twice: by its tag, with a record before and after the request."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from provider.limiter import paced
from provider.models import BoxInputs, BoxState, PlaceFacts
from provider.platforms.base import BoxRecord, BoxRequest, Phase, Platform, Wait
from provider.platforms.offers import Capability, Constraints
from provider.resources import addresses, market
from provider.session import Operation
from sweep.errors import NoCapacity, OutcomeUnknown, PlatformError, StillCreating, SweepstackError
from sweep.evidence.store import EvidenceStore
from sweep.model import Birth, LedgerPhase
from sweep.money.ledger import record_phase

READY_SECONDS = 900.0
LAG_SECONDS = 60.0
"""So old may a platform's list be."""
LOOKS = (0.5, 1.0, 2.0, 3.0)
"""Seconds between looks for what a create that was cut off may have rented."""


def rent(op: Operation, platform: Platform, inputs: BoxInputs, birth: Birth, store: EvidenceStore) -> BoxRecord:
    """Whatever is rented and not ready leaves as StillCreating with a whole state: less could be read by nobody."""
    try:
        record = _rented(op, platform, inputs, birth, store)
        _born(store, birth, record)
        _link(op, platform, inputs, record)
        if record.note:
            op.warn(f"box {inputs.name}: {record.note}")
        return record
    except StillCreating as error:
        # What the platform said on the way out is all there may be: asking again could lose the id.
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
        price = "" if state.price_per_hour is None else f" It bills ${state.price_per_hour:.2f}/h."
        reasons = [f"{reason}.{price} Next: pulumi up --stack {op.stack} (adopts it)" for reason in error.reasons]
        charge(store, birth, error.identifier, "running", state.price_per_hour, state.created_at or birth.begun_at)
        raise StillCreating(error.identifier, outputs_of(state), reasons) from error


def _rented(op: Operation, platform: Platform, inputs: BoxInputs, birth: Birth, store: EvidenceStore) -> BoxRecord:
    request = _request(op, platform, inputs, birth, places_of(inputs, store))
    wait = Wait(deadline=op.seconds(READY_SECONDS), progress=op.progress, cancelled=op.session.cancelled)
    try:
        return platform.create(request, wait=wait)
    except NoCapacity as error:
        raise NoCapacity(market.not_to_be_had(op, platform, inputs, error, request.max_price)) from error
    except OutcomeUnknown as error:
        try:
            found = platform.find_by_tag(birth.tag, birth.account)
        except PlatformError as outage:
            raise OutcomeUnknown(
                f"box {inputs.name}: {error}, and nobody can say whether it was made ({outage}): a box tagged "
                f"{birth.tag} may bill. Next: pulumi up --stack {op.stack}, which looks for it before it rents"
            ) from outage
        if found is None:
            raise OutcomeUnknown(  # a list may lag behind what was done a moment ago
                f"box {inputs.name}: {error}. {inputs.adapter} lists nothing under {birth.tag} so far: if it was made "
                f"all the same, it shows there and bills. Next: pulumi up --stack {op.stack}, which looks again before "
                "it rents"
            ) from error
        op.info(f"box {inputs.name}: the answer was lost; found {found.native_id} by its tag")
        _born(store, birth, found)
        return platform.create(request, wait=wait)


def _request(
    op: Operation, platform: Platform, inputs: BoxInputs, birth: Birth, places: dict[str, dict[str, Any]]
) -> BoxRequest:
    most = market.ceiling(op, inputs, Constraints.of(inputs.resources, max_price=inputs.max_price))
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
        public_key=_public_key() if Capability.SSH in platform.capabilities else "",
        rented=inputs.teardown.issue is not None,
        places=places,
    )


def places_of(inputs: BoxInputs, store: EvidenceStore) -> dict[str, dict[str, Any]]:
    """The tiers that have a place on the host; `expect`: the id of the one that this box's cells were sealed on before,
    where it is bound to a region."""
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


def _public_key() -> str:
    from sweep.channel.ssh_keys import public_key  # reads the user's keys: for boxes that are reached over SSH alone

    return public_key()


def _link(op: Operation, platform: Platform, inputs: BoxInputs, record: BoxRecord) -> None:
    """Makes the mount appear where the job expects it. Raises StillCreating: the box is there and bills."""
    if not inputs.links or record.phase is not Phase.RUNNING or Capability.SSH not in platform.capabilities:
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
    }
    store.write_birth(birth.model_copy(update=known))
    rented_at = record.created_at or birth.begun_at
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
    """Into the ledger: from `at` on, this native id is in this phase at this price."""
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
    """The generation to create, and the box that already carries its tag. Closes the record of a vanished one."""
    births = [birth for birth in store.births() if birth.box == inputs.name]
    if not births:
        return 1, None
    last = max(births, key=lambda birth: birth.generation)
    if last.ended_at is not None:
        return last.generation + 1, None
    if addresses.moves(last.platform, inputs.adapter):
        last = addresses.found_again(store, last, inputs.adapter)
    if last.platform != inputs.adapter:
        raise SweepstackError(
            f"box {inputs.name} was rented on {last.platform} ({last.native_id or last.tag}) and has not ended; "
            f"end it there before it is rented on {inputs.adapter}"
        )
    if last.native_id is None:
        return last.generation, _left_by_an_earlier_try(op, platform, last)
    record = platform.get(last.native_id, last.account)
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
        raise SweepstackError(
            f"box {inputs.name}: {last.native_id} may still run and bill; nothing new is rented ({record.note}). "
            f"Next: pulumi up --stack {op.stack}, which asks again"
        )
    return last.generation, record


def _left_by_an_earlier_try(op: Operation, platform: Platform, birth: Birth) -> BoxRecord | None:
    """What a create that was cut off has rented, looked for until lists can't be from before it any more."""
    for seconds in (*LOOKS, None):
        found = platform.find_by_tag(birth.tag, birth.account)
        old = (datetime.now(UTC) - birth.begun_at).total_seconds() > paced(LAG_SECONDS)
        if found is not None or old or seconds is None:
            return found
        op.progress(f"looking for what an earlier try may have rented as {birth.tag}")
        if op.session.cancelled.wait(paced(seconds)):
            raise PlatformError(f"cancelled while looking for {birth.tag}, which an earlier try may have rented")
    return None


def seen_of(record: BoxRecord) -> dict[str, Any]:
    """What the platform says of a box beyond its phase, as outputs; nothing where it says nothing."""
    where = f"{record.endpoint.host}:{record.endpoint.port}" if record.endpoint is not None else None
    found: dict[str, Any] = {
        "ssh": where,
        "region": record.region,
        "offer": record.offer,
        "gpu_count": record.gpu_count,
    }
    found["host_keys"] = list(record.host_keys) or None
    return {name: value for name, value in found.items() if value not in (None, "")}


def outputs_of(state: BoxState) -> dict[str, Any]:
    """The state as the engine keeps it in outputs: without what Read saw."""
    return state.model_dump(mode="json", exclude={"live"}, exclude_none=True)
