"""`sweepctl logs CELL`: what a cell printed, from its box, or from the sealed copy when the box is not there."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from provider.platforms.registry import load_platform
from sweep import onbox
from sweep.channel.base import Channel
from sweep.cli.look import Sources, look, open_sources
from sweep.cli.output import YES, No, Out, Unsure, span
from sweep.cli.target import Target
from sweep.errors import EvidenceError, SweepstackError
from sweep.journal import Journal, parse_journal
from sweep.model import Manifest
from sweep.scene import Scene, Sight
from sweep.suggest import did_you_mean

CHUNK = 1 << 16
POLL_SECONDS = 0.5
_CONTROL = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b\[[0-9;?]*[A-Za-ln-z]|\x1b[^\[\]]|[\x00-\x08\x0b\x0c\x0e-\x1a]"
)
"""Whatever moves the cursor, renames the window or rings: a box's output may colour, and no more."""


@dataclass(frozen=True)
class LogSource:
    """Where a log is read from. `following`: it may still grow."""

    words: str
    read: Callable[[int, int], bytes]
    """(offset, limit) → bytes"""
    size: Callable[[], int]
    attempt: int
    following: Callable[[], bool] = lambda: False


def logs(target: Target, cell: str, attempt: int | None, tail: int | None, follow: timedelta | None, out: Out) -> int:
    """Prints the log. `follow`: how long to go on reading while the cell runs; None prints what is there."""
    sources = open_sources(target)
    scene = look(sources)
    known = [entry.name for entry in scene.roster] + list(scene.dropped)
    if cell not in known:
        raise No(f"there is no cell {cell} in {target.stack}{did_you_mean(cell, known)}")
    source = _source(sources, scene, cell, attempt)
    if out.as_json:
        data = _tailed(source, tail)
        text = data.decode("utf-8", "replace")
        out.document({"cell": cell, "attempt": source.attempt, "source": source.words, "text": text})
        return YES
    print(f"{cell}, attempt {source.attempt}, from {source.words}", file=sys.stderr)
    offset = _start(source, tail)
    deadline = time.monotonic() + (follow.total_seconds() if follow else 0)
    while True:
        last = not follow or not source.following()  # asked before reading, so that the end is read too
        offset = _print_from(source, offset)
        if last:
            return YES
        if time.monotonic() > deadline:
            raise No(f"{cell} still runs after {span(follow.total_seconds() if follow else 0)}")
        time.sleep(POLL_SECONDS)


def _source(sources: Sources, scene: Scene, cell: str, attempt: int | None) -> LogSource:
    """The box's own log, else the pulled copy, else the sealed copy on the volume."""
    holder = max(scene.sights, key=lambda sight: sight.holds(cell), default=None)
    problems = []
    if holder is not None and holder.holds(cell):
        progress = holder.progress(cell)
        attempts = progress.attempts if progress else 0
        if attempt is not None and attempts and attempt > attempts:
            raise No(f"{cell} has had {attempts} attempts, not {attempt}")
        if holder.reachable and attempts:
            try:
                found = _on_box(holder, cell, attempt or attempts)
            except (SweepstackError, OSError) as error:
                problems.append(f"box {holder.box.name}: {error}")
            else:
                if found is not None:
                    return found
        elif holder.reachable:
            problems.append(f"it has not started on box {holder.box.name}")
        else:
            problems.append(f"box {holder.box.name}: {'gone' if holder.gone else holder.seen.note or 'unknown'}")
    for offer in (_pulled, _on_volume):
        source, problem = offer(sources, cell, attempt)
        if source is not None:
            return source
        if problem:
            problems.append(problem)
    again = [f"sweepctl wait --stack {sources.target.stack} --for first-step"] if not problems[1:] else []
    raise Unsure(f"there is no log of {cell}: {'; '.join(problems) or 'it has not started'}", again)


def _on_box(sight: Sight, cell: str, attempt: int) -> LogSource | None:
    channel = load_platform(sight.box.adapter).channel(sight.box.native_id, sight.box.account)
    path = f"{onbox.attempt_dir(cell, attempt)}/log.txt"
    if channel.size(path) is None:
        return None

    def running() -> bool:
        journal = _journal(channel)
        progress = journal.cells.get(cell) if journal else None
        alive = channel.lock_held(onbox.RUNNER_LOCK)
        return alive and progress is not None and progress.state == "running" and progress.attempts == attempt

    return LogSource(
        f"box {sight.box.name}",
        lambda offset, limit: channel.read(path, offset=offset, limit=limit),
        lambda: channel.size(path) or 0,
        attempt,
        running,
    )


def _journal(channel: Channel) -> Journal | None:
    try:
        return parse_journal(channel.read(onbox.JOURNAL))
    except (SweepstackError, OSError):
        return None


def _pulled(sources: Sources, cell: str, attempt: int | None) -> tuple[LogSource | None, str]:
    if sources.store is None:
        return None, sources.problem
    copies = sources.store.copies
    try:
        data = copies.manifest(cell)
        manifest = Manifest.model_validate_json(data) if data is not None else None
        size = copies.size(cell, "log.txt")
    except (OSError, ValueError):
        return None, ""
    except EvidenceError as error:
        return None, str(error)
    if manifest is None:
        return None, ""
    if size is None:
        return None, "the pulled copy has no log"
    if attempt is not None and attempt != manifest.attempt:
        return None, f"the pulled copy is of attempt {manifest.attempt}"

    def read(offset: int, limit: int) -> bytes:
        return copies.read(cell, "log.txt", offset, limit) or b""

    return LogSource("the pulled copy", read, lambda: size, manifest.attempt), ""


def _on_volume(sources: Sources, cell: str, attempt: int | None) -> tuple[LogSource | None, str]:
    identity = sources.state.identity
    problem = ""
    for volume in sources.state.volumes:
        if identity is None:
            break
        try:
            channel = load_platform(volume.adapter).volume_channel(volume.native_id, onbox.DURABLE)
            folder = f"{onbox.DURABLE}/{onbox.sealed_dir(identity.identity, cell)}"
            size = channel.size(f"{folder}/log.txt")
            if size is None:
                continue
            manifest = Manifest.model_validate_json(channel.read(f"{folder}/manifest.json"))
        except (SweepstackError, OSError, ValueError) as error:
            problem = f"volume {volume.name}: {error}"
            continue
        if attempt is not None and attempt != manifest.attempt:
            return None, f"the sealed copy is of attempt {manifest.attempt}"
        return _volume_source(channel, f"{folder}/log.txt", volume.name, manifest.attempt), ""
    return None, problem


def _volume_source(channel: Channel, path: str, volume: str, attempt: int) -> LogSource:
    return LogSource(
        f"volume {volume}",
        lambda offset, limit: channel.read(path, offset=offset, limit=limit),
        lambda: channel.size(path) or 0,
        attempt,
    )


def _start(source: LogSource, tail: int | None) -> int:
    """Where the last `tail` lines begin; read backwards, so that the log's length does not matter."""
    if tail is None:
        return 0
    end = source.size()
    start, newlines = end, 0
    while start > 0:
        step = min(CHUNK, start)
        data = source.read(start - step, step)
        for index in range(len(data) - 1, -1, -1):
            if data[index : index + 1] == b"\n" and start - step + index != end - 1:
                newlines += 1
                if newlines == tail:
                    return start - step + index + 1
        start -= step
    return 0 if tail else end


def _tailed(source: LogSource, tail: int | None) -> bytes:
    offset, parts = _start(source, tail), []
    while data := source.read(offset, CHUNK):
        parts.append(data)
        offset += len(data)
    return b"".join(parts)


def _print_from(source: LogSource, offset: int) -> int:
    while data := source.read(offset, CHUNK):
        text = data.decode("utf-8", "replace")
        sys.stdout.write(_CONTROL.sub("", text) if sys.stdout.isatty() else text)
        offset += len(data)
    sys.stdout.flush()
    return offset
