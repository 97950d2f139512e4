"""How a box is entered by SSH: the ways in, what its network needs, its own Python.

A profile states them where no API of ours rents or ends the box. A value is what the platform has; whether it is used
is the sweep's to say.
"""

from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool

from sweepstack.config.override import Route
from sweepstack.core.box_end import Moves
from sweepstack.profiles.layout import Fact

EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class SshFlavour(Fact):
    """One way in. `address` is for people, as the platform's console shows it. `files`: whether scp and rsync pass;
    where they don't, `why_not` tells people."""

    kind: Literal["direct", "proxied"]
    address: str
    files: StrictBool
    why_not: str = ""


class Ssh(Fact):
    """How one gets in: `user` (null: the person's to say), and the ways, the best first. `moves`: when host or port
    become others; null (unknown) counts as at each start, where a connection that fails is looked up again."""

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
            f"ssh.flavours.{index}: {flavour.kind} passes no files, and nothing says why; add why_not, or files: true"
            for index, flavour in enumerate(self.flavours)
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
    in which `~/` is the login's home; on a box that an API rents, a path below the box's folder: there is the room.
    `tensorboard`: the folder that the platform's own TensorBoard reads, where it has one; the outputs of cells are
    linked there."""

    proxy: Proxy | None
    mirrors: dict[Route, dict[EnvName, str]] = Field(default_factory=dict)
    caches: dict[EnvName, str] = Field(default_factory=dict)
    tensorboard: str | None = None

    @property
    def env(self) -> dict[str, str]:
        """All variables together."""
        return {name: value for route in self.mirrors.values() for name, value in route.items()} | self.caches

    def problems(self, *, entered: bool) -> list[str]:
        """What doesn't fit together. `entered`: its boxes are hosts that are entered by SSH."""
        named = [name for route in self.mirrors.values() for name in route] + list(self.caches)
        twice = sorted({name for name in named if named.count(name) > 1})
        right = "an absolute path or one below ~/" if entered else "a path below the box's folder, such as data/hf"
        return [f"network: {name} is set twice; take one of them out" for name in twice] + [
            f"network.caches.{name} is {path!r}, which lies elsewhere; write {right}"
            for name, path in self.caches.items()
            if entered != path.startswith(("/", "~/")) or ".." in path.split("/") or not path
        ]


class Environment(Fact):
    """The Python that a box comes with, and the packages of its image that no set-up replaces: they are built for its
    card and driver."""

    python: str = "python3"
    keep: tuple[str, ...] = ()


class ByHand(Fact):
    """How a person runs a box there that no program can reach (`extensions.by_hand`).

    `step`: what they do with the bundle, in words; `cell`: the notebook cell that does it, which is then written beside
    the bundle; `{bundle}` and `{id}` stand for the bundle's name and the box's id. `out`: where results are carried to
    there (null: to where the bundle lies); `work`: the folder on the machine's own disk that cells run in (null: the
    temporary one); `archive`: the folder in which all is packed into one file in the end (null: it is not);
    `inputs`: where an earlier session's results may lie. `hours`: how long a session runs cells before
    it ends itself, since the platform would end it with nothing kept; null: it does not. `passes`: variables of the
    session that cells need."""

    step: str
    cell: str = ""
    out: str | None = None
    work: str | None = None
    archive: str | None = None
    inputs: tuple[str, ...] = ()
    hours: Annotated[float, Field(gt=0)] | None = None
    passes: tuple[EnvName, ...] = ()

    def as_input(self) -> dict[str, Any]:
        """As the queue's input; what is empty is left out."""
        return {key: value for key, value in self.model_dump(mode="json").items() if value}


class OwnKey(Fact):
    """The key that the platform puts into each box, with which the box may stop itself: the variable's name, and the
    month in which a live run showed that it works; null: none did. `from_start`: the start command that the adapter
    sends stops a box with it on which nothing was launched; else such a box bills until a command ends that."""

    variable: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]*$")]
    proved: Annotated[str | None, Field(pattern=r"^\d{4}-\d{2}$")] = None
    from_start: bool = False
