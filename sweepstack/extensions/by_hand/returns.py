"""Reads what came back from a machine that only a person can reach, and judges whether it may count.

A copy counts when its mark names this box, its journal's chain is whole, and that journal goes on from what came back
before. Anything else is told in words and taken for unknown: a cell that is not back is not done, and not lost.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from sweepstack.core.journal import parse_journal
from sweepstack.core.paths import docs_page
from sweepstack.extensions.by_hand.onbox.carry import ASIDE, LOG_NAME, LOGS, begins_as, bring, files_of
from sweepstack.extensions.by_hand.onbox.returned import (
    MARK,
    PACKED,
    SESSION,
    SMALL,
    Copy,
    continues,
    copies,
    journal_in,
    leads_out,
    read,
    whole_lines,
)
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import write_atomically
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import JournalDamaged, Unreachable

ALIVE_SECONDS = 900.0
"""A session that wrote less long ago is taken to run: a synchronized folder lags behind."""
DOCS = docs_page("by-hand.md")
CELLS = Path(box_layout.CELLS).parts


@dataclass(frozen=True)
class Returned:
    """What came back of a box. `folder`: where; None: nothing yet. `note`: what a person should know of it."""

    folder: Path | None = None
    note: str = ""
    alive: bool = False


def folder_of(returns: str) -> Path:
    """The folder that the stack config names as `returns`. Raises Unreachable when it is not there: a Drive that is not
    mounted is no proof that nothing came back."""
    folder = Path(returns).expanduser()
    if not folder.is_dir():
        raise Unreachable(
            f"the folder that results come back to is not there: {folder} (boxes.<name>.returns). Is it mounted, or "
            f"synchronized? Make it, or write where it is now"
        )
    return folder


def take_in(returns: str, box: Path, native_id: str) -> Returned:
    """Brings the journal and the logs that came back into the folder of the box, and says where its sealed cells and
    checkpoints lie. Idempotent; an older copy than the last one changes nothing. Raises Unreachable with the verdict
    for what can't count."""
    folder = folder_of(returns)
    try:
        return _taken(folder, box, native_id)
    except OSError as error:
        raise Unreachable(f"{folder} can't be read: {error}") from error


def _taken(folder: Path, box: Path, native_id: str) -> Returned:
    """See `take_in`. Of several copies the one counts whose journal is the longest, if it goes on from all others."""
    found = list(copies(folder))
    ours = [copy for copy in found if copy.whose.get("native_id") == native_id]
    known = _known(box)
    if not ours:
        return Returned(note=_nothing(folder, found, native_id, known))
    best, journal = ours[0].folder, b""
    for copy in ours:
        there = _whole(copy, native_id)
        if not continues(there, journal) and not continues(journal, there):
            raise Unreachable(_forked(best, copy.folder))
        if len(there) > len(journal):
            best, journal = copy.folder, there
    if leads_out(best, box_layout.DURABLE):
        raise Unreachable(
            f"{best / box_layout.DURABLE} is, or lies behind, a link: what is there may be no session's. Nothing was "
            "taken from it: put the folder itself there"
        )
    if continues(journal, known):
        if journal != known:
            _must_be_of(box, journal, best)
            write_atomically(box / box_layout.JOURNAL, journal)
        _bring_logs(best, box)
        return Returned(best, alive=_alive(best))
    if continues(known, journal):
        note = f"{best} is an older copy than the one that came back before: what it lacks counts as not back"
        return Returned(best, note)
    raise Unreachable(_forked(best, box))


def _must_be_of(box: Path, journal: bytes, copy: Path) -> None:
    """Raises Unreachable where the journal speaks of a cell that this box was never given. Once it is taken in, the
    box's own journal would go on from nothing that is known, for ever."""
    try:
        given = {json.loads(line)["cell"] for line in (box / box_layout.QUEUE).read_bytes().splitlines()}
    except FileNotFoundError:
        given = set()
    except (ValueError, KeyError, TypeError) as error:
        raise Unreachable(f"{box / box_layout.QUEUE} does not read: {error}") from error
    foreign = sorted(set(parse_journal(journal).cells) - given)
    if foreign:
        raise Unreachable(
            f"what lies in {copy} does not count: its journal is of another box. It speaks of {', '.join(foreign[:3])}"
            f", which this box was never given. Nothing was taken from it: copy it from the session again"
        )


def _known(box: Path) -> bytes:
    try:
        return whole_lines((box / box_layout.JOURNAL).read_bytes())
    except FileNotFoundError:
        return b""


def _whole(copy: Copy, native_id: str) -> bytes:
    """The journal of a copy, its chain proved."""
    data = journal_in(copy.folder, box_layout.JOURNAL)
    try:
        parse_journal(data)
    except JournalDamaged as error:
        raise Unreachable(
            f"what came back of {native_id} in {copy.folder} does not count: its journal was changed after it was "
            f"written, or came over damaged ({error}). Nothing was taken from it: copy it from the session again"
        ) from error
    return data


def _forked(one: Path, other: Path) -> str:
    return (
        f"two sessions ran at the same time: neither the journal in {one} nor the one in {other} goes on from the "
        f"other. Take the copy that you want less away; what only it has can be trained again ({DOCS})"
    )


def _nothing(folder: Path, found: list[Copy], native_id: str, known: bytes) -> str:
    """Why nothing of this box is there; "" where nothing has come back at all, which is how each box begins."""
    others = sorted({str(copy.whose.get("native_id") or f"an unreadable {MARK}") for copy in found})
    if (folder / native_id).is_dir():
        why = f"{folder / native_id} has no {MARK}: it is half a copy. Wait until it is synchronized, or copy it again"
    elif packed := sorted(folder.glob(f"**/*.{native_id}{PACKED}")):
        why = f"{packed[-1]} came back and is packed: tar -xf {packed[-1]} -C {folder}"
    elif others:
        why = f"{folder} holds {', '.join(others)}, and nothing of {native_id}: it belongs to another box or sweep"
    else:
        why = ""
    if known:
        gone = why or f"nothing of {native_id} is in {folder} now"
        raise Unreachable(f"{gone}; and something of it had come back before. Put it back: it is not lost")
    return why


def _alive(copy: Path) -> bool:
    try:
        said = json.loads(read(copy, SESSION, SMALL))
        return said.get("runner") is True and abs(time.time() - float(said["at"])) < ALIVE_SECONDS
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def _bring_logs(copy: Path, box: Path) -> None:
    """Copies logs that grew; one that is here and did not is kept. They prove nothing, so a part of one does no harm.
    Follows no link."""
    places = [copy / name for name in (*LOGS, box_layout.CELLS) if not leads_out(copy, name)]
    for source in (path for place in places for path in files_of(place)):
        name = source.relative_to(copy)
        if name.parts[: len(CELLS)] == CELLS and source.name != LOG_NAME:
            continue
        target = box / name
        had, now = (_facts(target) if target.exists() else (0, 0)), _facts(source)
        if had == now or (had[0] > now[0] and begins_as(target, source, now[0])):
            continue  # it is here, or half of it came this time
        bring(source, target, None if begins_as(target, source, had[0]) else box / ASIDE / name)
        os.utime(target, ns=(now[1], now[1]))


def _facts(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns
