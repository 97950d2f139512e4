"""Which code a queue's cells ran with and would run with; refuses to mix two in one sweep.

The work dir of a job is read once for all queues of a command. A refusal names the files that differ between two
versions. Code from which only the project's own files differ is the version that a sweep has: sweeps of before ADR 22
shipped those files, and their cells, queues and manifests name that digest.

Code that could not start on a box is refused before there is a box: scripts with CRLF line ends; a script or a module
of the work dir that does not ship.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sweepstack.config.own_files import own_files
from sweepstack.core import git_source
from sweepstack.core.foreign_cells import same_config
from sweepstack.core.job import JobInput
from sweepstack.core.journal import CellProgress, Journal, started
from sweepstack.core.records import Again, Birth
from sweepstack.core.resources import QueueInputs
from sweepstack.core.workdir import NO_CODE, Shipment, collect, digest_of_files, located, no_code
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.launch.entries import on_another_box, ran_on_ended_boxes
from sweepstack.launch.line_ends import CrlfScript, crlf_scripts
from sweepstack.launch.retries import Retry, not_yet_recorded, recorded_retries
from sweepstack.launch.ship import members
from sweepstack.launch.unshipped_files import unshipped_scripts
from sweepstack.onbox.common.box_layout import short
from sweepstack.onbox.common.canonical import hex_of
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import ConfigError, EvidenceError, JournalDamaged, SweepstackError
from sweepstack.onbox.common.next_version import takes_new
from sweepstack.onbox.common.units import count
from sweepstack.operations.observe import observe
from sweepstack.provider.resources.base import Failure
from sweepstack.provider.session import Operation
from sweepstack.teardown.box_context import BoxAt

LISTED = 8
"""Number of versions that a refusal names."""
NAMED = 5
"""Number of cells that a line names."""
LOOK_AGAIN_SECONDS = 5.0
"""For so long another box's journal is not read again: the queues of one preview ask for the same ones."""


def complete(evidence: Evidence, old: QueueInputs | None, new: QueueInputs) -> tuple[QueueInputs, list[Failure]]:
    """Returns `new` with whole digests in `pins` and with the `retries` of its cells that are on record, or that the
    stack file asks for; and failures for pins that don't fit one version."""
    try:
        store = evidence.store
        known, asked = store.codes(), recorded_retries(store)
        record = store.launch(new.box_name, new.generation)
    except EvidenceError:
        known, asked, record = [], None, None
    own = {cell.name for cell in new.cells}
    if asked is None:
        retries = dict(old.retries or {}) if old else {}
    else:
        all_ = {name: retry.again for name, retry in asked.items()} | not_yet_recorded(new.retries or {}, asked)
        stayed = set(record.cells) & set(new.others) if record else set()
        retries = {name: again for name, again in sorted(all_.items()) if name in own or name in stayed}
    pins, failures = _pins(new.pins or {}, {*known, new.job.code, *((old.pins or {}).values() if old else ())}, own)
    versions = new.versions or (old.versions if old else None)
    changes = {"pins": pins or None, "retries": retries or None, "versions": versions}
    return new.model_copy(update=changes), failures


def _pins(
    pins: Mapping[str, str], known: Collection[str], own: Collection[str]
) -> tuple[dict[str, str], list[Failure]]:
    """Whole digests of the pins, and failures. A wrong pin of another box's cell is reported by that box's queue."""
    found: dict[str, str] = {}
    failures = []
    for cell, pin in sorted(pins.items()):
        prefix = hex_of(pin)
        fitting = sorted(code for code in known if hex_of(code).startswith(prefix))
        if len(fitting) == 1:
            found[cell] = fitting[0]
            continue
        found[cell] = pin
        if cell not in own:
            continue
        listed = ", ".join(short(code) for code in sorted(known)[:LISTED]) + (" …" if len(known) > LISTED else "")
        why = f"fits {len(fitting)} versions; write more digits" if fitting else "is no version of this sweep"
        failures.append(Failure("pins", f'{cell} is pinned to code: "{prefix}", which {why}. Known: {listed}'))
    return found, failures


@dataclass(frozen=True)
class CodeVersions:
    """`kept`: roster cells that ran, or run, and keep the code that they ran with: name → its code and state. `takers`:
    this queue's cells that would start with the job's code now, also those that it has until their new box takes them
    over."""

    kept: Mapping[str, CellProgress]
    takers: tuple[str, ...]
    failed: Mapping[str, CellProgress] = field(default_factory=dict)
    """This queue's cells that failed, whether they keep their version or take the new one."""

    def against(self, code: str, pins: Mapping[str, str]) -> dict[str, CellProgress]:
        """Those of `kept` that ran with other code than `code`, unless their pin says so."""
        return {
            name: progress
            for name, progress in self.kept.items()
            if progress.code is not None and progress.code not in (code, pins.get(name))
        }


def code_versions(
    evidence: Evidence, new: QueueInputs, own: Journal | None, counted: Mapping[str, Again] | None = None
) -> CodeVersions:
    """Read from this box's journal and those of all others of the sweep, live or as they were last pulled. `counted`:
    the retries of the stack file, of all boxes."""
    retries = _asked(evidence, new, counted or {})
    names = {*(cell.name for cell in new.cells), *new.others} - set(new.dropped)
    kept: dict[str, CellProgress] = {}
    codes: dict[str, str] = {}
    for journal in [*_others(evidence, new), *([own] if own else [])]:
        for name, progress in journal.cells.items():
            if progress.code is not None:
                codes[name] = progress.code
            if name in names and keeps(progress, retries.get(name), new.job.goes_across_code):
                kept[name] = progress
    for name, progress in kept.items():
        if progress.code is None and name in codes:  # the runner found it sealed: another journal knows its code
            kept[name] = CellProgress(name, progress.state, code=codes[name])
    pinned = new.pins or {}
    own_names = [*(cell.name for cell in new.cells), *_staying(evidence, new)]
    takers = (name for name in own_names if name not in kept and name not in pinned and name not in new.dropped)
    failed = {name: p for name in own_names if own and (p := own.cells.get(name)) is not None and p.state == "failed"}
    return CodeVersions(kept, tuple(takers), failed)


def _staying(evidence: Evidence, new: QueueInputs) -> list[str]:
    """Cells that this queue was given, and that the program now gives another box: they stay here until that box takes
    them over."""
    try:
        record = evidence.store.launch(new.box_name, new.generation)
    except EvidenceError:
        return []
    others = new.others
    return (
        sorted(name for name, digest in record.cells.items() if same_config(digest, others.get(name, "")))
        if record
        else []
    )


def _asked(evidence: Evidence, new: QueueInputs, counted: Mapping[str, Again]) -> dict[str, Again | Retry]:
    """Cell → the last retry that was asked for: of this queue's own cells by its inputs, of other boxes' by the record
    and by the stack file."""
    own: dict[str, Again | Retry] = dict(new.retries or {})
    try:
        record = recorded_retries(evidence.store)
        return {**record, **not_yet_recorded(counted, record), **own}
    except EvidenceError:
        return own


def keeps(progress: CellProgress, asked: Again | Retry | None = None, goes_on: bool = False) -> bool:
    """Whether a cell keeps the code that it was started with. One that failed without a checkpoint takes the new code;
    one with a checkpoint is asked for it by a retry that begins without one (`asked`: the last retry), or goes on from
    that with the new code (`goes_on`, `job.resume`)."""
    goes_on = goes_on and bool(progress.work)
    stays = progress.state == "failed" and not takes_new(progress.final, progress.saved, goes_on)
    if asked is not None and asked.retry > progress.retry:
        may_have = (progress.state == "running" and not goes_on) or (stays and bool(progress.saved))
        return may_have and asked.salt <= progress.retry
    return progress.state in ("sealed", "running") or stays


def mixing_refusal(
    standing: CodeVersions, new: QueueInputs, stack: str, files: Callable[[str], str] = lambda _: ""
) -> list[Failure]:
    """The failure if some cells would take new code while others keep theirs; empty if that is allowed. `files`: which
    files differ from those of a version of the code, in words."""
    others = standing.against(new.job.code, new.pins or {})
    if new.job.mixing == "allow" or not standing.takers or not others:
        return []
    code = Counter(progress.code for progress in others.values() if progress.code).most_common(1)[0][0]
    example = next(name for name in sorted(others))
    return [
        Failure(
            "job",
            f"{_described(standing, new, others)} ({example} …).{files(code)} A sweep does not mix code by mistake; "
            f"nothing was started. Next, one of: sweepctl retry --stack {stack} --all --from start (all cells run "
            "again with the new code, from step 0); "
            f'cells.add: [{{…, code: "{short(code)}"}}] (a new cell runs the old code); job.mixing: allow (mix them)',
        )
    ]


def unasked(evidence: Evidence, new: QueueInputs, own: Journal | None) -> list[Failure]:
    """The failures for cells that would begin at 0 unasked on a later box, as far as that can be told without the box:
    where a bucket keeps their checkpoints. Launching refuses the others."""
    job = new.job
    if job.goes_across_code or all(mount.mode != "MOUNT_CACHED" for mount in job.mounts or ()):
        return []
    names = {cell.name for cell in new.cells if own is None or not started(own.cells.get(cell.name))}
    try:
        before = ran_on_ended_boxes(evidence.store, new.box_name, new.generation, names - set(new.dropped))
    except EvidenceError:
        return []
    failures = []
    for cell in new.cells:
        again = (new.retries or {}).get(cell.name)
        line = {
            "config_digest": cell.config_digest,
            "code": (new.pins or {}).get(cell.name, job.code),
            "run": job.run,
            "env": job.env,
            "setup": job.setup or "",
            "salt": again.salt if again else 0,
        }
        try:
            on_another_box(line, before.get(cell.name), lambda *_: True)
        except SweepstackError as error:
            failures.append(Failure("job", str(error)))
    return failures


def change(standing: CodeVersions, old: QueueInputs, new: QueueInputs) -> str:
    """What a changed job means for this queue's cells, for the diff; "" if it changes no version."""
    parts = []
    others = standing.against(new.job.code, new.pins or {})
    if old.job.code != new.job.code:
        parts.append(_described(standing, new, others, before=old.job.code))
    own = {cell.name for cell in new.cells}
    ran = sum(1 for name in standing.kept if name in own)
    for name in ("run", "setup", "env"):
        if getattr(old.job, name) != getattr(new.job, name):
            parts.append(f"{name} changed: {len(standing.takers)} pending take it, {ran} that ran keep theirs")
    if new.job.goes_across_code and not old.job.goes_across_code:
        parts.append("resume: cells that fail go on from their checkpoints with new code")
    return "; ".join([*parts, *(_of_failed(standing, new) if parts else ())])


def _of_failed(standing: CodeVersions, new: QueueInputs) -> list[str]:
    """What becomes of the cells that failed: which start anew with the new version, or go on with it, and which keep
    theirs."""
    anew: list[str] = []
    going: list[str] = []
    others: list[str] = []
    for name, progress in sorted(standing.failed.items()):
        step = "" if progress.saved_step is None else f" of step {progress.saved_step}"
        again = (new.retries or {}).get(name)
        if name in standing.takers and new.job.goes_across_code and progress.work and progress.saved:
            fresh = again is not None and again.salt > progress.retry
            (anew if fresh else going).append(name if fresh else f"{name} from its checkpoint{step}")
        elif name in standing.takers:
            anew.append(name if progress.saved is not None else f"{name} (its checkpoints are not known)")
        elif name in standing.kept:
            goes = "stays failed" if progress.final and _no_retry(new, progress) else "goes on from it"
            others.append(f"{name} has a checkpoint{step}, keeps its version and {goes}")
    words = [f"failed, and start{'s' if len(anew) == 1 else ''} anew with it: {first_names(anew)}"] if anew else []
    words += (
        [f"failed, and go{'es' if len(going) == 1 else ''} on with new code: {first_names(going)}"] if going else []
    )
    words += others[:NAMED]
    words += [f"{len(others) - NAMED} more that failed keep theirs, too"] if len(others) > NAMED else []
    ways = "`sweepctl retry CELL --from start` takes the new one, from step 0; `job.resume: across-code` goes on in it"
    return words + ([ways] if others else [])


def _no_retry(new: QueueInputs, progress: CellProgress) -> bool:
    again = (new.retries or {}).get(progress.name)
    return again is None or again.retry <= progress.retry


def comings_and_goings(old: QueueInputs, new: QueueInputs, ran: Collection[str], own: Journal) -> str:
    """`2 cells more (lr0.01-seed0, lr0.3-seed1), 1 taken out (…)`; "" if the cells stay.

    `ran`: cells that were started on any box; `own`: this box's journal. A started cell stays with the box that has it,
    whichever box the program gives it to.
    """
    before, after = [cell.name for cell in old.cells], [cell.name for cell in new.cells]
    more, left = sorted(set(after) - set(before) - set(ran)), set(before) - set(after)
    move = sorted((left - set(ran) - set(new.dropped)) & set(new.others))
    fewer, stay = sorted(left - set(ran) - set(move)), sorted(left & set(ran) & set(own.cells) - set(new.dropped))
    parts = [f"{count(len(more), 'cell')} more ({first_names(more)})"] if more else []
    parts += [f"{len(move)} to move to another box ({first_names(move)})"] if move else []
    parts += [f"{len(fewer)} taken out ({first_names(fewer)})"] if fewer else []
    parts += (
        [f"{len(stay)} that started stay{'s' if len(stay) == 1 else ''} here ({first_names(stay)})"] if stay else []
    )
    retried = sorted(name for name, again in (new.retries or {}).items() if again != (old.retries or {}).get(name))
    parts += [f"{len(retried)} to run again ({first_names(retried)})"] if retried else []
    return ", ".join(parts)


def first_names(cells: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" … and {len(cells) - NAMED} more" if len(cells) > NAMED else ""
    return ", ".join(cells[:NAMED]) + more


def _described(
    standing: CodeVersions, new: QueueInputs, others: Mapping[str, CellProgress], *, before: str | None = None
) -> str:
    """`code a1→b2: 4 pending, 2 sealed with a1`."""
    counts = Counter((progress.state, progress.code or "") for progress in others.values())
    earlier = before or (counts.most_common(1)[0][0][1] if counts else "")
    kept = "".join(f", {count} {state} with {short(code)}" for (state, code), count in sorted(counts.items()))
    return f"code {short(earlier)}→{short(new.job.code)}: {len(standing.takers)} pending{kept}"


_lock = threading.Lock()
_asking: dict[tuple[str, str], threading.Lock] = {}
"""Platform and box → its lock: a box that does not answer delays only those who ask for this box."""
_seen: dict[tuple[str, str], tuple[float, Journal | None]] = {}


def _others(evidence: Evidence, new: QueueInputs) -> Iterable[Journal]:
    """The journals of the sweep's other boxes: live, else as they were last pulled. Earlier generations come first."""
    try:
        store = evidence.store
        births = store.births()
    except EvidenceError:
        return
    for birth in sorted(births, key=lambda birth: (birth.generation, birth.box)):
        if birth.native_id in (None, new.box):
            continue
        journal = _live(birth) if birth.ended_at is None else None
        if journal is None:
            try:
                journal = store.journal(birth.box, birth.generation)
            except (EvidenceError, JournalDamaged):
                continue
        if journal is not None:
            yield journal


def remember(birth: Birth, journal: Journal) -> None:
    """Keeps a journal that was just read: for `LOOK_AGAIN_SECONDS` it is used, and the box is not asked."""
    assert birth.native_id is not None
    with _lock:
        _seen[(birth.platform, birth.native_id)] = (time.monotonic(), journal)


def _live(birth: Birth) -> Journal | None:
    assert birth.native_id is not None
    box = (birth.platform, birth.native_id)
    with _lock:
        alone = _asking.setdefault(box, threading.Lock())
    with alone:
        when, journal = _seen.get(box, (0.0, None))
        if time.monotonic() - when > LOOK_AGAIN_SECONDS:
            journal = observe(BoxAt.of(birth), files=False)[0].journal
            _seen[box] = (time.monotonic(), journal)
        return journal


class WorkDir(NamedTuple):
    """`own`: how absolute paths begin that are no code (`config.project`). `shipment`: what ships; None where that is
    not the job's code any more."""

    path: Path
    own: tuple[str, ...]
    shipment: Shipment | None


def work_dir(op: Operation, job: JobInput) -> WorkDir:
    """Reads every file the first time. Raises ConfigError where it can't be had."""
    path, own = located(op.session.project_root, job.workdir, op.info), own_files(op.session.project_root)
    return WorkDir(path, own, _shipment(path, tuple(job.include or ()), own, job.code))


@functools.lru_cache(maxsize=8)
def _shipment(path: Path, include: tuple[str, ...], own: tuple[str, ...], code: str) -> Shipment | None:
    shipment = collect(path, include, own)
    return shipment if shipment.digest == code else None


FILES_LISTED = 8
"""Number of files that a refusal names."""


def changed_files(op: Operation, evidence: Evidence, new: QueueInputs, old: str) -> str:
    """` Changed since a1f3c2: train.py, data.csv (new), old.py (gone).`; "" where one of the two versions can't be read
    here, or files that are shipped now are not those of the job's code any more."""
    try:
        archive = evidence.store.read_code(old)
        if archive is None:
            return ""
        before, there = members(archive, old), work_dir(op, new.job)
    except (SweepstackError, OSError):
        return ""
    if there.shipment is None:
        return ""
    after = {file.path: (file.mode, file.sha256) for file in there.shipment.files}
    apart = no_code(there.path, there.own, before)  # an older version held the project's own files
    found = _differing(
        {name: facts for name, facts in before.items() if name in after or not name.startswith(apart)}, after
    )
    more = f" and {len(found) - FILES_LISTED} more" if len(found) > FILES_LISTED else ""
    return f" Changed since {short(old)}: {', '.join(found[:FILES_LISTED])}{more}." if found else ""


def _differing(before: Mapping[str, tuple[int, str]], now: Mapping[str, tuple[int, str]]) -> list[str]:
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    return [f"{name}{' (new)' if name not in before else ' (gone)' if name not in now else ''}" for name in names]


def with_code_kept(op: Operation, evidence: Evidence, old: QueueInputs | None, new: QueueInputs) -> QueueInputs:
    """`new`, with the version that the sweep has where the evidence shows that only the project's own files differ.

    Reads archives from the evidence where the code is new there. What can't be read is taken for another version.
    """
    job = new.job
    try:
        known = evidence.store.codes()
        if job.code in (NO_CODE, *known) or git_source.parse(job.workdir) is not None:
            return new
        last = [old.job.code] if old is not None and old.job.code in known else []
        versions = tuple(dict.fromkeys((*last, *known)))
        same = _same_code(evidence, versions, work_dir(op, job)) if versions else None
    except (ConfigError, EvidenceError):
        return new
    return new if same is None else new.model_copy(update={"job": job.model_copy(update={"code": same})})


def _same_code(evidence: Evidence, versions: tuple[str, ...], there: WorkDir) -> str | None:
    """The first version whose archive has the files of the work dir, and nothing else that is code."""
    if there.shipment is None:
        return None
    now = {file.path for file in there.shipment.files}
    for version in versions:
        if version not in _archives:
            _archives[version] = members(evidence.store.read_code(version) or b"", version)
        had = _archives[version]
        apart = no_code(there.path, there.own, had)
        kept = [(name, *facts) for name, facts in had.items() if name in now or not name.startswith(apart)]
        if digest_of_files(kept) == there.shipment.digest:
            return version
    return None


_archives: dict[str, dict[str, tuple[int, str]]] = {}
"""Version → the files of its archive: the queues of one command ask for the same ones."""


def refused_scripts(op: Operation, evidence: Evidence, standing: CodeVersions, new: QueueInputs) -> list[Failure]:
    """The failure if cells would start with new code that has scripts with CRLF line ends; a warning for those that the
    job does not reach.

    Code that is in the evidence was shipped before: whether its scripts run is known there, and a sweep that goes on
    must not need other code for it.
    """
    if not standing.takers or new.job.code == NO_CODE or new.job.code in _shipped(evidence):
        return []
    try:
        there = work_dir(op, new.job)
    except ConfigError:
        return []  # shipping says what is wrong with it
    smoke = new.job.smoke
    found = _crlf(there, (new.job.run, new.job.setup or "", smoke.run if smoke is not None else ""))
    if idle := [script.problem for script in found if not script.runs]:
        more = f" So do {len(idle) - 1:,} more." if len(idle) > 1 else ""
        op.warn(f"{idle[0]}. No failure: no command of the job names it, and it can't be executed as it is.{more}")
    runs = [script.problem for script in found if script.runs]
    if not runs:
        return []
    return [Failure("job", "\n  ".join(["these scripts would fail on the box; nothing was started:", *runs]))]


def unstartable(op: Operation, standing: CodeVersions, old: QueueInputs | None, new: QueueInputs) -> list[Failure]:
    """The failure if cells would start with a script, or a module of the work dir, that does not ship. A warning where
    the set-up may bring it to the box, or Python may look elsewhere.

    A command and code that are on the box already are not asked about again.
    """
    job = new.job
    if not standing.takers or (old is not None and (old.job.run, old.job.code) == (job.run, job.code)):
        return []
    try:
        found = _missing(work_dir(op, job), job.run)
    except ConfigError:
        return []  # shipping says what is wrong with it
    if not found:
        return []
    if job.setup or "PYTHONPATH" in job.env:
        op.warn("\n  ".join(["the box will lack this, unless job.setup brings it there:", *found]))
        return []
    return [Failure("job", "\n  ".join(["no cell could start on the box; nothing was started:", *found]))]


@functools.lru_cache(maxsize=8)
def _missing(there: WorkDir, run: str) -> tuple[str, ...]:
    if there.shipment is None:
        return ()
    return tuple(unshipped_scripts(there.path, {file.path for file in there.shipment.files}, run))


@functools.lru_cache(maxsize=8)
def _crlf(there: WorkDir, commands: tuple[str, ...]) -> tuple[CrlfScript, ...]:
    """The problems of one version of the code: the queues of one preview ask for the same one."""
    return tuple(crlf_scripts(there.path, there.shipment.files, commands)) if there.shipment is not None else ()


def _shipped(evidence: Evidence) -> list[str]:
    try:
        return evidence.store.codes()
    except EvidenceError:
        return []
