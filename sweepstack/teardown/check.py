"""The one check that may end a box or a volume, or stop a box: one order of reasons for all of them.

Every path that ends one, or wipes a tier of it, asks `may_end`: the provider's deletes, the provider's previews,
`sweepctl status`, `approve` and `audit`. It reads the evidence and what the platform said; it trusts no flag in the
engine's state. What is to end is an `Ending`, which says what is true of it alone:

    box_check.BoxEnding                        a box that a state has
    stop_check.StopEnding                      the same, which is only to stop
    orphan_check.OrphanEnding                  a box that no state has
    operations.volumes.end_check.VolumeEnding  a volume that outlives sweeps
    operations.strays.judge.StrayVolumeEnding  a volume that no state has

It may end in one of these ways, and all need the right account:

    nothing-at-risk   of a stop: it kills nothing that is nowhere else
    gone              the platform proves that the native id no longer exists
    emptied           its host proves that nothing of it is left there: only the host's bill has to end
    abandoned         a person said, by name and with a reason, that what is on it may be lost
    nothing-launched  all records, and the box itself, say that nothing was ever launched on it
    cleared           an approval names this verb and native id, and what is on it is proved safe elsewhere
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Generic, Literal, TypeVar

from sweepstack.core.observation import Existence
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.teardown.approval import Judged

Way = Literal["cleared", "gone", "emptied", "nothing-launched", "abandoned", "nothing-at-risk"]
HEADLINES: dict[Way, str] = {
    "abandoned": "abandoned, what is on it may be lost",
    "nothing-launched": "nothing was ever launched on it",
    "nothing-at-risk": "it kills nothing that is nowhere else",
    "emptied": "nothing of it is left on its host, which bills on",
    "gone": "gone from the platform",
}


@dataclass
class EndVerdict:
    """Whether it may end. If not, `reasons` say why. `unsigned`: whose signatures the policy asks for, and the approval
    does not have yet; not allowed then, unless the approval is given just now."""

    allowed: bool = False
    way: Way | None = None
    reasons: list[str] = field(default_factory=list)
    unsigned: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """The verdict in fixed words, for a diff: they change when the verdict changes, not while cells make
        progress."""
        if not self.allowed or self.way is None:
            return f"locked ({self.reasons[0]})" if self.reasons else "locked"
        return self.cleared if self.way == "cleared" else f"cleared: {HEADLINES[self.way]}"

    @property
    def cleared(self) -> str:
        """The headline where an approval, and what is on record, let it go."""
        return "cleared"


V = TypeVar("V", bound=EndVerdict)


class Ending(Generic[V]):
    """What is to end, as it was seen just now, and what `may_end` asks of it, in the order of these methods. Each reads
    files at most, and raises nothing for damaged or absent evidence: that is a reason to refuse."""

    all_at_once = False
    """Whether a refusal also tells what would be asked next; else the first that keeps it is told alone."""

    def __init__(self, verdict: V, existence: Existence, account_problem: str) -> None:
        self.verdict, self.existence, self.account_problem = verdict, existence, account_problem

    def look(self, *, full: bool) -> None:
        """Reads the records, and fills the verdict with what is shown in any case."""

    def unknown(self) -> str:
        """Why whether it is there has to be known, and is not; "" where a person may give it up all the same."""
        return ""

    def way_without_word(self) -> Way | None:
        """The way in which it may end whatever is on record; None where it needs a person's word."""
        return "gone" if self.existence is Existence.GONE else None

    def held(self, now: datetime) -> list[str]:
        """What keeps it whatever a person says: who holds or uses it."""
        return []

    def judged(self, now: datetime) -> Judged:
        """The person's word: whether it counts by form, signatures, expiry, revocation and policy, and whether it gives
        up what is on it."""
        raise NotImplementedError

    def content(self, *, full: bool) -> tuple[Way | None, list[str]]:
        """Whether what is on it is proved safe elsewhere. The way in which it may end, None if it may not; and why."""
        raise NotImplementedError

    def beside(self) -> list[str]:
        """What stands behind the reasons of any verdict: what could not be read."""
        return []


def may_end(ending: Ending[V], *, full: bool, now: datetime | None = None) -> V:
    """Decides whether this may end, and why not.

    `full` re-hashes every file of a receipt (used when clearing and deleting); otherwise size and mtime are compared.
    Never raises for damaged or absent evidence: that is a reason to refuse. Reads files; costs no money.
    """
    verdict = ending.verdict
    ending.look(full=full)
    verdict.way, reasons = _way(ending, full, now or datetime.now(UTC))
    verdict.allowed = verdict.way is not None
    verdict.reasons = [*reasons, *ending.beside()]
    return verdict


def _way(ending: Ending[V], full: bool, now: datetime) -> tuple[Way | None, list[str]]:
    """The one order: account, existence, what needs no word, who holds it, the word, what was given up, what is on it.
    What is not known, or not answered, refuses."""
    if reason := ending.account_problem or ending.unknown():
        return None, [reason]
    if way := ending.way_without_word():
        return way, []
    held = ending.held(now)
    if held and not ending.all_at_once:
        return None, held
    judged = ending.judged(now)
    ending.verdict.unsigned = judged.unsigned
    against = [*judged.problems, *held]
    if judged.given_up and not against:
        return "abandoned", []
    if against and not ending.all_at_once:
        return None, against
    way, found = ending.content(full=full)
    against += found
    return (None, against) if against else (way, [])
