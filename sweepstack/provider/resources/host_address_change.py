"""Changes of a host's address: how the state spells it, and whether it is the same host.

The host of a box may get another port or another IP, and is still the same host: then the change is an update in place
(Decision.MOVE), once the host proves it. Another machine at the new address is refused; a box never moves.
"""

from __future__ import annotations

from typing import TypeVar

from sweepstack.core.records import Birth
from sweepstack.core.resources import BoxInputs, BoxState, GateInputs, QueueInputs
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import (
    ConfigError,
    PlatformError,
    RequestRefused,
    SweepstackError,
    Unreachable,
    WrongAccount,
)
from sweepstack.platforms.registry import at_addresses, prove_same, spelled
from sweepstack.provider.resources.base import Failure
from sweepstack.provider.session import Operation

AddressedT = TypeVar("AddressedT", BoxInputs, QueueInputs, GateInputs)


def written_out(old: AddressedT | None, new: AddressedT) -> tuple[AddressedT, list[Failure]]:
    """The inputs with an address that other machines can read, too; and a failure if it can't be written so."""
    try:
        adapter = spelled(new.adapter, old.adapter if old is not None else "")
    except ConfigError as error:
        return new, [Failure("adapter", str(error))]
    return new.model_copy(update={"adapter": adapter}), []


def in_preview(
    op: Operation, old: BoxInputs | None, new: BoxInputs, box: BoxState | None
) -> tuple[BoxState | None, list[Failure]]:
    """The box as it is to be asked about from now on, and why its new address is refused. `box`: None if there is none.

    If the host can't be asked now, that is a warning: the update decides.
    """
    if old is None or box is None or not moves(old.adapter, new.adapter):
        return box, []
    try:
        prove_same(new.adapter, old.adapter, box.native_id, box.account, None)
    except PlatformError as error:
        if isinstance(error, RequestRefused | WrongAccount) and not isinstance(error, Unreachable):  # it is another one
            return box, [Failure("adapter", str(error))]
        op.warn(f"box {new.name}: whether {new.adapter} is the host that it is on can't be told now: {error}")
        return box, []
    op.info(f"box {new.name}: {old.adapter} → {new.adapter}, in place: its account and its host key answer there")
    return box.model_copy(update={"adapter": new.adapter}), []


def follow(op: Operation, store: EvidenceStore | None, old: BoxState, new: BoxInputs) -> None:
    """Runs before the rest of an update: proves that the box is at its new address, and writes that into the records.

    Raises SweepstackError if it is not proved; then nothing is changed.
    """
    if not moves(old.adapter, new.adapter):
        return
    again = f"Next: pulumi up --stack {op.stack}, or write its address in the stack file as it was"
    try:
        prove_same(new.adapter, old.adapter, old.native_id, old.account, old.host_keys or ())
    except PlatformError as error:
        raise SweepstackError(f"box {old.name} is still the one at {old.adapter}: {error}. {again}") from error
    birth = store.birth(old.name, old.generation) if store is not None else None
    if store is not None and birth is not None and birth.ended_at is None:
        store.write_birth(birth.model_copy(update={"platform": new.adapter}))


def found_again(store: EvidenceStore, birth: Birth, adapter: str) -> Birth:
    """Proves that a box on record is at another address, and returns its record with that, which it also writes. Raises
    PlatformError."""
    prove_same(adapter, birth.platform, birth.native_id or "", birth.account, ())
    now = birth.model_copy(update={"platform": adapter})
    store.write_birth(now)
    return now


def moves(before: object, after: object) -> bool:
    """Whether the change is one of address, and of nothing else."""
    return before != after and at_addresses(before, after)
