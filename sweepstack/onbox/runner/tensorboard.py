"""Links the outputs of cells into the one folder that a platform's own TensorBoard reads."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def show_in_tensorboard(spec: Mapping[str, Any], cell: str, out: Path) -> None:
    """Links the folder `out` of a cell's newest attempt there, under the sweep's and the cell's names. Never raises: it
    is for people. What another program has put there under this name stays."""
    folder = str((spec.get("network") or {}).get("tensorboard") or "")
    if not folder:
        return
    link = Path(os.path.expanduser(folder)) / f"{spec['identity']}-{cell}"
    staged = link.with_name(f".{link.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        if os.path.lexists(link) and not link.is_symlink():
            return
        link.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            staged.unlink()
        staged.symlink_to(out)
        os.replace(staged, link)
