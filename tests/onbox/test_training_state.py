"""TrainingState: a run that was killed and goes on is the run that nothing happened to."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.onbox.harness import CHECKPOINT


@pytest.fixture
def helper(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(CHECKPOINT))
    import sweepstack_checkpoint

    before = signal.getsignal(signal.SIGTERM)
    yield sweepstack_checkpoint
    signal.signal(signal.SIGTERM, before)


class Sampler:
    """A shuffled order with a position: what a stateful loader keeps."""

    def __init__(self, length: int, seed: int) -> None:
        self.order, self.position = random.Random(seed).sample(range(length), length), 0

    def __next__(self) -> int:
        self.position += 1
        return self.order[(self.position - 1) % len(self.order)]

    def state_dict(self) -> dict[str, Any]:
        return {"order": self.order, "position": self.position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.order, self.position = state["order"], state["position"]


def train(helper: ModuleType, folder: Path, *, until: int, metrics: str = "metrics.jsonl") -> dict[str, Any]:
    """A run whose every step depends on all generators and parts; it ends, or is cut off, after step `until`."""
    random.seed(1)
    np.random.seed(2)
    rng, own, sampler = np.random.default_rng(3), random.Random(4), Sampler(7, 5)
    weights, seen = {"w": np.zeros(3)}, list[int]()
    parts = {"weights": weights, "seen": seen, "rng": rng, "own": own, "sampler": sampler}
    state = helper.TrainingState(parts, folder / "checkpoints")
    lines = state.metrics(folder / metrics)
    for step in range(state.load_latest() + 1, until + 1):
        seen.append(next(sampler))
        noise = np.array([random.random(), np.random.random(), own.random()])
        weights["w"] = weights["w"] * 0.9 + noise * rng.random() + seen[-1]
        lines.write({"step": step, "w": weights["w"].tolist()})
        state.save(step)
    return {"w": weights["w"].tobytes(), "seen": seen, "lines": (folder / metrics).read_bytes()}


def test_run_cut_anywhere_ends_the_same(helper: ModuleType, tmp_path: Path) -> None:
    whole = train(helper, tmp_path / "whole", until=9)
    cut = tmp_path / "cut"
    for until in (2, 3, 7):
        train(helper, cut, until=until)
        with (cut / "metrics.jsonl").open("a") as handle:  # a step that no checkpoint knows of, torn
            handle.write('{"step": 99}\n{"st')
    (cut / "metrics.jsonl").unlink()  # the next attempt has a folder of its own
    assert train(helper, cut, until=9) == whole
    assert [json.loads(line)["step"] for line in whole["lines"].splitlines()] == list(range(1, 10))


def test_metrics_of_a_first_start_begin_empty(helper: ModuleType, tmp_path: Path) -> None:
    """What a run without a checkpoint left behind is not continued."""
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    state = helper.TrainingState({}, tmp_path / "checkpoints")
    state.metrics(tmp_path / "metrics.jsonl").write({"step": 5})
    assert state.load_latest() == 0
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 5}\n'


@pytest.mark.parametrize(
    ("between_losses", "save", "seconds", "step", "every", "steps"),
    [
        (10_800, 30, 804.98, 2.0, 1, 402),
        (10_800, 30, 804.98, 2.0, 50, 400),
        (3_600, 60, 657.27, 2.0, 1, 328),
        (3_600, 60, 657.27, 700.0, 1, 1),
        (3_600, 60, 657.27, 2.0, 1000, 1000),
    ],
)
def test_interval_is_young_and_daly_s(
    helper: ModuleType, between_losses: int, save: int, seconds: float, step: float, every: int, steps: int
) -> None:
    """sqrt(2 · mu · C), rounded down to a step at which a save is possible."""
    interval = helper.Interval(between_losses, every)
    interval.saved(save)
    assert interval.seconds == pytest.approx(seconds, abs=0.01)
    assert interval.steps(step) == steps


def test_interval_follows_what_saves_took(helper: ModuleType) -> None:
    interval = helper.Interval(10_800, 10)
    assert [interval.due(step, 0, 20.0 * step) for step in (1, 9, 10, 11)] == [False, False, True, False]
    for seconds in (900, 30, 30, 30):  # the first one warmed something up
        interval.saved(seconds)
    assert interval.seconds == pytest.approx(804.98, abs=0.01)
    due = [step for step in range(1010, 2000) if interval.due(step, 1010, 2.0 * (step - 1010))]
    assert due[0] == 1410
    assert all(step % 10 == 0 for step in due)
    for _ in range(5):
        interval.saved(120)
    assert interval.seconds == pytest.approx(2 * 804.98, abs=0.01)


def test_save_is_measured(helper: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(helper.time, "monotonic", lambda: clock[0])

    class Slow(Sampler):
        def state_dict(self) -> dict[str, Any]:
            clock[0] += 30
            return super().state_dict()

    state = helper.TrainingState({"sampler": Slow(3, 0)}, tmp_path, every=50)
    state.load_latest()
    saved = []
    for step in range(1, 1001):
        clock[0] += 2
        if state.due(step):
            saved.append(step)
            state.save(step)
    assert saved == [50, 450, 850]


def test_sigterm_saves_at_the_end_of_the_step(helper: ModuleType, tmp_path: Path) -> None:
    counted = [0]
    state = helper.TrainingState({"counted": counted}, tmp_path, every=2)
    state.save(0)  # measured: from here on a save would be due after minutes
    code = None
    try:
        for step in range(1, 10):
            counted[0] += 1
            if step == 3:
                os.kill(os.getpid(), signal.SIGTERM)
            state.after_step(step)
    except SystemExit as left:
        code = left.code
    assert code == 143
    counted[0] = -1
    assert helper.TrainingState({"counted": counted}, tmp_path).load_latest() == 4
    assert counted == [4]


@pytest.mark.parametrize("variable", ["RANK", "OMPI_COMM_WORLD_RANK", "SOME_PROCID"])
def test_rank_0_saves_for_all(
    helper: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    weights = {"w": 1}
    monkeypatch.setenv(variable, "1")
    other = helper.TrainingState({"weights": weights}, tmp_path)
    other.save(3)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv(variable, "0")
    helper.TrainingState({"weights": weights}, tmp_path).save(5)
    random.seed(9)
    expected = random.random()
    random.seed(9)
    weights["w"] = 2
    assert other.load_latest() == 5
    assert weights == {"w": 1}
    assert random.random() == expected  # rank 0's generator is not rank 1's


def test_checkpoint_of_other_parts_is_refused(helper: ModuleType, tmp_path: Path) -> None:
    helper.TrainingState({"a": [1], "b": [2]}, tmp_path).save(1)
    with pytest.raises(RuntimeError, match=r"\['a', 'b'\].*\['a'\]"):
        helper.TrainingState({"a": [1]}, tmp_path).load_latest()


def test_part_without_a_state_is_refused_at_once(helper: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="lr: the state of a float"):
        helper.TrainingState({"lr": 0.1}, tmp_path)


def full(times: int, error: Exception) -> Callable[[Path], None]:
    """Writes half of it and finds no space, the first `times`."""
    left = [times]

    def write(path: Path) -> None:
        path.write_text("thr")
        left[0] -= 1
        if left[0] >= 0:
            raise error
        path.write_text("three")

    return write


def test_full_disk_takes_the_older_one_and_keeps_the_newest(helper: ModuleType, tmp_path: Path) -> None:
    checkpoint = helper.Checkpoint(tmp_path)
    for step, text in ((1, "one"), (2, "two")):
        checkpoint.save(lambda path, text=text: path.write_text(text), step)
    no_space = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(full(2, no_space), 3)
    assert checkpoint.load_latest().read_text() == "two"
    assert len(list(tmp_path.iterdir())) == 1
    checkpoint.save(lambda path: path.write_text("two again"), 2)
    checkpoint.save(full(1, no_space), 3)
    assert checkpoint.load_latest().read_text() == "three"


def test_other_failure_of_a_save_takes_nothing(helper: ModuleType, tmp_path: Path) -> None:
    checkpoint = helper.Checkpoint(tmp_path)
    for step, text in ((1, "one"), (2, "two")):
        checkpoint.save(lambda path, text=text: path.write_text(text), step)
    with pytest.raises(RuntimeError, match="of its own"):
        checkpoint.save(full(1, RuntimeError("a failure of its own")), 3)
    assert len(list(tmp_path.iterdir())) == 2
