"""Decides which box runs which cell, by count or by measured time. Pure and deterministic.

The same answer in every process.
A rule for cells that may still be placed or moved. Cells that have started are not given to it: they stay where they
are. `held` says which box has which of the cells now; a cell leaves its box only where the split would else be uneven.
"""

from __future__ import annotations

import hashlib
import heapq
from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

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
