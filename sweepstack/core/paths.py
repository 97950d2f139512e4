"""Where this user's cache and data lie. Imports nothing of ours: shell completion asks for it."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/sweepstack`: what is in it can be had again. A relative value is ignored, as XDG says."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(given) if os.path.isabs(given) else Path.home() / ".cache") / "sweepstack"


def data_folder() -> Path:
    """`$XDG_DATA_HOME/sweepstack`: what can't be had again. A relative value is ignored, as XDG says."""
    given = os.environ.get("XDG_DATA_HOME", "")
    return (Path(given) if os.path.isabs(given) else Path.home() / ".local" / "share") / "sweepstack"
