"""People's decisions about boxes, kept on this computer for all projects and backends.

It is where an abandonment is put on record when there is no evidence, or none that can be written. It is for the person
who asks later who ended what, and why. It proves nothing. Two kinds of lines may be asked for by a check: that of a box
that was given up where the evidence took nothing (`expires`; `teardown.abandonment`, docs/adr/015), and that of an
approval that was taken back. `ended` is no decision: it says when a box ended whose record could not be closed.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from pydantic import AwareDatetime, ConfigDict, Field, ValidationError

from sweepstack.core.records import Record
from sweepstack.onbox.common.canonical import canonical_json, fsync_directory
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.xdg import data_folder

ABANDONED, TAKEN_BACK, ENDED = "abandoned", "taken back", "ended"
REVOKED_ALL = "approve --revoke"
"""The reason of a line by which no approval counts that was given until then, of whatever kind."""


class Decision(Record):
    """One decision of a person about one box or volume. `what` was decided, in a word or two, such as `abandoned`.

    "" stands for what is not known. `found`: what was known to be on it, for people. Keys of a newer version pass.
    `expires`: until when a delete may go by this line, where there is no other record of it; None: never.
    `unread`: the evidence's list of what was revoked could not be read when it was given.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True, populate_by_name=True)

    schema_: int = Field(alias="schema", default=1)
    what: str
    by: str
    at: AwareDatetime
    reason: str = Field(min_length=1)
    platform: str
    native_id: str
    verb: str = "destroy"
    box: str = ""
    account: str = ""
    project: str = ""
    stack: str = ""
    identity: str = ""
    evidence: str = ""
    found: str = ""
    expires: AwareDatetime | None = None
    unread: bool = False

    def line(self) -> bytes:
        """It as one line of JSON, with its newline."""
        return canonical_json(self.model_dump(mode="json", by_alias=True)) + b"\n"


def decisions_file() -> Path:
    """`$XDG_DATA_HOME/sweepstack/decisions.jsonl`, by default below `~/.local/share`."""
    return data_folder() / "decisions.jsonl"


def record_decision(decision: Decision) -> Path:
    """Appends it, on disk when this returns, and gives the file. A line is there as a whole or not at all.

    Safe from several processes at once. Raises SweepstackError where the file can't be written: then nothing was.
    """
    path = decisions_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            size = os.fstat(handle).st_size
            # A power cut may have left half a line: ours begins on a line of its own.
            line = (b"" if size == 0 or os.pread(handle, 1, size - 1) == b"\n" else b"\n") + decision.line()
            try:
                if os.write(handle, line) != len(line):
                    raise OSError(0, "no space for a whole line")
                os.fsync(handle)
            except OSError:
                os.ftruncate(handle, size)
                raise
        finally:
            os.close(handle)
        fsync_directory(path.parent)
    except OSError as error:
        raise SweepstackError(f"the decision could not be recorded in {path}: {error.strerror}") from error
    return path


def decisions(native_id: str = "") -> list[Decision]:
    """All that were recorded on this computer, or those about `native_id`, oldest first. Lines that don't read are left
    out. Raises SweepstackError where the file is there and can't be read."""
    path = decisions_file()
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SweepstackError(f"{path} could not be read: {error.strerror}") from error
    found = []
    for line in lines:
        try:
            decision = Decision.model_validate_json(line)
        except ValidationError:
            continue
        if native_id in ("", decision.native_id):
            found.append(decision)
    return found
