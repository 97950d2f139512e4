"""What has to hold by the platform's own books, after every command."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.chaos.engine import Outcome
from tests.simulators.rental import rental

NEXT = re.compile(
    r"pulumi (up|destroy|preview|refresh|cancel|stack)|sweepctl \w+|export [A-Z_]+=|[A-Z]+_API_KEY|"
    r"[Rr]un the command again"
)
NOTHING = re.compile(r"nothing (of it )?(exists|bills)|nothing was (rented|made)|was not (rented|made)")
AS_FOR = re.compile(r"^as for +box (\S+): .*\bnext\b", re.MULTILINE)
"""In the refusal of a second box: its next command is the one that was said of the first, in the same command."""
GENERATION = re.compile(r"-g\d+\Z")


@dataclass
class Judge:
    """`broke` is told every promise that did not hold. `names`: the boxes of the plan."""

    platform: str
    world: dict[str, Any]
    names: tuple[str, ...]
    broke: Callable[[str], None]

    def rentals(self, books: dict[str, Any]) -> list[dict[str, Any]]:
        """All boxes that were ever rented, but for those of other sweeps."""
        return [
            one
            for one in books["rentals"]
            if one["kind"] == rental(self.platform).box and one["id"] not in self.world["bystanders"]
        ]

    def hold_ends(self, calls: list[dict[str, Any]], reasons: dict[str, set[str]], recorded: set[str]) -> None:
        """`reasons`: native id → why it may end by this command; `recorded`: the ids that state or records have."""
        method, _, template = rental(self.platform).delete.partition(" ")
        for call in calls:
            if (call["method"], call["route"]) != (method, template):
                continue
            native_id = call["path"].rstrip("/").rpartition("/")[2]
            if native_id in self.world["bystanders"]:
                self.broke(f"ended: {native_id} is another sweep's")
            if not reasons.get(native_id) and native_id in recorded:
                self.broke(f"ended: {native_id} was to be ended without a reason")

    def hold_books(self, books: dict[str, Any], ids: set[str], tags: set[str]) -> None:
        """`ids`: those that the state or open records have; `tags`: those of open records without an id."""
        rentals = self.rentals(books)
        for one in rentals:
            if one["ended"] is None and one["id"] not in ids and one["tag"] not in tags:
                self.broke(f"leaked: {one['id']} ({one['tag']}) is known to nobody")
        for number, one in enumerate(rentals):
            for other in rentals[number + 1 :]:
                same = GENERATION.sub("", one["tag"]) == GENERATION.sub("", other["tag"])
                overlap = one["ended"] is None or one["ended"] > other["begun"]
                if same and overlap:
                    self.broke(f"doubled: {one['id']} and {other['id']} ({other['tag']}) lived at the same time")

    def hold_words(self, outcome: Outcome, books: dict[str, Any], *, several: bool) -> None:
        """`several`: two commands ran at once, so that one's "nothing" may be the other's box."""
        living = [rental for rental in self.rentals(books) if rental["ended"] is None]
        for error in outcome.errors:
            first = error.splitlines()[0][:160]
            if any(self.world[key] in error for key in ("key", "other_key")):
                self.broke(f"said: a key in {first}")
            if "internal error in sweepstack" in error:
                self.broke(f"said: {error}")
            elif not NEXT.search(error) and not _told_of_another(error, outcome.errors):
                self.broke(f"said: no next command in: {error}")
                continue
            for one in living:
                box = box_of(one["tag"])
                about = re.search(rf"\bbox {box}\b", error) is not None
                if about and not several and NOTHING.search(error):
                    self.broke(f"said: {first!r}, and {one['id']} bills")
            if living and not any(name in error for name in self.names) and not any(r["id"] in error for r in living):
                self.broke(f"said: {first!r} does not name what may bill ({[r['id'] for r in living]})")


def _told_of_another(error: str, errors: Sequence[str]) -> bool:
    """Whether the message leaves its next command to that of another box, which has one."""
    named = AS_FOR.search(error)
    return named is not None and any(f"Box {named[1]}:" in other and NEXT.search(other) for other in errors)


def box_of(tag: str) -> str:
    """`box-0` of `sweepstack-<identity>-box-0-g1`."""
    return GENERATION.sub("", tag).split("-", 2)[-1]
