"""Boxes on this machine: the user's folders and processes, managed by `sweepstack.onbox.host`."""

from __future__ import annotations

from sweepstack.onbox.host.box_folders import default_root
from sweepstack.onbox.host.folder_platform import LocalPlatform


def connect() -> LocalPlatform:
    """The local platform of this user, in `$XDG_DATA_HOME/sweepstack/local`. Creates nothing."""
    return LocalPlatform(default_root())
