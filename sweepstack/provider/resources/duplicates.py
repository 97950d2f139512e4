"""A second box with one and the same tag: named wherever the first is looked at, with the command that ends it.

No rental platform refuses one: two machines at once, a copy made in a console, or a list that lagged can make it. It is
never adopted over the box in the state, and no delete of ours ends it, so it bills until a person does.
"""

from __future__ import annotations

from sweepstack.onbox.common.box_layout import tag_prefix
from sweepstack.onbox.common.errors import PlatformError
from sweepstack.onbox.host.capabilities import HasMarket
from sweepstack.onbox.host.platform import BoxRecord, Phase
from sweepstack.provider.models import BoxState
from sweepstack.provider.session import Operation
from sweepstack.teardown.box_context import BoxContext


def warn(op: Operation, box: BoxContext, state: BoxState) -> None:
    """Says which other boxes carry this box's tag. One list for all boxes of a sweep; never raises for an outage."""
    for record in _beside(box, state):
        price = "" if record.price_per_hour is None else f" ${record.price_per_hour:.2f}/h"
        op.warn(
            f"box {state.name}: a second box carries its tag, {record.native_id} on {state.adapter} ({record.phase}), "
            f"and may bill{price}; {state.native_id} is the one in the state. End the second: "
            f"sweepctl audit --end {state.adapter}:{record.native_id}"
        )


def _beside(box: BoxContext, state: BoxState) -> list[BoxRecord]:
    platform = box.platform
    if not isinstance(platform, HasMarket):
        return []  # its tags are its own: no second one can be made
    try:
        listed = platform.list_tagged(tag_prefix(state.identity))
    except PlatformError:
        return []  # what is not known of the box itself is said by the look at it
    return [
        record
        for record in listed
        if record.tag == state.tag
        and record.native_id != state.native_id
        and record.phase not in (Phase.GONE, Phase.ENDING)
    ]
