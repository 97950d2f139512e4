"""Finds which policy binds a sweep: that of the engine's state, and `policy.yaml` (docs/adr/018).

The file comes into force with a `pulumi up`. From then on the state has it, and it binds with and without the file; a
weaker file follows once those who may approve that have done so. What ends keeps to both. No other place is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from sweepstack.config import policy as policy_file
from sweepstack.config.policy import FILE, ReadPolicy
from sweepstack.config.project import SIGNERS
from sweepstack.core.policy_text import NONE, PolicyChain, PolicyText, read_copy, written
from sweepstack.core.records import Approval
from sweepstack.core.schema import UPDATE_COMMAND
from sweepstack.core.signature import SweepName
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import ConfigError, EvidenceError
from sweepstack.teardown.policy_strictness import missing_signatures, weaker
from sweepstack.teardown.revocation import revocation_problem

FROM, TO = "end-policy", "begin-policy"
"""The two actions of an approval of a weaker policy: `box` is the sweep's identity, `native_id` a digest."""
PROPOSED = "policy/proposed.json"
"""The approval of a weaker policy, among the records of the evidence. It counts until it expires, or is
revoked."""
STATE, RECORDS = "the engine's state", "the records"


@dataclass(frozen=True)
class Binding:
    """A policy that binds. `where`: which file or entry says it. `rule`: None if it can't be read, or is not here; then
    `problem` says why, and what helps."""

    where: str
    policy: PolicyText
    rule: ReadPolicy | None = None
    problem: str = ""


@dataclass(frozen=True)
class InState:
    """What entries of the engine's state have: the chains of each, like entries once. `problems`: why an entry can't be
    read."""

    entries: tuple[tuple[PolicyChain, ...], ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def policies(self) -> tuple[PolicyText, ...]:
        """Those that bind. More than one while a change came through half-way, or in a state of an older version."""
        return tuple({chain.policy.digest: chain.policy for chains in self.entries for chain in chains}.values())


def in_state(texts: Iterable[str | None]) -> InState:
    """What these entries have (their property `policy`). Raises nothing."""
    entries: dict[tuple[PolicyChain, ...], None] = {}
    problems: dict[str, None] = {}
    for text in texts:
        try:
            entries |= dict.fromkeys([read_copy(text).chains] if text is not None else ())
        except ValueError as error:
            problems[f"the policy in {STATE} can't be read: {error}"] = None
    return InState(tuple(entries), tuple(problems))


def binding(
    texts: Iterable[str | None], named: Mapping[str, str], root: Path, *, never: str = ""
) -> tuple[Binding, ...]:
    """What binds an end, or an approval of one: all policies of the state, and the project's file.

    `texts`: the property `policy` of entries of the state. `named`: the digests by which birth records name the policy
    of their box, with the record's file. `root`: the project. `never`: as of `missing_words`. Reads files; raises
    nothing.
    """
    held = in_state(texts)
    found = [Binding(STATE, NONE, problem=f"{problem}. {UNREADABLE}") for problem in held.problems]
    file: PolicyText | None = None
    try:
        file = policy_file.of_project(root)
        if file is not None:
            found.append(Binding(FILE, file, policy_file.parse_policy(file)))
    except ConfigError as error:
        way = "" if "Next: " in str(error) else f". Next: {policy_file.mended(root)}, or take it out"
        found.append(Binding(FILE, file or NONE, problem=f"{error}{way}"))
    found += [_of_state(policy) for policy in held.policies if policy != file]
    here = {one.policy.digest for one in found}
    missing = ((digest, file) for digest, file in sorted(named.items()) if digest not in here)
    found += [Binding(RECORDS, NONE, problem=missing_words(digest, where, never)) for digest, where in missing]
    return tuple(found)


UNREADABLE = f"A newer sweepstack may read it ({UPDATE_COMMAND}); else sweepctl policy approve lets the file follow it"


def missing_words(digest: str, record: str, never: str) -> str:
    """Why nothing ends under a policy of which only the digest is known, and what helps. `record`: the file in the
    evidence that names it; `never`: what to do if its text never was."""
    short = digest.rpartition(":")[2][:12]
    return (
        f"{record} of the evidence names the policy {short}, and no text of it is here: neither the state nor {FILE} "
        f"has it. Next: put that {FILE} back, with its {SIGNERS} (git log -- {FILE}); or, where no commit "
        f"ever had it, {never}"
    )


def _of_state(policy: PolicyText) -> Binding:
    shown = f"{STATE}: policy {policy.short},"
    try:
        return Binding(STATE, policy, policy_file.parse_policy(policy, shown))
    except ConfigError as error:
        what = error.problems[0] if error.problems else str(error)
        words = f"the policy in {STATE} ({policy.short}) can't be read by this sweepstack: {what}. {UNREADABLE}"
        return Binding(STATE, policy, problem=words)


def rule_of(policy: PolicyText) -> ReadPolicy | None:
    """A policy of the state, read; None if this version can't."""
    return _of_state(policy).rule


@dataclass(frozen=True)
class Change:
    """What the project's file means for a sweep. `file`: None if it is missing; `file_problem`: why it can't be read.
    `lost`: in which ways it is weaker than the state's; `approved`: that was approved."""

    held: InState
    file: PolicyText | None
    file_problem: str = ""
    lost: tuple[str, ...] = ()
    approved: bool = False

    @property
    def refused(self) -> bool:
        """Whether the file is weaker, and does not count."""
        return bool(self.lost) and not self.approved

    @property
    def after(self) -> tuple[PolicyText, ...]:
        """The policies that bind from the next `pulumi up` on."""
        if self.file_problem or self.refused:
            return self.held.policies
        return (self.file,) if self.file is not None else ()

    @property
    def in_force(self) -> tuple[Binding, ...]:
        """The policies that the state has, read; by the file's name where the file says the same."""
        return tuple(map(self._read, self.held.policies))

    def _read(self, policy: PolicyText) -> Binding:
        return Binding(FILE, policy, policy_file.parse_policy(policy)) if policy == self.file else _of_state(policy)

    @property
    def binding(self) -> tuple[Binding, ...]:
        """What binds from the next `pulumi up` on, read."""
        unread = self.held.problems if self.file_problem or self.refused else ()
        found = [Binding(STATE, NONE, problem=f"{problem}. {UNREADABLE}") for problem in unread]
        return (*found, *map(self._read, self.after))

    @property
    def notes(self) -> list[str]:
        """For people: why the file does not count."""
        if not self.refused:
            return []
        shorts = " and ".join(policy.short for policy in self.held.policies) or "that does not read"
        how = f"is weaker than the policy in force ({shorts})" if self.file is not None else "is missing"
        what = f"{FILE} {how}, and that was not approved: {'; '.join(self.lost)}"
        return [f"{what}. The policy in force binds on. Next: put it back, or sweepctl policy approve"]


def change(root: Path, texts: Iterable[str | None], store: EvidenceStore | None, identity: str) -> Change:
    """What the file of the project at `root` means for a sweep of whose state these are the policies. `store`: where an
    approval of a weaker one may wait. Reads files; raises nothing."""
    held = in_state(texts)
    try:
        file = policy_file.of_project(root)
        policy_file.parse_policy(file or NONE)
    except ConfigError as error:
        return Change(held, None, file_problem=str(error))
    lost = [line for policy in held.policies for line in what_is_lost(policy, file or NONE)]
    lost = list(dict.fromkeys([*held.problems, *lost]))
    if not lost:
        return Change(held, file)
    approval = waiting_approval(store)
    missing = missing_consent(held, file or NONE, approval, identity)
    return Change(held, file, lost=tuple(lost), approved=approval is not None and not missing)


def what_is_lost(old: PolicyText, new: PolicyText) -> list[str]:
    """In which way `new` is weaker than `old`; empty if it is not. What can't be read is not weaker than anything, and
    everything is weaker than it."""
    if old.digest == new.digest:
        return []
    try:
        before = policy_file.parse_policy(old)
    except ConfigError:
        return [f"{old.short} can't be read by this sweepstack, so nothing is known to be as strict"]
    try:
        return weaker(before, policy_file.parse_policy(new))
    except ConfigError:
        return []


def asked(held: InState, file: PolicyText) -> tuple[PolicyText, ...]:
    """The policies whose people are asked before `file` may follow those of the state. Each entry asks for itself: one
    that was edited takes no people away from the others. Only the chains of one entry, of an older version, can differ:
    where one of them has the file, another that has not may have come from a copy that a job wrote."""
    found: dict[PolicyText, None] = {}
    for chains in held.entries:
        ours = [chain for chain in chains if any(link.policy == file for link in chain.links)] or chains
        found |= dict.fromkeys(chain.asks_under(file) for chain in ours if what_is_lost(chain.policy, file))
    return tuple(found)


def missing_consent(held: InState, new: PolicyText, approval: Approval | None, identity: str) -> list[str]:
    """Why this approval does not let `new` follow the policies of the state in this sweep; empty if it does. The sweep
    is known by its identity alone: a stack may have been renamed since then. A policy that does not read names no
    people: any person may approve what follows it, on record."""
    if approval is None:
        return ["it was not approved"]
    named = {(action.verb, action.box, action.native_id) for action in approval.actions}
    lost = [policy for policy in held.policies if what_is_lost(policy, new)]
    if not {(FROM, identity, old.digest) for old in lost} | {(TO, identity, new.digest)} <= named:
        return ["its approval is for another change, or for another sweep"]
    sweep, now = SweepName(project="", stack="", identity=identity), datetime.now(UTC)
    rules = map(rule_of, asked(held, new))
    missing = [missing_signatures(rule, approval, sweep, given_up=True, at=now) for rule in rules if rule is not None]
    return [words for words in missing if words]


def waiting_approval(store: EvidenceStore | None) -> Approval | None:
    """The approval of a weaker policy that the evidence has; None if it has expired or was revoked, too. Raises
    nothing."""
    try:
        found = store.record(PROPOSED, Approval) if store is not None else None
    except EvidenceError:
        return None
    if store is None or found is None or datetime.now(UTC) >= found.expires:
        return None
    sweep = store.marker.identity
    return None if revocation_problem(store, found, sweep, sweep, given_up=False) else found


def text_for_state(before: str | None, after: Sequence[PolicyText]) -> str | None:
    """The property of an entry that has `before` and is to have these policies; None if there is no policy. More than
    one stay as they are, each in its own entry."""
    if not after or after == (NONE,):
        return None
    return written(after[0]) if len(after) == 1 else before or written(after[0])
