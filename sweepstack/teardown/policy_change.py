"""Decides what the project's policy file means for a sweep: it comes into force, or it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sweepstack.config import policy as policy_file
from sweepstack.config.policy import FILE
from sweepstack.core.policy_chain import NONE, PolicyCopy, PolicyText
from sweepstack.core.records import Approval
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import ConfigError, EvidenceError
from sweepstack.teardown.policy_copies import PROPOSED, Found
from sweepstack.teardown.policy_in_force import InForce, followed, in_force


@dataclass(frozen=True)
class Change:
    """`before`: what binds by the copies; `after`: what binds once the next `pulumi up` has taken the file. `file`:
    None if it is missing. `lost`: in which ways the file is weaker, and not approved; then `after` is `before`.
    `problem`: why the file can't be read."""

    before: InForce
    after: InForce
    file: PolicyText | None
    lost: tuple[str, ...] = ()
    problem: str = ""

    def for_state(self, had: PolicyCopy | None, *, had_none: bool) -> PolicyCopy:
        """What the state takes of the copy. `had`: its copy so far; then no chain that begins elsewhere. `had_none`:
        the state is there and had no policy; then only what the file says, which people review: else who writes the
        evidence could bring a policy into all states and boxes, where no person can take it out."""
        if not had_none or (had is not None and had.chains):
            return self.after.copy.within(had)
        return PolicyCopy(chains=tuple(chain for chain in self.after.copy.chains if chain.head == self.file))

    @property
    def notes(self) -> list[str]:
        """For people: which copies are wrong, and why the file does not count."""
        said = list(self.before.notes)
        if self.lost:
            shorts = " and ".join(head.short for head in self.before.heads)
            state = f"is weaker than the policy in force ({shorts})" if self.file is not None else "is missing"
            lines = "; ".join(self.lost)
            what = f"{FILE} {state}, and that was not approved: {lines}"
            said.append(f"{what}. The policy in force binds on. Next: put it back, or sweepctl policy approve")
        return said


def change(root: Path, places: Sequence[Found], store: EvidenceStore | None, identity: str) -> Change:
    """What the file of the project at `root` means, by these copies. Reads files; raises nothing."""
    before = in_force(places, identity)
    try:
        file = policy_file.of_project(root)
        policy_file.read(file or NONE)
    except ConfigError as error:
        return Change(before, before, None, problem=str(error))
    copy, lost = followed(before, file or NONE, waiting_approval(store), identity)
    after = before if copy == before.copy else in_force([*_damaged(places), Found("here", copy)], identity)
    return Change(before, after, file, tuple(lost))


def waiting_approval(store: EvidenceStore | None) -> Approval | None:
    """The approval of a weaker policy that waits in the evidence; None if it has expired, too."""
    try:
        found = store.record(PROPOSED, Approval) if store is not None else None
    except EvidenceError:
        return None
    return found if found is not None and datetime.now(UTC) < found.expires else None


def _damaged(places: Sequence[Found]) -> list[Found]:
    return [place for place in places if place.problem]


def copy_text(copy: PolicyCopy) -> str | None:
    """The copy as the state has it; None if there is no policy."""
    return copy.written() if copy.chains else None
