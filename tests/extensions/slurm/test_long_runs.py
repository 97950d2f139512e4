"""What a sweep meets on a cluster in its days there: a cell that needs too much memory, the end of its time, a shared
tier that can't be written for a while, clocks that are apart."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sweepstack.core.resources import BoxState, QueueState
from sweepstack.launch.launch import read_journal
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import SweepstackError, TeardownRefused
from tests.extensions.slurm.test_must_hold import ended, refused
from tests.extensions.slurm.world import SlurmSweep
from tests.simulators.slurm_cluster import until
from tests.unit.provider.support import BOX, QUEUE

STEPS, STEP_SECONDS = 300, 0.6
LONG = """\
import json, os, sys, time
from sweepstack_checkpoint import TrainingState
word, out, control = sys.argv[1:]
total = {"sum": 0}
state = TrainingState({"total": total}, between_losses=600.0)
first = state.load_latest() + 1
with open(f"{control}/started", "a") as note:
    note.write(f"{word} {first}\\n")
for step in range(first, STEPS + 1):
    time.sleep(STEP_SECONDS)
    total["sum"] += step
    state.after_step(step)
with open(f"{out}/result.json", "w") as result:
    json.dump({"word": word, "first": first, "sum": total["sum"]}, result)
"""
APART = 600
"""Seconds that the processes of one node are ahead of the others."""
CLOCK = """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
static long apart(void) { return strncmp(program_invocation_short_name, "slurm", 5) ? APART : 0; }
int clock_gettime(clockid_t id, struct timespec *at) {
  int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
  int rc = real(id, at);
  if (rc == 0 && id == CLOCK_REALTIME) at->tv_sec += apart();
  return rc;
}
time_t time(time_t *at) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}
int gettimeofday(struct timeval *at, void *zone) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return 0;
}
"""
"""A library that sets the clock of all programs but Slurm's daemons, which refuse a node whose clock is minutes off."""


def up(sweep: SlurmSweep, box: BoxState, queue: QueueState, **job: Any) -> QueueState:
    return QUEUE.update(sweep.op("Queue"), "q", queue, sweep.queue_inputs(box, *sweep.roster, job=job))


def failures(sweep: SlurmSweep, box: BoxState, cell: str) -> list[Mapping[str, Any]]:
    return [entry for entry in sweep.events(box, "cell-failed") if entry["cell"] == cell]


def until_over(sweep: SlurmSweep, box: BoxState, queue: QueueState, most: int, **job: Any) -> None:
    """Lets the workers end, with at most so many `up`s, until each cell is sealed or has failed for good."""
    for _ in range(most):
        sweep.until_idle(box)
        over = sweep.sealed(box) | {entry["cell"] for entry in sweep.events(box, "cell-failed") if entry["final"]}
        if over >= set(sweep.roster):
            return
        queue = up(sweep, box, queue, **job)
    raise AssertionError(f"not over after {most} ups\n{sweep.picture()}")


@pytest.mark.proof  # half a minute; tests/onbox/test_workers.py proves what is counted, without a cluster
def test_a_cell_that_needs_too_much_memory_ends_as_failed(make_sweep: Callable[..., SlurmSweep]) -> None:
    """Slurm kills the whole worker for it, which can't write that down. It is no endless loop of workers: the next ones
    count it, and the cell ends with what to do about it. Cells beside it are sealed."""
    sweep = make_sweep()
    sweep.roster = ("a", "b", "c")
    (sweep.control / "eat-a").touch()
    box = sweep.box()
    queue = sweep.queue(box, job={"retries": 1})
    until_over(sweep, box, queue, most=4, retries=1)
    assert sweep.sealed(box) == {"b", "c"}, sweep.picture()
    assert sweep.starts()["a"] == 2, sweep.picture()
    found = failures(sweep, box, "a")
    assert [(entry["class"], entry["final"]) for entry in found] == [("oom", False), ("oom", True)], found
    assert "raise resources.memory" in found[-1]["reason"]
    seen = read_journal(sweep.channel(box)).cells["a"]
    assert (seen.state, seen.final, seen.failure_class) == ("failed", True, "oom")
    sweep.assert_honest(box)
    with pytest.raises(TeardownRefused):
        BOX.delete(sweep.op(), box.native_id, box)


@pytest.mark.proof  # half a minute; as above
def test_a_cell_beside_one_that_needs_too_much_memory_is_sealed(make_sweep: Callable[..., SlurmSweep]) -> None:
    """One worker with two slots: Slurm kills it with both cells. Each then runs alone; only the greedy one fails."""
    sweep = make_sweep(workers=1)
    sweep.roster, sweep.slots = ("a", "b"), 2
    for name in ("eat-a", "hold-b"):
        (sweep.control / name).touch()
    box = sweep.box()
    queue = sweep.queue(box, job={"retries": 0})
    sweep.until_begun("a", "b")
    sweep.until_idle(box)
    (sweep.control / "hold-b").unlink()
    until_over(sweep, box, queue, most=4, retries=0)
    assert sweep.sealed(box) == {"b"}, sweep.picture()
    assert sweep.starts() == {"a": 2, "b": 2}, sweep.picture()
    assert failures(sweep, box, "b") == []
    assert [(entry["class"], entry["final"]) for entry in failures(sweep, box, "a")] == [("oom", True)]
    assert "memory" in sweep.events(box, "worker-ended")[0]
    sweep.assert_honest(box)


@pytest.mark.proof  # four minutes; tests/onbox/test_workers.py and test_killed.py prove the parts of it
def test_a_cell_that_is_longer_than_a_worker_s_time_goes_on_from_its_checkpoint(
    make_sweep: Callable[..., SlurmSweep],
) -> None:
    """A real limit of time: Slurm warns the worker, the cell saves, the task is requeued by itself and goes on. No `up`
    comes meanwhile."""
    wall = 240
    sweep = make_sweep(workers=1, wall_seconds=wall)
    sweep.roster = ("long",)
    text = LONG.replace("STEP_SECONDS", str(STEP_SECONDS)).replace("STEPS", str(STEPS))
    (sweep.project / "job" / "long.py").write_text(text)
    began = time.monotonic()
    box = sweep.box()
    sweep.queue(box, job={"run": f"python3 long.py {{word}} {{out}} {sweep.place}/control"})
    over = lambda: "long" in sweep.sealed(box) or failures(sweep, box, "long")  # noqa: E731
    until(lambda: bool(over()), "the seal", sweep.picture, 2 * wall)
    assert failures(sweep, box, "long") == [], "an end of time is no failure of the cell"
    assert time.monotonic() - began > STEPS * STEP_SECONDS - 1
    stops = sweep.events(box, "runner-stopped")
    assert [stop["why"] for stop in stops[:1]] == ["wall"], sweep.picture()
    first, second = sweep.events(box, "cell-started")
    assert (first["worker"][-2:], second["worker"][-2:]) == (".0", ".1")
    assert 0 < second["checkpoint_step"] < STEPS
    (sealed,) = sweep.events(box, "cell-sealed")
    result = json.loads((sweep.root(box) / box_layout.DURABLE / box.identity / "cells/long/result.json").read_text())
    assert (result["first"], result["sum"]) == (second["checkpoint_step"] + 1, STEPS * (STEPS + 1) // 2), sealed
    sweep.until_idle(box)
    sweep.assert_honest(box)
    ended(sweep, box)


@pytest.mark.proof  # two minutes; the short one is in test_must_hold.py
def test_the_shared_tier_is_read_only_for_a_minute(make_sweep: Callable[..., SlurmSweep]) -> None:
    """Cells that end meanwhile can write neither their files nor the journal: that is no failure of theirs, and what
    was sealed before stays sealed."""
    sweep = make_sweep()
    sweep.roster = tuple("abcdef")
    sweep.hold("b", "c", "d")
    box = sweep.box()
    queue = sweep.queue(box, job={"retries": 0})
    sweep.until_begun("b", "c")
    sweep.until_sealed(box, "a")
    sweep.cluster.read_only()
    try:
        (sweep.control / "hold-b").unlink()
        ends = time.monotonic() + 60
        while time.monotonic() < ends:
            with pytest.raises(SweepstackError):
                BOX.delete(sweep.op(), box.native_id, box)
            assert "a" in sweep.sealed(box)
            time.sleep(5)
    finally:
        sweep.cluster.read_only(False)
    sweep.release()
    until_over(sweep, box, queue, most=4, retries=0)
    assert sweep.sealed(box) == set(sweep.roster), sweep.picture()
    assert max(sweep.starts().values()) <= 2, sweep.picture()
    sweep.assert_honest(box)
    ended(sweep, box)


@pytest.fixture
def apart(make_sweep: Callable[..., SlurmSweep], tmp_path: Path) -> Iterator[SlurmSweep]:
    """A sweep on a cluster of which one node's clock is ahead."""
    sweep = make_sweep(cpu=8)  # a whole node each
    source = tmp_path / "clock.c"
    source.write_text(CLOCK.replace("APART", str(APART)))
    library = sweep.cluster.etc / "clock.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    preload = sweep.cluster.nodes["n1"].disk / "etc/ld.so.preload"
    preload.write_text("/etc/slurm/clock.so\n")
    yield sweep
    sweep.release()
    preload.unlink()


@pytest.mark.proof  # half a minute, and needs a C compiler; no decision of a worker reads another's clock
def test_clocks_are_apart(apart: SlurmSweep) -> None:
    """One node is ten minutes ahead of the login node and of the other node. Its time shows in the journal, and decides
    nothing: no cell is taken from a worker, none is held for hung, and each is sealed once."""
    sweep = apart
    sweep.roster = ("a", "b", "c", "d")
    sweep.hold("a", "b")
    assert float(sweep.cluster.nodes["n1"].run("date", "+%s").stdout) - time.time() > APART - 60
    box = sweep.box()
    queue = sweep.queue(box, job={"retries": 0})
    sweep.until_begun("a", "b")
    refused(sweep, box)
    assert sweep.node_of("a") != sweep.node_of("b"), sweep.picture()
    ahead, other = ("a", "b") if sweep.node_of("a") == "n1" else ("b", "a")
    (sweep.control / f"hold-{ahead}").unlink()
    sweep.until_sealed(box, ahead, "c", "d")
    # Nothing is left to take then, so it asks whether the other worker has ended, before it ends itself.
    until(lambda: len(sweep.events(box, "runner-stopped")) == 1, "the end of the worker that is ahead", sweep.picture)
    assert sweep.starts()[other] == 1, sweep.picture()
    assert not sweep.events(box, "worker-ended"), "no clock is a proof"
    queue = up(sweep, box, queue)
    (task,) = [name for name, _, _ in sweep.tasks(box) if sweep.worker_of(box, other).startswith(f"{name}.")]
    sweep.cluster.ask("scontrol", "requeue", task)
    until(lambda: sweep.state_of(box, task) not in ("RUNNING", "COMPLETING"), "a requeue", sweep.picture)
    sweep.release()
    until_over(sweep, box, queue, most=4)
    assert sweep.sealed(box) == set(sweep.roster), sweep.picture()
    assert not sweep.events(box, "cell-failed"), sweep.picture()
    sweep.assert_honest(box)
    times = [entry["time"] for entry in sweep.journal(box)]
    assert times != sorted(times), "no clock of a worker was ahead"
    seen = read_journal(sweep.channel(box))
    assert all(cell.started_at and cell.ended_at for cell in seen.cells.values())
    ended(sweep, box)
