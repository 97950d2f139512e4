"""The other nodes of a box whose cells run over several: they are freed before the box stops or ends."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from sweepstack.onbox.common.box_layout import PEERS
from sweepstack.onbox.common.errors import PlatformError

NODE_OF = "node-of.json"
"""In the folder that a box of another host has here, since this machine is one of its nodes."""
FREE_SECONDS = 150.0
LAST_WORDS = 1500


def is_peers(folder: Path) -> bool:
    """Whether this is no box of this machine, but what another host's box has here."""
    return os.path.lexists(folder / NODE_OF)


def free(box: Path, native_id: str) -> None:
    """Ends what the box runs on its peers, and removes what was copied there, as far as the box's record names any.
    Then the record is removed. Blocks for FREE_SECONDS at most. Idempotent. Raises PlatformError, with each
    peer that is not proved free: then the record stays. Asking again changes nothing until the peer is back."""
    record = box / PEERS
    try:
        known = json.loads(record.read_bytes())
        names, argv = [str(name) for name in known["peers"]], [str(word) for word in known["argv"]]
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PlatformError(
            f"{record} does not read ({error}), so the other nodes of {native_id} are not known. Look whether anything "
            f"of it runs on them, then remove that file"
        ) from error
    why = ""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=FREE_SECONDS
        )
        if done.returncode == 0:
            record.unlink()
            return
        why = done.stderr.decode("utf-8", "replace").strip()[-LAST_WORDS:]
    except (OSError, subprocess.SubprocessError) as error:
        why = f"{', '.join(names)}: {error}"
    raise PlatformError(
        f"other nodes of {native_id} are not proved free; the box stays until they are:\n{why}\nBring them back, and "
        f"run the command again. If such a machine is gone for good, or you looked there yourself (`ps`, {box}), take "
        f"its name out of {record} on this host, or remove that file when it was the last one"
    )
