"""Prints the log of a cell, a set-up step or a runner."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

from sweepstack.cli.cell_file import CHUNK, CellFile, find_file
from sweepstack.cli.collect import look
from sweepstack.cli.commands.logs.box_log import choose, copied_workers, find_log
from sweepstack.cli.commands.logs.follow import BoxFollow, CellFollow, SetupFollow
from sweepstack.cli.commands.logs.printer import Printer, start_of
from sweepstack.cli.output import YES, Out, Unsure, aside, following
from sweepstack.cli.sources import open_sources
from sweepstack.cli.target import Target
from sweepstack.onbox.common import box_layout
from sweepstack.status.boxes import SETUP_WORDS
from sweepstack.status.next_commands import out_of_hung
from sweepstack.status.snapshot import BoxSnapshot


def logs(target: Target, cell: str, attempt: int | None, tail: int | None, follow: timedelta | None, out: Out) -> int:
    """Prints the log of a cell. `follow`: how long to follow it; None: prints it once."""
    sources = open_sources(target)
    snapshot = look(sources)
    known = [entry.name for entry in snapshot.roster] + list(snapshot.dropped)
    if cell not in known:
        raise target.no_cell(cell, known)
    if follow is not None and snapshot.holder_of(cell) is not None:
        return CellFollow(target, sources, snapshot, cell, attempt, tail, follow).run()
    source = find_file(sources, snapshot, cell, attempt)
    code = _print(source, f"{cell}, attempt {source.attempt}, from {source.words}", tail, out, {"cell": cell})
    if not out.as_json and any(cell in box_snapshot.hung for box_snapshot in snapshot.box_snapshots):
        aside(*following(out_of_hung(target.stack, cell)))
    return code


def setup_log(target: Target, box: str | None, tail: int | None, follow: timedelta | None, out: Out) -> int:
    """Prints the log of the last set-up step of a box; `box` None: of the only box with a set-up step."""
    sources = open_sources(target)
    snapshot = look(sources)
    named = lambda box_snapshot: box_snapshot.setup is not None  # noqa: E731
    again, where = "sweepctl logs --setup", box_layout.SETUP_LOGS
    name, box_snapshot = choose(sources, snapshot, box, named, "has a set-up step", where, again=again)
    setup = box_snapshot.setup if box_snapshot else None
    if box_snapshot is not None and box_snapshot.reachable and setup is None:
        raise Unsure(f"box {name} has begun no set-up step (job.setup)")
    if follow is not None and box_snapshot is not None and not box_snapshot.gone and setup is not None:
        return SetupFollow(target, box_snapshot, setup.digest, tail, follow).run()
    source = find_log(
        sources, name, box_snapshot, box_layout.setup_log(setup.digest) if setup else box_layout.SETUP_LOGS
    )
    state = SETUP_WORDS[setup.state] if setup else "unknown"
    return _print(source, f"set-up of box {name}, {state}", tail, out, {"box": name, "state": state})


def runner_log(target: Target, box: str | None, tail: int | None, follow: timedelta | None, out: Out) -> int:
    """Prints the log of a box's runner; where several workers share the box, of the one that began last, and of those
    at work first."""
    sources = open_sources(target)
    snapshot = look(sources)
    again, where = "sweepctl logs --runner", (box_layout.RUNNER_LOG, box_layout.WORKERS)
    name, box_snapshot = choose(sources, snapshot, box, lambda _: True, "is there", *where, again=again)
    worker, others = _last_worker(box_snapshot)
    if box_snapshot is None or not box_snapshot.reachable:
        copied = copied_workers(sources, name, box_snapshot.box.generation if box_snapshot else None)
        if copied and worker not in copied:
            worker, others = copied[-1], max(others, len(copied) - 1)
    path = f"{box_layout.WORKERS}/{worker}/{box_layout.WORKER_LOG}" if worker else box_layout.RUNNER_LOG
    words = f"worker {worker} of box {name} (and {others} others)" if worker else f"runner of box {name}"
    if follow is not None and box_snapshot is not None and not box_snapshot.gone:
        return BoxFollow(target, box_snapshot, words, path, tail, follow).run()
    source = find_log(sources, name, box_snapshot, path)
    return _print(source, words, tail, out, {"box": name, **({"worker": worker} if worker else {})})


def _last_worker(box_snapshot: BoxSnapshot | None) -> tuple[str, int]:
    """The worker that began last, one of which no end is known if there is one; and how many others there were."""
    known = list(box_snapshot.journal.workers.values()) if box_snapshot and box_snapshot.journal else []
    if not known:
        return "", 0
    return max(known, key=lambda one: (not one.ended, one.began_at)).name, len(known) - 1


def _print(source: CellFile, words: str, tail: int | None, out: Out, document: dict[str, str]) -> int:
    offset = start_of(source.read, source.size(), tail)
    if out.as_json:
        text = source.whole(source.size(), offset).decode("utf-8", "replace")
        more: dict[str, Any] = {"attempt": source.attempt} if source.attempt else {}
        if source.at is not None:
            more["copied_at"] = source.at.isoformat()
        out.document({**document, **more, "source": source.words, "text": text})
        return YES
    print(f"{words}, from {source.words}" if source.at is not None else words, file=sys.stderr)
    printer = Printer()
    while data := source.read(offset, CHUNK):
        printer(data)
        offset += len(data)
    return YES
