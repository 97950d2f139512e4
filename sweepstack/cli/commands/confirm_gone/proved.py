"""Closes the record of a box that no state has, once its platform proves that it is gone.

A sweep that was destroyed may have left one: its provider was killed before the record, or the evidence was out of
reach. No delete comes any more that would close it, and so its bill goes on in the books.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sweepstack.cli.forgotten_boxes import entry_of
from sweepstack.cli.output import YES, No, Out, Unsure
from sweepstack.cli.sources import Sources
from sweepstack.cli.target import Target
from sweepstack.core.observation import Existence
from sweepstack.core.records import Loss
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import EvidenceError
from sweepstack.operations.observe import observe, rented_at
from sweepstack.platforms.registry import has_address
from sweepstack.status.engine.state import BoxEntry
from sweepstack.teardown.check import may_end
from sweepstack.teardown.close_box import close_gone, lost_with


def open_records(sources: Sources, name: str) -> list[BoxEntry]:
    """The boxes of this name that are open in the records, that the state has not, and that an API can tell of. Raises
    EvidenceError."""
    store, known = sources.store, {box.native_id for box in sources.state.boxes}
    births = store.births() if store is not None else []
    return [
        entry_of(store, birth, sources.evidence or "")
        for birth in births
        if store is not None and birth.box == name and birth.ended_at is None and birth.native_id not in {None, *known}
        if not has_address(birth.platform)
    ]


def close(target: Target, sources: Sources, boxes: Sequence[BoxEntry], out: Out) -> int:
    """Exit 0: all of them are proved gone, and closed in the books, with the cells that were lost. Raises No for one
    that is there, Unsure for one of which that is not known: of that one nothing was written."""
    assert sources.store is not None
    closed = [_close(target, sources.store, box) for box in boxes]
    following = [f"sweepctl status --stack {target.stack}"]
    out.document({"stack": target.stack, "closed": closed, "next": following})
    for one in closed:
        out.line(f"box {one['box']} ({one['native_id']}) is gone from {one['platform']}: its record is closed")
        if one["lost"] is None:
            out.line("note   whether a volume holds sealed copies of its cells is not known: none is recorded as lost")
        elif one["lost"]:
            out.line(f"LOST   {', '.join(one['lost'])}: no copy of them is proved", style="bold red")
    out.next(following)
    return YES


def _close(target: Target, store: EvidenceStore, box: BoxEntry) -> dict[str, Any]:
    known = box.context()
    seen, _ = observe(known, files=False, rented=rented_at(box.price_per_hour))
    verdict = may_end(known, None, seen, full=False)
    if verdict.way != "gone":
        words, status = f"box {box.name} ({box.native_id}) on {box.adapter}", f"sweepctl status --stack {target.stack}"
        if seen.existence is Existence.EXISTS:
            adopts = f"pulumi up --stack {target.stack}    (adopts it; then finish)"
            raise No(f"{words} is there: a confirmation is not accepted. Nothing was written of it", [adopts, status])
        why = seen.account_problem or seen.note or "its platform does not tell"
        raise Unsure(f"whether {words} is gone is not proved: {why}. Nothing was written of it", [status])
    lost = lost_with(known, verdict)
    try:
        if lost:
            why, at = "its box is gone from the platform", datetime.now(UTC)
            store.write_loss(Loss(box=box.name, native_id=box.native_id, cells=lost, why=why, at=at))
        close_gone(store, box=box.name, generation=box.generation, native_id=box.native_id)
    except EvidenceError as error:
        raise Unsure(f"the record of box {box.name} can't be written: {error}") from error
    return {"box": box.name, "native_id": box.native_id, "platform": box.adapter, "lost": lost}
