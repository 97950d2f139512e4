"""A sweep to read from Python: its cells, results, curves, receipts, and the paths of its files.

Everything here only reads. Nothing is rented, changed, approved or ended by it, and it costs nothing. A value comes
from the same code as `sweepctl results` and `status` show it by, so both say the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from sweepstack.core.extras import lacks
from sweepstack.core.metrics import Series, series
from sweepstack.core.records import Cell, Manifest, Receipt
from sweepstack.core.results import SEED, CellResult, axes_of, cell_rows, columns_of, groups, mean_rows, over_curves
from sweepstack.core.suggest import did_you_mean
from sweepstack.evidence.cell_store import FolderCopies
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import No, Unsure
from sweepstack.operations.sweep.cell_file import pulled_copy
from sweepstack.operations.sweep.cell_results import curve_rows, files_of, read_results
from sweepstack.operations.sweep.collect import take_snapshot
from sweepstack.operations.sweep.sources import Sources, open_sources
from sweepstack.operations.sweep.target import Target
from sweepstack.status.compose import compose
from sweepstack.status.model import CellView
from sweepstack.status.snapshot import Snapshot

if TYPE_CHECKING:
    import pandas
    import polars


@dataclass(frozen=True)
class CellInfo:
    """A cell as it was at the last look. `state`: as `sweepctl status` says it (`verified`, `running`, `failed`, …);
    a later version may say others. `note`: why; "" where there is nothing to say."""

    name: str
    params: dict[str, Any]
    state: str
    box: str | None
    attempts: int
    note: str = ""

    @property
    def verified(self) -> bool:
        """Whether its files were proved good."""
        return self.state == "verified"


@dataclass(frozen=True)
class Curve:
    """One metric of one cell. `points`: (x, y) by the file's order; y may be NaN. `source`: where it was read; `note`:
    which earlier tries its beginning is of, "" where all is of one."""

    cell: str
    metric: str
    points: tuple[tuple[float, float], ...]
    source: str
    note: str = ""


class Sweep:
    """One sweep, as it was when it was opened, or at the last `refresh()`. `sweepstack.open` makes it."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.refresh()

    def refresh(self) -> None:
        """Looks again: at the state, the evidence, and the boxes. Blocks for half a minute at most where a box does not
        answer. Raises SweepstackError as `sweepstack.open`."""
        self._sources: Sources = open_sources(self._target)
        self._snapshot: Snapshot = take_snapshot(self._sources, files=False)
        self._views: dict[str, CellView] = {cell.name: cell for cell in compose(self._snapshot).cells}

    def __repr__(self) -> str:
        verified = sum(view.state == "verified" for view in self._views.values())
        return f"<sweep {self.name}: {verified} of {len(self._snapshot.roster)} cells verified>"

    @property
    def name(self) -> str:
        """The name of its stack."""
        return self._target.stack

    @property
    def axes(self) -> list[str]:
        """The parameters in which its cells differ, in the order of the stack file."""
        return axes_of(self._roster)

    @property
    def cells(self) -> list[CellInfo]:
        """All cells of the roster, in its order. Those that were dropped are not there."""
        return [self._info(cell) for cell in self._roster]

    def cell(self, name: str) -> CellInfo:
        """One cell. Raises sweepstack.No where there is none of this name, with a similar one."""
        return self._info(self._known(name))

    def results(self, metrics: Iterable[str] = (), *, everything: bool = False) -> list[dict[str, Any]]:
        """A row for each cell that is verified: `cell`, `state`, its axes, its values, `code`. Reads verified copies.

        `metrics`: only these values; `max:NAME`, `min:NAME` and `last:NAME` are of the cell's whole curve.
        `everything`: also cells that are not verified; `state` tells which. A name that no cell has gives no column.
        """
        found, columns = self._results(metrics, everything)
        return cell_rows(found, self.axes, columns)

    def means(
        self, metrics: Iterable[str] = (), *, over: Sequence[str] = (SEED,), everything: bool = False
    ) -> list[dict[str, Any]]:
        """A row for each group of cells that differ only in the axes `over`: the other axes, `n` (cells here), `of` (on
        the roster), `verified`, `code`, and of each value `NAME_mean`, `NAME_std` (n - 1), `NAME_n` and
        `NAME_not_finite`. One value that is not finite makes a mean None. Raises sweepstack.No where one of `over` is
        no axis; a sweep without seeds has none to average over."""
        averaged, axes = _several(over), self.axes
        for name in averaged:
            if name not in (*axes, SEED):
                has = f"it has {', '.join(axes)}" if axes else "its cells differ in nothing"
                raise No(f"over {name}: no axis of {self.name} ({has}){did_you_mean(name, axes)}")
        found, columns = self._results(metrics, everything)
        return mean_rows(groups(self._roster, found, averaged), columns)

    @overload
    def frame(
        self,
        metrics: Iterable[str] = ...,
        *,
        over: Sequence[str] | None = ...,
        everything: bool = ...,
        library: Literal["pandas"] = ...,
    ) -> pandas.DataFrame: ...

    @overload
    def frame(
        self,
        metrics: Iterable[str] = ...,
        *,
        over: Sequence[str] | None = ...,
        everything: bool = ...,
        library: Literal["polars"],
    ) -> polars.DataFrame: ...

    def frame(
        self,
        metrics: Iterable[str] = (),
        *,
        over: Sequence[str] | None = None,
        everything: bool = False,
        library: Literal["pandas", "polars"] = "pandas",
    ) -> Any:
        """`results` as a frame of pandas or polars; with `over`, `means`. Raises sweepstack.Unsure where the library is
        not installed, with the command that installs it."""
        if over is not None:
            return _frame(self.means(metrics, over=over, everything=everything), library)
        return _frame(self.results(metrics, everything=everything), library)

    def curves(self, metric: str | None = None, cells: Iterable[str] | None = None) -> list[Curve]:
        """What cells logged of a metric over the x of the stack file; by default its first `y`, and all cells. From the
        box, the pulled copy or the volume, whichever there is; a cell without such a curve is left out. A curve that a
        later try went on with begins with the rows of the earlier ones. Blocks for reads of boxes."""
        _, metrics = files_of(self._target, self._snapshot)
        if metrics is None or not (metric or metrics.y):
            raise No(f"{self.name} names no metrics file: `metrics` in its stack file")
        chosen, found = metric or metrics.y[0], []
        for name in _several(cells) if cells is not None else [cell.name for cell in self._roster]:
            rows = curve_rows(self._sources, self._snapshot, name, self._known(name).params, metrics)
            if isinstance(rows, str):
                continue
            line: Series = series(rows.rows, name, metrics.x, chosen)
            if line.points:
                found.append(Curve(name, chosen, line.points, rows.source, rows.note))
        return found

    def curve_frame(
        self,
        metric: str | None = None,
        cells: Iterable[str] | None = None,
        *,
        library: Literal["pandas", "polars"] = "pandas",
    ) -> Any:
        """`curves` as one long frame: `cell`, `x`, and a column that is called as the metric."""
        rows = [{"cell": one.cell, "x": x, one.metric: y} for one in self.curves(metric, cells) for x, y in one.points]
        return _frame(rows, library)

    @property
    def receipt(self) -> Receipt | None:
        """The latest receipt: what `sweepctl verify` found, cell by cell. None where there is none."""
        return self._snapshot.receipt

    def manifest(self, cell: str) -> Manifest:
        """What the box sealed of a cell: files with digests, code, environment, times. Of the pulled copy. Raises
        sweepstack.No where there is no copy."""
        self._known(cell)
        copy, problem = pulled_copy(self._sources, cell)
        if copy is None:
            raise No(f"there is no copy of {cell} here{f': {problem}' if problem else ''}")
        return copy.manifest

    def artifacts(self, cell: str) -> dict[str, Path]:
        """The files of a cell's verified copy, name → path in the evidence's folder. Raises sweepstack.No where the
        cell is not verified, sweepstack.Unsure where the evidence is no folder of this computer: from a bucket,
        copy them first."""
        if self._views[self._known(cell).name].state != "verified":
            raise No(f"{cell} is {self._views[cell].state}, not verified")
        store = self._sources.store
        if store is None or not isinstance(store.copies, FolderCopies):
            place = self._sources.evidence or self._sources.problem
            raise Unsure(
                f"the evidence is no folder of this computer: {place}. From a bucket, copy cells/{cell}/ "
                "here first (rclone, aws s3 sync)"
            )
        folder = store.copies.folder(cell)
        return {file.path: folder / file.path for file in self.manifest(cell).files}

    @property
    def _roster(self) -> Sequence[Cell]:
        return self._snapshot.roster

    def _info(self, cell: Cell) -> CellInfo:
        view = self._views[cell.name]
        return CellInfo(cell.name, dict(cell.params), view.state, view.box, view.attempts, view.note)

    def _known(self, name: str) -> Cell:
        for cell in self._roster:
            if cell.name == name:
                return cell
        raise self._target.no_cell(name, [cell.name for cell in self._roster])

    def _results(self, metrics: Iterable[str], everything: bool) -> tuple[list[CellResult], list[str]]:
        wanted = _several(metrics)
        found, _ = read_results(
            self._sources, self._snapshot, self._roster, self._views, everything, over_curves(wanted)
        )
        there = columns_of(found)
        return found, [name for name in wanted if name in there] if wanted else there


def _several(names: Iterable[str]) -> list[str]:
    """Names, each once; a text alone is one name, not its letters."""
    return list(dict.fromkeys([names] if isinstance(names, str) else names))


def _frame(rows: list[dict[str, Any]], library: str) -> Any:
    if library not in ("pandas", "polars"):
        raise Unsure(f'library="{library}": it is "pandas" or "polars"')
    if missing := lacks(library):
        raise Unsure(f"a frame of {library} can't be made: {missing}")
    if library == "pandas":
        import pandas

        return pandas.DataFrame(rows)
    import polars

    return polars.DataFrame(rows, infer_schema_length=None, strict=False)
