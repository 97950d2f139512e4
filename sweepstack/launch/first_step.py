"""Waits for a first sign of life: set-up goes through, and a cell prints or writes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from sweepstack.core.journal import Entry, Journal, parse_journal, whole_lines
from sweepstack.launch.spec import FirstCellFailed, LaunchSpec, SetupFailed, WaitEnded
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.groups import is_group, means
from sweepstack.onbox.common.placeholders import own_file

FIRST_STEP_SECONDS = 60.0
SETUP_SECONDS = 3600.0
"""How long a setup is watched. It goes on when the watching ends."""
RUNNER_START_SECONDS = 10.0
SETTLE_SECONDS = 1.0
"""So long after a cell's first output it is said to work: a wrong setting shows by then."""
PROGRESS_SECONDS = 2.0
POLL_SECONDS = 0.1
LOG_TAIL_BYTES = 1500
LINE_CHARS = 120
_MEND = {"commands": "job.setup, or the files that it uses (requirements.txt)", "smoke": "the job, or job.smoke"}
"""What may be wrong where a stage before the first cell has a log."""


def read_journal(channel: Channel) -> Journal:
    """The box's journal, empty before its first line."""
    try:
        return parse_journal(channel.read(box_layout.JOURNAL))
    except FileNotFoundError:
        return parse_journal(b"")


class GrowingJournal:
    """The box's journal, of which only what is new is fetched at each look: it may be long, and the box far away."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._whole = b""

    def look(self) -> Journal:
        """The journal as it is now. Raises JournalDamaged, Unreachable."""
        try:
            data = self._whole + self._channel.read(box_layout.JOURNAL, offset=len(self._whole))
        except FileNotFoundError:
            data = b""
        journal = parse_journal(data)
        self._whole = whole_lines(data)  # a torn end may be cut off by the next runner
        return journal


def await_first_step(
    spec: LaunchSpec,
    channel: Channel,
    before: Journal,
    progress: Callable[[str], None],
    *,
    step_seconds: float,
    setup_seconds: float,
    cancelled: Callable[[], bool],
) -> str:
    """Returns when a cell is sealed, or has shown a sign of life and not failed on its heels: a traceback is output,
    too. The time of a setup does not count as that of the first step. A queue that waits for room is no failure, nor is
    a cell that runs and has not printed anything: then the words for that are returned, else "".

    Raises FirstCellFailed for a first attempt that fails, where none is started, and when it is told to stop;
    SetupFailed.
    """
    began = said = lived = time.monotonic()
    preparing: float | None = None
    first: float | None = None
    quiet = False
    growing = GrowingJournal(channel)
    while True:
        now = time.monotonic()
        if cancelled():
            raise WaitEnded("the wait for the first step was ended; the box bills, and goes on with its cells")
        # Asked first: what a runner that has ended wrote is all there.
        alive = channel.lock_held(box_layout.RUNNER_LOCK)
        journal = growing.look()
        entries = journal.entries[len(before.entries) :]
        _refuse_failed_setup(entries, channel)
        ended = first_end(entries)
        if ended is not None and ended["event"] == "cell-failed":
            tail = log_tail(channel, str(ended["cell"]), int(ended["attempt"]))
            raise FirstCellFailed(f"{ended['cell']} failed at once: {ended.get('reason', '')}\n{tail}".rstrip())
        if ended is not None:
            return ""
        if alive and first is None and journal.blocked is not None:
            room = journal.blocked
            return f"it waits for room ({room.why}): {room.hint}"
        if first is None and any(_shows_life(entry, spec, channel) for entry in entries):
            first = now
        if first is not None and now - first >= SETTLE_SECONDS:
            return ""
        setup = _open_setup(entries) if first is None and alive else ""
        if setup:
            preparing = preparing or now
            began = now
            if now - preparing > setup_seconds:
                raise FirstCellFailed(_silent_setup(setup, channel, setup_seconds))
        if alive:
            lived, quiet = now, False
        elif entries:
            if quiet and _open_setup(entries):
                raise FirstCellFailed(_silent("the runner ended during the setup", channel))
            if quiet:  # twice: the first look may have been just before its start
                return ""
            quiet = True
        elif now - lived > RUNNER_START_SECONDS and not _starts_still(channel):
            raise FirstCellFailed(_silent("the runner ended before it started a cell", channel))
        if now - began > step_seconds:
            if alive and (silent := _at_work(entries)):
                return _no_output_yet(silent, step_seconds)
            raise FirstCellFailed(_silent(f"no cell showed a sign of life within {step_seconds:.0f} s", channel))
        if now - said > PROGRESS_SECONDS:
            said = now
            if setup and preparing is not None:
                progress(f"setup, {now - preparing:.0f} s: {_last_line(channel, setup)}")
            else:
                waited = f"{now - began:.0f} s of at most {step_seconds:.0f} s"
                progress(f"waiting for the first step of a cell: {waited}")
        time.sleep(POLL_SECONDS)


def _starts_still(channel: Channel) -> bool:
    """Whether a runner lives that does not hold its lock yet: on a busy box, or from a slow disk, Python takes long to
    begin."""
    home = channel.absolute(box_layout.HOME)  # the last word of a runner; what only watches the lease has one more
    return any(process.argv[-1:] == (home,) for process in channel.processes())


def first_end(entries: Sequence[Entry]) -> Entry | None:
    """What tells how a launch began: the first seal, or failure of an attempt that was the first in its slot.

    A later attempt started because one before it ended, and cells are sealed beside those that run: so it may fail
    before the good end of the first is written down. It is then the queue's matter, and no failure of the launch.
    """
    firsts: dict[object, tuple[object, object]] = {}
    for entry in entries:
        attempt = entry.get("cell"), entry.get("attempt")
        if entry["event"] == "cell-started":
            firsts.setdefault(entry.get("slot"), attempt)
        elif entry["event"] == "cell-resealing":
            firsts[entry["cell"]] = attempt
        elif entry["event"] in box_layout.SEALED or (entry["event"] == "cell-failed" and attempt in firsts.values()):
            return entry
    return None


def _at_work(entries: Sequence[Entry]) -> str:
    """The first cell that was started and has not ended; "" for none."""
    return first_open(entries, "cell", "cell-started", ("cell-failed", "cell-dropped"))


def _open_setup(entries: Sequence[Entry]) -> str:
    """The digest of a setup that has begun and not ended; "" for none."""
    return first_open(entries, "setup", "setup-started", ("setup-finished", "setup-failed"))


def first_open(entries: Sequence[Entry], what: str, begins: str, ends: Collection[str]) -> str:
    """The value of `what` in the first line of event `begins` that no line of `ends` closes; "" for none."""
    found: dict[str, None] = {}
    for entry in entries:
        if entry["event"] == begins:
            found[str(entry[what])] = None
        elif entry["event"] in ends:
            found.pop(str(entry[what]), None)
    return next(iter(found), "")


def _no_output_yet(cell: str, seconds: float) -> str:
    return (
        f"no output yet: {cell} runs, and has printed nothing within {seconds:.0f} s (imports, downloads and compilers "
        f"may take longer). The box bills, and goes on with its cells. Next: sweepctl logs {cell}, or sweepctl wait "
        "done"
    )


def log_tail(channel: Channel, cell: str, attempt: int) -> str:
    """The end of one attempt's log."""
    return _tail(channel, f"{box_layout.attempt_dir(cell, attempt)}/log.txt")


def _refuse_failed_setup(entries: Sequence[Entry], channel: Channel) -> None:
    failed = next((entry for entry in entries if entry["event"] == "setup-failed"), None)
    if failed is None:
        return
    reason = str(failed.get("reason", "")).strip()
    stage = failed.get("stage", "commands")
    if stage not in _MEND:  # the probe before the first cell, or the secrets: no log of theirs
        raise SetupFailed(f"nothing was started with this code: {reason}")
    tail = _tail(channel, box_layout.setup_log(str(failed["setup"])))
    mend = f"No cell of this version was started. Fix {_MEND[stage]}"
    raise SetupFailed("\n".join(part for part in (f"setup failed: {reason}", tail, mend) if part))


def _last_line(channel: Channel, setup: str) -> str:
    lines = _tail(channel, box_layout.setup_log(setup)).splitlines()
    return lines[-1][:LINE_CHARS] if lines else "nothing printed yet"


def _silent_setup(setup: str, channel: Channel, seconds: float) -> str:
    said = _last_line(channel, setup)
    return f"setup is not through after {seconds / 60:.0f} min, and goes on; it last said: {said}"


def _shows_life(entry: Mapping[str, Any], spec: LaunchSpec, channel: Channel) -> bool:
    if entry["event"] != "cell-started":
        return bool(entry["event"] == "cell-resealing")
    name = str(entry["cell"])
    folder = box_layout.attempt_dir(name, int(entry["attempt"]))
    paths = [f"{folder}/log.txt"]
    if spec.metrics:
        params = next((cell.params for cell in spec.cells if cell.name == name), {})
        curve = f"{folder}/out/{own_file(str(spec.metrics['file']), name, params)}"
        if is_group(curve):
            return any(map(channel.size, paths)) or any(
                size and means(curve, path) for path, size, _ in channel.walk([f"{folder}/out"]).files
            )
        paths.append(curve)
    return any(channel.size(path) for path in paths)


def _silent(what: str, channel: Channel) -> str:
    tail = _tail(channel, box_layout.RUNNER_LOG)
    return f"{what}; the runner's log " + (f"ends with:\n{tail}" if tail else "is empty")


def _tail(channel: Channel, path: str) -> str:
    try:
        size = channel.size(path) or 0
        return channel.read(path, offset=max(0, size - LOG_TAIL_BYTES)).decode("utf-8", "replace").rstrip()
    except OSError:
        return ""
