"""Copies an unsealed attempt's files into the evidence, within bounds; names the rest."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sweepstack.core.journal import Journal
from sweepstack.evidence.kept import log_goes_on, put
from sweepstack.evidence.masking import hidden_on, masked
from sweepstack.evidence.pull_cell import PARTIAL, require_room
from sweepstack.evidence.unsealed import (
    LOG,
    NAMED,
    KeptFile,
    LeftFile,
    Unsealed,
    UnsealedOfBox,
    ended_unsealed,
    key_of,
    name_of,
    of_box,
    record_of,
    recorded,
)
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import sha256_hex
from sweepstack.onbox.common.errors import PlatformError, Unreachable

if TYPE_CHECKING:
    from sweepstack.evidence.store import EvidenceStore
    from sweepstack.onbox.agent.channel import Channel

MOST_BYTES = 64 << 20
"""Of one cell, from one box, all its attempts together. Later attempts come first."""
MOST_FILES = 200
"""Of one attempt. Its log comes first, then the smallest files."""
LOG_BYTES = 8 << 20
"""Of one log: its end, where it is longer."""
LOG_END_BYTES = 64 << 10
"""Of a log, also where MOST_BYTES is used up."""
WALK_FILES = 100_000
WALK_SECONDS = 20.0

_CELL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
_LONGEST_NAME = 255


def bring(channel: Channel, box: str, generation: int, journal: Journal, store: EvidenceStore) -> list[Unsealed]:
    """Copies what every attempt that ended unsealed left on the box; returns those that were copied now. Idempotent.

    A file that can't be read on a box which answers is named as left, with the reason. Raises Unreachable when the box
    is cut off on the way (call again: it goes on), EvidenceError when the evidence can't be written. Costs nothing.
    """
    running = any(progress.state == "running" for progress in journal.cells.values())
    dead = running and not channel.lock_held(box_layout.RUNNER_LOCK)
    over = set(ended_unsealed(journal, dead=False))
    before = {(one.cell, one.attempt): one for one in of_box(store, box, generation).attempts}
    wanted = [
        one
        for one in ended_unsealed(journal, dead=dead)
        if _CELL.fullmatch(one[0]) and (one not in before or (one in over and not before[one].ended))
    ]
    if not wanted:
        return []
    work = _Work(channel, box, generation, store, before)
    brought: list[Unsealed] = []
    try:
        listed = work.listed(wanted)
        for one in reversed(wanted):  # later attempts of a cell first
            brought.append(work.bring(*one, *listed[one], ended=one in over))
    finally:
        work.close()
        if brought:
            _write(store, box, generation, brought)
    return brought


def _write(store: EvidenceStore, box: str, generation: int, brought: Sequence[Unsealed]) -> None:
    def change(known: UnsealedOfBox | None) -> UnsealedOfBox:
        attempts = {(one.cell, one.attempt): one for one in (*(known.attempts if known else ()), *brought)}
        ordered = tuple(attempts[key] for key in sorted(attempts))
        return UnsealedOfBox(box=box, generation=generation, attempts=ordered)

    store.update_record(record_of(box, generation), UnsealedOfBox, change)


class Left(NamedTuple):
    """A file that an attempt left: its path inside the attempt's folder, its bytes, and where it is read from on the
    box; "" where it is none that can be copied, `why`. `linked`: another file may be the same."""

    path: str
    size: int
    source: str
    why: str = ""
    linked: bool = False


Files = list[Left]


class _Work:
    """One box's attempts on their way into the evidence."""

    def __init__(
        self,
        channel: Channel,
        box: str,
        generation: int,
        store: EvidenceStore,
        before: Mapping[tuple[str, int], Unsealed],
    ) -> None:
        self._channel, self._box, self._generation, self._store = channel, box, generation, store
        self._before = before
        self._used: dict[str, int] = {}
        for (cell, _), one in before.items():
            self._used[cell] = self._used.get(cell, 0) + one.bytes
        self._secrets: list[bytes] | None = None
        self._folder = store.workplace / PARTIAL / ".unsealed"

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def listed(self, wanted: Sequence[tuple[str, int]]) -> dict[tuple[str, int], tuple[Files, str]]:
        """The files of each attempt, and what was in the way of listing all of them."""
        folders = {box_layout.attempt_dir(*one): one for one in wanted}
        listing = self._channel.walk(list(folders), limit=WALK_FILES, seconds=WALK_SECONDS)
        if listing.problem and len(wanted) > 1:  # one attempt with very many files must not hide the others
            return {one: found for one in wanted for found in self.listed([one]).values()}
        found: dict[tuple[str, int], tuple[Files, str]] = {one: ([], listing.problem) for one in wanted}
        depth = len(box_layout.CELLS.split("/")) + 2

        def add(path: str, size: int, source: str, why: str = "", linked: bool = False) -> None:
            parts = path.split("/")
            one = folders.get("/".join(parts[:depth]))
            inside = "/".join(parts[depth:])
            if one is not None and (inside in (LOG, "out") or inside.startswith("out/")):
                found[one][0].append(Left(inside, size, source, why, linked))

        for path, size, _ in listing.files:
            add(path, size, path)
        for other in self._channel.others(list(folders), seconds=WALK_SECONDS):
            cell = folders.get("/".join(other.path.split("/")[:depth]), ("", 0))[0]
            if self._is_of(cell, other.means):
                add(other.path, other.size, other.means, linked=True)
            else:
                add(other.path, 0, "", f"it is {other.what}"[:200])
        return found

    def _is_of(self, cell: str, path: str) -> bool:
        """Whether a file of the box lies in a folder of this cell."""
        tier = f"{box_layout.DURABLE}/{self._store.marker.identity}/checkpoints"
        return path.startswith(tuple(f"{folder}/{cell}/" for folder in (box_layout.CELLS, "scratch/sweep", tier)))

    def bring(self, cell: str, attempt: int, files: Files, problem: str, *, ended: bool) -> Unsealed:
        """Copies what fits, and names the rest."""
        before = self._before.get((cell, attempt))
        used = self._used.get(cell, 0) - (before.bytes if before else 0)
        room = MOST_BYTES - used
        wanted: Files = []
        left: list[LeftFile] = []
        kept: list[KeptFile] = []
        for one in sorted(files, key=lambda file: (file.path != LOG, file.linked, file.size, file.path)):
            path, size, told = one.path, one.size, recorded(one.path)
            if one.why:
                left.append(LeftFile(path=told[:_LONGEST_NAME], size=size, why=recorded(one.why)))
            elif path == LOG:
                most = max(min(LOG_BYTES, room), LOG_END_BYTES)
                kept += self._log(cell, attempt, size, most, left)
                room -= min(size, most)
            elif not _fits_a_name(told):
                left.append(LeftFile(path=told[:_LONGEST_NAME], size=size, why="its name is too long for a copy"))
            elif len(wanted) + 1 >= MOST_FILES:
                left.append(LeftFile(path=told, size=size, why=f"{MOST_FILES} files of an attempt are copied"))
            elif size > room:
                why = f"{MOST_BYTES >> 20} MiB of a cell are copied from a box"
                left.append(LeftFile(path=told, size=size, why=why))
            else:
                wanted.append(one)
                room -= size
        kept += self._files(cell, attempt, wanted, left)
        left.sort(key=lambda file: -file.size)
        # What was copied while its processes may have gone on, and is not there any more, is still in the evidence.
        copies = {file.path: file for file in (*(before.files if before else ()), *kept)}
        self._used[cell] = used + sum(file.size for file in copies.values())
        return Unsealed(
            cell=cell,
            attempt=attempt,
            ended=ended,
            files=tuple(sorted(copies.values(), key=lambda file: file.path)),
            left=tuple(left[:NAMED]),
            more=len(left[NAMED:]),
            more_bytes=sum(file.size for file in left[NAMED:]),
            note=problem,
        )

    def _log(self, cell: str, attempt: int, size: int, most: int, left: list[LeftFile]) -> Iterator[KeptFile]:
        """The log, or its end; secrets masked as the runner masks them: it had no time to, where it was killed."""
        require_room(self._store, min(size, most), f"the log of {cell}")
        start = max(0, size - most)
        try:
            data = self._channel.read(f"{box_layout.attempt_dir(cell, attempt)}/{LOG}", offset=start, limit=most)
        except Unreachable:
            raise
        except (PlatformError, OSError) as error:
            left.append(LeftFile(path=LOG, size=size, why=_why(error)))
            return
        if self._secrets is None:
            self._secrets = hidden_on(self._channel)
        yield self._keep(cell, attempt, LOG, masked(data, self._secrets, cut=start > 0), start)

    def _files(self, cell: str, attempt: int, wanted: Files, left: list[LeftFile]) -> Iterator[KeptFile]:
        if not wanted:
            return
        # Twice: once on the way, once in its place.
        require_room(self._store, 2 * sum(one.size for one in wanted), f"what {cell} left")
        self.close()
        self._folder.mkdir(parents=True)
        targets = [self._folder / str(number) for number in range(len(wanted))]
        try:
            self._channel.fetch_many([(one.source, target) for one, target in zip(wanted, targets, strict=True)])
        except Unreachable:
            raise
        except (PlatformError, OSError):
            pass  # one of them can't be read: they are asked for one by one
        for (path, size, source, *_), target in zip(wanted, targets, strict=True):
            data = _whole(target, size)
            if data is None:
                try:
                    data = self._channel.read(source, limit=size)
                except Unreachable:
                    raise
                except (PlatformError, OSError) as error:
                    left.append(LeftFile(path=recorded(path), size=size, why=_why(error)))
                    continue
            yield self._keep(cell, attempt, recorded(path), data, 0)

    def _keep(self, cell: str, attempt: int, path: str, data: bytes, start: int) -> KeptFile:
        before = self._before.get((cell, attempt))
        known = next((file for file in before.files if file.path == path), None) if before else None

        def goes_on(one: bytes, other: bytes) -> bool:
            starts = [start if found is data else known.start if known else 0 for found in (one, other)]
            return log_goes_on((starts[0], one), (starts[1], other))

        key = key_of(self._box, self._generation, cell, attempt, path)
        there = put(self._store.objects, key, data, goes_on)
        begins = start if there is data else known.start if known else 0
        return KeptFile(path=path, size=len(there), sha256=sha256_hex(there), start=begins)


def _whole(path: Path, size: int) -> bytes | None:
    """What was fetched; None where it is not all there."""
    try:
        return path.read_bytes() if path.stat().st_size == size else None
    except FileNotFoundError:
        return None


def _why(error: Exception) -> str:
    words = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return f"it can't be read on the box: {words}"[:200]


def _fits_a_name(path: str) -> bool:
    return all(len(name_of(part)) <= _LONGEST_NAME - 16 for part in path.split("/"))
