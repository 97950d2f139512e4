"""A volume that outlived its sweep: its cost, its size, and the command that ends it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sweepstack.onbox.common.units import spell_bytes


@dataclass(frozen=True)
class Leftover:
    """One such volume. `usd_per_month`: None unknown; `size_gb`: what was rented; `used_bytes`: what is on it, at least
    that where not all could be counted (`more`); `note`: why no more is known."""

    platform: str
    native_id: str
    name: str
    where: str = ""
    usd_per_month: float | None = None
    size_gb: int | None = None
    used_bytes: int | None = None
    more: bool = False
    note: str = ""

    @property
    def end(self) -> str:
        """The command that ends it, after its check."""
        return end_command(self.platform, self.native_id)

    @property
    def may_bill(self) -> bool:
        """Whether it bills by the month, or may: a platform did not say whether it is there, or what it costs."""
        own_disk = (
            self.platform == "local" or ":" in self.platform
        )  # this computer's, or a host's: costs nothing itself
        return bool(self.usd_per_month) or (self.usd_per_month is None and not own_disk)

    @property
    def words(self) -> str:
        """`costs nothing, takes 97.2 MB`."""
        return self.note or takes_words(self.usd_per_month, self.size_gb, self.used_bytes, more=self.more)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "platform": self.platform,
            "native_id": self.native_id,
            "name": self.name,
            "where": self.where or None,
            "usd_per_month": self.usd_per_month,
            "size_gb": self.size_gb,
            "used_bytes": self.used_bytes,
            "note": self.note or None,
            "end": self.end,
        }


def end_command(platform: str | None, native_id: str | None, *, lose: bool = False) -> str:
    """The command that ends one thing that no state has, after its check. `lose`: what is on it is given up."""
    return f"sweepctl audit --end {platform}:{native_id}" + (' --abandon --reason "…"' if lose else "")


def takes_words(per_month: float | None, size_gb: int | None, used: int | None, *, more: bool = False) -> str:
    """What a volume costs and how large it is: `costs nothing, takes 97.2 MB`, `costs $7.00/month, has 100 GB`."""
    cost = "price unknown" if per_month is None else f"costs ${per_month:.2f}/month" if per_month else "costs nothing"
    if used is not None:
        return f"{cost}, takes {'at least ' if more else ''}{spell_bytes(used)}"
    return f"{cost}, has {size_gb} GB" if size_gb else cost


def leftover_lines(left: Iterable[Leftover]) -> list[str]:
    """What people read of them, with the command that ends each."""
    return [
        text
        for one in left
        for text in (f"volume {one.name} outlived its boxes: {one.words}", f"  to end it: {one.end}")
    ]
