"""Capabilities that only some platforms have: an adapter has those that its class inherits.

Callers ask `isinstance(platform, CanStop)`. If they need the capability, they call
`sweepstack.platforms.registry.need`, which raises Unsupported with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.host.offers import Balance, Constraints, Offer
from sweepstack.onbox.host.platform import BoxRecord, Platform, VolumeRecord, Wait

if TYPE_CHECKING:
    from sweepstack.onbox.agent.channel import Channel


@runtime_checkable
class CanStop(Platform, Protocol):
    """A platform that can pause a box."""

    def stop(self, native_id: str, account: str) -> None:
        """Stops the box: its processes get SIGTERM and a grace; the tiers that the profile names are wiped, all others
        kept. Does not check whether the stop is allowed: the caller does. Idempotent; the next call finishes a stop
        that was interrupted. Blocks for seconds. `start` undoes it.

        Raises NotYetStopped with the reason when the end is not proved: poll `get` until `STOPPED`, or call again.
        Raises PlatformError when the box is gone or is being destroyed.
        """
        ...

    def start(self, native_id: str, account: str, *, wait: Wait) -> BoxRecord:
        """Starts a stopped box and blocks until it is ready. Costs money. Idempotent: a running box is left as it is;
        an interrupted stop is finished first. Never makes a new box.

        Raises StillCreating (the box exists and bills) upon the deadline or a cancel; PlatformError when the box is
        gone or is being destroyed; NoCapacity when the platform has no room for it now.
        """
        ...


class OwnStop(NamedTuple):
    """A request with which a box asks its platform to stop it. The box adds the key that the platform gave it."""

    method: str
    url: str
    body: Mapping[str, Any]


@runtime_checkable
class CanStopItself(Platform, Protocol):
    """A platform that puts a key into each box, with which the box can stop itself.

    Its create adds `platforms.common.renting` to the box's start command, where the request has `lease_seconds`."""

    def own_stop(self, native_id: str) -> tuple[OwnStop, ...]:
        """The requests that stop this box, each one alone: the box sends the next one where the platform does not
        accept the one before. Sends nothing, and holds no key. Raises RequestRefused for an id that can't be one."""
        ...


@runtime_checkable
class HasMarket(Platform, Protocol):
    """A platform that rents out boxes at different prices and in different regions."""

    def offers(self, constraints: Constraints) -> list[Offer]:
        """The offers that fit `constraints` now, its highest price included, cheapest first. Empty when none fits.

        Reads only: rents and reserves nothing. Raises Unsupported for constraints that the platform can never meet.
        """
        ...


@runtime_checkable
class Wallet(Protocol):
    """An account that is paid from a balance; also one whose machines no adapter of ours rents."""

    def balance(self) -> Balance | None:
        """The account's balance (USD); None when the key may not see it. Reads only."""
        ...


class ListedHost(NamedTuple):
    """A host as its platform's API shows it: the platform's id and word for its state. `off`: its compute bills no
    more."""

    id: str
    state: str
    off: bool


@runtime_checkable
class ListsHosts(Protocol):
    """An account whose API shows some of the hosts that a person rents there."""

    def host_at(self, host: str, port: int) -> ListedHost | None:
        """The host whose sshd is at this address; None where the API shows none, which proves nothing: it may show
        only some kinds of hosts. Reads only; blocks for seconds. Raises PlatformError."""
        ...

    def power_off_host(self, id: str) -> None:
        """Turns this host off, which keeps its disks; blocks until the platform says that it is off. Idempotent.
        Raises OutcomeUnknown when that is not so in time; another PlatformError for a refusal."""
        ...


@runtime_checkable
class HasBalance(Platform, Wallet, Protocol):
    """A platform whose account has a balance."""


@runtime_checkable
class HasBill(Platform, Protocol):
    """A platform that shows what it has billed, box by box."""

    def billed(self, begin: datetime, until: datetime) -> list[Billed]:
        """What the account was billed for boxes from the day of `begin` to `until`, one entry a box, also of boxes that
        have ended. Reads only. Raises PlatformError when the whole bill can't be read."""
        ...


@runtime_checkable
class RentsSpot(Platform, Protocol):
    """A platform that rents out spot boxes for a bid."""

    def change_bid(self, native_id: str, account: str, bid: float) -> None:
        """Changes a spot box's bid (USD per hour of the whole box), in place. Idempotent. Raises RequestRefused when
        the platform does not accept it."""
        ...


@runtime_checkable
class KnowsKeys(Platform, Protocol):
    """A platform that may not say whose key this is: then the same key is the same account."""

    def key_digest(self) -> str:
        """The digest of the current key, for the record of a birth. The key can't be found by it. Sends nothing. Raises
        NotAuthorized when there is no key."""
        ...

    def recall(self, account: str, digest: str) -> None:
        """A record says that the key of this digest is of `account`: that counts for the current key, if it is this
        one. Sends nothing. Raises NotAuthorized when there is no key."""
        ...


@runtime_checkable
class HasVolumes(Platform, Protocol):
    """A platform with volumes, whose files outlive the boxes that mount them."""

    def ensure_volume(self, tag: str, name: str, *, size_gb: int | None = None, region: str = "") -> VolumeRecord:
        """The volume with this tag; makes it if it is proved absent. Idempotent. May cost money while it exists.

        `size_gb` and `region`: for a new volume, if the platform needs them (RequestRefused without). An existing
        volume is used as it is: grown if it is smaller and the platform can do that, never shrunk.
        """
        ...

    def quote_volume(self, size_gb: int, region: str) -> float | None:
        """USD per month that a new volume would cost there now; None when the platform names no price beforehand.
        Reads only. Raises RequestRefused for an unknown region, NoCapacity when there is no room for it."""
        ...

    def list_volumes(self, prefix: str) -> list[VolumeRecord]:
        """Every volume of the account whose tag begins with `prefix`. Reads only."""
        ...

    def delete_volume(self, native_id: str, account: str) -> None:
        """Deletes a volume with all its files. Irreversible; idempotent: a volume that is gone already is a success.
        Does not check whether the delete is allowed: the caller does. Raises NotYetGone when the end is not proved,
        Unsupported when only a person can do it."""
        ...

    def get_volume(self, native_id: str) -> VolumeRecord | None:
        """The volume; None only when it is proved gone. Raises WrongAccount when it belongs to another account."""
        ...


@runtime_checkable
class NamesVolumes(HasVolumes, Protocol):
    """A platform on which a volume that a person made can get a tag of ours."""

    def name_volume(self, native_id: str, account: str, tag: str) -> VolumeRecord:
        """Gives the volume this tag, in place of its name. Idempotent; costs nothing. Raises RequestRefused where it is
        gone, or another volume has the tag."""
        ...


@runtime_checkable
class ReadsVolumes(HasVolumes, Protocol):
    """A platform whose volumes can be read when no box mounts them. Callers use `registry.volume_channel`."""

    def volume_channel(self, native_id: str, mount: str = "") -> Channel:
        """A channel that reads and writes a volume without a box. Paths are relative to the volume's root; with `mount`
        (`mnt/durable`) they begin with that, as on a box, so that code for boxes works unchanged. To run a command on
        it raises PlatformError. Raises Unreachable when the volume is gone."""
        ...


@runtime_checkable
class LetsIn(Platform, Protocol):
    """A platform that can add a public key to an existing box."""

    def let_in(self, native_id: str, account: str, public_key: str) -> None:
        """Adds this key to the box unless it has it. Idempotent; blocks for seconds; costs nothing. Raises
        PlatformError."""
        ...


@runtime_checkable
class IsHost(Platform, Protocol):
    """A user's own host, reached at an address: there is no API that could prove a box gone."""

    def power_off(self, native_id: str, account: str, command: str) -> None:
        """Ends the box's processes; the host then runs `command` a moment later. A return proves only that the host
        accepted it. Raises PlatformError when it refuses: another box is at work there, or there is no such program.
        """
        ...

    def who_answers(self) -> list[str]:
        """The fingerprints of the host keys that are shown at the address now, by any machine. Does not log in, and
        sends nothing. Raises Unreachable when no sshd answers there; another PlatformError, or ConfigError, when it
        could not even try: then no silence is proved."""
        ...

    def pinned(self) -> list[str]:
        """The fingerprints that this computer has pinned for the host; empty if it never reached the host."""
        ...


@runtime_checkable
class IsCluster(IsHost, Protocol):
    """A cluster whose scheduler starts a box's workers; `IsHost` is its login node."""

    def refusals(self, scheduler: Mapping[str, Any]) -> list[str]:
        """Why the cluster would not run such workers, each with the key and the fix; empty when it would. `scheduler`:
        as in the queue's input (`sweepstack.core.job.SchedulerInput`). Reads only, submits nothing. Raises
        Unreachable."""
        ...


@runtime_checkable
class BeginsWithQueue(Platform, Protocol):
    """A box needs no machine of its own before its queue is there: its first machine is a worker's. So `create` may
    leave it to the queue to reach it (`BoxRequest.reach`)."""

    def begun(
        self, native_id: str, account: str, scheduler: Mapping[str, Any] | None, *, wait: Wait
    ) -> AbstractContextManager[None]:
        """Of a box that nothing has reached yet: asks for one worker like those that its queue will ask for, and blocks
        until the box can be used. That worker begins no cell before `Scheduled.top_up`, and ends by itself where that
        does not come within minutes; what was asked for is taken back on leaving without it. May cost money.
        Idempotent; does nothing for any other box. `scheduler`: as in the queue's input; None: for no worker. Raises,
        on entering, StillCreating with the reasons, RequestRefused, OutcomeUnknown, Unreachable."""
        ...


@runtime_checkable
class TellsAhead(Platform, Protocol):
    """There is something to know of a box before it is made."""

    def ahead(self, resources: Mapping[str, Any]) -> list[str]:
        """What a preview says of a new box of these `resources` (`BoxRequest.resources`), a line each. Reads only.
        Raises RequestRefused for one that would not be made, or never be ready; ConfigError; Unreachable."""
        ...


@runtime_checkable
class HasManifests(Platform, Protocol):
    """Its boxes are objects that other tools apply, too."""

    def manifests(self, native_id: str, account: str) -> tuple[list[dict[str, Any]], list[str]]:
        """The objects of a box as they are applied, in the platform's own spelling, and what others changed of them,
        in words. Reads only. Raises Unreachable."""
        ...


@runtime_checkable
class HasPeers(Platform, Protocol):
    """Its boxes may have other nodes, on which parts of their cells run."""

    def forget_peer(self, native_id: str, account: str, peer: str, words: str) -> None:
        """Takes another node out of the record of a box, as a person says that it is gone for good (`words`: who saw
        what, kept on the host). Looks first whether it answers, and changes nothing there. Raises RequestRefused when
        it does, or is no peer of the box; another PlatformError."""
        ...


@dataclass(frozen=True)
class Billed:
    """`usd`: in all, of which `traffic` is for bytes over the network. `tag`: the box's, "" where the bill has none."""

    native_id: str
    usd: float
    traffic: float = 0.0
    tag: str = ""
