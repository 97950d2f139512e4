"""`sweepctl audit --end PLATFORM:ID`: ends one box or volume that bills and that no state has.

It uses the check for orphans, which needs no state (`teardown.orphan_check`). It reads the box, all states of the
backend, of every project, and every evidence that a stack file of this checkout or the box itself names. A box in a
state or in an open record is refused: it ends through its own gate. Only an abandonment with a reason passes the check,
and it is recorded before anything ends. The person has to type the id again.
"""

from __future__ import annotations

import contextlib
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from sweepstack.cli.commands.audit.accounts import Finding, findings_in
from sweepstack.cli.commands.audit.assess import Assessed, adopts, assess, way_out
from sweepstack.cli.commands.audit.end_volume import VolumeAssessed, assess_volume, refusal
from sweepstack.cli.commands.audit.known_boxes import Known, read_known
from sweepstack.cli.commands.audit.other_backend import gate_of
from sweepstack.cli.output import YES, No, Out, Unsure, aside
from sweepstack.cli.progress import Progress
from sweepstack.cli.prompt import answer, own_words
from sweepstack.core.local_decisions import Decision, record_decision
from sweepstack.core.records import Loss
from sweepstack.evidence import box_logs
from sweepstack.evidence.lazy import Evidence
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import digest_of
from sweepstack.onbox.common.errors import NotYetGone, OutcomeUnknown, PlatformError, SweepstackError
from sweepstack.onbox.host.capabilities import HasVolumes
from sweepstack.onbox.host.platform import Phase, Platform
from sweepstack.operations.observe import look_up, rented_at
from sweepstack.platforms.registry import has_address, load_platform, need
from sweepstack.teardown.box_context import BoxAt
from sweepstack.teardown.close_box import close_books
from sweepstack.teardown.orphan_check import EndRequest
from sweepstack.teardown.ownership import who

WAIT_SECONDS = 300.0
POLL_SECONDS = 2.0
AUDIT = "sweepctl audit"
GIVEN_UP, ENDED = "given up", "ended"
"""The kinds of decision here. Never `abandoned`: a delete would take that for its own (`teardown.abandonment`)."""


def end(
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
    _refuse_gated(finding, root, known, abandon=abandon)
    found: Assessed | VolumeAssessed
    if finding.kind == "box":
        found = _checked(finding, root, known, request, full=False)
    else:
        found = _check_volume(finding, root, known, abandon=abandon)
    _confirm(finding, typed, found)
    if finding.kind == "box":  # its content may have changed while the person typed the id
        found = _checked(finding, root, known, request, full=True)
    else:
        found = _check_volume(finding, root, known, abandon=abandon)
    places = _record(finding, found, known, request)
    account = platform.account()
    problems = _keep_logs(finding, found) if isinstance(found, Assessed) else []
    _issue(platform, finding, account)
    problems += _close(finding, found, request) if isinstance(found, Assessed) else []
    way = _way(found, request)
    document = {"platform": adapter, "native_id": native_id, "kind": finding.kind, "gone": True}
    out.document(document | {"way": way, "recorded": places, "problems": problems})
    out.line(f"{finding.kind} {native_id} is gone from {adapter} ({way}); what was on it is gone with it")
    out.line(f"on record in {', '.join(places)}")
    for problem in problems:
        out.line(f"problem  {problem}")
    out.next([AUDIT])
    return YES


def _way(found: Assessed | VolumeAssessed, request: EndRequest) -> str:
    if isinstance(found, Assessed):
        return found.verdict.way or "abandoned"
    return "abandoned" if request.reason else "cleared"


def _request(abandon: bool, reason: str, agreed: str) -> EndRequest:
    """What the person asks for. Raises Unsure for a reason without --abandon, or --abandon without a reason."""
    reason = own_words("--reason", reason)
    if abandon and not reason:
        raise Unsure('--abandon needs a reason, which is kept: --abandon --reason "…"')
    if reason and not abandon:
        raise Unsure('--reason is for an abandonment: --abandon --reason "…"')
    return EndRequest(who(), reason, agreed.strip())


def _refuse_gated(finding: Finding, root: Path, known: Known, *, abandon: bool) -> None:
    """Raises No if a state has it; also if an open record has it, unless it is abandoned."""
    if finding.standing in ("known", "foreign"):
        stack = finding.whose[0]
        raise No(
            f"{finding.native_id} is known to {', '.join(finding.whose)}, so it ends through its gate and not here",
            [f"sweepctl finish --stack {stack}", f"sweepctl status --stack {stack}"],
        )
    if finding.standing == "recorded" and not (abandon and finding.kind == "box"):
        following = finding.next or adopts(finding.whose[0], root, known, known.stores.get(finding.whose[0]))
        raise No(
            f"{finding.native_id} is known to {', '.join(finding.whose)}, on record as rented, so it ends through its "
            "gate and not here",
            [following],
        )


def _checked(finding: Finding, root: Path, known: Known, request: EndRequest, *, full: bool) -> Assessed:
    """The assessment, if the check allows the end; else raises No with the content, the owner, and what to do."""
    with Progress(f"reading {finding.native_id}"):
        found = assess(
            finding.platform, finding.native_id, finding.account, finding.tag, root, known, request, full=full
        )
    if found.verdict.allowed and (request.reason or not found.on_record):
        return found
    doubled = finding.standing == "duplicate"
    following, give_up = way_out(found, root, known, recorded="", doubled=doubled)
    lines = [f"REFUSED. Nothing was ended: box {finding.native_id} on {finding.platform}."]
    reasons = found.verdict.reasons or [f"it is on record as rented by {found.on_record}, and ends through its gate"]
    rows = [("locked because", "; ".join(reasons)), ("holds", found.on_it.words), ("owner", found.owner_words)]
    if found.there:
        pass  # whatever is typed here: it ends through its gate
    elif found.verdict.held and found.owner is not None:
        again = f'sweepctl audit --end {finding.platform}:{finding.native_id} --abandon --reason "…"'
        rows.append(("once agreed", f"{again} --owner-agreed {found.owner.person}"))
    else:
        abandoned = f'sweepctl audit --end {finding.platform}:{finding.native_id} --abandon --reason "…"'
        rows.append(("give up", give_up or f"{abandoned}    (only once you know its owner)"))
    lines += [f"  {label:<14}  {text}" for label, text in rows]
    raise No("\n".join(lines), [following] if following else [AUDIT])


def _check_volume(finding: Finding, root: Path, known: Known, *, abandon: bool) -> VolumeAssessed:
    """The assessment of the volume. Raises No if another backend still has its sweep, or a box mounts it, or may; and
    if its data has no verified copy elsewhere, unless it is given up."""
    with Progress(f"reading {finding.native_id}"):
        found = assess_volume(
            finding.platform, finding.native_id, finding.account, finding.tag, root, known, given_up=abandon
        )
    gate, there = gate_of(found.others)  # its owner's first
    if gate:
        how, following = ": it ends through its gate there", [there]
        if not any(one.there for one in found.owners):  # no state there has the volume
            how = ", which mounted it: end that sweep there first, then type this again"
            following += [f"{AUDIT} --end {finding.platform}:{finding.native_id}    (once that sweep has ended there)"]
        raise No(f"nothing was ended: volume {finding.native_id}: {gate}{how}", following)
    if found.mounted:
        raise No(f"nothing was ended: volume {finding.native_id}: {'; '.join(found.mounted)}", [AUDIT])
    if not found.allowed and not abandon:
        raise No(refusal(finding.platform, finding.native_id, found), [AUDIT])
    if found.policy:
        raise No(f"nothing was ended: volume {finding.native_id}: {'; '.join(found.policy)}", [AUDIT])
    return found


def _confirm(finding: Finding, typed: str | None, found: Assessed | VolumeAssessed) -> None:
    words = f"{finding.kind} {finding.native_id} on {finding.platform} ({finding.tag or 'no readable tag'})"
    if typed is None:
        if not sys.stdin.isatty():
            raise No(f"ending {words} can't be undone: --yes {finding.native_id} says that you mean it")
        aside(f"This ends {words}, with all that is on it. It can't be undone.")
        if isinstance(found, Assessed):
            aside(f"  holds  {found.on_it.words}", f"  owner  {found.owner_words}")
        else:
            aside(f"  holds  {found.words}")
        aside(*(f"  state  in {other.backend}, which {other.words}" for other in found.others))
        typed = answer(f"Type its id to go on ({finding.native_id}): ")
    if typed != finding.native_id:
        raise No(f"{typed!r} is not {finding.native_id}; nothing was ended", [AUDIT])


def _record(finding: Finding, found: Assessed | VolumeAssessed, known: Known, request: EndRequest) -> list[str]:
    """Records the decision on this computer, in the evidence and on the box. Returns the places that worked.

    Raises No if it could be recorded neither here nor in the evidence: then nothing was ended.
    """
    decision = _decision(finding, found, known, request)
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
    if isinstance(found, Assessed):
        with contextlib.suppress(SweepstackError, OSError):
            channel = BoxAt(finding.platform, finding.native_id, finding.account).channel()
            channel.append_locked(box_layout.DECISIONS, decision.line(), box_layout.DECISIONS + ".lock")
            places.append("the box")
    return places


def _decision(finding: Finding, found: Assessed | VolumeAssessed, known: Known, request: EndRequest) -> Decision:
    owner = found.owner if isinstance(found, Assessed) else None
    agreed = f"; {request.person} says that {request.agreed} has agreed" if request.agreed else ""
    unread = f"; not every state could be read: {'; '.join(known.problems)}" if known.problems else ""
    why = request.reason or f"the check allowed it: {_way(found, request)}"
    box, volume = box_layout.box_of(finding.tag), box_layout.volume_of(finding.tag)
    holds = found.words if not isinstance(found, Assessed) else f"{found.on_it.words}; owner {found.owner_words}"
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


def _keep_logs(finding: Finding, found: Assessed) -> list[str]:
    """Copies the box's own logs into each evidence of its sweep, if the box answers. Returns the problems.

    Skips a second box with the same tag: its logs would replace those of the first.
    """
    box, journal = found.box, found.on_it.seen.journal
    if journal is None or not box.box or finding.standing == "duplicate":
        return []
    channel = BoxAt(finding.platform, finding.native_id, finding.account).channel
    places = [Evidence(store.objects.uri) for store in found.stores]
    kept = [box_logs.copy_last(channel, place, box.box, box.generation, journal.head) for place in places]
    return [problem for problems in kept for problem in problems]


def _close(finding: Finding, found: Assessed, request: EndRequest) -> list[str]:
    """Records that the box is gone, and the cells that were lost. Returns what could not be written: the box is gone
    in any case."""
    problems: list[str] = []
    box, now = found.box, datetime.now(UTC)
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


def _issue(platform: Platform, finding: Finding, account: str) -> None:
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
