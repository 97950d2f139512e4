"""The sources of every command: the state of its stack, and the evidence."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from sweepstack.config.project import project_name
from sweepstack.core import this_host
from sweepstack.evidence.location import moved_to
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import EvidenceError, SweepstackError, Unsure
from sweepstack.onbox.common.units import count, spell_rate
from sweepstack.operations.sweep.target import Target
from sweepstack.status.engine.call import ExportCall
from sweepstack.status.engine.state import BoxEntry, Export, StackMissing, StackState, was_ever_up
from sweepstack.status.ways_on import adopt_renamed
from sweepstack.teardown.refusal import give_up


@dataclass(frozen=True)
class Sources:
    """State and evidence of a stack. `store` is None if the evidence can't be used, and `problem` says why."""

    target: Target
    state: StackState
    known: bool
    """Whether the backend has the stack."""
    evidence: str | None
    store: EvidenceStore | None
    problem: str

    @property
    def never_up(self) -> bool:
        """Whether nothing was ever rented from this backend: the engine has the stack and no update of it, its state is
        empty, and neither the stack file nor this computer knows of evidence. What another backend holds is not known.

        Asks the engine. An empty state alone says nothing: that of a destroyed sweep is the same."""
        if not (self.known and self.state.empty and self.store is None and not self.problem):
            return False
        from sweepstack.evidence.stack_copy import remembered  # a stack that was never up is rare

        if remembered(self.target.stack):
            return False
        try:
            return not was_ever_up(self.target.stack, self.target.root)
        except SweepstackError:
            return False

    @property
    def named_with(self) -> str:
        """The other host that the evidence's address names, if it is a folder that can't be used here; else ""."""
        host, _, folder = (self.evidence or "").removeprefix("file://").partition("/")
        is_folder = bool(folder) and (self.evidence or "").startswith("file://")
        return host if is_folder and self.store is None and host not in this_host.names() else ""

    @property
    def moved_back(self) -> str:
        """The command that moves the evidence back to where the state has it; "" where it can be used, or is found
        nowhere else."""
        identity = self.state.identity
        if identity is None or not self.problem:
            return ""
        found = moved_to(identity.evidence, identity.identity, [self.target.likely_evidence()])
        return shlex.join(["mv", *map(str, found)]) if found is not None else ""


def open_sources(target: Target, begun: ExportCall | None = None) -> Sources:
    """The state and the evidence of a stack. Raises Unsure if neither has it.

    `begun`: a call to the engine that is already running; it is used if it asks for this stack's state.

    If the backend does not have the stack, the evidence that its stack file names is read. With `--evidence`, only that
    evidence is read.
    """
    if target.evidence is not None:
        alone = StackState(stack=target.stack)
        return Sources(target, alone, False, target.evidence, EvidenceStore.open(target.evidence), "")
    try:
        state, known = Export(target.stack, target.root, begun=begun).state(), True
    except StackMissing:
        state, known = StackState(stack=target.stack), False
    evidence = state.identity.evidence if state.identity else next((box.evidence for box in state.boxes), None)
    problem = ""
    if evidence is None:
        evidence, problem = _forgotten(target)
    if evidence is None:
        if not known:
            raise target.no_stack(problem)
        return Sources(target, state, known, None, None, problem)
    try:
        store: EvidenceStore | None = EvidenceStore.open(evidence)
        problem = ""
    except EvidenceError as error:
        store, problem = None, str(error)
    identity = state.identity.identity if state.identity else None
    if store is not None and identity is not None and store.marker.identity != identity:
        problem = f"the evidence at {evidence} belongs to another sweep ({store.marker.identity})"
        store = None
    return Sources(target, state, known, evidence, store, problem)


def _forgotten(target: Target) -> tuple[str | None, str]:
    """The evidence that the stack file names, if it belongs to this stack, else None; and what could not be read. Of a
    file that does not say it, the place that this computer remembers, if that is one."""
    evidence = target.likely_evidence() or _remembered(target)
    if evidence is None:
        return None, f"{target.file.shown} does not say where the evidence is, so what was rented before is not known"
    try:
        marker = EvidenceStore.read_marker(evidence)
    except EvidenceError as error:
        return None, str(error)
    return (evidence, "") if marker is not None and marker.stack == target.stack else (None, "")


def _remembered(target: Target) -> str | None:
    """Where the evidence lies by what this computer remembers, for a stack file that is there and does not read; None
    if that is no place, or more than one. Where the file is gone, its copy is put back first (`Target.no_stack`)."""
    if not target.file.path.exists():
        return None
    from sweepstack.evidence.stack_copy import places_of  # a stack file that does not read is rare

    try:
        project = project_name(target.root)
        markers = {uri: EvidenceStore.read_marker(uri) for uri in places_of(target.stack)}
    except SweepstackError:
        return None
    found = [uri for uri, marker in markers.items() if marker is not None and marker.project == project]
    return found[0] if len(found) == 1 else None


def usable(sources: Sources, verb: str) -> EvidenceStore:
    """The evidence. Raises Unsure, with the reason and the ways out, if it can't be used. `verb`: as in `blocked`."""
    if sources.store is not None:
        return sources.store
    if sources.problem:
        raise blocked(sources.problem, sources, verb)
    up = f"pulumi up --stack {sources.target.stack}"
    raise Unsure("there is no evidence yet: nothing was ever brought up", [up])


def blocked(problem: str, sources: Sources, verb: str) -> Unsure:
    """The error of a command that the evidence stops: what may bill meanwhile, and what to type, once the problem is
    fixed and where it can't be. `verb`: the command, as it is typed after `sweepctl`."""
    stack = sources.target.stack
    again = f"sweepctl {verb} --stack {stack}"
    named = [
        *adopt_renamed(sources.named_with),
        f"{again}    (once that is fixed)",
        way_out(stack),
    ]
    back = sources.moved_back
    if back:
        named = [f"{back} && {again}    (the evidence was moved; nothing is lost)"]
    return Unsure(problem + _may_bill(sources.state.boxes), named)


def way_out(stack: str) -> str:
    """The look that names the way out where a command goes on failing: it sees what is left, and what may be lost."""
    return f"sweepctl status --stack {stack}    (where that goes on failing: shows the way out)"


def _may_bill(boxes: Sequence[BoxEntry]) -> str:
    """What these boxes cost by the state, as the end of a sentence; "" if nothing."""
    prices = [box.price_per_hour for box in boxes]
    if not any(price != 0 for price in prices):
        return ""
    rate = sum(price or 0.0 for price in prices)
    known = f", {'at least ' if None in prices else ''}${spell_rate(rate)}/h" if rate else ""
    return f". {count(len(boxes), 'box')} in the state may still bill{known}"


def gives_up(sources: Sources, when: str) -> list[str]:
    """The command that gives the boxes up and needs no copies; empty if the state has no box. `when`: as in
    `give_up`."""
    boxes = [box.name for box in sources.state.boxes]
    return [give_up(sources.target.stack, boxes, when)] if boxes else []
