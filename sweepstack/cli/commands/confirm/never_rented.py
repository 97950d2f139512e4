"""`sweepctl confirm never-rented BOX`: a person confirms that a create rented nothing.

The answer to that create was lost, and no list proves that it rented nothing: a list may lag, and longer than expected.
So the confirmation is accepted only after the expected lag, if the platform still shows no box. It closes that record.
The next `pulumi up` rents under another tag, so that a box which shows up later can be told apart.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sweepstack.cli.commands.confirm import Statement
from sweepstack.cli.output import YES, Out
from sweepstack.core.records import Birth
from sweepstack.core.suggest import did_you_mean
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import EvidenceError, FolderLost, No, PlatformError, Unproved, Unsure
from sweepstack.operations.sweep.sources import open_sources
from sweepstack.operations.sweep.target import Target
from sweepstack.teardown.box_context import BoxAt, find_born

USES = ("saw", "by")


def confirm(target: Target, statement: Statement, out: Out) -> int:
    """Exit 0: the confirmation is recorded; 1: it was refused, and nothing was written; 2: not known."""
    status = [f"sweepctl status --stack {target.stack}"]
    up = f"pulumi up --stack {target.stack}"
    saw = statement.words('what the console shows, such as --saw "no pod of that name"')
    sources = open_sources(target)
    if sources.store is None:
        raise Unsure(f"the confirmation can't be recorded: {sources.problem}", status)
    birth = _asked(sources.store, statement.box, target)
    now = datetime.now(UTC)
    if birth.shown_by is not None and now < birth.shown_by:
        at = f"{birth.shown_by:%H:%M:%S} UTC"
        raise No(
            f"the list of {birth.platform} may lag until {at}: nothing was written", [f"{up}    (at {at} or later)"]
        )
    try:
        found = find_born(BoxAt.of(birth).platform, birth)
    except (Unproved, FolderLost):  # no list proves it, or its host has lost what it had: so a person may
        found = None
    except PlatformError as error:
        raise Unsure(f"whether {birth.tag} is there can't be told: {error}. Nothing was written", status) from error
    if found is not None:
        raise No(
            f"{found.native_id} on {birth.platform} carries the tag {birth.tag}: it was rented",
            [f"{up}    (adopts it)"],
        )
    by = statement.person
    how = f"never rented, confirmed by {by}: {saw}"
    try:
        sources.store.write_birth(birth.model_copy(update={"ended_at": now, "ended_how": how}))
    except EvidenceError as error:
        raise Unsure(f"the confirmation can't be recorded: {error}", status) from error
    confirmed = {"box": birth.box, "tag": birth.tag, "by": by, "saw": saw, "at": now.isoformat()}
    following = [f"{up}    (rents it under another tag)", f"{status[0]}    (names {birth.tag}, should it show up)"]
    out.document({"stack": target.stack, "never_rented": confirmed, "next": following})
    out.line(f"box {birth.box}: {birth.tag} on {birth.platform} was {how}")
    out.next(following)
    return YES


def _asked(store: EvidenceStore, box: str, target: Target) -> Birth:
    """The open record of a create of this box without an answer. Raises No if there is none."""
    births = [birth for birth in store.births() if birth.ended_at is None and birth.native_id is None]
    for birth in births:
        if birth.box == box and not birth.never_asked:
            return birth
    known = sorted(birth.box for birth in births if not birth.never_asked)
    raise No(
        f"no create of box {box} is without an answer (without one: {', '.join(known) or 'none'}); nothing was written"
        f"{did_you_mean(box, known)}",
        [f"sweepctl status --stack {target.stack}"],
    )
