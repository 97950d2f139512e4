"""Hosts of the user's own, reached by SSH: each is an account, and a box is a folder tree on it with real processes.

Nothing is rented and nothing is billed by us. The adapter is named with its host, `ssh:user@host:port`, in inputs and
state, so that a delete from another machine weeks later knows where to go. See `onbox.host.agent` for what a host does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from sweepstack.channel.host_address import HostAddress
from sweepstack.channel.ssh_config import completed
from sweepstack.onbox.common.errors import ConfigError, PlatformError, RequestRefused, StillCreating, Unreachable
from sweepstack.onbox.common.units import skew_words
from sweepstack.onbox.host.offers import Capability, WithoutMarket
from sweepstack.onbox.host.platform import BoxRecord, BoxRequest, Phase, VolumeRecord, Wait
from sweepstack.platforms.ssh import address_change
from sweepstack.platforms.ssh.api import Caller

if TYPE_CHECKING:
    from sweepstack.channel.prefetch import Answers, Question
    from sweepstack.channel.ssh_options import Way
    from sweepstack.onbox.agent.channel import Channel, SshEndpoint


def connect() -> SshPlatform:
    """Without a host: it lists nothing, and every other verb asks for one."""
    return SshPlatform(None)


def connect_to(address: str) -> SshPlatform:
    """The platform of one host, `user@host:port[/folder]`. Connects nothing yet. Raises ConfigError."""
    return SshPlatform(HostAddress.parse(address))


def spelled(address: str, known: str = "") -> str:
    """See `sweepstack.platforms.registry.spelled`. A name that is not configured here is what the state says of it."""
    asked = HostAddress.parse(address)
    found = completed(asked)
    if asked.bare and known and not found.alias:
        kept = HostAddress.parse(known)
        if kept.alias == asked.host:
            return str(replace(kept, root=asked.root))
    return str(found)


def prove_same(address: str, former: str, native_id: str, account: str, host_keys: Sequence[str] | None) -> None:
    """See `sweepstack.platforms.registry.prove_same`."""
    new, old = HostAddress.parse(address), HostAddress.parse(former)
    if new.root != old.root:
        raise RequestRefused(
            f"the box lies in {old.root or 'the default folder'} of {old.login}, and a box does not move to "
            f"{new.root or 'the default folder'}. Write host: {old} back, or end the box first"
        )
    address_change.prove_same(new, old, native_id, account, host_keys)


class SshPlatform(WithoutMarket):
    """See `sweepstack.onbox.host.platform.Platform`."""

    capabilities = frozenset({Capability.STOP, Capability.VOLUMES, Capability.SSH})

    def __init__(self, address: HostAddress | None) -> None:
        self.address = address
        self.name = f"ssh:{address}" if address else "ssh"
        self._caller = Caller(address) if address else None

    @property
    def endpoint(self) -> SshEndpoint | None:
        """Where the host's sshd listens, by its address; nobody is asked. None without a host."""
        return self.address.endpoint if self.address is not None else None

    @property
    def way(self) -> Way | None:
        """How its sshd is reached from here. None without a host. Raises as `ssh_route.way_to`."""
        return self._caller.way if self._caller is not None else None

    def account(self) -> str:
        return str(self._ask("account"))

    def answer_for(self, account: str) -> str:
        """A person's word that the host was renamed. See `LocalPlatform.answer_for`."""
        return str(self._ask("answer_for", account=account))

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
        found = self._until_ready(request.name, self._record(self._ask("create", request=asked)), wait)
        wait.progress(f"{request.name}: {found.native_id} at {found.location}")
        return found

    def _until_ready(self, name: str, record: BoxRecord, wait: Wait) -> BoxRecord:
        """Waits here and not over there, where nobody could cut it. One that is stopped is left so."""
        seen = record

        def settled() -> bool:
            nonlocal seen
            seen = self.get(record.native_id, record.account)
            return seen.phase is not Phase.CREATING

        if record.phase is Phase.CREATING:
            try:
                why = wait.until(settled, f"{name} ({record.native_id}) to be ready")
            except PlatformError as error:  # the id must not be lost over this
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

    def foresee(self, native_id: str, account: str, questions: Sequence[Question], tagged: str = "") -> None:
        """See `sweepstack.channel.prefetch.ForeseesBoxes`."""
        self._host().foresee(native_id, account, questions, tagged)

    def destroy(self, native_id: str, account: str) -> None:
        self._ask("destroy", native_id=native_id, account=account)

    def stop(self, native_id: str, account: str) -> None:
        self._ask("stop", native_id=native_id, account=account)

    def power_off(self, native_id: str, account: str, command: str) -> None:
        """Ends the box's processes, and has the host run `command` a moment later. That it took it is all that the
        return proves. Raises PlatformError where it won't: another box is at work there, or there is no such program.
        """
        self._ask("power_off", native_id=native_id, account=account, command=command)

    def who_answers(self) -> list[str]:
        """The fingerprints of the host keys that are shown at the address now, whoever's they are. Nobody is let in,
        and nothing is sent. Raises Unreachable when no sshd answers there; another PlatformError, or ConfigError, where
        that was not even tried: a way that is not known here proves no silence."""
        from sweepstack.channel import ssh_contact

        try:
            way = self._host().way
        except Unreachable as error:
            raise PlatformError(str(error)) from error
        return ssh_contact.shown(way)

    def pinned(self) -> list[str]:
        """The fingerprints that the host is known by on this computer; none where it was never reached from here."""
        return self._host().way.pin.fingerprints()

    def start(self, native_id: str, account: str, *, wait: Wait) -> BoxRecord:
        started = self._record(self._ask("turn_on", native_id=native_id, account=account))
        return self._until_ready(native_id, started, wait)

    def list_tagged(self, prefix: str) -> list[BoxRecord]:
        if self._caller is None:
            return []
        return [self._record(one) for one in self._ask("list_tagged", prefix=prefix)]

    def ensure_volume(self, tag: str, name: str, *, size_gb: int | None = None, region: str = "") -> VolumeRecord:
        """`size_gb` and `region` mean nothing here: a volume is as large as the host's disk."""
        return _volume(self._ask("ensure_volume", tag=tag, name=name))

    def quote_volume(self, size_gb: int, region: str) -> float | None:
        """Nothing: the disk is the host's."""
        return 0.0

    def list_volumes(self, prefix: str) -> list[VolumeRecord]:
        if self._caller is None:
            return []
        return [_volume(one) for one in self._ask("list_volumes", prefix=prefix)]

    def get_volume(self, native_id: str) -> VolumeRecord | None:
        found = self._ask("get_volume", native_id=native_id)
        return None if found is None else _volume(found)

    def delete_volume(self, native_id: str, account: str) -> None:
        self._ask("delete_volume", native_id=native_id, account=account)

    def channel(self, native_id: str, account: str) -> Channel:
        root, mounts = self._host().where(native_id, account)
        answers = self._host().answers(native_id, account)
        return self._open(native_id, root, mounts, lambda: self._closed(native_id, account), answers)

    def volume_channel(self, native_id: str, mount: str = "") -> Channel:
        content = str(self._ask("where_volume", native_id=native_id))
        mounts = {mount: content} if mount else {}
        root = content.rpartition("/")[0] if mount else content
        return self._open(native_id, root, mounts, lambda: "is a volume without its box: nothing runs on it")

    def _open(
        self, native_id: str, root: str, mounts: dict[str, str], closed: Any, answers: Answers | None = None
    ) -> Channel:
        from sweepstack.channel.ssh import SshChannel

        caller = self._host()
        channel: Channel = SshChannel(
            native_id,
            caller.way.endpoint,
            root=root,
            mounts=mounts,
            closed=closed,
            links=caller.connections(),
            answers=answers,
        )
        return channel

    def _closed(self, native_id: str, account: str) -> str:
        """Why nothing is started there now; empty where the host does not say: then the box itself answers, or not."""
        try:
            phase = self.get(native_id, account).phase
        except PlatformError:
            return ""
        if phase.at_rest:
            return f"is {phase}: nothing runs on it until it is started again"
        return "is being destroyed: nothing is started on it any more" if phase is Phase.ENDING else ""

    def _host(self) -> Caller:
        if self._caller is None:
            raise ConfigError("a host of your own has an address: boxes.<name>.host, such as root@192.0.2.7:22")
        return self._caller

    def _ask(self, verb: str, **args: Any) -> Any:
        return self._host().ask(verb, **args)

    def _record(self, said: Any) -> BoxRecord:
        try:
            at = said["created_at"]
            known: dict[str, Any] = {
                "phase": Phase(said["phase"]),
                "created_at": datetime.fromisoformat(at) if at else None,
            }
            caller = self._host()
            if known["created_at"] is not None:  # by the host's clock
                known["created_at"] -= timedelta(seconds=caller.skew)
            keys = tuple(caller.way.pin.fingerprints())
            note = said["note"] or skew_words(caller.skew)
            return BoxRecord(**{**said, **known, "note": note, "endpoint": self.endpoint, "host_keys": keys})
        except (KeyError, TypeError, ValueError) as error:
            raise Unreachable(f"{self.name} gave an answer that can't be one: {error}") from error


def _volume(said: Any) -> VolumeRecord:
    mounted = said["mounted_by"]
    return VolumeRecord(**{**said, "mounted_by": None if mounted is None else tuple(mounted)})
