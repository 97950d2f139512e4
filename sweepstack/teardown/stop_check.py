"""The check before a stop. If the stop kills only what is safe elsewhere, it needs no approval.

A stop keeps some tiers and wipes others (the profile says which, the state remembers). Scratch of cells that are sealed
or dropped was declared dispensable; any other file on a tier that dies counts as existing only there. If a file would
be lost, or the runner's home and so every cell, what the check of a delete asks decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from sweepstack.core.journal import Journal
from sweepstack.core.observation import Existence, Observation
from sweepstack.core.records import Approval
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.dataclass import dataclass, replace
from sweepstack.onbox.common.errors import PlatformError
from sweepstack.onbox.common.units import count, spell_rate
from sweepstack.teardown.approval import Given
from sweepstack.teardown.box_check import BoxEnding, Verdict
from sweepstack.teardown.box_context import BoxContext, BoxFacts
from sweepstack.teardown.check import Way
from sweepstack.teardown.refusal import waiting_cost

STOP = "stop"
MOST_FILES = 20_000
"""A count stops at so many files; it is a lower bound then."""
SHOWN = 5
CELL_SCRATCH = "sweep"
"""Scratch folders of cells: `sweep/<cell>/<attempt>` on the scratch tier is what a cell was told to use
(`SWEEPSTACK_SCRATCH`)."""


@dataclass(frozen=True)
class AtRisk:
    """What a verb would kill that exists nowhere else, as far as it was looked at.

    `home`: the runner's own folder dies, and so every cell that is not verified. `unknown`: why not all could be seen,
    "" if all was. `largest`: up to five (path, bytes). `more`: the counts are lower bounds.
    """

    files: int = 0
    bytes: int = 0
    largest: tuple[tuple[str, int], ...] = ()
    more: bool = False
    home: bool = False
    unknown: str = ""

    @property
    def nothing(self) -> bool:
        """Whether it is proved that nothing is lost."""
        return not (self.files or self.home or self.unknown)

    def words(self, tiers: Iterable[str]) -> str:
        """`3 files, 1.2 MB on scratch that are nowhere else: scratch/x (1.1 MB), …`."""
        dying = " and ".join(tiers) or "nothing"
        if self.home:
            return f"the cells' own folders are on {dying}, which a stop wipes"
        if self.unknown:
            return f"what is on {dying}, which a stop wipes, can't be seen: {self.unknown}"
        least = "at least " if self.more else ""
        named = ", ".join(f"{path} ({size:,} bytes)" for path, size in self.largest[:SHOWN])
        return f"{least}{count(self.files, 'file')}, {self.bytes / 1e6:,.1f} MB, on {dying} and nowhere else: {named}"


def look_for_risk(channel: Channel, kills: Iterable[str], paths: Mapping[str, str], journal: Journal | None) -> AtRisk:
    """Reads names and sizes on the tiers that die, never content. What can't be seen counts as at risk."""
    risk = AtRisk()
    for tier in kills:
        path = paths.get(tier)
        if path is None:
            return AtRisk(unknown=f"the state does not say where {tier} lies")
        if f"{box_layout.HOME}/".startswith(f"{path}/"):
            return AtRisk(home=True)
        try:
            found = list(_files(channel, path, _dispensable(path, journal)))
        except (PlatformError, OSError) as error:
            return AtRisk(unknown=str(error))
        largest = sorted([*risk.largest, *found], key=lambda entry: (-entry[1], entry[0]))[:SHOWN]
        risk = AtRisk(
            files=risk.files + len(found),
            bytes=risk.bytes + sum(size for _, size in found),
            largest=tuple(largest),
            more=risk.more or len(found) >= MOST_FILES,
        )
    return risk


def _dispensable(tier: str, journal: Journal | None) -> frozenset[str]:
    """The scratch folders of cells that need them no more."""
    if journal is None:
        return frozenset()
    done = (name for name, progress in journal.cells.items() if progress.state in ("sealed", "dropped"))
    return frozenset(f"{tier}/{CELL_SCRATCH}/{name}" for name in done)


def _files(channel: Channel, path: str, skipped: frozenset[str]) -> Iterable[tuple[str, int]]:
    waiting, count = [path], 0
    while waiting:
        folder = waiting.pop()
        try:
            entries = channel.listdir(folder)
        except FileNotFoundError:
            continue
        for entry in entries:
            inside = f"{folder}/{entry.name}"
            if inside in skipped:
                continue
            if entry.kind == "dir":
                waiting.append(inside)
                continue
            yield inside, entry.size
            count += 1
            if count >= MOST_FILES:
                return


def stop_facts(facts: BoxFacts, kills: tuple[str, ...], keeps: tuple[str, ...]) -> BoxFacts:
    """The facts of the same box for the check of a stop."""
    return replace(facts, verb=STOP, kills=kills, keeps=keeps)


class StopEnding(BoxEnding):
    """The stop of a box with the facts of `stop_facts`. `risk`: what it would kill.

    Whether it runs has to be known, and where nothing is at risk it needs no word. Else it is asked as an end is.
    """

    def __init__(
        self, box: BoxContext, approval: Approval | None, seen: Observation, risk: AtRisk, given: Given = "before"
    ) -> None:
        super().__init__(box, approval, seen, given)
        self.risk = risk

    def look(self, *, full: bool) -> None:
        """Reads no records where they decide nothing."""
        if not (self.account_problem or self.unknown() or self._free):
            super().look(full=full)

    def unknown(self) -> str:
        """Whether it runs."""
        return f"whether it runs is not known: {self.seen.note}" if self.existence is Existence.UNKNOWN else ""

    def way_without_word(self) -> Way | None:
        """Nothing at risk is the first of them."""
        return "nothing-at-risk" if self._free else super().way_without_word()

    def beside(self) -> list[str]:
        """What would die, last."""
        asked = not (self.account_problem or self.unknown() or self.verdict.allowed)
        return [*super().beside(), *([self.risk.words(self.facts.kills)] if asked else [])]

    @property
    def _free(self) -> bool:
        return self.existence is Existence.EXISTS and self.risk.nothing


def stop_line(facts: BoxFacts, bills_after: Iterable[str], price_after: float | None) -> str:
    """`stops: kills scratch; keeps data, durable; then $0.03/h (disk)`: what a preview declares."""
    after = "at a price that is not known" if price_after is None else f"${spell_rate(price_after)}/h"
    what = ", ".join(bills_after)
    keeps = ", ".join(facts.keeps) or "nothing"
    return f"a stop kills {', '.join(facts.kills) or 'nothing'}, keeps {keeps}; then it bills {after}" + (
        f" ({what})" if what else ""
    )


def stop_refusal(facts: BoxFacts, verdict: Verdict, risk: AtRisk, *, stack: str, now: datetime | None = None) -> str:
    """The text when a stop is refused. First line: nothing was stopped."""
    of_it = f"--stack {stack} --verb {STOP}"
    why = [reason for reason in verdict.reasons if reason != risk.words(facts.kills)]  # said on a line of its own
    rows = [
        ("locked because", "; ".join(why) or "not approved"),
        ("would die", risk.words(facts.kills)),
        ("would survive", f"{', '.join(facts.keeps) or 'nothing of the box'}; the evidence at {facts.evidence}"),
        ("waiting costs", waiting_cost(facts, now=now)),
        ("next", f"sweepctl wait --stack {stack} done    (what sealed cells left on scratch may go)"),
        ("let it go", f'sweepctl give-up {of_it} data/{facts.name} --reason "…" && pulumi up --stack {stack}'),
    ]
    if verdict.cells and not verdict.unsettled:
        rows[4] = ("next", f"sweepctl approve {of_it} --box {facts.name} && pulumi up --stack {stack}")
    rows.append(("undo", f"boxes.{facts.name}.want: running"))
    width = max(len(label) for label, _ in rows)
    body = [f"{label:<{width}}  {text}" for label, text in rows]
    return "\n".join([f"REFUSED.\nNothing was stopped, nothing was deleted. Box {facts.name} runs on.", "", *body])
