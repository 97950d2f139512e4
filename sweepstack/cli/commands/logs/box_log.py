"""Finds the log of a box's runner or set-up: on the box, else in the copy that `sweepctl pull` made."""

from __future__ import annotations

from collections.abc import Callable

from sweepstack.cli.cell_file import CellFile, in_memory, over_channel
from sweepstack.cli.output import No, Unsure
from sweepstack.cli.sources import Sources
from sweepstack.core.suggest import closest, did_you_mean
from sweepstack.evidence.box_logs import BOX_LOGS, BoxLog, BoxLogs, read
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import EvidenceError, SweepstackError
from sweepstack.status.snapshot import BoxSnapshot, Snapshot


def choose(
    sources: Sources,
    snapshot: Snapshot,
    name: str | None,
    fits: Callable[[BoxSnapshot], bool],
    words: str,
    *paths: str,
    again: str,
) -> tuple[str, BoxSnapshot | None]:
    """The box by its name, or the only one that `fits`: a box of the state, else one with a copy of a log at one of
    `paths` or below it. `again`: the command for another box, to which its name is added. Raises No, Unsure."""
    by_name = {
        box_snapshot.box.name: box_snapshot for box_snapshot in snapshot.box_snapshots if not box_snapshot.box.to_delete
    }
    in_state = by_name if name is None else name in by_name
    copied = [] if in_state else sorted({kept.box for path in paths for kept, _ in _copies(sources, path)})
    if name is not None:
        if name not in by_name and name not in copied:
            known = [*by_name, *(one for one in copied if one not in by_name)]
            there, stack = ", ".join(known) or "none", sources.target.stack
            hint = did_you_mean(name, known)
            near = closest(name, known) or (known[0] if known else None)
            raise No(
                f"there is no box {name} in the state, and no copy of its log (there: {there}){hint}",
                [f"{again} {near} --stack {stack}" if near else f"sweepctl status --stack {stack}"],
            )
        return name, by_name.get(name)
    found = [box for box, box_snapshot in by_name.items() if fits(box_snapshot)] if by_name else copied
    if len(found) != 1:
        named = ", ".join(found)
        raise Unsure(f"which box? {f'{named} do' if found else f'no box {words}'}: name one")
    return found[0], by_name.get(found[0])


def find_log(sources: Sources, name: str, box_snapshot: BoxSnapshot | None, path: str) -> CellFile:
    """The log at `path`, or the newest one below it. Raises Unsure if it can't be read anywhere."""
    why = "" if sources.target.evidence else f"box {name} is not in the state any more"
    if box_snapshot is not None and box_snapshot.reachable:
        try:
            channel = box_snapshot.box.context().channel()
            if channel.size(path) is None:
                raise Unsure(f"box {name} has no {path} yet")
            return over_channel(f"box {name}", channel, path, 0)
        except Unsure:
            raise
        except (SweepstackError, OSError) as error:
            why = f"box {name}: {error}"
    elif box_snapshot is not None:
        why = f"box {name} is {'gone' if box_snapshot.gone else box_snapshot.seen.note or 'unknown'}"
    found = copy_of(sources, name, box_snapshot.box.generation if box_snapshot else None, path, why)
    if found is None:
        raise Unsure(f"{why + ', and' if why else f'of box {name}'} `sweepctl pull` had copied no such log")
    return found


def copied_workers(sources: Sources, name: str, generation: int | None) -> list[str]:
    """The workers of a box whose logs were copied, the one that wrote last at the end; `generation` None: those of the
    newest one with such a copy."""
    of = [(kept, log) for kept, log in _copies(sources, box_layout.WORKERS) if kept.box == name]
    newest = max((kept.generation for kept, _ in of), default=0) if generation is None else generation
    return [
        log.path.split("/")[-2]
        for kept, log in of
        if kept.generation == newest and log.path.endswith(f"/{box_layout.WORKER_LOG}")
    ]


def copy_of(sources: Sources, name: str, generation: int | None, path: str, why: str = "") -> CellFile | None:
    """The copy of such a log; `generation` None: of the newest one with a copy. `why`: why the box is not read."""
    for kept, log in reversed(_copies(sources, path)):
        data = None
        if sources.store is not None and kept.box == name and generation in (None, kept.generation):
            data = read(sources.store, kept, log)
        if data is not None:
            words = f"the copy of {log.at:%Y-%m-%d %H:%M} UTC{f' ({why})' if why else ''}"
            words += f"; the first {log.start:,} bytes were too many to copy" if log.start else ""
            return in_memory(words, data, 0, begins=log.start, at=log.at)
    return None


def _copies(sources: Sources, path: str) -> list[tuple[BoxLogs, BoxLog]]:
    """All copies of such logs, sorted by generation and time, the newest last."""
    try:
        records, _ = sources.store.readable(BOX_LOGS, BoxLogs) if sources.store else ([], [])
    except EvidenceError:
        return []
    ordered = sorted(records, key=lambda kept: kept.generation)
    return [(kept, log) for kept in ordered for log in kept.logs if f"{log.path}/".startswith(f"{path}/")]
