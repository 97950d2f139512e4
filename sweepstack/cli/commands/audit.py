"""`sweepctl audit`: compares the accounts with all states; ends a box or volume that no state has.

The states are those of this backend. Without `--end` it deletes nothing: it reads each box that no state has, shows its
content, its owner and the next command, and tells the places that the stacks of this checkout name, each thing once.

`--end PLATFORM:ID` ends one box or volume, after its check, which needs no state (`operations.strays.judge`). It reads
what is to end, all states of the backend, of every project, and every evidence that a stack file of this checkout or
the box itself names. A box in a state or in an open record is refused: it ends through its own gate. Only an
abandonment with a reason passes the check, and it is recorded before anything ends. The person has to type the id
again.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from sweepstack.billing.stray import Stray, end_command, takes_words
from sweepstack.cli.events import PATIENCE, channels
from sweepstack.cli.options import AsJson
from sweepstack.cli.output import NO, UNSURE, YES, Out, aside, note
from sweepstack.cli.progress import Progress
from sweepstack.cli.prompt import answer, own_words
from sweepstack.config.edit.stack_file import StackFile
from sweepstack.core.bucket_address import evidence_uri
from sweepstack.core.extensions import adapters
from sweepstack.core.local_decisions import Decision, record_decision
from sweepstack.core.paths import docs_page
from sweepstack.core.records import Loss
from sweepstack.evidence import box_logs
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import digest_of
from sweepstack.onbox.common.errors import No, NotYetGone, OutcomeUnknown, PlatformError, SweepstackError, Unsure
from sweepstack.onbox.common.units import count, spell_rate
from sweepstack.onbox.host.capabilities import HasVolumes
from sweepstack.onbox.host.platform import Phase, Platform
from sweepstack.operations.events.deliver import Delivery, deliver
from sweepstack.operations.events.event import Event, stray
from sweepstack.operations.observe import look_up, rented_at
from sweepstack.operations.strays.accounts import ask, findings_in, still_billed_boxes, without_duplicates
from sweepstack.operations.strays.judge import (
    Assessed,
    BoxAssessed,
    VolumeAssessed,
    adopts,
    assess_box,
    assess_volume,
    way_out,
    with_details,
)
from sweepstack.operations.strays.known_states import KnownStates, read_known
from sweepstack.operations.strays.other_backends import gate_of
from sweepstack.operations.sweep.target import project_root
from sweepstack.platforms.registry import has_address, load_platform, need
from sweepstack.teardown.box_context import BoxAt
from sweepstack.teardown.close_box import close_books
from sweepstack.teardown.orphan_check import EndRequest
from sweepstack.teardown.ownership import who

AUDIT = "sweepctl audit"
ASK = f"no command is sure to be right: ask its owner, or who else uses this account ({docs_page('teardown.md')})"
OWN = "its evidence does not open here: put that back, or give it up"
DISK_AWAY = "what is on it is not known: its own disk is not mounted"
WAIT_SECONDS = 300.0
POLL_SECONDS = 2.0
GIVEN_UP, ENDED = "given up", "ended"
"""The kinds of decision here. Never `abandoned`: a delete would take that for its own (`teardown.abandonment`)."""
SHOWN = 12
"""Reasons of a refusal that are listed one by one; the rest are counted."""


def command(
    end: Annotated[
        str | None,
        typer.Option(
            "--end", metavar="PLATFORM:ID", help="End one box or volume that no state has, after a check. Asks first."
        ),
    ] = None,
    abandon: Annotated[
        bool, typer.Option("--abandon", help="With --end and --reason: give up the data on it. Recorded.")
    ] = False,
    reason: Annotated[str, typer.Option("--reason", metavar="WHY", help="With --abandon: why.")] = "",
    owner_agreed: Annotated[
        str,
        typer.Option("--owner-agreed", metavar="USER@HOST", help="With --end: its owner, who holds it and has agreed."),
    ] = "",
    yes: Annotated[str | None, typer.Option("--yes", metavar="ID", help="With --end: the id again.")] = None,
    json: AsJson = False,
) -> int:
    """Compare your accounts with all states. Deletes nothing. Exit 1: something bills that no state knows of."""
    root, out = project_root(), Out(as_json=json)
    if end is None:
        return audit(root, out)
    return end_stray(root, end, out, typed=yes, abandon=abandon, reason=reason, agreed=owner_agreed)


def audit(root: Path, out: Out) -> int:
    """Exit code: 0 if a state knows everything that was found, 1 if something bills that none knows, 2 if an account or
    a state could not be asked."""
    with Progress("reading every state of this backend"):
        known = read_known(root)
    with Progress("asking every account"):
        asked, findings = ask([*adapters(), *known.hosts(), *known.not_here()], known)
    findings = with_details(without_duplicates(findings), known, Progress) + still_billed_boxes(known)
    orphans = [finding for finding in findings if finding.bills_unknown]
    code = NO if orphans else UNSURE if known.problems else YES
    out.document(
        {
            "asked": asked,
            "stacks": sorted(known.states),
            "findings": [finding.as_json("findings") for finding in findings],
            "by_hand": [box.as_json("by_hand") for box in known.by_hand],
            "problems": known.problems,
        }
    )
    render(findings, asked, known, out)
    tell_findings(orphans, known)
    return code


def render(findings: Sequence[Stray], asked: Sequence[str], known: KnownStates, out: Out) -> None:
    """Prints the table, its summary, and what to type next."""
    if findings:
        rows = [
            (
                finding.native_id,
                finding.standing,
                finding.kind,
                finding.platform,
                finding.phase,
                _hour(finding.price_per_hour) if finding.kind == "box" else _month(finding.price_per_month),
                ", ".join(finding.whose) or "-",
                finding.tag or ("-" if finding.phase == "stopped" else "(no readable tag)"),
            )
            for finding in findings
        ]
        out.table(("ID", "STANDING", "WHAT", "WHERE", "PHASE", "$/H", "KNOWN TO", "TAG"), rows)
    for finding in findings:
        if finding.holds:
            out.line(f"box      {finding.native_id}: {finding.holds}")
            out.line(f"         owner: {finding.owner}")
            if not finding.next:
                out.line(f"         {OWN if finding.unopened else ASK}")
            if finding.give_up:
                out.line(f"         give up  {finding.give_up}")
        if finding.kind == "volume" and finding.stateless:
            size = takes_words(finding.price_per_month, finding.size_gb, finding.used_bytes, more=finding.used_more)
            over = finding.standing == "survived"
            size += {"lost": "; its content is lost", "unknown": f"; {DISK_AWAY}"}.get(finding.phase, "")
            out.line(f"volume   {finding.native_id}: {size}{'; every box of its sweep has ended' if over else ''}")
            if over or not finding.next:
                out.line(f"         {f'to end it: {finding.next}' if over else ASK}")
    _tell_by_hand(known, out)
    for stack, rest in known.still_billed:
        out.line(f"note     {rest.text(stack)}")
    _tell_unheld(findings, known, out)
    for problem in known.problems:
        out.line(f"problem  {problem}")
    orphans = [finding for finding in findings if finding.bills_unknown]
    free = sum(finding.stateless for finding in findings) - len(orphans)
    rate = sum(finding.price_per_hour or 0.0 for finding in orphans)
    whole = f"{count(len(asked), 'platform')} asked ({', '.join(asked) or 'none'})"
    stacks = f"{count(len(known.states), 'stack')} of this backend"
    if orphans:
        out.line(
            f"audit    {len(orphans)} bill, or may, that no state knows of: at least ${spell_rate(rate)}/h",
            style="bold",
        )
    elif known.problems:
        out.line("audit    no orphan was found, but not everything could be asked", style="bold")
    elif not findings:
        out.line("audit    nothing of ours was found", style="bold")
    elif free:
        out.line(f"audit    everything that bills is known to a state; {free} of no state cost nothing", style="bold")
    else:
        out.line("audit    everything that was found is known to a state", style="bold")
    out.line(f"         {whole}, {stacks}; another backend's stacks are not known here")
    out.next(
        [finding.next for finding in findings if finding.next and (finding.kind == "box" or finding.bills_unknown)]
    )


def _tell_by_hand(known: KnownStates, out: Out) -> None:
    for box in known.by_hand:
        out.line(f"by hand  {box.native_id} on {box.platform}, {box.phase}, ${_hour(box.price_per_hour)}/h: not ours")
        out.line(f"         to take it into a sweep: {box.next}")


def _tell_unheld(findings: Sequence[Stray], known: KnownStates, out: Out) -> None:
    at_rest = {finding.native_id for finding in findings if finding.phase in ("stopped", "gone")}
    for stack, one in known.unheld:
        if one.birth.native_id not in at_rest:
            out.line(f"late     {one.words(stack)}", style="bold")


def _hour(price: float | None) -> str:
    return "?" if price is None else spell_rate(price)


def _month(price: float | None) -> str:
    return f"{price:.2f}/month" if price is not None else "by the month"


def tell_findings(findings: Sequence[Stray], known: KnownStates) -> None:
    """Tells of findings that bill and that no state knows of. Blocks for `PATIENCE` at most, and never raises.

    A finding that is known to some stacks is told where these say; any other by the first stack that names a place.
    """
    begun: list[Delivery] = []
    covered: set[str] = set()
    for stack, store in sorted(known.stores.items()):
        file = StackFile.locate(known.root, stack)
        if not findings or evidence_uri(known.root, file.pull_to() or "") != store.objects.uri:
            continue  # another project's stack, or evidence that was left behind
        there, problem = channels(file, None)
        if problem:
            note(problem)
        mine = [finding for finding in findings if stack in finding.whose]
        others = [finding for finding in findings if not set(finding.whose) & set(known.stores)]
        for channel in there:
            told = [*mine, *(others if channel.key not in covered else ())]
            covered.add(channel.key)
            begun.append(deliver(store, [channel], [_event(finding, stack) for finding in told]))
    deadline = time.monotonic() + PATIENCE
    for delivery in begun:
        if problem := delivery.wait(max(deadline - time.monotonic(), 0)):
            note(problem)


def _event(finding: Stray, stack: str) -> Event:
    return stray(
        f"{finding.platform}/{finding.native_id}",
        f"{finding.kind} {finding.native_id} on {finding.platform}",
        why=f"it bills, or may, and no state knows of it ({finding.standing})",
        stack=stack,
        next=finding.next,
        now=datetime.now(UTC),
        per_hour=finding.price_per_hour,
        per_month=finding.price_per_month,
    )


def end_stray(
    root: Path, what: str, out: Out, *, typed: str | None, abandon: bool = False, reason: str = "", agreed: str = ""
) -> int:
    """Ends `what`, a `platform:id`. Irreversible; idempotent; blocks for minutes at most.

    `typed`: the id again, None to ask for it; `abandon`, `reason`: its data may be lost; `agreed`: the owner of a held
    box, who has agreed. Exit code 0 only if the platform proves that it is gone; raises No if the check refuses, and
    nothing was ended.
    """
    request = _request(abandon, reason, agreed)
    adapter, colon, native_id = what.rpartition(":")  # a host's address has colons of its own
    if not colon or not native_id:
        raise Unsure(f"{what!r} names no platform and id", [AUDIT])
    with Progress("reading every state of this backend"):
        known = read_known(root)
    if known.problems and not abandon:
        raise No(
            f"not every state could be read, so {native_id} may be known to one: {'; '.join(known.problems)}", [AUDIT]
        )
    platform = load_platform(adapter)
    finding = next((found for found in findings_in(adapter, platform, known) if found.native_id == native_id), None)
    if finding is None or finding.standing == "vanished":
        raise No(f"{adapter} lists no {native_id} with a tag of ours; nothing was ended", [AUDIT])
    _refuse_gated(finding, known, abandon=abandon)
    found = _checked(finding, known, request, full=False)
    _confirm(found, typed)
    found = _checked(finding, known, request, full=True)  # its content may have changed while the person typed the id
    places = _record(found, known, request)
    account = platform.account()
    problems = _keep_logs(found) if isinstance(found, BoxAssessed) else []
    _issue(platform, finding, account)
    problems += _close(found, request) if isinstance(found, BoxAssessed) else []
    way = found.verdict.way
    document = {"platform": adapter, "native_id": native_id, "kind": finding.kind, "gone": True}
    out.document(document | {"way": way, "recorded": places, "problems": problems})
    out.line(f"{finding.kind} {native_id} is gone from {adapter} ({way}); what was on it is gone with it")
    out.line(f"on record in {', '.join(places)}")
    for problem in problems:
        out.line(f"problem  {problem}")
    out.next([AUDIT])
    return YES


def _request(abandon: bool, reason: str, agreed: str) -> EndRequest:
    """What the person asks for. Raises Unsure for a reason without --abandon, or --abandon without a reason."""
    reason = own_words("--reason", reason)
    if abandon and not reason:
        raise Unsure('--abandon needs a reason, which is kept: --abandon --reason "…"')
    if reason and not abandon:
        raise Unsure('--reason is for an abandonment: --abandon --reason "…"')
    return EndRequest(who(), reason, agreed.strip())


def _refuse_gated(finding: Stray, known: KnownStates, *, abandon: bool) -> None:
    """Raises No if a state has it; also if an open record has it, unless it is abandoned."""
    if finding.standing in ("known", "foreign"):
        stack = finding.whose[0]
        raise No(
            f"{finding.native_id} is known to {', '.join(finding.whose)}, so it ends through its gate and not here",
            [f"sweepctl finish --stack {stack}", f"sweepctl status --stack {stack}"],
        )
    if finding.standing == "recorded" and not (abandon and finding.kind == "box"):
        following = finding.next or adopts(finding.whose[0], known, known.stores.get(finding.whose[0]))
        raise No(
            f"{finding.native_id} is known to {', '.join(finding.whose)}, on record as rented, so it ends through its "
            "gate and not here",
            [following],
        )


def _checked(finding: Stray, known: KnownStates, request: EndRequest, *, full: bool) -> Assessed:
    """The assessment, if the check allows the end. Raises No with what keeps it, and what to do."""
    with Progress(f"reading {finding.native_id}"):
        if finding.kind == "volume":
            volume = assess_volume(finding, known, given_up=bool(request.reason))
        else:
            box = assess_box(finding, known, request, full=full)
    return _checked_volume(volume) if finding.kind == "volume" else _checked_box(box, known, request)


def _checked_box(found: BoxAssessed, known: KnownStates, request: EndRequest) -> BoxAssessed:
    if found.verdict.allowed and (request.reason or not found.on_record):
        return found
    following, give_up = way_out(found, known, recorded="")
    reasons = found.verdict.reasons or [f"it is on record as rented by {found.on_record}, and ends through its gate"]
    rows = [("locked because", "; ".join(reasons)), ("holds", found.holds), ("owner", found.owner_words)]
    if found.there:
        pass  # whatever is typed here: it ends through its gate
    elif found.verdict.held and found.owner is not None:
        rows.append(("once agreed", f"{_gives_up(found)} --owner-agreed {found.owner.person}"))
    else:
        rows.append(("give up", give_up or f"{_gives_up(found)}    (only once you know its owner)"))
    raise No(_refused(found, rows), [following] if following else [AUDIT])


def _checked_volume(found: VolumeAssessed) -> VolumeAssessed:
    if found.verdict.allowed:
        return found
    finding, following = found.finding, [AUDIT]
    reason = "; ".join(found.verdict.reasons)
    gate, there = gate_of(found.others)  # its owner's first
    if gate and gate == reason:
        reason, following = f"{gate}: it ends through its gate there", [there]
        if not any(one.there for one in found.owners):  # no state there has the volume
            reason = f"{gate}, which mounted it: end that sweep there first, then type this again"
            following += [f"{end_command(finding.platform, finding.native_id)}    (once that sweep has ended there)"]
    if not found.verdict.unsafe:
        raise No(f"nothing was ended: volume {finding.native_id}: {reason}", following)
    unsafe = found.verdict.unsafe
    rows = [("locked because" if index == 0 else "", text) for index, text in enumerate(unsafe[:SHOWN])]
    if len(unsafe) > SHOWN:
        rows.append(("", f"… and {len(unsafe) - SHOWN} more"))
    rows += [("holds", found.holds), ("give up", f"{_gives_up(found)}    (only once you know its owner)")]
    raise No(_refused(found, rows), following)


def _gives_up(found: Assessed) -> str:
    return end_command(found.finding.platform, found.finding.native_id, lose=True)


def _refused(found: Assessed, rows: Sequence[tuple[str, str]]) -> str:
    finding = found.finding
    lines = [f"REFUSED. Nothing was ended: {finding.kind} {finding.native_id} on {finding.platform}."]
    return "\n".join([*lines, *(f"  {label:<14}  {text}" for label, text in rows)])


def _confirm(found: Assessed, typed: str | None) -> None:
    finding = found.finding
    words = f"{finding.kind} {finding.native_id} on {finding.platform} ({finding.tag or 'no readable tag'})"
    if typed is None:
        if not sys.stdin.isatty():
            raise No(f"ending {words} can't be undone: --yes {finding.native_id} says that you mean it")
        aside(f"This ends {words}, with all that is on it. It can't be undone.")
        aside(f"  holds  {found.holds}")
        if found.owner_words:
            aside(f"  owner  {found.owner_words}")
        aside(*(f"  state  in {other.backend}, which {other.words}" for other in found.others))
        typed = answer(f"Type its id to go on ({finding.native_id}): ")
    if typed != finding.native_id:
        raise No(f"{typed!r} is not {finding.native_id}; nothing was ended", [AUDIT])


def _record(found: Assessed, known: KnownStates, request: EndRequest) -> list[str]:
    """Records the decision on this computer, in the evidence and on the box. Returns the places that worked.

    Raises No if it could be recorded neither here nor in the evidence: then nothing was ended.
    """
    finding, decision = found.finding, _decision(found, known, request)
    places, problems = [], []
    try:
        places.append(str(record_decision(decision)))
    except SweepstackError as error:
        problems.append(str(error))
    for store in found.stores:
        digest = digest_of(decision.model_dump(mode="json")).rpartition(":")[2][:16]
        try:
            store.write_record(f"decisions/{quote(finding.native_id, safe='')}--{digest}.json", decision)
            places.append(store.shown)
        except SweepstackError as error:
            problems.append(str(error))
    if not places:
        raise No(f"nothing was ended: the decision could not be recorded anywhere: {'; '.join(problems)}", [AUDIT])
    if finding.kind == "box":
        with contextlib.suppress(SweepstackError, OSError):
            channel = BoxAt(finding.platform, finding.native_id, finding.account).channel()
            channel.append_locked(box_layout.DECISIONS, decision.line(), box_layout.DECISIONS + ".lock")
            places.append("the box")
    return places


def _decision(found: Assessed, known: KnownStates, request: EndRequest) -> Decision:
    finding, owner = found.finding, found.owner
    agreed = f"; {request.person} says that {request.agreed} has agreed" if request.agreed else ""
    unread = f"; not every state could be read: {'; '.join(known.problems)}" if known.problems else ""
    why = request.reason or f"the check allowed it: {found.verdict.way}"
    box, volume = box_layout.box_of(finding.tag), box_layout.volume_of(finding.tag)
    holds = found.holds + (f"; owner {found.owner_words}" if found.owner_words else "")
    holds += "".join(f"; held by the state in {other.backend}, which {other.words}" for other in found.others)
    return Decision(
        what=GIVEN_UP if request.reason else ENDED,
        by=request.person,
        at=datetime.now(UTC),
        reason=why + agreed,
        platform=finding.platform,
        native_id=finding.native_id,
        account=finding.account,
        box=box[1] if box else "",
        identity=box[0] if box else volume[0] if volume else "",
        project=owner.project if owner else "",
        stack=owner.stack if owner else ", ".join(finding.whose),
        evidence=", ".join(store.objects.uri for store in found.stores),
        found=holds + unread,
    )


def _keep_logs(found: BoxAssessed) -> list[str]:
    """Copies the box's own logs into each evidence of its sweep, if the box answers. Returns the problems.

    Skips a second box with the same tag: its logs would replace those of the first.
    """
    finding, box, journal = found.finding, found.box, found.on_it.seen.journal
    if journal is None or not box.box or finding.standing == "duplicate":
        return []
    channel = BoxAt(finding.platform, finding.native_id, finding.account).channel
    places = [Evidence(store.objects.uri) for store in found.stores]
    kept = [box_logs.copy_last(channel, place, box.box, box.generation, journal.head) for place in places]
    return [problem for problems in kept for problem in problems]


def _close(found: BoxAssessed, request: EndRequest) -> list[str]:
    """Records that the box is gone, and the cells that were lost. Returns what could not be written: the box is gone
    in any case."""
    problems: list[str] = []
    finding, box, now = found.finding, found.box, datetime.now(UTC)
    how = f"abandoned by {request.person}" if request.reason else f"ended by {request.person}"
    lost = tuple(name for name, state in found.verdict.unsafe.items() if state != "pending")
    for store in found.stores if box.box else ():
        try:
            birth = store.birth(box.box, box.generation)
            # A record without an answer may be of the other box with this tag.
            if birth is not None and (birth.native_id == box.native_id or finding.standing != "duplicate"):
                close_books(store, box=box.box, generation=box.generation, native_id=box.native_id, how=how, at=now)
        except SweepstackError as error:
            problems.append(f"the records in {store.shown} could not be closed: {error}")
        try:  # by itself: a birth record that does not read keeps no loss from being said
            if lost:
                store.write_loss(Loss(box=box.box, native_id=box.native_id, cells=lost, why=how, at=now))
        except SweepstackError as error:
            problems.append(f"what was lost could not be recorded in {store.shown}: {error}")
    return problems


def _issue(platform: Platform, finding: Stray, account: str) -> None:
    """Ends it, and returns once that is proved. At the deadline raises No, which names what may still bill."""
    begun, problem = time.monotonic(), "the platform still lists it"
    with Progress(f"ending {finding.native_id}"):
        while time.monotonic() - begun < WAIT_SECONDS:
            try:
                if finding.kind == "volume":
                    keeping = need(platform, HasVolumes)
                    keeping.delete_volume(finding.native_id, account)
                    if keeping.get_volume(finding.native_id) is None:
                        return
                else:
                    platform.destroy(finding.native_id, account)
                    rented = rented_at(finding.price_per_hour)
                    record = look_up(platform, finding.native_id, account, rented=rented)
                    if record.phase is Phase.GONE:
                        return
                    problem = record.note or problem
                    if record.phase is Phase.ENDING and has_address(finding.platform):
                        break  # the box is empty, and only a person can end the host's bill
            except (NotYetGone, OutcomeUnknown) as error:
                problem = str(error)
            except PlatformError as error:
                problem = str(error)
                break
            time.sleep(POLL_SECONDS)
    raise No(f"that {finding.native_id} is gone is not proved: {problem}. It may still bill", [AUDIT])
