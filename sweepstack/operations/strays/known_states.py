"""What the states, the evidence and the stack files know of boxes and volumes, for `sweepctl audit`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from sweepstack.billing.ledger import spent
from sweepstack.billing.stray import Stray
from sweepstack.billing.unlaunched import Unheld, unheld
from sweepstack.config.edit.stack_file import StackFile
from sweepstack.core.bucket_address import evidence_uri
from sweepstack.core.extensions import module_of
from sweepstack.core.records import Birth
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.box_layout import volume_of
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import EvidenceError, EvidenceMissing, SweepstackError
from sweepstack.onbox.host.platform import BoxRecord, VolumeRecord
from sweepstack.operations.strays.other_backends import Backends
from sweepstack.platforms.registry import has_address, spelled
from sweepstack.status.engine.state import StackMissing, StackState, list_stacks, read_state
from sweepstack.teardown.close_box import StillBilled, still_billed

AT_ONCE = 4
"""How many states are read in parallel: each needs a process of the engine."""


@dataclass
class KnownStates:
    """The states of this backend, of every project, and what the stack files of this checkout name.

    `stores`: stack → its evidence, if it can be opened; `births`: the birth records in it. `named_hosts`: the hosts in
    stack files, as adapters. `problems`: what could not be read. `still_billed`: (stack, box) of boxes that an end only
    stopped. `answers`: (backend, project, stack) → what another backend said of it.
    """

    states: dict[str, StackState] = field(default_factory=dict)
    births: dict[str, list[Birth]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    stores: dict[str, EvidenceStore] = field(default_factory=dict)
    named_hosts: set[str] = field(default_factory=set)
    still_billed: list[tuple[str, StillBilled]] = field(default_factory=list)
    unheld: list[tuple[str, Unheld]] = field(default_factory=list)
    """(stack, box) of boxes on which nothing was launched in time."""
    by_hand: list[Stray] = field(default_factory=list)
    """Boxes of the accounts that carry no mark of ours, and that no state has."""
    root: Path = field(default_factory=Path.cwd)

    @cached_property
    def backends(self) -> Backends:
        """The other backends, each asked once."""
        return Backends(self.root)

    def stacks_with(self, kind: str, native_id: str) -> tuple[str, ...]:
        """The stacks with this box or volume in their state."""
        return tuple(
            name
            for name, state in self.states.items()
            if any(entry.native_id == native_id for entry in (state.boxes if kind == "box" else state.volumes))
        )

    def by_id(self, record: BoxRecord) -> bool:
        """Whether a state or an open record has this very box: one that was imported carries no tag of ours."""
        return bool(self.stacks_with("box", record.native_id) or self.recorded_by(record, by_tag=False))

    def standing_still(self, record: BoxRecord, stacks: Iterable[str]) -> str:
        """The command that says who may have stopped a box which a state of these `stacks` wants running; "" for any
        other box. A job on the box can have done it, with the key that the vendor puts there."""
        entries = ((stack, box) for stack in stacks for box in self.states[stack].boxes)
        for stack, box in entries:
            wanted = box.want == "running" and box.when_done != "stop" and not box.to_delete
            if box.native_id == record.native_id and record.phase.at_rest and wanted:
                words = f"({box.name} stands still, and is wanted running: who stopped it)"
                return f"sweepctl status --stack {stack}    {words}"
        return ""

    def recorded_by(self, record: BoxRecord, *, by_tag: bool) -> tuple[str, ...]:
        """The stacks with this box in an open record: by its id; with `by_tag` also by its tag, for records without an
        id because the answer to the create was lost."""
        return tuple(
            name for name, births in self.births.items() if any(is_of(b, record, by_tag=by_tag) for b in births)
        )

    def doubled_by(self, record: BoxRecord) -> tuple[str, ...]:
        """The stacks that know another box with this tag, by their state or an open record. An `up` never adopts a
        second box."""
        tag = record.tag
        stated = {n for n, state in self.states.items() if tag and any(box.tag == tag for box in state.boxes)}
        noted = {
            name
            for name, births in self.births.items()
            if any(b.ended_at is None and tag and b.tag == tag and b.native_id is not None for b in births)
        }
        return tuple(sorted(stated | noted))

    def keepers_of(self, record: VolumeRecord) -> tuple[str, ...]:
        """The stacks of the identity in the volume's tag."""
        ours = volume_of(record.tag)
        return self.stacks_of(ours[0]) if ours is not None else ()

    def stacks_of(self, identity: str) -> tuple[str, ...]:
        """The stacks with this identity, by their state or their evidence."""
        stated = {n for n, state in self.states.items() if state.identity and state.identity.identity == identity}
        return tuple(sorted(stated | {n for n, store in self.stores.items() if store.marker.identity == identity}))

    def is_over(self, identity: str) -> bool:
        """Whether the sweep of this identity has ended: no state has a box of it, and all its records are closed. False
        for a stack of volumes, which has no boxes, and if the records can't be read."""
        if any(s.identity and s.identity.identity == identity and s.boxes for s in self.states.values()):
            return False
        try:
            births = [b for store in self.stores_of(identity) for b in store.births()]
        except EvidenceError:
            return False
        return bool(births) and all(birth.ended_at is not None for birth in births)

    def stores_of(self, identity: str) -> list[EvidenceStore]:
        """The evidence of this identity that can be opened."""
        return [store for store in self.stores.values() if store.marker.identity == identity]

    def hosts(self) -> list[str]:
        """The adapters with a host's address, from states, open records and stack files: each host lists only its own
        boxes, and no platform lists the hosts."""
        return sorted(self.named_hosts | {adapter for adapter in self._adapters() if has_address(adapter)})

    def not_here(self) -> list[str]:
        """The adapters of boxes and volumes, by states and open records, whose extension is not installed here."""
        volumes = {volume.adapter for state in self.states.values() for volume in state.volumes}
        return sorted(name for name in self._adapters() | volumes if not has_address(name) and module_of(name) is None)

    def speaks_of(self, adapter: str) -> bool:
        """Whether a state or an open record has a box on this platform."""
        return adapter in self._adapters()

    def _adapters(self) -> set[str]:
        boxes = {box.adapter for state in self.states.values() for box in state.boxes}
        return boxes | {b.platform for births in self.births.values() for b in births if b.ended_at is None}


def is_of(birth: Birth, record: BoxRecord, *, by_tag: bool) -> bool:
    """Whether an open record is of exactly this box; with `by_tag` also a record that has no id yet."""
    if birth.ended_at is not None:
        return False
    if birth.native_id is not None:
        return birth.native_id == record.native_id
    return by_tag and bool(record.tag) and birth.tag == record.tag


def read_known(root: Path) -> KnownStates:
    """Reads every stack of this backend, of all projects, with its evidence, and the evidence and hosts that the stack
    files of this checkout name. Blocks: a fraction of a second for each stack.

    Raises SweepstackError if the backend does not answer.
    """
    known = KnownStates(root=root)
    names = list_stacks(root, every_project=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        states = list(pool.map(lambda name: _state(name, root), names))
    for name, state in zip(names, states, strict=True):
        if isinstance(state, SweepstackError):
            if not isinstance(state, StackMissing):  # removed since it was listed
                known.problems.append(f"the state of {name} is not known: {state}")
            continue
        known.states[name] = state
        known.problems += [f"the state of {name}: {problem}" for problem in state.problems]
        evidence = state.identity.evidence if state.identity else next((box.evidence for box in state.boxes), None)
        if evidence is not None:
            _read_evidence(known, name, evidence)
    for name in StackFile.stacks(root):
        _read_file(known, name)
    return known


def _state(name: str, root: Path) -> StackState | SweepstackError:
    try:
        return read_state(name, root)
    except SweepstackError as error:
        return error


def _read_file(known: KnownStates, name: str) -> None:
    """Adds what a stack file names beyond the states: the evidence of a stack that this backend lacks, and hosts. Skips
    a file with which nothing was ever brought up, so that its hosts are not asked."""
    file = StackFile.locate(known.root, name)
    place = evidence_uri(known.root, (file.of_store() if file.is_store else file).pull_to() or "")
    if place is None:
        return
    stack = next((stack for stack, store in known.stores.items() if store.objects.uri == place), None)
    if stack is not None:
        known.named_hosts |= set() if _is_over(known, stack) else set(_hosts(file))
        return
    try:
        marker = EvidenceStore.read_marker(place)
    except EvidenceMissing:
        return
    except EvidenceError as error:
        known.problems.append(f"the records of {name} are not known: {error}")
        return
    if marker is not None:
        _read_evidence(known, marker.stack, place)
        known.named_hosts |= set() if _is_over(known, marker.stack) else set(_hosts(file))


def _is_over(known: KnownStates, stack: str) -> bool:
    """Whether all boxes of the sweep have ended by the records. Its hosts are then not asked: a host that was given
    back does not answer, and every later audit would be unsure."""
    births = known.births.get(stack)
    return bool(births) and all(birth.ended_at is not None for birth in births or ())


def _hosts(file: StackFile) -> Iterable[str]:
    for host in file.hosts():
        with contextlib.suppress(SweepstackError):  # `preview` reports what is wrong with it
            yield spelled(f"ssh:{host}")


def _read_evidence(known: KnownStates, name: str, evidence: str) -> None:
    try:
        store = EvidenceStore.open(evidence)
        births = store.births()
        known.births.setdefault(name, []).extend(births)
        known.unheld += [(name, one) for one in unheld(store, births, datetime.now(UTC)) if one.over]
        if any(birth.rests for birth in births):
            rests = still_billed(store, spent(store, datetime.now(UTC), births), births)
            known.still_billed += [(store.marker.stack, rest) for rest in rests]
        known.stores[name if name not in known.stores else evidence] = store
    except SweepstackError as error:
        known.problems.append(f"the records of {name} are not known: {error}")
