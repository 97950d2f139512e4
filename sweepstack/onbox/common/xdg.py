"""Where a user keeps data and cache, as XDG says. Python 3.8 and the standard library."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Mapping


def user_folder(variable: str, default: str, env: Mapping[str, str] = os.environ) -> Path:
    """What the variable names, else `default` below the home folder. A relative value is ignored, as XDG says: it would
    be another folder wherever a command is started."""
    given = env.get(variable, "")
    return Path(given) if os.path.isabs(given) else Path(env.get("HOME") or os.path.expanduser("~")) / default


def data_folder() -> Path:
    """`$XDG_DATA_HOME/sweepstack`, by default below `~/.local/share`: what can't be had again."""
    return user_folder("XDG_DATA_HOME", ".local/share") / "sweepstack"


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/sweepstack`, by default below `~/.cache`: what is in it can be had again."""
    return user_folder("XDG_CACHE_HOME", ".cache") / "sweepstack"
