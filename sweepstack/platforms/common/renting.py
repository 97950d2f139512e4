"""What adapters do alike when they rent a box: the key, one offer after another, the highest price."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from sweepstack.onbox.common.errors import NoCapacity, PlatformError, StillCreating, one_line
from sweepstack.onbox.host.offers import no_offer_left
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Wait
from sweepstack.platforms.common.deadline import DeadlineOver
from sweepstack.platforms.common.listed import LOOKS
from sweepstack.platforms.common.look_again import sent_or_found
from sweepstack.platforms.common.tag_memory import Memory

R = TypeVar("R")
CENT_OF_A_CENT = 1e-4
"""USD. A price that is so much above the highest one is not above it: prices are rounded."""


@dataclass(frozen=True)
class Try(Generic[R]):
    """One request that may make a box. `name`: the offer, for the list of refusals. `what`: what is asked for, and of
    whom. `send`: sends it, and returns what was made, or the refusal where the next offer is worth a try."""

    name: str
    what: str
    send: Callable[[], R | NoCapacity]


def first_granted(
    tries: Iterable[Try[R]],
    look: Callable[[], BoxRecord | None],
    request: BoxRequest,
    wait: Wait,
    memory: Memory,
    refusals: list[str],
) -> R | BoxRecord:
    """What the first of the `tries` that is granted made, or the box that `look` finds after a lost answer. Costs
    money. Call it while holding the tag's lock (which gives `memory`), and tell `memory` what was made.

    Adds each refusal to `refusals`. Raises NoCapacity with all of them when no offer is left; PlatformError with them
    when the time is over; at once, what `send` raises."""
    for one in tries:
        must_be_wanted(request, wait)
        wait.progress(f"{request.name}: asking {one.what}")
        with memory.renting():
            memory.sending()
            try:
                granted = sent_or_found(one.send, look, LOOKS, request.name, wait)
            except DeadlineOver as error:
                raise PlatformError("\n".join([f"{request.name}: nothing was rented: {error}", *refusals])) from error
            if isinstance(granted, NoCapacity):
                memory.nothing()
        if not isinstance(granted, NoCapacity):
            return granted
        refusals.append(f"{one.name}: {one_line(granted)}")
        wait.progress(f"{request.name}: {one_line(granted)}")
    raise no_offer_left(refusals, request.name)


def must_be_wanted(request: BoxRequest, wait: Wait) -> None:
    """Raises PlatformError when the user has cancelled. Call it before a request that may make a box."""
    if wait.cancelled.is_set():
        raise PlatformError(f"cancelled before {request.name} was rented: nothing exists, nothing bills")


def with_key(request: BoxRequest) -> BoxRequest:
    """The request with the user's public key. Raises PlatformError when there is no key: without one the box could not
    be reached."""
    if request.public_key.strip():
        return request
    from sweepstack.channel.ssh.keys import public_key

    return replace(request, public_key=public_key())


def must_not_be_too_dear(record: BoxRecord, name: str, max_price: float | None, *, digits: int = 4) -> None:
    """Raises StillCreating for a box that costs more than `max_price` (USD/h). Does not end it: a person decides.
    `digits`: of its price, in the message."""
    price = record.price_per_hour
    if max_price is None or price is None or price <= max_price + CENT_OF_A_CENT:
        return
    why = (
        f"{name} was rented and costs {price:.{digits}f} USD/h, above the {max_price:.4f} that you allow: it bills "
        "now. Raise max_price to keep it, or destroy it"
    )
    raise StillCreating(record.native_id, record.outputs(), [why])
