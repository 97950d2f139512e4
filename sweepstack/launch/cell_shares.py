"""Which box is to run which cell, by what is known of a sweep; and which boxes have nothing to run.

Asked for by the program, gathered and answered by the provider (`provider.split_invoke`), which alone may look at
records and boxes. Pure: it proposes, and the same in every process. That no cell runs twice is the work of the one move
there is (`operations.cell_moves`).

Cells are split by count or by measured time (`by_count`, `by_time`), those that may still be placed or moved. Cells
that have started stay where they are. `held` says which box has which of the cells now; a cell leaves its box only
where the split would else be uneven.
"""

from __future__ import annotations

import hashlib
import heapq
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from pydantic import Field

from sweepstack.core.journal import CellProgress, Journal, started
from sweepstack.core.records import Again, BoxName, Cell, CellText, Record
from sweepstack.launch.entries import finished
from sweepstack.onbox.common.cell_durations import Took, durations
from sweepstack.onbox.common.dataclass import dataclass, field


class AskedBox(Record):
    """A box of the program. `slots`: cells at once on it."""

    want: str = "running"
    slots: int = 1


class SplitQuestion(Record):
    """The program's question: whose evidence, which cells, and over which boxes. `pull_to` as the person wrote it.
    `up`: whether this is no preview, which writes nothing: what is read of the boxes is kept. `retry`: the
    counts of `cells.retry`."""

    project: str
    stack: str
    pull_to: str
    cells: tuple[CellText, ...]
    boxes: dict[BoxName, AskedBox]
    up: bool = False
    retry: dict[str, int] = Field(default={})


class Shares(Record):
    """The answer. `cells`: box → its cells, for each box that the program is to declare, in the program's order.

    `left`: box → how many of them are not through; `verified`: cells of the roster with a verified copy in the
    evidence; `begun`: whether a cell of the sweep has started, also where that is not known; `unknown`: why nothing but
    names could be gone by, "" where the records were read. `retries`: those of `cells.retry` that no `up` has brought
    yet; `refused`: what is wrong with it. `stop`: why nothing may be declared; "" where it may.
    """

    cells: dict[BoxName, tuple[str, ...]]
    left: dict[BoxName, int]
    verified: int = 0
    begun: bool = False
    unknown: str = ""
    retries: dict[str, Again] = Field(default={})
    refused: tuple[str, ...] = ()
    stop: str = ""


@dataclass(frozen=True)
class BoxSeen:
    """A box on record that has not ended. `machine`: its native id; `given`: the cells of its launch record;
    `reachable`: whether cells can be taken from its queue now; `resting`: whether it is stopped; `there`: False only
    where its platform proves that it is gone.
    """

    there: bool = True
    machine: str = ""
    given: frozenset[str] = frozenset()
    journal: Journal | None = None
    reachable: bool = False
    resting: bool = False
    skew: float = 0.0


@dataclass(frozen=True)
class SplitFacts:
    """What the evidence and the boxes say. `boxes`: by name; `retries`: cell → how often it was asked for again;
    `ending`: boxes of a teardown that is open: they are declared while a cell is left to train, so that their create
    says what is in its way. `unrecorded`: boxes whose birth record is lost, as a journal or a receipt says: their
    create asks the platform for them, and rents none for a finished sweep. `begun`: whether a cell of the sweep has
    started on any box, also one that has ended; true where that can't be told. `counted`, `refused`: see `Shares`."""

    now: datetime
    boxes: Mapping[str, BoxSeen] = field(default_factory=dict)
    verified: Collection[str] = ()
    retries: Mapping[str, int] = field(default_factory=dict)
    took: Sequence[Took] = ()
    ending: Collection[str] = ()
    unrecorded: Collection[str] = ()
    begun: bool = False
    counted: Mapping[str, Again] = field(default_factory=dict)
    refused: Sequence[str] = ()


def by_names_alone(asked: SplitQuestion, why: str) -> Shares:
    """Where the records can't be read: even by count, and every box is declared, since any of them may be there."""
    owner = by_count((cell.name for cell in asked.cells), _at_work(asked))
    cells = _listed(asked, owner, asked.boxes)
    return Shares(cells=cells, left={box: len(mine) for box, mine in cells.items()}, begun=True, unknown=why)


def shares(asked: SplitQuestion, known: SplitFacts) -> Shares:
    """Cells that have started stay. Those that have not are split by time once one of the sweep was measured, else by
    count; sticky both ways. A box that is not there and gets nothing to do is not declared."""
    owner: dict[str, str] = {}
    left = dict.fromkeys(asked.boxes, 0)
    held: dict[str, str] = {}
    running: dict[str, list[CellProgress]] = {box: [] for box in asked.boxes}
    verified = set(known.verified)
    there = {name: box for name, box in known.boxes.items() if name in asked.boxes and box.there}
    for cell in asked.cells:
        name = cell.name
        if name in verified:
            continue
        box = _started_on(name, there)
        if box is None:
            box = next((one for one, seen in there.items() if name in seen.given), None)
            if box is not None and there[box].reachable:
                held[name], box = box, None
            if box is None:
                continue
        owner[name] = box
        progress = _progress(there[box], name)
        if not finished(progress, known.retries.get(name, 0)):
            left[box] += 1
            if progress is not None and progress.state == "running":
                running[box].append(progress)
    free = [cell for cell in asked.cells if cell.name not in owner and cell.name not in verified]
    # A cell that begins from one that is not verified yet waits where that is: no box is rented for it alone.
    behind = {cell.name: cell.source for cell in free if cell.source and cell.source not in verified}
    for name, box in _placed(asked, known, [one for one in free if one.name not in behind], held, running).items():
        owner[name] = box
        left[box] += 1
    for name in behind:
        source = behind[name]
        while source in behind:
            source = behind[source]
        owner[name] = owner.get(source) or next(iter(there or asked.boxes))
        left[owner[name]] += 1
    kept = {*there, *known.unrecorded, *(known.ending if any(left.values()) else ())}
    declared = [box for box in asked.boxes if box in kept or left[box]]
    owner |= _settled(asked, verified, there, declared)
    return Shares(
        cells=_listed(asked, owner, declared),
        left={box: left[box] for box in declared},
        verified=len(verified),
        begun=known.begun,
        retries=dict(known.counted),
        refused=tuple(known.refused),
    )


def _placed(
    asked: SplitQuestion,
    known: SplitFacts,
    free: Sequence[Cell],
    held: Mapping[str, str],
    running: Mapping[str, Sequence[CellProgress]],
) -> dict[str, str]:
    """Box of each cell that has not started."""
    work = _at_work(asked)
    if all(cell.name in held for cell in free):  # a box that rests is not woken for what others have
        work = [box for box in work if not known.boxes.get(box, BoxSeen()).resting] or work
    params = {cell.name: cell.params for cell in asked.cells}
    expected = durations(params, known.took)
    if expected is None:
        return by_count((cell.name for cell in free), work, held, {box: len(at) for box, at in running.items()})
    workers = {}
    for box in work:
        seen = known.boxes.get(box, BoxSeen(there=False))
        speed = expected.speed(seen.machine) if seen.there else 1.0  # the next one of this name is another machine
        there = known.now + timedelta(seconds=seen.skew)  # cells were started by the clock of their box
        busy = [
            _remaining(expected.of(params[one.name]) / speed, (there - one.started_at).total_seconds())
            for one in running[box]
            if one.started_at is not None
        ]
        workers[box] = Worker(asked.boxes[box].slots, speed, tuple(busy))
    return by_time({cell.name: expected.of(cell.params) for cell in free}, workers, held)


def _remaining(expected: float, elapsed: float) -> float:
    """Seconds that a running cell still takes. One that is over its time may take as long again."""
    return expected - elapsed if elapsed < expected else expected


def _at_work(asked: SplitQuestion) -> list[str]:
    """Boxes that are to run; where none is, cells wait with those that are stopped."""
    return [name for name, box in asked.boxes.items() if box.want == "running"] or list(asked.boxes)


def _progress(box: BoxSeen, cell: str) -> CellProgress | None:
    return box.journal.cells.get(cell) if box.journal is not None else None


def _started_on(cell: str, there: Mapping[str, BoxSeen]) -> str | None:
    """The box on which the cell started; of several the one whose launch record names it."""
    found = [name for name, box in there.items() if started(_progress(box, cell))]
    return next((name for name in found if cell in there[name].given), found[0] if found else None)


def _settled(
    asked: SplitQuestion, verified: Collection[str], there: Mapping[str, BoxSeen], declared: Sequence[str]
) -> dict[str, str]:
    """Verified cells are listed with the box that has them, and else with any: they are not run."""
    owner = {name: box for box, seen in there.items() for name in seen.given if name in verified}
    rest = [name for name in verified if name not in owner]
    return owner | by_count(rest, [box for box in _at_work(asked) if box in declared] or declared)


def _listed(asked: SplitQuestion, owner: Mapping[str, str], boxes: Collection[str]) -> dict[str, tuple[str, ...]]:
    mine: dict[str, list[str]] = {box: [] for box in asked.boxes if box in boxes}
    for cell in asked.cells:
        if cell.name in owner:
            mine[owner[cell.name]].append(cell.name)
    return {box: tuple(names) for box, names in mine.items()}


SLACK = 1.03
"""By how much a split by time may end later than the longest-first one, before it is worth moving cells."""


@dataclass(frozen=True)
class Worker:
    """A box as the split by time sees it. `speed`: 2.0 takes half the time; `busy`: seconds that each running cell
    still takes, as this box runs it."""

    slots: int = 1
    speed: float = 1.0
    busy: tuple[float, ...] = ()


def by_count(
    cells: Iterable[str],
    boxes: Collection[str],
    held: Mapping[str, str] | None = None,
    busy: Mapping[str, int] | None = None,
) -> dict[str, str]:
    """cell → box: the numbers of cells of two boxes differ by 1 at most, so none has more than ceil(cells / boxes).

    Moves as few cells away from the box that holds them as that allows. Where the shares differ, boxes at work on fewer
    others (`busy`) get the larger ones. The order of `cells` and `boxes` means nothing. Empty without boxes.
    """
    names, asked = sorted(set(cells)), sorted(set(boxes))
    if not asked:
        return {}
    kept: dict[str, list[str]] = {box: [] for box in asked}
    for name in names:
        holder = (held or {}).get(name)
        if holder in kept:
            kept[holder].append(name)
    least, more = divmod(len(names), len(asked))
    # Then boxes that hold the most get the shares that are one larger: that moves the fewest.
    larger = sorted(asked, key=lambda box: ((busy or {}).get(box, 0), -len(kept[box])))[:more]
    room = {box: least + (box in larger) for box in asked}
    prefixes = {box: hashlib.sha256(f"{box}\0".encode()) for box in asked}
    owner: dict[str, str] = {}
    for box, mine in kept.items():
        if len(mine) > room[box]:
            mine = sorted(mine, key=lambda name: _weight(prefixes[box], name), reverse=True)[: room[box]]
        owner.update(dict.fromkeys(mine, box))
        room[box] -= len(mine)
    for name in names:
        if name not in owner:
            free = [box for box in asked if room[box]]
            box = free[0] if len(free) == 1 else max(free, key=lambda box: _weight(prefixes[box], name))
            owner[name] = box
            room[box] -= 1
    return owner


def by_time(
    seconds: Mapping[str, float], boxes: Mapping[str, Worker], held: Mapping[str, str] | None = None
) -> dict[str, str]:
    """cell → box, so that the last box is through at most 1.03 × as late as if the longest cell always went next to
    the slot that is free first (LPT). `seconds`: what each cell takes on a box of speed 1.

    Keeps cells where they are held as long as that holds; then moves few; and splits anew where that does not do.
    """
    if not boxes:
        return {}
    order = sorted(seconds, key=lambda name: (-seconds[name], name))
    best = _longest_first(order, seconds, boxes, {})
    bound = SLACK * ends(best, seconds, boxes)
    found = {name: box for name, box in (held or {}).items() if name in seconds and box in boxes}
    found = _longest_first([name for name in order if name not in found], seconds, boxes, found)
    if ends(found, seconds, boxes) > bound:
        found = _evened(found, seconds, boxes, bound)
    return found if ends(found, seconds, boxes) <= bound else best


def ends(owner: Mapping[str, str], seconds: Mapping[str, float], boxes: Mapping[str, Worker]) -> float:
    """Seconds until the last box is through, where each takes its longest cells first."""
    loads: dict[str, list[str]] = {box: [] for box in boxes}
    for name, box in owner.items():
        loads[box].append(name)
    return max((_ends(boxes[box], sorted(seconds[name] for name in mine)) for box, mine in loads.items()), default=0.0)


def _weight(prefix: hashlib._Hash, name: str) -> bytes:
    hashed = prefix.copy()
    hashed.update(name.encode())
    return hashed.digest()


def _slots(worker: Worker) -> list[float]:
    """When each slot is free, soonest first."""
    count = max(worker.slots, 1)
    slots = [0.0] * max(count - len(worker.busy), 0)
    slots += sorted(worker.busy)[-count:] if len(worker.busy) > count else list(worker.busy)
    heapq.heapify(slots)
    return slots


def _ends(worker: Worker, ascending: Sequence[float]) -> float:
    if not ascending:
        return max(worker.busy, default=0.0)
    slots = _slots(worker)
    for seconds in reversed(ascending):
        heapq.heapreplace(slots, slots[0] + seconds / worker.speed)
    return max(*slots, *worker.busy, 0.0)


def _longest_first(
    order: Sequence[str], seconds: Mapping[str, float], boxes: Mapping[str, Worker], placed: Mapping[str, str]
) -> dict[str, str]:
    """Each cell to the box that is through with it first, on top of what is placed; of several to the emptiest."""
    slots = {box: _slots(boxes[box]) for box in sorted(boxes)}
    load = {box: sum(boxes[box].busy) for box in boxes}
    owner: dict[str, str] = {}

    def give(name: str, box: str) -> None:
        takes = seconds[name] / boxes[box].speed
        heapq.heapreplace(slots[box], slots[box][0] + takes)
        load[box] += takes
        owner[name] = box

    for name in sorted(placed, key=lambda name: (-seconds[name], name)):
        give(name, placed[name])
    for name in order:
        give(name, min(slots, key=lambda box: (slots[box][0] + seconds[name] / boxes[box].speed, load[box])))
    return owner


def _evened(
    owner: Mapping[str, str], seconds: Mapping[str, float], boxes: Mapping[str, Worker], bound: float
) -> dict[str, str]:
    """Moves one cell after the other from the fullest box to the emptiest, as long as that makes the fullest less full.
    How full: seconds of work a slot."""
    found = dict(owner)
    held: dict[str, list[tuple[float, str]]] = {box: [] for box in boxes}
    for name in sorted(found):
        insort(held[found[name]], (seconds[name], name))
    rate = {box: max(worker.slots, 1) * worker.speed for box, worker in boxes.items()}
    full = {
        box: sum(worker.busy) / max(worker.slots, 1) + sum(time for time, _ in held[box]) / rate[box]
        for box, worker in sorted(boxes.items())
    }
    for _ in range(len(found)):
        most, least = max(full, key=lambda box: full[box]), min(full, key=lambda box: full[box])
        # The cell that would level both: shorter ones leave the gap open, longer ones turn it round.
        level = (full[most] - full[least]) / (1 / rate[most] + 1 / rate[least])
        place = bisect_left(held[most], (level, ""))
        choices = held[most][max(place - 1, 0) : place + 1]
        after = [max(full[most] - time / rate[most], full[least] + time / rate[least]) for time, _ in choices]
        if not after or min(after) >= full[most]:
            break
        time, name = choices[after.index(min(after))]
        held[most].remove((time, name))
        insort(held[least], (time, name))
        full[most] -= time / rate[most]
        full[least] += time / rate[least]
        found[name] = least
        if max(full.values()) <= bound and ends(found, seconds, boxes) <= bound:
            break
    return found
