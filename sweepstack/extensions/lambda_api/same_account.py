"""Which keys of Lambda were seen to be of one account: a note on this machine.

Lambda's API does not say whose a key is. But an instance that one key rented, and that another one sees under the same
id, shows that both reach the same instances. So a key that was exchanged for another one while its box was there is
no dead end: what the new key says of that account's boxes is believed, also that they are gone. The note holds names
of keys (digests), and no key.
"""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

from sweepstack.onbox.common.canonical import canonical_json, write_atomically
from sweepstack.onbox.common.xdg import data_folder

_NAME = re.compile(r"key-[0-9a-f]{12}")


def note(one: str, other: str) -> None:
    """Notes that both keys saw one and the same instance. Never raises: without the note there is only less that a key
    proves."""
    if one == other or not (_NAME.fullmatch(one) and _NAME.fullmatch(other)) or are_same(one, other):
        return
    with contextlib.suppress(OSError):
        path = _path()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, canonical_json({"same": [*_pairs(), sorted((one, other))]}) + b"\n", mode=0o600)


def are_same(one: str, other: str) -> bool:
    """Whether both keys are known to be of one account, directly or through others. A note that does not read knows
    nothing."""
    reached, pairs = {one}, _pairs()
    while more := {name for pair in pairs if reached & set(pair) for name in pair} - reached:
        reached |= more
    return other in reached


def _pairs() -> list[list[str]]:
    try:
        told = json.loads(_path().read_bytes())["same"]
        whole = all(
            isinstance(pair, list) and len(pair) == 2 and all(isinstance(name, str) for name in pair) for pair in told
        )
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return []
    return list(told) if whole else []


def _path() -> Path:
    return data_folder() / "accounts" / "lambda_api.json"
