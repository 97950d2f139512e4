"""The cell diff: added, moved, dropped, taken out, changed, runs again, refused.

Values are told as texts for people (`value_text`): different values have different texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from sweepstack.core.roster import in_order
from sweepstack.onbox.common.canonical import DIGEST, DIGEST_PREFIX
from sweepstack.review.live import Live, Roster
from sweepstack.review.model import CellChange
from sweepstack.review.plan import ENDING, EnginePlan, cells_of

_CELL_WORD = r"[A-Za-z0-9._+-]"


def cell_changes(plan: EnginePlan, live: Live) -> tuple[CellChange, ...]:
    """What an `up` does to the cells, by name. A destroy changes no roster: what dies is with the boxes."""
    before, after = live.rosters.get("state"), live.rosters.get("file")
    if plan.destroy or before is None or after is None:
        return ()
    found = list(compared(before, after))
    held, planned = _held(live), _planned(plan, live)
    placed = [
        CellChange(one.name, one.change, planned.get(one.name, held.get(one.name, "")), _config(plan, one))
        if one.change not in ("dropped", "taken out")
        else CellChange(one.name, one.change, held.get(one.name, ""), one.why)
        for one in found
    ]
    named = {one.name for one in found}
    moved = [
        CellChange(name, "moved", box, f"from {held[name]}{_why_moved(plan, held[name])}")
        for name, box in sorted(planned.items(), key=lambda one: in_order(one[0]))
        if name not in named and name in held and held[name] != box
    ]
    return tuple(_refused(plan, [*placed, *moved, *_again(plan, live, named)]))


def _config(plan: EnginePlan, one: CellChange) -> str:
    """What a cell runs with, as far as the plan's queues tell it; of a changed one only what is another."""
    before = {} if one.change == "added" else _params(plan, one.name, old=True)
    after = _params(plan, one.name)
    words = [
        f"{value_text(key)}: " + (f"{value_text(before[key])} → " if key in before else "") + value_text(after.get(key))
        for key in {**before, **after}
        if key not in before or before[key] != after.get(key)
    ]
    return "; ".join([*filter(None, [one.why]), *(words if after else [])])


def _params(plan: EnginePlan, cell: str, *, old: bool = False) -> dict[str, Any]:
    for step in plan.of("Queue"):
        for text in (step.old if old else step.new).get("cells") or ():
            name, _, params = str(text).partition(" ")
            if name == cell:
                with suppress(ValueError):
                    return dict(json.loads(params))
    return {}


def _again(plan: EnginePlan, live: Live, named: Collection[str]) -> Iterator[CellChange]:
    """The cells that a retry makes run again, and what they are now."""
    states = {cell.name: cell.state for cell in live.view.cells}
    found: dict[str, CellChange] = {}
    for step in plan.of("Queue"):
        before, after = _retries(step.old), _retries(step.new)
        for name in sorted({*after} - {*named}, key=in_order):
            if after[name] > before.get(name, 0):
                now = f"; now it is {states[name]}" if name in states else ""
                found[name] = CellChange(name, "runs again", step.name_of_box, f"retry {after[name]}{now}")
    yield from found.values()


def _retries(inputs: Mapping[str, Any]) -> dict[str, int]:
    found = inputs.get("retries") or {}
    return {str(name): int(again.get("retry") or 0) for name, again in found.items() if isinstance(again, Mapping)}


def compared(before: Roster, after: Roster) -> Iterable[CellChange]:
    """What is another in the second roster, by name, and `seed4` before `seed10`."""
    for name in sorted({*before.cells, *after.cells, *after.dropped}, key=in_order):
        was, now = before.cells.get(name), after.cells.get(name)
        if name in after.dropped:
            if name not in before.dropped:
                yield CellChange(name, "dropped", why=after.dropped[name])
        elif was is None and now is not None:
            yield CellChange(name, "added", why="it was dropped before" if name in before.dropped else "")
        elif was is not None and now is None:
            yield CellChange(name, "taken out", why="no cell of the stack file has this name any more")
        elif was != now:
            yield CellChange(name, "changed", why="its config differs")


def _held(live: Live, but: Collection[str] = ()) -> dict[str, str]:
    """Cell → the box whose queue has it in the state; without the queues of these boxes."""
    boxes = [one for one in live.snapshot.box_snapshots if one.box.name not in but]
    return {name: one.box.name for one in boxes if one.queue for name in one.queue.names}


def _planned(plan: EnginePlan, live: Live) -> dict[str, str]:
    """Cell → the box whose queue is to have it. A queue without a step stays as it is."""
    ends = {step.name_of_box for step in plan.of("Queue", ENDING)}
    found = _held(live, ends)
    for step in plan.of("Queue"):
        if step.new:
            found = {name: box for name, box in found.items() if box != step.name_of_box}
            found |= dict.fromkeys(cells_of(step.new), step.name_of_box)
    return found


def _why_moved(plan: EnginePlan, box: str) -> str:
    return ", which ends" if any(step.name == box for step in plan.of("Box", ENDING)) else ""


def _refused(plan: EnginePlan, changes: Sequence[CellChange]) -> list[CellChange]:
    """The changes; those that the preview refuses by the cell's name are `refused`, with the first words of why."""
    if not plan.errors:
        return list(changes)
    refused: Mapping[str, str] = {
        one.name: next((first_words(said.text) for said in plan.errors if _names(said.text, one.name)), "")
        for one in changes
    }
    return [
        CellChange(one.name, "refused", one.box, f"{one.change}: {refused[one.name]}") if refused[one.name] else one
        for one in changes
    ]


def _names(text: str, cell: str) -> bool:
    return re.search(rf"(?<!{_CELL_WORD}){re.escape(cell)}(?!{_CELL_WORD})", text) is not None


def first_words(text: str) -> str:
    """The first paragraph of a refusal, on one line."""
    return " ".join(text.split("\n\n")[0].split())[:300]


NOTHING = "nothing"
"""What stands for an absent value. A text of a person that is spelled so is in quotes."""
_UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""What the engine's preview prints for a value that is known only once something is made."""
_LATER = "known once it is made"
_SPELLED = re.compile(r"[A-Za-z0-9_/.$~(][^\n\r\"`,]*(?<! )")
_OURS = frozenset({"yes", "no", NOTHING, _LATER, "an empty list", "an empty map"})


def value_text(value: Any) -> str:
    """A value for people. Different values have different texts; a text that could be taken for another one is in
    quotes."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(value_text, value)) if value else "an empty list"
    if isinstance(value, Mapping):
        return "an empty map"
    if not isinstance(value, str):
        return json.dumps(value)
    if value == _UNKNOWN:
        return _LATER
    if DIGEST.fullmatch(value):
        return value.removeprefix(DIGEST_PREFIX)[:16]
    plain = _SPELLED.fullmatch(value) and not _is_json(value) and value not in _OURS
    return value if plain else json.dumps(value, ensure_ascii=False)


def _is_json(text: str) -> bool:
    """Whether it reads like a number."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
