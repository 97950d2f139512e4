"""One live run: its prefix, its purse, and its end, at which nothing of it may be left."""

from __future__ import annotations

import os
import secrets
import signal
import threading
import time
from collections.abc import Generator
from contextlib import suppress
from typing import Any

import httpx
import pytest

from sweepstack.onbox.common.errors import PlatformError
from sweepstack.onbox.host.capabilities import HasBalance, HasVolumes
from sweepstack.onbox.host.platform import Phase, Platform
from sweepstack.platforms.registry import load_platform, need
from tests.live.books import Entry, all_books
from tests.live.purse import Purse

IDENTITY_VARIABLE = "SWEEPSTACK_SUITE_IDENTITY"
REGION_VARIABLE = "SWEEPSTACK_LIVE_REGION"
PACE_VARIABLE = "SWEEPSTACK_API_PACE"
TEST_SECONDS = 3600
"""What one test may take: several boxes, one after another, each with minutes to start."""
GONE_SECONDS = 300.0
LAG_SECONDS = 30.0
"""So long may a list not know what was made a moment ago."""
POLL_SECONDS = 5.0
AGAIN_SECONDS = 5.0
_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"


class LiveRun:
    """Everything that it rents begins with `prefix`. `url`: the address variable as it was found."""

    KEY: pytest.StashKey[LiveRun] = pytest.StashKey()

    def __init__(self, platform_name: str, spend: float, prefix: str) -> None:
        self.platform_name, self.prefix = platform_name, prefix
        self.books = all_books()[platform_name]
        self.url = os.environ.get(self.books.url)
        self.purse = Purse(spend)
        self.pace = pace = float(os.environ.get(PACE_VARIABLE) or 1)
        self.poll, self._gone, self._lag = POLL_SECONDS * pace, GONE_SECONDS * max(pace, 0.1), LAG_SECONDS * pace
        self._over, self.interrupted = threading.Event(), threading.Event()

    def platform(self) -> Platform:
        """The adapter, unmetered."""
        return load_platform(self.platform_name)

    def region(self) -> str:
        """Where volumes are made: only a person knows where they want to pay for one."""
        return os.environ.get(REGION_VARIABLE, "")

    def held(self, kind: str = "") -> list[Entry]:
        """What of this run the platform lists now. Raises httpx.HTTPError."""
        return [entry for entry in self.books.held(self.prefix) if kind in ("", entry.kind)]

    def balance(self) -> float | None:
        """USD on the account; None where the platform does not tell."""
        try:
            balance = need(self.platform(), HasBalance).balance()
        except PlatformError:
            return None
        return balance.usd if balance is not None else None

    def end_all(self) -> list[str]:
        """Ends every box and volume of this run and waits until the platform lists none; what is left at the deadline,
        or why that is not known. Goes on after errors."""
        end = time.monotonic() + self._gone
        while True:
            problem = self._end_once()
            try:
                left = self.held()
            except (httpx.HTTPError, KeyError, ValueError) as error:
                left, problem = [], f"what is left is not known: {type(error).__name__}"
            tags = {entry.tag for entry in left}
            if not problem:
                for tag in set(self.purse.running) - tags:
                    self.purse.put_back(tag)
            if not left and not problem:
                return []
            if time.monotonic() > end:
                return [f"{entry.kind} {entry.id} ({entry.tag})" for entry in left] + ([problem] if problem else [])
            time.sleep(self.poll)

    def _end_once(self) -> str:
        """One try at everything; why something could not even be tried."""
        platform, problem = self.platform(), ""
        try:
            account = platform.account()
            for record in platform.list_tagged(self.prefix):
                if record.tag.startswith(self.prefix) and record.phase is not Phase.GONE:
                    with suppress(PlatformError):  # what stays is listed, and tried again
                        platform.destroy(record.native_id, account)
            if isinstance(platform, HasVolumes):
                for volume in platform.list_volumes(self.prefix):
                    with suppress(PlatformError):
                        platform.delete_volume(volume.native_id, account)
        except PlatformError as error:
            problem = f"what is there can't be ended: {error}"
        return problem

    def watch(self) -> None:
        """Ends the run, as Ctrl-C would, when too much is spent. Returns at once."""

        def look() -> None:
            while not self._over.wait(min(1.0, self.poll)):
                if self.purse.must_stop():
                    _interrupt()
                    return

        threading.Thread(target=look, name="purse", daemon=True).start()

    def as_interrupt(self, *_: object) -> None:
        """A handler of signals: interrupts the run, again and again until that is noticed: an exception that is raised
        while Python collects garbage or calls a callback is lost."""

        def again() -> None:
            if not self.interrupted.wait(AGAIN_SECONDS):
                _interrupt()

        threading.Thread(target=again, name="interrupt", daemon=True).start()
        raise KeyboardInterrupt

    def close(self) -> list[str]:
        """The end: nothing interrupts it. What is left is returned, and bills."""
        self._over.set()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, busy)
        left = self.end_all()
        if self.purse.ended:  # a create that was cut off may show up late
            time.sleep(self._lag)
            left = self.end_all()
        return left


def _interrupt() -> None:
    """A real signal: `_thread.interrupt_main` lets the main thread sleep on, or wait for an answer, to the end."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


class LivePlugin:
    """What pytest asks during a live run."""

    def __init__(self, run: LiveRun, config: pytest.Config) -> None:
        self._run, self._before = run, run.balance()
        self._left: list[str] | None = None
        config.stash[LiveRun.KEY] = run

    def pytest_report_header(self) -> list[str]:
        run = self._run
        held = "unknown" if self._before is None else f"${self._before:.2f}"
        return [
            f"live: {run.platform_name}, real money: at most ${run.purse.ceiling:g} (balance {held}). "
            f"All that is rented is called {run.prefix}…",
            f"live: if this process is killed: python -m tests.live {run.platform_name} {run.prefix}",
        ]

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            item.add_marker(pytest.mark.timeout(TEST_SECONDS))

    def pytest_sessionstart(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._run.as_interrupt)
        self._run.watch()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        try:
            return (yield)
        except KeyboardInterrupt:
            self._run.interrupted.set()
            # A signal may arrive where the code has no line; pytest then fails while it reports the interrupt, and
            # what was rented would not be ended. A new exception, raised here, has lines.
            raise KeyboardInterrupt from None

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._left = self._run.close()
        if self._left:
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        run, say = self._run, terminalreporter.write_line
        terminalreporter.section("live")
        after = run.balance()
        moved = "" if after is None or self._before is None else f"; the balance went from ${self._before:.4f} to "
        moved += "" if not moved else f"${after:.4f} (platforms book some minutes late)"
        say(f"spent about ${run.purse.spent():.4f} of ${run.purse.ceiling:g}, by prices and time{moved}")
        if run.purse.over:
            say(f"STOPPED: {run.purse.over}", red=True)
        if self._left is None or self._left:
            say("STILL THERE, AND BILLING:", red=True, bold=True)
            for line in self._left or ["nobody looked"]:
                say(f"  {line}", red=True)
            say(f"Next: python -m tests.live {run.platform_name} {run.prefix}    and look at {run.books.console}")
        else:
            say(f"nothing called {run.prefix}… is left, by {run.platform_name}'s own list")


def new_identity() -> str:
    """`live` and six letters: whose all is that this run rents."""
    return "live" + "".join(secrets.choice(_LETTERS) for _ in range(6))


def begin(config: pytest.Config, platform_name: str, spend: float | None) -> None:
    """Checks that the run may be, and gives it a name. Raises UsageError, before anything is asked of a platform."""
    if platform_name not in all_books():
        raise pytest.UsageError(f"--live {platform_name}: there is {' and '.join(all_books())}")
    if spend is None or not 0 < spend <= 100:
        raise pytest.UsageError(
            f"--live {platform_name} costs money: say how much at most, from 0.01 to 100 USD: --spend 2"
        )
    if getattr(config.option, "numprocesses", None):
        raise pytest.UsageError("--live counts what it spends in one process: without -n")
    if not os.environ.get(all_books()[platform_name].key, "").strip():
        key = all_books()[platform_name].key
        raise pytest.UsageError(f"--live {platform_name} needs a key: export {key}=…")
    identity = new_identity()
    os.environ[IDENTITY_VARIABLE] = identity
    run = LiveRun(platform_name, spend, f"sweepstack-{identity}-")
    config.pluginmanager.register(LivePlugin(run, config), "sweepstack-live")


def busy(*_: object) -> None:
    """A handler of signals that interrupts nothing."""
    with suppress(OSError):  # the terminal may be closed
        print(
            "\nending what this run rented; it stops by itself when that is proved, after minutes at most", flush=True
        )
