"""The other nodes of a box whose cells run over several: they are freed before the box stops or ends."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import datetime, timezone
from pathlib import Path

from sweepstack.onbox.common.box_layout import PEERS
from sweepstack.onbox.common.canonical import write_json_atomically
from sweepstack.onbox.common.errors import PlatformError, RequestRefused

NODE_OF = "node-of.json"
"""In the folder that a box of another host has here, since this machine is one of its nodes."""
FORGOTTEN = "peers-gone.jsonl"
"""Below the root of the host's boxes: what people said of nodes that are gone for good. It outlives the boxes."""
FREE_SECONDS = 150.0
LAST_WORDS = 1500


def is_peers(folder: Path) -> bool:
    """Whether this is no box of this machine, but what another host's box has here."""
    return os.path.lexists(folder / NODE_OF)


def free(box: Path, native_id: str) -> None:
    """Ends what the box runs on its peers, and removes what was copied there, as far as the box's record names any.
    Then the record is removed. Blocks for FREE_SECONDS at most. Idempotent. Raises PlatformError, with each peer that
    is not proved free: then the record stays. Asking again changes nothing until the peer is back."""
    record = box / PEERS
    known = _read(record, native_id)
    if known is None:
        return
    why = _try(known)
    if not why:
        record.unlink()
        return
    raise PlatformError(
        f"other nodes of {native_id} are not proved free; the box stays until they are:\n{why}\nBring them back, and "
        f"run the command again. Where such a machine is gone for good: sweepctl confirm peer BOX NAME --saw …"
    )


def forget(root: Path, native_id: str, peer: str, words: str) -> None:
    """See `HasPeers.forget_peer`. `root`: of the host's boxes, where `words` are kept."""
    record = root / "boxes" / native_id / PEERS
    known = _read(record, native_id)
    if known is None or peer not in known["peers"]:
        named = ", ".join(known["peers"]) if known is not None else "none"
        raise RequestRefused(f"{peer} is no other node of {native_id} (its record names: {named})")
    why = _try({**known, "argv": [*known["argv"], peer]})
    if not why:
        raise RequestRefused(f"{peer} answers, so it is not gone: the end of the box frees it")
    line = {"at": datetime.now(timezone.utc).isoformat(), "box": native_id, "peer": peer, "said": words, "tried": why}
    with open(root / FORGOTTEN, "a", encoding="utf-8") as log:
        log.write(json.dumps(line) + "\n")
        log.flush()
        os.fsync(log.fileno())
    write_json_atomically(record, {**known, "peers": [one for one in known["peers"] if one != peer]})


def _read(record: Path, native_id: str) -> dict[str, list[str]] | None:
    try:
        known = json.loads(record.read_bytes())
        return {key: [str(word) for word in known[key]] for key in ("peers", "argv")}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PlatformError(
            f"{record} does not read ({error}), so the other nodes of {native_id} are not known. Look whether anything "
            f"of it runs on them, then remove that file"
        ) from error


def _try(known: dict[str, list[str]]) -> str:
    """Frees the peers. Returns why one is not proved free; "" when all are."""
    try:
        done = subprocess.run(
            known["argv"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=FREE_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{', '.join(known['peers'])}: {error}"
    said = done.stderr.decode("utf-8", "replace").strip()[-LAST_WORDS:]
    return "" if done.returncode == 0 else said or f"exit code {done.returncode}"
