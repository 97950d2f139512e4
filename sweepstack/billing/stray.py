"""A box or a volume that bills, or may, and that a state lacks or has wrongly."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal

from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.units import spell_bytes

Standing = Literal["", "known", "recorded", "survived", "duplicate", "unknown", "vanished", "foreign"]
"""known: in a state. recorded: in a sweep's records, in no state. survived: a volume of a sweep that has ended all its
boxes. duplicate: a state or a record has another box with the same tag. unknown: in no state and no record. vanished:
in a state, and the platform proves that it is gone. foreign: in a state, in an account for which this shell has no
key. Only a look at whole accounts says it."""

DOCUMENTS: Mapping[str, str] = {
    "unknown": "kind box=name? native_id? platform? tag? price_per_hour why next at_rest",
    "volumes_left": "platform native_id name where? usd_per_month=price_per_month size_gb used_bytes note=why? end",
    "by_hand": "platform native_id phase price_per_hour next",
    "findings": "kind platform native_id tag standing phase price_per_hour price_per_month size_gb used_bytes where "
    "known_to=whose holds? owner? next? give_up?",
}
"""What a document of `status` or `audit` tells, by the names that each has always had: the key, and after `=` the name
here; `?`: null in place of an empty text."""


@dataclass(frozen=True)
class Stray:
    """A box or a volume; a `claim` of the state that it may end, or an `entry` of it that does not read. What is not
    known is "" or None. `name`: of the box in its sweep, or of the volume; `why`: what is wrong with it, or what was
    in the way of knowing more. `next`: the command that settles it, "" if none is needed or can be recommended.

    `whose`: the stacks that know it. `holds`: what is on it; `owner`: who holds it, and until when; `give_up`: the
    command that ends it and loses its data; `unopened`: whether it is ours and its evidence does not open here.
    """

    kind: Literal["box", "volume", "claim", "entry"]
    platform: str
    native_id: str
    tag: str = ""
    name: str = ""
    standing: Standing = ""
    phase: str = ""
    price_per_hour: float | None = None
    price_per_month: float | None = None
    why: str = ""
    next: str = ""
    where: str = ""
    whose: tuple[str, ...] = ()
    account: str = ""
    holds: str = ""
    owner: str = ""
    give_up: str = ""
    unopened: bool = False
    size_gb: int | None = None
    """What was rented."""
    used_bytes: int | None = None
    """What is on it; at least that where `used_more`."""
    used_more: bool = False
    since: datetime | None = None
    proved: bool = True
    """False: whether it is there could not be found out."""
    at_rest: bool = False
    """Whether its platform calls it stopped."""
    renamed: bool = False
    """Its project had another name: the state of that project may have it, so it is not given up from here."""

    @property
    def stateless(self) -> bool:
        """Whether no state has it."""
        return self.standing in ("recorded", "survived", "duplicate", "unknown")

    @property
    def bills_unknown(self) -> bool:
        """Whether it costs money, or may, and no state knows of it."""
        return self.stateless and not (self.kind == "volume" and self.price_per_month == 0)

    @property
    def end(self) -> str:
        """The command that ends it, after its check."""
        return end_command(self.platform, self.native_id)

    @property
    def may_bill(self) -> bool:
        """Of a volume: whether it bills by the month, or may: a platform did not say whether it is there, or what it
        costs."""
        own_disk = self.platform == "local" or ":" in self.platform  # this computer's, or a host's: costs nothing
        return bool(self.price_per_month) or (self.price_per_month is None and not own_disk)

    @property
    def words(self) -> str:
        """Of a volume: `costs nothing, takes 97.2 MB`."""
        return self.why or takes_words(self.price_per_month, self.size_gb, self.used_bytes, more=self.used_more)

    def as_json(self, document: str) -> dict[str, Any]:
        """For programs, as in this one of `DOCUMENTS`."""
        told: dict[str, Any] = {}
        for word in DOCUMENTS[document].split():
            key, _, name = word.rstrip("?").partition("=")
            value = getattr(self, name or key)
            told[key] = (
                None if value == "" and word.endswith("?") else list(value) if isinstance(value, tuple) else value
            )
        return told


def end_command(platform: str | None, native_id: str | None, *, lose: bool = False) -> str:
    """The command that ends one thing that no state has, after its check. `lose`: what is on it is given up."""
    return f"sweepctl audit --end {platform}:{native_id}" + (' --abandon --reason "…"' if lose else "")


def import_command(stack: str, name: str, at: str, kind: str = "Box") -> str:
    """The command that brings what was rented by hand (`at`: PLATFORM:ID) into the state of a stack."""
    return f"pulumi import --stack {stack} sweepstack:index:{kind} {name} {at}"


def forget_command(stack: str, urn: str) -> str:
    """The command that takes an entry out of the engine's state. What it stands for stays as it is."""
    return shlex.join(["pulumi", "state", "delete", "--stack", stack, "--force", urn])


def not_taken(what: str, costs: str, named: str, stack: str, urn: str) -> str:
    """What was imported and is not in the stack file yet, and the two ways on. `named`: what to write there."""
    return (
        f"{what} was imported, and no `up` has taken it: {costs}, and no command here ends it. Next: {named} in the "
        f"stack file, and pulumi up --stack {stack}; or, to leave it as it was: {forget_command(stack, urn)}"
    )


def takes_words(per_month: float | None, size_gb: int | None, used: int | None, *, more: bool = False) -> str:
    """What a volume costs and how large it is: `costs nothing, takes 97.2 MB`, `costs $7.00/month, has 100 GB`."""
    cost = "price unknown" if per_month is None else f"costs ${per_month:.2f}/month" if per_month else "costs nothing"
    if used is not None:
        return f"{cost}, takes {'at least ' if more else ''}{spell_bytes(used)}"
    return f"{cost}, has {size_gb} GB" if size_gb else cost


def leftover_lines(left: Iterable[Stray]) -> list[str]:
    """What people read of them, with the command that ends each."""
    return [
        text
        for one in left
        for text in (f"volume {one.name} outlived its boxes: {one.words}", f"  to end it: {one.end}")
    ]
