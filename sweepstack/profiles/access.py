"""How a box is entered by SSH: the ways in, what its network needs, its own Python.

A profile states them where no API of ours rents or ends the box. A value is what the platform has; whether it is used
is the sweep's to say.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool

from sweepstack.config.network import Route
from sweepstack.profiles.fact import Fact

EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Moves = Literal["never", "create", "start"]


class SshFlavour(Fact):
    """One way in. `address` is for people, as the platform's console shows it. `files`: whether scp and rsync pass;
    where they don't, `why_not` tells people."""

    kind: Literal["direct", "proxied"]
    address: str
    files: StrictBool
    why_not: str = ""


class Ssh(Fact):
    """How one gets in: `user` (null: the person's to say), and the ways, the best first. `moves`: when host or port
    become others; null (unknown) counts as at each start."""

    user: str | None
    flavours: tuple[SshFlavour, ...] = Field(min_length=1)
    moves: Moves | None

    @property
    def for_files(self) -> SshFlavour | None:
        """The first way that passes files; None where none does."""
        return next((flavour for flavour in self.flavours if flavour.files), None)

    def problems(self) -> list[str]:
        """What doesn't fit together."""
        return [
            f"ssh.flavours: {flavour.kind} passes no files, and why_not does not say why"
            for flavour in self.flavours
            if not flavour.files and not flavour.why_not
        ]


class Proxy(Fact):
    """The platform's way out. `hook`: the shell line that turns it on, `off` the one that takes it back. `always`:
    every shell wants it; false: a single call at a time, since it is in the way of all others."""

    hook: str
    off: str = ""
    always: StrictBool


class Network(Fact):
    """What stands between a box and the world: a `proxy` (null: none), `mirrors` (route → environment variables) and
    `caches` (variable → where downloads are kept). On a host that is entered by SSH that is a path of the host's own,
    in which `~/` is the login's home; on a box that an API rents, a path below the box's folder: there is the room."""

    proxy: Proxy | None
    mirrors: dict[Route, dict[EnvName, str]] = Field(default_factory=dict)
    caches: dict[EnvName, str] = Field(default_factory=dict)

    @property
    def env(self) -> dict[str, str]:
        """All variables together."""
        return {name: value for route in self.mirrors.values() for name, value in route.items()} | self.caches

    def problems(self, *, entered: bool) -> list[str]:
        """What doesn't fit together. `entered`: its boxes are hosts that are entered by SSH."""
        named = [name for route in self.mirrors.values() for name in route] + list(self.caches)
        problems = [f"network: {name} is set twice" for name in sorted(set(named)) if named.count(name) > 1]
        right = "an absolute path or one below ~/" if entered else "a path below the box's folder, such as data/hf"
        return problems + [
            f"network.caches.{name} is {path!r}: expected {right}"
            for name, path in self.caches.items()
            if entered != path.startswith(("/", "~/")) or ".." in path.split("/") or not path
        ]


class Environment(Fact):
    """The Python that a box comes with, and the packages of its image that no requirements file may replace: they are
    built for its card and driver."""

    python: str = "python3"
    keep: tuple[str, ...] = ()


class OwnKey(Fact):
    """The key that the platform puts into each box, with which the box may stop itself: the variable's name, and the
    month in which a live run showed that it works; null: none did."""

    variable: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")]
    proved: Annotated[str | None, Field(pattern=r"^\d{4}-\d{2}$")] = None
