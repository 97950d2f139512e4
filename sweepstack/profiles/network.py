"""The network of a box: by its profile, and what the stack config changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweepstack.config.override import NetworkOverride
from sweepstack.config.stack_config import StackConfig
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.profiles.model import Profile


@dataclass(frozen=True)
class Switched:
    """`env`: variables of mirrors and caches, in which `~/` is the login's home; `folders`: caches below the box's own
    folder; `proxy`: the lines that turn it on and off, "" for none; `always`: every set-up and cell has it on;
    `tensorboard`: the folder that the platform's own one reads, "" for none; `written`: caches that the stack file
    names."""

    env: Mapping[str, str]
    folders: Mapping[str, str]
    proxy: tuple[str, str] = ("", "")
    always: bool = False
    tensorboard: str = ""
    written: tuple[str, ...] = ()

    def as_input(self) -> dict[str, Any]:
        """What the box's processes are told; what is empty is left out."""
        on, off = self.proxy
        said = {"env": dict(sorted(self.env.items())), "folders": dict(sorted(self.folders.items()))}
        return {
            key: value
            for key, value in {
                **said,
                "written": sorted(self.written),
                "proxy_on": on,
                "proxy_off": off,
                "tensorboard": self.tensorboard,
            }.items()
            if value
        } | ({"proxy_always": True} if self.always and on else {})


def switched(config: StackConfig, profile: Profile) -> Switched:
    """What set-ups and cells see. Nothing where neither the profile nor a person says anything."""
    said = _override(config, profile)
    found = profile.network
    mirrors = {**(found.mirrors if found else {}), **said.mirrors}
    caches = {**(found.caches if found else {}), **said.caches}
    env = {name: value for route in mirrors.values() if route for name, value in route.items()}
    kept = {name: place for name, place in caches.items() if place is not False}
    folders = {name: place for name, place in kept.items() if not place.startswith(("/", "~/"))}
    env |= {name: place for name, place in kept.items() if name not in folders}
    written = tuple(said.caches)
    proxy = found.proxy if found else None
    tiles = (found.tensorboard if found else None) or ""
    if said.proxy is False or (proxy is None and not isinstance(said.proxy, str)):
        return Switched(env, folders, tensorboard=tiles, written=written)
    if isinstance(said.proxy, str):
        return Switched(env, folders, (said.proxy, ""), True, tiles, written)
    assert proxy is not None
    return Switched(env, folders, (proxy.hook, proxy.off), proxy.always or said.proxy is True, tiles, written)


def network_problems(config: StackConfig, profile: Profile) -> list[str]:
    """What is switched and is not there."""
    override = config.overrides.get(profile.platform)
    if override is None or override.network is None:
        return []
    where = f"overrides.{profile.platform}.network"
    if profile.network is None:
        return [f"{where}: its profile states no network to change; use job.env, or lines of job.setup"]
    said, problems = override.network, []
    if said.proxy is True and profile.network.proxy is None:
        problems.append(f"{where}.proxy: its profile knows none; write the shell line that turns yours on")
    for kind, names, known in (
        ("mirrors", said.mirrors, profile.network.mirrors),
        ("caches", said.caches, profile.network.caches),
    ):
        problems += [
            f"{where}.{kind}.{name}: there is none to switch off; it has {', '.join(known) or 'none'}"
            for name, value in names.items()
            if value is False and name not in known
        ]
    seen: dict[str, str] = {}
    routes = {**profile.network.mirrors, **said.mirrors}
    for route, variables in routes.items():
        for name in variables or ():
            if name in seen:
                problems.append(f"{where}: {name} is set by the mirrors of {seen[name]} and of {route}")
            seen[name] = route
    return problems


def _override(config: StackConfig, profile: Profile) -> NetworkOverride:
    override = config.overrides.get(profile.platform)
    return override.network if override is not None and override.network is not None else NetworkOverride()
