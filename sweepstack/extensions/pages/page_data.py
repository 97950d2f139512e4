"""Everything that a sweep's page is made of, as it was gathered."""

from __future__ import annotations

from collections.abc import Mapping

from sweepstack.cli.commands.results.order import Wanted
from sweepstack.core.heartbeat import Patrol
from sweepstack.core.journal import Journal
from sweepstack.core.metrics import Series
from sweepstack.core.records import Approval
from sweepstack.core.results import CellResult
from sweepstack.launch.retries import Retry
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.status.model import SweepView
from sweepstack.status.snapshot import Snapshot


def task_of(worker: str) -> str:
    """`7_0` of `7_0.2`: all tries of one task of a job array are shown as one."""
    return worker.rpartition(".")[0] or worker


@dataclass(frozen=True)
class BoxStory:
    """One generation of a box that was ever rented. `journal`: the box's own, else the last copy; None: neither reads.

    `working`: its runner is alive now; None where that is not known. `patrols`: some of its patrol's lines, by time.
    `workers`: the same for each worker of a box that several share, one for all tries of a task; `others`: how many
    more there were.
    """

    box: str
    generation: int
    native_id: str
    journal: Journal | None
    working: bool | None = False
    patrols: tuple[Patrol, ...] = ()
    workers: Mapping[str, tuple[Patrol, ...]] = field(default_factory=dict)
    others: int = 0

    @property
    def label(self) -> str:
        """`box-0`, and for a later machine of that name `box-0-g2`."""
        return self.box if self.generation == 1 else f"{self.box}-g{self.generation}"


@dataclass(frozen=True)
class CellsRead:
    """`results`: of the cells that left values; `curves`: metric → the curves of cells, thinned out.

    `thinned`: about so many points of a longer curve are here; 0 if all have all of theirs. `joined`: cells whose
    curves begin with rows of earlier tries. `sampled`: cells of whose metrics files only pieces were read. `not_read`:
    cells that are not verified, and whose files were not fetched for this page.
    """

    results: tuple[CellResult, ...]
    x: str
    curves: Mapping[str, tuple[Series, ...]]
    thinned: int
    joined: int
    sampled: int
    not_read: int


@dataclass(frozen=True)
class SweepFacts:
    """`clearances`: native id → the approval that its box was cleared with. `wanted`: which value says how good a cell
    is; `pruned`: cells that a rule stopped, with what they had then."""

    snapshot: Snapshot
    view: SweepView
    boxes: tuple[BoxStory, ...]
    cells: CellsRead
    clearances: Mapping[str, Approval] = field(default_factory=dict)
    retries: Mapping[str, Retry] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    trackers: tuple[str, ...] = ()
    """Where runs of trackers can be seen."""
    wanted: Wanted | None = None
    pruned: tuple[CellResult, ...] = ()
