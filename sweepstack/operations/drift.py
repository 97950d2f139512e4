"""What a platform says of a box that is not as it was rented, or as it is wanted.

For Read and for `status`. Tells only: no drift ends a box, replaces it, or keeps an approval from it. A price is the
one drift that `pulumi up` takes over, into the records, so that the ledger counts by it from then on.
"""

from __future__ import annotations

from sweepstack.core.lease_terms import NONE
from sweepstack.core.observation import Observation
from sweepstack.core.records import Birth
from sweepstack.core.resources import BoxInputs, BoxState
from sweepstack.onbox.common.errors import EvidenceError
from sweepstack.onbox.common.units import spell_rate
from sweepstack.onbox.host.capabilities import HasMarket
from sweepstack.onbox.host.offers import Constraints
from sweepstack.onbox.host.platform import BoxRecord, Phase, Platform
from sweepstack.operations.power import drained
from sweepstack.teardown.box_context import BoxContext

SHARE, LEAST = 0.01, 0.001
"""A price counts as another one from this share of the old one on, and from so many USD per hour."""
_HUB = ("docker.io/", "index.docker.io/", "library/")


def drift(state: BoxState, platform: Platform, record: BoxRecord, birth: Birth | None) -> dict[str, str]:
    """What of the box is not as it was rented: `price`, `gpus`, `image`, each in words that go on after its name. What
    its platform does not say counts as unchanged. `birth`: its record, with the price that the ledger counts by."""
    found = {}
    now = price_now(platform, record)
    if birth is not None and birth.price_per_hour is not None and now is not None and not_in_books(now, birth):
        most = "" if state.max_price is None or now <= state.max_price else f", above its max_price {state.max_price:g}"
        found["price"] = (
            f"bills ${spell_rate(now)}/h now{most}, and the books have ${spell_rate(birth.price_per_hour)}/h; "
            "`pulumi up` takes the new price into them"
        )
    asked = Constraints.of(state.resources).gpu_count
    if record.phase is Phase.RUNNING and record.gpu_count is not None and record.gpu_count < asked:
        found["gpus"] = f"has {record.gpu_count} of {asked} GPUs now"
    if state.image and record.image and _whole(state.image) != _whole(record.image):
        found["image"] = f"runs {record.image} now, and was rented with {state.image}"
    return found


def price_now(platform: Platform, record: BoxRecord) -> float | None:
    """USD per hour of a box that runs, where its platform makes the price; None where a person names it."""
    return record.price_per_hour if isinstance(platform, HasMarket) and record.phase is Phase.RUNNING else None


def not_in_books(now: float | None, birth: Birth | None) -> bool:
    """Whether this price is another one than the record has, and not by rounding alone."""
    then = birth.price_per_hour if birth is not None else None
    return now is not None and then is not None and abs(now - then) > max(LEAST, SHARE * then)


def _whole(image: str) -> str:
    """An image's name with all that may be left out of it."""
    for prefix in _HUB:
        image = image.removeprefix(prefix)
    return image if ":" in image.rpartition("/")[2] else f"{image}:latest"


def unwanted(box: BoxContext, state: BoxState, record: BoxRecord, seen: Observation) -> str:
    """Why a box is not as it is wanted, a reason to ask for an update; "" if it is.

    A box that is stopped because its queue is drained is as it is wanted.
    """
    name, phase = state.name, record.phase
    if state.want == "stopped":
        if phase is Phase.STOPPED:
            return ""
        return f"box {name} is {phase.value} and wanted stopped: it bills as if it ran"
    if phase is Phase.RUNNING:
        return ""
    if phase.at_rest and rests_drained(box, state, seen):
        return ""
    why = f" ({record.note})" if record.note else ""
    if phase.at_rest and state.resources.get("spot"):
        why = why or " (outbid, or stopped by hand; a higher bid may bring it back)"
    if phase.at_rest:
        return f"box {name} is {phase.value} and wanted running{why}; `pulumi up` starts it"
    return f"box {name} is {phase.value}, not ready{why}"


def rests_drained(box: BoxContext, state: BoxState, seen: Observation) -> bool:
    """Whether the box is to stop once its queue is drained (`when_done: stop`, or a lease), and it is. The queue starts
    it again when it is given cells."""
    if not stops_drained(state):
        return False
    try:
        return drained(box.store, state.name, state.generation, seen)
    except EvidenceError:
        return False


def stops_drained(state: BoxInputs) -> bool:
    """Whether the box is to stop by itself once its queue is drained."""
    return state.when_done == "stop" or state.lease not in (None, NONE)


def seen_drift(
    box: BoxContext, state: BoxState, record: BoxRecord, seen: Observation, birth: Birth | None
) -> dict[str, str]:
    """The same for people who look, with `want`: that it runs or stands still against what is wanted. Not of a box that
    may end, or that is on its way to another state."""
    found = drift(state, box.platform, record, birth)
    settled = record.phase in (Phase.RUNNING, Phase.STOPPED, Phase.FAILED) and not state.clearance.startswith("cleared")
    if settled and (why := unwanted(box, state, record, seen)):
        found["want"] = why.removeprefix(f"box {state.name} ")
    return found
