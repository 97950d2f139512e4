"""A private copy of the job's code, in which a `load: command` check runs.

The work dir here, not the code that a cell ran: a check that is mended is run again over what there is, without a new
cell. What was taken is in the receipt by its digest, which is that of the files that would ship (`core.workdir`).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sweepstack.core.workdir import collect
from sweepstack.loaders.command import CODE


@dataclass(frozen=True)
class CheckCode:
    """`root` is what a `loaders.pool.Job` names as its `check`; `digest` is the work dir's (`sha256:<hex>`)."""

    root: str
    digest: str


@contextmanager
def check_code(workdir: Path, include: Sequence[str] = (), own: Iterable[str] = ()) -> Iterator[CheckCode]:
    """Copies what would ship from `workdir` into a temporary folder, which is removed at the end.

    Reads every file twice. Raises ConfigError as `sweepstack.core.workdir.collect` does, OSError.
    """
    shipment = collect(workdir, include, own)
    with tempfile.TemporaryDirectory(prefix="sweepstack-check-", ignore_cleanup_errors=True) as root:
        for file in shipment.files:
            target = Path(root, CODE, file.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(workdir / file.path, target)
            target.chmod(file.mode)
        yield CheckCode(root, shipment.digest)
