"""What every platform's adapter must offer: the few verbs of renting, with honest answers.

Every adapter is a `Platform`; what only some can do stands in `capabilities`.

An adapter turns one API into these words and nothing else; it never opens a profile and never decides whether a box
may end. Three rules hold for all of them, and `tests/conformance` runs them against each:

- *gone* is said only when it is proved; whatever is not known is `Phase.UNKNOWN` or `Unreachable`;
- a create that was cut off leaves nothing, or a box that `find_by_tag` finds;
- a box of another account is never touched: `WrongAccount`, which names both.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from sweepstack.onbox.common.errors import PlatformError
from sweepstack.onbox.host.offers import Constraints
from sweepstack.onbox.host.str_enum import StrEnum

if TYPE_CHECKING:
    from sweepstack.onbox.agent.channel import Channel, SshEndpoint

POLL_SECONDS = 0.1
PROGRESS_SECONDS = 5.0


class Phase(StrEnum):
    """Where a box is in its life. Only `GONE` means that nothing of it is left and nothing bills."""

    CREATING = "creating"
    RUNNING = "running"
    STOPPING = "stopping"  # a stop has begun and is not proved finished: it may bill as if it ran
    STOPPED = "stopped"
    ENDING = "ending"  # a destroy has begun and is not proved finished: the box still exists
    GONE = "gone"
    UNKNOWN = "unknown"

    @property
    def at_rest(self) -> bool:
        """Whether it is stopped, or on its way there: nothing on it is started, or runs on."""
        return self in (Phase.STOPPED, Phase.STOPPING)


RENTED_ON = "nothing of it is left on its host, which bills on until it is ended where it was rented"
"""The note of a box, in phase `ENDING`, whose rented host has nothing of it any more."""


def _unrecorded(_asked: bool) -> None:
    """No record is kept of what is asked for."""


@dataclass(frozen=True)
class BoxRequest:
    """What to rent. `tag` is deterministic; `mounts`: box-relative path (`mnt/<name>`) → volume's native id.

    `price_per_hour` in USD, where the platform has no price of its own; `resources` as in the stack config.
    `max_price`: USD per hour of the whole box with its disk; nothing above it is rented, whatever an offer said before.
    `offer`: the key that a person chose (`sweepctl place`), tried before all others. `bid`: USD per hour of the whole
    spot box. `env` and `image` are the container's, where there is one; `public_key` is let in by its sshd. `rented`:
    it lies on a machine whose bill goes on when the box is gone from it.
    `places`: tiers that have a place of their own on a host, those that a box shows by their path; what each must be.
    `known`: the native id of the box that is on record under this tag, "" for none: of several it is the one that is
    adopted. `asked`: called with True before each request that may make a box whose answer may be lost, and with False
    once it is proved that it made none; what it raises ends the create before that request.
    """

    tag: str
    name: str
    price_per_hour: float | None = None
    mounts: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, Any] = field(default_factory=dict)
    max_price: float | None = None
    offer: str = ""
    bid: float | None = None
    image: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    public_key: str = ""
    rented: bool = False
    places: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    known: str = ""
    asked: Callable[[bool], None] = _unrecorded

    @property
    def constraints(self) -> Constraints:
        """What the box must have, as the platform's market is asked for it."""
        volume = next(iter(self.mounts.values()), "")
        return Constraints.of(self.resources, max_price=self.max_price, volume=volume)


@dataclass(frozen=True)
class BoxRecord:
    """What a platform says about one box. `location` and `note` are for people; `note` says why a phase is unknown.

    `price_per_hour` is that of a running box, also while it is stopped; `stopped_per_hour` what it costs as long as it
    is stopped, None where the platform does not say: then it is the profile's to say.

    `created_at` is aware, UTC; None together with an empty `tag` where the platform can't tell any more. `endpoint`:
    where its sshd listens now, None where it has none (yet). `gpu_count`: the cards that it has at this moment, None
    where the platform does not say; 0 where some were asked for is a box that must run nothing. `region` and `offer`
    say what was rented. `host_keys`: fingerprints of what its sshd has to show, where that is a host's of the user's.
    `mounts`: path on the box → id of a place of that host which outlives it, where it has one.
    """

    native_id: str
    tag: str
    account: str
    phase: Phase
    price_per_hour: float | None
    created_at: datetime | None
    location: str
    note: str = ""
    endpoint: SshEndpoint | None = None
    gpu_count: int | None = None
    region: str = ""
    offer: str = ""
    host_keys: tuple[str, ...] = ()
    mounts: Mapping[str, str] = field(default_factory=dict)
    stopped_per_hour: float | None = None

    @property
    def emptied(self) -> bool:
        """Whether nothing of it is left on its host, which is rented, answers, and bills on."""
        return self.note == RENTED_ON

    def outputs(self) -> dict[str, Any]:
        """The record as plain JSON values, as the engine's state keeps it (`location` and `note` are not kept)."""
        return {
            "native_id": self.native_id,
            "tag": self.tag,
            "account": self.account,
            "phase": str(self.phase),
            "price_per_hour": self.price_per_hour,
            "created_at": self.created_at.isoformat().replace("+00:00", "Z") if self.created_at else None,
        }


@dataclass(frozen=True)
class VolumeRecord:
    """A durable volume. `created`: made by this very call. `location` is for people: host and path, or region.

    `region`: where a box must be to mount it; "" where anywhere will do. `price_per_month`: USD, None unknown.
    `mounted_by`: native ids of the boxes that mount it now; None where the platform does not say. `lost`: why what was
    on it can't be read any more, "" where it can: it can be ended, and nothing mounts it.
    """

    native_id: str
    tag: str
    name: str
    location: str
    created: bool = False
    region: str = ""
    size_gb: int | None = None
    price_per_month: float | None = None
    account: str = ""
    mounted_by: tuple[str, ...] | None = None
    lost: str = ""


def _silent(_line: str) -> None:
    """Progress that nobody reads."""


def not_as_asked(box: str, tag: str, has: str, wanted: str) -> PlatformError:
    """Why a box that carries the tag is not adopted: it was made for other mounts. It is not ended, and bills."""
    return PlatformError(
        f"{box} carries the tag {tag} and mounts {has or 'no volume'}, and now {wanted or 'none'} is asked for: it is "
        "not adopted, no second box is made, and it goes on billing. Next: write `mounts` as it was, then pulumi up, "
        "which adopts it, and end it there"
    )


@dataclass(frozen=True)
class Wait:
    """How long a verb may block (`deadline`, seconds from when it starts waiting), who hears of it, and who may cut it.

    `cancelled` is set by whoever got the SIGINT or the engine's Cancel; a verb looks at it several times a second.
    """

    deadline: float = 600.0
    progress: Callable[[str], None] = _silent
    cancelled: threading.Event = field(default_factory=threading.Event)

    def until(self, ready: Callable[[], bool], what: str) -> str:
        """Blocks until `ready()`; returns "" then, else why waiting ended ("cancelled …", "not within 600 s …").

        Says `what` through `progress` every 5 s. Exceptions of `ready` pass through.
        """
        begin = time.monotonic()
        said = begin
        while True:
            if ready():
                return ""
            now = time.monotonic()
            if self.cancelled.is_set():
                return f"cancelled while waiting for {what}"
            if now - begin >= self.deadline:
                return f"not within {self.deadline:g} s: still waiting for {what}"
            if now - said >= PROGRESS_SECONDS:
                said = now
                self.progress(f"waiting for {what}: {now - begin:.0f} s of at most {self.deadline:g} s")
            self.cancelled.wait(min(POLL_SECONDS, max(0.0, begin + self.deadline - now)))


class Platform(Protocol):
    """One platform as one account sees it. Instances are cheap, hold no connection open, and may be used by threads.

    Every method may raise `Unreachable`; those that name an `account` raise `WrongAccount` before anything else
    when it is not the one at hand. None of them prints.
    """

    name: str
    over_ssh: bool = False
    """Its boxes are reached over SSH: a create lets a public key in."""
    lacks: ClassVar[Mapping[type, str]] = {}
    """A type of `capabilities` that it is not → why, for the refusal, where there is more to say than `registry.need`
    does. `{native_id}` and `{region}` are a volume's."""

    def account(self) -> str:
        """The account at hand, as it is compared and shown. May make the account's local book-keeping on its very
        first use, so it is for creates, not for previews. Free."""
        ...

    def find_by_tag(self, tag: str, account: str = "") -> BoxRecord | None:
        """The box with this tag, in whatever phase; None only when it is proved that there is none. Reads only.

        `account`: whose box it is to be, where that is known: another account's silence proves nothing."""
        ...

    def create(self, request: BoxRequest, *, wait: Wait) -> BoxRecord:
        """Rents a box and blocks until it is ready. Costs money. Atomic and idempotent by tag: a box that carries the
        tag already is adopted, never doubled; a stopped one as it is, since starting it is another decision.

        Raises StillCreating (it exists and bills; id, outputs and reasons travel along) on deadline, cancel or a late
        failure; OutcomeUnknown when the answer was lost: `find_by_tag` before anything else; NotYetGone when the tag's
        box is being destroyed; PlatformError when nothing was made.
        """
        ...

    def get(self, native_id: str, account: str) -> BoxRecord:
        """What is known of a box now. `GONE` only when proved; `UNKNOWN` with a `note` when it is there, or may be, and
        can't be read. Reads only."""
        ...

    def destroy(self, native_id: str, account: str) -> None:
        """Issues the verb that ends the box and its bill. Irreversible; idempotent; already gone is success. Blocks for
        seconds; call it again after a crash. Volumes survive.

        Raises NotYetGone with the reason when it is not proved finished: poll `get` until `GONE`, or call again.
        """
        ...

    def list_tagged(self, prefix: str) -> list[BoxRecord]:
        """Every box whose tag begins with `prefix`, and every box whose tag can't be read (tag ""). Reads only."""
        ...

    def channel(self, native_id: str, account: str) -> Channel:
        """A way to read, write and run on the box. Raises Unreachable when the box can't be reached or is gone. Nothing
        runs on one that is stopped or being destroyed: PlatformError; what of its files still answers can be read.
        """
        ...
