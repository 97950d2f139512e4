"""Finds a file of a cell: on its box, in a pulled copy, or sealed on the volume."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime

from sweepstack.core.curve_files import several
from sweepstack.core.records import Manifest
from sweepstack.evidence.cell_store import Copies, find_seal
from sweepstack.evidence.unsealed import of_cell
from sweepstack.evidence.unsealed import read_attempt_copy as read_unsealed
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.dataclass import dataclass, replace
from sweepstack.onbox.common.errors import EvidenceError, No, SweepstackError, Unreachable, Unsure
from sweepstack.onbox.common.groups import is_group, means
from sweepstack.onbox.common.units import count
from sweepstack.operations.sweep.sources import Sources
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.teardown.launched import copied_journal

LOG = "log.txt"
CHUNK = 1 << 16


@dataclass(frozen=True)
class CellFile:
    """A file of one attempt, and how to read it. A read raises SweepstackError or OSError.

    Of a copy, if known: `begins`, the offset in the box's file at which the copy begins; `at`, when it was copied.
    Where a pattern was asked for, `parts` are all files of that attempt which it means, in the order of their names;
    then `read` reads the only one, and raises No for several.
    """

    words: str
    read: Callable[[int, int], bytes]
    """(offset, limit) → bytes; fewer at the end of the file"""
    size: Callable[[], int]
    attempt: int
    begins: int = 0
    at: datetime | None = None
    parts: tuple[tuple[str, CellFile], ...] = ()

    def whole(self, most: int, offset: int = 0) -> bytes:
        """At most `most` bytes from `offset`."""
        parts = []
        while most > 0 and (data := self.read(offset, min(CHUNK, most))):
            parts.append(data)
            offset += len(data)
            most -= len(data)
        return b"".join(parts)


def together(parts: Iterable[tuple[str, CellFile]]) -> CellFile | None:
    """The files that a pattern means, as one; None where there are none."""
    every = tuple(parts)
    if not every:
        return None
    _, first = every[0]

    def read(offset: int, limit: int) -> bytes:
        if len(every) > 1:
            raise several([name for name, _ in every])
        return first.read(offset, limit)

    return replace(first, read=read, size=lambda: sum(file.size() for _, file in every), parts=every)


def find_file(sources: Sources, snapshot: Snapshot, cell: str, attempt: int | None, file: str = LOG) -> CellFile:
    """The box's own file, else a pulled copy, else the sealed copy on the volume; of a pattern (`file`), all that it
    means there. Raises No, Unsure."""
    holder = snapshot.holder_of(cell)
    problems = []
    started = True
    if holder is not None:
        progress = holder.progress(cell)
        attempts = progress.attempts if progress else 0
        if attempt is not None and attempts and attempt > attempts:
            raise No(
                f"{cell} has had {count(attempts, 'attempt')}, not {attempt}",
                [f"sweepctl logs {sources.target.named()} {cell}"],
            )
        if holder.reachable and attempts:
            try:
                found = _on_box(holder, cell, attempt or attempts, file)
            except (SweepstackError, OSError) as error:
                problems.append(f"box {holder.box.name}: {error}")
            else:
                if found is not None:
                    return found
        elif holder.reachable:
            started = False
        elif not holder.gone:
            problems.append(f"box {holder.box.name}: {holder.seen.note or 'unknown'}")
    try:
        return find_pulled(sources, cell, attempt, file)
    except Unsure as error:
        problems += error.args
    raise _none(sources, holder, cell, file, started, [problem for problem in problems if problem])


def _none(
    sources: Sources, holder: BoxSnapshot | None, cell: str, file: str, started: bool, problems: list[str]
) -> Unsure:
    """The error for a file that was found nowhere: why, and what to type. Says "never ran" only if that is known."""
    stack, what = sources.target.stack, "log" if file == LOG else file
    ran_on = _ran_on(sources, cell)
    following = [f"sweepctl status --stack {stack}" if sources.target.evidence is None else _results(sources)]
    if holder is not None and holder.gone and holder.progress(cell) is not None:
        ran_on = ran_on or [holder.box.name]
    if ran_on and (holder is None or holder.gone):
        box = ran_on[-1]
        problems.insert(0, f"its {what} was on box {box}, which is gone, and `sweepctl pull` had not copied it before")
    elif not problems and holder is not None and not started:
        problems.append(f"it has not started on box {holder.box.name}")
        following = [f"sweepctl wait --stack {stack} first-step"]
    elif not problems and holder is not None and holder.gone:
        problems.append(f"box {holder.box.name} is gone, and no record says that it ran there")
    elif not problems and not ran_on:
        problems.append("no record says that it ever started")
    return Unsure(f"there is no {what} of {cell}: {'; '.join(problems)}", following)


def _results(sources: Sources) -> str:
    return f"sweepctl results {sources.target.named()}"


def _ran_on(sources: Sources, cell: str) -> list[str]:
    """The boxes on which the cell ran, by the pulled copies of their journals; the last one last."""
    store = sources.store
    if store is None:
        return []
    found = []
    try:
        for birth in sorted(store.births(), key=lambda birth: birth.begun_at):
            journal = copied_journal(store, birth.box, birth.generation)
            progress = journal.cells.get(cell) if journal else None
            if progress is not None and progress.attempts:
                found.append(birth.box)
    except EvidenceError:
        pass
    return found


def find_pulled(sources: Sources, cell: str, attempt: int | None, file: str) -> CellFile:
    """A copy of the sealed attempt or of one without a seal, whichever is later. Raises Unsure."""
    left = _left(sources, cell, attempt, file)
    try:
        sealed = find_copy(sources, cell, attempt, file)
    except Unsure:
        if left is None:
            raise
        return left
    return left if left is not None and left.attempt > sealed.attempt else sealed


def find_copy(
    sources: Sources, cell: str, attempt: int | None, file: str, pulled: PulledCopy | None = None
) -> CellFile:
    """The pulled copy of the sealed attempt, else the sealed copy on the volume. Raises Unsure. `pulled`: the pulled
    copy, where it was found before."""
    copy, problem = (pulled, "") if pulled is not None else pulled_copy(sources, cell)
    found, missing = copy.file(attempt, file) if copy is not None else (None, problem)
    if found is None:
        found, problem = _on_volume(sources, cell, attempt, file)
    if found is None:
        raise Unsure("; ".join(filter(None, (missing, problem))))
    return found


def _left(sources: Sources, cell: str, attempt: int | None, file: str) -> CellFile | None:
    """The file that `pull` copied from an attempt without a seal; `attempt` None: from the last one."""
    store, path = sources.store, file if file == LOG else f"out/{file}"
    if store is None:
        return None
    try:
        found = [one for one in of_cell(store, cell) if attempt in (None, one.attempt.attempt)]
        for one in reversed(found):
            parts = []
            for kept in one.attempt.files:
                data = read_unsealed(store, one, kept.path) if means(path, kept.path) else None
                if data is not None:
                    words = f"the copy of what it left on box {one.box} (not sealed)"
                    words += f"; the first {kept.start:,} bytes were too many to copy" if kept.start else ""
                    parts.append((kept.path.removeprefix("out/"), in_memory(words, data, one.attempt.attempt)))
            if parts:
                return together(parts) if is_group(path) else parts[0][1]
    except EvidenceError:
        return None
    return None


def in_memory(words: str, data: bytes, attempt: int, begins: int = 0, at: datetime | None = None) -> CellFile:
    """A CellFile of bytes that were read already."""
    return CellFile(words, lambda offset, limit: data[offset : offset + limit], lambda: len(data), attempt, begins, at)


def _on_box(box_snapshot: BoxSnapshot, cell: str, attempt: int, file: str) -> CellFile | None:
    channel = box_snapshot.box.context().channel()
    path, words = attempt_file(cell, attempt, file), f"box {box_snapshot.box.name}"
    if is_group(file):
        found = files_on_box(channel, [path])
        return together(
            (one.removeprefix(attempt_file(cell, attempt, "")), over_channel(words, channel, one, attempt))
            for one in found
        )
    if channel.size(path) is None:
        return None
    return over_channel(words, channel, path, attempt)


def files_on_box(channel: Channel, patterns: Iterable[str]) -> list[str]:
    """The files on a box that these patterns mean, by name: what lies in the folders of cells is asked for at once.
    Raises Unreachable, also where not all could be listed."""
    folders: dict[str, list[str]] = {}
    for pattern in patterns:
        plain = re.split(r"[*?]", pattern)[0]
        folders.setdefault(plain.rpartition("/")[0], []).append(pattern)
    listed = channel.walk(sorted(folders))
    if listed.problem:
        raise Unreachable(f"its files can't all be listed: {listed.problem}")
    every = [pattern for found in folders.values() for pattern in found]
    return sorted(path for path, _, _ in listed.files if any(means(pattern, path) for pattern in every))


def attempt_file(cell: str, attempt: int, file: str) -> str:
    """The path of an attempt's file on its box: the log lies beside the attempt's output folder, all else in it."""
    return f"{box_layout.attempt_dir(cell, attempt)}/{file if file == LOG else f'out/{file}'}"


@dataclass(frozen=True)
class PulledCopy:
    """A pulled copy whose manifest reads."""

    cell: str
    copies: Copies
    manifest: Manifest

    def file(self, attempt: int | None, file: str) -> tuple[CellFile | None, str]:
        """A file of it, or all that a pattern means; or None, and why."""
        if is_group(file):
            parts = [(one.path, self.file(attempt, one.path)) for one in self.manifest.files if means(file, one.path)]
            there = [(path, found) for path, (found, _) in parts if found is not None]
            if len(there) < len(parts) or not parts:  # all of them, or none: a part would be another curve
                why = next((problem for _, (found, problem) in parts if found is None and problem), "")
                return None, why or f"the pulled copy has no {file}"
            return together(there), ""
        try:
            if self.cell != self.manifest.cell and not self._is_right(file):
                return None, f"the copy in {self.copies.shown(self.cell)} has no {file} as it was sealed"
            size = self.copies.size(self.cell, file)
        except (OSError, ValueError):
            return None, ""
        except EvidenceError as error:
            return None, str(error)
        if size is None:
            return None, f"the pulled copy has no {'log' if file == LOG else file}"
        if attempt is not None and attempt != self.manifest.attempt:
            return None, f"the pulled copy is of attempt {self.manifest.attempt}"

        def read(offset: int, limit: int) -> bytes:
            return (self.copies.read(self.cell, file, offset, limit) or b"") if offset < size else b""

        return CellFile("the pulled copy", read, lambda: size, self.manifest.attempt), ""

    def _is_right(self, file: str) -> bool:
        """Of a copy that was put aside, which no index knows: its bytes are compared each time."""
        sealed = {one.path: one for one in self.manifest.files}.get(file)
        facts = self.copies.look(self.cell).files.get(file)
        return (
            sealed is not None
            and facts is not None
            and self.copies.unchanged(self.cell, sealed, facts, None, full=True)
        )


def pulled_copy(sources: Sources, cell: str, seal: str | None = None) -> tuple[PulledCopy | None, str]:
    """The pulled copy of a cell; or None, and why, if that is known. `seal`: the one with this manifest, if only put
    aside."""
    if sources.store is None:
        return None, sources.problem
    try:
        copies = sources.store.copies
        if seal is None:
            data = copies.manifest(cell)
            return (PulledCopy(cell, copies, Manifest.model_validate_json(data)) if data else None), ""
        found = find_seal(copies, cell, seal)
        return (PulledCopy(found[1], found[0], Manifest.model_validate_json(found[2])) if found else None), ""
    except (OSError, ValueError):
        return None, ""
    except EvidenceError as error:
        return None, str(error)


def _on_volume(sources: Sources, cell: str, attempt: int | None, file: str) -> tuple[CellFile | None, str]:
    identity = sources.state.identity
    problem = ""
    for volume in sources.state.volumes:
        if identity is None:
            break
        try:
            channel = volume.channel(box_layout.DURABLE)
            folder = f"{box_layout.DURABLE}/{box_layout.sealed_dir(identity.identity, cell)}"
            if channel.size(f"{folder}/{'manifest.json' if is_group(file) else file}") is None:
                continue
            manifest = Manifest.model_validate_json(channel.read(f"{folder}/manifest.json"))
        except (SweepstackError, OSError, ValueError) as error:
            problem = f"volume {volume.name}: {error}"
            continue
        if attempt is not None and attempt != manifest.attempt:
            return None, f"the sealed copy is of attempt {manifest.attempt}"
        names = [one.path for one in manifest.files if means(file, one.path)] if is_group(file) else [file]
        parts = [
            (name, over_channel(f"volume {volume.name}", channel, f"{folder}/{name}", manifest.attempt))
            for name in names
        ]
        return together(parts) if is_group(file) else parts[0][1], ""
    return None, problem


def over_channel(words: str, channel: Channel, path: str, attempt: int) -> CellFile:
    """A CellFile that is read over a channel."""
    return CellFile(
        words,
        lambda offset, limit: channel.read(path, offset=offset, limit=limit),
        lambda: channel.size(path) or 0,
        attempt,
    )
