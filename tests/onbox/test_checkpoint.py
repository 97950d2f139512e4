"""The checkpoint helper: at every moment, what is loaded is whole and the newest there is."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from tests.onbox.harness import CHECKPOINT, INTERPRETER


@pytest.fixture
def helper(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(CHECKPOINT))
    import sweepstack_checkpoint

    return sweepstack_checkpoint


def names(folder: Path) -> list[int]:
    return sorted(int(path.name.split("-")[1]) for path in folder.glob("step-*"))


def test_newest_is_loaded_and_the_one_before_is_kept(helper: ModuleType, tmp_path: Path) -> None:
    checkpoint = helper.Checkpoint(tmp_path / "a" / "b")
    assert checkpoint.load_latest() is None
    for step in (1, 2, 10, 9999999999999):
        checkpoint.save(lambda path, step=step: path.write_text(str(step)), step)
        assert checkpoint.load_latest().read_text() == str(step)
    assert names(tmp_path / "a" / "b") == [10, 9999999999999]


def test_folder_comes_from_the_box(helper: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEEPSTACK_CHECKPOINT_DIR", str(tmp_path / "set"))
    assert helper.Checkpoint().directory == tmp_path / "set"
    monkeypatch.delenv("SWEEPSTACK_CHECKPOINT_DIR")
    with pytest.raises(RuntimeError, match="SWEEPSTACK_CHECKPOINT_DIR"):
        helper.Checkpoint()


def test_write_that_fails_leaves_what_was_there(helper: ModuleType, tmp_path: Path) -> None:
    checkpoint = helper.Checkpoint(tmp_path)
    checkpoint.save(lambda path: path.write_text("one"), 1)

    def fails(path: Path) -> None:
        path.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        checkpoint.save(fails, 2)
    with pytest.raises(RuntimeError, match="made no file"):
        checkpoint.save(lambda path: path.with_suffix(".npz").write_text("elsewhere"), 2)
    assert checkpoint.load_latest().read_text() == "one"
    assert names(tmp_path) == [1]


def test_leftover_of_a_killed_save_is_never_loaded_and_is_removed(helper: ModuleType, tmp_path: Path) -> None:
    (tmp_path / ".4711.tmp").write_text("half")
    checkpoint = helper.Checkpoint(tmp_path)
    assert checkpoint.load_latest() is None
    checkpoint.save(lambda path: path.write_text("one"), 1)
    assert [path.name[:19] for path in tmp_path.iterdir()] == ["step-000000000001-7"]


@pytest.mark.parametrize("damage", [b"", b"tw", b"twO", b"two plus"])
def test_damaged_newest_falls_back_and_is_replaced(helper: ModuleType, tmp_path: Path, damage: bytes) -> None:
    checkpoint = helper.Checkpoint(tmp_path)
    checkpoint.save(lambda path: path.write_text("one"), 1)
    checkpoint.save(lambda path: path.write_text("two"), 2).write_bytes(damage)
    assert checkpoint.load_latest().read_text() == "one"
    checkpoint.save(lambda path: path.write_text("another two"), 2)
    assert checkpoint.load_latest().read_text() == "another two"
    checkpoint.save(lambda path: path.write_text("three"), 3)
    assert checkpoint.load_latest().read_text() == "three"
    assert names(tmp_path) == [2, 3]


def test_later_steps_that_could_not_be_read_are_kept_until_the_run_has_got_as_far(
    helper: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network disk that fails for a moment is no damage."""
    checkpoint = helper.Checkpoint(tmp_path)
    for step in (1, 8, 9):
        checkpoint.save(lambda path, step=step: path.write_text(str(step)), step)

    def away(path: Path) -> str:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["sweepstack_files"], "_sha256", away)
        assert checkpoint.load_latest() is None
    for step in (1, 2, 3, 8):
        checkpoint.save(lambda path, step=step: path.write_text(f"again {step}"), step)
        assert checkpoint.load_latest().read_text() == f"again {step}"
        (aside,) = tmp_path.glob(".*")
        assert (aside.name[:18], aside.read_text()) == (".step-000000000009", "9")
    checkpoint.save(lambda path: path.write_text("again 9"), 9)
    assert sorted(path.read_text() for path in tmp_path.iterdir()) == ["again 8", "again 9"]


def test_the_last_save_of_a_step_counts_though_the_clock_was_set_back(helper: ModuleType, tmp_path: Path) -> None:
    checkpoint = helper.Checkpoint(tmp_path)
    os.utime(checkpoint.save(lambda path: path.write_text("first"), 5), (4_000_000_000, 4_000_000_000))
    checkpoint.save(lambda path: path.write_text("last"), 5)
    assert checkpoint.load_latest().read_text() == "last"


def test_previous_is_there_until_the_new_one_is(
    helper: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every call that touches the disk, an older whole checkpoint can be loaded."""
    checkpoint = helper.Checkpoint(tmp_path)
    checkpoint.save(lambda path: path.write_text("1"), 1)
    seen = []

    def looking(name: str) -> None:
        original = getattr(os, name)

        def call(*args: object) -> object:
            seen.append((name, checkpoint.load_latest().read_text()))
            return original(*args)

        monkeypatch.setattr(helper.os, name, call)

    for name in ("fsync", "replace"):
        looking(name)
    checkpoint.save(lambda path: path.write_text("2"), 2)
    # the file's fsync, the rename, the folder's fsync
    assert seen == [("fsync", "1"), ("replace", "1"), ("fsync", "2")]


COUNTS = """
import sys
from sweepstack_checkpoint import Checkpoint
checkpoint = Checkpoint(sys.argv[1])
latest = checkpoint.load_latest()
state = latest.read_text().split() if latest else []
print(len(state), flush=True)
for _ in range(20_000):  # it is killed long before, or it ends by itself where the test was killed
    state.append(str(len(state)))
    checkpoint.save(lambda path: path.write_text(" ".join(state)), len(state))
"""


def test_killed_at_random_moments(helper: ModuleType, tmp_path: Path) -> None:
    rng, reached, killed = random.Random(5), 0, 0
    until = time.monotonic() + 60  # a busy machine saves less in one life
    while killed < 10 or (reached <= 10 and time.monotonic() < until):
        killed += 1
        argv = [INTERPRETER, "-c", COUNTS, str(tmp_path)]
        env = {"PYTHONPATH": str(CHECKPOINT)}
        process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert int(process.stdout.readline()) >= reached
        time.sleep(rng.uniform(0, 0.06))
        process.kill()
        process.wait()
        process.stdout.close()
        latest = helper.Checkpoint(tmp_path).load_latest()
        state = latest.read_text().split() if latest else []
        assert state == [str(number) for number in range(len(state))]
        assert len(state) >= reached
        reached = len(state)
    assert reached > 10


def test_stop_flag(helper: ModuleType) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        flag = helper.stop_flag()
        assert not flag
        os.kill(os.getpid(), signal.SIGTERM)
        assert flag
    finally:
        signal.signal(signal.SIGTERM, before)
