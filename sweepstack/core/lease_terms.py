"""The lease of a rented box: how long after the last look it stops itself, and how it does that.

The profile and the stack config say it once, when the program runs. From then on it is an input in the engine's state.
"""

from typing import Annotated, Literal

from pydantic import Field

from sweepstack.core.choices import choice
from sweepstack.core.records import Record
from sweepstack.onbox.common.units import parse_duration

NONE = "none"
HELD = (
    "until something is launched on a box, its start command stops it {} after the last look, once its container runs"
)
UNHELD = (
    "until something is launched on a box, no lease holds it there: {} after it was rented, it is named with its cost"
)
UNPROVED = "unproved: no live run has shown that this key works"


def lease_seconds(text: str | None) -> float | None:
    """A lease as a person writes it, in seconds; None where there is none."""
    return None if text in (None, "", NONE) else parse_duration(text)


class LeaseFacts(Record):
    """How a box stops itself when no command looks at it for so long."""

    text: str
    """as the person wrote it"""
    seconds: float = Field(gt=0)
    """the same in seconds"""
    kills: tuple[str, ...] = ()
    """the tiers of ours that a stop wipes; such a box never stops itself"""
    by: (
        Annotated[
            Literal["ssh", "key"],
            choice(
                "StopsBy",
                "How a box stops itself.",
                {
                    "ssh": "a command on the box",
                    "key": "a request to the platform, with the key that it puts into the box",
                },
            ),
        ]
        | None
    ) = None
    """how it stops itself; absent: it has no way"""
    native: str | None = None
    """the platform's name for the stop"""
    command: str | None = None
    """the command on the box"""
    key: str | None = None
    """the variable in which the box has the platform's key"""
    proved: str | None = None
    """the month in which a live run showed that the key works; absent: none did"""

    @property
    def stays(self) -> str:
        """Why the box does not stop itself; "" when it does."""
        if self.kills:
            return f"a stop wipes {' and '.join(self.kills)}, where its journal and its logs are"
        return "" if self.by else "no command on it ends its bill"

    @property
    def how(self) -> str:
        """What the box does once the lease is over, for people."""
        if self.stays:
            return f"the box can only tell, and bills on: {self.stays}"
        if self.by == "ssh":
            return f"the box stops itself ({self.native})"
        proof = f"proved {self.proved}" if self.proved else UNPROVED
        return f"the box stops itself with the key that the platform puts into it ({self.key}; {proof})"

    @property
    def words(self) -> str:
        """The whole of it in one line."""
        return f"lease {self.text}: {self.text} after the last look, and once nothing is left to do, {self.how}"
