"""What stands for the system in a simulated month (`lease_world`): its clock, its files and its processes."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.lease_world import World


class Clock:
    """Stands for the module `time`, in the modules that are told so. `sleep`: how time passes there."""

    CLOCK_MONOTONIC = time.CLOCK_MONOTONIC
    strftime, gmtime = staticmethod(time.strftime), staticmethod(time.gmtime)

    def __init__(self, world: World, sleep: Callable[[float], None]) -> None:
        self._world, self.sleep = world, sleep

    def monotonic(self) -> float:
        return self._world.boot_clock

    def clock_gettime(self, _: int) -> float:
        return self._world.boot_clock

    def time(self) -> float:
        return self._world.wall

    def time_ns(self) -> int:
        return int(self._world.wall * 1e9)


class Files:
    """Stands for the module `os`, where a disk can be full, or no file can be opened."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, file: int, data: bytes) -> int:
        if "full" in self._world.faults:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.write(file, data)

    def pwrite(self, file: int, data: bytes, at: int) -> int:
        if "full" in self._world.faults and os.fstat(file).st_size < at + len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.pwrite(file, data, at)

    def open(self, *words: Any, **more: Any) -> int:
        if "starved" in self._world.faults:
            raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))
        return os.open(*words, **more)


class Shell:
    """Stands for the module `subprocess`: the command is the platform's, or no process can be started."""

    DEVNULL, TimeoutExpired = subprocess.DEVNULL, subprocess.TimeoutExpired

    def __init__(self, world: World) -> None:
        self._world = world

    def Popen(self, _: Sequence[str], *, stdout: IO[bytes], **__: Any) -> _Running:
        if "starved" in self._world.faults:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return _Running(self._world, stdout)


class _Running:
    def __init__(self, world: World, said: IO[bytes]) -> None:
        self._world, self._said = world, said

    def wait(self, seconds: float) -> int:
        return self._world.platform.run(self._said, self._world.sleep, seconds)
