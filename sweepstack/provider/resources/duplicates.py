"""Warns of a second box that carries the same tag, and names the command that ends it.

A rental platform allows two boxes with one tag. Two machines that rent at once can cause it, or a copy made in a
console, or a list that lagged. The second box is never adopted in place of the one in the state, and no delete of ours
ends it: it bills until a person ends it.
"""

from __future__ import annotations

from sweepstack.onbox.common.box_layout import tag_prefix
from sweepstack.onbox.common.errors import PlatformError
from sweepstack.onbox.common.units import spell_rate
from sweepstack.onbox.host.capabilities import HasMarket
from sweepstack.onbox.host.platform import BoxRecord, Phase
from sweepstack.provider.models import BoxState
from sweepstack.provider.session import Operation
from sweepstack.teardown.box_context import BoxContext


def warn(op: Operation, box: BoxContext, state: BoxState) -> None:
    """Names the other boxes that carry this box's tag. Asks for one list for all boxes of a sweep. Never raises for an
    outage."""
    for record in _beside(box, state):
        price = "" if record.price_per_hour is None else f" ${spell_rate(record.price_per_hour)}/h"
        op.warn(
            f"box {state.name}: a second box carries its tag, {record.native_id} on {state.adapter} ({record.phase}), "
            f"and may bill{price}; {state.native_id} is the one in the state. End the second: "
            f"sweepctl audit --end {state.adapter}:{record.native_id}"
        )


def _beside(box: BoxContext, state: BoxState) -> list[BoxRecord]:
    platform = box.platform
    if not isinstance(platform, HasMarket):
        return []  # only on a market can a second box get the tag
    try:
        listed = platform.list_tagged(tag_prefix(state.identity))
    except PlatformError:
        return []  # the look at the box itself reports the outage
    return [
        record
        for record in listed
        if record.tag == state.tag
        and record.native_id != state.native_id
        and record.phase not in (Phase.GONE, Phase.ENDING)
    ]
