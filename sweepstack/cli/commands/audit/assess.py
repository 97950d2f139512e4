"""Assesses a box that no state has, for `sweepctl audit`: its content, its owner, the next command."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from sweepstack.cli.commands.audit.known_boxes import Known
from sweepstack.cli.commands.audit.other_backend import gate_of, other_backends
from sweepstack.cli.held_by import Answer, held_by_another
from sweepstack.config.edit.stack_file import StackFile
from sweepstack.config.project import project_name
from sweepstack.core.observation import Existence, Observation
from sweepstack.core.parallel import in_parallel
from sweepstack.evidence.stack_copy import copy_back
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.whereabouts import evidence_on
from sweepstack.launch.entries import queue_entries
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import EvidenceError, SweepstackError
from sweepstack.operations.observe import observe
from sweepstack.teardown.box_context import BoxAt
from sweepstack.teardown.check import may_end
from sweepstack.teardown.orphan_check import EndRequest, OnIt, OrphanBox, OrphanEnding, OrphanVerdict
from sweepstack.teardown.ownership import Owner, former_names, read_owner, who

READ_SECONDS = 60.0
"""The most seconds for reading all boxes, in parallel."""
NOT_IN_TIME = f"it did not answer within {READ_SECONDS:.0f} s"


@dataclass(frozen=True)
class Assessed:
    """One box that no state has. `stores`: the evidence of its sweep that can be opened here. `on_record`: the sweep
    with an open record of it, if that evidence was found only through the box; else "". `others`: the other backends
    that hold its sweep, with their answers."""

    box: OrphanBox
    on_it: OnIt
    stores: tuple[EvidenceStore, ...]
    verdict: OrphanVerdict
    on_record: str = ""
    others: tuple[Answer, ...] = ()

    @property
    def there(self) -> str:
        """The command that goes on in the other backend that still holds its sweep; "" if none does."""
        return gate_of(self.others)[1]

    @property
    def owner(self) -> Owner | None:
        """The owner that the box itself names."""
        return self.on_it.owner

    @property
    def state_words(self) -> str:
        """Which backend holds the records of its sweep, as text; "" if they name none."""
        for store in self.stores:
            with contextlib.suppress(EvidenceError):
                if (lease := store.lease()) is not None:
                    return f"; its records are held by the state in {lease.backend}"
        return ""

    def held_until(self, now: datetime) -> datetime | None:
        """Until when its owner holds it; None if that is over or not known."""
        return self.owner.held_at(now, self.on_it.seen.journal) if self.owner is not None else None

    @property
    def owner_words(self) -> str:
        """The owner as text."""
        if self.owner is None:
            return "not known"
        until = self.held_until(datetime.now(UTC))
        held = f"held until {until:%Y-%m-%d %H:%M} UTC" if until else "not held any more"
        backend = f", backend {self.owner.backend}" if self.owner.backend else ""
        return f"{self.owner.person}, for {self.owner.sweep}{backend}; {held}"


def assess(
    platform: str, native_id: str, account: str, tag: str, root: Path, known: Known, request: EndRequest, *, full: bool
) -> Assessed:
    """Reads the box, finds the evidence of its sweep, and runs the check. Blocks for seconds; reads only."""
    on_it = read_box(platform, native_id, account, _places(tag, known))
    return judged(platform, native_id, account, tag, on_it, root, known, request, full=full)


def judged(
    platform: str,
    native_id: str,
    account: str,
    tag: str,
    on_it: OnIt,
    root: Path,
    known: Known,
    request: EndRequest,
    *,
    full: bool,
) -> Assessed:
    """The same for a box that was read already."""
    identity, name, generation = box_layout.box_of(tag) or ("", "", 0)
    stores, named_by_box = known.stores_of(identity), list[EvidenceStore]()
    on_record, owner = "", on_it.owner
    if owner is not None and owner.evidence and all(store.objects.uri != owner.evidence for store in stores):
        try:
            store = EvidenceStore.open(owner.evidence)
            if store.marker.identity == identity:
                named_by_box.append(store)
                open_ones = (b for b in store.births() if b.ended_at is None and b.native_id == native_id)
                on_record = f"{store.marker.project}/{store.marker.stack}" if any(open_ones) else ""
        except EvidenceError:
            pass  # it is on another host, or needs keys that are missing here
    others = other_backends(stores, root, known, owner, named_by_box)
    stores += named_by_box
    mine = owner is not None and owner.person in {request.person, *former_names()}
    # A colleague with another backend may name the same evidence.
    ours = mine or (identity != "" and bool(known.stacks_of(identity)) and not others)
    box = OrphanBox(platform, native_id, account, identity, name, generation, ours, gate_of(others)[0])
    verdict = may_end(OrphanEnding(box, on_it, stores, request), full=full)
    return Assessed(box, on_it, tuple(stores), verdict, on_record, others)


def _places(tag: str, known: Known) -> tuple[str, ...]:
    """The places of the evidence of this box's sweep that are known before the box is asked."""
    identity = (box_layout.box_of(tag) or ("", "", 0))[0]
    return tuple(store.objects.uri for store in known.stores.values() if store.marker.identity == identity)


def read_box(platform: str, native_id: str, account: str, places: Sequence[str] = ()) -> OnIt:
    """Reads the box's journal, queue and owner. Never raises SweepstackError.

    `places`: the known evidence of its sweep. It is checked whether this evidence, or the one that the owner names,
    lies on the box itself.
    """
    box = BoxAt(platform, native_id, account)
    try:
        seen, record = observe(box)
    except SweepstackError as error:
        return OnIt(Observation(Existence.UNKNOWN, note=str(error)))
    if seen.existence is not Existence.EXISTS or record is None:
        return OnIt(seen)
    owner, given, holds = None, None, {}
    try:
        channel = box.channel()
        owner = read_owner(channel)
        for uri in {*places, *([owner.evidence] if owner is not None and owner.evidence else [])}:
            if found := evidence_on(channel, uri, box_layout.OWN_TIERS):
                holds[uri] = found[1]
        entries = queue_entries(channel)
        given = frozenset(name for name, line in entries.items() if line.get("op") == "add")
    except (SweepstackError, OSError) as error:
        seen = seen if seen.note else replace(seen, note=str(error))
    return OnIt(seen, owner, given, holds)


def assess_all(boxes: Sequence[tuple[str, str, str, str]], root: Path, known: Known) -> dict[tuple[str, str], Assessed]:
    """Assesses many boxes (platform, native id, account, tag), by platform and native id. A box that does not answer in
    time is unknown."""
    read = in_parallel({box: partial(read_box, *box[:3], _places(box[3], known)) for box in boxes}, READ_SECONDS)
    late, request = OnIt(Observation(Existence.UNKNOWN, note=NOT_IN_TIME)), EndRequest(who())
    return {box[:2]: judged(*box, read.get(box, late), root, known, request, full=False) for box in boxes}


def way_out(found: Assessed, root: Path, known: Known, *, recorded: str, doubled: bool) -> tuple[str, str]:
    """The next command, and the one that gives the box up; "" if none can be recommended.

    `recorded`: the stack of this checkout that has it on record; `doubled`: another box has the same tag.
    """
    if found.there:
        return found.there, ""
    what = f"{found.box.platform}:{found.box.native_id}"
    give_up = f'sweepctl audit --end {what} --abandon --reason "…"' if found.box.ours else ""
    store = next(iter(found.stores), None)
    if recorded:
        return adopts(recorded, root, known, store), give_up
    if found.verdict.allowed and found.box.ours and not found.on_record:
        return f"sweepctl audit --end {what}", ""
    owner = found.owner
    if store is None:
        return "", give_up  # its evidence does not open: an `up` would begin another sweep, and rent
    if owner is not None and found.box.ours and not doubled and owner.stack and owner.project == _project(root):
        return adopts(owner.stack, root, known, store), give_up
    return "", give_up


def adopts(stack: str, root: Path, known: Known, store: EvidenceStore | None) -> str:
    """The commands that bring a box of this stack back into a state.

    `store`: its evidence, if it can be opened here.
    """
    file, up = StackFile.locate(root, stack), f"pulumi up --stack {stack}"
    if held_by_another(store, root):  # even if a stack of this name is here: its `up` would be refused
        return f'sweepctl adopt --stack {stack} --reason "…"    (if that backend is lost; else go on there)'
    if stack in known.states:
        return f"{up}    (adopts it{'' if file.path.exists() else f', once {file.shown} is back'})"
    words, copy = "adopts it", ""
    if not file.path.exists():
        copy = copy_back(store, file.path) if store is not None else ""
        words = "adopts it" if copy else f"adopts it, once {file.shown} is back"
    return " && ".join(filter(None, [copy, f"pulumi stack init {stack}", up])) + f"    ({words})"


def _project(root: Path) -> str:
    try:
        return project_name(root)
    except SweepstackError:
        return ""
