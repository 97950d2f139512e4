"""`sweepctl audit`: what the accounts hold against what any state of this backend knows, in both directions.

It deletes nothing. `--end` is another command on another line, for one thing that nobody knows, and asks for its id.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from provider.platforms.base import BoxRecord, Phase, Platform, VolumeRecord
from provider.platforms.offers import Capability
from provider.platforms.registry import adapters, has_address, load_platform
from sweep.cli.output import NO, UNSURE, YES, Out, money
from sweep.cli.progress import Progress
from sweep.errors import NotAuthorized, PlatformError, SweepstackError
from sweep.evidence.store import EvidenceStore
from sweep.model import Birth
from sweep.onbox import TAGS, volume_of
from sweep.parallel import in_parallel
from sweep.state import StackState, list_stacks, read_state

ASK_SECONDS = 300.0
"""All that the accounts may take, which are asked side by side: one may have to page through hundreds of boxes."""

Standing = Literal["known", "recorded", "unknown", "vanished", "foreign"]
"""known: in a state; recorded: in a sweep's records, in no state; unknown: nobody has it; vanished: in a state, and the
platform proves that it is gone; foreign: in a state, and of an account that is not at hand."""


@dataclass(frozen=True)
class Finding:
    """One box or volume. `whose`: the stacks that know it; `next`: the command that settles it, "" where nothing is to
    be done."""

    kind: Literal["box", "volume"]
    platform: str
    native_id: str
    tag: str
    standing: Standing
    phase: str
    price_per_hour: float | None = None
    price_per_month: float | None = None
    where: str = ""
    whose: tuple[str, ...] = ()
    next: str = ""

    @property
    def bills_unknown(self) -> bool:
        """Whether it costs something, or may, that no state knows of."""
        return self.standing in ("recorded", "unknown")


@dataclass
class Known:
    """What the states and the records of this backend say. `problems`: what could not be read."""

    states: dict[str, StackState] = field(default_factory=dict)
    births: dict[str, list[Birth]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def stacks_with(self, kind: str, native_id: str) -> tuple[str, ...]:
        """The stacks whose state has this box or volume."""
        return tuple(
            name
            for name, state in self.states.items()
            if any(entry.native_id == native_id for entry in (state.boxes if kind == "box" else state.volumes))
        )

    def recorded_by(self, record: BoxRecord) -> tuple[str, ...]:
        """The stacks whose open records have this box, by its id or its tag."""
        return tuple(
            name
            for name, births in self.births.items()
            if any(b.native_id == record.native_id or (record.tag and b.tag == record.tag) for b in births)
        )

    def keepers_of(self, record: VolumeRecord) -> tuple[str, ...]:
        """The stacks by whose identity a volume is tagged."""
        ours = volume_of(record.tag)
        return tuple(
            name
            for name, state in self.states.items()
            if ours is not None and state.identity is not None and state.identity.identity == ours[0]
        )

    def hosts(self) -> list[str]:
        """The adapters that are named with a host's address, as states and open records know them: a host lists its
        own boxes, and nobody lists the hosts."""
        boxes = {box.adapter for state in self.states.values() for box in state.boxes}
        births = {birth.platform for births in self.births.values() for birth in births if birth.ended_at is None}
        return sorted(adapter for adapter in boxes | births if has_address(adapter))

    def speaks_of(self, adapter: str) -> bool:
        """Whether anything of this platform is in a state or an open record."""
        boxes = any(box.adapter == adapter for state in self.states.values() for box in state.boxes)
        open_births = (b for births in self.births.values() for b in births if b.ended_at is None)
        return boxes or any(birth.platform == adapter for birth in open_births)


def audit(root: Path, out: Out) -> int:
    """Exit code: 0 when all that was found is known to a state, 1 when something bills that none knows, 2 when a part
    could not be asked."""
    with Progress("reading every state of this backend"):
        known = read_known(root)
    with Progress("asking every account"):
        asked, findings = ask([*adapters(), *known.hosts()], known)
    stray = [finding for finding in findings if finding.bills_unknown]
    code = NO if stray else UNSURE if known.problems else YES
    out.document(
        {
            "asked": asked,
            "stacks": sorted(known.states),
            "findings": [_as_json(finding) for finding in findings],
            "problems": known.problems,
        }
    )
    render(findings, asked, known, out)
    return code


def read_known(root: Path) -> Known:
    """Every stack of the project in this backend, and the births in each one's evidence.

    Raises SweepstackError when the backend does not answer at all: then nothing would be known.
    """
    known = Known()
    for name in list_stacks(root):
        try:
            state = read_state(name, root)
        except SweepstackError as error:
            known.problems.append(f"the state of {name} is not known: {error}")
            continue
        known.states[name] = state
        known.problems += [f"the state of {name}: {problem}" for problem in state.problems]
        evidence = state.identity.evidence if state.identity else next((box.evidence for box in state.boxes), None)
        if evidence is None:
            continue
        try:
            known.births[name] = EvidenceStore.open(evidence).births()
        except SweepstackError as error:
            known.problems.append(f"the records of {name} are not known: {error}")
    return known


def ask(names: Sequence[str], known: Known) -> tuple[list[str], list[Finding]]:
    """Who answered, and what they hold, in the order of `names`. Who did not becomes a problem of `known`, unless there
    is no key for it and nothing of it is known. All are asked at once: hosts that are down make nobody wait in turn."""
    answers = in_parallel({adapter: partial(_asked, adapter, known) for adapter in names}, ASK_SECONDS)
    asked: list[str] = []
    findings: list[Finding] = []
    for adapter in names:
        answer = answers.get(adapter, PlatformError(f"no answer within {ASK_SECONDS:.0f} s"))
        if not isinstance(answer, SweepstackError):
            asked.append(adapter)
            findings += answer
        elif not isinstance(answer, NotAuthorized):
            known.problems.append(f"{adapter} could not be asked: {answer}")
        elif known.speaks_of(adapter):
            known.problems.append(f"{adapter}: boxes of it are on record, and it can't be asked: {answer}")
    return asked, findings


def _asked(adapter: str, known: Known) -> list[Finding] | SweepstackError:
    try:
        return look(adapter, load_platform(adapter), known)
    except SweepstackError as error:
        return error


def look(adapter: str, platform: Platform, known: Known) -> list[Finding]:
    """What the account at hand holds with a tag of ours, and what the states claim of it. Raises PlatformError."""
    listed = [record for record in platform.list_tagged(TAGS) if record.phase is not Phase.GONE]
    account = platform.account() if listed or known.speaks_of(adapter) else ""
    found = [_box(adapter, record, known) for record in listed]
    there = {record.native_id for record in listed}
    found += [
        finding
        for name, state in known.states.items()
        for box in state.boxes
        if box.adapter == adapter and box.native_id not in there
        for finding in _missing(adapter, platform, name, box.native_id, box.tag, box.account, account)
    ]
    if Capability.VOLUMES in platform.capabilities and Capability.OFFERS in platform.capabilities:
        found += [_volume(adapter, record, known) for record in platform.list_volumes(TAGS)]
    return found


def _box(adapter: str, record: BoxRecord, known: Known) -> Finding:
    whose = known.stacks_with("box", record.native_id)
    standing: Standing = "known"
    next_command = ""
    if not whose:
        whose = known.recorded_by(record)
        standing = "recorded" if whose else "unknown"
        next_command = (
            f"pulumi up --stack {whose[0]}    (adopts it)"
            if whose
            else f"sweepctl audit --end {adapter}:{record.native_id}"
        )
    return Finding(
        "box",
        adapter,
        record.native_id,
        record.tag,
        standing,
        record.phase.value,
        record.price_per_hour,
        where=record.region or record.location,
        whose=whose,
        next=next_command,
    )


def _volume(adapter: str, record: VolumeRecord, known: Known) -> Finding:
    whose = known.stacks_with("volume", record.native_id)
    standing: Standing = "known"
    next_command = ""
    if not whose:
        whose = known.keepers_of(record)
        standing = "recorded" if whose else "unknown"
        adopts = f"pulumi up --stack {whose[0]}    (adopts it, where its stack file names it)" if whose else ""
        next_command = adopts or f"sweepctl audit --end {adapter}:{record.native_id}"
    return Finding(
        "volume",
        adapter,
        record.native_id,
        record.tag,
        standing,
        "kept",
        price_per_month=record.price_per_month,
        where=record.region or record.location,
        whose=whose,
        next=next_command,
    )


def _missing(
    adapter: str, platform: Platform, stack: str, native_id: str, tag: str, account: str, at_hand: str
) -> Iterable[Finding]:
    """A box of a state that the account's list does not have."""
    if account != at_hand:
        words = f"of the account {account}, and the one at hand is {at_hand}"
        yield Finding("box", adapter, native_id, tag, "foreign", words, whose=(stack,))
        return
    record = platform.get(native_id, account)
    if record.phase is Phase.GONE:
        again = f"pulumi up --stack {stack}    (rents anew), or pulumi destroy"
        yield Finding("box", adapter, native_id, tag, "vanished", "gone", whose=(stack,), next=again)
    else:
        yield Finding(
            "box", adapter, native_id, tag, "known", record.phase.value, record.price_per_hour, whose=(stack,)
        )


def render(findings: Sequence[Finding], asked: Sequence[str], known: Known, out: Out) -> None:
    """The table for people, what it means, and what to type."""
    if findings:
        rows = [
            (
                finding.standing,
                finding.kind,
                finding.platform,
                finding.native_id,
                finding.phase,
                money(finding.price_per_hour) if finding.kind == "box" else _month(finding.price_per_month),
                ", ".join(finding.whose) or "nobody",
                finding.tag or "(no readable tag)",
            )
            for finding in findings
        ]
        out.table(("STANDING", "WHAT", "WHERE", "ID", "PHASE", "$/H", "KNOWN TO", "TAG"), rows)
    for problem in known.problems:
        out.line(f"problem  {problem}")
    stray = [finding for finding in findings if finding.bills_unknown]
    rate = sum(finding.price_per_hour or 0.0 for finding in stray)
    whole = f"{len(asked)} platform{'' if len(asked) == 1 else 's'} asked ({', '.join(asked) or 'none'})"
    stacks = f"{len(known.states)} stack{'' if len(known.states) == 1 else 's'} of this backend"
    if stray:
        out.line(f"audit    {len(stray)} bill, or may, that no state knows of: at least ${rate:.2f}/h", style="bold")
    elif known.problems:
        out.line("audit    nothing stray was found, and a part could not be asked", style="bold")
    else:
        out.line("audit    everything that was found is known to a state", style="bold")
    out.line(f"         {whole}, {stacks}; another backend's stacks are strangers here")
    out.next([finding.next for finding in findings if finding.next])


def _month(price: float | None) -> str:
    return f"{price:.2f}/month" if price is not None else "by the month"


def _as_json(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "platform": finding.platform,
        "native_id": finding.native_id,
        "tag": finding.tag,
        "standing": finding.standing,
        "phase": finding.phase,
        "price_per_hour": finding.price_per_hour,
        "price_per_month": finding.price_per_month,
        "where": finding.where,
        "known_to": list(finding.whose),
        "next": finding.next or None,
    }
