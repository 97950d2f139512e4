"""Claims the place of a sweep's evidence, and says whether it may be there."""

from __future__ import annotations

import secrets

from sweepstack.core.bucket_address import SCHEME, S3Address, evidence_uri
from sweepstack.core.resources import IdentityInputs
from sweepstack.evidence.publish import arrival_problem
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import EvidenceError, SweepstackError
from sweepstack.provider.session import Operation

ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
"""No characters that look like others."""


def evidence_of(op: Operation, pull_to: str) -> str:
    """The URI of the evidence, as this checkout on this computer sees it. Raises EvidenceError if `pull_to` is no
    address."""
    found = evidence_uri(op.session.project_root, pull_to)
    if found is None:
        found = S3Address.parse(pull_to).uri  # raises, and says what is wrong
    return found


def founded(op: Operation, project: str, stack: str, pull_to: str) -> tuple[EvidenceStore, str, bool]:
    """The evidence of this sweep, claimed for it; its URI; and whether it was there before, with its name. Raises
    SweepstackError where another sweep's is there."""
    evidence = evidence_of(op, pull_to)
    marker = EvidenceStore.read_marker(evidence)
    if marker and (marker.project, marker.stack) != (project, stack):
        words = f"{evidence} holds the evidence of {marker.project}/{marker.stack}"
        if marker.stack == stack:
            words += f". If its project was renamed: name: {marker.project} again in Pulumi.yaml. If it is another"
        raise SweepstackError(f"{words}; give {stack} its own pull_to")
    identity = marker.identity if marker else "".join(secrets.choice(ALPHABET) for _ in range(10))
    try:
        store = EvidenceStore.found(evidence, identity, project, stack)
    except EvidenceError:
        winner = None if marker else EvidenceStore.read_marker(evidence)
        if winner is None or (winner.project, winner.stack) != (project, stack):
            raise
        # Another `up` of this very stack named it at the same moment.
        store = EvidenceStore.found(evidence, winner.identity, project, stack)
    return store, evidence, marker is not None


def place_problem(op: Operation, pull_to: str, *, ask: bool) -> str:
    """Why evidence can't be kept there; "" if it can. `ask`: also look there, before anything is rented."""
    try:
        evidence = evidence_of(op, pull_to)
        if ask and evidence.startswith(SCHEME):
            EvidenceStore.read_marker(evidence)
    except EvidenceError as error:
        return str(error)
    return ""


def move_problem(op: Operation, old: IdentityInputs, new: IdentityInputs) -> str:
    """Why the evidence can't follow to a new `pull_to`; "" if it can, as far as the inputs tell.

    The update looks again: it knows where the evidence was.
    """
    if new.pull_to == old.pull_to or evidence_of(op, new.pull_to) == evidence_of(op, old.pull_to):
        return ""
    if not new.pull_to.startswith(SCHEME):
        moves = "`sweepctl pull --to s3://bucket/prefix` moves evidence"
        return f"may not change from {old.pull_to} to another folder. {moves}"
    problem = arrival_problem(evidence_of(op, new.pull_to), new.project, new.stack)
    return problem and f"may change only to where `sweepctl pull --to` brought the evidence: {problem}"
