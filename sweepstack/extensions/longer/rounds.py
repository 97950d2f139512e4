"""Brings cells to the queues whose source is verified by now: a part of a round of `sweepctl tend`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from sweepstack.core.foreign_cells import CONFIG_DIGITS
from sweepstack.evidence.store import EvidenceStore
from sweepstack.extensions.longer.sources import verified_sources
from sweepstack.onbox.common.canonical import hex_of
from sweepstack.onbox.common.units import count
from sweepstack.operations.tend import CELLS, Round, Run, Steps, queues_of, up_alone
from sweepstack.status.snapshot import BoxSnapshot, Snapshot


def bring_in(
    root: Path, store: EvidenceStore, snapshot: Snapshot, round_: Round, run: Run, say: Callable[[str], None]
) -> None:
    """Has the engine bring the cells to their queues that may begin now. Rents nothing, ends nothing; starts a stopped
    box that is to run them, as `pulumi up` does. Blocks as that does. Idempotent. Raises EvidenceError."""
    cells = may_begin(store, snapshot)
    if not cells:
        return
    what = f"{count(len(cells), 'cell')} may begin, from what is verified"
    steps = up_alone(root, snapshot, queues_of(snapshot), {"Queue": CELLS}, what, round_, run, say, if_any=_updates)
    round_.begun = list(cells) if steps is not None else []


def may_begin(store: EvidenceStore, snapshot: Snapshot) -> Sequence[str]:
    """The cells that no queue was given yet, and whose source has a verified copy now; none while a teardown is open,
    of a box that may end, or where a budget stops boxes. Raises EvidenceError."""

    def runs(one: BoxSnapshot) -> bool:
        ends = one.gone or one.verdict.allowed or (one.proposed is not None and one.proposed.allowed)
        return not (ends or snapshot.has_no_money_for(one)) and one.box.want == "running"

    waits = {name: source for one in filter(runs, snapshot.box_snapshots) for name, source in one.unsourced.items()}
    if not waits or snapshot.teardown is not None:
        return ()
    digits = {cell.name: hex_of(cell.config_digest)[:CONFIG_DIGITS] for cell in snapshot.roster}
    known = verified_sources(store, {source: digits.get(source, "") for source in waits.values()}, {})
    return tuple(sorted(name for name, source in waits.items() if known[source][0]))


def _updates(steps: Steps) -> bool:
    return any(step.get("op") == "update" for step in steps)
