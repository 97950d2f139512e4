"""File locks: an exclusive flock, which the kernel releases when the process that holds it ends.

`LinkLock` holds on NFS, too, where flock may not: generations, each made by link(2).

    7        who took the lock as the seventh: JSON with `worker`, `host`, `boot`, `space`, `pid`, `start`
    7.free   that one gave it back

Who holds it is said by the highest number. It is free when it was given back, or when its owner is proved to have
ended; then the next number is taken. A number is never used twice, so a slow process that believes a lock free can't
take it from a later owner. No time-out ever frees it: a process that was only slow would go on beside the new owner.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PAUSE_SECONDS = 0.02

MARGIN = 64
"""So many generations are kept behind the highest one. A process that slept meanwhile may make an older one anew; it
then sees that a higher one is there."""
FREE = ".free"
SHORTEST, LONGEST = 0.001, 0.05
"""Seconds between two looks, longer and longer."""
PATIENCE = 0.1
"""Who has it for less is not asked about."""
ANEW_SECONDS = 1.0
"""So often a process that waits looks anew."""
_RECORD, _LOOK = ".record-", ".look-"


def take(descriptor: int, seconds: float = 0.0, cancelled: Callable[[], bool] = bool) -> bool:
    """Takes the lock of an open file; tries for `seconds`, with 0 once. False when another process holds it, or once
    `cancelled()`, which is asked between the tries.

    Try for a second where other processes call `is_held`: it holds the lock for a moment.
    """
    ends = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= ends or cancelled():
                return False
        time.sleep(PAUSE_SECONDS)


def is_held(descriptor: int) -> bool:
    """Whether another process holds the lock of an open file. If none does, this takes a shared lock until the file is
    closed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


class LockState:
    """Who has the lock: `number` is 0 before its first owner; `free`: it was given back, or never taken."""

    def __init__(self, number: int, free: bool) -> None:
        self.number, self.free = number, free


def state_of(folder: Path, anew: bool = False) -> LockState:
    """Looks once. Takes no lock. Raises OSError; FileNotFoundError where there is no such lock.

    `anew`: sees what changed a moment ago, too. An NFS client takes its own copy of a folder's names for right as long
    as the folder's times stay the same; two changes within one tick of the server's clock leave the same times. After
    a change of its own it reads them anew: so this makes and removes a file there.
    """
    if anew:
        look = folder / f"{_LOOK}{os.urandom(8).hex()}"
        os.close(os.open(look, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        os.unlink(look)
    numbers, freed = set(), set()
    with os.scandir(folder) as entries:  # to open the folder makes an NFS client ask its server anew
        for entry in entries:
            name = entry.name
            if name.isdigit():
                numbers.add(int(name))
            elif name.endswith(FREE) and name[: -len(FREE)].isdigit():
                freed.add(int(name[: -len(FREE)]))
    highest = max(numbers | freed, default=0)
    return LockState(highest, highest == 0 or highest in freed)


def owner_of(folder: Path, number: int) -> dict[str, Any]:
    """Who took that generation; empty where that can't be read, which is never "ended"."""
    try:
        found = json.loads((folder / str(number)).read_bytes())
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}


class LinkLock:
    """One process's hand on the lock. For one thread at a time.

    `ended`: whether the process of this record is proved to have ended; asked about an owner that does not give the
    lock back; it may block. `number`: the generation that this process has, 0 for none.
    """

    def __init__(self, folder: Path, owner: Mapping[str, Any], ended: Callable[[Mapping[str, Any]], bool]) -> None:
        self._folder, self._ended, self.number = folder, ended, 0
        folder.mkdir(parents=True, exist_ok=True)
        self._record = folder / f"{_RECORD}{os.urandom(8).hex()}"
        with open(self._record, "xb") as handle:
            handle.write(json.dumps(dict(owner), sort_keys=True).encode("ascii") + b"\n")
            handle.flush()
            os.fsync(handle.fileno())
        self._inode = os.stat(self._record).st_ino
        self._tidied = False

    def take(self, seconds: float, cancelled: Callable[[], bool] = bool) -> bool:
        """Takes the lock; tries for `seconds`, with 0 once. False when another process has it, or once `cancelled()`.
        Raises OSError."""
        ends, pause = time.monotonic() + seconds, SHORTEST
        number, since, looked = 0, 0.0, time.monotonic()
        while True:
            anew = time.monotonic() - looked > ANEW_SECONDS
            looked = time.monotonic() if anew else looked
            seen = state_of(self._folder, anew)
            if seen.number != number:
                number, since = seen.number, time.monotonic()
            slow = time.monotonic() - since > PATIENCE
            if seen.free or (slow and self._ended(owner_of(self._folder, number))):
                if self._link(seen.number + 1):
                    return True
                pause = SHORTEST  # another one was faster
            if time.monotonic() >= ends or cancelled():
                return False
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(LONGEST, pause * 1.5)

    def is_mine(self) -> bool:
        """Whether this process has it still: else another took its end for proved. Raises OSError."""
        return self.number > 0 and state_of(self._folder).number == self.number

    def owner(self) -> dict[str, Any]:
        """Who has taken it last; empty where that is not known."""
        try:
            return owner_of(self._folder, state_of(self._folder).number)
        except OSError:
            return {}

    def give_back(self) -> None:
        """Gives it back. Raises OSError; then it stays this process's until its end is proved."""
        number, self.number = self.number, 0
        if number:
            with contextlib.suppress(FileExistsError):  # an answer that was lost, asked again by the NFS client
                os.link(self._record, self._folder / f"{number}{FREE}")
            self._tidy(number)

    def close(self) -> None:
        """Gives it back, and removes what this process needed for it."""
        with contextlib.suppress(OSError):
            self.give_back()
        with contextlib.suppress(OSError):
            os.unlink(self._record)

    def _link(self, number: int) -> bool:
        place = self._folder / str(number)
        try:
            os.link(self._record, place)
        except OSError:  # it may be ours all the same: NFS repeats a request whose answer was lost
            with contextlib.suppress(OSError):
                if os.stat(place).st_ino == self._inode:
                    return self._made(number)
            if os.path.lexists(place):
                return False
            raise
        return self._made(number)

    def _made(self, number: int) -> bool:
        """Whether the number that was made is the highest one. A lower one was tidied away, and counts for nothing."""
        if state_of(self._folder).number == number:
            self.number = number
            return True
        with contextlib.suppress(OSError):
            os.unlink(self._folder / str(number))
        return False

    def _tidy(self, number: int) -> None:
        """Removes old generations: after the first release all, later the one that has just become old."""
        old = {number - MARGIN}
        if not self._tidied:
            self._tidied = True
            with contextlib.suppress(OSError):
                names = [name.partition(".")[0] for name in os.listdir(self._folder)]
                old |= {int(name) for name in names if name.isdigit() and int(name) < number - MARGIN}
        for one in old:
            for name in (str(one), f"{one}{FREE}"):
                with contextlib.suppress(OSError):
                    os.unlink(self._folder / name)
