"""Bytes on a box that die with it and that nobody has spoken for: counted, named, and let go by a named word only.

What a cell leaves below its `{out}` is sealed, pulled and verified. What a job writes elsewhere (into its work dir, a
cache, a folder of its own) is not, and would die unseen. A file is spoken for when it is ours (journal, queue, runner,
set-up), was shipped, or is a cell's: then the cell's own state lets the box go or does not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from sweep import onbox
from sweep.channel.base import Listing
from sweep.journal import Journal
from sweep.loaders.base import printable
from sweep.model import Receipt, UnclaimedWaiver
from sweep.units import spell_bytes

ABOVE = 100_000_000
"""Bytes. More than this needs a person's word."""
LARGEST = 5
SHOWN = 200
"""Characters of a path that are shown."""
SKIP = (f"{onbox.HOME}/envs", f"{onbox.HOME}/setup", f"{onbox.HOME}/checkpoint", f"{onbox.HOME}/runner-*")
"""Our own folders, and environments that set-up makes anew: not worth a look at each file."""
CACHES = ("__pycache__",)
FILES = 200_000
SECONDS = 2.0
"""A look at a box counts no further than this: what is not counted is unknown."""

_HOME = onbox.HOME.split("/")
_OURS = re.compile(
    r"\.?(journal|queue|runner|spec|patrol|secrets|checkpoint|envs|setup|provenance|owner|decisions)([.-].*)?"
)
_SHIPMENT = re.compile(r"[0-9a-f]{64}")
_ATTEMPT = re.compile(r"[0-9]+(\.unrecorded-[0-9]+)?")
_BESIDE_OUT = (["log.txt"], ["pid"])
_RENAMED = {"log.txt": "log.out.txt", "manifest.json": "manifest.out.json"}
"""A job's own files of these names → what they are called in a manifest."""


@dataclass(frozen=True)
class Unclaimed:
    """How much there is, in bytes, and the largest files (path, bytes). `problem`: why not all could be counted."""

    files: int = 0
    bytes: int = 0
    largest: tuple[tuple[str, int], ...] = ()
    problem: str = ""

    def __bool__(self) -> bool:
        return bool(self.files or self.problem)

    @property
    def words(self) -> str:
        """One line for a person."""
        if not self.files:
            return f"not known: {self.problem}" if self.problem else "nothing"
        named = ", ".join(f"{path} {spell_bytes(size)}" for path, size in self.largest)
        more = self.files - len(self.largest)
        text = f"{_amount(self.files, self.bytes)}: {named}" + (f", and {more:,} more" if more else "")
        return f"at least {text}; not all could be counted: {self.problem}" if self.problem else text


def measure(
    listing: Listing | None,
    *,
    kills: Collection[str],
    box: str,
    generation: int,
    journal: Journal | None,
    receipt: Receipt | None,
) -> Unclaimed:
    """What on the tiers in `kills` (all that a box has, where that is empty) is nobody's. Pure.

    `listing`: what was seen of the box's own tiers, None when nothing could be. `receipt`: the one whose verified
    cells say which of a sealed attempt's files were sealed; cells that it does not have answer for all that is theirs.
    """
    if listing is None:
        return Unclaimed(problem="the box could not be read")
    sealed = _sealed(receipt, box, generation)
    cells = journal.cells if journal is not None else {}
    first_use = _first_use(journal)
    found = [
        (path, size)
        for path, size, changed in listing.files
        if (not kills or path.split("/", 1)[0] in kills)
        and not _spoken_for(path, size, changed, cells, sealed, first_use)
    ]
    largest = sorted(found, key=lambda file: (-file[1], file[0]))[:LARGEST]
    shown = tuple((_shown(path), size) for path, size in largest)
    return Unclaimed(len(found), sum(size for _, size in found), shown, listing.problem)


def lock_reason(found: Unclaimed, waiver: UnclaimedWaiver | None) -> str:
    """Why what is there keeps the box; empty when it is little, or no more than a person has let go."""
    if found.problem and not (waiver and waiver.uncounted):
        return f"what else lies on it could not all be counted: {found.problem}"
    if found.bytes <= ABOVE:
        return ""
    if waiver is None:
        return f"{_amount(found.files, found.bytes)} on it belong to no sealed cell and would die: {_first(found)}"
    if found.bytes > waiver.bytes or found.files > waiver.files:
        return (
            f"more unclaimed than was let go: {_amount(found.files, found.bytes)}, "
            f"{_amount(waiver.files, waiver.bytes)} were approved"
        )
    return ""


def _spoken_for(
    path: str,
    size: int,
    changed: float,
    cells: Mapping[str, object],
    sealed: Mapping[str, Mapping[str, int]],
    first_use: Mapping[str, float],
) -> bool:
    parts = path.split("/")
    if path.endswith(".pyc") and any(part in CACHES for part in parts[:-1]):
        return True
    if parts[:2] == ["scratch", "sweep"] and len(parts) > 3:
        return parts[2] in cells  # declared to go once the cell is sealed; before that, the cell keeps the box
    if parts[: len(_HOME)] != _HOME or len(parts) <= len(_HOME):
        return False
    kind, *rest = parts[len(_HOME) :]
    if kind == "code":
        # Shipped before the first cell that ran it began. What came into it since is what jobs wrote beside it.
        shipped = len(rest) > 1 and _SHIPMENT.fullmatch(rest[0]) is not None  # `../outputs` is a job's
        return shipped and changed < first_use.get(rest[0], float("inf"))
    if kind == "cells":
        return len(rest) > 2 and rest[0] in cells and _cells_own(rest, size, sealed)
    return _OURS.fullmatch(kind) is not None


def _cells_own(rest: list[str], size: int, sealed: Mapping[str, Mapping[str, int]]) -> bool:
    """`rest`: cell, attempt, and the path in it. In the attempt that was verified, only what its manifest names.

    What lies beside `out`, or beside the attempts, is in no manifest: a job's `{out}/../best.pt`.
    """
    cell, attempt, *inside = rest
    if not _ATTEMPT.fullmatch(attempt) or (inside[0] != "out" and inside not in _BESIDE_OUT):
        return False
    named = sealed.get(f"{cell}/{attempt}")
    if named is None or inside[0] != "out":
        return True
    path = "/".join(inside[1:])
    return named.get(_RENAMED.get(path, path)) == size


def _sealed(receipt: Receipt | None, box: str, generation: int) -> dict[str, dict[str, int]]:
    """`<cell>/<attempt>` of this box's verified cells → the sealed files and their sizes."""
    return {
        f"{cell.name}/{cell.attempt}": {file.path: file.size for file in cell.files}
        for cell in (receipt.cells if receipt else ())
        if cell.state == "verified" and (cell.box, cell.generation) == (box, generation)
    }


def _first_use(journal: Journal | None) -> dict[str, float]:
    """Code (bare hex) → when the first cell that ran it began, by the box's clock."""
    found: dict[str, float] = {}
    for entry in journal.entries if journal else ():
        if entry["event"] == "cell-started":
            code = str(entry.get("code", "")).removeprefix("sha256:")
            if code not in found:
                found[code] = datetime.fromisoformat(str(entry["time"])).timestamp()
    return found


def _shown(path: str) -> str:
    """For people: a digest in it is cut, and enough of it left for the shell to complete."""
    return printable(re.sub(r"(?<![0-9a-f])([0-9a-f]{12})[0-9a-f]{52}(?![0-9a-f])", r"\1*", path), SHOWN)


def _amount(files: int, size: int) -> str:
    return f"{files:,} file{'' if files == 1 else 's'}, {spell_bytes(size)}"


def _first(found: Unclaimed) -> str:
    return ", ".join(f"{path} {spell_bytes(size)}" for path, size in found.largest[:2])
