"""How a box ends, and how it stops: the verb, what it does to each tier, and who issues it.

The profile says it once, when the program runs. From then on it is an input of the box in the engine's state, so that
neither a stop nor a delete opens a profile.
"""

from typing import Any, Literal

from pydantic import Field

from sweepstack.core.records import Record

Moves = Literal["never", "create", "start"]
"""When the address of a host becomes another one: never, or with each create or start; None is unknown."""
STAYS = ("never", "create")
"""Those with which a box keeps its address for its life. One that is unknown counts as moving."""


class ClockFact(Record):
    """`what` happens to a stopped box after so many `days` (None: unknown), and the tiers that it kills.

    `first_stop`: it counts from the box's first stop, whatever ran in between; without it a start takes it back.
    `unused`: it strikes files that were not used for so long, on a box that runs, too. `contract`: it counts from the
    end of the host's contract, which the platform says of each box; no stop starts it.
    """

    what: str
    days: float | None = Field(default=None, gt=0)
    kills: tuple[str, ...] = ()
    first_stop: bool | None = None
    unused: bool | None = None
    contract: bool | None = None


class IssueFacts(Record):
    """How a verb is issued that goes over no API: a `command` on the box, or a step that only a person can take.

    `native` is the platform's name for the verb. An approval of one verb does not allow another.
    """

    by: Literal["ssh", "person"]
    native: str
    command: str | None = None
    manual: str | None = None


class StopFacts(Record):
    """What stopping the box does to each tier, what goes on billing, and its price: USD per hour, None unknown."""

    kills: tuple[str, ...]
    keeps: tuple[str, ...]
    bills_after: tuple[str, ...] = ()
    price_per_hour: float | None = None
    issue: IssueFacts | None = None


class TeardownFacts(Record):
    """How a box ends on its platform, and what that does to each tier. `paths`: tier → where it lies on the box.

    `stop` is None where the platform can't stop a box for us. `clocks`: what the platform does to a stopped one;
    `keeps_per_gb_month`: USD, of the tiers that survive and cost something. `issue` (None: the adapter does it over an
    API): what a delete issues. That may be a verb that keeps more than `kills` says: `kills` is what dies once the
    platform has taken the box away, by that verb or by a clock that it starts. `release`: where it keeps more, the
    person's step that ends what it leaves billing. `moves`: whether a box that was stopped and started is elsewhere.
    """

    verb: Literal["destroy"]
    kills: tuple[str, ...]
    keeps: tuple[str, ...]
    paths: dict[str, str] = Field(default={})
    stop: StopFacts | None = None
    clocks: tuple[ClockFact, ...] = ()
    keeps_per_gb_month: dict[str, float] = Field(default={})
    issue: IssueFacts | None = None
    release: str = ""
    moves: Moves | None = None

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
