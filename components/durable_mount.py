"""DurableMount: a path on a box whose content outlives the box, and the volume that makes it so.

Not a resource of its own: it is an input of the box, so it costs the engine nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pulumi

from components.resources import Volume


@dataclass(frozen=True)
class DurableMount:
    """`path`: box-relative, `mnt/<name>`; `volume`: what shows there, on every box that mounts it."""

    path: str
    volume: Volume


def mounts_input(mounts: Iterable[DurableMount]) -> dict[str, pulumi.Output[str]]:
    """As the box's input: path → native id of the volume, in path order."""
    return {mount.path: mount.volume.native_id for mount in sorted(mounts, key=lambda mount: mount.path)}
