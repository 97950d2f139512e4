"""What to type next: the one command that leads on from here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from sweepstack.core.observation import Existence
from sweepstack.core.own_stop import BEGINS, STAYS
from sweepstack.core.records import ENDED, REFUSED
from sweepstack.onbox.common.files_hold import FILES
from sweepstack.onbox.host.platform import Told
from sweepstack.status.bucket import has_set_before
from sweepstack.status.engine.state import STOP, BoxEntry
from sweepstack.status.model import SweepView
from sweepstack.status.snapshot import BoxSnapshot, Orphan, Snapshot
from sweepstack.teardown.refusal import of_another_account, out_of_lost, revoked_again, seen_ended, to_be_read
from sweepstack.teardown.ways import GIVES_UP, NOT_BACK, accept, give_up, gives_up, sure_first, without_need

AUDIT = "sweepctl audit"
BY_HAND = "writes the bundle, and says how you run it"
RUNS_AGAIN = "runs again what was asked for"
MOST_NAMED = 20
"""Cells that one command names."""
_COMMAND = re.compile(r"`((?:python -m |sweepctl |pulumi )[^`]+)`")
_OF_A_BOX = re.compile(r"^sweepctl (trust-host|worker-ended) (?!--stack )")


def following(snapshot: Snapshot, view: SweepView) -> Sequence[str]:
    """Commands, the first is the way on. Where it may fail, since something can't be told, the last one gives up.
    After it there is only what calls boxes gone if a condition holds. Where the engine refuses every command, what
    mends that is the only one."""
    if snapshot.engine_mend:
        return [snapshot.engine_mend]
    ways = _following(snapshot, view)
    # Behind the first: whether that lock was left is not known, and a command that the engine refuses tells.
    return [*ways[:1], *filter(None, [snapshot.left_lock]), *ways[1:]]


def _following(snapshot: Snapshot, view: SweepView) -> Sequence[str]:
    if snapshot.evidence_back:  # no other way is named while this one loses nothing
        return [f"{snapshot.evidence_back}    (the evidence was moved; nothing is lost)"]
    named = list(_ways_on(snapshot, view))
    if snapshot.revocations_torn and any(not box_snapshot.verdict.allowed for box_snapshot in snapshot.box_snapshots):
        named.insert(0, revoked_again(snapshot.state.stack))
    lost = [box_snapshot for box_snapshot in snapshot.box_snapshots if box_snapshot.seen.folder_lost]
    if lost:
        return list(dict.fromkeys(way for box_snapshot in lost for way in _out_of_lost(snapshot, box_snapshot)))
    foreign = [problem for box_snapshot in snapshot.box_snapshots if (problem := box_snapshot.verdict.account_problem)]
    if foreign:  # for these boxes an abandonment is refused, too
        first = adopt_renamed(snapshot.named_with) if snapshot.evidence_problem else []
        return list(dict.fromkeys([*first, *of_another_account(snapshot.state.stack, foreign)]))
    locked = [box_snapshot for box_snapshot in snapshot.box_snapshots if not box_snapshot.verdict.allowed]
    if snapshot.finish_refused and locked and any(map(_approves, named)) and not _given_up(named):
        named.append(give_up(snapshot.state.stack, [box_snapshot.box.name for box_snapshot in locked]))
    unseen = [box_snapshot for box_snapshot in locked if _unseen(snapshot, box_snapshot)]
    if snapshot.teardown is not None:
        return sure_first(named)
    if not unseen:
        unsure = any(box_snapshot.bare or box_snapshot.verdict.rests for box_snapshot in locked)
        doubted = snapshot.hindered or snapshot.finish_refused or view.unknown or unsure
        return sure_first(named) if doubted else without_need(named)
    helps = [
        way
        for box_snapshot in unseen
        if box_snapshot.seen.existence is Existence.UNKNOWN
        for way in _named_in(box_snapshot.seen.note, snapshot.state.stack)
    ]
    if all(
        _without_records(box_snapshot) or _was_cut(snapshot, box_snapshot) for box_snapshot in locked
    ) and _claims_alone(view):
        named = []  # no other command leads on: records that are lost don't come back
    if not _given_up([*helps, *named]):
        when = NOT_BACK if snapshot.evidence_problem else GIVES_UP
        named.append(give_up(snapshot.state.stack, [box_snapshot.box.name for box_snapshot in locked], when))
    return _copied_first(snapshot, view, sure_first([*helps, *named]))


def _copied_first(snapshot: Snapshot, view: SweepView, ways: Sequence[str]) -> list[str]:
    """The same ways. Where only what gives boxes up is left: after a copy of what is sealed there, if that can be
    read; and behind a look for who can bring the evidence back."""
    stack = snapshot.state.stack
    if not all(map(gives_up, ways)):
        return list(ways)
    if snapshot.evidence_problem:
        return [f"sweepctl status --stack {stack}    (once the evidence is back: then nothing is lost)", *ways]
    sealed = any(cell.state == "sealed" for cell in view.cells)
    if not sealed or not any(box_snapshot.reachable for box_snapshot in snapshot.box_snapshots):
        return list(ways)
    return [f"sweepctl pull --stack {stack} && {way}" for way in ways]


def _given_up(named: Sequence[str]) -> bool:
    """Whether one of these commands gives boxes of the state up; `audit --end` does that to a box beside it."""
    return any("sweepctl approve " in way and gives_up(way) for way in named)


def _approves(way: str) -> bool:
    """Whether this command writes an approval now. Not where it first waits for cells: it may be able to by then."""
    return way.startswith("sweepctl approve ") or ("sweepctl finish " in way and not way.startswith("sweepctl wait "))


def _unseen(snapshot: Snapshot, box_snapshot: BoxSnapshot) -> bool:
    """Whether what is on a box can't be told: the way on may need what is not there."""
    if box_snapshot.handed is not None:
        return False
    unread = box_snapshot.journal is None or box_snapshot.seen.existence is Existence.UNKNOWN
    return unread or _without_records(box_snapshot) or _was_cut(snapshot, box_snapshot)


def _claims_alone(view: SweepView) -> bool:
    """Whether all that is unknown is boxes that the state calls cleared, and that are locked."""
    return all(orphan.kind == "claim" for orphan in view.unknown)


def _named_in(note: str, stack: str) -> list[str]:
    """The commands that a platform names itself where it can't tell what a box does; none with a place to fill in. It
    knows no stack, which commands about one box need."""
    named = [way for way in _COMMAND.findall(note) if "<" not in way and "ACCOUNT" not in way.split()]
    return [_OF_A_BOX.sub(rf"sweepctl \1 --stack {stack} ", way) for way in named]


def _without_records(box_snapshot: BoxSnapshot) -> bool:
    """Whether the records of what ran on it are lost, while the box itself says that something ran."""
    ran = box_snapshot.journal is not None and bool(box_snapshot.journal.cells)
    return ran and box_snapshot.launch is None and box_snapshot.verdict.launched is None


def _without_queue(snapshot: Snapshot, box_snapshot: BoxSnapshot) -> bool:
    """Whether cells ran on it and the state has no queue: then nothing of it is verified, and only an `up` helps, which
    may not be able to run."""
    return (
        box_snapshot.journal is not None
        and bool(box_snapshot.journal.cells)
        and snapshot.state.queue_of(box_snapshot.box.native_id) is None
    )


def _was_cut(snapshot: Snapshot, box_snapshot: BoxSnapshot) -> bool:
    """Whether the box's journal does not go on where the latest receipt saw it: it was lost, cut, or written again.
    Nothing is pulled or verified by it any more, and no `pulumi up` starts what is verified."""
    if snapshot.receipt is None or box_snapshot.seen.journal is None:
        return False
    heads = [box.journal_head for box in snapshot.receipt.boxes if box.native_id == box_snapshot.box.native_id]
    return any(box_snapshot.seen.journal.after(head) is None for head in heads)


def _ways_on(snapshot: Snapshot, view: SweepView) -> Sequence[str]:
    stack = snapshot.state.stack
    if snapshot.evidence_problem and _claims_alone(view):
        return _without_evidence(snapshot)
    # Where a copy or the receipt is lost `finish` gets it again, and of a box that can't be read `up` learns no more.
    no_use = (
        snapshot.receipt is None
        or bool(snapshot.broken)
        or any(box_snapshot.silent for box_snapshot in snapshot.box_snapshots)
    )
    if view.unknown and not (_claims_alone(view) and (snapshot.teardown is not None or no_use)):
        return _of_orphans(stack, view.unknown)
    handed = [
        box_snapshot.handed
        for box_snapshot in snapshot.box_snapshots
        if box_snapshot.handed is not None and box_snapshot.handed.verb == "destroy"
    ]
    if handed:
        first = next((known for known in handed if known.by == "person"), handed[0])
        end = f"pulumi destroy --stack {stack}"
        confirm = f'sweepctl confirm-gone --stack {stack} {first.box} --saw "…"'
        if first.by == "ssh":
            return [f"{end}    (asks for it again)", f"{confirm}    (where its console shows that it is off)"]
        return [f"{confirm}    (once it is ended at its console)", end]
    if snapshot.teardown is not None:
        if lost := next(
            (box_snapshot.box.name for box_snapshot in snapshot.box_snapshots if _silent(box_snapshot)), None
        ):
            return [
                f'sweepctl confirm-gone --stack {stack} {lost} --saw "…"    (where its host is lost for good)',
                f"pulumi destroy --stack {stack}    (after that, or once the host answers again)",
            ]
        if locked := [box_snapshot for box_snapshot in snapshot.box_snapshots if not box_snapshot.verdict.allowed]:
            return _out_of_teardown(stack, locked)
        untold = [
            box_snapshot for box_snapshot in snapshot.box_snapshots if box_snapshot.seen.existence is Existence.UNKNOWN
        ]
        helps = [way for box_snapshot in untold for way in _named_in(box_snapshot.seen.note, stack)]
        on = [f"pulumi destroy --stack {stack}", f"sweepctl approve --stack {stack} --revoke    (to go on instead)"]
        return sure_first([*helps, *on])
    if any(volume.guarded for volume in snapshot.state.volumes):
        return [f"sweepctl approve --stack {stack}    (shows what is on its volumes; asks to approve their end)"]
    if not snapshot.box_snapshots and view.settled:
        released = [f"{one.confirm(stack)}    (once it is released)" for one in snapshot.still_billed]
        asked = [f"pulumi up --stack {stack}    ({RUNS_AGAIN})"] if snapshot.to_run_again else []
        if snapshot.unclosed:
            asked = [f"sweepctl finish --stack {stack}    (closes what is open in its books)", *asked]
        return [*released, *asked, *_of_volumes(snapshot), f"sweepctl results --stack {stack}"]
    if not snapshot.box_snapshots:
        init = "" if snapshot.known else f"pulumi stack init {stack} && "
        again = "    (starts again; what is verified is not trained again)" if snapshot.births else ""
        return [f"{init}pulumi up --stack {stack}{again}", *_of_volumes(snapshot)]
    emptied = [box_snapshot.box.name for box_snapshot in snapshot.box_snapshots if box_snapshot.seen.emptied]
    if emptied and len(emptied) < len(snapshot.box_snapshots):
        wants = ", ".join(f"boxes.{name}.want" for name in emptied)
        return [f"pulumi up --stack {stack}    (after {wants} is set to gone: it says what ends the bill)"]
    if emptied:
        return [f"pulumi destroy --stack {stack}    (says what ends the bill of {', '.join(emptied)})"]
    died = sum(cell.state == "lost" for cell in view.cells)
    if all(box_snapshot.verdict.allowed for box_snapshot in snapshot.box_snapshots):
        again = f"pulumi up --stack {stack}    (runs again what was lost: {died})"
        end = f"pulumi destroy --stack {stack}"
        # The engine may refuse the destroy, too, where the stack file does not read.
        back = [snapshot.file_back] if snapshot.file_back else []
        return [*back, *([again, f"{end}    (ends the sweep without them)"] if died else [end])]
    if any(box_snapshot.gone for box_snapshot in snapshot.box_snapshots) and not view.settled:
        return [f"pulumi up --stack {stack}"]
    locked = [box_snapshot for box_snapshot in snapshot.box_snapshots if not box_snapshot.verdict.allowed]
    if all(box_snapshot.proposed is not None and box_snapshot.proposed.allowed for box_snapshot in locked):
        names = [box_snapshot.box.name for box_snapshot in locked]
        # That `up` may not be able to run (a profile is lost, say), and only the `up` itself finds that.
        return [f"pulumi up --stack {stack}    (clears what the stack file approves)", give_up(stack, names)]
    if silent := next((box_snapshot for box_snapshot in snapshot.box_snapshots if box_snapshot.silent), None):
        return _out_of_silence(stack, silent)
    states = set(view.counts())
    for box in view.boxes:
        if box.setup in ("failed", "cut off"):
            return [f"sweepctl logs --stack {stack} --setup {box.name}", *_resumes(snapshot, locked, "tries it again")]
        if box.blocked and "running" not in states:
            return [f"sweepctl ssh --stack {stack} {box.name}    (make room; it goes on by itself)"]
    alive = any(box_snapshot.seen.runner_alive for box_snapshot in snapshot.box_snapshots)
    stranded = [box_snapshot for box_snapshot in snapshot.box_snapshots if box_snapshot.stranded]
    bare = [box_snapshot for box_snapshot in snapshot.box_snapshots if box_snapshot.bare]
    ended = not stranded and bool(states) and states <= ENDED  # what is there needs no GPU
    if bare and not alive and not ended and all(one.bare for one in stranded):
        return _out_of_bare(stack, bare)
    if stranded:
        hand = all(box_snapshot.by_hand for box_snapshot in stranded)
        told = [way for box_snapshot in stranded for way in _named_in(box_snapshot.seen.note, stack)]
        seen_off = [way for way in told if way.startswith("sweepctl worker-ended ")]
        return _resumes(snapshot, locked, BY_HAND) if hand else [*seen_off, *_resumes(snapshot, locked)]
    if snapshot.to_run_again:  # `finish` would end the boxes without them
        return _resumes(snapshot, locked, RUNS_AGAIN)
    if any(alarm.startswith(BEGINS) and STAYS not in alarm for box in view.boxes for alarm in box.alarms):
        return [f"sweepctl tend --stack {stack} --once    (stops what should have stopped itself)"]
    hung = next((cell.name for cell in view.cells if cell.verdict == "hung"), None)
    if hung is not None:
        gives_up = give_up(stack, [box_snapshot.box.name for box_snapshot in locked])  # the shortest way to no bill
        return [f"sweepctl logs --stack {stack} {hung} --tail 50", *out_of_hung(stack, hung), gives_up]
    failed = [cell.name for cell in view.cells if cell.state == "failed"]
    if "running" in states or ("pending" in states and alive):
        # Where none has ended well yet, the others may fail in the same way.
        logs = [f"sweepctl logs --stack {stack} {name}" for name in failed[:1] if not states & ENDED]
        return [*logs, f"sweepctl wait --stack {stack} --for done && sweepctl finish --stack {stack}"]
    if wrong := by_files(snapshot, failed):
        names = [box_snapshot.box.name for box_snapshot in locked]
        ends = give_up(stack, names) if "pending" in states else f"sweepctl finish --stack {stack}"
        return [*out_of_files(stack, wrong), ends]
    resting = [one for one in snapshot.box_snapshots if one.seen.stopped and _wait_with(one, view)]
    if resting and not alive:
        return [wakes(stack, [(one.box, one.told) for one in resting])]
    if any("runner is not alive" in cell.note for cell in view.cells) or states & {"pending", "lost"}:
        return _resumes(snapshot, locked)
    if rest := [box_snapshot.box.name for box_snapshot in locked if view.settled and box_snapshot.verdict.rests]:
        return [to_be_read(stack, rest), give_up(stack, rest)]
    if view.settled:
        return [snapshot.file_back or f"sweepctl approve --stack {stack}"]
    if any(_without_queue(snapshot, box_snapshot) for box_snapshot in locked):
        return [
            f"pulumi up --stack {stack}    (puts its queue back)",
            give_up(stack, [box_snapshot.box.name for box_snapshot in locked]),
        ]
    if failed:
        return [
            f"sweepctl logs --stack {stack} {failed[0]}",
            *out_of_checkpoint(snapshot, by_checkpoint(snapshot, failed)),
            f"sweepctl finish --stack {stack}",
        ]
    refused = {one.name: one.state for one in view.cells if one.state in REFUSED and one.name not in snapshot.broken}
    if refused:
        return out_of_refused(stack, refused)
    return [snapshot.file_back or f"sweepctl finish --stack {stack}    (pull, verify, approve, up, destroy)"]


def out_of_refused(stack: str, cells: Mapping[str, str]) -> list[str]:
    """The ways on for copies that the last `verify` refused (cell → state): a `finish` would refuse them again."""
    again = [name for name, state in cells.items() if state != "unsupported"]
    return [
        f"sweepctl pull --stack {stack} --verify    (copies again what differs, and says what else helps)",
        *([run_again(stack, again)] if again else []),
        accept(stack, cells, "takes them as they are"),
    ]


def _of_volumes(snapshot: Snapshot) -> list[str]:
    """What ends the bill of each volume that outlived all boxes. All is verified, or an `up` comes first, which
    may use it again."""
    return [f"{one.end}    (volume {one.name}: {one.words})" for one in snapshot.left if one.may_bill]


def _of_orphans(stack: str, orphans: Sequence[Orphan]) -> list[str]:
    """What adopts them. Before it what a platform names that can't tell; after it what ends the one box, as well: a
    lost backend comes first, and then an `up`, which may not be able to run or to adopt (a profile, a volume or what is
    sealed is lost), and only the `up` itself finds that. Of several boxes `audit` names each end."""
    helps = [way for orphan in orphans if not orphan.proved for way in _named_in(orphan.why, stack)]
    ends = [end for orphan in orphans if (end := _end_of(stack, orphan))]
    if len(ends) > 1:
        ends = [f"{AUDIT}    (where that fails: names what gives up each of them)"]
    return sure_first([*helps, *(orphan.next for orphan in orphans), *ends])


def _end_of(stack: str, orphan: Orphan) -> str:
    """The command that gives an orphan up; "" where another one is named, or nothing has an id that could end."""
    if orphan.kind != "box" or orphan.native_id is None or orphan.renamed:
        return ""
    end = f'sweepctl audit --end {orphan.platform}:{orphan.native_id} --abandon --reason "…"'
    if orphan.next.startswith("sweepctl adopt "):
        return f"{end}    (gives it up, where that backend is lost; refused while it answers)"
    if not orphan.next.startswith("pulumi "):
        return ""
    # `audit --end` ends what a host lists, so it needs one that answers.
    confirms = "" if orphan.proved else seen_ended(stack, orphan.box or "BOX", orphan.platform or "")
    return confirms or f"{end}    (gives it up, where that up fails)"


def out_of_files(stack: str, cells: Sequence[str]) -> list[str]:
    """The ways on for cells that ended well and left the wrong files; the cheapest first."""
    first, up = cells[0], f"pulumi up --stack {stack}"
    return [
        f"{up}    (after artifacts names what {first} left: seals it, and trains nothing)",
        run_again(stack, cells),
        accept(stack, cells, "to do without"),
    ]


def by_files(snapshot: Snapshot, cells: Iterable[str]) -> list[str]:
    """Those of these cells that ended well and left the wrong files, by the journals of their boxes."""
    found = {name: holder.progress(name) for name in cells if (holder := snapshot.holder_of(name)) is not None}
    return [name for name, one in found.items() if one is not None and one.final and one.failure_class == FILES]


def out_of_hung(stack: str, cell: str) -> list[str]:
    """The ways out for a cell that hangs; both are done by the `pulumi up` that follows."""
    return [
        f"sweepctl retry --stack {stack} {cell} && pulumi up --stack {stack}    (ends it, and starts it again)",
        f'sweepctl drop --stack {stack} {cell} --reason "…" && pulumi up --stack {stack}    (ends it, gives it up)',
    ]


def by_checkpoint(snapshot: Snapshot, cells: Iterable[str]) -> dict[str, str]:
    """Those of these failed cells that may have failed at a checkpoint which a kill cut, and its path."""
    found = {name: holder.progress(name) for name in cells if (holder := snapshot.holder_of(name)) is not None}
    return {name: one.checkpoint for name, one in found.items() if one is not None and one.checkpoint}


def out_of_checkpoint(snapshot: Snapshot, found: Mapping[str, str]) -> list[str]:
    """The ways on for what `by_checkpoint` found; none where that is nothing."""
    if not found:
        return []
    stack, names = snapshot.state.stack, " ".join(list(found)[:MOST_NAMED])
    first = next(iter(found.values()))
    retry, up = f"sweepctl retry --stack {stack} {names}", f"pulumi up --stack {stack}"
    bucket = all((holder := snapshot.holder_of(name)) is not None and has_set_before(holder, name) for name in found)
    before = [f"{retry} --from-set && {up}    (from the set of checkpoints before the newest)"] if bucket else []
    return [*before, f"{retry} --from-start && {up}    (begins at 0: {first} may be cut, and is kept)"]


def run_again(stack: str, cells: Sequence[str]) -> str:
    """The command that trains these cells again, of which a sealed copy is not what it should be."""
    named = cells[:MOST_NAMED]
    what = "it" if len(cells) == 1 else "them" if len(cells) == len(named) else f"{len(named)} of {len(cells)}"
    return f"sweepctl retry --stack {stack} {' '.join(named)} && pulumi up --stack {stack}    (trains {what} again)"


def first_hung(stack: str, box_snapshots: Sequence[BoxSnapshot]) -> list[str]:
    """The ways out for the first cell that hangs on these boxes; empty where none does."""
    name = next((name for box_snapshot in box_snapshots for name in box_snapshot.hung), None)
    return out_of_hung(stack, name) if name is not None else []


def _without_evidence(snapshot: Snapshot) -> list[str]:
    """The note above says what is in the way, and to put it back; these lead out where that can't be done."""
    stack, renamed = snapshot.state.stack, adopt_renamed(snapshot.named_with)
    if not snapshot.box_snapshots:
        return renamed or [f"{AUDIT}    (what bills, and what ends it)", f"sweepctl doctor --stack {stack}"]
    locked = [box_snapshot.box.name for box_snapshot in snapshot.box_snapshots if not box_snapshot.verdict.allowed]
    if not locked:
        return [f"pulumi destroy --stack {stack}"]
    return [*renamed, give_up(stack, locked, NOT_BACK)]


def adopt_renamed(host: str) -> list[str]:
    """The command for a computer that was renamed, if the evidence names another `host`; none for ""."""
    if not host:
        return []
    return [f"sweepctl adopt --renamed-from {host}    (if this computer was that, and was renamed)"]


def _resumes(snapshot: Snapshot, locked: Sequence[BoxSnapshot], what: str = "resumes what waits") -> list[str]:
    """The way on for cells that wait for a runner. Where none is alive, the way out as well: that `up` may not be able
    to run, since the stack file, a profile, the work dir or a record is lost, and only the `up` itself finds that."""
    stack = snapshot.state.stack
    up = f"pulumi up --stack {stack}    ({what})"
    if any(box_snapshot.seen.runner_alive for box_snapshot in snapshot.box_snapshots):
        return [up]
    return [up, give_up(stack, [box_snapshot.box.name for box_snapshot in locked])]


def wakes(stack: str, boxes: Sequence[tuple[BoxEntry, Told | None]]) -> str:
    """The command that starts boxes which stand still, each with what its platform tells, and what it needs before."""
    names = ", ".join(box.name for box, _ in boxes)
    kept = ", ".join(f"boxes.{box.name}.want" for box, _ in boxes if box.want == "stopped")
    first = f"after {kept} is set to running: " if kept else ""
    taken = any(told is not None and box.want == "running" for box, told in boxes)
    more = "; where another customer has its place, a higher `bid` may help" if taken else ""
    if any(box.when_done == STOP and box.want == "running" for box, _ in boxes):
        more += "; one that was stopped with nothing left to run: after `when_done: keep`"
    return f"pulumi up --stack {stack}    ({first}starts {names}, with which cells wait{more})"


def _wait_with(box_snapshot: BoxSnapshot, view: SweepView) -> bool:
    """Whether cells wait with a box: to run, or, where it can't be read, to be pulled."""
    states = {cell.state for cell in view.cells if cell.box == box_snapshot.box.name}
    return "pending" in states or (not box_snapshot.reachable and "sealed" in states)


def _out_of_bare(stack: str, bare: Sequence[BoxSnapshot]) -> list[str]:
    """The ways on for boxes without the GPUs that were promised. An `up` alone is refused each time: only a stop and a
    start may get them back. What is sealed there can be pulled without a GPU."""
    up, names = f"pulumi up --stack {stack}", [box_snapshot.box.name for box_snapshot in bare]
    wants = ", ".join(f"boxes.{name}.want" for name in names)
    return [
        f"{up}    (after {wants} is set to stopped, then once more with running: it has {bare[0].bare} GPUs now)",
        f"{up}    (with a further name below boxes: cells that did not start move there)",
        f"sweepctl pull --stack {stack} && {give_up(stack, names, 'keeps what is sealed there, gives the rest up')}",
    ]


def _out_of_teardown(stack: str, locked: Sequence[BoxSnapshot]) -> list[str]:
    """The ways on where a teardown has begun and boxes of it are locked again: an `up` may be refused now."""
    gives_up = give_up(stack, [box_snapshot.box.name for box_snapshot in locked])
    if any(box_snapshot.seen.existence is Existence.UNKNOWN for box_snapshot in locked):
        helps = [way for box_snapshot in locked for way in _named_in(box_snapshot.seen.note, stack)]
        return sure_first([*helps, f"pulumi destroy --stack {stack}", gives_up])
    if any(box_snapshot.seen.journal is None and not box_snapshot.gone for box_snapshot in locked):
        return [gives_up]  # it answers, and its journal does not read: that does not come back
    return [f"sweepctl finish --stack {stack}    (verifies and approves again what is left)", gives_up]


def _out_of_lost(snapshot: Snapshot, box_snapshot: BoxSnapshot) -> list[str]:
    verdict, price = box_snapshot.verdict, box_snapshot.price_per_hour
    safe = verdict.allowed or not verdict.unsettled
    return out_of_lost(snapshot.state.stack, box_snapshot.box.name, price_per_hour=price, safe=safe)


def _out_of_silence(stack: str, box_snapshot: BoxSnapshot) -> list[str]:
    """The ways out for a box that can't be read: what makes it answer, and what ends it where it never will."""
    name, end = box_snapshot.box.name, f"pulumi destroy --stack {stack}"
    known = [way for way in _named_in(box_snapshot.seen.note, stack) if way.startswith("sweepctl trust-host ")]
    back = f"sweepctl finish --stack {stack}    (once box {name} answers)"
    abandon = f'sweepctl approve --stack {stack} --abandon {name} --reason "…" && {end}    (where it never will)'
    return [*(known or [back]), abandon]


def _silent(box_snapshot: BoxSnapshot) -> bool:
    """A box that was given up, on a host that does not answer: a destroy alone never ends it."""
    host = bool(box_snapshot.box.adapter.partition(":")[2])
    return host and box_snapshot.verdict.way == "abandoned" and box_snapshot.seen.existence is Existence.UNKNOWN
