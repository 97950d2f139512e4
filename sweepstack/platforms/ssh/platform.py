"""The user's own hosts, reached over SSH: a box is a folder on a host, with real processes.

Nothing is rented here, and no call costs money. Each host is an account. Inputs and state name the adapter with its
host, `ssh:user@host:port`, so that another machine can delete the box weeks later. `onbox.host.agent` runs on the host.
Boxes and volumes are folders there, reached over one connection.

That a host at a new address is the same machine is proved by two things, which have to agree: the host key is the one
that was pinned, and the boxes' folder there belongs to the box's account. Either alone proves nothing: a host key may
be part of an image, and any machine can claim any account.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from sweepstack.channel.host_address import HostAddress
from sweepstack.channel.pinned_keys import Pin, fingerprint
from sweepstack.channel.prefetch import PrefetchesBoxes
from sweepstack.channel.ssh import pin_host_key
from sweepstack.channel.ssh import route as ssh_route
from sweepstack.channel.ssh.options import Way
from sweepstack.channel.ssh.route import completed
from sweepstack.core.box_end import Moves
from sweepstack.onbox.agent.channel import SshEndpoint
from sweepstack.onbox.common.errors import (
    ConfigError,
    PlatformError,
    RequestRefused,
    StillCreating,
    Unreachable,
    WrongAccount,
)
from sweepstack.onbox.common.units import skew_words
from sweepstack.onbox.host.capabilities import CanStop, HasPeers, IsHost, ReadsVolumes
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, VolumeRecord, Wait
from sweepstack.platforms.ssh.api import Caller

if TYPE_CHECKING:
    from sweepstack.channel.prefetch import Answers, Question
    from sweepstack.channel.ssh.channel import SshChannel
    from sweepstack.onbox.agent.channel import Channel


def connect() -> SshPlatform:
    """The platform without a host: it lists nothing, and every other method raises ConfigError."""
    return SshPlatform(None)


def connect_to(address: str, moves: Moves | None = None) -> SshPlatform:
    """The platform of one host, `user@host:port[/folder]`. Does not connect yet. `moves`: when its address changes.
    Raises ConfigError."""
    return SshPlatform(HostAddress.parse(address), moves)


def spelled(address: str, known: str = "") -> str:
    """See `sweepstack.platforms.registry.spelled`. An alias that is not in this machine's SSH configuration keeps the
    address that the state has for it."""
    asked = HostAddress.parse(address)
    found = completed(asked)
    if asked.bare and known and not found.alias:
        kept = HostAddress.parse(known)
        if kept.alias == asked.host:
            return str(replace(kept, root=asked.root))
    return str(found)


def prove_same(
    address: str,
    former: str,
    native_id: str,
    account: str,
    host_keys: Sequence[str] | None,
    calling: Callable[[HostAddress], Caller] = Caller,
) -> None:
    """See `sweepstack.platforms.registry.prove_same`. `calling`: who asks the host."""
    new, old = HostAddress.parse(address), HostAddress.parse(former)
    if new.root != old.root:
        raise RequestRefused(
            f"the box lies in {old.root or 'the default folder'} of {old.login}, and a box does not move to "
            f"{new.root or 'the default folder'}. Write host: {old} back, or end the box first"
        )
    prove_same_machine(new, old, native_id, account, host_keys, calling)


class SshPlatform(CanStop, ReadsVolumes, IsHost, HasPeers, PrefetchesBoxes):
    """See `sweepstack.onbox.host.platform.Platform`."""

    over_ssh = True
    sees_all = True
    adapter: ClassVar[str] = "ssh"

    def __init__(self, address: HostAddress | None, moves: Moves | None = None) -> None:
        self.address = address
        self.name = f"{self.adapter}:{address}" if address else self.adapter
        self._caller = self.calling(address, moves) if address else None

    @staticmethod
    def calling(address: HostAddress, moves: Moves | None) -> Caller:
        """Who sends the requests to the host."""
        return Caller(address, moves=moves)

    @property
    def endpoint(self) -> SshEndpoint | None:
        """Where the host's sshd listens, from its address alone: makes no connection. None without a host."""
        return self.address.endpoint if self.address is not None else None

    @property
    def way(self) -> Way | None:
        """The SSH route to the host. None without a host. Raises what `ssh_route.way_to` raises."""
        return self._caller.way if self._caller is not None else None

    def account(self) -> str:
        return str(self._ask("account"))

    def answer_for(self, account: str) -> str:
        """Records that the host has a new name, which a person confirms. See `LocalPlatform.answer_for`."""
        return str(self._ask("answer_for", account=account))

    def count_as_lost(self, account: str) -> str:
        """Records that what the host had of `account` is lost, as a person says. See `LocalPlatform.count_as_lost`."""
        return str(self._ask("count_as_lost", account=account))

    def find_by_tag(self, tag: str, account: str = "") -> BoxRecord | None:
        found = self._ask("find_by_tag", tag=tag, account=account)
        return None if found is None else self._record(found)

    def create(self, request: BoxRequest, *, wait: Wait) -> BoxRecord:
        if wait.cancelled.is_set():
            raise PlatformError(f"cancelled before {request.name} was made: nothing exists, nothing bills")
        asked = {
            "tag": request.tag,
            "name": request.name,
            "price_per_hour": request.price_per_hour,
            "mounts": dict(request.mounts),
            "resources": dict(request.resources),
            "rented": request.rented,
            "places": {tier: dict(facts) for tier, facts in request.places.items()},
        }
        wait.progress(f"{request.name}: looking at {self.address}, and making its folders there")
        request.asked(True)
        try:
            made = self._ask("create", request=asked)
        except RequestRefused:  # by a look that comes before anything is made
            request.asked(False)
            raise
        found = self._until_ready(request.name, self._record(made), wait)
        wait.progress(f"{request.name}: {found.native_id} at {found.location}")
        return found

    def _until_ready(self, name: str, record: BoxRecord, wait: Wait) -> BoxRecord:
        """Blocks until the box is no longer CREATING. A stopped box stays stopped. The waiting is done on this side,
        where the user can cancel it. Raises StillCreating with the box's id when it is neither running nor stopped."""
        seen = record

        def settled() -> bool:
            nonlocal seen
            seen = self.get(record.native_id, record.account)
            return seen.phase is not Phase.CREATING

        if record.phase is Phase.CREATING:
            try:
                why = wait.until(settled, f"{name} ({record.native_id}) to be ready")
            except PlatformError as error:  # the error carries the id, so that it is not lost
                raise StillCreating(record.native_id, record.outputs(), [str(error)]) from error
            if why:
                raise StillCreating(record.native_id, seen.outputs(), [why])
        if seen.phase is not Phase.RUNNING and not seen.phase.at_rest:
            raise StillCreating(
                record.native_id, seen.outputs(), [f"{name} is {seen.phase}, not running: {seen.note}".rstrip(": ")]
            )
        return seen

    def get(self, native_id: str, account: str) -> BoxRecord:
        return self._record(self._ask("get", native_id=native_id, account=account))

    def prefetch(self, native_id: str, account: str, questions: Sequence[Question], tagged: str = "") -> None:
        self._host().prefetch(native_id, account, questions, tagged)

    def destroy(self, native_id: str, account: str) -> None:
        self._ask("destroy", native_id=native_id, account=account)

    def stop(self, native_id: str, account: str) -> None:
        self._ask("stop", native_id=native_id, account=account)

    def power_off(self, native_id: str, account: str, command: str) -> None:
        self._ask("power_off", native_id=native_id, account=account, command=command)

    def forget_peer(self, native_id: str, account: str, peer: str, words: str) -> None:
        self._ask("forget_peer", native_id=native_id, account=account, peer=peer, words=words)

    def who_answers(self) -> list[str]:
        try:
            way = self._host().way
        except Unreachable as error:
            raise PlatformError(str(error)) from error
        return pin_host_key.shown(way)

    def pinned(self) -> list[str]:
        return self._host().way.pin.fingerprints()

    def start(self, native_id: str, account: str, *, wait: Wait) -> BoxRecord:
        started = self._record(self._ask("turn_on", native_id=native_id, account=account))
        return self._until_ready(native_id, started, wait)

    def list_tagged(self, prefix: str) -> list[BoxRecord]:
        if self._caller is None:
            return []
        return [self._record(one) for one in self._ask("list_tagged", prefix=prefix)]

    def ensure_volume(self, tag: str, name: str, *, size_gb: int | None = None, region: str = "") -> VolumeRecord:
        """`size_gb` and `region` are ignored: a volume is as large as the host's disk."""
        return volume_of(self._ask("ensure_volume", tag=tag, name=name))

    def quote_volume(self, size_gb: int, region: str) -> float | None:
        """0: the host's disk costs nothing extra."""
        return 0.0

    def list_volumes(self, prefix: str) -> list[VolumeRecord]:
        if self._caller is None:
            return []
        return [volume_of(one) for one in self._ask("list_volumes", prefix=prefix)]

    def get_volume(self, native_id: str) -> VolumeRecord | None:
        found = self._ask("get_volume", native_id=native_id)
        return None if found is None else volume_of(found)

    def delete_volume(self, native_id: str, account: str) -> None:
        self._ask("delete_volume", native_id=native_id, account=account)

    def channel(self, native_id: str, account: str) -> Channel:
        caller = self._host()
        root, mounts = caller.where(native_id, account)
        answers = caller.answers(native_id, account)
        return open_channel(caller, native_id, root, mounts, lambda: self._closed(native_id, account), answers)

    def volume_channel(self, native_id: str, mount: str = "") -> Channel:
        content = str(self._ask("where_volume", native_id=native_id))
        return volume_channel(self._host(), native_id, content, mount)

    def _closed(self, native_id: str, account: str) -> str:
        """Why nothing may be started on the box now; "" when it may, or when the host can't be asked."""
        try:
            return closed(self.get(native_id, account))
        except PlatformError:
            return ""

    def _host(self) -> Caller:
        if self._caller is None:
            raise ConfigError("a host of your own has an address: boxes.<name>.host, such as root@192.0.2.7:22")
        return self._caller

    def _ask(self, verb: str, **args: Any) -> Any:
        return self._host().ask(verb, **args)

    def _record(self, said: Any) -> BoxRecord:
        caller = self._host()
        return record_of(said, self.name, caller.way.pin.fingerprints(), self.endpoint, caller.skew)


def prove_same_machine(
    new: HostAddress,
    former: HostAddress,
    native_id: str,
    account: str,
    known: Sequence[str] | None,
    calling: Callable[[HostAddress], Caller] = Caller,
) -> None:
    """See `sweepstack.platforms.registry.prove_same`. Pins the host key at its new address. `calling`: who asks it."""
    way = ssh_route.way_to(new)
    pinned = set(Pin(former.login, former.endpoint.start).fingerprints()) | set(known or ())
    compared = way.pin.pinned and way.pin.compared
    if new.login != former.login and not compared:  # else the key is pinned for this login, or a person compared it
        if not pinned and known is None:
            return
        _show(way, new, former, pinned)
    caller = calling(new)
    try:
        caller.ask("get", native_id=native_id, account=account)
    except WrongAccount as error:
        raise RequestRefused(
            f"{new} is not the host that was at {former}: {error}. {_ways_out(new, former)}"
        ) from error
    finally:
        caller.close()


def _show(way: Way, new: HostAddress, former: HostAddress, pinned: set[str]) -> None:
    if way.via is not None:
        pin_host_key.first(way.via)
    shown = pin_host_key.offered(way)
    same = [key for key in shown if fingerprint(key) in pinned]
    seen = ", ".join(fingerprint(key) for key in shown)
    if not pinned:
        raise RequestRefused(
            f"the host key of {former} is not on record here: that {new} is the same host is not proved (it "
            f"shows {seen}). Run the command where the box was made, or compare that key on the host itself. "
            f"{_ways_out(new, former)}"
        )
    if not same:
        raise RequestRefused(
            f"another machine answers at {new}: it shows {seen}, and {former} had {', '.join(sorted(pinned))}. Nothing "
            f"was sent to it. {_ways_out(new, former)}"
        )
    if not pinned & set(way.pin.fingerprints()):
        way.pin.forget()  # the pinned key is of another host, which had this address before
    way.pin.keep(same, way.endpoint)


def _ways_out(new: HostAddress, former: HostAddress) -> str:
    return (
        f"A box does not move to another machine: write host: {former} back, and end the box there, or give the new "
        f"machine a box of its own under a new name. If it is the same machine with a new key: compare it there, then "
        f"`sweepctl confirm host BOX {new} --saw SHA256:…`"
    )


def record_of(said: Any, host: str, keys: Iterable[str], endpoint: SshEndpoint | None, skew: float) -> BoxRecord:
    """The record of a box. `host`: its name in messages. `keys`: the host's pinned fingerprints. `skew`: seconds that
    its clock is ahead of ours. Raises Unreachable when the answer can't be read."""
    try:
        at = datetime.fromisoformat(said["created_at"]) if said["created_at"] else None
        known: dict[str, Any] = {
            "phase": Phase(said["phase"]),
            "created_at": None if at is None else at - timedelta(seconds=skew),  # the host said it by its own clock
            "note": said["note"] or skew_words(skew),
        }
        return BoxRecord(**{**said, **known, "endpoint": endpoint, "host_keys": tuple(keys)})
    except (KeyError, TypeError, ValueError) as error:
        raise Unreachable(f"{host} gave an answer that can't be one: {error}") from error


def volume_of(said: Any) -> VolumeRecord:
    """The record of a volume."""
    mounted = said["mounted_by"]
    return VolumeRecord(**{**said, "mounted_by": None if mounted is None else tuple(mounted)})


def open_channel(
    caller: Caller,
    native_id: str,
    root: str,
    mounts: Mapping[str, str],
    closed: Callable[[], str],
    answers: Answers | None = None,
) -> SshChannel:
    """A channel, which does not connect yet. `root`: the box's folder on the host. `mounts`: path on the box → path on
    the host. `closed`: why nothing may be started on the box, "" when it may. `answers`: prefetched answers."""
    from sweepstack.channel.ssh.channel import SshChannel

    return SshChannel(
        native_id,
        caller.way.endpoint,
        root=root,
        mounts=mounts,
        closed=closed,
        links=caller.connections(),
        answers=answers,
    )


def volume_channel(caller: Caller, native_id: str, content: str, mount: str) -> SshChannel:
    """A channel to a volume. `content`: its folder on the host. `mount`: as in `ReadsVolumes.volume_channel`."""
    root, mounts = (content.rpartition("/")[0], {mount: content}) if mount else (content, {})
    return open_channel(caller, native_id, root, mounts, lambda: "is a volume without its box: nothing runs on it")


def closed(record: BoxRecord) -> str:
    """Why nothing may be started on the box, as the end of a sentence; "" when it may."""
    if record.phase.at_rest:
        return f"is {record.phase}: nothing runs on it until it is started again"
    return "is being destroyed: nothing is started on it any more" if record.phase is Phase.ENDING else ""
