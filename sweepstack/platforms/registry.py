"""Loads the adapter of a platform by its name: the folder of that name, here or among the extensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

from sweepstack.core.box_end import Moves
from sweepstack.core.extensions import adapters, folder_of, module_of, not_here, part_of
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common.errors import ConfigError, Unreachable, Unsupported
from sweepstack.onbox.host.capabilities import (
    CanStop,
    HasBalance,
    HasBill,
    HasManifests,
    HasMarket,
    HasPeers,
    HasVolumes,
    IsHost,
    ReadsVolumes,
    RentsSpot,
    Wallet,
)
from sweepstack.onbox.host.platform import Platform

_LACKS: dict[type, str] = {
    CanStop: "{name} has no stop: its boxes run until they are destroyed",
    HasMarket: "{name} has no market: its boxes are all alike, at the price that the config names",
    HasBalance: "{name} has no account with money in it",
    HasBill: "{name} shows no bill",
    RentsSpot: "{name} has no spot boxes, so there is no bid to change",
    HasVolumes: "{name} has no volumes",
    HasManifests: "{name}: its boxes are no objects of a cluster, so there is nothing to apply",
    HasPeers: "{name}: its boxes have no other nodes",
    IsHost: "{name} is no host with an address: its API says what is gone",
    ReadsVolumes: "the volume {native_id} of {name} can't be read without a box that mounts it",
}
"""What a refusal says where the adapter gives no text of its own (`Platform.lacks`)."""
Able = TypeVar("Able", bound=Platform)
_LOADED: dict[str, Any] = {}
"""Adapter name → its module. One command asks for the same adapter many times: the folder is listed once."""


def load_platform(adapter: str, moves: Moves | None = None) -> Platform:
    """The platform behind `adapter`: the result of `connect()` in `platform.py` of the adapter's folder; for
    `<adapter>:<address>`, as the user's own hosts are named, the result of `connect_to(address)`. `moves`: when that
    address changes, where it is known: where a host moves, its address is looked up again before a command gives up.

    Sends no request. Raises ConfigError when no folder has this name. An adapter that is there and can't be imported
    is a broken installation: its ImportError is passed on.
    """
    name, _, address = adapter.partition(":")
    module = _module(adapter)
    if not address:
        return cast(Platform, module.connect())
    if not hasattr(module, "connect_to"):
        raise ConfigError(f"the platform {name} has one account and no address: write {name}, not {adapter!r}")
    return cast(Platform, module.connect_to(address, moves))


def payer(adapter: str, platform: str = "") -> str:
    """Whose balance pays for a box: the platform's own name, where its folder has a `wallet` beside the hosts that a
    person rents there; else the adapter's. `platform`: whose machine it is, where the adapter does not say."""
    return platform if platform and has_wallet(platform) else adapter


def has_wallet(platform: str) -> bool:
    """Whether the account of this platform can be asked what is left, although no adapter rents its machines."""
    return module_of(platform.replace("-", "_"), "wallet") is not None


def load_wallet(platform: str) -> Wallet | None:
    """The account of a platform that `has_wallet`; None where its key is not set. Sends no request. Raises
    NotAuthorized for a key that can't be one."""
    return cast("Wallet | None", _wallet_module(platform).connect())


def wallet_key(platform: str) -> str:
    """Where a person puts the key of a platform that `has_wallet`, for messages."""
    return str(_wallet_module(platform).KEY_HINT)


def _wallet_module(platform: str) -> Any:
    wallet = part_of(platform.replace("-", "_"), "wallet")
    assert wallet is not None, f"{platform} has no wallet"
    return wallet


def need(platform: Platform, able: type[Able], **words: str) -> Able:
    """`platform`, typed as the capability `able` (`CanStop`, `HasVolumes`, …). Raises Unsupported when the platform
    does not have it; `words` are filled into the text of the refusal."""
    if isinstance(platform, able):
        return platform
    why = platform.lacks.get(able) or _LACKS[able]
    raise Unsupported(why.format(name=platform.name, **words))


def volume_channel(platform: Platform, native_id: str, mount: str = "") -> Channel:
    """See `ReadsVolumes.volume_channel`. Raises Unsupported when only a box that mounts the volume can read it,
    Unreachable when the volume is gone."""
    if not isinstance(platform, ReadsVolumes):
        volume = need(platform, HasVolumes).get_volume(native_id)
        if volume is None:
            raise Unreachable(f"the volume {native_id} is not there any more")
        platform = need(platform, ReadsVolumes, native_id=native_id, region=volume.region or "its place")
    return platform.volume_channel(native_id, mount)


def spelled(adapter: str, known: str = "") -> str:
    """The adapter's name as the engine's state stores it, so that another machine can use it weeks later. `known`: what
    the state has now.

    An alias of this machine's SSH configuration is written together with the address behind it. Raises ConfigError.
    """
    name, _, address = adapter.partition(":")
    if not address:
        return adapter
    kept = known.partition(":")[2] if at_addresses(known, adapter) else ""
    return f"{name}:{_module(adapter).spelled(address, kept)}"


def has_address(adapter: str) -> bool:
    """Whether the name has the form `<adapter>:<address>`: then it is a single host, and no API knows its boxes."""
    return bool(adapter.partition(":")[2])


def at_addresses(one: object, other: object) -> bool:
    """Whether both name the same adapter with an address: then a change from one to the other changes the address."""
    if not (isinstance(one, str) and isinstance(other, str)):
        return False
    return one.partition(":")[0] == other.partition(":")[0] and has_address(one) and has_address(other)


def prove_same(adapter: str, former: str, native_id: str, account: str, host_keys: Sequence[str] | None) -> None:
    """Returns when the machine at `adapter` is proved to be the one that was at `former`. `host_keys`: the fingerprints
    that the state has of it; None: where no host key is known on this machine either, leave the proof to the update.

    Raises RequestRefused or WrongAccount for another machine, Unreachable (FolderLost, too) when that is not known now.
    """
    _module(adapter).prove_same(adapter.partition(":")[2], former.partition(":")[2], native_id, account, host_keys)


def _module(adapter: str) -> Any:
    name = adapter.partition(":")[0]
    if (loaded := _LOADED.get(name)) is not None:
        return loaded
    found = part_of(name)
    if found is None:
        raise ConfigError(f"{adapter!r} needs {not_here(folder_of(name))}; adapters that are: {', '.join(adapters())}")
    _LOADED[name] = found
    return found
