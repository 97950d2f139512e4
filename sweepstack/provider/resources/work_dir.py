"""The work dir of a job, read once for all queues of a command.

Which files differ between two versions of the code, in words for a refusal.

Finds the version that a sweep has of code from which only the project's own files differ.

Sweeps of before ADR 22 shipped those files, and their cells, queues and manifests name that digest.

Refuses code that could not start on a box, before there is a box.

Scripts with CRLF line ends; a script or a module of the work dir that does not ship.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from sweepstack.config.own_files import own_files
from sweepstack.core import git_source
from sweepstack.core.job import JobInput
from sweepstack.core.resources import QueueInputs
from sweepstack.core.workdir import NO_CODE, Shipment, collect, digest_of_files, located, no_code
from sweepstack.evidence.lazy import Evidence
from sweepstack.launch.archive import members
from sweepstack.launch.line_ends import CrlfScript, crlf_scripts
from sweepstack.launch.start_files import missing
from sweepstack.onbox.common.box_layout import short
from sweepstack.onbox.common.errors import ConfigError, EvidenceError, SweepstackError
from sweepstack.provider.resources.base import Failure
from sweepstack.provider.resources.versions import CodeVersions
from sweepstack.provider.session import Operation


class WorkDir(NamedTuple):
    """`own`: how absolute paths begin that are no code (`config.own_files`). `shipment`: what ships; None where that is
    not the job's code any more."""

    path: Path
    own: tuple[str, ...]
    shipment: Shipment | None


def work_dir(op: Operation, job: JobInput) -> WorkDir:
    """Reads every file the first time. Raises ConfigError where it can't be had."""
    path, own = located(op.session.project_root, job.workdir, op.info), own_files(op.session.project_root)
    return WorkDir(path, own, _shipment(path, tuple(job.include or ()), own, job.code))


@functools.lru_cache(maxsize=8)
def _shipment(path: Path, include: tuple[str, ...], own: tuple[str, ...], code: str) -> Shipment | None:
    shipment = collect(path, include, own)
    return shipment if shipment.digest == code else None


LISTED = 8
"""Number of files that a refusal names."""


def changed_files(op: Operation, evidence: Evidence, new: QueueInputs, old: str) -> str:
    """` Changed since a1f3c2: train.py, data.csv (new), old.py (gone).`; "" where one of the two versions can't be read
    here, or files that are shipped now are not those of the job's code any more."""
    try:
        archive = evidence.store.read_code(old)
        if archive is None:
            return ""
        before, there = members(archive, old), work_dir(op, new.job)
    except (SweepstackError, OSError):
        return ""
    if there.shipment is None:
        return ""
    after = {file.path: (file.mode, file.sha256) for file in there.shipment.files}
    apart = no_code(there.path, there.own, before)  # an older version held the project's own files
    found = _differing(
        {name: facts for name, facts in before.items() if name in after or not name.startswith(apart)}, after
    )
    more = f" and {len(found) - LISTED} more" if len(found) > LISTED else ""
    return f" Changed since {short(old)}: {', '.join(found[:LISTED])}{more}." if found else ""


def _differing(before: Mapping[str, tuple[int, str]], now: Mapping[str, tuple[int, str]]) -> list[str]:
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    return [f"{name}{' (new)' if name not in before else ' (gone)' if name not in now else ''}" for name in names]


def with_code_kept(op: Operation, evidence: Evidence, old: QueueInputs | None, new: QueueInputs) -> QueueInputs:
    """`new`, with the version that the sweep has where the evidence shows that only the project's own files differ.

    Reads archives from the evidence where the code is new there. What can't be read is taken for another version.
    """
    job = new.job
    try:
        known = evidence.store.codes()
        if job.code in (NO_CODE, *known) or git_source.parse(job.workdir) is not None:
            return new
        last = [old.job.code] if old is not None and old.job.code in known else []
        versions = tuple(dict.fromkeys((*last, *known)))
        same = _same_code(evidence, versions, work_dir(op, job)) if versions else None
    except (ConfigError, EvidenceError):
        return new
    return new if same is None else new.model_copy(update={"job": job.model_copy(update={"code": same})})


def _same_code(evidence: Evidence, versions: tuple[str, ...], there: WorkDir) -> str | None:
    """The first version whose archive has the files of the work dir, and nothing else that is code."""
    if there.shipment is None:
        return None
    now = {file.path for file in there.shipment.files}
    for version in versions:
        if version not in _archives:
            _archives[version] = members(evidence.store.read_code(version) or b"", version)
        had = _archives[version]
        apart = no_code(there.path, there.own, had)
        kept = [(name, *facts) for name, facts in had.items() if name in now or not name.startswith(apart)]
        if digest_of_files(kept) == there.shipment.digest:
            return version
    return None


_archives: dict[str, dict[str, tuple[int, str]]] = {}
"""Version → the files of its archive: the queues of one command ask for the same ones."""


def refused_scripts(op: Operation, evidence: Evidence, standing: CodeVersions, new: QueueInputs) -> list[Failure]:
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


def unstartable(op: Operation, standing: CodeVersions, old: QueueInputs | None, new: QueueInputs) -> list[Failure]:
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
