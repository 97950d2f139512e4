"""Gives a box its cells: ships the code, appends to the queue, starts the runner, waits for a first sign of life.

Converges: called again with the same spec it ships nothing, appends nothing and restarts nothing. What runs goes on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from sweep import onbox
from sweep.canonical import canonical_json, digest_of, sha256_hex
from sweep.channel.base import Channel
from sweep.errors import ConfigError, EvidenceError, SweepstackError
from sweep.evidence.store import EvidenceStore
from sweep.journal import CellProgress, Journal, parse_journal
from sweep.model import SCHEMA, ArtifactSpec, Cell, Launch
from sweep.workdir import collect

FIRST_STEP_SECONDS = 60.0
RUNNER_START_SECONDS = 10.0
SETTLE_SECONDS = 1.0
"""Between a cell's first output and the word that it works: a wrong setting shows within that."""
PROGRESS_SECONDS = 2.0
POLL_SECONDS = 0.1
LOG_TAIL_BYTES = 1500
ONBOX_SOURCES = Path(__file__).resolve().parents[1] / "scripts" / "onbox"
_ENDS = ("cell-failed", "cell-sealed", "cell-found-sealed")


@dataclass(frozen=True)
class LaunchSpec:
    """All that a box's queue is told. `workdir` is a folder on this machine whose digest must be `code`."""

    identity: str
    box: str
    native_id: str
    generation: int
    cells: tuple[Cell, ...]
    dropped: Mapping[str, str]
    elsewhere: frozenset[str]
    """Roster cells that another box's queue was given by the program."""
    workdir: Path
    include: tuple[str, ...]
    code: str
    run: str
    env: Mapping[str, str]
    slots: int
    artifacts: tuple[ArtifactSpec, ...]
    metrics: Mapping[str, Any] | None


@dataclass(frozen=True)
class Launched:
    """What launching did. `waiting`: cells that another box still holds."""

    appended: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    started_runner: bool = False
    notes: tuple[str, ...] = field(default_factory=tuple)


class FirstCellFailed(SweepstackError):
    """The first attempt that ended had failed: the settings are wrong, and it was noticed at once."""


def launch(
    spec: LaunchSpec,
    channel: Channel,
    store: EvidenceStore,
    *,
    progress: Callable[[str], None],
    first_step_seconds: float = FIRST_STEP_SECONDS,
) -> Launched:
    """Brings the box's queue to `spec`. Blocks until the first cell shows a sign of life, `first_step_seconds` at most.

    Raises ConfigError when the work dir is not what was previewed, SweepstackError when a started cell would change,
    FirstCellFailed when the first attempt fails at once.
    """
    journal = read_journal(channel)
    present = _queue_entries(channel)
    held = _held_elsewhere(store, spec) | _verified_here(store, spec.cells)
    wanted = {cell.name: cell for cell in spec.cells if cell.name not in held and cell.name not in spec.dropped}
    refuse_changed(journal, spec.cells)
    entries = {name: _entry(cell, spec) for name, cell in wanted.items()}
    appended = [
        name for name, entry in entries.items() if _may_append(present.get(name), entry, journal.cells.get(name))
    ]
    drops = [
        {"op": "drop", "cell": name, "reason": reason}
        for name, reason in _drops(spec, present, journal).items()
        if present.get(name, {}).get("op") == "add"
    ]
    if appended:
        ship(spec, channel, progress)
    if wanted or drops:
        runner = _ship_runner(spec, channel)
    alive = channel.lock_held(onbox.RUNNER_LOCK)
    removed = {str(drop["cell"]) for drop in drops} | set(spec.dropped)
    _write_launch_record(store, spec, wanted, present, removed, journal, runner_alive=alive)
    lines = [canonical_json(line) + b"\n" for line in [*(entries[name] for name in appended), *drops]]
    if lines:
        channel.append_locked(onbox.QUEUE, b"".join(lines), onbox.QUEUE_LOCK)
    started = False
    if (appended or _unfinished(wanted, journal) or _left_open(drops, journal)) and not channel.lock_held(
        onbox.RUNNER_LOCK
    ):
        progress("starting the runner")
        channel.spawn(
            [channel.python, channel.absolute(f"{onbox.HOME}/{runner}"), channel.absolute(onbox.HOME)],
            cwd=onbox.HOME,
            env={"PATH": f"{PurePosixPath(channel.python).parent}:/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"},
            log=onbox.RUNNER_LOG,
        )
        started = True
        _await_first_step(spec, channel, journal, progress, first_step_seconds)
    waiting = tuple(sorted(name for name in _held_elsewhere(store, spec) if name in {cell.name for cell in spec.cells}))
    return Launched(tuple(appended), tuple(str(drop["cell"]) for drop in drops), waiting, started)


def read_journal(channel: Channel) -> Journal:
    """The box's journal, empty before its first line."""
    try:
        return parse_journal(channel.read(onbox.JOURNAL))
    except FileNotFoundError:
        return parse_journal(b"")


def refuse_changed(journal: Journal, cells: tuple[Cell, ...]) -> None:
    """Raises when a started cell would get another config: the inputs of a live run never change."""
    changed = changed_cells(journal, cells)
    if changed:
        raise SweepstackError(
            f"{', '.join(changed)} started with another config. A started cell's config can't change: give the changed "
            "cell a new name (cells.add), and take the old one out with cells.drop"
        )


def changed_cells(journal: Journal, cells: tuple[Cell, ...]) -> list[str]:
    """Names of started cells whose config differs from what they started with."""
    return [
        cell.name
        for cell in cells
        if (progress := journal.cells.get(cell.name)) is not None
        and progress.config_digest is not None
        and progress.state not in ("pending", "dropped")
        and progress.config_digest != cell.config_digest
    ]


def ship(spec: LaunchSpec, channel: Channel, progress: Callable[[str], None]) -> None:
    """Copies the work dir beside earlier versions of it. Raises ConfigError when it changed since the preview."""
    shipment = collect(spec.workdir, spec.include)
    if shipment.digest != spec.code:
        raise ConfigError(f"{spec.workdir} changed between preview and up; run the command again")
    progress(f"shipping {len(shipment.files)} file(s), {shipment.bytes / 1e6:.1f} MB")
    files = ((file.path, spec.workdir / file.path, file.mode) for file in shipment.files)
    channel.put_tree(files, onbox.code_dir(spec.code))


def _ship_runner(spec: LaunchSpec, channel: Channel) -> str:
    sources = sorted(ONBOX_SOURCES.glob("runner*.py"))
    version = sha256_hex(b"".join(source.read_bytes() for source in sources))[:12]
    # A folder a version: a runner that lives keeps the files that it was started from.
    channel.put_tree(((source.name, source, 0o644) for source in sources), f"{onbox.HOME}/runner-{version}")
    for source in sorted(ONBOX_SOURCES.glob("sweepstack_*.py")):
        path, helper = f"{onbox.HOME}/checkpoint/{source.name}", source.read_bytes()
        if channel.size(path) is None or channel.read(path) != helper:
            channel.write(path, helper)
    settings = {
        "schema": SCHEMA,
        "identity": spec.identity,
        "box": spec.box,
        "native_id": spec.native_id,
        "generation": spec.generation,
        "durable": onbox.DURABLE,
        "slots": spec.slots,
        "python": channel.python,
        "env": dict(spec.env),
        "artifacts": [artifact.model_dump(mode="json") for artifact in spec.artifacts],
        "metrics": dict(spec.metrics) if spec.metrics else None,
        "retries": 1,
    }
    data = canonical_json(settings) + b"\n"
    try:
        same = channel.read(onbox.SPEC) == data
    except FileNotFoundError:
        same = False
    if not same:
        channel.write(onbox.SPEC, data)
    return f"runner-{version}/runner.py"


def _entry(cell: Cell, spec: LaunchSpec) -> dict[str, Any]:
    return {
        "op": "add",
        "cell": cell.name,
        "params": cell.params,
        "config_digest": cell.config_digest,
        "code": spec.code,
        "run": spec.run,
        "env": dict(spec.env),
        # A cell that failed for good because of a misspelt artifact is tried again once that is mended.
        "artifacts": digest_of([artifact.model_dump(mode="json") for artifact in spec.artifacts]),
    }


def _queue_entries(channel: Channel) -> dict[str, dict[str, Any]]:
    """The last queue line of each cell."""
    try:
        data = channel.read(onbox.QUEUE)
    except FileNotFoundError:
        return {}
    entries = {}
    for line in data.splitlines():
        try:
            entry = json.loads(line)
            entries[str(entry["cell"])] = entry
        except (ValueError, KeyError, TypeError) as error:
            raise SweepstackError(f"{onbox.QUEUE} holds a line that is not an entry: {line[:80]!r}") from error
    return entries


def _may_append(present: dict[str, Any] | None, entry: dict[str, Any], progress: CellProgress | None) -> bool:
    """New cells, and cells that have not been sealed whose version changed; a sealed cell keeps what it has."""
    if present == entry:
        return False
    return progress is None or progress.state != "sealed"


def _drops(spec: LaunchSpec, present: Mapping[str, Any], journal: Journal) -> dict[str, str]:
    """Cells to take out: dropped by name; or not started and now another box's, or taken off the roster."""
    drops = {name: reason for name, reason in spec.dropped.items() if name in present}
    named = {cell.name for cell in spec.cells}
    for name in present:
        progress = journal.cells.get(name)
        started = progress is not None and progress.state not in ("pending", "dropped")
        if name not in named and name not in drops and not started:
            drops[name] = "moved to another box" if name in spec.elsewhere else "taken off the roster before it started"
    return drops


def _held_elsewhere(store: EvidenceStore, spec: LaunchSpec) -> set[str]:
    """Cells that the queue of another box was given, while that box has not ended: a cell runs in one place."""
    ended = {(birth.box, birth.generation) for birth in store.births() if birth.ended_at is not None}
    held: set[str] = set()
    for other in store.launches():
        if other.box != spec.box and (other.box, other.generation) not in ended:
            held |= set(other.cells)
    return held


def _verified_here(store: EvidenceStore, cells: tuple[Cell, ...]) -> set[str]:
    """Cells whose verified copy the evidence holds, whole: they are not run again on a later box."""
    try:
        digest = store.latest_receipt()
        receipt = store.receipt(digest) if digest else None
    except EvidenceError:
        return set()
    if receipt is None:
        return set()
    digests = {cell.name: cell.config_digest for cell in cells}
    good = [c.name for c in receipt.cells if c.state == "verified" and digests.get(c.name) == c.config_digest]
    return {name for name in good if not store.check_files(receipt, [name], full=False)}


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

    What was taken out is forgotten, unless it runs: no receipt will name it, and the journal says how it ended.
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
    record = Launch(
        box=spec.box,
        generation=spec.generation,
        native_id=spec.native_id,
        cells=cells,
        code=spec.code,
        at=before.at if before else datetime.now(UTC),
    )
    if record != before:
        store.write_launch(record)


def _left_open(drops: Iterable[Mapping[str, str]], journal: Journal) -> bool:
    """Whether a cell that is to be dropped is, by the journal, at work or failed: only a runner can write that it is
    dropped, and only then can it come back."""
    found = (journal.cells.get(drop["cell"]) for drop in drops)
    return any(cell is not None and cell.state in ("running", "failed") for cell in found)


def _unfinished(wanted: Mapping[str, Cell], journal: Journal) -> bool:
    def finished(progress: CellProgress | None) -> bool:
        return progress is not None and (progress.state in ("sealed", "dropped") or bool(progress.final))

    return any(not finished(journal.cells.get(name)) for name in wanted)


def _await_first_step(
    spec: LaunchSpec, channel: Channel, before: Journal, progress: Callable[[str], None], seconds: float
) -> None:
    """Returns when a cell is sealed, or has shown a sign of life and not failed on its heels: a traceback is output,
    too. A first attempt that fails is an error."""
    began = said = lived = time.monotonic()
    first: float | None = None
    quiet = False
    while (now := time.monotonic()) < began + seconds:
        alive = channel.lock_held(onbox.RUNNER_LOCK)  # asked first: what a runner that has ended wrote is all there
        entries = read_journal(channel).entries[len(before.entries) :]
        unprepared = next((entry for entry in entries if entry["event"] == "setup-failed"), None)
        if unprepared is not None:
            raise FirstCellFailed(f"nothing was started with this code: {unprepared.get('reason', '')}")
        ended = next((entry for entry in entries if entry["event"] in _ENDS), None)
        if ended is not None and ended["event"] == "cell-failed":
            tail = log_tail(channel, str(ended["cell"]), int(ended["attempt"]))
            raise FirstCellFailed(f"{ended['cell']} failed at once: {ended.get('reason', '')}\n{tail}".rstrip())
        if ended is not None:
            return
        if first is None and any(_shows_life(entry, spec, channel) for entry in entries):
            first = now
        if first is not None and now - first >= SETTLE_SECONDS:
            return
        if alive:
            lived, quiet = now, False
        elif entries:
            if quiet:  # twice: the first look may have been just before its start
                return
            quiet = True
        elif now - lived > RUNNER_START_SECONDS:
            raise FirstCellFailed(_silent("the runner ended before it started a cell", channel))
        if now - said > PROGRESS_SECONDS:
            said = now
            progress(f"waiting for the first step of a cell: {said - began:.0f} s of at most {seconds:.0f} s")
        time.sleep(POLL_SECONDS)
    raise FirstCellFailed(_silent(f"no cell showed a sign of life within {seconds:.0f} s", channel))


def _shows_life(entry: Mapping[str, Any], spec: LaunchSpec, channel: Channel) -> bool:
    if entry["event"] != "cell-started":
        return False
    folder = onbox.attempt_dir(str(entry["cell"]), int(entry["attempt"]))
    paths = [f"{folder}/log.txt", *([f"{folder}/out/{spec.metrics['file']}"] if spec.metrics else [])]
    return any(channel.size(path) for path in paths)


def _silent(what: str, channel: Channel) -> str:
    tail = _tail(channel, onbox.RUNNER_LOG)
    return f"{what}; the runner's log " + (f"ends with:\n{tail}" if tail else "is empty")


def log_tail(channel: Channel, cell: str, attempt: int) -> str:
    """The end of one attempt's log."""
    return _tail(channel, f"{onbox.attempt_dir(cell, attempt)}/log.txt")


def _tail(channel: Channel, path: str) -> str:
    try:
        size = channel.size(path) or 0
        return channel.read(path, offset=max(0, size - LOG_TAIL_BYTES)).decode("utf-8", "replace").rstrip()
    except OSError:
        return ""
