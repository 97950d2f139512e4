"""How a box ends, and how it stops: the verb, what it does to each tier, and who issues it.

The profile says it once, when the program runs. From then on it is an input of the box in the engine's state, so that
neither a stop nor a delete opens a profile.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from sweepstack.core.choices import choice
from sweepstack.core.records import Record

Moves = Annotated[
    Literal["never", "create", "start"],
    choice(
        "Moves",
        "When the address of a host becomes another one.",
        {"never": "it stays", "create": "with each box that is made", "start": "with each start of a box"},
    ),
]
"""When the address of a host becomes another one: never, or with each create or start; None is unknown."""
STAYS = ("never", "create")
"""Those with which a box keeps its address for its life. One that is unknown counts as moving."""


class ClockFact(Record):
    """What a platform does by itself to a stopped box."""

    what: str
    """what happens"""
    days: float | None = Field(default=None, gt=0)
    """after how many days; absent: unknown"""
    kills: tuple[str, ...] = ()
    """the tiers that it kills"""
    first_stop: bool | None = None
    """true: it counts from the box's first stop, whatever ran in between; else a start takes it back"""
    unused: bool | None = None
    """true: it strikes files that were not used for so long, on a box that runs, too"""
    contract: bool | None = None
    """true: it counts from the end of the host's contract, which the platform says of each box; no stop starts it"""


class IssueFacts(Record):
    """How a verb is issued that goes over no API. An approval of one verb does not allow another."""

    by: Annotated[
        Literal["ssh", "person"],
        choice(
            "IssuedBy",
            "Who issues a verb that goes over no API.",
            {"ssh": "a command on the box", "person": "a step that only a person can take"},
        ),
    ]
    """who issues it"""
    native: str
    """the platform's name for the verb"""
    command: str | None = None
    """the command on the box"""
    manual: str | None = None
    """the person's step"""


class StopFacts(Record):
    """What stopping the box does to each tier."""

    kills: tuple[str, ...]
    """the tiers that a stop kills"""
    keeps: tuple[str, ...]
    """the tiers that survive a stop"""
    bills_after: tuple[str, ...] = ()
    """what goes on billing"""
    price_per_hour: float | None = None
    """its price while stopped, in USD per hour; absent: unknown"""
    issue: IssueFacts | None = None
    """how a stop is issued; absent: over the platform's API"""


class TeardownFacts(Record):
    """How a box ends on its platform, and what that does to each tier."""

    verb: Annotated[
        Literal["destroy"],
        choice("Verb", "What ends a box.", {"destroy": "nothing of it is left, and nothing bills"}),
    ]
    """what an approval of its end is asked for"""
    kills: tuple[str, ...]
    """the tiers that die once the platform has taken the box away, by what a delete issues or by a clock that it
    starts"""
    keeps: tuple[str, ...]
    """the tiers that survive"""
    paths: dict[str, str] = Field(default={})
    """tier → where it lies on the box"""
    stop: StopFacts | None = None
    """what a stop does; absent where the platform can't stop a box for us"""
    clocks: tuple[ClockFact, ...] = ()
    """what the platform does by itself to a stopped box"""
    keeps_per_gb_month: dict[str, float] = Field(default={})
    """tier that survives and costs something → USD"""
    issue: IssueFacts | None = None
    """what a delete issues, which may keep more than what dies in the end; absent: the adapter does it over an API"""
    release: str = ""
    """where a delete keeps more: the person's step that ends what it leaves billing"""
    moves: Moves | None = None
    """whether a box that was stopped and started is elsewhere; absent: unknown"""

    @property
    def rented(self) -> bool:
        """Whether no API ends the bill: the box is on a rented host."""
        return self.issue is not None

    def as_inputs(self) -> dict[str, Any]:
        """As the `teardown` input of a box. What is empty is left out, but for the lists that states always had:
        another form of the same facts would be an update of every box."""
        inputs = {"paths": {}} | self.model_dump(mode="json", exclude_defaults=True)
        if "stop" in inputs:
            inputs["stop"] = {"bills_after": []} | inputs["stop"]
        if "clocks" in inputs:
            inputs["clocks"] = [{"kills": []} | clock for clock in inputs["clocks"]]
        return inputs
