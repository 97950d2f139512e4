"""The timer of a start command, and its hand-over to a runner: generated interleavings, line by line, and kills."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweepstack.onbox import start_lease
from sweepstack.onbox.common.locks import is_held, take
from sweepstack.onbox.host.capabilities import OwnStop
from sweepstack.platforms.common import renting
from tests.onbox.harness import wait_for
from tests.onbox.test_lease import KEY, Vendor, vendor

__all__ = ["vendor"]  # a fixture
LEASE, GONE = 20.0, 20.0


class Killed(BaseException):
    """As by `kill -9`: its files are closed, and nothing of it goes on."""


class Stepped:
    """A thread that makes one line of the timer's source at a time."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._go, self._came = threading.Semaphore(0), threading.Semaphore(0)
        self._killed, self.ended = False, False
        self.error: AssertionError | None = None
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()
        self._came.acquire()

    def step(self) -> None:
        if not self.ended:
            self._go.release()
            self._came.acquire()

    def kill(self) -> None:
        self._killed = True
        while not self.ended:
            self.step()
        self._thread.join()

    def pause(self) -> None:
        self._came.release()
        self._go.acquire()
        if self._killed:
            raise Killed

    def _run(self, work: Callable[[], None]) -> None:
        sys.settrace(self._trace)
        try:
            with contextlib.suppress(Killed):
                work()
        except AssertionError as error:
            self.error = error
        finally:
            sys.settrace(None)
            self.ended = True
            self._came.release()

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != start_lease.__file__:
            return None
        if event == "line" and not self._killed:
            self.pause()
        return self._trace


class World:
    """A box: its timer, which may be killed and then is started again; a launch, which may be killed; its runner."""

    def __init__(self, home: Path) -> None:
        self.home, self.clock = home, 0.0
        self.during = True
        """Whether no launch came yet, or only while the timer had the lock."""
        self.asked: float | None = None
        """When the vendor was asked; what it was asked for happens within `GONE` seconds."""
        self.trains, self.watchers, self.looked, self.looked_late = False, 0, 0.0, False
        self.runner: int | None = None
        self.launch: Iterator[None] | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[World]:
        """With its timer, by this world's clock."""
        asks = {
            "boot_time": lambda: self.clock,
            "time": SimpleNamespace(sleep=self._gone),
            "subprocess": SimpleNamespace(call=self._watch),
        }
        with mock.patch.multiple(start_lease, **asks):
            self.timer = self._timer()
            try:
                yield self
            finally:
                self.timer.kill()
                if self.runner is not None and self.runner >= 0:
                    os.close(self.runner)

    def _watch(self, _: Any) -> None:
        self.watchers += 1

    def _timer(self) -> Stepped:
        def work() -> None:
            timer = start_lease.Timer(home=str(self.home), seconds=LEASE, gone=GONE)
            with mock.patch.object(timer, "ask", self._ask):
                while True:
                    timer.look()

        return Stepped(work)

    def _ask(self) -> str:
        assert not self.trains, "asked for the stop of a box that trains"
        assert self.during, "asked although a launch came before it had the lock"
        assert self._held(), "asked without the lock"
        assert self.clock - self.looked >= LEASE or self.looked_late, (
            "asked although a look came before it had the lock"
        )
        self.asked = self.clock
        return "yes"

    def _gone(self, seconds: float) -> None:
        """What the timer does meanwhile: it waits."""
        assert self.asked is not None
        while self.clock < self.asked + seconds:
            self.timer.pause()

    def _held(self) -> bool:
        file = os.open(self.home / "runner.lock", os.O_RDWR | os.O_CREAT)
        try:
            return is_held(file)
        finally:
            os.close(file)

    def begin_launch(self) -> None:
        self.launch = self.launch or self._launch()

    def _launch(self) -> Iterator[None]:
        """What `sweepstack.launch` does on the box, in its order; then the runner's own beginning."""
        self.look()
        yield
        self.during = self._held()
        (self.home / "on-start").touch()
        yield
        while self._held():  # no runner was ever here: it is the timer's
            yield
        file = os.open(self.home / "runner.lock", os.O_RDWR | os.O_CREAT)
        while not take(file):
            yield
        (self.home / "runner.pid").touch()
        self.runner = file
        yield
        self.trains = True
        may_still = self.asked is not None and self.clock < self.asked + GONE
        assert not may_still, "begins while the stop that was asked for may still come"

    def look(self) -> None:
        (self.home / "looked").touch()
        os.utime(self.home / "looked", ns=(int(self.clock * 1e9), int(1e15 * (1 + self.clock))))
        self.looked, self.looked_late = self.clock, self._held()

    def act(self, what: str, much: int) -> None:
        if what == "timer":
            for _ in range(much):
                self.timer.step()
        elif what == "time":
            self.clock += much
        elif what == "look":
            self.look()
        elif what == "launch":
            self.begin_launch()
            for _ in range(much):
                next(self.launch or iter(()), None)
        elif what == "kill launch" and self.runner is None:
            self.launch = iter(())
        elif what == "kill runner" and self.runner not in (None, -1):
            os.close(self.runner or 0)  # its cells go on
            self.runner = -1
        elif what == "kill timer" and (self.asked is None or self.clock >= self.asked + GONE):
            self.timer.kill()
            for name in os.listdir("/proc/self/fd"):  # the kernel closes them
                with contextlib.suppress(OSError):
                    mine = Path(os.readlink(f"/proc/self/fd/{name}")).parent == self.home
                    if mine and int(name) != self.runner:
                        os.close(int(name))
            self.timer = self._timer()


WORDS = ["timer", "timer", "launch", "launch", "launch", "time", "look", "kill runner", "kill launch", "kill timer"]
ACTS = st.tuples(st.integers(1, 80), st.lists(st.tuples(st.sampled_from(WORDS), st.integers(1, 12)), max_size=30)).map(
    lambda drawn: [("timer", 60), ("time", 30), ("timer", drawn[0]), *drawn[1]]
)
"""Its lease is over before a launch comes, and that finds it at any line of a look."""


def play(acts: list[tuple[str, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder, World(Path(folder)).running() as world:
        for what, much in acts:
            world.act(what, much)
        for _ in range(2):  # after all that, the bill has an end, or a watcher sees to it
            world.clock += 10 * LEASE + 1800
            for _ in range(200):
                world.timer.step()
        if world.timer.error is not None:
            raise world.timer.error
        launched = (world.home / "on-start").exists()
        assert world.watchers if launched else world.asked is not None, "no lease holds it"


def test_a_launch_that_finds_the_timer_at_any_line_of_its_look_is_never_stopped() -> None:
    """Its runner is killed at once, and its cell goes on: the lock is free again, and the box trains."""
    for lines in range(1, 70):
        play([("timer", 60), ("time", 30), ("timer", lines), ("launch", 12), ("kill runner", 1), ("timer", 60)])


@pytest.mark.proof  # the test above plays one launch at each line
@settings(max_examples=3000, deadline=None)
@given(ACTS)
def test_no_interleaving_with_kills_looks_and_time_does(acts: list[tuple[str, int]]) -> None:
    play(acts)


def test_a_runner_that_was_told_of_no_lease_is_left_alone(tmp_path: Path) -> None:
    """`lease: none` was written before the launch: there is a runner, and nothing that starts a watcher."""
    timer = start_lease.Timer(home=str(tmp_path), seconds=0.0)
    assert timer.due()
    (tmp_path / "runner.pid").touch()
    assert not timer.due()


@pytest.mark.parametrize("date", [0, 4e9])
def test_each_look_renews_it_whatever_the_date(tmp_path: Path, date: float) -> None:
    clock = 0.0

    def now() -> float:
        return clock

    with mock.patch.object(start_lease, "boot_time", now):
        timer = start_lease.Timer(home=str(tmp_path), seconds=100.0)
        for look in range(3):
            clock += 99.0
            os.utime(tmp_path / "looked", (date + look, date + look))
            assert not timer.due()
        clock += 99.0
        assert not timer.due()
        clock += 1.0
        assert timer.due()


# The real text, as a container runs it


@contextlib.contextmanager
def started(home: Path, vendor: Vendor, seconds: float, env: dict[str, str], **more: Any) -> Iterator[Any]:
    stop = OwnStop("POST", vendor.url.replace("/pod/", f"/{renting.HERE}/"), {"action": "stop", "id": renting.HERE})
    with mock.patch.multiple(renting, PAUSE_SECONDS=0.05, **more):
        text = renting.lease_text(seconds, str(home), "RUNPOD_API_KEY", "RUNPOD_POD_ID", (stop,))
    assert len(text) < 3300, "a vendor takes 4096 characters, and there is more in a start command"
    process = subprocess.Popen([sys.executable, "-c", text], env={"PATH": os.environ["PATH"], **env})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


VENDORS = {"RUNPOD_API_KEY": KEY, "RUNPOD_POD_ID": "pod7"}


def test_it_asks_by_the_box_s_own_key_and_says_why_that_did_not_help(tmp_path: Path, vendor: Vendor) -> None:
    home = tmp_path / "data/sweep"
    vendor.answer = (403, {}, b'{"error": "not yours"}')
    with started(home, vendor, 0.3, VENDORS, GONE_SECONDS=0.1) as process:
        wait_for(lambda: vendor.asked, lambda: "never asked")
        assert KEY.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        wait_for(lambda: b"403" in (home / "lease.lock").read_bytes(), lambda: "says nothing")
    (asked,) = vendor.asked
    assert asked["path"] == "/v2/pods/pod7/action"
    assert json.loads(asked["body"]) == {"action": "stop", "id": "pod7"}
    assert asked["headers"]["Authorization"] == f"Bearer {KEY}"
    assert KEY not in (home / "lease.lock").read_text()
