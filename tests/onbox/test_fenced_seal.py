"""What a worker that was halted while it sealed a cell does when it goes on, after another sealed that cell.

It is halted inside its turn, and its end is taken for proved meanwhile. The journals, the locks and the sealing are the
runner's own; the halt is a call at the step where it could happen.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sweepstack.onbox.runner.records import Journal
from sweepstack.onbox.runner.sealing import MANIFEST, Own, seal
from sweepstack.onbox.runner.workers import Fenced, SharedJournal, who

SPEC = {"artifacts": [{"path": "result.json"}]}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "cells").mkdir()
    return tmp_path


def journal(home: Path, worker: str) -> SharedJournal:
    return SharedJournal(home, worker, who(worker), lambda record: record["worker"] == "halted")


def sealed_by(home: Path, journal: Journal, attempt: int, halt: Callable[[], object] = bool) -> None:
    """Seals the cell as the runner does. `halt`: called in the turn, before the folder gets its name."""
    out, log = home / f"box/c/{attempt}/out", home / f"log-{attempt}"
    out.mkdir(parents=True)
    (out / "result.json").write_text(str(attempt))
    log.write_text("done")
    own = Own(out, home / f"scratch/c/{attempt}", home / "checkpoints/c/version")
    with contextlib.ExitStack() as turn:

        def before() -> None:
            turn.enter_context(journal.turn())
            halt()

        facts = {"cell": "c", "attempt": attempt}
        digest, size, _ = seal(home / "cells", own, log, SPEC, facts, before=before, still=journal.is_ours)
        journal.append("cell-sealed", cell="c", attempt=attempt, config_digest="x", manifest=digest, bytes=size)


def taken_over(home: Path, other: Journal) -> None:
    """The other worker writes down the end of the halted one, and runs the cell to its end."""
    other.append("worker-ended", worker="halted", proof="scheduler: gone", by="other")
    sealed_by(home, other, 2)


def attempt_of(folder: Path) -> int:
    return int(json.loads((folder / MANIFEST).read_bytes())["attempt"])


def test_a_seal_of_another_worker_keeps_its_name(home: Path) -> None:
    halted, other = journal(home, "halted"), journal(home, "other")
    with pytest.raises(Fenced):
        sealed_by(home, halted, 1, lambda: taken_over(home, other))
    assert attempt_of(home / "cells/c") == 2
    assert [path.name for path in (home / "cells").iterdir()] == ["c"]


def test_one_that_comes_after_its_last_look_keeps_it_too(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    halted, other = journal(home, "halted"), journal(home, "other")
    look = halted.is_ours

    def is_ours() -> None:
        look()
        monkeypatch.undo()
        taken_over(home, other)

    monkeypatch.setattr(halted, "is_ours", is_ours)
    with pytest.raises(OSError, match=r"c\.partial-1"):
        sealed_by(home, halted, 1)
    assert [path.name for path in (home / "cells").iterdir()] == ["c"]
    assert attempt_of(home / "cells/c") == 2
    with pytest.raises(Fenced):
        halted.append("cell-failed", cell="c", attempt=1, final=False)


def test_its_own_seal_takes_the_name(home: Path) -> None:
    first, other = journal(home, "first"), journal(home, "other")
    sealed_by(home, first, 1)
    sealed_by(home, other, 2)
    assert attempt_of(home / "cells/c") == 2
    assert attempt_of(home / "cells/c.superseded-1") == 1
