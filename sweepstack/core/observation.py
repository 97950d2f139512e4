"""What was seen of a box just now: platform, journal, files. Unknown is never gone."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from sweepstack.onbox.common.dataclass import dataclass

if TYPE_CHECKING:
    from datetime import datetime

    from sweepstack.core.journal import Journal
    from sweepstack.onbox.agent.channel import Listing


class Existence(StrEnum):
    """What the platform says about a native id. Unknown is never gone."""

    EXISTS = "exists"
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Observation:
    """What was seen just now: the platform's answer, the box's journal, and whether its runner is alive.

    `journal` is None when it could not be read; an empty journal says that nothing ever ran. `note` says what was in
    the way of knowing. `account_problem` is set when the account at hand is not the box's. `stopped`: the box rests, so
    that no runner can be alive. `listing`: the files on its own tiers, None where they were not listed. `skew`: seconds
    that the box's clock is ahead of ours. `stopped_per_hour`: USD that it costs while it rests, by the platform.
    `evidence_on`: the part of the box that the evidence itself lies on, and which folder of it; None where it is not.
    `started_at`: when the platform last started a box that is stopped now; None where it does not tell. `kept_at`:
    journal and files are those of a look at that time, before sweepstack stopped the box (`teardown.box_check`).
    `folder_lost`: its host answers, and what it kept the box in is not there.
    `emptied`: its rented host answers, bills, and proves that nothing of the box is left there. `workers`: what a
    scheduler says of each of its workers (`Scheduled.workers`), where that was asked.
    """

    existence: Existence
    journal: Journal | None = None
    runner_alive: bool | None = None
    account_problem: str = ""
    note: str = ""
    stopped: bool = False
    listing: Listing | None = None
    skew: float = 0.0
    stopped_per_hour: float | None = None
    evidence_on: tuple[str, str] | None = None
    emptied: bool = False
    folder_lost: bool = False
    workers: tuple[Mapping[str, Any], ...] = ()
    started_at: datetime | None = None
    kept_at: datetime | None = None

    @property
    def lost(self) -> bool:
        """Whether nothing of the box is left to read, by proof."""
        return self.emptied or self.existence is Existence.GONE
