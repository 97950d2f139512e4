"""Plays the drill on a box of its own: the real runner, real processes, the real checkpoint helper."""

from __future__ import annotations

import collections
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.onbox.harness import SECONDS, Box, wait_for

JOB = Path(__file__).with_name("job.py")
SLOTS = 2
MOMENT = 0.5
"""Seconds: the longest time between a start of the runner and what happens to it."""
HAPPENS = {"power cut": 8, "runner killed": 4, "cell killed": 4, "SIGTERM": 2}
"""What happens, and how often in proportion."""
ORDERS = ("die-while-writing", "die-before-fsync", "die-before-rename", "die-after-rename", "full")
"""What a job may be told to do in the middle of its next save."""
METRICS = {"file": "metrics.jsonl", "x": "step", "y": ["loss"]}
Results = dict[str, tuple[bytes, bytes]]


@contextmanager
def boxed(folder: Path) -> Iterator[Box]:
    """A box whose cells are this job, in two slots; nothing is left running."""
    box = Box(folder, slots=SLOTS, retries=10_000, grace_seconds=2, metrics=METRICS)
    box.code = box.ship({"job.py": JOB.read_text()})
    try:
        yield box
    finally:
        box.clean()


def add(box: Box, seed: int) -> str:
    """One more cell."""
    return box.add(f"seed{seed}", f"python job.py {{seed}} {{out}} {box.control}", seed=seed).name


def results(box: Box, cells: list[str]) -> Results:
    """cell → its artifact and its metrics, after manifest, journal and files were compared with each other."""
    found = {}
    for cell in cells:
        box.manifest(cell)
        found[cell] = tuple((box.sealed(cell) / name).read_bytes() for name in ("result.json", "metrics.jsonl"))
    return found  # type: ignore[return-value]


def undisturbed(folder: Path, cells: int) -> Results:
    """What the same cells leave behind when nothing happens to them."""
    with boxed(folder) as box:
        names = [add(box, seed) for seed in range(cells)]
        assert box.start().ended(60 + 5 * cells) == 0, box.log()
        return results(box, names)


def disturbed(
    folder: Path, kills: int, seed: int, say: Callable[[str], None] = lambda _: None
) -> tuple[Results, collections.Counter[str]]:
    """Starts the runner, lets something happen to it at a random moment, starts it again; `kills` times. Then in peace.

    Cells are added as they end, so that there is always something to kill. Returns what they left, and what happened.
    """
    rng = random.Random(seed)
    happened: collections.Counter[str] = collections.Counter()
    with boxed(folder) as box:
        names = [add(box, number) for number in range(SLOTS)]
        runner = box.start()
        while (number := sum(happened.values())) < kills:
            while sum(box.state(name) != "sealed" for name in names) < SLOTS:
                names.append(add(box, len(names)))
            if runner.process.poll() is not None:
                runner = box.start()
            if number % 4 == 0:
                (box.control / f"order-{rng.choice(ORDERS)}").touch()
            time.sleep(rng.uniform(0, MOMENT))
            what = rng.choices(list(HAPPENS), list(HAPPENS.values()))[0]
            happened[what] += _happens(box, runner, what, rng)
            say(f"{number + 1}/{kills} {what}")
            sealed = {name for name in names if box.state(name) == "sealed"}  # the chain is whole, or this raises
            if runner.process.poll() is not None:
                runner = box.start()
                starts = {name: len(box.events("cell-started", name)) for name in sealed}
                wait_for(lambda r=runner: r.process.poll() is not None or any(box.processes(cells=True)), box.log)
                assert starts == {name: len(box.events("cell-started", name)) for name in sealed}, "sealed, run again"
        for order in box.control.glob("order-*"):
            order.unlink()
        assert runner.ended(SECONDS * 2) == 0, box.log()
        assert not list(box.control.glob("overlap-*")), "two attempts at one cell at once"
        obeyed = (box.control / "obeyed").read_text().split() if (box.control / "obeyed").exists() else []
        happened.update(obeyed)
        for name in names:
            never_back(box, name)
        return results(box, names), happened


def never_back(box: Box, cell: str) -> None:
    """Every attempt went on from where an earlier one had been, or later: no accident took a checkpoint away."""
    logs = sorted((box.home / "cells" / cell).glob("[0-9]*/log.txt"), key=lambda path: int(path.parent.name))
    begun = [int(line.split()[2]) for log in logs for line in log.read_text().splitlines()[:1] if line[:5] == "from "]
    assert begun == sorted(begun), f"{cell} went back: its attempts began after steps {begun}"


def _happens(box: Box, runner: object, what: str, rng: random.Random) -> int:
    """0 when it came too late: there was nothing to kill any more."""
    process = runner.process  # type: ignore[attr-defined]
    cells = sorted(box.processes(cells=True))
    if what == "cell killed":
        if not cells:
            return 0
        _kill(rng.choice(cells))
        return 1
    if process.poll() is not None:
        return 0
    process.send_signal(signal.SIGTERM if what == "SIGTERM" else signal.SIGKILL)
    if what == "power cut":
        for pid in sorted(box.processes(cells=True)):
            _kill(pid)
    process.wait(SECONDS)
    return 1


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
