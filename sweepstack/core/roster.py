"""The roster: every cell that must exist at the end, made from the stack config alone.

A cell's name comes from its axes in axis order (`lr0.1-seed0`), so a default added to `base` renames nothing. Names
become folders on boxes, volumes and laptops: a name that a person wrote and that is unsafe there, or one that differs
from another by case alone, is refused before anything is rented.

A value that can't be part of a name (`meta-llama/Llama-3-8B`, `[64,64]`) stands in it with `-` for what has no place
there, and with the first digits of a digest of itself. So a name depends on its own cell alone: a further value of an
axis renames nothing, and two values don't get one name because they look alike without their odd letters.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from sweepstack.core.cells import PARAM_NAME, PIN, RESERVED, CellsConfig, Param, number_in, read_param, spell
from sweepstack.core.records import Cell
from sweepstack.core.suggest import did_you_mean
from sweepstack.onbox.common.canonical import digest_of, hex_of
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.onbox.common.longer import FROM, SOURCE
from sweepstack.onbox.common.priority import CELL, means, same

MOST_CELLS = 100_000
"""What a roster may hold; the matrix counts as it is written, before `exclude`."""
_MOST_COMPARED = 10_000_000
"""Entries of `include` or `exclude` times cells: each entry is held against each cell."""
_MOST_HINTS = 20
_PREFIX = re.compile(r"[0-9a-f]{2,64}")

Where = tuple[str | int, ...]


def in_order(name: str) -> list[tuple[int, str]]:
    """To sort names by: `seed4` before `seed10`."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", name)]


@dataclass(frozen=True)
class Problem:
    """A mistake, and where it was written: keys and list positions from `cells` on."""

    where: Where
    text: str


@dataclass(frozen=True)
class Roster:
    """The cells, in the order in which they were written; `dropped`: name → reason, of cells that need not exist.

    `pins`: name → the first hex digits of the code that this cell runs. A version, so no part of the cell's identity.
    `retry`: name → how often the stack file asks for it again. `doubled`: cells that a sweep which begins would not
    have: two of one value. Sweeps that began before this was told may have them. `priority`: which start first
    (`onbox.common.priority`).
    """

    cells: tuple[Cell, ...]
    dropped: dict[str, str] = field(default_factory=dict)
    pins: dict[str, str] = field(default_factory=dict)
    doubled: tuple[Problem, ...] = ()
    retry: dict[str, int] = field(default_factory=dict)
    priority: tuple[dict[str, Param], ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names, in the cells' order."""
        return tuple(cell.name for cell in self.cells)

    @cached_property
    def digest(self) -> str:
        """Over sorted names and config digests: the same for the same cells, however they were written."""
        return digest_of(sorted([cell.name, cell.config_digest] for cell in self.cells))


@dataclass
class _Draft:
    """A cell on its way: `source` is where a person finds it."""

    params: dict[str, Param]
    axes: tuple[str, ...]
    where: Where
    name: str = ""
    pin: str = ""
    added: dict[str, Where] = field(default_factory=dict)

    @property
    def source(self) -> str:
        path = dotted(self.where)
        if self.where[-1] in ("grid", "zip"):
            return f"{path} {' '.join(f'{axis}={spell(self.params[axis])}' for axis in self.axes)}"
        return path


def dotted(where: Where) -> str:
    """`cells.add[1].lr`."""
    text = ""
    for part in where:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def expand(cells: CellsConfig) -> Roster:
    """The roster, or ConfigError with every mistake. Pure; 10,000 cells take well under a second."""
    roster, problems = examine(cells)
    if roster is None:
        lines = [f"{dotted(problem.where)}: {problem.text}" for problem in problems]
        raise ConfigError("the cells don't make a roster:\n" + "\n".join(lines), lines)
    return roster


def examine(cells: CellsConfig, asked: Container[str] = ()) -> tuple[Roster | None, list[Problem]]:
    """The roster, or None and every mistake. `asked`: the placeholders of the stack file. Where `from` is one of them,
    or a parameter of the matrix or of `base`, it is a parameter of listed cells, too, and names no cell."""
    problems = _too_many(cells)
    if problems:
        return None, problems
    base = _params(cells.base, ("cells", "base"), problems)
    is_param = FROM in asked or any(FROM in known for known in (cells.base, cells.grid, cells.zip_, *cells.include))
    drafts = _matrix(cells, base, problems) + _listed(cells, base, problems, sources=not is_param)
    if problems:
        return None, problems
    doubled = _doubled([draft for draft in drafts if not draft.name])
    _name_all(drafts, problems)
    _sources(drafts, problems)
    for name, reason in cells.drop.items():
        if not reason.strip():
            problems.append(Problem(("cells", "drop", name), "expected a reason"))
    known = {draft.name for draft in drafts}
    for key, listed in (("drop", cells.drop), ("retry", cells.retry)):
        for index, name in enumerate(listed):
            if name not in known:
                near = did_you_mean(name, known) if index < _MOST_HINTS else ""
                hint = near or (". A dropped cell stays in grid, list or add" if key == "drop" else "")
                problems.append(Problem(("cells", key, name), f"no such cell on the roster{hint}"))
    for name, times in cells.retry.items():
        if isinstance(times, bool) or not isinstance(times, int) or not 1 <= times < 10**6:
            problems.append(Problem(("cells", "retry", name), "expected how often, such as 1; one more each time"))
    priority = tuple(_priority(cells, drafts, problems))
    kept = tuple(
        Cell.model_construct(name=draft.name, params=draft.params) for draft in drafts if draft.name not in cells.drop
    )
    if not kept and not problems:
        problems.append(_nothing_left(cells, bool(drafts)))
    pins = {draft.name: draft.pin for draft in drafts if draft.pin and draft.name not in cells.drop}
    roster = Roster(kept, dict(cells.drop), pins, doubled, dict(cells.retry), priority)
    return (None, problems) if problems else (roster, [])


def _too_many(cells: CellsConfig) -> list[Problem]:
    """What would be too many cells, told from the axes' lengths before any of them is made."""
    lengths = {axis: len(values) for axis, values in cells.grid.items()}
    rows = max((len(values) for values in cells.zip_.values()), default=0)
    factors = [*lengths.values(), *([rows] if rows else [])]
    matrix = math.prod(factors) if factors else 0
    listed = len(cells.list_) + len(cells.add)
    if matrix + listed > MOST_CELLS:
        spelled = " x ".join(f"{factor:,}" for factor in factors[:6]) + (" x …" if len(factors) > 6 else "")
        where: Where = ("cells", "grid" if cells.grid else "zip") if matrix > listed else ("cells",)
        matrix_words = f"{spelled} = {_many(matrix)} cells" if len(factors) > 1 else f"{_many(matrix)} cells"
        found = (
            matrix_words if not listed else f"{matrix_words} and {listed:,} listed" if matrix else f"{listed:,} cells"
        )
        return [Problem(where, f"{found}, and {MOST_CELLS:,} is the most: split the sweep")]
    return [
        Problem(("cells", key), f"{entries:,} entries for {matrix:,} cells take too long to match; split the sweep")
        for key, entries in (("include", len(cells.include)), ("exclude", len(cells.exclude)))
        if entries * matrix > _MOST_COMPARED
    ]


def _many(count: int) -> str:
    """A number that may have hundreds of digits."""
    return f"{count:,}" if count < 10**15 else f"about 10^{int(math.log10(count))}"


def _nothing_left(cells: CellsConfig, made_some: bool) -> Problem:
    empty = "An empty roster can't be verified"
    if made_some:
        return Problem(("cells", "drop"), f"every cell is dropped. {empty}")
    if cells.exclude and (cells.grid or cells.zip_):
        return Problem(("cells", "exclude"), f"takes out every cell that grid and zip make. {empty}")
    return Problem(("cells",), f"no cells: give grid, zip, list or add. {empty}")


def _params(written: Mapping[str, Any], where: Where, problems: list[Problem]) -> dict[str, Param]:
    params: dict[str, Param] = {}
    for key, value in written.items():
        if not _key_is_good(key, (*where, key), problems):
            continue
        try:
            params[key] = read_param(value)
        except ValueError as error:
            problems.append(Problem((*where, key), str(error)))
    return params


def _key_is_good(key: str, where: Where, problems: list[Problem]) -> bool:
    if key in RESERVED:
        problems.append(Problem(where, f"{{{key}}} is filled in by the runner; call the parameter something else"))
    elif key == PIN:
        pinned = "pins a cell of cells.list or cells.add to a version; call the parameter something else"
        problems.append(Problem(where, pinned))
    elif not PARAM_NAME.fullmatch(key):
        problems.append(Problem(where, "expected a parameter's name: letters, digits and _, no digit first"))
    else:
        return True
    return False


def _matrix(cells: CellsConfig, base: dict[str, Param], problems: list[Problem]) -> list[_Draft]:
    found = len(problems)
    grid = {axis: _axis(axis, values, ("cells", "grid"), problems) for axis, values in cells.grid.items()}
    rows = {axis: _axis(axis, values, ("cells", "zip"), problems, twice=True) for axis, values in cells.zip_.items()}
    for axis in cells.zip_:
        if axis in cells.grid:
            problems.append(Problem(("cells", "zip", axis), "is in cells.grid too; an axis stands in one of them"))
    lengths = {axis: len(values) for axis, values in cells.zip_.items()}
    if len(set(lengths.values())) > 1:
        sizes = ", ".join(f"{axis} has {count}" for axis, count in lengths.items())
        problems.append(Problem(("cells", "zip"), f"axes that go together need as many values each: {sizes}"))
    axes = (*grid, *rows)
    for key in ("include", "exclude"):
        if getattr(cells, key) and not axes:
            problems.append(Problem(("cells", key), "needs cells.grid or cells.zip to work on"))
    if len(problems) > found or not axes:
        return []
    where: Where = ("cells", "grid") if grid else ("cells", "zip")
    zipped: Iterable[tuple[Param, ...]] = zip(*rows.values(), strict=True) if rows else [()]
    drafts = [
        _Draft({**base, **dict(zip(axes, (*left, *right), strict=True))}, axes, where)
        for left, right in itertools.product(itertools.product(*grid.values()), list(zipped))
    ]
    drafts = _exclude(cells, axes, drafts, problems)
    _include(cells, axes, drafts, problems)
    return drafts


def _axis(
    axis: str, values: Sequence[Any], where: Where, problems: list[Problem], *, twice: bool = False
) -> list[Param]:
    where = (*where, axis)
    if not _key_is_good(axis, where, problems):
        return []
    if not values:
        problems.append(Problem(where, "expected at least one value"))
    read: list[Param] = []
    spelled: set[str] = set()
    for index, value in enumerate(values):
        try:
            param = read_param(value)
        except ValueError as error:
            problems.append(Problem((*where, index), str(error)))
            continue
        if not twice and spell(param) in spelled:
            problems.append(Problem((*where, index), f"{spell(param)} is listed twice"))
        spelled.add(spell(param))
        read.append(param)
    return read


def _matching(condition: Mapping[str, Param], drafts: list[_Draft]) -> list[_Draft]:
    return [draft for draft in drafts if all(same(draft.params[axis], value) for axis, value in condition.items())]


def _exclude(cells: CellsConfig, axes: tuple[str, ...], drafts: list[_Draft], problems: list[Problem]) -> list[_Draft]:
    excluded: set[int] = set()
    for index, entry in enumerate(cells.exclude):
        where: Where = ("cells", "exclude", index)
        condition = _params(entry, where, problems)
        foreign = [key for key in condition if key not in axes]
        for key in foreign:
            problems.append(Problem((*where, key), f"no such axis{did_you_mean(key, axes)}"))
        if foreign:
            continue
        matching = _matching(condition, drafts) if condition else []
        if not matching:
            problems.append(Problem(where, "matches no cell of the matrix"))
        excluded |= {id(draft) for draft in matching}
    return [draft for draft in drafts if id(draft) not in excluded]


def _include(cells: CellsConfig, axes: tuple[str, ...], drafts: list[_Draft], problems: list[Problem]) -> None:
    """Parameters for some cells of the matrix: like `base`, under a condition on axes; names stay."""
    for index, entry in enumerate(cells.include):
        where: Where = ("cells", "include", index)
        params = _params(entry, where, problems)
        condition = {key: value for key, value in params.items() if key in axes}
        extra = {key: value for key, value in params.items() if key not in axes}
        if not condition or not extra:
            wanted = "an axis to match and a parameter to set; for a further cell use cells.add"
            problems.append(Problem(where, f"expected {wanted}"))
            continue
        matching = _matching(condition, drafts)
        if not matching:
            problems.append(Problem(where, "matches no cell of the matrix; for a further cell use cells.add"))
        for draft in matching:
            for key, value in extra.items():
                earlier = draft.added.get(key)
                if earlier is not None and not same(draft.params[key], value):
                    problems.append(Problem((*where, key), f"{dotted(earlier)} sets it for the same cell"))
                draft.added[key] = where
                draft.params[key] = value


def _listed(
    cells: CellsConfig, base: dict[str, Param], problems: list[Problem], *, sources: bool = True
) -> list[_Draft]:
    if cells.list_ and (cells.grid or cells.zip_):
        problems.append(Problem(("cells", "list"), "beside grid or zip use cells.add for further cells"))
    # A key stands where the sweep first mentions it, so that reordering an entry renames nothing.
    order: dict[str, None] = dict.fromkeys([*cells.grid, *cells.zip_])
    drafts = []
    for key, entries in (("list", cells.list_), ("add", cells.add)):
        for index, entry in enumerate(entries):
            where: Where = ("cells", key, index)
            own = dict(entry)
            name = own.pop("name", "")
            if "name" in entry and (not isinstance(name, str) or not name):
                problems.append(Problem((*where, "name"), "expected text"))
                name = "?"
            pin = _pin(own.pop(PIN), (*where, PIN), problems) if PIN in own else ""
            begins = {SOURCE: own.pop(FROM)} if sources and FROM in own else {}
            if any(not isinstance(source, str) or not source for source in begins.values()):
                problems.append(Problem((*where, FROM), "expected the name of the cell that it begins from"))
            params = _params(own, where, problems)
            if not own and not name:
                problems.append(Problem(where, "expected parameters, or a name"))
            order.update(dict.fromkeys(params))
            axes = tuple(axis for axis in order if axis in params)
            drafts.append(_Draft({**base, **params, **begins}, axes, where, name, pin))
    return drafts


def _pin(value: Any, where: Where, problems: list[Problem]) -> str:
    """The first digits of a code digest. In quotes: YAML makes numbers of some (`1234`, `12e4`)."""
    text = hex_of(value) if isinstance(value, str) else ""
    if not _PREFIX.fullmatch(text):
        problems.append(Problem(where, 'expected the first digits of a code that ran, in quotes: code: "a1f3"'))
        return ""
    return text


def _name_all(drafts: list[_Draft], problems: list[Problem]) -> None:
    """Names every draft, and refuses doubled names, and unsafe ones that a person wrote, with their sources."""
    first: dict[str, _Draft] = {}
    for draft in drafts:
        why = unsafe(draft.name) if draft.name else ""
        if why:
            problems.append(Problem(draft.where, f"{draft.source}: {why}"))
            continue
        draft.name = draft.name or name_of(draft.params, draft.axes)
        earlier = first.setdefault(draft.name.casefold(), draft)
        if earlier is draft:
            continue
        how = "the same name" if earlier.name == draft.name else "names that differ by case alone"
        both = f"{earlier.name!r}" if earlier.name == draft.name else f"{earlier.name!r} and {draft.name!r}"
        problems.append(
            Problem(draft.where, f"{earlier.source} and {draft.source} give {how}, {both}; {_apart(earlier, draft)}")
        )


def _sources(drafts: Sequence[_Draft], problems: list[Problem]) -> None:
    """Refuses what begins from no cell of the roster, or in the end from itself."""
    begins = {draft.name: str(draft.params[SOURCE]) for draft in drafts if SOURCE in draft.params}
    names = {draft.name for draft in drafts} if begins else set()
    ends: set[str] = set()  # where a walk from source to source comes to an end
    for draft in drafts if begins else ():
        source, path = begins.get(draft.name, ""), dict.fromkeys([draft.name])
        after = source
        while after in begins and after not in path and after not in ends:
            path[after] = None
            after = begins[after]
        ends.update(path if after not in path else ())
        if source and source not in names:
            param = "; a job with a parameter `from` names {from} in job.run"
            problems.append(
                Problem((*draft.where, FROM), f"no such cell on the roster{did_you_mean(source, names)}{param}")
            )
        elif source and after == draft.name:
            problems.append(Problem((*draft.where, FROM), f"a circle: {' begins from '.join([*path, draft.name])}"))


def _priority(cells: CellsConfig, drafts: Sequence[_Draft], problems: list[Problem]) -> Iterator[dict[str, Param]]:
    """The lines of `cells.priority`. A dropped cell may stand there: it starts nowhere."""
    names = {draft.name for draft in drafts}
    known = {key for draft in drafts for key in draft.params} if cells.priority else set()
    for index, line in enumerate(cells.priority):
        where, found = ("cells", "priority", index), len(problems)
        name = {CELL: line[CELL]} if CELL in line else {}
        values = _params({key: value for key, value in line.items() if key != CELL}, where, problems)
        if name and name[CELL] not in names:
            near = did_you_mean(str(name[CELL]), names)
            problems.append(Problem((*where, CELL), f"no such cell on the roster{near}"))
        for key in sorted(values.keys() - known):
            problems.append(Problem((*where, key), f"no cell has such a parameter{did_you_mean(key, known)}"))
        whole = {**values, **name}
        if len(problems) == found and not (whole and any(means(whole, one.name, one.params) for one in drafts)):
            problems.append(Problem(where, "matches no cell" if whole else "expected a cell, or values of parameters"))
        yield whole


def _doubled(drafts: Sequence[_Draft]) -> tuple[Problem, ...]:
    """The first two cells that differ only in how a number is written: "1e-4" and 0.0001."""
    texts = {text for draft in drafts for axis in draft.axes if isinstance(text := draft.params[axis], str)}
    numbers = {text: number for text in texts if (number := number_in(text)) is not None}
    first: dict[tuple[Any, ...], _Draft] = {}
    for draft in drafts if numbers else ():
        values = [(axis, draft.params[axis]) for axis in draft.axes]
        alike = tuple((axis, isinstance(value, bool), numbers.get(str(value), value)) for axis, value in values)
        earlier = first.setdefault(alike, draft)
        both = [(axis, value) for axis, value in values if not same(earlier.params[axis], value)]
        if both:
            words = ", ".join(f"{axis} {spell(value)} is {spell(earlier.params[axis])}" for axis, value in both)
            text = (
                f"{earlier.source} and {draft.source} are one cell written in two ways ({words}); take one of them out"
            )
            return (Problem(draft.where, text),)
    return ()


def _apart(one: _Draft, other: _Draft) -> str:
    """How two cells get different names. A cell of a matrix has none of its own."""
    if all(draft.where[-1] in ("grid", "zip") for draft in (one, other)):
        return "write one of the values otherwise, or list these cells in cells.list with a `name` each"
    return "give the listed one a `name`"


MOST = 128
"""Characters of a name."""
SAFE_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._+-]{{0,{MOST - 1}}}")
"""sweepstack.core.records.CellName, for the hot path."""
_OURS = re.compile(r".*\.(partial|superseded)-\d+", re.IGNORECASE)
"""What the runner calls copies that are not sealed."""
_ODD = re.compile(r"[^A-Za-z0-9._+-]+")
_SHOWN = 40
"""Characters that a name shows of a value that can't stand in it as it is."""
_DIGITS = 6


def name_of(params: Mapping[str, Param], axes: Sequence[str]) -> str:
    """`lr0.1-seed0`, `modelmeta-llama-Llama-3-8B_fa5df4-seed0`. Cells that ran have these names: they never change."""
    spelled = {axis: spell(params[axis]) for axis in axes}
    name = "-".join([axis + value for axis, value in spelled.items()])
    if is_safe(name):
        return name
    name = "-".join([axis + _part(value) for axis, value in spelled.items()])
    if is_safe(name):
        return name
    return _marked((name.lstrip("._+-") or "cell")[: MOST - _DIGITS - 1], name)


def is_safe(name: str) -> bool:
    """Whether a name can be a folder everywhere, and is none that unfinished copies get."""
    return SAFE_NAME.fullmatch(name) is not None and _OURS.fullmatch(name) is None


def unsafe(name: str) -> str:
    """Why a name that a person wrote can't be a folder everywhere; empty when it can."""
    if is_safe(name):
        return ""
    if len(name) > MOST:
        return f"the name {name[:40]!r}… has {len(name)} characters, and {MOST} is the most"
    if _OURS.fullmatch(name):
        return f"the name {name!r} is what unfinished copies are called; take another one"
    bad = sorted({character for character in name if _ODD.fullmatch(character)})
    what = f"has {' '.join(repr(character) for character in bad)}" if bad else "does not begin with a letter or digit"
    return f"the name {name!r} {what} and becomes a folder; take one of letters, digits and . _ + -"


def _part(value: str) -> str:
    if not _ODD.search(value):
        return value
    return _marked(_ODD.sub("-", value).strip("-")[:_SHOWN].rstrip("-"), value)


def _marked(shown: str, whole: str) -> str:
    return f"{shown}_{hex_of(digest_of(whole))[:_DIGITS]}"
