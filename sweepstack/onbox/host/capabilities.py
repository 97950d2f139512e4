"""What only some platforms can do, each a type: an adapter says so by its bases, and callers ask by `isinstance`.

Where they need it, they ask by `sweepstack.platforms.registry.need`, which refuses in words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from sweepstack.onbox.host.offers import Balance, Constraints, Offer
from sweepstack.onbox.host.platform import BoxRecord, Platform, VolumeRecord, Wait

if TYPE_CHECKING:
    from sweepstack.onbox.agent.channel import Channel


@runtime_checkable
class CanStop(Platform, Protocol):
    """A platform that can pause a box."""

    def stop(self, native_id: str, account: str) -> None:
        """Issues the verb that pauses the box: processes ended with grace, the tiers wiped that the profile says the
        verb kills, all others kept. Whether it may is not asked here. Idempotent; a stop that was cut off is finished
        by the next. Blocks for seconds. Undone by `start`.

        Raises NotYetStopped with the reason when it is not proved finished: poll `get` until `STOPPED`, or call again.
        PlatformError when the box is gone or being destroyed: there is nothing to pause.
        """
        ...

    def start(self, native_id: str, account: str, *, wait: Wait) -> BoxRecord:
        """Brings a stopped box back and blocks until it is ready. Costs money. Idempotent: a box that runs is left as
        it is; a stop that was cut off is finished first. Never makes a new box.

        Raises StillCreating (it exists and bills) on deadline or cancel; PlatformError when the box is gone or being
        destroyed, or the platform has no room for it now.
        """
        ...


@runtime_checkable
class HasMarket(Platform, Protocol):
    """A platform whose boxes are rented, and differ in price and place."""

    def offers(self, constraints: Constraints) -> list[Offer]:
        """What could be rented now that has all that is asked for, cheapest first, inside the price ceiling.

        Reads only. Empty when nothing fits. Raises Unsupported for what the platform has no way to give.
        """
        ...


@runtime_checkable
class HasBalance(Platform, Protocol):
    """A platform whose account has money in it."""

    def balance(self) -> Balance | None:
        """What the account has left; None where the key may not see it. Reads only."""
        ...


@runtime_checkable
class RentsSpot(Platform, Protocol):
    """A platform that rents by bids."""

    def change_bid(self, native_id: str, account: str, bid: float) -> None:
        """Changes what a spot box may cost (USD per hour, whole box), in place. Raises RequestRefused where the
        platform won't have it."""
        ...


@runtime_checkable
class HasVolumes(Platform, Protocol):
    """A platform with volumes: what is on one outlives the boxes that mount it."""

    def ensure_volume(self, tag: str, name: str, *, size_gb: int | None = None, region: str = "") -> VolumeRecord:
        """The volume with this tag, made if it is proved absent. Idempotent. May cost money while it exists.

        `size_gb` and `region` are for one that is made, where the platform asks for them (RequestRefused without); one
        that is there is adopted as it is, grown where it is smaller and the platform can grow it, never shrunk.
        """
        ...

    def quote_volume(self, size_gb: int, region: str) -> float | None:
        """USD a month that a new volume would cost there now; None where the platform names no price before it is made.
        Reads only. Raises RequestRefused for a region that is none, NoCapacity where there is no room for it."""
        ...

    def list_volumes(self, prefix: str) -> list[VolumeRecord]:
        """Every volume of the account whose tag begins with `prefix`. Reads only."""
        ...

    def delete_volume(self, native_id: str, account: str) -> None:
        """Deletes a volume with all that is on it. Irreversible; idempotent; already gone is success. Whether it may is
        not asked here. Raises NotYetGone when it is not proved finished, Unsupported where only a person can do it."""
        ...

    def get_volume(self, native_id: str) -> VolumeRecord | None:
        """The volume; None only when it is proved that there is none. WrongAccount when it is another account's."""
        ...


@runtime_checkable
class ReadsVolumes(HasVolumes, Protocol):
    """A platform whose volumes can be read when no box mounts them. Callers use `registry.volume_channel`."""

    def volume_channel(self, native_id: str, mount: str = "") -> Channel:
        """A way to read and write a volume when its box is gone. Paths are relative to the volume's root; with `mount`
        (`mnt/durable`) the volume shows there, as on a box, and code that reads a box works unchanged. Nothing runs on
        it: PlatformError. Raises Unreachable when the volume is gone."""
        ...


@runtime_checkable
class LetsIn(Platform, Protocol):
    """A platform that can let a public key into a box that is there already."""

    def let_in(self, native_id: str, account: str, public_key: str) -> None:
        """Lets this key in, where it is not let in yet. Idempotent; blocks for seconds; costs nothing. Raises
        PlatformError."""
        ...


@runtime_checkable
class IsHost(Platform, Protocol):
    """A host of the user's own, reached at an address: no API says what is gone from it."""

    def power_off(self, native_id: str, account: str, command: str) -> None:
        """Ends the box's processes, and has the host run `command` a moment later. That it took it is all that the
        return proves. Raises PlatformError where it won't: another box is at work there, or there is no such program.
        """
        ...

    def who_answers(self) -> list[str]:
        """The fingerprints of the host keys that are shown at the address now, whoever's they are. Nobody is let in,
        and nothing is sent. Raises Unreachable when no sshd answers there; another PlatformError, or ConfigError, where
        that was not even tried: a way that is not known here proves no silence."""
        ...

    def pinned(self) -> list[str]:
        """The fingerprints that the host is known by on this computer; none where it was never reached from here."""
        ...
