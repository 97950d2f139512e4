"""Which version a failed cell runs at its next try, and which folder of checkpoints a version has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sweepstack.onbox.common.canonical import digest_of, hex_of


def takes_new(final: bool, saved: bool | None, across: bool = False) -> bool:
    """Whether its next try takes what was asked for since. `final`: it is not tried again by itself; `saved`: whether
    it had a checkpoint when it failed, None where an older runner did not say. `across`: what was asked for since goes
    on in the same folder of checkpoints (`job.resume: across-code`).

    A checkpoint belongs to the version that wrote it: with another one the cell would begin at 0, which a person
    has to ask for.
    """
    return across or (final if saved is None else not saved)


def work_of(line: Mapping[str, Any], salt: int) -> str:
    """The digest of what computes in a line of the queue, for a run with this salt."""
    # Empty fields are not part of the digest, so that the checkpoints of older queues are found.
    more = {key: value for key, value in (("setup", line.get("setup", "")), ("salt", salt)) if value}
    env = {str(key): str(value) for key, value in line.get("env", {}).items()}
    return digest_of({"code": line["code"], "run": line["run"], "env": env, **more})


def checkpoint_name(config: str, work: str) -> str:
    """The name of the folder with a cell's checkpoints: they go on for this config and this work alone."""
    return hex_of(digest_of([config, work]))[:16]
