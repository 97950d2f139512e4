"""`search:` of a stack config: axes to draw cells from, by which sampler, and how many at most."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from sweepstack.config.types import Count, CountOrZero, Shape, Text, Usd, wrong
from sweepstack.core.budget import Budget
from sweepstack.core.cells import PARAM_NAME, PIN, RESERVED, read_param, spell
from sweepstack.onbox.common.priority import same

KINDS = ("uniform", "log_uniform", "int", "log_int", "choice")
MOST_CELLS = 10_000
"""What a search may draw: its log is read by every command of the sweep."""


def _range(value: Any) -> tuple[float, float]:
    expected = "two numbers, the least and the most, such as [0.001, 0.1]"
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise wrong(expected)
    try:
        ends = [read_param(one) for one in value]
    except ValueError:
        raise wrong(expected) from None
    if any(isinstance(one, bool | str) for one in ends):
        try:  # YAML reads 1e-4 as text
            ends = [float(one) for one in ends if not isinstance(one, bool)]
        except ValueError:
            raise wrong(expected) from None
    if len(ends) != 2 or not float(ends[0]) < float(ends[1]) or not math.isfinite(float(ends[1])):
        raise wrong(expected)
    return float(ends[0]), float(ends[1])


def _above_zero(value: tuple[float, ...]) -> tuple[float, ...]:
    if value[0] <= 0:
        raise wrong("two numbers above 0, since their logarithms are drawn, such as [0.0001, 0.1]")
    return value


def _whole(value: tuple[float, ...]) -> tuple[float, ...]:
    if any(one != int(one) or abs(one) > 2**53 for one in value):
        raise wrong("two whole numbers, such as [1, 8]")
    return value


def _choices(value: Any) -> tuple[Any, ...]:
    expected = "a list of values, each of them once, such as [sgd, adam]"
    if not isinstance(value, list | tuple) or not value:
        raise wrong(expected)
    try:
        read = tuple(read_param(one) for one in value)
    except ValueError as error:
        raise wrong(f"{expected}: {error}") from None
    if len({spell(one) for one in read}) != len(read):
        raise wrong(expected)
    return read


def _step(value: Any) -> float:
    try:
        step = float(value)
    except (TypeError, ValueError):
        step = 0.0
    if isinstance(value, bool) or not 0 < step < math.inf:
        raise wrong("a number above 0, such as 0.1")
    return step


Range = Annotated[tuple[float, ...], BeforeValidator(_range)]


class SearchAxis(Shape):
    """What one parameter is drawn from: exactly one of the first five keys."""

    anchor: ClassVar[str] = "search-axes"
    uniform: Range | None = None
    """the least and the most: any number between them, all alike; with `step`, every such step from the least on"""
    log_uniform: Annotated[Range, AfterValidator(_above_zero)] | None = None
    """the same, where the logarithms are all alike: `[0.0001, 0.1]` draws as many below 0.003 as above"""
    int_: Annotated[Annotated[Range, AfterValidator(_whole)] | None, Field(alias="int")] = None
    """two whole numbers: any whole number between them, both included; with `step`, every such step from the least"""
    log_int: Annotated[Range, AfterValidator(_above_zero), AfterValidator(_whole)] | None = None
    """the same by logarithms, for sizes such as `[16, 1024]`"""
    choice: Annotated[tuple[Any, ...], BeforeValidator(_choices)] | None = None
    """one of these values: texts, numbers, `true` and `false`"""
    step: Annotated[float, BeforeValidator(_step)] | None = None
    """with `uniform` and `int`: only the least and each further step"""
    when: dict[str, Any] = Field(default_factory=dict)
    """axis above → its value, or a list of values: this axis is drawn only for cells that have it. Others go without
    the parameter, or with its default in `cells.base`"""

    @property
    def given(self) -> Iterator[str]:
        """Those of KINDS that it names: one, once it is checked."""
        return (kind for kind in KINDS if getattr(self, "int_" if kind == "int" else kind) is not None)

    @property
    def kind(self) -> str:
        """Which of KINDS it is."""
        return next(self.given)

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the most; of a choice: of its positions."""
        if self.choice is not None:
            return 0, len(self.choice) - 1
        found = self.uniform or self.log_uniform or self.int_ or self.log_int
        assert found is not None
        return found[0], found[1]

    def fits(self, params: dict[str, Any]) -> bool:
        """Whether a cell with these parameters has this axis."""
        return all(
            name in params and any(same(params[name], one) for one in allowed(value))
            for name, value in self.when.items()
        )


def allowed(value: Any) -> list[Any]:
    """The values that `when` lists for one axis."""
    return [read_param(one) for one in (value if isinstance(value, list | tuple) else [value])]


def _one_kind(axis: SearchAxis) -> SearchAxis:
    given = list(axis.given)
    if len(given) != 1:
        raise wrong(f"one of {', '.join(KINDS)}" + (f", not both {' and '.join(given)}" if given else ""))
    if axis.step is not None:
        if axis.kind not in ("uniform", "int"):
            raise wrong(f"no step beside {axis.kind}: it goes with uniform and int")
        if axis.kind == "int" and axis.step != int(axis.step):
            raise wrong("a whole step beside int")
        if axis.step > axis.ends[1] - axis.ends[0]:
            raise wrong("a step that is smaller than the range")
    return axis


def _axes(axes: dict[str, SearchAxis]) -> dict[str, SearchAxis]:
    if not axes:
        raise wrong("at least one axis, such as lr: {log_uniform: [0.0001, 0.1]}")
    above: dict[str, SearchAxis] = {}
    for name, axis in axes.items():
        if not PARAM_NAME.fullmatch(name) or name in (*RESERVED, PIN):
            raise wrong(f"the name of a parameter, and {name} can be none")
        for other, value in axis.when.items():
            if other not in above:
                raise wrong(f"an axis that stands above {name} in its `when`, and {other} does not")
            try:
                values = allowed(value)
            except ValueError:
                raise wrong(f"a value, or a list of values, for {other} in `when` of {name}") from None
            choice = above[other].choice
            if choice is not None and not all(any(same(one, known) for known in choice) for one in values):
                raise wrong(f"a value of {other} in `when` of {name}: {', '.join(map(spell, choice))}")
        above[name] = axis
    return axes


def _bounded(value: int) -> int:
    if value > MOST_CELLS:
        raise wrong(f"{MOST_CELLS:,} cells at most")
    return value


class AtMost(Shape):
    """How much a search may draw: what a reviewer agrees to."""

    anchor: ClassVar[str] = "search-at_most"
    cells: Annotated[Count, AfterValidator(_bounded)]
    """so many cells in all, beside those of `cells`"""
    dollars: Usd | None = None
    """USD that the sweep may have cost, with what open cells are expected to take, when one more cell is drawn. What
    runs goes on: the hard end is `budget`"""


def _rungs(value: Any) -> tuple[float, ...]:
    expected = "numbers of metrics.x, each larger than the one before it, such as [1, 3, 9]"
    if not isinstance(value, list | tuple) or not value:
        raise wrong(expected)
    try:
        read = tuple(float(one) for one in value if not isinstance(one, bool))
    except (TypeError, ValueError):
        raise wrong(expected) from None
    if len(read) != len(value) or any(one >= two for one, two in pairwise(read)) or not math.isfinite(read[-1]):
        raise wrong(expected)
    return read


def _several(value: int) -> int:
    if value < 2:
        raise wrong("2 or more: of so many cells one goes on")
    return value


class StopConfig(Shape):
    """The rule that stops cells early, by `metric` and `goal`."""

    anchor: ClassVar[str] = "search-stop"
    rule: Literal["asha", "median", "patience"]
    """at each of `rungs`: `asha` lets the best part of the cells go on that came there; `median` those that are not
    worse than the median of the others there; `patience` those that were as good as at their best lately"""
    rungs: Annotated[tuple[float, ...], BeforeValidator(_rungs)]
    """where a cell is judged, as values of `metrics.x`: `[1, 3, 9]`. What counts is the first row at or behind it"""
    factor: Annotated[Count, AfterValidator(_several)] = 3
    """of `asha`: of so many cells that came to a rung, one goes on; 3 by default"""
    least: Count = 3
    """of `asha` and `median`: no cell is stopped where fewer cells came, itself among them; 3 by default"""
    patience: Count = 2
    """of `patience`: at so many rungs in a row it was worse than at its best before; 2 by default"""


class SearchConfig(Shape):
    """Cells that are drawn from ranges while the sweep runs."""

    anchor: ClassVar[str] = "search"
    axes: Annotated[
        dict[str, Annotated[SearchAxis, AfterValidator(_one_kind)]],
        AfterValidator(_axes),
    ]
    """parameter → what it is drawn from: [axes](#search-axes)"""
    at_most: AtMost
    """how many cells, and how many dollars: [at_most](#search-at_most)"""
    sampler: Literal["random", "sobol", "tpe", "nsgaii"] = "random"
    """`random` (default); `sobol`: scipy's scrambled Sobol sequence, which covers a space more evenly; `tpe` and
    `nsgaii`: Optuna's samplers, which learn from `metric`. All but `random` need the extra `search`"""
    seed: CountOrZero = 0
    """the same file, seed and history draw the same cells; 0 by default"""
    at_once: Annotated[Count, AfterValidator(_bounded)] = 4
    """so many of its cells are open at a time, 4 by default; the first `pulumi up` begins with so many"""
    metric: Text | None = None
    """the column of the metrics file that says how good a cell is; what counts is its last value. Needed by samplers
    that learn"""
    goal: Literal["minimize", "maximize"] = "minimize"
    """whether the least of `metric` is the best (default), or the most"""

    stop: StopConfig | None = None
    """the rule that stops cells early: [stop](#search-stop). Without one none is stopped"""

    @property
    def text(self) -> str:
        """All that a review binds, as one line. The order of the axes counts: conditions and Sobol go by it."""
        dumped = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return json.dumps(_plain(dumped), separators=(", ", ": "), ensure_ascii=True)

    @property
    def learns(self) -> bool:
        """Whether the sampler asks how earlier cells did."""
        return self.sampler in ("tpe", "nsgaii")


def _plain(value: Any) -> Any:
    """The same with whole numbers written as such."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def search_words(text: str, budget: Budget | None) -> str:
    """The most that a search can cost, for a review. `text`: `SearchConfig.text`."""
    search = SearchConfig.model_validate_json(text)
    most = f"search: {search.sampler} draws {search.at_most.cells} cells at most, {search.at_once} at a time"
    if search.stop is not None:
        most += f"; {search.stop.rule} stops cells early at {', '.join(f'{one:g}' for one in search.stop.rungs)}"
    bound = search.at_most.dollars
    if bound is not None:
        most += f", and none once the sweep would cost more than ${bound:g} with it; what runs then goes on"
    hard = budget.usd if budget is not None and budget.stop else None
    if hard is not None:
        return f"{most}; boxes are stopped at ${hard:g} (budget)"
    return most if bound is not None else f"{most}; no bound in dollars (search.at_most.dollars, budget)"


def needs_metric(search: SearchConfig | None) -> SearchConfig | None:
    """`search`, if it names what it goes by; else raises with what is missing."""
    if search is not None and search.metric is None and (search.learns or search.stop is not None):
        what = f"{search.sampler} learns from it" if search.learns else "stop goes by it"
        raise wrong(f"metric: {what}, such as metric: accuracy, goal: maximize")
    return search
