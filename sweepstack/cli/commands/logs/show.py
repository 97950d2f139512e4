"""Prints the log of a cell, a set-up step or a runner."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

from sweepstack.cli.cell_file import CHUNK, CellFile, find_file, holder_of
from sweepstack.cli.collect import look
from sweepstack.cli.commands.logs.box_log import choose, find_log
from sweepstack.cli.commands.logs.follow import CellFollow, RunnerFollow, SetupFollow
from sweepstack.cli.commands.logs.printer import Printer, start_of
from sweepstack.cli.output import YES, Out, Unsure, aside, following
from sweepstack.cli.sources import open_sources
from sweepstack.cli.target import Target
from sweepstack.onbox.common import box_layout
from sweepstack.status.boxes import SETUP_WORDS
from sweepstack.status.next_commands import out_of_hung


def logs(target: Target, cell: str, attempt: int | None, tail: int | None, follow: timedelta | None, out: Out) -> int:
    """Prints the log of a cell. `follow`: how long to follow it; None: prints it once."""
    sources = open_sources(target)
    scene = look(sources)
    known = [entry.name for entry in scene.roster] + list(scene.dropped)
    if cell not in known:
        raise target.no_cell(cell, known)
    if follow is not None and holder_of(scene, cell) is not None:
        return CellFollow(target, sources, scene, cell, attempt, tail, follow).run()
    source = find_file(sources, scene, cell, attempt)
    code = _print(source, f"{cell}, attempt {source.attempt}, from {source.words}", tail, out, {"cell": cell})
    if not out.as_json and any(cell in sight.hung for sight in scene.sights):
        aside(*following(out_of_hung(target.stack, cell)))
    return code


def setup_log(target: Target, box: str | None, tail: int | None, follow: timedelta | None, out: Out) -> int:
    """Prints the log of the last set-up step of a box; `box` None: of the only box with a set-up step."""
    sources = open_sources(target)
    scene = look(sources)
    named = lambda sight: sight.setup is not None  # noqa: E731
    name, sight = choose(sources, scene, box, named, "has a set-up step", box_layout.SETUP_LOGS)
    setup = sight.setup if sight else None
    if sight is not None and sight.reachable and setup is None:
        raise Unsure(f"box {name} has begun no set-up step (job.setup)")
    if follow is not None and sight is not None and not sight.gone and setup is not None:
        return SetupFollow(target, sight, setup.digest, tail, follow).run()
    source = find_log(sources, name, sight, box_layout.setup_log(setup.digest) if setup else box_layout.SETUP_LOGS)
    state = SETUP_WORDS[setup.state] if setup else "unknown"
    return _print(source, f"set-up of box {name}, {state}", tail, out, {"box": name, "state": state})


def runner_log(target: Target, box: str | None, tail: int | None, follow: timedelta | None, out: Out) -> int:
    """Prints the log of a box's runner."""
    sources = open_sources(target)
    scene = look(sources)
    name, sight = choose(sources, scene, box, lambda _: True, "is there", box_layout.RUNNER_LOG)
    if follow is not None and sight is not None and not sight.gone:
        return RunnerFollow(target, sight, tail, follow).run()
    source = find_log(sources, name, sight, box_layout.RUNNER_LOG)
    return _print(source, f"runner of box {name}", tail, out, {"box": name})


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
