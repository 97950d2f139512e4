"""In which version, and in which folder of checkpoints, a cell goes on that has run before."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from sweepstack.core.journal import CellProgress, started
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.box_layout import short
from sweepstack.onbox.common.errors import EvidenceError, JournalDamaged, SweepstackError
from sweepstack.onbox.common.next_version import checkpoint_name, takes_new, work_of

Line = Mapping[str, Any]
There = Callable[[str, str], bool]
"""Whether a cell's folder of checkpoints (cell, its name) has something in it, as seen from the box that is to run."""


def across(line: Line, progress: CellProgress | None) -> dict[str, Any]:
    """The line of a cell (`entries.entry`) so that it goes on where it was, whatever code wrote that; as it is where it
    was asked to begin anew, or there is nothing to go on from."""
    if progress is None or not _may_have_one(line, progress):
        return dict(line)
    return {**line, **_in_its_folder(line, progress)}


def on_another_box(line: Line, progress: CellProgress | None, there: There) -> dict[str, Any]:
    """The line of a cell that ran on another box, which has ended, so that it does not begin at 0 unasked: where its
    checkpoint is at hand here, it keeps the version that wrote it. Raises SweepstackError where that can't be had."""
    if progress is None or not _may_have_one(line, progress) or takes_new(progress.final, progress.saved):
        return dict(line)
    if not there(progress.name, progress.folder or checkpoint_name(str(line["config_digest"]), progress.work)):
        return dict(line)
    kept = {**line, "code": progress.code}
    if work_of(kept, _salt(line)) == progress.work:
        return {**kept, **_in_its_folder(kept, progress)}
    raise SweepstackError(
        f"{progress.name} has a checkpoint that another command, setup or environment wrote (code "
        f"{short(progress.code or '')}), and would begin at 0 with this one. Next, one of: sweepctl retry "
        f"{progress.name} --from-start (begins at 0); job.resume: across-code (goes on from it); the job as it was"
    )


def ran_on_ended_boxes(
    store: EvidenceStore, box: str, generation: int, names: Collection[str]
) -> dict[str, CellProgress]:
    """What the kept journals of boxes of the sweep that have ended say last of these cells. One that does not read is
    left out."""
    found: dict[str, CellProgress] = {}
    for birth in store.births() if names else ():
        if birth.ended_at is None or (birth.box, birth.generation) == (box, generation):
            continue
        try:
            journal = store.journal(birth.box, birth.generation)
        except (EvidenceError, JournalDamaged):
            continue
        for name in set(names) & set(journal.cells if journal is not None else ()):
            assert journal is not None
            progress, known = journal.cells[name], found.get(name)
            at = progress.started_at
            if at and started(progress) and (known is None or known.started_at is None or known.started_at < at):
                found[name] = progress
    return found


def _may_have_one(line: Line, progress: CellProgress) -> bool:
    """Whether it may have a checkpoint to go on from, as far as is known."""
    asked_anew = _salt(line) > progress.retry
    open_still = progress.state in ("running", "failed") and progress.saved is not False
    return open_still and bool(progress.work and progress.code) and not asked_anew


def _in_its_folder(line: Line, progress: CellProgress) -> dict[str, Any]:
    codes = list(progress.checkpoints_of)
    if work_of(line, _salt(line)) != progress.work and progress.code:
        codes = [*dict.fromkeys([*codes, progress.code])]
    own = progress.folder or checkpoint_name(str(line["config_digest"]), progress.work)
    return {"folder": own, "checkpoints_of": codes} if codes else {}


def _salt(line: Line) -> int:
    return int(line.get("salt", 0))
