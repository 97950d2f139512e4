"""`sweepctl pull`: every sealed cell of every box, and the journals, as copies into the evidence."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from provider.platforms.base import Phase
from provider.platforms.registry import load_platform
from sweep import onbox
from sweep.cli.look import Sources, open_sources
from sweep.cli.output import NO, UNSURE, YES, No, Out, Unsure, count, moved, moved_json, size
from sweep.cli.progress import Progress
from sweep.cli.rosters import rosters
from sweep.cli.target import Target
from sweep.errors import EvidenceError, JournalDamaged, SweepstackError
from sweep.evidence.pull import BoxPull, BoxSource, PullResult, pull_all
from sweep.evidence.store import EvidenceStore
from sweep.state import BoxEntry

KEEP_ON_SECONDS = 60.0
"""Between two signs to a box that it is being read."""


@dataclass
class Haul:
    """What one pull brought: per cell its box and result; what could not be reached."""

    cells: dict[str, tuple[str, PullResult]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, pulls: Collection[BoxPull]) -> None:
        """Later results win only where the earlier one brought nothing."""
        for pull in pulls:
            if pull.problem:
                self.problems.append(f"box {pull.box}: {pull.problem}")
            for result in pull.results:
                before = self.cells.get(result.cell)
                if before is None or before[1].state in ("absent", "refused"):
                    self.cells[result.cell] = (pull.box, result)

    @property
    def bad(self) -> list[PullResult]:
        """Cells that are sealed and did not get here."""
        return [result for _, result in self.cells.values() if result.state in ("absent", "refused")]


def usable(sources: Sources) -> EvidenceStore:
    """The evidence, or the reason why nothing can be told."""
    if sources.store is None:
        again = [] if sources.problem else [f"pulumi up --stack {sources.target.stack}"]
        raise Unsure(sources.problem or "there is no evidence yet: nothing was ever brought up", again)
    return sources.store


def pull(target: Target, out: Out) -> int:
    """Exit 0 when every sealed cell is here; 1 when a box's copy was refused; 2 when a box was not reached."""
    sources = open_sources(target)
    store = usable(sources)
    with Progress("pull", unit="bytes") as progress:
        haul = fetch(sources, store, progress)
    return report(sources, haul, out)


def fetch(sources: Sources, store: EvidenceStore, progress: Progress) -> Haul:
    """Boxes first; then, for what sits only on a volume that outlived its box, the volumes. Resumable, idempotent."""
    identity = store.marker.identity
    if sources.state.identity is None and not sources.state.boxes:
        raise No("there is no box and no volume in the state: nothing to pull from", ["sweepctl status"])
    progress_of: dict[str, tuple[int, int]] = {}

    armed = _armed(sources)
    awake = 0.0

    def said(cell: str, done: int, total: int) -> None:
        nonlocal awake
        if armed and time.monotonic() - awake > KEEP_ON_SECONDS:
            awake = time.monotonic()
            _keep_on(armed)
        before_done, before_total = progress_of.get(cell, (0, 0))
        progress.say(cell)
        progress.expect(total - before_total)
        progress.advance(done - before_done)
        progress_of[cell] = (done, total)

    haul = Haul()
    _keep_on(armed)
    live, dead = _sources(sources, store, haul)
    pulls = pull_all(live, identity, store, said)
    haul.add(pulls)
    told = {name for pull in pulls if pull.journal for name, cell in pull.journal.cells.items() if cell.manifest}
    for source in dead:
        sealed = _sealed_by(store, source.box, source.generation) - told
        if sealed:
            wanted = BoxSource(source.box, source.generation, source.channel, cells=sorted(sealed), volume_only=True)
            haul.add(pull_all([wanted], identity, store, said))
    return haul


def _armed(sources: Sources) -> list[BoxEntry]:
    """The boxes that end their own bill once their queue is drained: they wait while somebody pulls."""
    return [box for box in sources.state.boxes if box.ends_itself]


def _keep_on(boxes: Sequence[BoxEntry]) -> None:
    """Tells them that somebody is at work. What can't be told keeps nobody from pulling."""
    for box in boxes:
        with contextlib.suppress(SweepstackError, OSError):
            load_platform(box.adapter).channel(box.native_id, box.account).write(onbox.KEEP_ON, b"")


def _sources(sources: Sources, store: EvidenceStore, haul: Haul) -> tuple[list[BoxSource], list[BoxSource]]:
    """Boxes that answer, and volumes that speak for boxes which do not."""
    live: list[BoxSource] = []
    dead: list[BoxSource] = []
    named = set()
    for box in sources.state.boxes:
        named.add((box.name, box.generation))
        try:
            platform = load_platform(box.adapter)
            if platform.get(box.native_id, box.account).phase is not Phase.GONE:
                live.append(BoxSource(box.name, box.generation, platform.channel(box.native_id, box.account)))
                continue
        except SweepstackError as error:
            haul.problems.append(f"box {box.name}: {error}")
        dead += _by_volume(box.name, box.generation, box.adapter, box.mounts)
    for birth in store.births():
        if (birth.box, birth.generation) not in named:
            dead += _by_volume(birth.box, birth.generation, birth.platform, birth.mounts)
    return live, dead


def _by_volume(box: str, generation: int, adapter: str, mounts: Mapping[str, str]) -> list[BoxSource]:
    """The durable volume of a box that does not answer, where that one does."""
    volume = mounts.get(onbox.DURABLE)
    if volume is None:
        return []
    try:
        channel = load_platform(adapter).volume_channel(volume, onbox.DURABLE)
    except SweepstackError:
        return []
    return [BoxSource(box, generation, channel, volume_only=True)]


def _sealed_by(store: EvidenceStore, box: str, generation: int) -> set[str]:
    try:
        journal = store.journal(box, generation)
    except (EvidenceError, JournalDamaged):
        return set()
    return {name for name, cell in journal.cells.items() if cell.state == "sealed"} if journal else set()


def report(sources: Sources, haul: Haul, out: Out) -> int:
    """The table of what came, and the exit code."""
    stack = sources.target.stack
    roster = rosters(sources.target, sources.state)
    brought = sum(result.bytes for _, result in haul.cells.values())
    here = {name for name, (_, result) in haul.cells.items() if result.state in ("pulled", "current")}
    left = [cell.name for cell in roster.cells if cell.name not in haul.cells]
    code = UNSURE if haul.problems else NO if haul.bad else YES
    if code == YES:
        following = [f"sweepctl verify --stack {stack}"]
    else:
        following = [f"sweepctl pull --stack {stack}    (goes on where this one stopped)"]
    out.document(
        {
            "stack": stack,
            "evidence": sources.evidence,
            "bytes": brought,
            "moved": moved_json(sources.store.traffic if sources.store else None),
            "cells": [
                {
                    "name": name,
                    "state": result.state,
                    "box": box,
                    "files": result.files,
                    "bytes": result.bytes,
                    "reasons": list(result.reasons),
                    "notes": list(result.notes),
                }
                for name, (box, result) in sorted(haul.cells.items())
            ],
            "not_sealed": [] if haul.problems else left,
            "not_seen": left if haul.problems else [],
            "problems": haul.problems,
            "next": following,
        }
    )
    out.table(
        ("CELL", "STATE", "BOX", "FILES", "COPIED", "NOTE"),
        (
            (
                name,
                result.state,
                box,
                str(result.files or ""),
                size(result.bytes) if result.bytes else "",
                _words(result),
            )
            for name, (box, result) in sorted(haul.cells.items())
        ),
    )
    out.line(f"{count(len(here), 'cell')} here, {size(brought)} copied to {sources.evidence}")
    if sources.store and sources.store.traffic:
        out.line(moved(sources.store.traffic))
    if left:
        why = "not sealed yet, or not seen" if haul.problems else "not sealed yet"
        out.line(f"{count(len(left), 'cell')} {why}: {', '.join(left[:5])}{', …' if left[5:] else ''}")
    for problem in haul.problems:
        out.line(f"UNKNOWN {problem}", style="yellow")
    out.next(following)
    return code


def _words(result: PullResult) -> str:
    return "; ".join((*result.reasons, *result.notes))
