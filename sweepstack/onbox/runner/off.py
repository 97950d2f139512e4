"""Power-off: a box ends its own bill, so that no laptop has to stay open for that.

Once its queue is drained, if spec.json has `when_drained`: a box gets that when its platform's command is proved to end
the bill and to wipe no tier with files of ours. And once its lease is over (`lease`): by a command, or by a request to
its vendor (`vendor`).
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from sweepstack.onbox.common.locks import is_held, take
from sweepstack.onbox.runner.patrol import boot_time
from sweepstack.onbox.runner.records import LOCK_SECONDS, Journal, say

GRACE_SECONDS = 600.0
"""From the end of the last cell, or the last pull (`keep-on`), to the command, unless spec.json has `off_seconds`."""
AGAIN_SECONDS = (60.0, 120.0, 300.0, 900.0, *[1800.0] * 46)
"""Between tries, unless spec.json has `off_again_seconds`: for a day in all."""
GONE_SECONDS = 60.0
"""A host that accepted the command may run for so long, unless `asked` has `gone_seconds`."""
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
COMMAND_SECONDS = 120.0
ACCEPTED = "it was accepted, and the box still runs"
LOOK_SECONDS = 0.2
KEEP_ON = "keep-on"


class Sign:
    """How long ago a file was last touched, as this process saw it: a change of the box's clock neither ends nor
    prolongs a bill. It begins to count when it is made. For one thread, which asks often."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen, self._at = self._mark(), boot_time()

    def age(self) -> float:
        """In seconds."""
        mark = self._mark()
        if mark != self._seen:
            self._seen, self._at = mark, boot_time()
        return boot_time() - self._at

    def _mark(self) -> tuple[int, int]:
        try:
            status = self._path.stat()
        except OSError:
            return 0, 0
        return status.st_mtime_ns, status.st_ino


def power_off(home: Path, spec: dict[str, Any], journal: Journal, read: int, stopped: Callable[[], bool]) -> bool:
    """Waits, then runs the power-off command; tries again after longer and longer pauses while this box still runs.

    False when the spec names no command, or when it must not run: upon a signal, when the queue has more than the
    `read` bytes that are done, when another runner is here, or another box runs cells on this host. The journal has the
    event before the command runs. It holds no lock while it waits for the next try, so that a new runner can start.
    """
    asked = spec.get("when_drained") or {}
    if not asked or not read:  # a queue that never had a cell is new, not drained
        return False
    seconds = float(spec.get("off_seconds", GRACE_SECONDS))
    say(f"the queue is drained: {asked['native']} in {seconds:.0f} s, unless it is given cells")
    pulled = Sign(home / KEEP_ON)
    while pulled.age() < seconds:
        if stopped() or queued(home) != read:
            say("no: there is something else to do")
            return False
        time.sleep(LOOK_SECONDS)
    delays = [float(one) for one in spec.get("off_again_seconds", AGAIN_SECONDS)]

    def must_not() -> bool:
        return stopped() or queued(home) != read or not journal.is_last_writer()

    for number, delay in enumerate([*delays, 0.0], 1):
        if not issue(home, {"by": "ssh", **asked}, must_not, number, delay, journal, stopped=stopped):
            return False
        tried = time.monotonic()
        while time.monotonic() < tried + delay:
            if stopped() or queued(home) != read:
                say("no: there is something else to do")
                return False
            time.sleep(LOOK_SECONDS)
    return True


def issue(
    home: Path,
    asked: Mapping[str, Any],
    must_not: Callable[[], bool],
    number: int,
    delay: float,
    journal: Journal | None = None,
    why: str = "",
    stopped: Callable[[], bool] = bool,
) -> bool:
    """One try to stop this box: `asked` says how (`lease`). Blocks for minutes. The journal has the event before the
    command runs. If this process still runs afterwards, it failed: a host that powers off ends this process.

    False when nothing was tried: a runner is at work, or `must_not()`, which is asked while none can start. `journal`:
    None opens it. `stopped`: whether this process is being ended, as by a host that powers off. Raises Fatal when the
    journal can't be written, OSError when no file can be opened.
    """
    lock = os.open(home / "runner.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    own: Journal | None = None
    try:
        if not take(lock, LOCK_SECONDS) or must_not():
            say("no: there is something else to do")
            return False
        others = at_work(home)
        if others:
            say(f"no: {', '.join(others)} on this host would end with it")
            return False
        if journal is None:
            journal = own = Journal(home / "journal.jsonl")
        by_key = asked.get("by") == "key"
        command = vendor_words(asked) if by_key else str(asked["command"])
        native = str(asked["native"])
        more: dict[str, Any] = {"why": why} if why else {}
        journal.append("box-off", native=native, command=command, **more)
        reason = _sent(asked, delay) if by_key else _run(asked, delay)
        say(f"{native} ({command}): {reason}")
        if stopped():
            return False
        journal.append("box-off-failed", native=native, reason=reason, tries=number, again=delay, **more)
    finally:
        if own is not None:
            own.close()
        os.close(lock)
    return True


def _sent(asked: Mapping[str, Any], delay: float) -> str:
    """Asks the vendor. Returns why the box still runs, after as long as it may take to stop."""
    from sweepstack.onbox.runner.vendor import stop_at_vendor  # slow to import: see `lease.Watcher`

    reason = stop_at_vendor(asked)
    if reason:
        return reason
    time.sleep(min(float(asked.get("gone_seconds", GONE_SECONDS)), delay))
    return ACCEPTED


def _run(asked: Mapping[str, Any], delay: float) -> str:
    """Runs the command. Blocks for as long as the box may still be powering off. Returns why the box still runs."""
    env = {**os.environ, "PATH": ":".join(filter(None, [asked.get("path"), os.environ.get("PATH"), SBIN]))}
    try:
        return _outcome(asked, delay, env)
    except OSError as error:  # no process or no file can be had just now
        return f"it could not be started: {error}"


def _outcome(asked: Mapping[str, Any], delay: float, env: Mapping[str, str]) -> str:
    with _place_to_say() as said:
        done = subprocess.Popen(
            ["/bin/sh", "-c", str(asked["command"])],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            code = done.wait(COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            return f"it did not end within {COMMAND_SECONDS:.0f} s"
        said.seek(0)
        words = said.read(4096).decode("utf-8", "replace").strip().splitlines()
    if code == 0:
        time.sleep(min(float(asked.get("gone_seconds", GONE_SECONDS)), delay))
        return ACCEPTED
    return f"it ended with {code}" + (f": {words[-1][:200]}" if words else "")


def _place_to_say() -> IO[bytes]:
    """For what a command says; on a full disk that is nowhere, and the command runs all the same."""
    try:
        return tempfile.TemporaryFile()
    except OSError:
        return open(os.devnull, "r+b")


def queued(home: Path) -> int:
    """The length of the queue file, in bytes."""
    try:
        return (home / "queue.jsonl").stat().st_size
    except FileNotFoundError:
        return 0


def at_work(home: Path) -> list[str]:
    """The other boxes of this host whose runner is alive, or may be: whose lock can't be read."""
    box, found = home.parent.parent, []
    for other in sorted(box.parent.glob("*/data/sweep/runner.lock")):
        if other.parents[2] == box:
            continue
        try:
            lock = os.open(other, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        except OSError:
            found.append(other.parents[2].name)
            continue
        try:
            if is_held(lock):
                found.append(other.parents[2].name)
        finally:
            os.close(lock)
    return found


def vendor_words(asked: Mapping[str, Any]) -> str:
    """The requests of `asked`, for people: without bodies."""
    return ", else ".join(f"{request.get('method')} {request.get('url')}" for request in asked.get("requests") or ())
