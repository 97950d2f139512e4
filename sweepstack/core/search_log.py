"""The log of a search: which cells were drawn, how they ended, which were stopped early, and why.

One canonical JSON line each, with the hash of the line before it. It is only ever appended to. A line that does not
read, breaks the chain, or says a thing twice is damage: a log that was edited never makes a roster.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Literal

from pydantic import Field, ValidationError

from sweepstack.core.records import CellName, Record, later
from sweepstack.onbox.common.canonical import GENESIS, canonical_json, sha256_hex
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import EvidenceDamaged

PREFIX = "s"
"""Cell number 7 of a search is `s7`."""
Kind = Literal["suggested", "reached", "scored", "pruned", "kept"]
PRUNED = "pruned by "
"""What `Step.why` begins with: so a box says why it stopped such a cell."""


class Step(Record):
    """One line. What a kind does not have is left out of it.

    `suggested`: cell `s<number>` with `params`. `reached`: at `x`, the first of its curve from `rung` on, its metric
    was `value`. `scored`: it ended in `state`; `value`: its metric then, None where it has none. `pruned`: `rule`
    stopped it at `rung`, where at `x` it had `value`, and `bound` was needed, by the numbers of `among` cells. `kept`:
    `by` brought it back for `reason`: no rule stops it again.
    """

    kind: Kind
    cell: CellName
    number: int | None = later(None, ge=0)
    params: dict[str, Any] = Field(default={}, exclude_if=lambda value: not value)
    state: str = later("")
    value: float | None = later(None)
    rule: str = later("")
    rung: float | None = later(None)
    x: float | None = later(None)
    metric: str = later("")
    among: int = later(0, ge=0)
    bound: float | None = later(None)
    by: str = later("")
    reason: str = later("")

    @property
    def why(self) -> str:
        """Of a pruned cell: which rule, where, and by which numbers; as queues and people are told."""
        others = f"among the {self.among} cells that came there" if self.among else "its best before"
        return (
            f"{PRUNED}{self.rule} at {_short(self.rung)} (reached at {_short(self.x)}): {self.metric} is "
            f"{_short(self.value)}, and {_short(self.bound)} was needed, {others}"
        )


def _short(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.6g}"


@dataclass(frozen=True)
class SearchLog:
    """The lines in their order; `data`: their bytes, and `tag`: of the object that was read."""

    steps: tuple[Step, ...] = ()
    data: bytes = b""
    tag: str = ""

    @cached_property
    def suggested(self) -> dict[str, Step]:
        """Cell → the line that drew it, by number."""
        return {step.cell: step for step in self.steps if step.kind == "suggested"}

    @cached_property
    def scored(self) -> dict[str, Step]:
        """Cell → how it ended last, since it was drawn or brought back."""
        return self._last("scored", until=("kept",))

    @cached_property
    def pruned(self) -> dict[str, Step]:
        """Cells that are stopped, and by which line. Not those that a person brought back."""
        return self._last("pruned", until=("kept",))

    @cached_property
    def kept(self) -> frozenset[str]:
        """Cells that no rule stops any more."""
        return frozenset(step.cell for step in self.steps if step.kind == "kept")

    @cached_property
    def reached(self) -> dict[float, dict[str, Step]]:
        """Rung → cell → the line that says how it did there."""
        found: dict[float, dict[str, Step]] = {}
        for step in self.steps:
            if step.kind == "reached" and step.rung is not None:
                found.setdefault(step.rung, {})[step.cell] = step
        return found

    @property
    def open(self) -> list[str]:
        """Cells that were drawn and have not ended, in their order."""
        return [cell for cell in self.suggested if cell not in self.scored and cell not in self.pruned]

    def with_steps(self, steps: Iterable[Step]) -> "SearchLog":
        """The same with further lines. Raises EvidenceDamaged for a line that may not follow."""
        known, added, data = _Known(self.steps), list(steps), self.data
        for step in added:
            known.take(step)
            line = {**step.model_dump(mode="json"), "previous": _head(data)}
            data += canonical_json(line) + b"\n"
        return SearchLog((*self.steps, *added), data, self.tag)

    def _last(self, kind: Kind, until: Sequence[Kind]) -> dict[str, Step]:
        found: dict[str, Step] = {}
        for step in self.steps:
            if step.kind == kind:
                found[step.cell] = step
            elif step.kind in until:
                found.pop(step.cell, None)
        return found


def parse_search_log(data: bytes, tag: str = "", shown: str = "the log of the search") -> SearchLog:
    """The log in `data`. Raises EvidenceDamaged, with the line's number; also for a last line that is torn: a log is
    written whole."""
    steps: list[Step] = []
    known, before = _Known(), b""
    if data and not data.endswith(b"\n"):
        raise EvidenceDamaged(f"{shown} is damaged: its last line is cut off")
    for number, line in enumerate(data.splitlines(), start=1):
        try:
            raw = _read(line)
            if raw.pop("previous", None) != _head(before):
                raise EvidenceDamaged("it does not follow the line before it")
            step = Step.model_validate(raw)
            known.take(step)
        except (EvidenceDamaged, ValidationError, ValueError) as error:
            raise EvidenceDamaged(f"{shown}, line {number}, is damaged: {str(error).splitlines()[0]}") from error
        steps.append(step)
        before = line + b"\n"
    return SearchLog(tuple(steps), data, tag)


def _read(line: bytes) -> dict[str, Any]:
    from pydantic_core import from_json

    raw = from_json(line)
    if not isinstance(raw, dict) or canonical_json(raw) != line:
        raise ValueError("it is not as it was written")
    return raw


def _head(data: bytes) -> str:
    """The hash of the last line of whole lines."""
    last = data[:-1].rpartition(b"\n")[2] if data else b""
    return sha256_hex(last) if last else GENESIS


class _Known:
    """What the lines so far say: how many cells were drawn; of each its kinds of lines, and the rungs it reached."""

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        self.drawn = 0
        self.kinds: dict[str, list[str]] = {}
        self.rungs: set[tuple[str, float | None]] = set()
        for step in steps:
            self._add(step)

    def take(self, step: Step) -> None:
        """Adds a line. Raises EvidenceDamaged for a second one of what is said once, and for one that says too
        little."""
        if wrong := self._wrong(step, self.kinds.get(step.cell, [])):
            raise EvidenceDamaged(wrong)
        self._add(step)

    def _add(self, step: Step) -> None:
        if step.kind == "reached":
            self.rungs.add((step.cell, step.rung))
            return
        self.drawn += step.kind == "suggested"
        self.kinds.setdefault(step.cell, []).append(step.kind)

    def _wrong(self, step: Step, mine: Sequence[str]) -> str:
        wrong = ""
        if step.kind == "suggested" and (step.number, step.cell) != (self.drawn, f"{PREFIX}{self.drawn}"):
            wrong = f"{step.cell} is drawn, and {PREFIX}{self.drawn} is next"
        elif step.kind != "suggested" and "suggested" not in mine:
            wrong = f"{step.cell} is {step.kind}, and was never drawn"
        elif step.kind == "reached" and (
            step.rung is None or step.value is None or (step.cell, step.rung) in self.rungs
        ):
            wrong = f"{step.cell} reaches {step.rung} twice, or with no number"
        elif step.kind in ("pruned", "scored") and mine[-1] in ("pruned", "scored"):
            wrong = f"{step.cell} is {step.kind}, and ended before"
        elif step.kind == "pruned" and ("kept" in mine or not step.rule or step.rung is None):
            wrong = f"{step.cell} is pruned, which a person took back, or which names no rule"
        elif step.kind == "kept" and mine[-1] not in ("pruned", "kept"):
            wrong = f"{step.cell} is brought back, and was not stopped"
        return wrong
