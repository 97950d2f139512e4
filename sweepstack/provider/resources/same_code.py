"""Finds the version that a sweep has of code from which only the project's own files differ.

Sweeps of before ADR 22 shipped those files, and their cells, queues and manifests name that digest.
"""

from __future__ import annotations

from sweepstack.core import git_source
from sweepstack.core.workdir import NO_CODE, digest_of_files, no_code
from sweepstack.evidence.lazy import Evidence
from sweepstack.launch.archive import members
from sweepstack.onbox.common.errors import ConfigError, EvidenceError
from sweepstack.provider.models import QueueInputs
from sweepstack.provider.resources.work_dir import WorkDir, work_dir
from sweepstack.provider.session import Operation


def kept(op: Operation, evidence: Evidence, old: QueueInputs | None, new: QueueInputs) -> QueueInputs:
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
        same = _same(evidence, versions, work_dir(op, job)) if versions else None
    except (ConfigError, EvidenceError):
        return new
    return new if same is None else new.model_copy(update={"job": job.model_copy(update={"code": same})})


def _same(evidence: Evidence, versions: tuple[str, ...], there: WorkDir) -> str | None:
    """The first version whose archive has the files of the work dir, and nothing else that is code."""
    if there.shipment is None:
        return None
    now = {file.path for file in there.shipment.files}
    for version in versions:
        if version not in _read:
            _read[version] = members(evidence.store.read_code(version) or b"", version)
        had = _read[version]
        apart = no_code(there.path, there.own, had)
        kept = [(name, *facts) for name, facts in had.items() if name in now or not name.startswith(apart)]
        if digest_of_files(kept) == there.shipment.digest:
            return version
    return None


_read: dict[str, dict[str, tuple[int, str]]] = {}
"""Version → the files of its archive: the queues of one command ask for the same ones."""
