"""`make bench`: one that never ends has a bound, and its table goes into docs/performance.md as it is."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest

from bench import asha_bench
from bench.__main__ import Row, against, kubernetes_rows, markdown, within
from bench.compared import compared
from bench.slurm_scale_bench import LIMITS


def test_what_never_ends_is_cut_off_and_cleans_up() -> None:
    cleaned: list[bool] = []
    before, began = signal.getsignal(signal.SIGALRM), time.monotonic()

    def never_ends() -> None:
        try:
            subprocess.run(["sleep", "60"], check=True)
        finally:
            cleaned.append(True)

    with pytest.raises(TimeoutError, match=r"not done within 0\.2 s"), within(0.2):
        never_ends()
    assert cleaned
    assert time.monotonic() - began < 30
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_what_ends_in_time_has_no_alarm_left() -> None:
    with within(60):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_the_table_as_markdown() -> None:
    rows = [Row("  pull", "1 s", "2 s", "a | b", "1.1×", "≤ 2×", True), Row("memory", "9 MB", "", ok=False)]
    assert markdown(rows).splitlines()[2:] == [
        "| pull | 1 s | 2 s | a \\| b | 1.1× | ≤ 2× | holds |",
        "| memory | 9 MB |  |  |  |  | **missed** |",
    ]


def test_a_figure_against_its_baseline() -> None:
    found = {"limit": 2.0, **compared({"ours": [3.0, 1.0, 2.0], "plain": [1.0, 1.0, 4.0]}, "ours", "plain")}
    row = Row("pull", "2.00 s", "3.00 s", "cp 1 s", "2.00×", "≤ 2×", True)
    assert against("pull", found, "ours", "cp 1 s") == row
    assert against("pull", found | {"limit": 1.5}, "ours", "cp 1 s").ok is False


def test_each_figure_of_kubernetes_has_its_row() -> None:
    """Of all that `bench.kubernetes_bench` hands on, also of a sweep of 10,000 cells."""
    cell = {**compared({"ours": [1.0, 1.01], "loop": [1.0, 1.0]}, "ours", "loop"), "cells": 2, "limit": 1.02}
    took = {"job": [1.0], "local": [2.0], "first": [3.0], "command": [2.0], "allowed": [3.4]}
    first = {**compared(took, "first", "allowed"), "rounds": 1, "limit": 1.2}
    looked = {"cpu": {"preview": 1.0, "status": 1.0}, "memory": 1e8, "resources": 5}
    few = {**looked, "preview": 2.0, "status": 1.0, "watches": 0, "boxes": 1, "calls": 9}
    scale = {"limits": LIMITS, "4": few, "10000": {**few, "preview": 4.0, "watches": 2}}
    rows = {row.figure: row for row in kubernetes_rows({"cell": cell, "first": first, "scale": scale})}
    assert [row.ok for row in rows.values()] == [True, True, True, True, True, False, True]
    watches = Row("  watches of 10,000 cells on Kubernetes", "2", limit="≤ 1", ok=False)
    assert rows[watches.figure] == watches
    assert len(markdown(list(rows.values())).splitlines()) == 2 + len(rows)


def test_what_a_trial_costs_beyond_its_training() -> None:
    """Two slots: the third training begins where the first ended, the fourth where the second did. The start of the
    program and the end, when a slot has nothing left, do not count."""
    times = [(5.0, 9.0), (5.5, 8.0), (8.25, 9.0), (9.5, 20.0), (10.0, 11.0)]
    trials = [asha_bench.Trial(f"s{n}", began, ended, 0.0, (1.0,)) for n, (began, ended) in enumerate(times)]
    assert asha_bench.gaps(trials) == [0.25, 0.5, 1.0]
    assert asha_bench.gaps(trials[:2]) == []
