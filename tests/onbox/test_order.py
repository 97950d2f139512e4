"""Which waiting cell a worker takes: the longest that it ends before all could be through."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from sweepstack.core.records import Cell
from sweepstack.onbox.common.canonical import canonical_json
from sweepstack.onbox.runner.records import Queue
from sweepstack.onbox.runner.worker import Order
from sweepstack.onbox.runner.workers import SharedJournal

SIZES = (1, 2, 4, 8)
CODE = "sha256:" + "0" * 64


class Folder:
    """The queue of a box, with four cells of each size, and what its workers `fast` and `slow` have sealed: one of each
    size, `slow` in four times the time."""

    def __init__(self, home: Path, *, measured: bool = True) -> None:
        cells = [Cell(name=f"s{size}-{n}", params={"size": size, "n": n}) for n in range(4) for size in SIZES]
        lines = [
            {
                "op": "add",
                "cell": cell.name,
                "params": cell.params,
                "config_digest": cell.config_digest,
                "code": CODE,
                "run": "true",
            }
            for cell in cells
        ]
        (home / "queue.jsonl").write_bytes(b"".join(canonical_json(line) + b"\n" for line in lines))
        self.home, self.names = home, [cell.name for cell in cells]
        for worker, n, factor in (("fast", 0, 1.0), ("slow", 1, 4.0)) if measured else ():
            journal = self.journal(worker)
            journal.append("runner-started", pid=1)
            for size in SIZES:
                name = f"s{size}-{n}"
                journal.append("cell-started", cell=name, attempt=1, config_digest="", version="")
                journal.append("cell-sealed", cell=name, attempt=1, config_digest="", seconds=10.0 * size * factor)
            journal.close()

    def journal(self, worker: str) -> SharedJournal:
        return SharedJournal(self.home, worker, {"worker": worker}, lambda _: False)

    def order(self, worker: str, waiting: list[str]) -> list[str]:
        queue, ready, journal = Queue(self.home / "queue.jsonl"), deque(waiting), self.journal(worker)
        queue.refresh()
        order = Order(queue, journal)
        order.learn()
        order.arrange(ready, 1)
        journal.close()
        assert sorted(ready) == sorted(waiting), "a cell was lost"
        return list(ready)


def test_until_a_cell_was_measured_it_is_the_order_of_the_queue(tmp_path: Path) -> None:
    folder = Folder(tmp_path, measured=False)
    assert folder.order("fast", folder.names) == folder.names


def test_long_cells_come_first_and_cells_of_one_size_in_the_order_of_the_queue(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    waiting = [name for name in folder.names if name[-1] in "23"]
    assert folder.order("fast", waiting) == ["s8-2", "s8-3", "s4-2", "s4-3", "s2-2", "s2-3", "s1-2", "s1-3"]


def test_a_slow_worker_leaves_to_the_fast_one_what_it_would_end_too_late(tmp_path: Path) -> None:
    """Left are 80 + 40 + 10 seconds of the fast one, which with a quarter of its speed beside it takes 104 s. The slow
    one would end the second cell after 160 s."""
    folder = Folder(tmp_path)
    assert folder.order("slow", ["s8-2", "s4-2", "s1-2"]) == ["s1-2", "s4-2", "s8-2"]
    assert folder.order("fast", ["s8-2", "s4-2", "s1-2"]) == ["s8-2", "s4-2", "s1-2"]


def test_a_worker_that_ends_nothing_early_enough_takes_the_shortest(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.order("slow", ["s8-2", "s4-2", "s4-3"])[0] == "s4-2"
