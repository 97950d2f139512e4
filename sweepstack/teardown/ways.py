"""The ways on that a screen names, by what each may lose.

One rule for all screens: what loses nothing stands first. A box is given up by a line of `next` only where nothing else
leads on, or where something was found that may keep the other ways from working.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sweepstack.onbox.common.errors import ONLY_IF

GIVES_UP, NOT_BACK = "gives them up", "where it will not come back"
"""What is said behind the command that gives boxes up. The second one: evidence that can't be read may be away for an
hour."""
_CELLS = re.compile(r"\bsweepctl (drop |give-up .*(cell|unclaimed)/)")
_LOOKS = re.compile(r"sweepctl (status|logs|doctor|audit|results)\b")
_BOXES = re.compile(r"\bsweepctl (give-up .*\bdata/|audit .*--abandon\b)")


def give_up(stack: str, boxes: Sequence[str], when: str = GIVES_UP) -> str:
    """The way that is always there: by name, with a reason, and on record. `when`: what is said behind it."""
    names = " ".join(f"data/{name}" for name in sorted(boxes))
    return f'sweepctl give-up --stack {stack} {names} --reason "…" && pulumi destroy --stack {stack}    ({when})'


def accept(stack: str, cells: Iterable[str], when: str) -> str:
    """The way that does without these cells, or takes them as they are, and finishes."""
    lost = " ".join(f"cell/{name}" for name in cells)
    return f'sweepctl give-up --stack {stack} {lost} --reason "…" && sweepctl finish --stack {stack}    ({when})'


def gives_up(way: str) -> bool:
    """Whether this line gives up what is on a box or a volume."""
    return _BOXES.search(way) is not None


def sure_first(ways: Iterable[str]) -> list[str]:
    """The commands, each once: those that lose nothing, then what gives up a cell, then what gives up a box, each in
    their order. Last those that call boxes gone if a condition holds, which only the person knows."""
    return sorted(dict.fromkeys(ways), key=lambda way: (ONLY_IF in way, gives_up(way), _CELLS.search(way) is not None))


def without_need(ways: Iterable[str]) -> list[str]:
    """The same without what gives a box up, where another of them changes something."""
    named = sure_first(ways)
    others = [way for way in named if not gives_up(way)]
    return others if any(not _LOOKS.match(way) for way in others) else named
