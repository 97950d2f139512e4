"""Which files differ between two versions of the code, in words for a refusal."""

from __future__ import annotations

from collections.abc import Mapping

from sweepstack.core.workdir import no_code
from sweepstack.evidence.lazy import Evidence
from sweepstack.launch.archive import members
from sweepstack.onbox.common.box_layout import short
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.provider.models import QueueInputs
from sweepstack.provider.resources.work_dir import work_dir
from sweepstack.provider.session import Operation

LISTED = 8
"""Number of files that a refusal names."""


def words(op: Operation, evidence: Evidence, new: QueueInputs, old: str) -> str:
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
    found = _differ(
        {name: facts for name, facts in before.items() if name in after or not name.startswith(apart)}, after
    )
    more = f" and {len(found) - LISTED} more" if len(found) > LISTED else ""
    return f" Changed since {short(old)}: {', '.join(found[:LISTED])}{more}." if found else ""


def _differ(before: Mapping[str, tuple[int, str]], now: Mapping[str, tuple[int, str]]) -> list[str]:
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    return [f"{name}{' (new)' if name not in before else ' (gone)' if name not in now else ''}" for name in names]
