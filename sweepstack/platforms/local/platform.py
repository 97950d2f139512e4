"""Boxes on this machine: folders and processes of the user, kept by `sweepstack.onbox.host`."""

from __future__ import annotations

from sweepstack.onbox.host.box_folders import default_root
from sweepstack.onbox.host.folder_platform import LocalPlatform


def connect() -> LocalPlatform:
    """The local platform of this user, at `$XDG_DATA_HOME/sweepstack/local`."""
    return LocalPlatform(default_root())
