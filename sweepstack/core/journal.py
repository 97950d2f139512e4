"""The journal of a box: reading it, proving its chain, and what it says of each cell.

One canonical JSON line per event; each names the hash of the line before it (`prev`) and its own (`hash`, over the
entry without `hash`). The hash of the last line is the journal's head: two equal heads are two equal histories. A
last line without a newline is what a power cut leaves behind; it is not part of the journal.

It also says how long the cells of a box took, and whether a box that is still there should have ended its own bill. A
copied journal counts for a stopped box if our own stop ended its runner: a box that was stopped by its platform or at a
console may have claimed cells after its journal was copied last.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, Literal

from pydantic import AwareDatetime

from sweepstack.core.records import Digest, Record, later
from sweepstack.onbox.common.canonical import GENESIS, canonical_json, sha256_hex
from sweepstack.onbox.common.dataclass import dataclass, field, replace
from sweepstack.onbox.common.errors import JournalDamaged
from sweepstack.onbox.common.files_hold import FilesHold
from sweepstack.onbox.common.units import spell_rate

ProgressState = Literal["pending", "running", "failed", "sealed", "dropped"]
SetupState = Literal["started", "finished", "failed"]
Entry = Mapping[str, Any]
FAILURE_CLASSES = ("transient", "disk", "oom", "bug", "files", "nan", "timeout", "hung", "stopped", "unknown")

GOING = timedelta(minutes=5)
"""So long a host that took the command may go on answering."""
BEGINS = "should have stopped itself"
OFF, FAILED = "box-off", "box-off-failed"
OVER = "lease-over"
"""The lease is over, and the box must not, or can't, stop itself."""
STAYS = "its lease is over, and it stays"


@dataclass(frozen=True)
class CellProgress:
    """What the journal last said of a cell.

    `running` means started and not ended: whether its runner is alive is not the journal's to say. `manifest` is the
    digest that the last seal recorded, and None as soon as the cell is started again. `final`: it will not be retried.
    `worker`: who started it last, on a box that several workers share.
    `retry`: which of a person's retries it was last started for, 0 for none. `failure_class`: see FAILURE_CLASSES; None
    while it has not failed, and for a failure that an older runner wrote down. `checkpoint`: the file below the
    cell's folder of checkpoints that its last failure may be due to; "" for none. `saved`: whether it had a checkpoint
    when it failed, None where that is not known; `saved_step`: of which step, where its name says that.
    `work`: what computes in its version, as a digest, "" where an older runner did not say; `folder`: the name of its
    folder of checkpoints where that is not its version's own; `checkpoints_of`: the code whose checkpoints it went on
    from.
    """

    name: str
    state: ProgressState = "pending"
    attempts: int = 0
    config_digest: str | None = None
    code: str | None = None
    manifest: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    reason: str | None = None
    final: bool = False
    retry: int = 0
    failure_class: str | None = None
    worker: str = ""
    checkpoint: str = ""
    saved: bool | None = None
    saved_step: int | None = None
    work: str = ""
    folder: str = ""
    checkpoints_of: tuple[str, ...] = ()


def started(progress: CellProgress | None) -> bool:
    """Whether the journal knows of an attempt that was not taken out."""
    return progress is not None and progress.state not in ("pending", "dropped")


@dataclass(frozen=True)
class Blocked:
    """Why the queue starts nothing now: `why` is `disk` or `inodes`, `free` and `needed` are bytes or inodes."""

    why: str
    free: int
    needed: int
    hint: str
    since: datetime
    path: str = ""


@dataclass(frozen=True)
class SetupProgress:
    """What the journal last said of one setup (by the digest of its text and code). `reason`: why it failed."""

    digest: str
    state: SetupState
    code: str | None = None
    seconds: float | None = None
    reason: str | None = None


@dataclass(frozen=True)
class WorkerProgress:
    """One worker of a box that several share. `ended`: what its end is known by; "" while none is known, whether it is
    alive or not. `ended_at`: when that was written, which may be later than it ended."""

    name: str
    began_at: datetime
    ended: str = ""
    blocked: Blocked | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True)
class Journal:
    """A journal whose chain was proved. `head` is GENESIS (64 zeros) while there is no entry.

    `blocked`: the last queue-blocked that no queue-unblocked followed. `setups`: digest → how it went last, the one
    that was heard of last at the end. A failed one counts as finished once a cell of its version has started.
    """

    head: str = GENESIS
    entries: tuple[Entry, ...] = ()
    cells: Mapping[str, CellProgress] = field(default_factory=dict)
    blocked: Blocked | None = None
    setups: dict[str, SetupProgress] = field(default_factory=dict)
    hold: tuple[str, ...] = ()
    """Cells that left the wrong files, for which those wait that have not begun: `onbox.common.files_hold`."""
    workers: dict[str, WorkerProgress] = field(default_factory=dict)
    """Those that started, by name; empty where one runner has the box."""
    data: bytes = field(default=b"", repr=False, compare=False)
    """What it was read of, without a torn last line; empty where it was not read."""

    @property
    def last_at(self) -> datetime | None:
        """When its last entry was written, by the box's clock; None while there is none."""
        return _time(self.entries[-1]) if self.entries else None

    def waits(self, cell: str) -> bool:
        """Whether a cell has not begun, and is held back since another one left the wrong files (`hold`)."""
        return bool(self.hold) and not started(self.cells.get(cell))

    def after(self, head: str) -> tuple[Entry, ...] | None:
        """The entries that follow `head`; None when this journal never had that head."""
        if head == GENESIS:
            return self.entries
        places = (index for index, entry in enumerate(self.entries, start=1) if entry["hash"] == head)
        found = next(places, None)
        return None if found is None else self.entries[found:]

    def continues(self, earlier: Journal) -> bool:
        """Is `earlier` how this journal began? False when it was cut, rolled back or written anew."""
        count = len(earlier.entries)
        return count == 0 or (len(self.entries) >= count and self.entries[count - 1]["hash"] == earlier.head)


class _Proved:
    """The journals that were proved last, by their very bytes. Bounded in number and in bytes: a look that goes on for
    hours reads a new one of each box every few seconds. The newest is always kept."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes, self._bytes = most, most_bytes, 0
        self._held: OrderedDict[bytes, Journal] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, data: bytes) -> Journal | None:
        with self._lock:
            found = self._held.get(data)
            if found is not None:
                self._held.move_to_end(data)
            return found

    def keep(self, data: bytes, journal: Journal) -> None:
        with self._lock:
            if data not in self._held:
                self._bytes += len(data)
            self._held[data] = journal
            while len(self._held) > 1 and (len(self._held) > self._most or self._bytes > self._most_bytes):
                self._bytes -= len(self._held.popitem(last=False)[0])


_proved = _Proved(64, 32 << 20)
_TOGETHER = 500
"""Lines that are compared with their canonical form at once."""


def parse_journal(data: bytes) -> Journal:
    """The journal in `data`. Raises JournalDamaged, with the line's number, for whatever breaks the chain.

    What did not change since the last call is not proved again: one command asks six times a box.
    """
    journal = _proved.get(data)
    if journal is None:
        journal = _parse(data)
        _proved.keep(data, journal)
    return journal


def _parse(data: bytes) -> Journal:
    entries: list[Entry] = []
    cells: dict[str, CellProgress] = {}
    setups: dict[str, SetupProgress] = {}
    workers: dict[str, WorkerProgress] = {}
    blocked: Blocked | None = None
    hold = FilesHold()
    head = GENESIS
    lines = data.split(b"\n")[:-1]  # what follows the last newline is empty or torn
    read = chain.from_iterable(_canonical_entries(lines[at : at + _TOGETHER]) for at in range(0, len(lines), _TOGETHER))
    for number, (line, known) in enumerate(zip(lines, read, strict=True), start=1):
        entry = _parse_line(line, number, head, known)
        try:
            if not hold.sealed and "cell" in entry:
                hold.follow(entry, begun=started(cells.get(str(entry["cell"]))))
            _apply(entry, cells)
            _apply_setup(entry, setups)
            blocked = _apply_worker(entry, workers) if "worker" in entry else _apply_block(entry, blocked)
        except (KeyError, TypeError, ValueError) as error:
            raise JournalDamaged(f"journal line {number} ({entry['event']}) lacks what it must say: {error}") from error
        entries.append(entry)
        head = entry["hash"]
    return Journal(head, tuple(entries), cells, blocked, setups, tuple(hold.cells), workers, whole_lines(data))


def whole_lines(data: bytes) -> bytes:
    """`data` without a torn last line."""
    return data[: data.rfind(b"\n") + 1]


def _canonical_entries(lines: Sequence[bytes]) -> Sequence[Entry | None]:
    """The entries of lines all of which are canonical, written out together, which takes half the time; None for each
    line where one is not: which one, and why, `_parse_line` then says.

    Each line alone is one JSON object, which ends where its first bracket closes. So where all of them together are
    what the entries are written as, each line is.
    """
    try:
        texts = [line.decode() for line in lines]
        entries = [json.loads(text) for text in texts]
        if all(text[:1] == "{" for text in texts) and canonical_json(entries) == b"[%b]" % b",".join(lines):
            return entries
    except (ValueError, RecursionError):
        pass
    return [None] * len(lines)


def _parse_line(line: bytes, number: int, head: str, known: Entry | None) -> Entry:
    """The entry in this line; `known`, where the line is known to be what that is written as."""
    entry, canonical = known, line
    if known is None:
        try:
            entry = json.loads(line.decode())  # as text: of bytes it would guess the encoding first
            canonical = canonical_json(entry)
        except (ValueError, RecursionError) as error:
            raise JournalDamaged(f"journal line {number} is not JSON: {line[:60]!r}") from error
    if not isinstance(entry, dict) or not isinstance(entry.get("event"), str):
        raise JournalDamaged(f"journal line {number} is not an event: {line[:60]!r}")
    if canonical != line:
        raise JournalDamaged(f"journal line {number} is not written in the canonical form: it was edited")
    if entry.get("seq") != number:
        raise JournalDamaged(f"journal line {number} says that it is entry {entry.get('seq')}: lines are missing")
    if entry.get("prev") != head:
        raise JournalDamaged(f"journal line {number} does not follow the line before it: the chain is broken")
    if entry.get("hash") != sha256_hex(_without_hash(entry, line)):
        raise JournalDamaged(f"journal line {number} does not match its own hash: it was edited")
    return entry


def _without_hash(entry: Entry, line: bytes) -> bytes:
    """The canonical form of the entry without its `hash`: cut out of `line`, which is that of all of it."""
    # A hash that would be spelled otherwise is not found in the line, which then goes the long way below.
    field_of_hash = f'"hash":"{entry.get("hash")}"'.encode("ascii", "replace")
    if line.count(field_of_hash) == 1 and len(rest := line.replace(field_of_hash + b",", b"")) < len(line):
        return rest
    return canonical_json({key: value for key, value in entry.items() if key != "hash"})


def _apply(entry: Entry, cells: dict[str, CellProgress]) -> None:
    change = _CHANGES.get(entry["event"])
    if change is None:
        return
    name = _text(entry, "cell")
    cells[name] = change(entry, cells.get(name) or CellProgress(name))


def _apply_setup(entry: Entry, setups: dict[str, SetupProgress]) -> None:
    if entry["event"] == "cell-started":  # whatever was in the way of its version is not any more
        for digest, setup in setups.items():
            if setup.state == "failed" and setup.code == entry["code"]:
                setups[digest] = replace(setup, state="finished", reason=None)
    state = _SETUPS.get(entry["event"])
    if state is None:
        return
    digest = _text(entry, "setup")
    before = setups.pop(digest, None)
    code = str(entry["code"]) if "code" in entry else before.code if before else None
    reason = _text(entry, "reason") if state == "failed" else None
    seconds = float(entry["seconds"]) if state == "finished" else None
    setups[digest] = SetupProgress(digest, state, code, seconds, reason)


def _apply_worker(entry: Entry, workers: dict[str, WorkerProgress]) -> Blocked | None:
    """Follows what a worker says of itself, or another of its end. Returns why the queue starts nothing: where each
    worker of which no end is known waits for room."""
    name, event = _text(entry, "worker"), entry["event"]
    known = workers.get(name)
    if event in _OF_WORKERS:
        known = known or WorkerProgress(name, _time(entry))
        ended, ended_at, blocked = known.ended, known.ended_at, _apply_block(entry, known.blocked)
        if event in ("worker-ended", "runner-stopped"):
            ended, ended_at = str(entry.get("proof") or f"it ended: {entry.get('why')}"), ended_at or _time(entry)
        workers[name] = WorkerProgress(name, known.began_at, ended, None if ended else blocked, ended_at)
    found = [one.blocked for one in workers.values() if not one.ended]
    return found[0] if found and all(found) else None


def _apply_block(entry: Entry, before: Blocked | None) -> Blocked | None:
    if entry["event"] == "queue-unblocked":
        return None
    if entry["event"] != "queue-blocked":
        return before
    why, hint = _text(entry, "why"), str(entry.get("hint", ""))
    path = str(entry.get("path", ""))
    return Blocked(why, _count(entry, "free"), _count(entry, "needed"), hint, _time(entry), path)


def _started(entry: Entry, before: CellProgress) -> CellProgress:
    return CellProgress(
        before.name,
        state="running",
        attempts=_count(entry, "attempt"),
        config_digest=_text(entry, "config_digest"),
        code=_text(entry, "code"),
        started_at=_time(entry),
        retry=_retry(entry, 0),
        worker=str(entry.get("worker", "")),
        work=str(entry.get("work", "")),
        folder=str(entry.get("folder", "")),
        checkpoints_of=tuple(map(str, entry.get("checkpoints_of", ()))),
    )


def _failed(entry: Entry, before: CellProgress) -> CellProgress:
    return replace(
        before,
        state="failed",
        attempts=_count(entry, "attempt"),
        ended_at=_time(entry),
        reason=_text(entry, "reason"),
        final=bool(entry["final"]),
        failure_class=_text(entry, "class") if "class" in entry else None,
        manifest=None,
        checkpoint=str(entry.get("checkpoint", "")),
        saved=bool(entry["checkpoints"]) if "checkpoints" in entry else None,
        saved_step=_count(entry, "saved_step") if "saved_step" in entry else None,
    )


def _resealing(entry: Entry, before: CellProgress) -> CellProgress:
    """What its last attempt left is being sealed, by other artifacts than it failed by."""
    at, worker = _time(entry), str(entry.get("worker", ""))
    return replace(before, state="running", started_at=at, final=False, worker=worker)


def _sealed(entry: Entry, before: CellProgress) -> CellProgress:
    return CellProgress(  # `replace` takes three times as long, and most entries of a journal are of this kind
        before.name,
        state="sealed",
        attempts=_count(entry, "attempt"),
        config_digest=_text(entry, "config_digest"),
        code=before.code,
        manifest=_text(entry, "manifest"),
        started_at=before.started_at,
        ended_at=_time(entry),
        final=True,
        retry=before.retry,
        worker=before.worker,
    )


def _found_sealed(entry: Entry, before: CellProgress) -> CellProgress:
    return replace(
        before,
        state="sealed",
        config_digest=_text(entry, "config_digest"),
        manifest=_text(entry, "manifest"),
        ended_at=_time(entry),
        reason=None,
        final=True,
        retry=_retry(entry, before.retry),
        failure_class=None,
        checkpoint="",
    )


def _dropped(entry: Entry, before: CellProgress) -> CellProgress:
    return replace(before, state="dropped", ended_at=_time(entry), reason=_text(entry, "reason"), final=True)


def _refused(entry: Entry, before: CellProgress) -> CellProgress:
    """A second entry under a name that is taken changes nothing; a name refused outright is a failure."""
    if before.state != "pending":
        return before
    return replace(before, state="failed", ended_at=_time(entry), reason=_text(entry, "reason"), final=True)


_CHANGES: dict[str, Callable[[Entry, CellProgress], CellProgress]] = {
    "cell-started": _started,
    "cell-resealing": _resealing,
    "cell-failed": _failed,
    "cell-sealed": _sealed,
    "cell-found-sealed": _found_sealed,
    "cell-dropped": _dropped,
    "cell-refused": _refused,
}


_OF_WORKERS = frozenset({"runner-started", "runner-stopped", "worker-ended", "queue-blocked", "queue-unblocked"})

_SETUPS: dict[str, SetupState] = {
    "setup-started": "started",
    "setup-finished": "finished",
    "setup-failed": "failed",
}


def _retry(entry: Entry, absent: int) -> int:
    return _count(entry, "retry") if "retry" in entry else absent


def _text(entry: Entry, key: str) -> str:
    value = entry[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is not text")
    return value


def _count(entry: Entry, key: str) -> int:
    value = entry[key]
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{key} is not a whole number")
    return value


def _time(entry: Entry) -> datetime:
    return datetime.fromisoformat(_text(entry, "time"))


def asked_to_stop(journal: Journal | None) -> bool:
    """Whether the last that it did was a try to stop itself."""
    return journal is not None and bool(journal.entries) and journal.entries[-1]["event"] in (OFF, FAILED)


def is_stopping(journal: Journal) -> bool:
    """Whether a try to stop itself has begun, and its end is not on record."""
    return bool(journal.entries) and journal.entries[-1]["event"] == OFF


def noted(data: bytes) -> str:
    """What `lease.lock` says: why the lease can't be looked after, and the journal may not have it; "" mostly."""
    return data.decode("utf-8", "replace").strip()


def could_not_stop(journal: Journal | None, now: datetime, price_per_hour: float | None, noted: str = "") -> str:
    """The alarm for a box that answers `now` (by its clock) and should have stopped itself; "" where none is due.
    `noted`: see the function of that name."""
    last = journal.entries[-1] if journal and journal.entries else {"event": ""}
    bills = f" ${spell_rate(price_per_hour)}/h" if price_per_hour is not None else ""
    if noted:
        return f"{BEGINS}, could not ({noted}): it still bills{bills}"
    if journal is None or last["event"] not in (OFF, FAILED, OVER):
        return ""  # it was given something to do since, or never asked to stop
    if last["event"] == OVER:
        return f"{BEGINS}, could not ({STAYS}: {last.get('why')}): it still bills{bills}"
    if last["event"] == OFF and now - datetime.fromisoformat(str(last["time"])) < GOING:
        return ""
    why = str(last.get("reason") or "its command was issued, and it still runs")
    count = sum(entry["event"] == OFF for entry in journal.entries)
    tried = f"tried {count} times; " if count > 1 else ""
    return f"{BEGINS}, could not ({tried}{last.get('native', 'its command')}: {why}): it still bills{bills}"


class LastLook(Record):
    """All that one look read of a box between the end of its runner and our stop (`teardown.box_check`).

    `head`: that of its journal, which was copied; `files`, `problem`: of its own tiers (`Listing`); `started_at`: the
    platform's last start of it then; `queued`: the digest of what its queue had been given. `evidence_on`: see
    `Observation`.
    """

    box: str
    generation: int
    native_id: str
    head: str
    started_at: AwareDatetime
    queued: Digest
    at: AwareDatetime
    files: tuple[tuple[str, int, float], ...] = ()
    problem: str = ""
    evidence_on: tuple[str, str] | None = None


class Rest(Record):
    """Written when a box's runner was ended for a stop, and again when something is to be started there.

    `head`: that of the journal then, which was copied; None: something may have been started since. `look`: the digest
    of the `LastLook` before that stop, written once the platform proves that the box stands still; None: there was
    none.
    """

    box: str
    generation: int
    native_id: str
    head: str | None
    at: AwareDatetime
    look: Digest | None = later(None)

    def speaks_for(self, native_id: str, journal: Journal) -> bool:
        """Whether this copied journal of that very box is the whole of it: nothing was started there since."""
        return self.native_id == native_id and self.head == journal.head


@dataclass(frozen=True)
class CellTimes:
    """`took`: sealed cell → seconds of the attempt that sealed it; `attempts_sealed`: and which one that was.
    `resumed`: cell → step of the checkpoint that its last attempt began with.
    """

    took: Mapping[str, float] = field(default_factory=dict)
    resumed: Mapping[str, int] = field(default_factory=dict)
    attempts_sealed: Mapping[str, int] = field(default_factory=dict)


def cell_times(journal: Journal) -> CellTimes:
    """Reads the journal once. What an event lacks, or has in another type, is not known."""
    reader = _Reader()
    for entry in journal.entries:
        act = _ACTS.get(entry["event"])
        if act is not None:
            act(reader, entry)
    return CellTimes(reader.took, reader.resumed, reader.attempts_sealed)


class _Reader:
    def __init__(self) -> None:
        self.began: dict[str, str] = {}
        self.took: dict[str, float] = {}
        self.resumed: dict[str, int] = {}
        self.attempts_sealed: dict[str, int] = {}

    def cell_started(self, entry: Entry) -> None:
        name = entry["cell"]
        self.began[name] = entry["time"]
        self.took.pop(name, None)
        self.resumed.pop(name, None)
        step = entry.get("checkpoint_step")
        if isinstance(step, int) and not isinstance(step, bool):
            self.resumed[name] = step

    def cell_sealed(self, entry: Entry) -> None:
        name = entry["cell"]
        seconds = _seconds(entry.get("seconds"))
        if seconds is None and name in self.began:
            begun, ended = (datetime.fromisoformat(str(text)) for text in (self.began[name], entry["time"]))
            seconds = max((ended - begun).total_seconds(), 0.0)
        if seconds is not None:
            self.took[name] = seconds
            self.attempts_sealed[name] = int(entry["attempt"])

    def cell_found_sealed(self, entry: Entry) -> None:
        self.began.pop(entry["cell"], None)  # how long that took, an earlier box knew


_ACTS: dict[str, Callable[[_Reader, Entry], None]] = {
    "cell-started": _Reader.cell_started,
    "cell-sealed": _Reader.cell_sealed,
    "cell-found-sealed": _Reader.cell_found_sealed,
}


def _seconds(value: Any) -> float | None:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e10
    return float(value) if good else None
