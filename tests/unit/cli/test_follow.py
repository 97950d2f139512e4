"""`sweepctl logs -f` through everything that happens to a log on the way; and the logs of set-up and runner."""

from __future__ import annotations

import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sweepstack.cli.commands.logs import _ERASE, Printer
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import digest_of
from sweepstack.onbox.common.errors import Unreachable
from sweepstack.teardown.box_context import BoxAt
from tests.unit.cli.support import Box, World

SETUP = digest_of(["pip install x", "code"])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweepstack.cli.commands.logs.POLL_SECONDS", 0.02)
    monkeypatch.setattr("sweepstack.cli.commands.logs.LONGEST_PAUSE", 0.05)


@pytest.fixture
def box(world: World) -> Box:
    made = world.add()
    made.launch("lr0.1")
    made.start("lr0.1", log="one\n")
    made.alive()
    return made


def log_of(box: Box, attempt: int = 1) -> Path:
    return box.root / box_layout.attempt_dir("lr0.1", attempt) / "log.txt"


def append(path: Path, text: str) -> None:
    with path.open("a") as handle:
        handle.write(text)


@contextmanager
def meanwhile(world: World, *steps: tuple[str, Callable[[], object]]) -> Iterator[list[str]]:
    """Does each step once its words were said (on stderr), or printed."""
    said: list[str] = []
    left = list(steps)
    lock = threading.Lock()

    def hear(text: str) -> None:
        with lock:
            said.append(text)
            while left and left[0][0] in "".join(said):
                left.pop(0)[1]()

    world.monkeypatch.setattr("sweepstack.cli.commands.logs.Follow.say", lambda self, text: hear(f"-- {text}\n"))
    printed = Printer.__call__

    def heard(self: Printer, data: bytes) -> None:
        printed(self, data)
        hear(data.decode())

    world.monkeypatch.setattr("sweepstack.cli.commands.logs.Printer.__call__", heard)
    yield said
    assert not left, f"never came: {left[0][0]!r}; said {said}"


def test_on_to_the_next_attempt(world: World, box: Box) -> None:
    def second() -> None:
        append(log_of(box), "last words\n")
        box.fail("lr0.1", final=False)
        box.start("lr0.1", attempt=2, log="two\n")

    with meanwhile(world, ("one\n", second), ("two\n", lambda: box.seal("lr0.1", attempt=2))) as said:
        result = world.run("logs", "lr0.1", "-f")
    assert result.code == 0
    assert result.out == "one\nlast words\ntwo\n"
    assert "-- lr0.1, attempt 2, from box box-0 (the one before: failed: exit code 1)\n" in said
    assert said[-1] == "-- lr0.1 is sealed\n"


def test_a_reader_that_leaves_ends_it(world: World, box: Box) -> None:
    """`sweepctl logs -f CELL | head`: that nobody reads any more is no outage of the box."""
    read, write = os.pipe()

    def leave() -> None:
        os.close(read)
        append(log_of(box), "two\n")

    with os.fdopen(write, "w") as pipe, meanwhile(world, ("one\n", leave)) as said:
        world.monkeypatch.setattr("sys.stdout", pipe)
        result = world.run("logs", "lr0.1", "-f", "--timeout", "20s")
    assert (result.code, result.err) == (2, "")
    assert not any("does not answer" in line for line in said)


def test_one_attempt_is_followed_to_its_own_end(world: World, box: Box) -> None:
    with meanwhile(world, ("one\n", lambda: box.fail("lr0.1", final=False))):
        result = world.run("logs", "lr0.1", "-f", "--attempt", "1")
    assert (result.code, result.out) == (0, "one\n")


def test_a_cell_that_fails_for_good_is_no_yes(world: World, box: Box) -> None:
    with meanwhile(world, ("one\n", lambda: box.fail("lr0.1"))) as said:
        assert world.run("logs", "lr0.1", "-f").code == 1
    assert "failed for good: exit code 1" in said[-1]


@pytest.mark.parametrize("what", ["its runner", "the box"])
def test_what_dies_or_does_not_answer_and_comes_back(world: World, box: Box, what: str) -> None:
    def back() -> None:
        if what == "the box":
            os.rename(world.folder / "elsewhere", world.platform_root)
        append(log_of(box), "two\n")
        if what == "its runner":
            box.alive()

    goes, told, again = {
        "its runner": (
            lambda: box.alive(False),
            "is not alive; `pulumi up --stack sweep-t` resumes it",
            "alive again",
        ),
        "the box": (world.move_registry, "does not answer", "answers again"),
    }[what]
    with meanwhile(world, ("one\n", goes), (told, back), (again, lambda: box.seal("lr0.1"))):
        result = world.run("logs", "lr0.1", "-f")
    assert (result.code, result.out) == (0, "one\ntwo\n")


def test_a_runner_that_stays_dead_ends_it(world: World, box: Box) -> None:
    world.monkeypatch.setattr("sweepstack.cli.commands.logs.MISSING_SECONDS", 0.1)
    box.alive(False)
    result = world.run("logs", "lr0.1", "-f")
    assert result.code == 1
    assert "has not been alive" in result.err
    assert "next   pulumi up --stack sweep-t" in result.err


def test_a_box_that_was_started_again_at_another_address(world: World, box: Box) -> None:
    """A rented box has another port after each start: what was opened before leads nowhere, for ever."""
    opened: list[Former] = []
    really = BoxAt.channel

    def channel(self: BoxAt) -> Any:
        opened.append(Former(really(self)))
        return opened[-1]

    def restart() -> None:
        for one in opened:
            one.over = True
        append(log_of(box), "two\n")

    world.monkeypatch.setattr(BoxAt, "channel", channel)
    with meanwhile(world, ("one\n", restart), ("answers again", lambda: box.seal("lr0.1"))):
        result = world.run("logs", "lr0.1", "-f", "--timeout", "20s")
    assert (result.code, result.out) == (0, "one\ntwo\n")


class Former:
    """A channel by the address that a box has; once it is `over`, nothing is there any more."""

    def __init__(self, channel: Channel) -> None:
        self._channel, self.over = channel, False

    def __getattr__(self, name: str) -> Any:
        if self.over:
            raise Unreachable("connection refused")
        return getattr(self._channel, name)


def test_a_log_that_was_truncated(world: World, box: Box) -> None:
    append(log_of(box), "and more\n")
    with meanwhile(
        world,
        ("and more\n", lambda: log_of(box).write_text("anew\n")),
        ("anew\n", lambda: box.seal("lr0.1")),
    ) as said:
        result = world.run("logs", "lr0.1", "-f", "--tail", "1")
    assert (result.code, result.out) == (0, "and more\nanew\n")
    assert "truncated" in "".join(said)


def test_a_cell_that_has_not_begun_is_waited_for(world: World) -> None:
    box = world.add()
    box.launch("lr0.1")
    box.alive()
    timer = threading.Timer(0.3, lambda: box.start("lr0.1", log="one\n"))
    with meanwhile(world, ("one\n", lambda: box.seal("lr0.1"))):
        timer.start()
        result = world.run("logs", "lr0.1", "-f")
    timer.join()
    assert (result.code, result.out) == (0, "one\n")


def test_the_rest_comes_from_the_volume_when_the_box_is_gone(world: World, box: Box) -> None:
    def gone() -> None:
        box.seal("lr0.1", files={"log.txt": b"one\nthe rest\n"})
        box.vanish()

    with meanwhile(world, ("one\n", gone)) as said:
        result = world.run("logs", "lr0.1", "-f")
    assert (result.code, result.out) == (0, "one\nthe rest\n")
    assert "its box is gone" in "".join(said)


def test_a_character_cut_in_two_is_one(world: World, box: Box) -> None:
    data = "é".encode()
    log_of(box).write_bytes(data[:1])

    def rest() -> None:
        with log_of(box).open("ab") as handle:
            handle.write(data[1:] + b"\n")
        box.seal("lr0.1")

    with meanwhile(world, ("attempt 1", rest)):
        assert world.run("logs", "lr0.1", "-f").out == "é\n"


# set-up and runner


def prepare(box: Box) -> Path:
    path = box.root / box_layout.setup_log(SETUP)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("Collecting x\n")
    box.log("setup-started", setup=SETUP, code="c")
    box.alive()
    return path


def test_setup_log(world: World) -> None:
    box, other = world.add(), world.add("box-1")
    box.launch("lr0.1")
    other.launch("lr0.3")
    result = world.run("logs", "--of", "setup")
    assert result.code == 2
    assert "no box has a set-up step" in result.err
    path = prepare(box)
    assert world.run("logs", "--of", "setup").out == "Collecting x\n"
    found = world.run("logs", "--of", "setup", "box-0", "--json").json
    assert (found["box"], found["state"], found["text"]) == ("box-0", "running", "Collecting x\n")
    assert 'did you mean "box-0"' in world.run("logs", "--of", "setup", "box0").err

    def failed() -> None:
        append(path, "ERROR\n")
        box.log("setup-failed", setup=SETUP, code="c", stage="commands", reason="exit code 1")

    with meanwhile(world, ("Collecting x\n", failed)) as said:
        result = world.run("logs", "--of", "setup", "box-0", "-f")
    assert (result.code, result.out) == (1, "Collecting x\nERROR\n")
    assert "exit code 1" in said[-1]


def test_runner_log(world: World, box: Box) -> None:
    (box.root / box_layout.RUNNER_LOG).write_text("begins\n")
    assert world.run("logs", "--of", "runner", "box-0").out == "begins\n"
    result = world.run("logs", "--of", "runner", "--follow", "--timeout", "0.3s")
    assert (result.code, result.out) == (1, "begins\n")
    box.vanish()
    result = world.run("logs", "--of", "runner", "box-0")
    assert result.code == 2
    assert "box box-0 is gone, and `sweepctl pull` had copied no such log" in result.err


def test_log_of_the_worker_that_began_last_and_is_at_work(world: World, box: Box) -> None:
    for name in ("7_0.0", "7_1.0", "7_2.0"):
        folder = box.root / box_layout.WORKERS / name
        folder.mkdir(parents=True)
        (folder / "runner.log").write_text(f"{name} begins\n")
        box.log("runner-started", worker=name, pid=1)
    box.log("runner-stopped", worker="7_2.0", why="nothing to take")
    result = world.run("logs", "--of", "runner", "box-0")
    assert (result.out, "worker 7_1.0 of box box-0 (and 2 others)" in result.err) == ("7_1.0 begins\n", True)
    assert world.run("logs", "--of", "runner", "-f", "--timeout", "0.3s").out == "7_1.0 begins\n"


def pulled(world: World, box: Box) -> None:
    """A set-up that failed; runner and set-up log are copied."""
    prepare(box)
    box.log("setup-failed", setup=SETUP, code="c", stage="commands", reason="exit code 1")
    (box.root / box_layout.RUNNER_LOG).write_text("begins\nends\n")
    world.run("pull")


def test_the_logs_of_a_box_outlive_it(world: World, box: Box) -> None:
    pulled(world, box)
    box.vanish()
    result = world.run("logs", "--of", "runner", "box-0")
    assert (result.code, result.out) == (0, "begins\nends\n")
    assert "runner of box box-0, from the copy of 20" in result.err
    assert "UTC (box box-0 is gone)" in result.err
    found = world.run("logs", "--of", "setup", "--json").json
    assert (found["box"], found["state"], found["text"]) == ("box-0", "failed", "Collecting x\n")
    assert found["source"].startswith("the copy of 20")
    assert found["copied_at"].endswith("+00:00")
    assert world.run("logs", "--of", "runner", "box-0", "-f").out == "begins\nends\n"
    world.save(world.empty())
    result = world.run("logs", "--of", "runner", "box-0", fresh=False)
    assert (result.code, result.out) == (0, "begins\nends\n")
    assert "box box-0 is not in the state any more" in result.err
    assert world.run("logs", "--of", "setup", "--tail", "1", fresh=False).out == "Collecting x\n"
    unknown = " ".join(world.run("logs", "--of", "runner", "box0", fresh=False).err.split())
    assert '(there: box-0); did you mean "box-0"? next sweepctl logs --of runner box-0 --stack sweep-t' in unknown


def test_the_logs_of_several_workers_outlive_their_box(world: World, box: Box) -> None:
    """Of the worker that wrote last, whether the box is gone, is not in the state, or its journal does not read."""
    for at, name in enumerate(("7_0.0", "7_1.0", "7_2.0")):
        folder = box.root / box_layout.WORKERS / name
        folder.mkdir(parents=True)
        (folder / "runner.log").write_text(f"{name} begins\n")
        os.utime(folder / "runner.log", (at, at))
        box.log("runner-started", worker=name, pid=1)
    world.run("pull")
    journal = (box.root / box_layout.JOURNAL).read_bytes()
    (box.root / box_layout.JOURNAL).write_bytes(b"nonsense\n")
    results = [world.run("logs", "--of", "runner", "box-0")]
    (box.root / box_layout.JOURNAL).write_bytes(journal)
    box.vanish()
    results.append(world.run("logs", "--of", "runner", "box-0"))
    world.save(world.empty())
    results.append(world.run("logs", "--of", "runner", "box-0", fresh=False))
    results.append(world.run("logs", "--of", "runner", fresh=False))
    assert [(one.code, one.out) for one in results] == 4 * [(0, "7_2.0 begins\n")]
    assert all("worker 7_2.0 of box box-0 (and 2 others), from the copy of 20" in one.err for one in results)


def test_the_copy_is_shown_where_the_box_does_not_answer(world: World, box: Box) -> None:
    pulled(world, box)
    (box.root / box_layout.JOURNAL).write_bytes(b"nonsense\n")
    result = world.run("logs", "--of", "runner", "box-0")
    assert (result.code, result.out) == (0, "begins\nends\n")
    assert "from the copy of 20" in result.err


def test_a_box_that_goes_while_its_log_is_followed(world: World, box: Box) -> None:
    pulled(world, box)
    with meanwhile(world, ("begins\n", box.vanish)) as said:
        result = world.run("logs", "--of", "runner", "-f")
    assert (result.code, result.out) == (0, "begins\nends\n")
    assert "the box is gone" in "".join(said)


def test_pull_names_a_log_that_can_not_be_copied(world: World, box: Box) -> None:
    (box.root / box_layout.RUNNER_LOG).mkdir()
    result = world.run("pull")
    assert result.code == 0, result
    assert f"warning  box box-0: {box_layout.RUNNER_LOG} was not copied" in result.out
    (warning,) = world.run("pull", "--json").json["warnings"]
    assert box_layout.RUNNER_LOG in warning


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("cut", [1, 3, 7, 1000])
def test_what_a_progress_bar_wrote_over_is_not_shown(cut: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the log comes in pieces: each line is as it stood in the end."""
    log = b"epoch 1\r\n  0%|     | 0/20\r 50%|##   | 10/20\r100%|#####| 20/20\nepoch 2\n\r  0%|\r 10%|#\r"
    monkeypatch.setattr("sys.stdout", Terminal())
    printer = Printer()
    for start in range(0, len(log), cut):
        printer(log[start : start + cut])
    shown = sys.stdout.getvalue()  # type: ignore[attr-defined]
    lines = [line.split(_ERASE)[-1] for line in shown.split("\n")]
    assert [line.rstrip("\r") for line in lines] == ["epoch 1", "100%|#####| 20/20", "epoch 2", " 10%|#"]
    if cut == 1000:
        assert " 50%" not in shown
