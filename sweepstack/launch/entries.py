"""The queue's lines: which cells a box gets or loses, and in which version of the code.

A cell that has run before goes on in a version, and in a folder of checkpoints, that follow from what it ran in.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sweepstack.core.foreign_cells import same_config
from sweepstack.core.journal import CellProgress, Journal, started
from sweepstack.core.records import Cell, Launch
from sweepstack.evidence.check_files import check_cells
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.traces import receipts
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.box_layout import short
from sweepstack.onbox.common.canonical import canonical_json, digest_of
from sweepstack.onbox.common.dataclass import dataclass, replace
from sweepstack.onbox.common.errors import EvidenceError, JournalDamaged, NotAFile, SweepstackError
from sweepstack.onbox.common.longer import FROM
from sweepstack.onbox.common.next_version import checkpoint_name, takes_new, work_of

if TYPE_CHECKING:
    from sweepstack.launch.spec import LaunchSpec

MOVED = "moved to another box"

_alone: dict[str, threading.RLock] = {}
_finding = threading.Lock()

Line = Mapping[str, Any]
There = Callable[[str, str], bool]
"""Whether a cell's folder of checkpoints (cell, its name) has something in it, as seen from the box that is to run."""


def hands_on(native_id: str) -> threading.RLock:
    """Held while cells change hands on this box: what its queue says, and its launch record, are judged and changed
    together. Queues are brought up side by side in one process, and a move changes two of them; the engine's lock keeps
    other processes away, but for a `tend` that stops a cell by the rule of its search."""
    with _finding:
        return _alone.setdefault(native_id, threading.RLock())


@dataclass(frozen=True)
class Changes:
    """What is to become of the queue. `wanted`: cells that this box shall have run; `entries`: their lines.

    `appended`: those of which the queue does not say that yet; `drops`: lines that take cells out; `waiting`: cells
    that another box still holds; `staying`: those of `wanted` that the program gives another box, which does not have
    them yet.
    """

    wanted: Mapping[str, Cell]
    entries: Mapping[str, Line]
    appended: tuple[str, ...]
    drops: tuple[Line, ...]
    waiting: tuple[str, ...]
    staying: frozenset[str] = frozenset()

    def lines(self) -> list[Line]:
        """What is appended to the queue, in order."""
        return [*(self.entries[name] for name in self.appended), *self.drops]

    def unfinished(self, journal: Journal) -> bool:
        """Whether something is left to do that only a runner can."""
        if any(self._open(name, journal) for name in self.wanted):
            return True
        # Only a runner can write that a cell at work, or failed, is dropped; and only then can it come back.
        found = (journal.cells.get(str(drop["cell"])) for drop in self.drops)
        return any(cell is not None and cell.state in ("running", "failed") for cell in found)

    def left(self, journal: Journal) -> int:
        """How many cells are left to do, those at work among them; at least 1 while something is left for a runner."""
        count = sum(self._open(name, journal) for name in self.wanted)
        return max(count, int(self.unfinished(journal)))

    def codes(self, journal: Journal) -> set[str]:
        """The code that the cells which are to run, or to go on, run with."""
        left = [name for name in self.wanted if not finished(journal.cells.get(name), self._retry(name))]
        begun = {cell.code for name in left if (cell := journal.cells.get(name)) is not None and cell.code}
        return begun | {str(self.entries[name]["code"]) for name in left}

    def less(self, gone: Collection[str], present: Mapping[str, Line]) -> Changes:
        """Without cells that another box took meanwhile. A line that was left in the queue is taken out."""
        left = sorted(name for name in gone if present.get(name, {}).get("op") == "add")
        return replace(
            self,
            wanted={name: cell for name, cell in self.wanted.items() if name not in gone},
            entries={name: line for name, line in self.entries.items() if name not in gone},
            appended=tuple(name for name in self.appended if name not in gone),
            drops=(
                *self.drops,
                *(drop_line(name, MOVED, unless_started=True) for name in left),
            ),
            staying=self.staying - set(gone),
        )

    def _open(self, name: str, journal: Journal) -> bool:
        """Whether a runner can do something for this cell: not where it is held back, and nothing is told anew."""
        held = journal.waits(name) and not (self.appended or self.drops)
        return not held and not finished(journal.cells.get(name), self._retry(name))

    def _retry(self, name: str) -> int:
        return int(self.entries[name].get("retry", 0))


def changes(
    spec: LaunchSpec,
    store: EvidenceStore,
    journal: Journal,
    present: Mapping[str, dict[str, Any]],
    there: There = lambda *_: False,
) -> Changes:
    """Compares what the box is told with what its queue holds (`present`: the last line of each cell). `there`: whether
    checkpoints of a cell are at hand. Raises SweepstackError for a cell that would begin at 0 unasked."""
    elsewhere = held_elsewhere(store, spec)
    own = store.launch(spec.box, spec.generation)
    stay = staying(present, own, spec.elsewhere, {*elsewhere, *spec.dropped})
    held = elsewhere | verified_here(store, spec, stay.values())
    wanted = {cell.name: cell for cell in spec.cells if cell.name not in held and cell.name not in spec.dropped}
    wanted |= _kept(spec, present, wanted)
    wanted |= {name: cell for name, cell in stay.items() if name not in held}
    begins = {name: _begins(cell, spec, present, journal) for name, cell in wanted.items() if cell.source}
    waits = {name: wanted.pop(name).source for name, known in begins.items() if known is None}
    entries = _entries(spec, store, journal, wanted, there)
    entries = {name: {**line, FROM: begins[name]} if name in begins else line for name, line in entries.items()}
    appended = tuple(
        name for name, line in entries.items() if _may_append(present.get(name), line, journal.cells.get(name))
    )
    drops: list[Line] = [
        drop_line(name, reason)
        for name, reason in _drops(spec, present, journal, wanted).items()
        if present.get(name, {}).get("op") == "add" and name not in waits
    ]
    drops += [
        drop_line(name, f"waits for {source}", unless_started=True)
        for name, source in waits.items()
        if present.get(name, {}).get("op") == "add" and not started(journal.cells.get(name))
    ]
    named = {cell.name for cell in spec.cells}
    staying_here = frozenset(stay) & set(wanted)
    return Changes(wanted, entries, appended, tuple(drops), tuple(sorted(elsewhere & named)), staying_here)


def staying(
    present: Mapping[str, Line], own: Launch | None, elsewhere: Mapping[str, str], held: Collection[str]
) -> dict[str, Cell]:
    """Cells of this queue (`present`) that the program gives another box, which does not have them yet: until it takes
    them they are this box's, and run here when their turn comes. A cell between two queues would never run.

    `own`: this box's launch record. What it does not name was taken while this box was at rest, and may be in another
    box's hands already. `elsewhere`: cell → first digits of the config that it is to have; one that is to have another
    config than the line here says is not to run here. `held`: what is another box's, or dropped.
    """
    found = {}
    for name in own.cells if own is not None else ():
        line, digits = present.get(name), elsewhere.get(name)
        if not digits or line is None or line.get("op") != "add" or name in held:
            continue
        cell = Cell(name=name, params=line["params"])
        if same_config(cell.config_digest, digits):
            found[name] = cell
    return found


def held_words(journal: Journal) -> str:
    """That cells are held back, for which one, and what ends that."""
    first = journal.hold[0]
    ways = f"mend `artifacts` (trains nothing again), or sweepctl retry {first}; then pulumi up"
    return f"its cells that have not begun wait: {first} left the wrong files. {ways}"


def finished(progress: CellProgress | None, retry: int) -> bool:
    """Whether a cell has ended for good, in the retry that is asked for or a later one."""
    if progress is None or progress.retry < retry:
        return False
    return progress.state in ("sealed", "dropped") or progress.final


def entry(cell: Cell, spec: LaunchSpec) -> dict[str, Any]:
    """A cell's line. What is as it always was is left out, so that a queue from before goes on as it is."""
    again = spec.retries.get(cell.name)
    more: dict[str, Any] = {
        "setup": spec.job.setup,
        "retry": again.retry if again else 0,
        "salt": again.salt if again else 0,
    }
    return {
        "op": "add",
        "cell": cell.name,
        "params": cell.params,
        "config_digest": cell.config_digest,
        "code": spec.code_of(cell.name),
        "run": spec.job.run,
        "env": spec.job.env,
        # A cell that failed for good because of a misspelt artifact is tried again once that is mended.
        "artifacts": digest_of([artifact.model_dump(mode="json") for artifact in spec.artifacts]),
        **{key: value for key, value in more.items() if value},
        **({"set_of": again.set_of} if again and again.set_of is not None else {}),
        **({"ends": True} if again and again.ends else {}),
    }


def _entries(
    spec: LaunchSpec, store: EvidenceStore, journal: Journal, wanted: Mapping[str, Cell], there: There
) -> dict[str, Line]:
    """The lines of these cells: also of those that ran on another box."""
    found: dict[str, Line] = {name: entry(cell, spec) for name, cell in wanted.items()}
    new = {name for name in found if not started(journal.cells.get(name))}
    before = ran_on_ended_boxes(store, spec.box, spec.generation, new)
    for name, line in found.items():
        if spec.job.goes_across_code:
            found[name] = across(line, before.get(name) if name in new else journal.cells[name])
        elif name in before:
            found[name] = on_another_box(line, before[name], there)
    return found


def _begins(cell: Cell, spec: LaunchSpec, present: Mapping[str, Line], journal: Journal) -> Mapping[str, str] | None:
    """Which copy a cell begins from, as its line says it: one that has begun keeps its own, until it is asked for
    again. None where there is no verified copy yet."""
    kept, progress, again = (
        present.get(cell.name, {}).get(FROM),
        journal.cells.get(cell.name),
        spec.retries.get(cell.name),
    )
    if kept and progress is not None and started(progress) and (again is None or again.retry <= progress.retry):
        return dict(kept)
    manifest = spec.sources.get(cell.name)
    return {"cell": cell.source, "manifest": manifest} if manifest else None


class QueueDamaged(JournalDamaged):
    """The queue of a box does not read. Its lines are all on record elsewhere: `launch` writes them again."""


def queue_entries(channel: Channel) -> dict[str, dict[str, Any]]:
    """The last line of each cell in a box's queue. Raises QueueDamaged for a line that is none, or no file."""
    return queue_and_size(channel)[0]


def queue_and_size(channel: Channel) -> tuple[dict[str, dict[str, Any]], int]:
    """`queue_entries`, and how many bytes the queue had then: for `append_lines`. Raises as that."""
    try:
        data = channel.read(box_layout.QUEUE)
    except FileNotFoundError:
        return {}, 0
    except NotAFile as error:
        raise QueueDamaged(str(error)) from error
    entries = {}
    for line in data.splitlines():
        try:
            found = json.loads(line)
            entries[str(found["cell"])] = found
        except (ValueError, KeyError, TypeError) as error:
            raise QueueDamaged(f"{box_layout.QUEUE} holds a line that is not an entry: {line[:20]!r}") from error
    return entries, len(data)


def drop_line(cell: str, reason: str, *, unless_started: bool = False) -> Line:
    """The line of a queue that takes a cell out, and ends it where it runs. `unless_started`: only one that has not
    begun."""
    line: Line = {"op": "drop", "cell": cell, "reason": reason}
    return {**line, "unless_started": True} if unless_started else line


def append_lines(channel: Channel, lines: Iterable[Line], *, at: int | None = None) -> None:
    """Adds these lines to the box's queue under its lock; does nothing where there are none. For one that has
    `hands_on`. `at`: only where the queue still has this many bytes. Raises as `Channel.append_locked`."""
    data = b"".join(canonical_json(line) + b"\n" for line in lines)
    if data:
        channel.append_locked(box_layout.QUEUE, data, box_layout.QUEUE_LOCK, at=at)


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
        and started(progress)
        and progress.config_digest != cell.config_digest
    ]


def _kept(spec: LaunchSpec, present: Mapping[str, dict[str, Any]], wanted: Iterable[str]) -> dict[str, Cell]:
    """Cells to run again that the program gives another box, and that stay here: this queue was given them first."""
    names = set(spec.retries) - set(wanted) - set(spec.dropped)
    return {
        name: Cell(name=name, params=present[name]["params"])
        for name in sorted(names & set(spec.elsewhere))
        if present.get(name, {}).get("op") == "add"
    }


def _may_append(present: Line | None, line: Line, progress: CellProgress | None) -> bool:
    """New cells, and cells that have not been sealed whose version changed. A sealed one keeps what it has, unless a
    person asked for it again; one that failed for good keeps it with its checkpoint."""
    if present == line:
        return False
    if progress is None or int(line.get("retry", 0)) > progress.retry:
        return True
    goes_on = "folder" in line
    saved = present is not None and progress.final and progress.state == "failed"
    if present is not None and saved and not takes_new(True, progress.saved, goes_on):
        return all(present.get(key) == line.get(key) for key in ("code", "run", "env", "setup"))
    return progress.state != "sealed"


def _drops(spec: LaunchSpec, present: Mapping[str, Any], journal: Journal, wanted: Collection[str]) -> dict[str, str]:
    """Cells to take out: dropped by name; or not started and now another box's, or taken off the roster."""
    drops = {name: reason for name, reason in spec.dropped.items() if name in present}
    named = {cell.name for cell in spec.cells} | set(wanted)
    for name in present:
        if name not in named and name not in drops and not started(journal.cells.get(name)):
            drops[name] = MOVED if name in spec.elsewhere else "taken off the roster before it started"
    return drops


def living(store: EvidenceStore) -> list[Launch]:
    """The launch records of boxes that have not ended."""
    ended = {(birth.box, birth.generation) for birth in store.births() if birth.ended_at is not None}
    return [launch for launch in store.launches() if (launch.box, launch.generation) not in ended]


def held_elsewhere(store: EvidenceStore, spec: LaunchSpec) -> set[str]:
    """Cells that the queue of another box was given, while that box has not ended: a cell runs in one place."""
    return {cell for other in living(store) if other.box != spec.box for cell in other.cells}


def verified_here(store: EvidenceStore, spec: LaunchSpec, further: Iterable[Cell] = ()) -> set[str]:
    """Cells, and `further` ones, whose verified copy the evidence holds, whole, and for which no retry was asked
    since."""
    superseded = {name: again.manifest for name, again in spec.retries.items() if again.manifest is not None}
    return verified_cells(store, {cell.name: cell.config_digest for cell in (*spec.cells, *further)}, superseded)


def verified_cells(store: EvidenceStore, digests: Mapping[str, str], superseded: Mapping[str, str]) -> set[str]:
    """Cells of `digests` (cell → digest of its config) whose verified copy the evidence holds, whole. `superseded`:
    cell → the manifest that does not count any more, since a person asked for it again. Empty where that can't be read.

    Where the record is lost that says which receipt is the latest, each one that reads counts: a copy is compared anew.
    """
    try:
        digest = store.latest_receipt()
        known = [store.receipt(digest)] if digest else list(receipts(store))
    except EvidenceError:
        return set()
    found: set[str] = set()
    for receipt in known:
        good = [
            cell.name
            for cell in receipt.cells
            if cell.state == "verified"
            and cell.name not in found
            and digests.get(cell.name) == cell.config_digest
            and superseded.get(cell.name) != cell.manifest
        ]
        found |= {name for name, problems in check_cells(store, receipt, good, full=False).items() if not problems}
    return found


def across(line: Line, progress: CellProgress | None) -> dict[str, Any]:
    """The line of a cell (`entries.entry`) so that it goes on where it was, whatever code wrote that; as it is where it
    was asked to begin anew, or there is nothing to go on from."""
    if progress is None or not _may_have_one(line, progress):
        return dict(line)
    return {**line, **_in_its_folder(line, progress)}


def on_another_box(line: Line, progress: CellProgress | None, there: There) -> dict[str, Any]:
    """The line of a cell that ran on another box, which has ended, so that it does not begin at 0 unasked: where its
    checkpoint is at hand here, it keeps the version that wrote it. Raises SweepstackError where that can't be had."""
    if progress is None or not _may_have_one(line, progress) or takes_new(progress.final, progress.saved):
        return dict(line)
    if not there(progress.name, progress.folder or checkpoint_name(str(line["config_digest"]), progress.work)):
        return dict(line)
    kept = {**line, "code": progress.code}
    if work_of(kept, _salt(line)) == progress.work:
        return {**kept, **_in_its_folder(kept, progress)}
    raise SweepstackError(
        f"{progress.name} has a checkpoint that another command, setup or environment wrote (code "
        f"{short(progress.code or '')}), and would begin at 0 with this one. Next, one of: sweepctl retry "
        f"{progress.name} --from start (begins at 0); job.resume: across-code (goes on from it); the job as it was"
    )


def ran_on_ended_boxes(
    store: EvidenceStore, box: str, generation: int, names: Collection[str]
) -> dict[str, CellProgress]:
    """What the kept journals of boxes of the sweep that have ended say last of these cells. One that does not read is
    left out."""
    found: dict[str, CellProgress] = {}
    for birth in store.births() if names else ():
        if birth.ended_at is None or (birth.box, birth.generation) == (box, generation):
            continue
        try:
            journal = store.journal(birth.box, birth.generation)
        except (EvidenceError, JournalDamaged):
            continue
        for name in set(names) & set(journal.cells if journal is not None else ()):
            assert journal is not None
            progress, known = journal.cells[name], found.get(name)
            at = progress.started_at
            if at and started(progress) and (known is None or known.started_at is None or known.started_at < at):
                found[name] = progress
    return found


def _may_have_one(line: Line, progress: CellProgress) -> bool:
    """Whether it may have a checkpoint to go on from, as far as is known."""
    asked_anew = _salt(line) > progress.retry
    open_still = progress.state in ("running", "failed") and progress.saved is not False
    return open_still and bool(progress.work and progress.code) and not asked_anew


def _in_its_folder(line: Line, progress: CellProgress) -> dict[str, Any]:
    codes = list(progress.checkpoints_of)
    if work_of(line, _salt(line)) != progress.work and progress.code:
        codes = [*dict.fromkeys([*codes, progress.code])]
    own = progress.folder or checkpoint_name(str(line["config_digest"]), progress.work)
    return {"folder": own, "checkpoints_of": codes} if codes else {}


def _salt(line: Line) -> int:
    return int(line.get("salt", 0))
