"""Gives a box its cells: ships code, appends to the queue, starts the runner.

Converges: called again with the same spec it ships nothing, appends nothing and restarts nothing. What runs goes on.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from sweepstack.core.extensions import not_here, part_of
from sweepstack.core.journal import Journal, is_stopping
from sweepstack.core.journal import started as started_cell
from sweepstack.core.records import Cell, Launch
from sweepstack.evidence.store import EvidenceStore
from sweepstack.launch.entries import (
    Changes,
    append_lines,
    changed_cells,
    changes,
    hands_on,
    held_elsewhere,
    held_words,
    queue_entries,
    refuse_changed,
    staying,
)
from sweepstack.launch.first_step import (
    FIRST_STEP_SECONDS,
    SETUP_SECONDS,
    GrowingJournal,
    await_first_step,
    read_journal,
)
from sweepstack.launch.ship import ship, ship_again, ship_lists, ship_runner, write_changed
from sweepstack.launch.spec import FirstCellFailed, Launched, LaunchSpec, SetupFailed
from sweepstack.onbox.agent.channel import ByHand, Channel, Scheduled
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.longer import FROM
from sweepstack.onbox.common.processes import BOX_ID_VARIABLE

__all__ = [
    "FirstCellFailed",
    "LaunchSpec",
    "Launched",
    "SetupFailed",
    "changed_cells",
    "launch",
    "read_journal",
    "refuse_changed",
]


PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
"""What the runner and its cells find programs on, behind the box's Python: the same on every login and every host."""
OFF_SECONDS = 20.0
OWN_STOP_SECONDS, OWN_STOP_POLL_SECONDS = 300.0, 1.0
"""A box's try to stop itself takes less."""
WATCH = "--watch"
"""`sweepstack.onbox.runner.lease`."""


def launch(
    spec: LaunchSpec,
    channel: Channel,
    store: EvidenceStore,
    *,
    progress: Callable[[str], None],
    first_step_seconds: float = FIRST_STEP_SECONDS,
    setup_seconds: float = SETUP_SECONDS,
    cancelled: Callable[[], bool] = lambda: False,
) -> Launched:
    """Brings the box's queue to `spec`. Blocks until the first cell shows a sign of life: through a setup of at most
    `setup_seconds`, and then `first_step_seconds` at most. `cancelled` ends the wait.

    Raises ConfigError when the work dir is not what was previewed, SweepstackError when a started cell would change or
    one with a checkpoint would begin at 0 unasked,
    FirstCellFailed when the first attempt fails at once, SetupFailed when it can't be tried.
    """
    if spec.lease:
        channel.touch(box_layout.LOOKED)  # the start command counts, too, and what follows may take long
    journal = read_journal(channel)
    present = queue_entries(channel)
    refuse_changed(journal, spec.cells)
    todo = changes(spec, store, journal, present, partial(_has_checkpoints, spec, channel))
    if todo.appended:
        ship(spec, {todo.entries[name]["code"] for name in todo.appended}, channel, store, progress)
    codes = todo.codes(journal)
    ship_lists(spec, codes, channel, store)
    ship_again(spec, codes, channel, store, journal, progress)
    off, runner = "", ""
    if todo.wanted or todo.drops:
        spec, off = _with_way_off(spec, channel)
        runner = ship_runner(spec, channel)
        if spec.lease:
            _lease_begins(channel, runner)
    _bring_sources(spec, todo, channel, store, journal, progress)
    alive = channel.lock_held(box_layout.RUNNER_LOCK)
    with hands_on(channel.native_id):
        todo, present = _without_taken(spec, channel, store, todo, present)
        removed = {str(drop["cell"]) for drop in todo.drops} | set(spec.dropped)
        _write_launch_record(store, spec, todo.wanted, present, removed, journal, runner_alive=alive)
        append_lines(channel, todo.lines())
    started, waits, by_hand, workers = False, "", "", ""
    if isinstance(channel, ByHand):
        told = spec.job.by_hand.model_dump(exclude_none=True) if spec.job.by_hand else {}
        by_hand = channel.pack(runner, told) if runner and todo.unfinished(journal) else ""
    elif isinstance(channel, Scheduled):
        left = todo.left(journal)
        if runner and left:
            _rests_no_more(spec, store)
            asked = spec.job.scheduler.model_dump(mode="json", exclude_none=True) if spec.job.scheduler else {}
            workers = channel.top_up(runner, asked, left)
    elif (todo.appended or todo.unfinished(journal)) and not _runner_at_work(spec, channel, progress, cancelled):
        progress("starting the runner")
        _rests_no_more(spec, store)
        _spawn(channel, runner)
        started = True
        waits = await_first_step(
            spec,
            channel,
            journal,
            progress,
            step_seconds=first_step_seconds,
            setup_seconds=setup_seconds,
            cancelled=cancelled,
        )
    if spec.lease and runner and not started and not channel.lock_held(box_layout.LEASE_LOCK):
        _spawn(channel, runner, WATCH)  # a queue that is drained, or a runner that an older version started
    held = "" if started or not any(map(journal.waits, todo.wanted)) else held_words(journal)
    notes = tuple(filter(None, (off, waits, held)))
    dropped = tuple(str(drop["cell"]) for drop in todo.drops)
    staying = tuple(sorted(name for name in todo.staying if not started_cell(journal.cells.get(name))))
    return Launched(todo.appended, dropped, todo.waiting, staying, started, by_hand, workers, notes)


def _runner_at_work(
    spec: LaunchSpec, channel: Channel, progress: Callable[[str], None], cancelled: Callable[[], bool]
) -> bool:
    """Whether a runner has the queue. A box that is just trying to stop itself holds the same lock, and sees no new
    line: this waits for the end of that try, `OWN_STOP_SECONDS` at most. Where no runner ever was, it is the try of its
    start command (`onbox.start_lease`). Raises Unreachable once the box has stopped."""
    stops_itself = bool(spec.lease or spec.job.when_drained)
    ends, box = time.monotonic() + OWN_STOP_SECONDS, GrowingJournal(channel)
    while channel.lock_held(box_layout.RUNNER_LOCK):
        stops = stops_itself and (is_stopping(box.look()) or channel.size(box_layout.RUNNER_PID) is None)
        if not stops or time.monotonic() > ends or cancelled():
            return True
        progress("waiting: the box is just trying to stop itself")
        time.sleep(OWN_STOP_POLL_SECONDS)
    return False


def _bring_sources(
    spec: LaunchSpec,
    todo: Changes,
    channel: Channel,
    store: EvidenceStore,
    journal: Journal,
    progress: Callable[[str], None],
) -> None:
    """Sends what cells begin from that did not end on this box. Raises SweepstackError."""
    lines = [line for line in todo.entries.values() if FROM in line]
    if not lines:
        return
    longer = part_of("longer", "bring")
    if longer is None:
        raise SweepstackError(f"cells that begin from others need {not_here('longer')}")
    longer.bring(spec.identity, lines, channel, store, journal, progress)


def _has_checkpoints(spec: LaunchSpec, channel: Channel, cell: str, folder: str) -> bool:
    """Whether this folder of a cell's checkpoints is at hand. What a bucket has is brought before the cell starts, and
    can't be seen from here: it counts as there."""
    if any(mount.mode == "MOUNT_CACHED" for mount in spec.job.mounts or ()):
        return True
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        place = box_layout.checkpoints_dir(spec.identity, cell)
        return bool(channel.listdir(f"{box_layout.DURABLE}/{place}/{folder}"))
    return False


def _spawn(channel: Channel, runner: str, *words: str) -> None:
    """Starts the runner, or with `WATCH` the process that stops the box once its lease is over."""
    argv = _argv(channel, runner, *words)
    channel.spawn(argv, cwd=box_layout.HOME, env=_env(channel), log=box_layout.RUNNER_LOG)


def _argv(channel: Channel, runner: str, *words: str) -> list[str]:
    home = box_layout.HOME
    return [channel.python, channel.absolute(f"{home}/{runner}"), channel.absolute(home), *words]


def _env(channel: Channel) -> dict[str, str]:
    return {"PATH": f"{PurePosixPath(channel.python).parent}:{PATH}", "LANG": "C.UTF-8"}


def _lease_begins(channel: Channel, runner: str) -> None:
    """Renews the lease, and writes what a box runs each time it is started: by the platform itself, after a failure of
    its machine, say. Then there is no runner, and the bill needs an end all the same."""
    if not channel.touch(box_layout.LOOKED):
        channel.write(box_layout.LOOKED, b"")
    env = _env(channel) | {BOX_ID_VARIABLE: channel.native_id}
    words = [*(f"{name}={value}" for name, value in env.items()), *_argv(channel, runner, WATCH)]
    log = shlex.quote(channel.absolute(box_layout.RUNNER_LOG))
    script = f'#!/bin/sh\nexec env -i HOME="$HOME" {shlex.join(words)} >> {log} 2>&1 < /dev/null &\n'
    write_changed(channel, box_layout.ON_START, script.encode(), mode=0o755)


def _with_way_off(spec: LaunchSpec, channel: Channel) -> tuple[LaunchSpec, str]:
    """Adds where a login finds programs to the command that ends this box's bill: a host's `shutdown` may be where only
    sessions look. And the warning for a box that has no such command, "" where all is well."""
    drained, how = spec.job.when_drained, spec.lease.get("how") or {}
    command = (drained.command if drained else "") or how.get("command") or ""
    if not command:
        return spec, ""
    script = 'command -v "$1" >/dev/null; found=$?; printf %s "$PATH"; exit $found'
    done = channel.run(["/bin/sh", "-c", script, "sh", command.split()[0]], timeout=OFF_SECONDS)
    path = done.stdout.decode("utf-8", "replace")
    there = done.returncode == 0
    note = f"it will not be able to end its own bill: it has no {command.split()[0]} on the PATH of its logins ({path})"
    return replace(spec, way_off=path), "" if there else note


def _rests_no_more(spec: LaunchSpec, store: EvidenceStore) -> None:
    rest = store.rest(spec.box, spec.generation)
    if rest is not None and rest.head is not None:
        store.write_rest(rest.model_copy(update={"head": None, "at": datetime.now(UTC)}))


def _without_taken(
    spec: LaunchSpec, channel: Channel, store: EvidenceStore, todo: Changes, present: dict[str, dict[str, Any]]
) -> tuple[Changes, dict[str, dict[str, Any]]]:
    """What is left to do, and the queue as it is now: while the code was shipped, other boxes may have taken cells that
    stay here only until they do. Said again here, such a cell would run twice."""
    if not todo.staying:
        return todo, present
    now, own = queue_entries(channel), store.launch(spec.box, spec.generation)
    held = held_elsewhere(store, spec)
    taken = todo.staying - set(staying(now, own, spec.elsewhere, held))
    return (todo.less(taken, now) if taken else todo), now


def _write_launch_record(
    store: EvidenceStore,
    spec: LaunchSpec,
    wanted: Mapping[str, Cell],
    present: Mapping[str, Any],
    removed: set[str],
    journal: Journal,
    *,
    runner_alive: bool,
) -> None:
    """Before anything starts: from here on, this box is one on which something was launched.

    What was taken out is forgotten, unless it runs: no receipt will name it, and the journal says how it ended. Of a
    cell that had started, the drop is kept: without it, nothing would answer for what the journal says of it.
    """
    before = store.launch(spec.box, spec.generation)
    cells = {name: cell.config_digest for name, cell in wanted.items()}
    for name in present:
        progress = journal.cells.get(name)
        runs = runner_alive and progress is not None and progress.state == "running"
        if name not in cells and (name not in removed or runs) and before and name in before.cells:
            cells[name] = before.cells[name]
    if not cells and before is None:
        return
    dropped = {**(before.dropped if before else {}), **spec.dropped}
    record = Launch(
        box=spec.box,
        generation=spec.generation,
        native_id=spec.native_id,
        cells=cells,
        code=spec.code,
        at=before.at if before else datetime.now(UTC),
        dropped={n: why for n, why in dropped.items() if n not in cells and started_cell(journal.cells.get(n))},
    )
    if record != before:
        store.write_launch(record)
