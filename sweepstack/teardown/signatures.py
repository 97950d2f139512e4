"""Who signed an approval: an SSH key under exactly these words, for exactly this sweep.

An approval without signatures is none of this module's business. One with signatures counts only if each of them is
good: one that was forged, copied from another approval or sweep, or left under words that were edited, refuses it by
name. The list of those who may sign is the text of an allowed_signers file, which a policy pins
(docs/teardown.md#signed-approvals).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sweepstack.core.extensions import not_here, part_of
from sweepstack.core.records import Approval
from sweepstack.core.signature import Signature, SweepName
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.canonical import canonical_json
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.teardown.box_context import BoxFacts

NAMESPACE = "sweepstack-approval@v1"
"""What the key signs for: it keeps a signature of a commit or a mail from counting as one of an approval."""


@dataclass(frozen=True)
class Signers:
    """`valid`: who signed, each once → the key (`SHA256:…`). `refused`: who did not, as the signature names them → why.

    One key is one person and one name is one person: a second signature by either is refused.
    """

    valid: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def principals(self) -> tuple[str, ...]:
        """Who signed."""
        return tuple(self.valid)

    @property
    def problems(self) -> list[str]:
        """One sentence for each signature that does not count."""
        return [f"the signature of {who} under the approval does not count: {why}" for who, why in self.refused.items()]


def signed_document(approval: Approval, principal: str, sweep: SweepName) -> bytes:
    """What `principal` signs: all of the approval but its signatures, and for which sweep. Canonical JSON."""
    return canonical_json(
        {
            "type": NAMESPACE,
            "signer": principal,
            "sweep": sweep.model_dump(mode="json"),
            "approval": approval.unsigned,
        }
    )


def verified_signers(approval: Approval, sweep: SweepName, allowed_signers: str | None, *, at: datetime) -> Signers:
    """Which signatures of the approval are good for this sweep at `at`.

    `sweep`: "" in it stands for what is not known, and is not compared. `allowed_signers`: None where no list is
    pinned; then `valid` has who the signatures name, whose keys are unproved: only that nothing was edited, and that
    they are for this sweep. For an approval that ends something now, `at` is now; for one that was used before, when
    that was. Runs ssh-keygen twice for each signature. Raises nothing: what can't be checked is refused.
    """
    valid: dict[str, str] = {}
    refused: dict[str, str] = {}
    for signature in approval.signatures:
        who = signature.principal
        try:
            key = _key(approval, signature, sweep, allowed_signers, at)
        except SweepstackError as error:
            refused[who] = str(error)
            continue
        if who in valid:
            refused[who] = "that name has signed already"
        elif key in valid.values():
            other = next(name for name, known in valid.items() if known == key)
            refused[who] = f"it is by the same key as that of {other}, and one key is one person"
        else:
            valid[who] = key
    return Signers({who: key for who, key in valid.items() if who not in refused}, refused)


def ssh_keygen() -> Any:
    """The module of the extension `signing` that makes and checks signatures. Raises SweepstackError where it is not
    installed."""
    found = part_of("signing", "sshsig")
    if found is None:
        raise SweepstackError(f"signatures are made and checked by {not_here('signing')}")
    return found


def signature_problems(approval: Approval, sweep: SweepName, allowed_signers: str | None, *, at: datetime) -> list[str]:
    """Why the approval does not count, by its signatures alone; empty if it has none, or if all of them are good.

    The check of an end asks this with None. A policy that pins a list asks it again with that list, and beside it how
    many, and who, have to have signed.
    """
    return verified_signers(approval, sweep, allowed_signers, at=at).problems if approval.signatures else []


def sweep_of(facts: BoxFacts, store: EvidenceStore | None) -> SweepName:
    """The sweep of a box, as its state and its evidence name it; "" for what neither says."""
    if facts.urn.count("::") >= 2:  # urn:pulumi:<stack>::<project>::…
        stack, project, _ = facts.urn.removeprefix("urn:pulumi:").split("::", 2)
        return SweepName(project=project, stack=stack, identity=facts.identity)
    project, stack = (store.marker.project, store.marker.stack) if store is not None else ("", "")
    return SweepName(project=project, stack=stack, identity=facts.identity)


def signed_words(approval: Approval) -> str:
    """`signed by ann@lab.org and bob@lab.org`, as the signatures say, unchecked; "" if there is none: for people."""
    names = " and ".join(dict.fromkeys(signature.principal for signature in approval.signatures))
    return f"signed by {names}" if names else ""


def given_by(approval: Approval) -> str:
    """Who gave it: `by`, and who signed it, as the signatures say, unchecked: for people."""
    return ", ".join(filter(None, (approval.by, signed_words(approval))))


def _key(approval: Approval, signature: Signature, sweep: SweepName, allowed_signers: str | None, at: datetime) -> str:
    """The key, if the signature is good. Raises SweepstackError."""
    given = signature.sweep
    if given.identity != sweep.identity or not _same(given, sweep):
        raise SweepstackError(f"it was given for {given}, and this is {sweep}")
    sshsig = ssh_keygen()
    data = signed_document(approval, signature.principal, given)
    key: str = sshsig.fingerprint(data, signature.signature, NAMESPACE)
    if allowed_signers is None:
        return key
    listed: str = sshsig.verify(
        data,
        signature.signature,
        principal=signature.principal,
        namespace=NAMESPACE,
        allowed_signers=allowed_signers,
        at=at.replace(second=0, microsecond=0),
    )
    return listed


def _same(given: SweepName, sweep: SweepName) -> bool:
    """Whether project and stack agree, as far as they are known here."""
    pairs = ((given.project, sweep.project), (given.stack, sweep.stack))
    return all(mine in ("", named) for named, mine in pairs)
