"""A computer that is the same everywhere: its clock stands still, and its name, its user and its paths are those of the
golden sweeps. To be called before anything of sweepstack is imported, in a process that does nothing else."""

from __future__ import annotations

import datetime
import os
import socket
import sys
import tempfile
import time
from pathlib import Path
from shlex import quote
from typing import Any

import pydantic  # noqa: F401 - as yaml
import pydantic_core.core_schema
import yaml  # type: ignore[import-untyped]  # noqa: F401 - knows dates by their real class, so it is imported before

from tests.in_memory import will_do

HOST, USER = "vm", "root"
"""Where the golden sweeps were made: their evidence and their boxes belong to this computer."""
MEMORY, DISK = ("/dev/shm", "go-"), ("/tmp", "golden-")
"""The folder, and how a name in it begins, before eight letters. The golden sweeps were made in the second one. A sweep
is put back into a folder with a path as long: so lines are wrapped at the same places. In memory if there is room: on a
disk, half of the time goes into files."""
COLUMNS = "80"
NEEDED = ("LD_LIBRARY_PATH",)
"""What a Python may need to start, and no command shows."""
_DATETIME, _DATE = datetime.datetime, datetime.date
_now = _DATETIME(2026, 1, 1, tzinfo=datetime.UTC)


def set_clock(now: datetime.datetime) -> None:
    """What every clock of this process shows from now on, other than that for waiting (`time.monotonic`)."""
    global _now
    _now = now


class _Same(type):
    """Instances of the real class count as those of the one that stands still, and nothing else is made."""

    def __instancecheck__(cls, one: object) -> bool:
        return isinstance(one, cls.__mro__[1])


class _StillDatetime(_DATETIME, metaclass=_Same):
    def __new__(cls, *words: Any, **named: Any) -> Any:
        return _DATETIME(*words, **named)

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        return _now.astimezone(tz) if tz is not None else _now.replace(tzinfo=None)

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> Any:
        return pydantic_core.core_schema.datetime_schema()


class _StillDate(_DATE, metaclass=_Same):
    def __new__(cls, *words: Any, **named: Any) -> Any:
        return _DATE(*words, **named)

    @classmethod
    def today(cls) -> Any:
        return _now.date()

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: Any) -> Any:
        return pydantic_core.core_schema.date_schema()


def stand_still() -> Path:
    """The folder, empty, for the sweep and all that commands write. Everything of this machine that a command could
    show is replaced; what it finds on PATH is what is put into `bin` there."""
    place, prefix = MEMORY if will_do(Path(MEMORY[0]), 2**28) else DISK
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    datetime.datetime, datetime.date = _StillDatetime, _StillDate  # type: ignore[misc]
    time.time = lambda: _now.timestamp()
    socket.gethostname = lambda: HOST
    kept = {name: os.environ[name] for name in NEEDED if name in os.environ}
    os.environ.clear()
    os.environ.update(
        kept,
        HOME=str(folder / "home"),
        XDG_DATA_HOME=str(folder / "sweep" / "data"),
        XDG_CACHE_HOME=str(folder / "cache"),
        XDG_CONFIG_HOME=str(folder / "config"),
        PULUMI_HOME=str(folder / "pulumi-home"),
        PATH=str(folder / "bin"),
        LANG="C.UTF-8",
        TZ="UTC",
        USER=USER,
        LOGNAME=USER,
        NO_COLOR="1",
        COLUMNS=COLUMNS,
        PYTHONDONTWRITEBYTECODE="1",
        PYDANTIC_DISABLE_PLUGINS="__all__",
    )
    time.tzset()
    for name in ("bin", "home"):
        (folder / name).mkdir()
    # The engine is looked for beside the Python that runs.
    python = folder / "bin" / "python"
    path = quote(os.pathsep.join(filter(None, sys.path)))
    python.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    sys.executable = str(python)
    return folder
