"""The interface of all platforms: rent, find and destroy boxes, and reach them.

Every adapter is a `Platform`; `capabilities` has what only some platforms can do.

An adapter only translates between one API and these types. It never opens a profile and never decides whether a box
may end. Three rules hold for all adapters, and `tests/conformance` checks each adapter:

- an adapter says *gone* only when it is proved; what is not known is `Phase.UNKNOWN` or `Unreachable`;
- a create that was interrupted leaves nothing, or a box that `find_by_tag` finds;
- an adapter never touches another account's box: it raises `WrongAccount`, which names both accounts.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import PlatformError
from sweepstack.onbox.host.offers import Constraints

if TYPE_CHECKING:
    from sweepstack.onbox.agent.channel import Channel, SshEndpoint


class StrEnum(str, enum.Enum):
    """A member equals its value, and is formatted and written to JSON as its value. Python 3.8 has none of its own."""

    def __str__(self) -> str:
        return str(self.value)


POLL_SECONDS = 0.1
PROGRESS_SECONDS = 5.0


class Phase(StrEnum):
    """The state of a box. Only `GONE` means that nothing of it is left and nothing bills."""

    CREATING = "creating"
    RUNNING = "running"
    STOPPING = "stopping"  # a stop has begun and is not proved finished: it may bill as if it ran
    STOPPED = "stopped"
    FAILED = "failed"  # it broke, and no start mends it: nothing runs there, it can only be ended, and may bill in full
    ENDING = "ending"  # a destroy has begun and is not proved finished: the box still exists
    GONE = "gone"
    UNKNOWN = "unknown"

    @property
    def at_rest(self) -> bool:
        """Whether it is stopped or stopping: nothing may be started on it."""
        return self in (Phase.STOPPED, Phase.STOPPING)


class Told(StrEnum):
    """What a platform tells of a box beside its phase, as far as programs act on it. `BoxRecord.note` has the words."""

    PREEMPTED = "preempted"  # its place was given to another customer, or is asked for at a higher price
    TAKEN_OR_STOPPED = "taken-or-stopped"  # a spot box that stands still: which of the two it was, it does not tell
    FROZEN = "frozen"  # nothing on it moves, and it may bill in full


RENTED_ON = "nothing of it is left on its host, which bills on until it is ended where it was rented"
"""The note of a box in phase `ENDING` whose folder is gone, while its rented host still bills."""


def _unrecorded(_asked: bool) -> None:
    """The default of `BoxRequest.asked`: keeps no record of the requests."""


@dataclass(frozen=True)
class BoxRequest:
    """What to rent. `tag` is deterministic; `mounts`: box-relative path (`mnt/<name>`) → volume's native id.

    `price_per_hour`: USD, for platforms without a price of their own. `resources`: as in the stack config.
    `max_price`: USD per hour of the whole box with its disk; nothing above it is rented, even if an offer was cheaper.
    `offer`: the key that a person chose (`sweepctl place`), tried before all others. `bid`: USD per hour of the whole
    spot box. `env` and `image`: the container's, if there is one. `public_key`: its sshd accepts this key. `rented`:
    the box is on a machine that goes on billing when the box is gone.
    `pods`: what the pods are like that read it, where it is a cluster's. `places`: tiers that are places of a host →
    what each place must be; a tier that the box shows is named by its path (`mnt/…`), see `preflight.claim`.
    `reach`: False where its queue, which is brought up next, waits until it can be used (`BeginsWithQueue`).
    `known`: the native id on record for this tag, "" for none: of several boxes this one is adopted. `lease_seconds`:
    how long after the last look the box stops itself while nothing was launched on it, where its platform
    `CanStopItself`; None: never. `asked`: called with True before each request that may make a box, and with False once
    it is proved that it made none; an exception from it
    ends the create before that request is sent.
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
    pods: Mapping[str, Any] = field(default_factory=dict)
    rented: bool = False
    places: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    known: str = ""
    lease_seconds: float | None = None
    reach: bool = True
    asked: Callable[[bool], None] = _unrecorded

    @property
    def constraints(self) -> Constraints:
        """The request as constraints for the platform's market."""
        volume = next(iter(self.mounts.values()), "")
        return Constraints.of(self.resources, max_price=self.max_price, volume=volume, bid=self.bid, image=self.image)


@dataclass(frozen=True)
class BoxRecord:
    """What a platform says about one box. `location` and `note` are for people; `note` says why a phase is unknown, and
    what `told` means.

    `price_per_hour`: USD per hour while it runs, also given for a stopped box. `stopped_per_hour`: USD per hour while
    it is stopped; None when the platform does not say: then the profile says it.

    `created_at`: with a time zone (UTC); None, with an empty `tag`, when the platform can't tell any more. `endpoint`:
    where its sshd listens now; None when it has none (yet). `gpu_count`: the GPUs that it has now, None when the
    platform does not say; a box with 0 that should have some must run nothing. `region`, `offer`: what was rented.
    `image`: the container image that it has now, "" where there is none or the platform does not say.
    `host_keys`: the fingerprints that the sshd of a user's own host must show. `mounts`: path on the box → id of the
    host's place that outlives the box. `started_at`: when the platform started it last, with a time zone, also of one
    that is stopped now; None where it does not tell. `egress_per_gb`: USD per GB that leaves it, which only a create
    may tell; two records of one box are equal whether they say it or not. `ends_at`: when the contract with its host
    ends; None where there is no such end.
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
    image: str = ""
    host_keys: tuple[str, ...] = ()
    mounts: Mapping[str, str] = field(default_factory=dict)
    stopped_per_hour: float | None = None
    started_at: datetime | None = None
    egress_per_gb: float | None = field(default=None, compare=False)
    told: Told | None = None
    ends_at: datetime | None = None

    @property
    def emptied(self) -> bool:
        """Whether its folder is gone from its rented host, which answers and still bills."""
        return self.note == RENTED_ON

    def bills_at_rest(self, otherwise: float | None) -> float | None:
        """USD per hour while it is stopped: what the platform says of this very box, else `otherwise` (the profile's).
        None where neither says it."""
        return otherwise if self.stopped_per_hour is None else self.stopped_per_hour

    def bills(self, at_rest: float | None = None) -> float | None:
        """USD per hour in its phase now. `at_rest`: as in `bills_at_rest`."""
        return self.bills_at_rest(at_rest) if self.phase is Phase.STOPPED else self.price_per_hour

    def outputs(self) -> dict[str, Any]:
        """The record as JSON values, for the engine's state (without `location` and `note`)."""
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
    """A durable volume. `created`: this call made it. `location`: for people, host and path, or region.

    `region`: where a box must be to mount it; "" for anywhere. `price_per_month`: USD, None when unknown.
    `mounted_by`: native ids of the boxes that mount it now; None when the platform does not say. `lost`: why its files
    can't be read any more, "" when they can; a lost volume can be deleted, and is never mounted. `unknown`: `lost` says
    why they can't be read now, and they need not be lost; it can't be deleted.
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
    unknown: bool = False


def _silent(_line: str) -> None:
    """The default of `Wait.progress`: ignores it."""


def not_as_asked(box: str, tag: str, has: str, wanted: str) -> PlatformError:
    """The error for a box that has the tag, but other mounts: it is not adopted. It is not ended, and bills."""
    return PlatformError(
        f"{box} carries the tag {tag} and mounts {has or 'no volume'}, and now {wanted or 'none'} is asked for: it is "
        "not adopted, no second box is made, and it goes on billing. Next: write `mounts` as it was, then pulumi up, "
        "which adopts it, and end it there"
    )


@dataclass(frozen=True)
class Wait:
    """How long a call may block: `deadline`, in seconds from the begin of the wait. `progress` gets a line for people.

    `cancelled`: set upon SIGINT or the engine's Cancel; a waiting call checks it several times a second.
    """

    deadline: float = 600.0
    progress: Callable[[str], None] = _silent
    cancelled: threading.Event = field(default_factory=threading.Event)

    def until(self, ready: Callable[[], bool], what: str, why: Callable[[], str] = str) -> str:
        """Blocks until `ready()`, the deadline or a cancel. Returns "" when ready, else why it stopped waiting
        ("cancelled …", "not within 600 s …").

        Reports `what` to `progress` every 5 s, with what `why` says then. Passes exceptions of `ready` on.
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
                known = f": {words}" if (words := why()) else ""
                self.progress(f"waiting for {what} ({now - begin:.0f} s of at most {self.deadline:.0f} s){known}")
            self.cancelled.wait(min(POLL_SECONDS, max(0.0, begin + self.deadline - now)))


class Platform(Protocol):
    """One platform with one account. Instances are cheap, hold no connection open, and are safe to use from threads.

    Every method may raise `Unreachable`; those with a parameter `account` first raise `WrongAccount` when it is not the
    current key's account. None of them prints.
    """

    name: str
    over_ssh: bool = False
    """Whether its boxes are reached over SSH: then a create needs a public key."""
    sees_all: ClassVar[bool] = False
    """Whether it looks where its boxes are made: then no answer of it lags, and what it does not show is not there."""
    by_hand: bool = False
    """Whether only a person can see that the session of a box has ended: then an end on record is all that is known."""
    lacks: ClassVar[Mapping[type, str]] = {}
    """A capability that the platform lacks → the text of the refusal, if it says more than the default of
    `registry.need`. `{native_id}` and `{region}` stand for a volume's."""

    def account(self) -> str:
        """The name of the current key's account, as it is stored and compared. The local platform makes its registry
        at the first call, so call it for creates, not in previews. Costs nothing."""
        ...

    def find_by_tag(self, tag: str, account: str = "") -> BoxRecord | None:
        """The box with this tag, in any phase; None only when it is proved that there is none. Reads only.

        `account`: the account that should own the box, if known: another account's empty answer proves nothing."""
        ...

    def create(self, request: BoxRequest, *, wait: Wait) -> BoxRecord:
        """Rents a box and blocks until it is ready. Costs money. Atomic and idempotent by tag: a box that has the tag
        already is adopted, and no second one is rented; a stopped box stays stopped: the caller decides to start it.

        Raises StillCreating (the box exists and bills; the error carries id, outputs and reasons) upon the deadline, a
        cancel or a late failure; OutcomeUnknown when the answer was lost: call `find_by_tag` first; NotYetGone when the
        tag's box is being destroyed; PlatformError when nothing was made.
        """
        ...

    def get(self, native_id: str, account: str) -> BoxRecord:
        """The record of a box now. `GONE` only when that is proved; `UNKNOWN` with a `note` when it may be there and
        can't be read. Reads only."""
        ...

    def destroy(self, native_id: str, account: str) -> None:
        """Destroys the box, which ends its bill. Irreversible; idempotent: a box that is gone already is a success.
        Volumes survive. Blocks for seconds; call it again after a crash.

        Raises NotYetGone with the reason when the end is not proved: poll `get` until `GONE`, or call again.
        """
        ...

    def list_tagged(self, prefix: str) -> list[BoxRecord]:
        """Every box whose tag begins with `prefix`, and every box whose tag can't be read (tag ""). Reads only."""
        ...

    def channel(self, native_id: str, account: str) -> Channel:
        """A channel to read, write and run commands on the box. Raises Unreachable when the box can't be reached or is
        gone. On a stopped or ending box, to run a command raises PlatformError; files can be read if they still answer.
        """
        ...
