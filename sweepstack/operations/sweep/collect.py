"""Collects what a status shows: the engine's state, the evidence's records, the answers of the boxes.

Boxes are asked in parallel, each with a deadline. A box that does not answer is unknown, never gone; a host that does
not is not asked again by later steps, and the likely cause is tested. Of a box its last heartbeat (a patrol line) and
the last points of its cells' curves are read, too. What it sends is data, and is read in pieces of limited size; if the
connection breaks, what was read before stays.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from sweepstack.billing.ledger import spent
from sweepstack.billing.unlaunched import unheld
from sweepstack.channel import prefetch
from sweepstack.channel.ssh import mtu as ssh_mtu
from sweepstack.core import git_source
from sweepstack.core.bucket_address import SCHEME
from sweepstack.core.budget import Budget
from sweepstack.core.curve_files import is_text, rows_of
from sweepstack.core.heartbeat import INTERVAL, TAIL_BYTES, Patrol, merged, parse_patrol
from sweepstack.core.job import MetricsInput
from sweepstack.core.journal import CellProgress, Journal, noted
from sweepstack.core.metrics import Point, last_row, last_rows, last_values, nan_since, number, point
from sweepstack.core.observation import Existence, Observation
from sweepstack.core.parallel import in_parallel
from sweepstack.core.records import Approval, Birth, Receipt
from sweepstack.core.workdir import located
from sweepstack.evidence import unsealed
from sweepstack.evidence.cell_store import find_seal
from sweepstack.evidence.check_files import check_cells
from sweepstack.evidence.manifest import manifest_digest
from sweepstack.evidence.search_log import decided_prunes
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.agent.channel import Channel
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.dataclass import dataclass, field, replace
from sweepstack.onbox.common.errors import ConfigError, EvidenceError, SweepstackError
from sweepstack.onbox.common.groups import is_group, means
from sweepstack.onbox.common.placeholders import PLACEHOLDER
from sweepstack.onbox.host.platform import BoxRecord, Phase, Platform
from sweepstack.operations.balances import left_at
from sweepstack.operations.drift import seen_drift
from sweepstack.operations.observe import Ahead, keep_journals, observe
from sweepstack.operations.strays.beside_sweep import SEARCH_SECONDS, Search, cells_of_forgotten, identity_of, search
from sweepstack.operations.strays.other_backends import adopt_command, held_by_another, renamed_from
from sweepstack.operations.strays.volumes import leftovers
from sweepstack.operations.sweep.accepted_facts import candidates
from sweepstack.operations.sweep.cell_file import files_on_box
from sweepstack.operations.sweep.egress import prices
from sweepstack.operations.sweep.engine_mend import engine_mend, lock_left, put_back
from sweepstack.operations.sweep.roster_diff import rosters
from sweepstack.operations.sweep.sources import Sources
from sweepstack.operations.sweep.target import Target, approval_of
from sweepstack.platforms.registry import has_address, load_platform, payer, volume_channel
from sweepstack.profiles.load import load_profile
from sweepstack.status.engine.state import BoxEntry, StackState
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.teardown import who_signed
from sweepstack.teardown.abandonment import recorded_approvals
from sweepstack.teardown.box_check import BoxEnding
from sweepstack.teardown.box_context import BoxContext
from sweepstack.teardown.check import may_end
from sweepstack.teardown.close_box import still_billed
from sweepstack.teardown.handover_records import known_handover
from sweepstack.teardown.launched import copied_journal
from sweepstack.teardown.policy_check import binds
from sweepstack.teardown.revocation import torn
from sweepstack.teardown.signatures import sweep_of

ValueT = TypeVar("ValueT")


def take_snapshot(sources: Sources, *, files: bool = True) -> Snapshot:
    """The snapshot now. Blocks for `LOOK_SECONDS` at most for the boxes; costs nothing. Reads, and keeps the journals
    that it read.

    `files` False: the files on a box are listed only if an approval covers its end. Without one the box is locked
    whatever lies on it, and listing the folders of ten thousand cells takes longer than all other reads.
    """
    state, store, target = sources.state, sources.store, sources.target
    now = datetime.now(UTC)
    notes: list[str] = []
    read = _safely(lambda: tuple(store.births()) if store else None, None, notes)
    births = read or ()
    refuses = [*_unwritable(target, store)] if state.boxes else []
    costs = _safely(lambda: spent(store, now, read) if store and read is not None else None, None, notes)
    proposed = approval_of(target, notes)
    plan = rosters(target, state)
    digest, receipt, broken = _receipt(store, notes)  # first: the checks of all boxes need it
    look = _Look(sources, births, proposed, now)
    tasks: dict[Any, Callable[[], Any]] = {index: look.at(box, files) for index, box in enumerate(state.boxes)}
    for adapter, index in {box.adapter: index for index, box in enumerate(state.boxes)}.items():
        if has_address(adapter):
            tasks[index], tasks[f"{adapter} tried"] = beside(adapter, tasks[index])
    payers = {payer(box.adapter, box.platform or "") for box in state.boxes}
    accounts = sorted(payers) if target.evidence is None else []
    found = in_parallel(tasks | {name: partial(left_at, name) for name in accounts}, LOOK_SECONDS)
    box_snapshots = tuple(found.get(index) or look.unanswered(box) for index, box in enumerate(state.boxes))
    others, left = Search(searched=False), ()
    if target.evidence is None:  # with --evidence no other source is asked
        both: dict[str, Callable[[], Any]] = {
            "search": lambda: search(
                state, store, births, target.file, sources.evidence or "", look.asked, late_hosts(box_snapshots)
            ),
            "left": lambda: leftovers(state, store, births),
            "cut": lambda: _kept(store, box_snapshots),
        }
        told = in_parallel(both, SEARCH_SECONDS + 2)
        left = told.get("left", ())
        notes += told.get("cut", ())
        others = told.get("search") or Search(
            searched=False, notes=("the platforms did not say in time what they run for this sweep",)
        )
    box_snapshots = tuple(remedied(box_snapshot) for box_snapshot in box_snapshots)
    locked = [one.box for one in box_snapshots if not one.verdict.allowed]
    if locked and target.evidence is None:
        refuses += _unprofiled(target)
        refuses += _elsewhere(target, store)
        notes += _without_workdir(target)
    if store is not None and read is not None:
        refuses += _unborn(store, locked, births)
    notes += refuses
    orphans = others.orphans
    if orphans and (project := renamed_from(store, target.root)):
        again = f"pulumi up --stack {target.stack}    (after name: {project} is in Pulumi.yaml again: adopts it)"
        orphans = tuple(replace(one, next=again, renamed=True) for one in orphans)
    elif orphans and held_by_another(store, target.root):
        orphans = tuple(replace(one, next=adopt_command(target.stack)) for one in orphans)
    elif not sources.known:  # `pulumi up` needs the stack in its backend
        init = f"pulumi stack init {target.stack} && pulumi up"
        orphans = tuple(replace(one, next=one.next.replace("pulumi up", init, 1)) for one in orphans)
    needs_file = bool(state.boxes) and not target.file.path.exists()  # for the approval of a `finish`
    mend = engine_mend(sources)
    lock = lock_left(target)
    why = [found.why for found in (mend, lock) if found]
    snapshot = Snapshot(
        state=state,
        now=now,
        roster=plan.cells,
        dropped=plan.dropped,
        pruned=_safely(lambda: _pruned(store, plan.dropped), frozenset(), notes),
        box_snapshots=box_snapshots,
        births=births,
        unheld=_safely(lambda: unheld(store, births, now) if store else (), (), notes),
        spent=costs,
        budget=_budget(state, notes),
        losses=tuple(_safely(lambda: store.losses() if store else [], [], notes)),
        approval=proposed,
        weaker_policy=_weaker_policy(state, store),
        teardown=_safely(lambda: store.teardown() if store else None, None, notes),
        receipt=receipt,
        receipt_digest=digest,
        broken=broken,
        aside=_safely(lambda: _aside(store, receipt, broken), frozenset(), notes),
        saved=frozenset(
            name for box_snapshot in box_snapshots if box_snapshot.lost for name in _saved(box_snapshot, store)
        ),
        waived=_waived(digest, [proposed, *(box.approval for box in state.boxes)]),
        orphans=orphans,
        asked=() if target.is_store else target.file.running_boxes(),
        evidence=sources.evidence,
        evidence_problem=sources.problem,
        evidence_back=sources.moved_back,
        file_back=put_back(target, store) if store is not None and (plan.unreadable or needs_file) else "",
        finish_refused=store is not None and (read is None or bool(refuses)),
        hindered=bool(notes or others.notes or plan.unreadable or needs_file or sources.problem),
        named_with=sources.named_with,
        known=sources.known,
        never_up=sources.never_up,
        searched=others.searched and sources.store is not None and read is not None and not state.problems,
        balances=tuple(balance for name in accounts if (balance := found.get(name)) is not None),
        egress=prices(target, ((box.native_id, box.platform, box.adapter) for box in state.boxes), births),
        left=left,
        elsewhere=_safely(lambda: cells_of_forgotten(state, store, orphans), {}, notes),
        still_billed=tuple(_safely(lambda: still_billed(store, costs, births) if store and costs else [], [], notes)),
        engine_mend=mend.command if mend else "",
        left_lock=lock.command if lock else "",
        revocations_torn=store is not None and torn(store),
        # Last: what is read for the arguments above adds to them.
        notes=tuple(dict.fromkeys([*why, *plan.notes, *others.notes, *notes])),
    )
    return replace(snapshot, tended=_tended(store, now)) if snapshot.brought_later else snapshot


def _tended(store: EvidenceStore | None, now: datetime) -> bool:
    from sweepstack.operations.tend import is_tended  # few sweeps have cells that come later

    return _safely(lambda: store is not None and is_tended(store, now), False, [])


def _pruned(store: EvidenceStore | None, dropped: Mapping[str, str]) -> frozenset[str]:
    return decided_prunes(store.objects, dropped) if store is not None else frozenset()


def _kept(store: EvidenceStore | None, box_snapshots: Iterable[BoxSnapshot]) -> list[str]:
    """Keeps the journals that were read of boxes of this evidence. Returns what is wrong with them, beside a copy."""
    if store is None:
        return []
    ours = (one for one in box_snapshots if one.box.identity == store.marker.identity)
    return keep_journals(store, {(one.box.name, one.box.generation): one.seen.journal for one in ours})


def _unwritable(target: Target, store: EvidenceStore | None) -> Iterator[str]:
    """A note for each place that a `finish` writes and that can't be written."""
    if store is not None and not store.writable():
        yield f"{store.shown} can't be written: nothing is pulled or verified"
    folder = target.file.path.parent
    if target.evidence is None and folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
        yield f"{target.file.shown} can't be written: no approval can be given there"


def _unprofiled(target: Target) -> Iterator[str]:
    """A note for each profile that the stack file names, which the next `up` reads, and that does not hold."""
    for name in candidates(target):
        try:
            load_profile(name)
        except ConfigError as error:
            yield f"no `pulumi up` goes through: {' '.join(str(error).split())}"


def _without_workdir(target: Target) -> Iterator[str]:
    """A note if the work dir that the stack file names is not there."""
    with contextlib.suppress(ConfigError):
        workdir = (target.file.sweep().get("job") or {}).get("workdir")
        if (
            isinstance(workdir, str)
            and git_source.parse(workdir) is None
            and not located(target.root, workdir).is_dir()
        ):
            yield f"no `pulumi up` goes through: job.workdir: {workdir} is not a folder"


def _elsewhere(target: Target, store: EvidenceStore | None) -> Iterator[str]:
    """A note if the stack file names another folder than that of the evidence."""
    with contextlib.suppress(SweepstackError):
        wanted = target.likely_evidence()
        if store is not None and wanted and wanted != store.objects.uri and not wanted.startswith(SCHEME):
            yield f"no `pulumi up` goes through until pull_to names the folder of the evidence again: {store.shown}"


def _unborn(store: EvidenceStore, boxes: Sequence[BoxEntry], births: Sequence[Birth]) -> Iterator[str]:
    """A note for each of these boxes that no birth record names. One that was imported has none until it is taken."""
    known = {birth.native_id for birth in births}
    for box in boxes:
        if box.imported:
            yield f"box {box.name} was imported, and no `pulumi up` has taken it: nothing of this sweep runs on it"
        elif box.native_id not in known:
            yield f"no birth record in {store.shown} names box {box.name}: nothing that it sealed is verified"


@dataclass(frozen=True)
class _Look:
    """A look at the boxes. `proposed`: the approval in the stack file; `asked`: adapter → its platform, once a box of
    it was asked: it lists the sweep's boxes, too."""

    sources: Sources
    births: tuple[Birth, ...]
    proposed: Approval | None
    now: datetime
    asked: dict[str, Platform] = field(default_factory=dict)

    def at(self, box: BoxEntry, files: bool) -> Callable[[], BoxSnapshot]:
        """A call that looks at this box."""
        known = box.context()
        first = next(other for other in self.sources.state.boxes if other.adapter == box.adapter) is box
        queue = self.sources.state.queue_of(box.native_id)
        identity = identity_of(self.sources.state, self.sources.store)

        def seen() -> BoxSnapshot:
            platform = None
            try:
                platform = known.platform
                tagged = box_layout.tag_prefix(identity) if first and identity else ""
                also = Ahead(questions(queue.metrics if queue else None), tagged)
                listed = files or _approved(known, box, self.proposed)
                observation, record = observe(known, files=listed, also=also, rented=box.teardown.rented)
            except SweepstackError as error:
                observation, record = Observation(Existence.UNKNOWN, note=str(error)), None
            if first and platform is not None:
                self.asked[box.adapter] = platform
            box_snapshot = self.snapshot(known, box, observation, record)
            return (
                with_telemetry(box_snapshot, platform)
                if box_snapshot.reachable and platform is not None
                else box_snapshot
            )

        return seen

    def unanswered(self, box: BoxEntry) -> BoxSnapshot:
        """A box that did not answer in time."""
        return self.snapshot(box.context(), box, Observation(Existence.UNKNOWN, note=LATE), None)

    def snapshot(self, known: BoxContext, box: BoxEntry, seen: Observation, record: BoxRecord | None) -> BoxSnapshot:
        """The box as it was seen, with what the records say of it."""
        store, state, proposed, now = self.sources.store, self.sources.state, self.proposed, self.now
        approval, unreadable = box.approval, box.unread.get("approval")
        verdict = may_end(BoxEnding(known, approval, seen), now=now, full=False)
        checked = [("the state", approval, verdict.unsigned)]
        for recorded in () if verdict.allowed else recorded_approvals(known):  # a delete uses it if the state has none
            if recorded == approval:
                continue
            by_record = may_end(BoxEnding(known, recorded, seen), now=now, full=False)
            checked.append(("the records", recorded, by_record.unsigned))
            if by_record.allowed:
                verdict = by_record
                break
        if unreadable and not verdict.allowed:
            verdict.reasons.insert(0, f"the approval in the state can't be read: {unreadable}")
        gone = seen.existence is Existence.GONE
        handed = known_handover(known) if has_address(box.adapter) and not gone else None
        if handed is not None and handed.verb == "destroy" and not verdict.allowed:
            verdict.reasons[:] = ["its end was allowed and begun, and is not proved"]
        birth = next((birth for birth in self.births if birth.native_id == box.native_id), None)
        launch = _safely(lambda: store.launch(box.name, box.generation) if store else None, None, [])
        gate = state.gate_of(box.native_id)
        queue = state.queue_of(box.native_id)
        journal = seen.journal or copied_journal(store, box.name, box.generation)
        by_file = (
            may_end(BoxEnding(known, proposed, seen), now=now, full=False)
            if proposed and proposed != approval
            else None
        )
        checked += [("the stack file", proposed, by_file.unsigned)] if by_file else []
        facts = known.facts
        return BoxSnapshot(
            box=box,
            queue=queue,
            launch=launch,
            seen=seen,
            verdict=verdict,
            phase="gone" if gone else record.phase.value if record else "unknown",
            where=record.location if record else "",
            price_per_hour=_price(box, record, birth),
            since=(record.created_at if record else None) or box.created_at or (birth.created_at if birth else None),
            journal=journal,
            copied=journal is not None and seen.journal is None and not gone,
            proposed=by_file,
            approvals=who_signed.signature_states(
                checked, facts.native_id, sweep_of(facts, store), binds(facts, store), now=now
            ),
            claims_cleared=any(one.clearance.startswith("cleared") for one in (box, gate) if one is not None),
            handed=handed,
            ends_at=record.ends_at if record else None,
            bare=_bare(record, queue.job.gpus or 0 if queue else 0),
            said=record.note if record else "",
            told=record.told if record else None,
            drift=seen_drift(known, box, record, seen, birth) if record and handed is None else {},
        )


def _approved(known: BoxContext, box: BoxEntry, proposed: Approval | None) -> bool:
    """Whether an approval, valid or not, exists for this box, so that `may_end` has something to check."""
    return bool(proposed or box.approval) or next(iter(recorded_approvals(known)), None) is not None


def _bare(record: BoxRecord | None, promised: int) -> str:
    if record is None or record.gpu_count is None or record.gpu_count >= promised:
        return ""
    return f"{record.gpu_count} of {promised}"


def unrented(target: Target, snapshot: Snapshot) -> tuple[str, ...]:
    """The boxes that the next `pulumi up` would rent.

    The stack file wants them, and no box of that name is in the state or recorded as rented. A finish would have to end
    them too. Empty if no cell is left to train.
    """
    try:
        boxes = target.file.sweep().get("boxes") if snapshot.unstarted or snapshot.broken else None
    except ConfigError:
        return ()
    there = {box_snapshot.box.name for box_snapshot in snapshot.box_snapshots if not box_snapshot.gone}
    there |= {
        birth.box for birth in snapshot.births if birth.ended_at is None and birth.native_id not in _gone(snapshot)
    }
    wanted = boxes.items() if isinstance(boxes, dict) else ()
    ends = {name for name, box in wanted if isinstance(box, dict) and box.get("want") == "gone"}
    return tuple(str(name) for name, _ in wanted if name not in there | ends)


def in_no_copy(store: EvidenceStore | None, named: Sequence[BoxSnapshot], verb: str) -> dict[str, str]:
    """box → files of attempts without a seal that are in no copy and that this verb deletes."""
    found = {}
    for box_snapshot in named:
        kills = box_snapshot.box.facts(verb).kills
        if kills and box_layout.HOME.split("/")[0] not in kills:
            continue
        dead = box_snapshot.seen.runner_alive is False
        try:
            if store is None:
                raise EvidenceError("the evidence can't be read")
            words = unsealed.dying(
                store, box_snapshot.box.name, box_snapshot.box.generation, box_snapshot.journal, dead=dead
            )
        except EvidenceError as error:
            words = f"logs of failed attempts, if there are any: {error}"
        if words:
            found[box_snapshot.box.name] = words
    return found


def _weaker_policy(state: StackState, store: EvidenceStore | None) -> Approval | None:
    if not any(box.policy is not None for box in state.boxes):
        return None
    from sweepstack.teardown.policy_in_force import waiting_approval  # most sweeps have no policy

    return waiting_approval(store)


def _gone(snapshot: Snapshot) -> set[str]:
    return {box_snapshot.box.native_id for box_snapshot in snapshot.box_snapshots if box_snapshot.gone}


def _saved(box_snapshot: BoxSnapshot, store: EvidenceStore | None) -> Iterator[str]:
    """The cells that were sealed on a box that is gone and that are not lost with it."""
    progresses = box_snapshot.journal.cells.values() if box_snapshot.journal else ()
    sealed = {one.name: one.manifest for one in progresses if one.state == "sealed" and one.manifest}
    if not sealed:
        return
    volumes = box_layout.surviving(box_snapshot.box.teardown.kills, box_snapshot.box.mounts)
    channels = []
    try:
        for volume in volumes:
            channels.append(volume_channel(box_snapshot.box.context().platform, volume, box_layout.DURABLE))
        for name, manifest in sealed.items():
            data = store.copies.manifest(name) if store is not None else None
            path = f"{box_layout.DURABLE}/{box_layout.sealed_dir(box_snapshot.box.identity, name)}/manifest.json"
            copied = data is not None and manifest_digest(data) == manifest
            if copied or any(channel.size(path) is not None for channel in channels):
                yield name
    except (SweepstackError, OSError):
        yield from sealed


def _receipt(store: EvidenceStore | None, notes: list[str]) -> tuple[str | None, Receipt | None, dict[str, str]]:
    """The latest receipt with its digest, and the verified cells that are missing or changed since, with why."""
    if store is None:
        return None, None, {}
    try:
        digest = store.latest_receipt()
        if digest is None:
            return None, None, {}
        receipt = store.receipt(digest)
        verified = [cell.name for cell in receipt.cells if cell.has_result]
        checked = check_cells(store, receipt, verified, full=False)
        return digest, receipt, {name: "; ".join(reasons) for name, reasons in checked.items() if reasons}
    except EvidenceError as error:
        notes.append(f"the latest receipt can't be used: {error}")
        return None, None, {}


def _aside(store: EvidenceStore | None, receipt: Receipt | None, broken: Mapping[str, str]) -> frozenset[str]:
    """Of the cells whose copy is not what the receipt says: those that have that copy still, put aside."""
    if store is None or receipt is None or not broken:
        return frozenset()
    seals = {cell.name: cell.result for cell in receipt.cells}
    held = ((name, seals[name]) for name in broken)
    return frozenset(name for name, seal in held if seal and find_seal(store.copies, name, seal, aside=True))


def _waived(digest: str | None, approvals: Iterable[Approval | None]) -> dict[str, str]:
    """The cells that the approvals for this receipt waive, each with its reason."""
    good = [one for one in approvals if one is not None and one.receipt is not None and one.receipt == digest]
    return {waiver.cell: waiver.reason for one in good for waiver in one.waive}


def _budget(state: StackState, notes: list[str]) -> Budget | None:
    """The budget as of the last `up`."""
    if state.identity is None:
        return None
    if "budget" in state.identity.unread:
        notes.append(f"the budget in the state can't be read; pulumi up --stack {state.stack} writes it again")
    return state.identity.budget


def _price(box: BoxEntry, record: BoxRecord | None, birth: Birth | None) -> float | None:
    """USD per hour now. For a stopped box the platform's price, else the profile's."""
    if record is not None and record.phase is Phase.STOPPED:
        return record.bills_at_rest(box.teardown.stop.price_per_hour if box.teardown.stop else None)
    return _first(
        record.price_per_hour if record else None, box.price_per_hour, birth.price_per_hour if birth else None
    )


def _safely(ask: Callable[[], ValueT], otherwise: ValueT, notes: list[str]) -> ValueT:
    try:
        return ask()
    except EvidenceError as error:
        notes.append(str(error))
        return otherwise


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


END_BYTES = 8192
NOTE_BYTES = 256
"""Of `lease.lock`."""
WHOLE_BYTES = 8 << 20
"""In a longer metrics file only the end is searched for the first NaN."""
SHOWN = 60
"""Up to so many cells the curve of each is read; of more cells, those that run or failed, and some sealed ones."""
SAMPLE = 3


def questions(metrics: MetricsInput | None) -> list[prefetch.Question]:
    """The reads that `with_telemetry` will make, so that the caller can prefetch them."""
    # A command that asks for these has looked at the box, which renews its lease.
    asked = [prefetch.tails([box_layout.PATROL, box_layout.SPEC], TAIL_BYTES), prefetch.touch(box_layout.LOOKED)]
    asked.append(prefetch.tails([box_layout.LEASE_LOCK], NOTE_BYTES))
    if metrics is None or is_group(metrics.file) or PLACEHOLDER.search(metrics.file):  # another name in each cell
        return asked
    return [*asked, prefetch.newest(box_layout.CELLS, f"out/{metrics.file}", END_BYTES)]


def with_telemetry(box_snapshot: BoxSnapshot, platform: Platform) -> BoxSnapshot:
    """The box with its heartbeat and the curves of its running cells. Blocks for a few reads of the box."""
    try:
        channel = platform.channel(box_snapshot.box.native_id, box_snapshot.box.account)
        _, note = channel.tails([box_layout.LEASE_LOCK], NOTE_BYTES).get(box_layout.LEASE_LOCK, (0, b""))
        box_snapshot = replace(box_snapshot, patrol=_patrol(channel, box_snapshot.journal), lease_note=noted(note))
        metrics = box_snapshot.queue.metrics if box_snapshot.queue else None
        if metrics is None or box_snapshot.journal is None:
            return box_snapshot
        points = {}
        chosen = list(_chosen(list(box_snapshot.journal.cells.values())))
        params = {cell.name: cell.params for cell in box_snapshot.queue.cells} if box_snapshot.queue else {}
        own = {progress.name: metrics.of(progress.name, params.get(progress.name, {})) for progress in chosen}
        paths = {progress.name: _curve_path(progress, own[progress.name]) for progress in chosen}
        if is_group(metrics.file) or not is_text(metrics.file):
            whole = whole_points(channel, {name: (path, own[name]) for name, path in paths.items()})
            return replace(box_snapshot, points=whole)
        tails = channel.tails(list(paths.values()), END_BYTES)
        for progress in chosen:
            found = read_point(channel, progress, own[progress.name], tails.get(paths[progress.name]))
            if found is not None:
                points[progress.name] = found
        return replace(box_snapshot, points=points)
    except (SweepstackError, OSError):
        return box_snapshot


def _patrol(channel: Channel, journal: Journal | None) -> Patrol | None:
    """The box's last heartbeat; of several workers, of all of which no end is known."""
    if journal is None or not journal.workers:
        return last_patrol(channel)
    paths = {box_layout.worker_patrol(one.name): one for one in journal.workers.values() if not one.ended}
    tails = channel.tails([*paths, box_layout.SPEC], TAIL_BYTES)
    interval = _interval(tails.get(box_layout.SPEC, (0, b""))[1])
    lines = {one.name: parse_patrol(tails.get(path, (0, b""))[1], interval) for path, one in paths.items()}
    return merged({name: line for name, line in lines.items() if line is not None})


def last_patrol(channel: Channel) -> Patrol | None:
    """The box's last heartbeat; None before the first. Raises Unreachable."""
    tails = channel.tails([box_layout.PATROL, box_layout.SPEC], TAIL_BYTES)
    size, data = tails.get(box_layout.PATROL, (0, b""))
    if not size:
        return None
    whole, spec = tails.get(box_layout.SPEC, (0, b""))
    if len(spec) < whole:
        spec = channel.read(box_layout.SPEC)
    return parse_patrol(data, _interval(spec))


def _interval(spec: bytes) -> float:
    """The seconds between two heartbeats, from the box's spec."""
    try:
        return number(json.loads(spec).get("patrol_seconds")) or INTERVAL
    except (ValueError, AttributeError, RecursionError):
        return INTERVAL


def _chosen(cells: Sequence[CellProgress]) -> Iterable[CellProgress]:
    """The cells whose curve is read: all of a small sweep, else those that run or failed, and the last few sealed."""
    begun = [cell for cell in cells if cell.attempts and cell.state in ("running", "failed", "sealed")]
    if len(begun) <= SHOWN:
        return begun
    open_ones = [cell for cell in begun if cell.state == "running"]
    open_ones += [cell for cell in begun if cell.state == "failed"]
    return open_ones[:SHOWN] + [cell for cell in begun if cell.state == "sealed"][-SAMPLE:]


def _curve_path(progress: CellProgress, metrics: MetricsInput) -> str:
    return f"{box_layout.attempt_dir(progress.name, progress.attempts)}/out/{metrics.file}"


def read_point(
    channel: Channel, progress: CellProgress, metrics: MetricsInput, tail: tuple[int, bytes] | None
) -> Point | None:
    """The last point of a cell's curve; None before the first.

    `tail`: size and end of the metrics file, if they were read already; more is read if that is not enough.
    """
    path = _curve_path(progress, metrics)
    size, data = tail or (0, b"")
    if not size:
        return None

    def read(offset: int, limit: int) -> bytes:
        begin = offset - (size - len(data))
        return data[begin : begin + limit] if begin >= 0 else channel.read(path, offset=offset, limit=limit)

    found = point(last_row(read, size, metrics.file, END_BYTES), metrics.x, metrics.y)
    if found is None or found.y is None or math.isfinite(found.y):
        return found
    rows = last_rows(read, size, metrics.file, WHOLE_BYTES)
    return replace(found, nan_since=nan_since(rows, metrics.x, metrics.y))


def whole_points(channel: Channel, curves: Mapping[str, tuple[str, MetricsInput]]) -> dict[str, Point]:
    """The last point of each cell (path, metrics) whose files are read whole, in two requests: those of a format that
    is no text, or that a pattern means. None of one that is damaged, or for which `AT_ONCE_BYTES` do not suffice."""
    there = files_on_box(channel, [path for path, _ in curves.values()])
    tails = channel.tails(there, min(WHOLE_BYTES, AT_ONCE_BYTES // max(len(there), 1)))
    found: dict[str, Point] = {}
    for name, (pattern, metrics) in curves.items():
        parts = [(path, *tails[path]) for path in there if path in tails and means(pattern, path)]
        try:
            if any(len(data) < size for _, size, data in parts):
                continue
            rows = rows_of(metrics.file, [(path, data) for path, _, data in parts])
        except SweepstackError:
            continue
        last = {**(rows[-1] if rows else {}), **last_values(rows, metrics.y)}
        one = point(last, metrics.x, metrics.y)
        if one is not None:
            since = nan_since([*rows, last], metrics.x, metrics.y)
            found[name] = replace(one, nan_since=since)
    return found


AT_ONCE_BYTES = 32 << 20
"""Of all metrics files of a box that are read whole, for one look."""
LOOK_SECONDS = 20.0
"""The most seconds for one box to answer all questions."""
LATE = f"it did not answer within {LOOK_SECONDS:.0f} s"
TRY_SECONDS = 5.0
"""Seconds without an answer after which a test for the cause starts, while the command still waits for the box."""


def late_hosts(box_snapshots: Iterable[BoxSnapshot]) -> frozenset[str]:
    """The hosts with no box that answered in time. Asking them again would take as long and give no answer."""
    answered: dict[str, bool] = {}
    for box_snapshot in box_snapshots:
        if has_address(box_snapshot.box.adapter):
            answered[box_snapshot.box.adapter] = (
                answered.get(box_snapshot.box.adapter, False) or box_snapshot.seen.note != LATE
            )
    return frozenset(adapter for adapter, any_of_them in answered.items() if not any_of_them)


def beside(adapter: str, look: Callable[[], ValueT]) -> tuple[Callable[[], ValueT], Callable[[], None]]:
    """Two calls to run in parallel: the look at a host's box, and the test for why it does not answer."""
    came = threading.Event()

    def looked() -> ValueT:
        try:
            return look()
        finally:
            came.set()

    def tried() -> None:
        if not came.wait(TRY_SECONDS):
            _try(adapter)

    return looked, tried


def _try(adapter: str) -> None:
    """Runs the test; `ssh_mtu.known` keeps its result."""
    try:
        way = getattr(load_platform(adapter), "way", None)
    except SweepstackError:
        return
    if way is not None:
        ssh_mtu.advice(way)


def remedied(box_snapshot: BoxSnapshot) -> BoxSnapshot:
    """The box's snapshot with the cause of the silence added to its note, if the test has found one."""
    if box_snapshot.seen.note != LATE or not has_address(box_snapshot.box.adapter):
        return box_snapshot
    try:
        endpoint = getattr(box_snapshot.box.context().platform, "endpoint", None)
    except SweepstackError:
        return box_snapshot
    more = ssh_mtu.last_advice(endpoint.host, endpoint.port) if endpoint is not None else ""
    return replace(box_snapshot, seen=replace(box_snapshot.seen, note=f"{LATE}{more}")) if more else box_snapshot
