"""Two workers that claim the same cells, killed at random moments: no cell is ever two workers' at once, none is lost.

The claims are the runner's own (`SharedJournal`, `Proofs`, `begin`); what a cell would do is left out, so that a claim
takes a moment. A claim that a worker has is real while its process holds a kernel lock on a file of the cell, which the
kernel ends with the process: that is seen without the journal.
"""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from sweepstack.core.journal import parse_journal
from tests.oldest_python import onbox_python

SECONDS = 120.0
WORKER = Path(__file__).with_name("claiming.py")


def play(folder: Path, seed: int, claims: int, kills: int) -> None:
    """Two workers claim all cells; `kills` times one of them is killed and replaced, after it has claimed a while."""
    home = folder / "data"
    (home / "held").mkdir(parents=True)
    chance, journal = random.Random(seed), home / "journal.jsonl"
    live: list[subprocess.Popen[bytes]] = []
    count = 0

    def start() -> None:
        nonlocal count
        count += 1
        argv = [onbox_python(), "-S", str(WORKER), str(home), f"w{count}", str(claims)]
        with (folder / f"w{count}.log").open("wb") as log:
            live.append(subprocess.Popen(argv, stderr=log))

    def size() -> int:
        return journal.stat().st_size if journal.exists() else 0

    def wait_for(there: Callable[[], bool], what: str) -> None:
        ends = time.monotonic() + SECONDS
        while not there():
            assert time.monotonic() < ends, f"{what}; seed {seed}\n" + said(folder)
            time.sleep(0.001)

    try:
        start(), start()
        step = claims * 500 // (kills + 1)
        for _ in range(kills):
            at = size() + chance.randrange(1, 2 * step)
            wait_for(lambda at=at: size() >= at or all(one.poll() is not None for one in live), "progress")
            victim = live.pop(chance.randrange(2))
            time.sleep(chance.random() * 0.002)
            if chance.random() < 0.3:  # halted in the middle of something, and then killed
                victim.send_signal(signal.SIGSTOP)
                time.sleep(chance.random() * 0.02)
            victim.kill()
            victim.wait()
            start()
        for one in live:
            assert one.wait(SECONDS) == 0, f"seed {seed}\n" + said(folder)
    finally:
        for one in live:
            one.kill()
            one.wait()
    assert not (home / "twice").exists(), f"two living workers had {(home / 'twice').read_text()}; seed {seed}"
    judge(journal.read_bytes(), claims, seed)


def judge(journal: bytes, claims: int, seed: int) -> None:
    """By the journal, whose chain must be whole."""
    entries = parse_journal(journal).entries
    holder: dict[str, str] = {}
    sealed: Counter[str] = Counter()
    gone: set[str] = set()
    for entry in entries:
        event, worker, cell = entry["event"], str(entry.get("worker")), str(entry.get("cell"))
        if event == "worker-ended":
            gone.add(worker)
            holder = {held: by for held, by in holder.items() if by != worker}
            continue
        assert worker not in gone, f"{worker} wrote after its end (seed {seed}): {entry}"
        if event == "cell-started":
            assert cell not in holder, f"{worker} took {cell}, which {holder[cell]} had; seed {seed}"
            assert not sealed[cell], f"{worker} took {cell}, which was sealed; seed {seed}"
            holder[cell] = worker
        elif event == "cell-sealed":
            assert holder.pop(cell, None) == worker, f"{worker} sealed {cell}, which it had not; seed {seed}"
            sealed[cell] += 1
    assert set(sealed.values()) == {1}, f"sealed twice; seed {seed}"
    assert len(sealed) == claims, f"{claims - len(sealed)} cells are lost; seed {seed}"


def said(folder: Path) -> str:
    return "\n".join(path.read_text() for path in folder.glob("w*.log") if path.stat().st_size)


def test_some_hundred_claims_under_kill_9(tmp_path: Path) -> None:
    play(tmp_path, seed=1, claims=600, kills=12)


@pytest.mark.proof  # the same with fewer of them, above
@pytest.mark.parametrize("seed", range(2, 7))
def test_ten_thousand_claims_under_kill_9(tmp_path: Path, seed: int) -> None:
    play(tmp_path, seed=seed, claims=2000, kills=60)
