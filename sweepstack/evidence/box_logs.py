"""Copies a box's own logs before it ends: their last part, with the values of `job.secrets` masked.

They are those of its runner or workers, of the patrol and of set-ups. They lie in `box-logs/<box>-g<generation>/`, for
a person who asks why a box that is gone did nothing. They prove nothing, and no end waits for them: what can't be
copied is named, and that is all. Of a log that was begun anew (rotated, truncated) the copy before is kept: see `kept`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from sweepstack.channel import prefetch
from sweepstack.core.journal import Journal
from sweepstack.core.parallel import in_parallel
from sweepstack.core.records import Record
from sweepstack.core.timestamps import Moment
from sweepstack.evidence import changing_copies
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import sha256_hex
from sweepstack.onbox.common.errors import EvidenceDamaged, EvidenceError, PlatformError, SweepstackError, Unreachable

if TYPE_CHECKING:
    from sweepstack.onbox.agent.channel import Channel

BOX_LOGS = "box-logs"
MOST_BYTES = 256 << 10
"""Of one log: its end, where it is longer."""
SETUPS = 8
"""Logs of set-up steps that are copied, those that changed last."""
WORKERS = 48
"""Likewise of the workers of a box that several share: runner, patrol, and what their jobs printed."""
LAST_SECONDS = 20.0
"""What the last copy may take of the time in which a box is ended."""
_FILES, _SECONDS = 10_000, 5.0
_FOLDERS = (box_layout.SETUP_LOGS, box_layout.WORKERS, box_layout.JOB_LOGS)
_ALWAYS = (box_layout.RUNNER_LOG, box_layout.PATROL)
_NAME = re.compile(rf"{box_layout.SETUP_LOGS}/[A-Za-z0-9][A-Za-z0-9._-]{{0,99}}\.log")
_CUT = re.compile(rb"\[sweepstack\] the first (\d+) bytes of this log are not in this copy\n")
_WORKER = re.compile(
    rf"{box_layout.WORKERS}/{box_layout.CELL_NAME}/(runner\.log|patrol\.jsonl)|{box_layout.JOB_LOGS}/\d+_\d+\.log"
)

SHORTEST_SECRET = 6
"""Characters. The runner masks no shorter ones in a log, either."""


class BoxLog(Record):
    """A log that was copied. `path`: on the box; `start`: how many bytes of it come before the copy; `at`: when."""

    path: str
    at: Moment
    start: int = Field(default=0, ge=0)
    sha256: str = ""


class BoxLogs(Record):
    """What was copied of one generation of a box, the set-up that wrote last at the end. `head`: its journal's, where
    that was read then; `problems`: what could not be copied the last time."""

    schema_: Literal[1] = Field(alias="schema", default=1)
    box: str
    generation: int
    head: str = ""
    logs: tuple[BoxLog, ...] = ()
    problems: tuple[str, ...] = ()

    model_config = Record.model_config | {"populate_by_name": True}


def copied_logs(store: EvidenceStore, box: str, generation: int) -> BoxLogs:
    """What was copied before. A record that does not read is made anew. Raises EvidenceError where nothing is known."""
    try:
        found = store.record(_record(box, generation), BoxLogs)
    except EvidenceDamaged:
        found = None
    return found or BoxLogs(box=box, generation=generation)


def due(store: EvidenceStore, box: str, generation: int, journal: Journal) -> bool:
    """Whether the journal of a box whose runner has ended says more than when its logs were copied."""
    return bool(journal.entries) and copied_logs(store, box, generation).head != journal.head


def prefetch_logs(channel: Channel, before: BoxLogs) -> None:
    """Asks for the box's journal and, in the same round trip, for what `copy` wants, where the way to the box can do
    that. Raises Unreachable."""
    if isinstance(channel, prefetch.Prefetches):
        walk = prefetch.walk(_FOLDERS, limit=_FILES, seconds=_SECONDS)
        tails = prefetch.tails(_paths(before), MOST_BYTES)
        looked = prefetch.touch(box_layout.LOOKED)  # a pull renews the box's lease
        channel.prefetch([prefetch.read(box_layout.JOURNAL), prefetch.read(box_layout.SECRETS), walk, tails, looked])


def copy(channel: Channel, before: BoxLogs, store: EvidenceStore, head: str) -> BoxLogs:
    """Copies the ends of the logs that are there; returns what is in the evidence now. Idempotent.

    `before`: of `known`. What can't be read on a box that answers, or written, is in `problems`; an earlier copy of it
    stays. Raises Unreachable.
    """
    logs = {log.path: log for log in before.logs}
    problems: list[str] = []
    now = datetime.now(UTC).replace(microsecond=0)
    try:
        hidden = hidden_on(channel)
        found, order, problems = _read(channel, before)
        for path in order:
            size, data = found[path]
            start = size - len(data)
            text = _notice(start) + masked(data, hidden, cut=start > 0)
            known = logs.pop(path, None)  # those that were read now come last
            if known is None or known.sha256 != sha256_hex(text):
                text = changing_copies.put(store.objects, _key(before, path), text, _goes_on, partial(_clean, hidden))
            logs[path] = BoxLog(path=path, at=now, start=_part(text)[0], sha256=sha256_hex(text))
    except Unreachable:
        raise
    except (EvidenceError, PlatformError, OSError) as error:
        problems.append(f"its logs were not copied: {error}")
    after = before.model_copy(update={"head": head, "logs": tuple(logs.values()), "problems": tuple(problems)})
    try:
        store.write_record(_record(before.box, before.generation), after)
    except EvidenceError as error:
        return after.model_copy(
            update={"problems": (*problems, f"what was copied of its logs is not on record: {error}")}
        )
    return after


def copy_last(
    channel: Callable[[], Channel], evidence: Evidence, box: str, generation: int, head: str = ""
) -> tuple[str, ...]:
    """The last copy of a box that ends or stops now; what is in the way, for people. Never raises, and ends in time."""

    def work() -> tuple[str, ...]:
        try:
            store = evidence.store
            return copy(channel(), copied_logs(store, box, generation), store, head).problems
        except (SweepstackError, OSError) as error:
            return (f"its logs were not copied: {error}",)

    late = (f"its logs were not copied within {LAST_SECONDS:.0f} s",)
    return in_parallel({box: work}, LAST_SECONDS).get(box, late)


def read_copied_log(store: EvidenceStore, of_box: BoxLogs, log: BoxLog) -> bytes | None:
    """What a copy has of the log, from `log.start` on; None where it is not there. Raises EvidenceError."""
    held = store.objects.read(_key(of_box, log.path))
    return None if held is None else held.data[len(_notice(log.start)) :]


def _read(channel: Channel, before: BoxLogs) -> tuple[dict[str, tuple[int, bytes]], list[str], list[str]]:
    """Size and end of each log, in which order they are kept, and what can't be read. Raises PlatformError."""
    found = channel.tails(_paths(before), MOST_BYTES)
    listing = channel.walk(_FOLDERS, limit=_FILES, seconds=_SECONDS)
    order = list(_ALWAYS)
    for name, most in ((_WORKER, WORKERS), (_NAME, SETUPS)):
        order += [
            path for _, path in sorted((at, path) for path, _, at in listing.files if name.fullmatch(path))[-most:]
        ]
    if new := [path for path in order[len(_ALWAYS) :] if path not in found]:
        found |= channel.tails(new, MOST_BYTES)
    asked = [path for path in order if path != box_layout.PATROL]  # which is not there yet on a box that just began
    problems = [why for path in asked if path not in found and (why := _why(channel, path))]
    if listing.problem:
        problems.append(f"its logs: {listing.problem}")
    return found, [path for path in order if path in found], problems


def _why(channel: Channel, path: str) -> str:
    """Why a log can't be read; empty where it is not there. Raises Unreachable."""
    try:
        channel.read(path, limit=1)
    except FileNotFoundError:
        pass
    except Unreachable:
        raise
    except (PlatformError, OSError) as error:
        return f"{path} was not copied: {(error.strerror if isinstance(error, OSError) else None) or error}"
    return ""


def _paths(before: BoxLogs) -> list[str]:
    known = [log.path for log in before.logs if log.path not in _ALWAYS]
    of_workers = [path for path in known if _WORKER.fullmatch(path)][:-WORKERS]  # workers come and go
    return [*_ALWAYS, *(path for path in known if path not in of_workers)]


def _notice(start: int) -> bytes:
    return b"[sweepstack] the first %d bytes of this log are not in this copy\n" % start if start else b""


def _part(text: bytes) -> tuple[int, bytes]:
    """Where a copy begins in its log, and what it has of it."""
    found = _CUT.match(text)
    return (int(found[1]), text[found.end() :]) if found else (0, text)


def _clean(hidden: Sequence[bytes], text: bytes) -> bytes:
    """A copy from before a secret was known has its value in it."""
    start, data = _part(text)
    return _notice(start) + masked(data, hidden, cut=start > 0)


def _goes_on(before: bytes, now: bytes) -> bool:
    return changing_copies.log_goes_on(_part(before), _part(now))


def _key(of_box: BoxLogs, path: str) -> str:
    name = path.removeprefix(f"{box_layout.HOME}/").replace("/", "-")
    return f"{BOX_LOGS}/{of_box.box}-g{of_box.generation}/{name}"


def _record(box: str, generation: int) -> str:
    return f"{BOX_LOGS}/{box}-g{generation}.json"


def hidden_on(channel: Channel) -> list[bytes]:
    """The values of `job.secrets` on the box, the longest first: they stay in memory.

    Raises PlatformError, OSError where they can't be read: then no log may be copied.
    """
    try:
        found = json.loads(channel.read(box_layout.SECRETS))
    except FileNotFoundError:
        found = {}
    except ValueError as error:
        why = f"{box_layout.SECRETS} on the box can't be read, so no log is copied: {error}"
        raise PlatformError(why) from error
    values = found.values() if isinstance(found, dict) else ()
    words = {str(value) for value in values if len(str(value)) >= SHORTEST_SECRET}
    return sorted((word.encode() for word in words), key=len, reverse=True)


def masked(data: bytes, hidden: Sequence[bytes], *, cut: bool) -> bytes:
    """`data` with each value as so many asterisks. `cut`: its beginning was cut off, perhaps within a value: what is
    left of that one is masked, too."""
    rest = max((most for value in hidden for most in _rests(value, data)), default=0) if cut else 0
    data = b"*" * rest + data[rest:]
    for value in hidden:
        data = data.replace(value, b"*" * len(value))
    return data


def _rests(value: bytes, data: bytes) -> Iterator[int]:
    """How many bytes `data` begins with that `value` ends with, and not the whole of it."""
    for count in range(1, min(len(value), len(data) + 1)):
        if data[count - 1] == value[-1] and value.endswith(data[:count]):
            yield count
