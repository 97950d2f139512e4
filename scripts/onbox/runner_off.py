"""A box that ends its own bill once its queue is drained, so that nobody's laptop has to be open for it.

Part of the runner (see runner.py): Python 3.8+, standard library only. Only spec.json's `when_drained` asks for it,
which a box is given where a command on it is proved to end its bill and to wipe no tier that anything of ours lies on.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from pathlib import Path
from typing import Any, Callable  # noqa: UP035

from runner_records import Journal, say, take

GRACE_SECONDS = 600.0
"""From the last cell, or the last sign of somebody who pulls (`keep-on`), to the command, unless spec.json says
`off_seconds`."""
COMMAND_SECONDS = 120.0
LOOK_SECONDS = 0.2


def power_off(home: Path, spec: dict[str, Any], journal: Journal, read: int, stopped: Callable[[], bool]) -> bool:
    """Waits a while, and issues the command. False where there is none, or where something speaks against it: a signal,
    more in the queue than the `read` bytes that are drained, another runner here, another box at work on this host.

    The event is in the journal before the command runs, and no runner can start from then on.
    """
    asked = spec.get("when_drained") or {}
    if not asked or not read:  # a queue that never had a cell is not done, but new
        return False
    seconds = float(spec.get("off_seconds", GRACE_SECONDS))
    say(f"the queue is drained: {asked['native']} in {seconds:.0f} s, unless it is given cells")
    begun = time.time()
    while time.time() < last_sign(home, begun) + seconds:
        if stopped() or queued(home) != read:
            say("no: there is something else to do")
            return False
        time.sleep(LOOK_SECONDS)
    lock = os.open(home / "runner.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    if not take(lock) or queued(home) != read or stopped():
        say("no: there is something else to do")
        return False
    others = at_work(home)
    if others:
        say(f"no: {', '.join(others)} on this host would end with it")
        return False
    journal.append("box-off", native=str(asked["native"]), command=str(asked["command"]))
    done = subprocess.Popen(["/bin/sh", "-c", str(asked["command"])], stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        say(f"{asked['native']} ({asked['command']}) ended with {done.wait(COMMAND_SECONDS)}")
    except subprocess.TimeoutExpired:
        say(f"{asked['native']} ({asked['command']}) did not end within {COMMAND_SECONDS:.0f} s")
    return True


def queued(home: Path) -> int:
    """Bytes of the queue."""
    try:
        return (home / "queue.jsonl").stat().st_size
    except FileNotFoundError:
        return 0


def last_sign(home: Path, begun: float) -> float:
    """When somebody was last seen at work here, by this box's clock; `begun` where nobody was since, and for a time
    that lies ahead: a clock that was set back keeps nobody paying."""
    try:
        seen = (home / "keep-on").stat().st_mtime
    except OSError:
        return begun
    return seen if begun < seen <= time.time() + LOOK_SECONDS else begun


def at_work(home: Path) -> list[str]:
    """Other boxes beside this one whose runner is alive."""
    box, found = home.parent.parent, []
    for other in sorted(box.parent.glob("*/data/sweep/runner.lock")):
        if other.parents[2] == box:
            continue
        try:
            lock = os.open(other, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            found.append(other.parents[2].name)
        finally:
            os.close(lock)
    return found
