"""A worker that claims cell after cell and seals each at once: what a cell would do is left out, so that a claim takes
a moment. The claims are the runner's own (`SharedJournal`, `Proofs`, `begin`).

    python claiming.py HOME NAME CELLS    on this machine; `tests/simulators/nfs` runs `work` on machines of their own
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sweepstack.onbox.runner.workers import Proofs, SharedJournal, begin, who


def work(home: Path, name: str, cells: int, held: Callable[[int], contextlib.AbstractContextManager[None]]) -> None:
    """Claims cells until all are sealed. `held(cell)`: entered while this worker has the cell; it says so to a witness
    that knows nothing of the journal. Dead workers are looked for when nothing else is to be had."""
    me = who(name)
    begin(home, me)
    proofs = Proofs(home, me, lambda: {"native_id": "claims-" + home.parent.name, "shared": {}})
    journal = SharedJournal(home, name, me, proofs.lock_owner_ended)
    proofs.journal = journal
    journal.append("runner-started", pid=os.getpid())
    lowest, digest = 0, "sha256:" + "0" * 64
    facts = {"config_digest": digest, "code": digest, "version": digest, "retry": 0}

    def is_free(number: int) -> bool:
        progress = journal.cells[str(number)]
        return progress.state != "sealed" and not journal.elsewhere(progress)

    while True:
        with journal.turn():
            while lowest < cells and journal.cells[str(lowest)].state == "sealed":
                lowest += 1
            number = next((one for one in range(lowest, min(cells, lowest + 9)) if is_free(one)), None)
            if number is not None:
                attempt = journal.cells[str(number)].attempt + 1
                journal.append("cell-started", cell=str(number), attempt=attempt, **facts)
        if number is not None:
            with held(number):
                journal.append("cell-sealed", cell=str(number), attempt=attempt, manifest=digest, bytes=1, **facts)
        elif lowest >= cells:
            break
        else:
            for worker in journal.holders():
                proof = proofs.proof(worker)
                if proof:
                    with journal.turn():
                        if worker not in journal.ended:
                            journal.append("worker-ended", worker=worker, proof=proof, by=name)
    journal.append("runner-stopped", why="nothing to take")


def main(home: Path, name: str, cells: int) -> None:
    """With a kernel lock on a file of each cell, which ends with the process that has it."""

    @contextlib.contextmanager
    def held(number: int) -> Iterator[None]:
        with open(home / "held" / str(number), "ab", 0) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                (home / "twice").write_text(name + " " + str(number))
            yield

    os.fsync = lambda _: None  # no power fails here: what a killed process wrote, the kernel has
    work(home, name, cells, held)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
