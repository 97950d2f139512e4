"""Reading copies in the process that asks, for tests in which it is not at stake what makes a copy good.

Each start of a worker (`sweepstack.loaders.pool`) costs a sixth of a second of a core. What workers do is proved by
`tests/unit/evidence`, and by what plays the command as a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from sweepstack.loaders.base import LoadResult, Reader
from sweepstack.loaders.load import load
from sweepstack.loaders.pool import FileToRead


def read_here(
    jobs: Iterable[FileToRead], *, reader: Reader = "restricted", **_: Any
) -> Iterator[tuple[FileToRead, LoadResult]]:
    """As `pool.read_all`, but for a user's own command, and for deadlines."""
    for job in jobs:
        assert job.spec is None or job.spec.load != "command", "a user's command is a worker's"
        yield (
            job,
            load(job.path, job.spec, job.sha256, expected_size=job.size, reader=reader, members=job.members),
        )


def reads_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on `verify` of this process does so."""
    monkeypatch.setattr("sweepstack.evidence.verify.read_all", read_here)
