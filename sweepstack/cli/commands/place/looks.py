"""One look at the markets of all candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweepstack.cli.commands.place.choice import Choice, choose
from sweepstack.cli.commands.place.market import Market, ask_market, to_place
from sweepstack.cli.output import Unsure
from sweepstack.cli.sources import open_sources
from sweepstack.cli.target import Target
from sweepstack.config.extras import refuse_missing
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.records import Birth
from sweepstack.evidence.store import EvidenceStore
from sweepstack.profiles.fleet import parts_of


@dataclass(frozen=True)
class Records:
    """The evidence, and what was ever rented by it."""

    store: EvidenceStore | None
    births: Sequence[Birth]

    @property
    def rented(self) -> dict[str, Birth]:
        """The boxes that are there: they stay where they are."""
        return {birth.box: birth for birth in self.births if birth.native_id is not None and birth.ended_at is None}


@dataclass(frozen=True)
class Look:
    """The stack config, what was rented, what each candidate has now, and the choice among it."""

    config: StackConfig
    rented: Mapping[str, Birth]
    markets: Sequence[Market]
    choice: Choice | None

    @property
    def boxes(self) -> list[str]:
        """Those that are to be rented. Where there is none, nothing is to be placed, and no candidate was asked."""
        return to_place(self.config, self.rented)

    @property
    def complete(self) -> bool:
        """Whether each box that is to be rented has an offer."""
        return self.choice is not None and not self.choice.lacking


def read_records(target: Target) -> Records:
    """What was rented so far. Raises when the evidence can't be opened."""
    try:
        store = open_sources(target).store
    except Unsure:  # the backend has no such stack yet: nothing was ever brought up
        store = None
    return Records(store, store.births() if store is not None else [])


def look_once(target: Target, rented: Mapping[str, Birth], *, next_one: bool) -> Look:
    """Reads the stack file and asks every candidate. Reads only. Raises ConfigError."""
    config = StackConfig.load(target.root, target.stack)
    refuse_missing(config)
    parts = parts_of(config)
    if not to_place(config, rented):
        return Look(config, rented, [], None)
    if len(parts) == 1:
        markets = [ask_market(config, name, rented) for name in config.candidates]
        return Look(config, rented, markets, choose(config, markets, next_one=next_one))
    every: list[Market] = []
    choice: Choice | None = None
    for part in parts:
        there = {box: birth for box, birth in rented.items() if box in part.boxes}
        markets = [ask_market(part, name, there) for name in part.candidates]
        every += markets
        found = choose(part, markets, next_one=next_one, beside=choice)
        if found is None:
            found = Choice(part.candidates[0], {}, tuple(to_place(part, there)))
        choice = found if choice is None else choice.beside(found)
    return Look(config, rented, every, choice)
