"""Counts and names the files that would die with a box and that no record covers (unclaimed files).

What a cell leaves below its `{out}` is sealed, pulled and verified. What a job writes elsewhere (into its work dir, a
cache, a folder of its own) is not, and would die unseen: a person has to give it up by name. A file is claimed if
sweepstack made it (journal, queue, runner, set-up), if it was shipped, or if it is a cell's: then the cell's own state
lets the box go or does not.
"""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import NamedTuple
from urllib.parse import quote_from_bytes

from sweepstack.core.journal import Journal
from sweepstack.core.printable import printable
from sweepstack.core.records import Receipt, UnclaimedWaiver
from sweepstack.onbox.agent.channel import Listing
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import DIGEST_PREFIX, digest_of, hex_of
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import EvidenceError
from sweepstack.onbox.common.units import spell_bytes

ABOVE = 100_000_000
"""Bytes. More than this keeps the box until a person gives it up."""
BY_HAND = "it was rented by hand, and what its owner left outside of the sweep's folders is not ours to count"
LARGEST = 5
SHOWN = 200
"""Characters of a path that are printed."""
SKIP = (f"{box_layout.HOME}/envs/" + "[0-9a-f]" * 16,)
"""Names of environments that set-up makes anew; their files are not looked at one by one."""
CACHES = ("__pycache__",)
FILES = 200_000
SECONDS = 2.0
"""Seconds that a look at a box counts files. What is not counted then is unknown."""

MOVED = 1e-5
"""Seconds. So much a ctime loses as a floating-point number."""
_HOME = box_layout.HOME.split("/")
_OURS = re.compile(
    r"(journal|queue|patrol|patrol\.1)\.jsonl|(queue|runner|lease)\.lock|runner\.(pid|log|pulse)|(spec|secrets)\.json|keep-on"
    r"|looked|on-start|owner\.json|policy\.json|decisions\.jsonl(\.lock)?|setup/(nodes-)?[0-9a-f]{16}\.(log|pid)|checkpoint/sweepstack_[a-z]+\.py"
    r"|runner-[0-9a-f]{12}/(?:runner[a-z_]*|nodes|sweepstack/(?:onbox/(?:(?:common|longer|nodes|runner)/)?)?[a-z_]+)\.py"
    r"|nodes/nodes-[0-9a-f]{16}(\.asked)?\.json"
    r"|provenance/[0-9a-f]{64}\.json|shipped/[0-9a-f]{64}\.(files|made)\.json"
    r"|lock/(?:[0-9]+(?:\.free)?|\.[a-z-]+[0-9a-f]{16})"
    r"|workers/[A-Za-z0-9._+-]+/(?:worker\.json|patrol(?:\.1)?\.jsonl|runner\.(?:log|pulse))"
    r"|submit\.lock|jobs/(?:batch\.sh|closed|[0-9]+_[0-9]+\.log)|api/ended/[0-9a-f-]{36}\.json"
    r"|pilot-[0-9a-f]{12}/(?:pilot|worker_state|sweepstack/(?:onbox/(?:[a-z]+/)?)?[a-z_]+)\.py"
)
"""All that runner, channel and launch write below our folder. A file with only a similar name is a job's."""
_AS_IT_IS = " !#$&'()+,;=@[]^{}~`"
_LOWER = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789._-")
_BESIDE_OUT = (["log.txt"], ["pid"], ["nodes.json"], ["left.json"], ["remains.json"])
_RENAMED = {"log.txt": "log.out.txt", "manifest.json": "manifest.out.json"}
"""A job's own files of these names → what they are called in a manifest."""


@dataclass(frozen=True)
class Unclaimed:
    """The number and bytes of unclaimed files, and the largest of them (path, bytes). `problem`: why not all could be
    counted.

    `listed`: the digest of the whole list, with each file's size and last change; "" if there is none. `artifacts`:
    those of them that are a cell's artifacts and changed after its seal: they keep the box, however small they are.
    """

    files: int = 0
    bytes: int = 0
    largest: tuple[tuple[str, int], ...] = ()
    problem: str = ""
    listed: str = field(default="", compare=False)
    artifacts: tuple[str, ...] = ()

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
    codes: Callable[[], Collection[str]] = tuple,
    by_hand: Callable[[], bool] = bool,
) -> Unclaimed:
    """The files on the tiers in `kills` (on all tiers, if that is empty) that belong to no sealed cell.

    `listing`: what was seen of the box's own tiers, None if nothing could be. `receipt`: its verified cells say which
    files of a sealed attempt were sealed; a cell that it does not have covers all its own files. `codes`: the versions
    of the code (`sha256:<hex>`) that were ever shipped; asked only if the journal does not know all. `by_hand`:
    whether it was rented by hand; what lies outside of our folders is not counted then, and may be anything. Asked only
    where the listing is whole.
    """
    if listing is None:
        return Unclaimed(problem="the box could not be read")
    logs = {path: changed for path, _, changed in listing.files if path.endswith("/log.txt")}
    known = _Known(journal, _sealed(receipt, box, generation), codes, logs)
    found = sorted(
        (path, size, changed)
        for path, size, changed in listing.files
        if (not kills or path.split("/", 1)[0] in kills) and not known.is_claimed(path, size, changed)
    )
    largest = sorted(found, key=lambda file: (-file[1], file[0]))[:LARGEST]
    shown = tuple((_shown(path), size) for path, size, _ in largest)
    # A file's ctime can't be set back: another file in its place, or other bytes in it, changes it.
    listed = digest_of([[path, size, round(changed * 1e6)] for path, size, changed in found]) if found else ""
    artifacts = tuple(_shown(path) for path, _, _ in found if path in known.rewritten)
    problem = listing.problem or (BY_HAND if by_hand() else "")
    return Unclaimed(len(found), sum(size for _, size, _ in found), shown, problem, listed, artifacts)


def lock_reason(found: Unclaimed, waiver: UnclaimedWaiver | None) -> str:
    """Why these files keep the box; "" if they are few bytes and no artifact, or exactly those that a person gave up.

    If not all could be counted, lists can't be compared: then a waiver that covers this holds up to its counts.
    """
    if found.problem and not (waiver and waiver.uncounted):
        return f"what else lies on it could not all be counted: {found.problem}"
    if found.bytes <= ABOVE and not found.artifacts:
        return ""
    if found.artifacts and waiver is None:
        others = f" and {len(found.artifacts) - 1} more" if len(found.artifacts) > 1 else ""
        return f"{found.artifacts[0]}{others} changed on it after the seal: what the evidence has is older"
    if waiver is None:
        return f"{_amount(found.files, found.bytes)} on it belong to no sealed cell and would die: {_first(found)}"
    now, then = _amount(found.files, found.bytes), _amount(waiver.files, waiver.bytes)
    if found.problem:
        more = found.bytes > waiver.bytes or found.files > waiver.files
        return f"more unclaimed than was let go: {now}, {then} were approved" if more else ""
    if waiver.listed is None:
        return (
            f"{now} on it belong to no sealed cell, and the approval that lets {then} go is of an older sweepctl, "
            f'which kept no list: run `sweepctl give-up unclaimed/{waiver.box} --reason "…"` again'
        )
    if waiver.listed != found.listed:
        return (
            f"the unclaimed files are not those that were let go: {now}, {then} were approved, or a file changed since"
        )
    return ""


class _Known:
    """What our records say was written on a box, and by which cell."""

    def __init__(
        self,
        journal: Journal | None,
        sealed: Mapping[str, _Sealed],
        codes: Callable[[], Collection[str]],
        logs: Mapping[str, float],
    ) -> None:
        """`logs`: the log of each attempt → its last change."""
        entries = journal.entries if journal is not None else ()
        self._cells = journal.cells if journal is not None else {}
        self._attempts = {
            f"{line['cell']}/{line['attempt']}" for line in entries if "attempt" in line and "cell" in line
        }
        self._sealed, self._logs = sealed, logs
        self._stamps = {
            f"{line['cell']}/{line['attempt']}": line["stamps"]
            for line in entries
            if line["event"] == "cell-sealed" and isinstance(line.get("stamps"), dict)
        }
        self.rewritten: set[str] = set()
        """Artifacts that changed after their seal, of the paths that were asked for."""
        self._first_use = _first_use(journal)
        self._codes, self._shipped = codes, dict[str, bool]()

    def is_claimed(self, path: str, size: int, changed: float) -> bool:
        """Whether this file of the box is claimed: it is ours, was shipped, or is a cell's."""
        parts = path.split("/")
        if path.endswith(".pyc") and any(part in CACHES for part in parts[:-1]):
            return True
        if parts[:2] == ["scratch", "sweep"] and len(parts) > 3:
            return parts[2] in self._cells  # not kept once the cell is sealed; before that, the cell keeps the box
        if parts[: len(_HOME)] != _HOME or len(parts) <= len(_HOME):
            return False
        kind, *rest = parts[len(_HOME) :]
        if kind == "code":
            # Code is shipped before the first cell that runs it begins. What came later, jobs wrote beside it.
            shipped = len(rest) > 1 and self._is_code(rest[0])  # `../outputs` is a job's
            return shipped and changed < self._first_use.get(rest[0], float("inf"))
        if kind == "cells":
            return len(rest) > 2 and rest[0] in self._cells and self._cells_own(path, rest, size, changed)
        return _OURS.fullmatch("/".join([kind, *rest])) is not None

    def _is_code(self, name: str) -> bool:
        if name in self._first_use:
            return True
        if name not in self._shipped:
            try:
                self._shipped[name] = DIGEST_PREFIX + name in self._codes()
            except EvidenceError:  # not known to be ours
                self._shipped[name] = False
        return self._shipped[name]

    def _cells_own(self, file: str, rest: list[str], size: int, changed: float) -> bool:
        """`rest`: cell, attempt, and the path in it. In the attempt that was verified, only files that its manifest
        names are the cell's.

        Files beside `out`, or beside the attempts, are in no manifest (a job's `{out}/../best.pt`), and neither are
        files in an attempt that the journal does not know.
        """
        cell, attempt, *inside = rest
        if f"{cell}/{attempt}" not in self._attempts or (inside[0] != "out" and inside not in _BESIDE_OUT):
            return False
        sealed = self._sealed.get(f"{cell}/{attempt}")
        if sealed is None or inside[0] != "out":
            return True
        path = "/".join(inside[1:])
        same = size in (sealed.sizes.get(name) for name in (_RENAMED.get(path, path), *_escaped(path)))
        if path in sealed.artifacts and not (same and self._untouched(f"{cell}/{attempt}", "/".join(inside), changed)):
            self.rewritten.add(file)
            return False
        return same

    def _untouched(self, attempt: str, path: str, changed: float) -> bool:
        """Whether a file last changed when the seal says so. Where the attempt's log did not, either, the whole tree
        was copied since, and times tell nothing; neither does an older version's seal, which has none."""

        def moved(name: str, at: float | None) -> bool:
            stamp = self._stamps.get(attempt, {}).get(name)
            return stamp is None or at is None or abs(at - stamp / 1e9) > MOVED

        log = self._logs.get(f"{box_layout.HOME}/cells/{attempt}/log.txt")
        return moved("log.txt", log) or not moved(path, changed)


def _escaped(path: str) -> tuple[str, ...]:
    """The names under which the runner may have sealed a file whose own name no evidence can hold
    (onbox/runner/sealing.py)."""
    whole = os.fsencode(path)
    by_part = "/".join(
        "%_" + quote_from_bytes(os.fsencode(part), safe=_AS_IT_IS) if _is_odd(part) else part
        for part in path.split("/")
    )
    above, slash, last = path.rpartition("/")
    by_case = above + slash + "%_" + "".join(chr(b) if b in _LOWER else f"%{b:02X}" for b in os.fsencode(last))
    return by_part, by_case, "%_" + hashlib.sha256(whole).hexdigest()


def _is_odd(part: str) -> bool:
    unheld = any(char == "\\" or unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") for char in part)
    return unheld or part.startswith("%_")


class _Sealed(NamedTuple):
    """The files of a verified cell: their sizes, and which are artifacts."""

    sizes: dict[str, int]
    artifacts: frozenset[str]


def _sealed(receipt: Receipt | None, box: str, generation: int) -> dict[str, _Sealed]:
    """`<cell>/<attempt>` of this box's verified cells → the sealed files."""
    return {
        f"{cell.name}/{cell.attempt}": _Sealed(
            {file.path: file.size for file in cell.files},
            frozenset(file.path for file in cell.files if file.role == "artifact"),
        )
        for cell in (receipt.cells if receipt else ())
        if cell.has_result and (cell.box, cell.generation) == (box, generation)
    }


def _first_use(journal: Journal | None) -> dict[str, float]:
    """Code (bare hex) → when the first cell that ran with it began, by the box's clock."""
    found: dict[str, float] = {}
    for entry in journal.entries if journal else ():
        if entry["event"] == "cell-started":
            code = hex_of(str(entry.get("code", "")))
            if code not in found:
                found[code] = datetime.fromisoformat(str(entry["time"])).timestamp()
    return found


def _shown(path: str) -> str:
    """The path for people: a digest in it is cut to its first 12 digits and `*`, which a shell can complete."""
    return printable(re.sub(r"(?<![0-9a-f])([0-9a-f]{12})[0-9a-f]{52}(?![0-9a-f])", r"\1*", path), SHOWN)


def _amount(files: int, size: int) -> str:
    return f"{files:,} file{'' if files == 1 else 's'}, {spell_bytes(size)}"


def _first(found: Unclaimed) -> str:
    return ", ".join(f"{path} {spell_bytes(size)}" for path, size in found.largest[:2])
