"""`sweepctl approve --revoke`: takes a person's word back."""

from __future__ import annotations

from sweep.cli.look import Sources, open_sources
from sweep.cli.output import UNSURE, YES, Out
from sweep.cli.target import Target
from sweep.errors import EvidenceError


def revoke(target: Target, out: Out) -> int:
    """Takes the approval back: out of the stack file, and the teardown and clearances on record with it."""
    removed = target.file.write_approval(None) if target.file.path.exists() else False
    problem, closed = _close_records(open_sources(target))
    following = [f"pulumi up --stack {target.stack}    (locks again)"]
    out.document(
        {
            "stack": target.stack,
            "file": target.file.shown,
            "removed": removed,
            "teardown_closed": closed,
            "problem": problem or None,
            "next": following,
        }
    )
    out.line(f"{target.file.shown}: {'the approval is out' if removed else 'there was no approval'}")
    if closed:
        out.line("the open teardown is closed: the sweep may go on")
    if problem:
        out.line(f"UNKNOWN the records could not be closed: {problem}", style="yellow")
    out.next(following)
    return UNSURE if problem else YES


def _close_records(sources: Sources) -> tuple[str, bool]:
    """Forgets clearances and the open teardown. Only ever locks more."""
    store = sources.store
    if store is None:
        return sources.problem, False
    try:
        was_open = store.teardown() is not None
        store.write_teardown(None)
        for birth in store.births():
            if birth.native_id is not None and birth.ended_at is None:
                store.write_clearance(birth.native_id, None)
        for volume in sources.state.volumes:
            if volume.guarded:
                store.write_clearance(volume.native_id, None)
    except EvidenceError as error:
        return str(error), False
    return "", was_open
