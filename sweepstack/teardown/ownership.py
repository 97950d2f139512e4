"""Says on the box itself who owns it: for accounts that people share, and for states that were lost.

`pulumi up` writes it into the box's own folder when it makes the box and when it gives it cells. A box counts as held
for `HELD` after that, after each round of `sweepctl tend` and each `sweepctl pull`, and after each entry of its
journal. While it is held, only its owner, or a person to whom the owner has agreed, ends it without its state.
"""

from __future__ import annotations

import contextlib
import getpass
import socket
from datetime import UTC, datetime, timedelta

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from sweepstack.core import this_host
from sweepstack.core.journal import Journal
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import canonical_json
from sweepstack.onbox.common.errors import PlatformError

HELD = timedelta(hours=24)
"""For so long a box counts as held after the last sign of its owner, or of its own work."""
RENEWED_EVERY = timedelta(hours=1)
"""A look that comes sooner than this after the last one does not write the file again."""
MOST = 65536
"""Bytes of the file that are read."""


class Owner(BaseModel):
    """What a box says of its owner. `person`: `user@host` of the last `pulumi up`. `backend`: its URL without
    credentials.

    Keys of a newer version are accepted; "" stands for what is not known.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True, populate_by_name=True)

    schema_: int = Field(alias="schema", default=1)
    person: str
    identity: str
    native_id: str
    box: str = ""
    generation: int = 0
    project: str = ""
    stack: str = ""
    backend: str = ""
    evidence: str = ""
    held_until: AwareDatetime

    def held_at(self, now: datetime, journal: Journal | None = None) -> datetime | None:
        """Until when it is held; None if that time is over. The last entry of the box's journal counts, too."""
        last = journal.last_at if journal is not None else None
        until = self.held_until if last is None else max(self.held_until, last + HELD)
        return until if until > now else None

    @property
    def sweep(self) -> str:
        """Its project and stack, for people."""
        return f"{self.project or 'unknown project'}/{self.stack or 'unknown stack'}"


def who() -> str:
    """The person at this keyboard, as it is written into approvals, decisions and boxes: `user@host`."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "unknown"
    return f"{name}@{socket.gethostname()}"


def former_names() -> tuple[str, ...]:
    """The same person under this computer's earlier names (`sweepctl adopt --renamed-from`)."""
    name = who().partition("@")[0]
    return tuple(f"{name}@{host}" for host in this_host.names()[1:])


def sign(channel: Channel, owner: Owner) -> None:
    """Writes the owner on the box. Idempotent. Raises PlatformError, OSError."""
    channel.write(box_layout.OWNER, canonical_json(owner.model_dump(mode="json", by_alias=True)) + b"\n")


def read_owner(channel: Channel) -> Owner | None:
    """What the box says; None if it says nothing, nothing that can be read, or names another box.

    Raises PlatformError, OSError when it can't be asked.
    """
    try:
        owner = Owner.model_validate_json(channel.read(box_layout.OWNER, limit=MOST))
    except (FileNotFoundError, ValidationError):
        return None
    return owner if owner.native_id == channel.native_id else None


def renew(channel: Channel, now: datetime | None = None) -> None:
    """Extends the time for which the box is held to `HELD` from now, for the same owner. Never raises: a look goes on
    without it."""
    now = now or datetime.now(UTC)
    with contextlib.suppress(PlatformError, OSError):
        owner = read_owner(channel)
        if owner is not None and owner.held_until < now + HELD - RENEWED_EVERY:
            sign(channel, owner.model_copy(update={"held_until": now + HELD}))
