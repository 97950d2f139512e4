"""Asks the other backends that hold the sweep of a box or a volume that no state has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sweepstack.cli.commands.audit.known_boxes import Known
from sweepstack.cli.held_by import Answer, ask_backend, backend_of
from sweepstack.config.project import project_name
from sweepstack.evidence.backend_lease import is_local, same, taken_over
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import EvidenceError, SweepstackError
from sweepstack.platforms.common.deadline import Deadline
from sweepstack.teardown.ownership import Owner

Claim = tuple[str, str, str]
"""Who holds a sweep, and which: (backend, project, stack)."""
ASKING_SECONDS = 120.0
"""After so long no further backend is asked: a job can name any number of backends that do not answer. The one that is
being asked then may take as long as `read_state` allows."""
STORAGE = ("s3", "gs", "azblob")
"""Schemes of backends in object storage: the engine sends its token to none of them, and to every other address."""


def other_backends(
    stores: Sequence[EvidenceStore],
    root: Path,
    known: Known,
    owner: Owner | None = None,
    named_by_box: Sequence[EvidenceStore] = (),
) -> tuple[Answer, ...]:
    """The backends, other than the one used here, that hold the sweep: by the lease in its evidence, or by what the box
    says, if no person took that over. Asks each of them once for `known`.

    `stores`: the evidence that this checkout knows. `named_by_box`: the evidence that was found only through the box,
    however it spells that address; `owner`: what the box says. A volume has neither.
    """
    trusted, unread = _leases(stores)
    by_box, unread_too = _leases(named_by_box)
    held = [*trusted, *by_box]
    unread += unread_too
    said = [(owner.backend, owner.project, owner.stack)] if owner is not None and owner.backend else []
    if not held and not said:
        return tuple(unread)
    try:
        ours = backend_of(root)
    except SweepstackError:
        ours = ""  # then it may be another one: it is asked
    held += [
        claim for claim in said if not any(taken_over(store, claim[0], ours) for store in (*stores, *named_by_box))
    ]
    others = [claim for claim in dict.fromkeys(held) if not same(claim[0], ours)]
    return (*unread, *(_answer(claim, root, known, trusted=claim in trusted) for claim in others))


def gate_of(others: Sequence[Answer]) -> tuple[str, str]:
    """Which other backend answers and still has the sweep, as text, and the command that goes on there; "" if none
    does. What it has ends only there, whatever a person says here."""
    return next(((f"the state in {one.backend} {one.words}", one.there) for one in others if one.there), ("", ""))


def _answer(claim: Claim, root: Path, known: Known, *, trusted: bool) -> Answer:
    """`trusted`: evidence says so that not the box alone names. A job can write what the box says, and the engine sends
    its token to a web address."""
    backend, project, stack = claim
    if not trusted and not is_local(backend) and backend.partition(":")[0] not in STORAGE:
        return Answer(backend, "only the box names: it is not asked")
    if claim not in known.answers:
        known.asking = known.asking or Deadline(ASKING_SECONDS)
        if not known.asking.left():
            return Answer(backend, "was not asked: others took all the time that there was for it")
        known.answers[claim] = ask_backend(backend, _spelled(project, stack, root), root)
    return known.answers[claim]


def _leases(stores: Sequence[EvidenceStore]) -> tuple[list[Claim], list[Answer]]:
    """The leases in evidence. A lease that can't be read counts as one of another backend that can't be asked."""
    claims, unread = list[Claim](), list[Answer]()
    for store in stores:
        try:
            lease = store.lease()
        except EvidenceError as error:
            unread.append(Answer(f"a lease that can't be read ({error})", "can't be asked"))
        else:
            claims += [(lease.backend, store.marker.project, store.marker.stack)] if lease is not None else []
    return claims, unread


def _spelled(project: str, stack: str, root: Path) -> str:
    """The stack as the engine knows it in this checkout."""
    try:
        here = project_name(root)
    except SweepstackError:
        here = ""
    return stack if not project or project == here else f"organization/{project}/{stack}"
