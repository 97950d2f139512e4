"""Refuses code that could not start on a box, before there is a box.

Scripts with CRLF line ends; a script or a module of the work dir that does not ship.
"""

from __future__ import annotations

import functools

from sweepstack.core.workdir import NO_CODE
from sweepstack.evidence.lazy import Evidence
from sweepstack.launch.line_ends import CrlfScript, crlf_scripts
from sweepstack.launch.start_files import missing
from sweepstack.onbox.common.errors import ConfigError, EvidenceError
from sweepstack.provider.models import QueueInputs
from sweepstack.provider.resources.base import Failure
from sweepstack.provider.resources.versions import Standing
from sweepstack.provider.resources.work_dir import WorkDir, work_dir
from sweepstack.provider.session import Operation


def refusal(op: Operation, evidence: Evidence, standing: Standing, new: QueueInputs) -> list[Failure]:
    """The failure if cells would start with new code that has scripts with CRLF line ends; a warning for those that the
    job does not reach.

    Code that is in the evidence was shipped before: whether its scripts run is known there, and a sweep that goes on
    must not need other code for it.
    """
    if not standing.takers or new.job.code == NO_CODE or new.job.code in _shipped(evidence):
        return []
    try:
        there = work_dir(op, new.job)
    except ConfigError:
        return []  # shipping says what is wrong with it
    smoke = new.job.smoke
    found = _crlf(there, (new.job.run, new.job.setup or "", smoke.run if smoke is not None else ""))
    if idle := [script.problem for script in found if not script.runs]:
        more = f" So do {len(idle) - 1:,} more." if len(idle) > 1 else ""
        op.warn(f"{idle[0]}. No failure: no command of the job names it, and it can't be executed as it is.{more}")
    runs = [script.problem for script in found if script.runs]
    if not runs:
        return []
    return [Failure("job", "\n  ".join(["these scripts would fail on the box; nothing was started:", *runs]))]


def unstartable(op: Operation, standing: Standing, old: QueueInputs | None, new: QueueInputs) -> list[Failure]:
    """The failure if cells would start with a script, or a module of the work dir, that does not ship. A warning where
    the set-up may bring it to the box, or Python may look elsewhere.

    A command and code that are on the box already are not asked about again.
    """
    job = new.job
    if not standing.takers or (old is not None and (old.job.run, old.job.code) == (job.run, job.code)):
        return []
    try:
        found = _missing(work_dir(op, job), job.run)
    except ConfigError:
        return []  # shipping says what is wrong with it
    if not found:
        return []
    if job.setup or "PYTHONPATH" in job.env:
        op.warn("\n  ".join(["the box will lack this, unless job.setup brings it there:", *found]))
        return []
    return [Failure("job", "\n  ".join(["no cell could start on the box; nothing was started:", *found]))]


@functools.lru_cache(maxsize=8)
def _missing(there: WorkDir, run: str) -> tuple[str, ...]:
    if there.shipment is None:
        return ()
    return tuple(missing(there.path, {file.path for file in there.shipment.files}, run))


@functools.lru_cache(maxsize=8)
def _crlf(there: WorkDir, commands: tuple[str, ...]) -> tuple[CrlfScript, ...]:
    """The problems of one version of the code: the queues of one preview ask for the same one."""
    return tuple(crlf_scripts(there.path, there.shipment.files, commands)) if there.shipment is not None else ()


def _shipped(evidence: Evidence) -> list[str]:
    try:
        return evidence.store.codes()
    except EvidenceError:
        return []
