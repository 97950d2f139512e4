"""What to type next: the one command that leads on from here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from sweepstack.billing.stray import Stray, end_command, forget_command
from sweepstack.core.journal import BEGINS, STAYS
from sweepstack.core.observation import Existence
from sweepstack.core.records import ENDED, REFUSED
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.host.box_folders import CLAIM
from sweepstack.status.engine.state import BoxEntry
from sweepstack.status.model import BoxView, CellView, SweepView
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.status.ways_on import (
    adopt_renamed,
    by_checkpoint,
    by_files,
    out_of_checkpoint,
    out_of_files,
    out_of_hung,
    out_of_refused,
    tends,
    to_begin,
    wakes,
)
from sweepstack.teardown.handover_records import Handover
from sweepstack.teardown.refusal import (
    GIVES_UP,
    NOT_BACK,
    give_up,
    gives_up,
    of_another_account,
    out_of_lost,
    revoked_again,
    seen_ended,
    sure_first,
    to_be_read,
    without_need,
)

AUDIT = "sweepctl audit"
BY_HAND = "writes the bundle, and says how you run it"
RUNS_AGAIN = "runs again what was asked for"
SETUP_FAILED = ("failed", "cut off")
_COMMAND = re.compile(r"`((?:python -m |sweepctl |pulumi )[^`]+)`")
_OF_A_BOX = re.compile(r"^sweepctl (?:confirm (host|worker)|(worker)-ended) (?!--stack )")
"""The second is what the programs of an older version say."""


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
    now = Now(snapshot, view)
    row = next(row for row in ROWS if row.holds(now))
    named, locked = list(row.ways(now)), now.locked
    if row.alone:
        return named
    if snapshot.revocations_torn and locked:
        named.insert(0, revoked_again(snapshot.state.stack))
    if snapshot.finish_refused and locked and any(map(_is_refused, named)) and not _given_up(named):
        named.append(give_up(now.stack, now.locked_names))
    unseen = [one for one in locked if _unseen(snapshot, one)]
    if snapshot.teardown is not None:
        return sure_first(named)
    if not unseen:
        unsure = any(one.bare or one.verdict.rests for one in locked)
        doubted = snapshot.hindered or snapshot.finish_refused or view.unknown or unsure
        return sure_first(named) if doubted else without_need(named)
    helps = _named_by_silent(now.stack, unseen)
    if _claims_alone(view) and all(_without_records(one) or _was_cut(snapshot, one) for one in locked):
        named = []  # no other command leads on: records that are lost don't come back
    if any(way.startswith(CLAIM) for way in helps):  # until that is typed nothing is proved gone, so nothing ends
        named = [way for way in named if not gives_up(way)]
    elif not _given_up([*helps, *named]):
        when = NOT_BACK if snapshot.evidence_problem else GIVES_UP
        named.append(give_up(now.stack, now.locked_names, when))
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
    return any("sweepctl give-up " in way and gives_up(way) for way in named)


def _is_refused(way: str) -> bool:
    """Whether this command needs now what keeps `pulumi up` from going through. Not where it first waits for cells: it
    may be able to by then."""
    begins = way.startswith(("sweepctl approve ", "sweepctl give-up ", "pulumi up "))
    return begins or ("sweepctl finish " in way and not way.startswith("sweepctl wait "))


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
    return [_OF_A_BOX.sub(rf"sweepctl confirm \1\2 --stack {stack} ", way) for way in named]


def _named_by_silent(stack: str, boxes: Iterable[BoxSnapshot]) -> list[str]:
    """The same of those boxes of which nothing can be told now."""
    silent = (one for one in boxes if one.seen.existence is Existence.UNKNOWN)
    return [way for one in silent for way in _named_in(one.seen.note, stack)]


def _without_records(box_snapshot: BoxSnapshot) -> bool:
    """Whether the records of what ran on it are lost, while the box itself says that something ran."""
    ran = box_snapshot.journal is not None and bool(box_snapshot.journal.cells)
    return ran and box_snapshot.launch is None and box_snapshot.verdict.launched is None


def _without_queue(snapshot: Snapshot, box_snapshot: BoxSnapshot) -> bool:
    """Whether cells ran on it and the state has no queue: then nothing of it is verified, and only an `up` helps, which
    may not be able to run."""
    ran = box_snapshot.journal is not None and bool(box_snapshot.journal.cells)
    return ran and snapshot.state.queue_of(box_snapshot.box.native_id) is None


def _was_cut(snapshot: Snapshot, box_snapshot: BoxSnapshot) -> bool:
    """Whether the box's journal does not go on where the latest receipt saw it: it was lost, cut, or written again.
    Nothing is pulled or verified by it any more, and no `pulumi up` starts what is verified."""
    if snapshot.receipt is None or box_snapshot.seen.journal is None:
        return False
    heads = [box.journal_head for box in snapshot.receipt.boxes if box.native_id == box_snapshot.box.native_id]
    return any(box_snapshot.seen.journal.after(head) is None for head in heads)


@dataclass(frozen=True)
class Now:
    """The picture of a sweep, and what the rows of `ROWS` ask of it."""

    snapshot: Snapshot
    view: SweepView

    @property
    def stack(self) -> str:
        """The name of the stack."""
        return self.snapshot.state.stack

    @property
    def boxes(self) -> Sequence[BoxSnapshot]:
        """All boxes of the state."""
        return self.snapshot.box_snapshots

    @cached_property
    def locked(self) -> list[BoxSnapshot]:
        """Boxes that may not end now."""
        return [one for one in self.boxes if not one.verdict.allowed]

    @property
    def locked_names(self) -> list[str]:
        """The names of `locked`."""
        return [one.box.name for one in self.locked]

    @cached_property
    def handed(self) -> list[Handover]:
        """What hands the end of a box to its host or to a person."""
        return [one.handed for one in self.boxes if one.handed is not None and one.handed.verb == "destroy"]

    @property
    def lost(self) -> list[BoxSnapshot]:
        """Boxes whose folder is lost on a host that is there."""
        return [one for one in self.boxes if one.seen.folder_lost]

    @property
    def foreign(self) -> list[str]:
        """Of each box that another account rented, that and what follows."""
        return [problem for one in self.boxes if (problem := one.verdict.account_problem)]

    @property
    def emptied(self) -> list[str]:
        """Boxes whose host proves that nothing is left there."""
        return [one.box.name for one in self.boxes if one.seen.emptied]

    @property
    def imported(self) -> list[BoxEntry]:
        """Boxes that `pulumi import` found, and that no `up` has taken: until then each `up` and destroy is refused."""
        return [one.box for one in self.boxes if one.box.imported]

    @cached_property
    def states(self) -> set[str]:
        """The states that cells are in."""
        return set(self.view.counts())

    @cached_property
    def alive(self) -> bool:
        """Whether a runner lives on any box."""
        return any(one.seen.runner_alive for one in self.boxes)

    @cached_property
    def stranded(self) -> list[BoxSnapshot]:
        """Boxes whose cells wait for a runner that does not live."""
        return [one for one in self.boxes if one.stranded]

    @cached_property
    def bare(self) -> list[BoxSnapshot]:
        """Boxes without the GPUs that were promised."""
        return [one for one in self.boxes if one.bare]

    @cached_property
    def resting(self) -> list[BoxSnapshot]:
        """Stopped boxes with which cells wait."""
        return [one for one in self.boxes if one.seen.stopped and _wait_with(one, self.view)]

    @cached_property
    def hung(self) -> str | None:
        """The first cell that hangs."""
        return next((cell.name for cell in self.view.cells if cell.verdict == "hung"), None)

    @cached_property
    def failed(self) -> list[str]:
        """Cells that failed for good."""
        return [cell.name for cell in self.view.cells if cell.state == "failed"]

    @cached_property
    def wrong_files(self) -> list[str]:
        """Those of `failed` that ended well and left the wrong files."""
        return by_files(self.snapshot, self.failed)

    @cached_property
    def refused(self) -> dict[str, str]:
        """Cells whose copies the last `verify` refused, with their state."""
        broken = self.snapshot.broken
        return {one.name: one.state for one in self.view.cells if one.state in REFUSED and one.name not in broken}

    @cached_property
    def begins(self) -> list[str]:
        """The way on where all that is left to run begins from another cell, and waits for that to be verified."""
        states = {cell.name: cell.state for cell in self.view.cells}
        return to_begin(self.stack, self.boxes, states, self.snapshot.tended)

    @cached_property
    def waits(self) -> bool:
        """Whether a cell waits that an `up` brings on: not one that waits for what it begins from."""
        later = {name for one in self.boxes for name in one.unsourced}
        return any(one.state in ("pending", "lost") and one.name not in later for one in self.view.cells)

    @property
    def rested(self) -> list[str]:
        """Locked boxes of a settled sweep that were stopped, and have to be read once more."""
        return [one.box.name for one in self.locked if self.view.settled and one.verdict.rests]

    def resumes(self, what: str = "resumes what waits") -> list[str]:
        """The way on for cells that wait for a runner. Where none is alive, the way out as well: that `up` may not be
        able to run, since the stack file, a profile, the work dir or a record is lost, and only the `up` itself finds
        that."""
        up = f"pulumi up --stack {self.stack}    ({what})"
        return [up] if self.alive else [up, give_up(self.stack, self.locked_names)]


class Row(NamedTuple):
    """A state of a sweep in words, whether it is that, and the commands that lead on from it. `alone`: and no other."""

    state: str
    holds: Callable[[Now], object]
    ways: Callable[[Now], Sequence[str]]
    alone: bool = False


def _of_lost(now: Now) -> list[str]:
    ways: dict[str, None] = {}
    for one in now.lost:
        price, safe = one.price_per_hour, one.verdict.allowed or not one.verdict.unsettled
        ways |= dict.fromkeys(out_of_lost(now.stack, one.box.name, price_per_hour=price, safe=safe))
    return list(ways)


def _of_foreign(now: Now) -> list[str]:
    first = adopt_renamed(now.snapshot.named_with) if now.snapshot.evidence_problem else []
    return list(dict.fromkeys([*first, *of_another_account(now.stack, now.foreign)]))


def _of_imported(now: Now) -> list[str]:
    named = ", ".join(f"boxes.{box.name}: {{}}" for box in now.imported)
    up = f"pulumi up --stack {now.stack}    (once the stack file has {named}: takes it into the sweep)"
    return [up, *(f"{forget_command(now.stack, box.urn)}    (leaves {box.name} as it was)" for box in now.imported)]


def _orphans_first(now: Now) -> bool:
    """Whether boxes beside the state come first. Where a copy or the receipt is lost `finish` gets it again, and of a
    box that can't be read `up` learns no more."""
    snapshot = now.snapshot
    no_use = snapshot.receipt is None or bool(snapshot.broken) or any(one.silent for one in now.boxes)
    return bool(now.view.unknown) and not (_claims_alone(now.view) and (snapshot.teardown is not None or no_use))


def _without_evidence(now: Now) -> list[str]:
    """The note above says what is in the way, and to put it back; these lead out where that can't be done."""
    stack, renamed = now.stack, adopt_renamed(now.snapshot.named_with)
    if not now.boxes:
        return renamed or [f"{AUDIT}    (what bills, and what ends it)", f"sweepctl doctor --stack {stack}"]
    if not now.locked:
        return [f"pulumi destroy --stack {stack}"]
    return [*renamed, give_up(stack, now.locked_names, NOT_BACK)]


def _of_handed(now: Now) -> list[str]:
    first = next((known for known in now.handed if known.by == "person"), now.handed[0])
    end = f"pulumi destroy --stack {now.stack}"
    confirm = f'sweepctl confirm gone --stack {now.stack} {first.box} --saw "…"'
    if first.by == "ssh":
        return [f"{end}    (asks for it again)", f"{confirm}    (where its console shows that it is off)"]
    return [f"{confirm}    (once it is ended at its console)", end]


def _silent_in_teardown(now: Now) -> str:
    """The first box that was given up, on a host that does not answer: a destroy alone never ends it."""
    boxes = now.boxes if now.snapshot.teardown is not None else ()
    silent = (one for one in boxes if one.verdict.way == "abandoned" and one.seen.existence is Existence.UNKNOWN)
    return next((one.box.name for one in silent if one.box.adapter.partition(":")[2]), "")


def _of_silent_in_teardown(now: Now) -> list[str]:
    lost = _silent_in_teardown(now)
    return [
        f'sweepctl confirm gone --stack {now.stack} {lost} --saw "…"    (where its host is lost for good)',
        f"pulumi destroy --stack {now.stack}    (after that, or once the host answers again)",
    ]


def _out_of_teardown(now: Now) -> list[str]:
    """The ways on where a teardown has begun and boxes of it are locked again: an `up` may be refused now."""
    stack, gives_up = now.stack, give_up(now.stack, now.locked_names)
    if any(one.seen.existence is Existence.UNKNOWN for one in now.locked):
        helps = [way for one in now.locked for way in _named_in(one.seen.note, stack)]
        return sure_first([*helps, f"pulumi destroy --stack {stack}", gives_up])
    if any(one.seen.journal is None and not one.gone for one in now.locked):
        return [gives_up]  # it answers, and its journal does not read: that does not come back
    return [f"sweepctl finish --stack {stack}    (verifies and approves again what is left)", gives_up]


def _of_teardown(now: Now) -> list[str]:
    stack = now.stack
    on = [f"pulumi destroy --stack {stack}", f"sweepctl revoke --stack {stack}    (to go on instead)"]
    return sure_first([*_named_by_silent(stack, now.boxes), *on])


def _of_ended_sweep(now: Now) -> list[str]:
    stack, snapshot = now.stack, now.snapshot
    released = [f"{one.confirm(stack)}    (once it is released)" for one in snapshot.still_billed]
    asked = [f"pulumi up --stack {stack}    ({RUNS_AGAIN})"] if snapshot.to_run_again else []
    if snapshot.unclosed:
        asked = [f"sweepctl finish --stack {stack}    (closes what is open in its books)", *asked]
    return [*released, *asked, *_of_volumes(snapshot), f"sweepctl results --stack {stack}"]


def _of_no_box(now: Now) -> list[str]:
    init = "" if now.snapshot.known else f"pulumi stack init {now.stack} && "
    again = "    (starts again; what is verified is not trained again)" if now.snapshot.births else ""
    return [f"{init}pulumi up --stack {now.stack}{again}", *_of_volumes(now.snapshot)]


def _of_some_emptied(now: Now) -> list[str]:
    wants = ", ".join(f"boxes.{name}.want" for name in now.emptied)
    return [f"pulumi up --stack {now.stack}    (after {wants} is set to gone: it says what ends the bill)"]


def _of_cleared(now: Now) -> list[str]:
    died = sum(cell.state == "lost" for cell in now.view.cells)
    again = f"pulumi up --stack {now.stack}    (runs again what was lost: {died})"
    end = f"pulumi destroy --stack {now.stack}"
    # The engine may refuse the destroy, too, where the stack file does not read.
    back = [now.snapshot.file_back] if now.snapshot.file_back else []
    return [*back, *([again, f"{end}    (ends the sweep without them)"] if died else [end])]


def _of_failed_setup(now: Now) -> list[str]:
    box = next(box for box in now.view.boxes if _hinders(now, box))
    if box.setup in SETUP_FAILED:
        return [f"sweepctl logs --stack {now.stack} --of setup {box.name}", *now.resumes("tries it again")]
    return [f"sweepctl ssh --stack {now.stack} {box.name}    (make room; it goes on by itself)"]


def _hinders(now: Now, box: BoxView) -> bool:
    """Whether a box runs no cell because of its set-up, or for want of room."""
    return box.setup in SETUP_FAILED or (bool(box.blocked) and "running" not in now.states)


def _bare_alone(now: Now) -> bool:
    ended = not now.stranded and bool(now.states) and now.states <= ENDED  # what is there needs no GPU
    return bool(now.bare) and not now.alive and not ended and all(one.bare for one in now.stranded)


def _of_stranded(now: Now) -> list[str]:
    if all(one.by_hand for one in now.stranded):
        return now.resumes(BY_HAND)
    return [*_of_lost_workers(now, now.stranded), *now.resumes()]


def _of_lost_workers(now: Now, boxes: Iterable[BoxSnapshot]) -> list[str]:
    told = [way for one in boxes for way in _named_in(one.seen.note, now.stack)]
    return [way for way in told if way.startswith("sweepctl confirm worker ")]


def _of_hung(now: Now) -> list[str]:
    assert now.hung is not None
    shortest = give_up(now.stack, now.locked_names)  # the shortest way to no bill
    return [f"sweepctl logs --stack {now.stack} {now.hung} --tail 50", *out_of_hung(now.stack, now.hung), shortest]


def _queued(cell: CellView) -> bool:
    """Whether a runner that lives takes it: one that waits for its files (an `up` was killed) has no queue yet."""
    return cell.state == "pending" and bool(cell.box)


def _of_running(now: Now) -> list[str]:
    # Where none has ended well yet, the others may fail in the same way.
    logs = [f"sweepctl logs --stack {now.stack} {name}" for name in now.failed[:1] if not now.states & ENDED]
    done = f"sweepctl wait --stack {now.stack} done && sweepctl finish --stack {now.stack}"
    last = tends(now.stack, now.snapshot.tended) if now.snapshot.brought_later else done
    return [*_of_lost_workers(now, now.boxes), *logs, last]


def _of_wrong_files(now: Now) -> list[str]:
    pending = "pending" in now.states
    ends = give_up(now.stack, now.locked_names) if pending else f"sweepctl finish --stack {now.stack}"
    return [*out_of_files(now.stack, now.wrong_files), ends]


def _of_failed(now: Now) -> list[str]:
    return [
        f"sweepctl logs --stack {now.stack} {now.failed[0]}",
        *out_of_checkpoint(now.snapshot, by_checkpoint(now.snapshot, now.failed)),
        f"sweepctl finish --stack {now.stack}",
    ]


ROWS = (
    Row(
        "its evidence was moved",  # no other way is named while this one loses nothing
        lambda now: now.snapshot.evidence_back,
        lambda now: [f"{now.snapshot.evidence_back}    (the evidence was moved; nothing is lost)"],
        alone=True,
    ),
    Row("the folder of a box is lost", lambda now: now.lost, _of_lost, alone=True),
    # For these boxes an abandonment is refused, too.
    Row("a box is another account's", lambda now: now.foreign, _of_foreign, alone=True),
    Row(
        "its evidence can't be opened",
        lambda now: now.snapshot.evidence_problem and _claims_alone(now.view),
        _without_evidence,
    ),
    Row("boxes beside the state", _orphans_first, lambda now: _of_orphans(now.stack, now.view.unknown)),
    Row("an imported box that no `up` has taken", lambda now: now.imported, _of_imported, alone=True),
    Row("the end of a box is another's: its host's, or a person's", lambda now: now.handed, _of_handed),
    Row("a teardown, and a given-up box's host does not answer", _silent_in_teardown, _of_silent_in_teardown),
    Row(
        "a teardown, and boxes of it are locked again",
        lambda now: now.snapshot.teardown is not None and now.locked,
        _out_of_teardown,
    ),
    Row("a teardown that has begun", lambda now: now.snapshot.teardown is not None, _of_teardown),
    Row(
        "a stack of volumes",
        lambda now: any(volume.guarded for volume in now.snapshot.state.volumes),
        lambda now: [
            f"sweepctl approve --stack {now.stack}    (shows what is on its volumes; asks to approve their end)"
        ],
    ),
    Row("no box, and every cell is settled", lambda now: not now.boxes and now.view.settled, _of_ended_sweep),
    Row("no box", lambda now: not now.boxes, _of_no_box),
    Row(
        "some boxes are emptied, and their host bills",
        lambda now: now.emptied and len(now.emptied) < len(now.boxes),
        _of_some_emptied,
    ),
    Row(
        "all boxes are emptied, and their hosts bill",
        lambda now: now.emptied,
        lambda now: [f"pulumi destroy --stack {now.stack}    (says what ends the bill of {', '.join(now.emptied)})"],
    ),
    Row("every box may end", lambda now: not now.locked, _of_cleared),
    Row(
        "a box is gone before all is settled",
        lambda now: any(one.gone for one in now.boxes) and not now.view.settled,
        lambda now: [f"pulumi up --stack {now.stack}"],
    ),
    Row(
        "the stack file approves what the state does not have yet",
        lambda now: all(one.proposed is not None and one.proposed.allowed for one in now.locked),
        # That `up` may not be able to run (a profile is lost, say), and only the `up` itself finds that.
        lambda now: [
            f"pulumi up --stack {now.stack}    (clears what the stack file approves)",
            give_up(now.stack, now.locked_names),
        ],
    ),
    Row(
        "a box can't be read",
        lambda now: any(one.silent for one in now.boxes),
        lambda now: _out_of_silence(now.stack, next(one for one in now.boxes if one.silent)),
    ),
    Row(
        "a set-up failed, or a box has no room",
        lambda now: any(_hinders(now, box) for box in now.view.boxes),
        _of_failed_setup,
    ),
    Row("a box lacks the GPUs that were promised", _bare_alone, lambda now: _out_of_bare(now.stack, now.bare)),
    Row("cells wait for what they begin from", lambda now: now.begins, lambda now: now.begins),
    Row("cells wait, and no runner lives", lambda now: now.stranded, _of_stranded),
    Row(
        "cells were asked to run again",  # `finish` would end the boxes without them
        lambda now: now.snapshot.to_run_again,
        lambda now: now.resumes(RUNS_AGAIN),
    ),
    Row(
        "a box should have stopped itself",
        lambda now: any(
            alarm.startswith(BEGINS) and STAYS not in alarm for box in now.view.boxes for alarm in box.alarms
        ),
        lambda now: [f"sweepctl tend --stack {now.stack} --once    (stops what should have stopped itself)"],
    ),
    Row("a cell hangs", lambda now: now.hung is not None, _of_hung),
    Row(
        "cells run",
        lambda now: "running" in now.states or (now.alive and any(map(_queued, now.view.cells))),
        _of_running,
    ),
    Row("cells ended well and left the wrong files", lambda now: now.wrong_files, _of_wrong_files),
    Row(
        "stopped boxes have cells that wait",
        lambda now: now.resting and not now.alive,
        lambda now: [wakes(now.stack, [(one.box, one.told) for one in now.resting])],
    ),
    Row(
        "cells wait",
        lambda now: any("runner is not alive" in cell.note for cell in now.view.cells) or now.waits,
        lambda now: now.resumes(),
    ),
    Row(
        "all is settled, and a stopped box has to be read once more",
        lambda now: now.rested,
        lambda now: [to_be_read(now.stack, now.rested), give_up(now.stack, now.rested)],
    ),
    Row(
        "all is settled",
        lambda now: now.view.settled,
        lambda now: [now.snapshot.file_back or f"sweepctl approve --stack {now.stack}"],
    ),
    Row(
        "cells ran on a box that has no queue in the state",
        lambda now: any(_without_queue(now.snapshot, one) for one in now.locked),
        lambda now: [
            f"pulumi up --stack {now.stack}    (puts its queue back)",
            give_up(now.stack, now.locked_names),
        ],
    ),
    Row("cells failed", lambda now: now.failed, _of_failed),
    Row("verify refused copies", lambda now: now.refused, lambda now: out_of_refused(now.stack, now.refused)),
    Row(
        "all cells ended",
        lambda now: True,
        lambda now: [
            now.snapshot.file_back or f"sweepctl finish --stack {now.stack}    (pull, verify, approve, up, destroy)"
        ],
    ),
)
"""In this order: the first that holds says what to type."""


def _of_volumes(snapshot: Snapshot) -> list[str]:
    """What ends the bill of each volume that outlived all boxes. All is verified, or an `up` comes first, which
    may use it again."""
    return [f"{one.end}    (volume {one.name}: {one.words})" for one in snapshot.left if one.may_bill]


def _of_orphans(stack: str, orphans: Sequence[Stray]) -> list[str]:
    """What adopts them. Before it what a platform names that can't tell; after it what ends the one box, as well: a
    lost backend comes first, and then an `up`, which may not be able to run or to adopt (a profile, a volume or what is
    sealed is lost), and only the `up` itself finds that. Of several boxes `audit` names each end."""
    helps = [way for orphan in orphans if not orphan.proved for way in _named_in(orphan.why, stack)]
    ends = [end for orphan in orphans if (end := _end_of(stack, orphan))]
    if len(ends) > 1:
        ends = [f"{AUDIT}    (where that fails: names what gives up each of them)"]
    return sure_first([*helps, *(orphan.next for orphan in orphans), *ends])


def _end_of(stack: str, orphan: Stray) -> str:
    """The command that gives an orphan up; "" where another one is named, or nothing has an id that could end."""
    if orphan.kind != "box" or not orphan.native_id or orphan.renamed:
        return ""
    end = end_command(orphan.platform, orphan.native_id, lose=True)
    if orphan.next.startswith("sweepctl adopt "):
        return f"{end}    (gives it up, where that backend is lost; refused while it answers)"
    if not orphan.next.startswith("pulumi "):
        return ""
    # `audit --end` ends what a host lists, so it needs one that answers.
    confirms = "" if orphan.proved else seen_ended(stack, orphan.name or "BOX", orphan.platform)
    return confirms or f"{end}    (gives it up, where that up fails)"


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


def _out_of_silence(stack: str, box_snapshot: BoxSnapshot) -> list[str]:
    """The ways out for a box that can't be read: what makes it answer, and what ends it where it never will."""
    name, end = box_snapshot.box.name, f"pulumi destroy --stack {stack}"
    known = [way for way in _named_in(box_snapshot.seen.note, stack) if way.startswith("sweepctl confirm host ")]
    back = f"sweepctl finish --stack {stack}    (once box {name} answers)"
    abandon = f'sweepctl give-up --stack {stack} data/{name} --reason "…" && {end}    (where it never will)'
    return [*(known or [back]), abandon]
