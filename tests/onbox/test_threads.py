"""How many threads a cell's math libraries start: its share of what the cgroup lets the box use."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sweepstack.onbox.common import cgroup as machine
from sweepstack.onbox.runner import attempt
from tests.onbox.harness import Box

WRITES = "python3 -c 'import json, os; print(json.dumps(os.environ.get(\"OMP_NUM_THREADS\")))' > {out}/result.json"


@pytest.fixture
def cgroup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a machine's cgroups, in which this process is in `/box` (or at the root, for version 1)."""
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    monkeypatch.setattr(machine, "_folder", lambda controller, root: root / "box" if root.is_dir() else None)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    return tmp_path


def limits(spec: dict[str, int], run: str, env: dict[str, str], cards: int = 1) -> dict[str, str]:
    return attempt.thread_limits(attempt.share_of_cpus(spec, cards), run, env)


def version_2(root: Path, box: str, parent: str = "max 100000") -> None:
    (root / "box").mkdir()
    (root / "box" / "cpu.max").write_text(f"{box}\n")
    (root / "cpu.max").write_text(f"{parent}\n")


def version_1(root: Path, quota: int) -> None:
    folder = root / "cpu,cpuacct" / "box"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")


def test_u40_the_quota_of_a_slice_is_shared_by_the_slots(cgroup: Path) -> None:
    """The host shows 64 cores, and the box has eight of them: two cells at once get four each."""
    version_2(cgroup, "800000 100000")
    found = limits({"slots": 2}, "python train.py", {})
    assert found == {"OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "4", "OPENBLAS_NUM_THREADS": "4"}
    assert limits({"slots": 100}, "python train.py", {})["OMP_NUM_THREADS"] == "1"


def test_u40_the_smallest_quota_of_all_parents_counts(cgroup: Path) -> None:
    version_2(cgroup, "max 100000", "250000 100000")
    assert limits({"slots": 1}, "python train.py", {})["OMP_NUM_THREADS"] == "2"


def test_u40_cgroups_of_version_1(cgroup: Path) -> None:
    version_1(cgroup, 600000)
    assert limits({"slots": 1}, "python train.py", {})["OMP_NUM_THREADS"] == "6"


@pytest.mark.parametrize("quota", [-1, 0])
def test_without_a_quota_one_cell_has_all_cores(cgroup: Path, quota: int) -> None:
    version_1(cgroup, quota)
    assert limits({"slots": 1}, "python train.py", {}) == {}
    assert limits({"slots": 4}, "python train.py", {})["OMP_NUM_THREADS"] == "16"


@pytest.mark.parametrize("name", attempt.THREAD_NAMES)
def test_what_the_person_set_stands(cgroup: Path, name: str) -> None:
    """Also for the others: MKL takes OpenMP's number, unless it has one of its own."""
    version_2(cgroup, "800000 100000")
    assert limits({"slots": 2}, "python train.py", {name: "3"}) == {}


@pytest.mark.parametrize("run", ["torchrun --nproc-per-node 4 train.py", "python -m torch.distributed.run train.py"])
def test_a_launcher_chooses_for_its_processes(cgroup: Path, run: str) -> None:
    version_2(cgroup, "800000 100000")
    assert limits({"slots": 2}, run, {}) == {}


def test_a_cell_of_several_cards_has_a_process_for_each(cgroup: Path) -> None:
    """Whether a script starts a launcher, or Lightning its ranks, is not in the command: each would take all."""
    version_2(cgroup, "1600000 100000")
    assert limits({"slots": 1}, "sh train.sh", {}, 4)["OMP_NUM_THREADS"] == "4"
    assert limits({"slots": 1}, "sh train.sh", {}, 0)["OMP_NUM_THREADS"] == "16"


def test_the_runner_sets_it_for_each_cell(box: Box) -> None:
    """More slots than this machine has cores: one thread for each cell, unless the cell says otherwise."""
    box.set(slots=10_000)
    box.add("a", WRITES)
    box.add("b", WRITES, env={"OMP_NUM_THREADS": "7"})
    box.run("a", "b")
    seen = {cell: json.loads((box.sealed(cell) / "result.json").read_text()) for cell in "ab"}
    assert seen == {"a": "1", "b": "7"}


@pytest.mark.parametrize(("first", "then"), [(10_000, 1), (1, 10_000)])
def test_a_retry_gets_what_the_first_attempt_had(box: Box, first: int, then: int) -> None:
    """Also where the box has other slots by then; and where a runner of before set nothing, nothing is set."""
    box.set(slots=first)
    box.add("a", f"{WRITES}; if [ $SWEEPSTACK_ATTEMPT = 1 ]; then kill -9 $PPID; sleep 300; fi")
    box.start().ended()
    box.set(slots=then)
    box.run("a")
    before = json.loads((box.home / "cells" / "a" / "1" / "out" / "result.json").read_text())
    assert box.manifest("a").attempt == 2
    assert json.loads((box.sealed("a") / "result.json").read_text()) == before
    assert first == 1 or before == "1"
