"""`sweepctl confirm gone BOX`: a person confirms that a box bills no more, if no API can prove it.

The confirmation is recorded in the evidence, for one native id with an end that was allowed and begun, or of which
nothing is lost. It counts only while a connection to the box fails, or while its platform's API shows it nowhere: now,
and again at every later command. A host that bills nothing may answer, if it has lost the folder of the box: it then
says itself what is gone.

Before a person confirms, the platform's API is asked about the silent host. Also closed here is the record of a box
that no state has, once its platform proves that it is gone: a sweep that was destroyed may have left one: its provider
was killed before the record, or the evidence was out of reach. No delete comes any more that would close it, and so its
bill goes on in the books.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from sweepstack.billing.ledger import spent
from sweepstack.cli.commands.confirm import Statement
from sweepstack.cli.output import YES, Out
from sweepstack.core.observation import Existence, Observation
from sweepstack.core.records import Approval, Loss
from sweepstack.core.suggest import did_you_mean
from sweepstack.evidence.store import EvidenceStore
from sweepstack.onbox.common.errors import (
    ConfigError,
    EvidenceError,
    FolderLost,
    No,
    PlatformError,
    SweepstackError,
    Unproved,
    Unreachable,
    Unsure,
    one_line,
)
from sweepstack.onbox.host.capabilities import IsHost, ListedHost, ListsHosts
from sweepstack.onbox.host.platform import Phase
from sweepstack.operations.host_shutdown import told
from sweepstack.operations.observe import observe, rented_at
from sweepstack.operations.strays.beside_sweep import entry_of
from sweepstack.operations.sweep.sources import Sources, open_sources
from sweepstack.operations.sweep.target import Target
from sweepstack.platforms.registry import has_address, has_wallet, load_wallet, need
from sweepstack.platforms.ssh.platform import SshPlatform
from sweepstack.status.engine.state import BoxEntry
from sweepstack.teardown.abandonment import recorded_approvals
from sweepstack.teardown.box_check import BoxEnding
from sweepstack.teardown.check import may_end
from sweepstack.teardown.close_box import StillBilled, close_books, close_gone, lost_with, release_books, still_billed
from sweepstack.teardown.handover_records import Confirmation, Handover, handover_of, keep_handover, kept_here
from sweepstack.teardown.orphan_check import not_proved_here
from sweepstack.teardown.refusal import of_box

USES = ("saw", "by", "at", "another", "power_off")
SKEW = timedelta(minutes=5)


def confirm(target: Target, statement: Statement, out: Out) -> int:
    """Exit 0: the confirmation is recorded; 1: it was refused, and nothing was written; 2: not known."""
    now = datetime.now(UTC).replace(microsecond=0)
    status = [f"sweepctl status --stack {target.stack}"]
    sources = open_sources(target)
    open_ones = open_records(sources, statement.box)
    if open_ones and not any(map(_nowhere, open_ones)):
        return close_proved(target, sources, open_ones, out)
    rest = _resting(sources, statement.box, now)
    box = _box(sources, statement.box) if rest is None else rest[1]
    unproved = "" if has_address(box.adapter) else _nowhere(box)
    if not has_address(box.adapter) and not unproved:
        raise No(
            f"box {box.name} is on {box.adapter}, and its API proves that a box is gone: a confirmation is not needed, "
            "and not accepted",
            [f"pulumi destroy --stack {target.stack}"],
        )
    saw = statement.words('what the console shows, such as --saw "listed as terminated"')
    at = _moment(statement.at, now)
    if rest is not None and sources.store is not None:
        known = _stood_still(sources.store, rest[0], now)
    else:
        known = _begun(target, sources, box, now)
    tried: Exception | str
    tried, keys = (unproved, ()) if unproved else _connect(target, box, statement, known)
    if not keys and not unproved and not isinstance(tried, FolderLost):
        look_at_listed(target, box, power_off=statement.power_off, out=out)
    confirmed = Confirmation(
        box=box.name,
        native_id=box.native_id,
        by=statement.person,
        at=at,
        saw=saw,
        tried=of_box(" ".join(str(tried).split()), box.name),
        written_at=now,
        other_keys=keys,
    )
    try:
        known = keep_handover(sources.store, known.model_copy(update={"confirmed": confirmed}))
    except EvidenceError as error:
        raise Unsure(
            f"the confirmation can't be recorded: {'; '.join(filter(None, (sources.problem, str(error))))}", status
        ) from error
    if isinstance(tried, FolderLost):
        _count_as_lost(target, box)
    silent = "" if isinstance(tried, FolderLost) else ", if it still does not answer"
    destroy = [f"pulumi destroy --stack {target.stack}    (closes its records{silent})"]
    following = status if _closes(sources, box, rest[0] if rest is not None else None, confirmed) else destroy
    out.document({"stack": target.stack, "confirmed": confirmed.model_dump(mode="json"), "next": following})
    asked = "its API" if unproved else "a connect"
    out.line(f"box {box.name} ({box.native_id}): {told(known)}; {asked} says: {confirmed.tried}")
    if kept_here(box.native_id) is not None:
        out.line("recorded on this computer only: the evidence can't be written. Destroy from here")
    out.next(following)
    return YES


def _closes(sources: Sources, box: BoxEntry, rest: StillBilled | None, confirmed: Confirmation) -> bool:
    """Closes the books of a box that no delete will ever close; whether it was one."""
    store, at = sources.store, confirmed.at
    if store is not None and rest is not None:
        release_books(store, rest, how=f"{rest.how}, released: {confirmed.by}", at=at)
        return True
    if store is None or sources.state.box(box.name) is not None:
        return False
    how = f"confirmed by {confirmed.by}"
    close_books(store, box=box.name, generation=box.generation, native_id=box.native_id, how=how, at=at)
    return True


def _moment(text: str, now: datetime) -> datetime:
    """The time that was typed. Raises Unsure if it is no time, or in the future."""
    if text in ("", "now"):
        return now
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise Unsure(f'--at "{text}" is no time: write 2026-11-21T14:05+08:00, or leave it out for now') from None
    at = at if at.tzinfo is not None else at.astimezone()
    if at > now + SKEW:
        raise Unsure(f"--at {text} is in the future: confirm what you have seen")
    return at.astimezone(UTC)


def _box(sources: Sources, name: str) -> BoxEntry:
    """The box in the state, else in the records. Raises No."""
    box = sources.state.box(name)
    if box is not None:
        return box
    births = [birth for birth in sources.store.births() if birth.ended_at is None] if sources.store else []
    for birth in births:
        if birth.box == name and birth.native_id is not None and sources.store is not None:
            return entry_of(sources.store, birth, sources.evidence or "")
    known = sorted({box.name for box in sources.state.boxes} | {birth.box for birth in births if birth.native_id})
    if any(birth.box == name for birth in births):
        _never_made(sources.target.stack, name, asked=any(b.box == name and not b.never_asked for b in births))
    raise No(
        f"there is no box {name} in the state or on record (there: {', '.join(known) or 'none'})"
        f"{did_you_mean(name, known)}",
        [f"sweepctl status --stack {sources.target.stack}"],
    )


def _never_made(stack: str, name: str, *, asked: bool) -> None:
    """Raises No about a record without an id."""
    if not asked:
        raise No(
            f"box {name} was never asked for, by its record: there is none to confirm, and nothing of it bills",
            [f"pulumi up --stack {stack}", f"pulumi destroy --stack {stack}    (ends the sweep without it)"],
        )
    raise No(
        f"box {name} was asked for, and the answer was lost: whether it was rented is not known",
        [f'sweepctl confirm never-rented --stack {stack} {name} --saw "…"    (where the console shows none)'],
    )


def _resting(sources: Sources, name: str, now: datetime) -> tuple[StillBilled, BoxEntry] | None:
    """A box that an end only stopped, so that it still bills, as the records have it. None if there is none."""
    store = sources.store
    if store is None or sources.state.box(name) is not None:
        return None
    births = store.births()
    for rest in still_billed(store, spent(store, now, births), births):
        if rest.box == name:
            birth = next(birth for birth in births if birth.native_id == rest.native_id)
            return rest, entry_of(store, birth, sources.evidence or "")
    return None


def _stood_still(store: EvidenceStore, rest: StillBilled, now: datetime) -> Handover:
    """The record of its end; if that was deleted because its host answered in between, what is known of it."""
    known = handover_of(store, rest.native_id)
    if known is not None:
        return known.model_copy(update={"manual": rest.step or known.manual})
    return Handover(
        box=rest.box, native_id=rest.native_id, verb="destroy", by="ssh", native=rest.how, way="", begun_at=now
    )


def _nowhere(box: BoxEntry) -> str:
    """What the API of its platform says of a box that it shows nowhere, and whose end it does not prove; "" where it
    shows the box, proves its end, or can't be asked."""
    try:
        box.context().platform.get(box.native_id, box.account)
    except Unproved as error:
        return one_line(error)
    except SweepstackError:
        pass
    return ""


def _begun(target: Target, sources: Sources, box: BoxEntry, now: datetime) -> Handover:
    """The end that was allowed and begun for exactly this id. Raises No if none was begun."""
    store = sources.store
    try:
        known = handover_of(store, box.native_id)
    except EvidenceError as error:
        if _allowed(target, box) != "abandoned":
            raise Unsure(f"the records can't be read: {error}", [f"sweepctl status --stack {target.stack}"]) from error
        known = None
    if known is not None and known.native_id == box.native_id and known.verb == "destroy":
        return known
    way = _allowed(target, box)
    # Of a rented host, and of a session that only a person sees, an approval says that they may end.
    asks = way is None and not _bills(box) and not box.context().platform.by_hand
    lost = not_proved_here(box.context()) if asks else []
    if asks and not lost:
        way = "cleared"
    if way is None:
        give_up, why = f'sweepctl give-up --stack {target.stack} data/{box.name} --reason "…"', "; ".join(lost[:3])
        raise No(
            f"the end of box {box.name} ({box.native_id}) was not begun: a confirmation now would leave its cells "
            f"unchecked{why and f' ({why})'}. Nothing was written{f' ({sources.problem})' if store is None else ''}",
            [
                f"sweepctl finish --stack {target.stack}    (if it answers)",
                f"{give_up}    (if it is gone for good: then this command again)",
            ],
        )
    issue = box.teardown.issue
    return Handover(
        box=box.name,
        native_id=box.native_id,
        verb="destroy",
        by="person",
        native=issue.native if issue is not None else "its end",
        way=way,
        manual=issue.manual or "" if issue is not None else "",
        begun_at=now,
    )


def _allowed(target: Target, box: BoxEntry) -> str | None:
    """By which approval this box may end although it does not answer; None if by none."""
    known = box.context()
    approvals: list[Approval | None] = [box.approval, *recorded_approvals(known)]
    with suppress(ConfigError):
        approvals.append(target.file.approval() if target.file.path.exists() else None)
    silent = Observation(Existence.UNKNOWN, note="it does not answer")
    for approval in approvals:
        verdict = may_end(BoxEnding(known, approval, silent), full=True)
        if verdict.allowed:
            return verdict.way or ""
    return None


def _connect(
    target: Target, box: BoxEntry, statement: Statement, known: Handover
) -> tuple[Exception | str, tuple[str, ...]]:
    """Tries to connect. Returns the failure, and the keys of another machine that answers, if the person named one. It
    is FolderLost for a machine that answers, bills nothing, and has lost the folder of the box. Raises No if the box
    itself may be there."""
    again: list[Any] = [f"pulumi destroy --stack {target.stack}"]
    try:
        shown = need(box.context().platform, IsHost).who_answers()
    except Unreachable as error:
        return error, ()
    except SweepstackError as error:
        raise Unsure(
            f"whether box {box.name} still answers can't be told: {error}", [f"sweepctl status --stack {target.stack}"]
        ) from error
    marks = [key.split()[-1] for key in shown]
    pinned = {key.split()[-1] for key in _pinned(box)}
    if statement.another and statement.another in marks and not pinned & set(marks):
        return f"another machine answers there now: {', '.join(shown)}", tuple(marks)
    step = f"{known.native}: {known.manual or 'end it where it was rented'}"
    if pinned and not pinned & set(marks):
        again = [f"sweepctl confirm gone --stack {target.stack} {box.name} --saw … --another {marks[0]}"]
        raise No(
            f"another machine answers at {box.adapter} ({', '.join(shown)}), so the address proves nothing. If the "
            "console shows that this machine is not yours any more, name its key",
            again,
        )
    if _bills(box):
        raise No(
            f"box {box.name} still answers at {box.adapter}: it runs, and bills. Nothing was written. First, {step}",
            again,
        )
    try:
        box.context().platform.get(box.native_id, box.account)
    except FolderLost as error:
        return error, ()
    except PlatformError as error:
        raise Unsure(f"whether box {box.name} is there can't be told: {error}. Nothing was written", again) from error
    raise No(f"box {box.name} still answers at {box.adapter}: it is ended there. Nothing was written", again)


def _bills(box: BoxEntry) -> bool:
    """Whether its host bills as long as it is there: it is rented, or what it costs is not known."""
    return box.teardown.rented or rented_at(box.price_per_hour)


def _count_as_lost(target: Target, box: BoxEntry) -> None:
    """Lets its host call gone what it had of the account: boxes and volumes. Raises Unsure where that is not done, No
    where something of the box still runs there."""
    status, platform = [f"sweepctl status --stack {target.stack}"], box.context().platform
    assert isinstance(platform, SshPlatform)  # no other one raises FolderLost
    try:
        platform.count_as_lost(box.account)
        record = platform.get(box.native_id, box.account)
    except PlatformError as error:
        raise Unsure(f"what you saw is on record, and its host does not take it: {error}", status) from error
    if record.phase is not Phase.GONE:
        give_up = f'sweepctl give-up --stack {target.stack} data/{box.name} --reason "…"'
        raise No(f"box {box.name}: {record.note}", [f"{give_up} && pulumi destroy --stack {target.stack}"])


def _pinned(box: BoxEntry) -> list[str]:
    """The host keys that the box's own machine has shown, by the state and by this computer."""
    on_record = list(box.host_keys or ())
    try:
        return [*on_record, *need(box.context().platform, IsHost).pinned()]
    except SweepstackError:
        return on_record


def look_at_listed(target: Target, box: BoxEntry, *, power_off: bool, out: Out) -> None:
    """Raises No where the API shows that the host runs, unless it is to be turned off (`power_off`) and was. What the
    API does not show, or could not be asked, stays what the person saw; then `power_off` raises Unsure. Blocks for
    seconds, with `power_off` for minutes."""
    again = f'sweepctl confirm gone --stack {target.stack} {box.name} --saw "what the console shows"'
    try:
        account, found = _find_listed(box)
    except SweepstackError as error:
        words = f"what {box.platform} says of the host of box {box.name} is not known: {error}"
        if power_off:
            raise Unsure(f"{words}. Nothing was written", [f"turn it off in its console, then {again}"]) from error
        out.line(words)
        return
    if account is None or found is None:
        if power_off:
            words = f"the host of box {box.name} can't be turned off from here: no API shows it. Nothing was written"
            raise Unsure(words, [f"turn it off in its console, then {again}"])
        return
    named = f"{box.platform} shows {found.id} at the address of box {box.name}: {found.state}"
    if found.off:
        return
    if not power_off:
        raise No(f"{named}, and it bills. Nothing was written", [f"{again} --power-off    (its disks stay)"])
    try:
        account.power_off_host(found.id)
    except PlatformError as error:
        raise Unsure(f"{named}, and it could not be turned off: {error}. Nothing was written", [again]) from error
    out.line(f"{found.id} was turned off; its disks stay, and bill until it is released")


def _find_listed(box: BoxEntry) -> tuple[ListsHosts | None, ListedHost | None]:
    """The account that may show its host, and the host as it shows it. Raises SweepstackError."""
    account = load_wallet(box.platform) if box.platform and has_wallet(box.platform) else None
    endpoint = getattr(box.context().platform, "endpoint", None)
    if not isinstance(account, ListsHosts) or endpoint is None:
        return None, None
    return account, account.host_at(endpoint.host, endpoint.port)


def open_records(sources: Sources, name: str) -> list[BoxEntry]:
    """The boxes of this name that are open in the records, that the state has not, and that an API can tell of. Raises
    EvidenceError."""
    store, known = sources.store, {box.native_id for box in sources.state.boxes}
    births = store.births() if store is not None else []
    return [
        entry_of(store, birth, sources.evidence or "")
        for birth in births
        if store is not None and birth.box == name and birth.ended_at is None and birth.native_id not in {None, *known}
        if not has_address(birth.platform)
    ]


def close_proved(target: Target, sources: Sources, boxes: Sequence[BoxEntry], out: Out) -> int:
    """Exit 0: all of them are proved gone, and closed in the books, with the cells that were lost. Raises No for one
    that is there, Unsure for one of which that is not known: of that one nothing was written."""
    assert sources.store is not None
    closed = [_close(target, sources.store, box) for box in boxes]
    following = [f"sweepctl status --stack {target.stack}"]
    out.document({"stack": target.stack, "closed": closed, "next": following})
    for one in closed:
        out.line(f"box {one['box']} ({one['native_id']}) is gone from {one['platform']}: its record is closed")
        if one["lost"] is None:
            out.line("note   whether a volume holds sealed copies of its cells is not known: none is recorded as lost")
        elif one["lost"]:
            out.line(f"LOST   {', '.join(one['lost'])}: no copy of them is proved", style="bold red")
    out.next(following)
    return YES


def _close(target: Target, store: EvidenceStore, box: BoxEntry) -> dict[str, Any]:
    known = box.context()
    seen, _ = observe(known, files=False, rented=rented_at(box.price_per_hour))
    verdict = may_end(BoxEnding(known, None, seen), full=False)
    if verdict.way != "gone":
        words, status = f"box {box.name} ({box.native_id}) on {box.adapter}", f"sweepctl status --stack {target.stack}"
        if seen.existence is Existence.EXISTS:
            adopts = f"pulumi up --stack {target.stack}    (adopts it; then finish)"
            raise No(f"{words} is there: a confirmation is not accepted. Nothing was written of it", [adopts, status])
        why = seen.account_problem or seen.note or "its platform does not tell"
        raise Unsure(f"whether {words} is gone is not proved: {why}. Nothing was written of it", [status])
    lost = lost_with(known, verdict)
    try:
        if lost:
            why, at = "its box is gone from the platform", datetime.now(UTC)
            store.write_loss(Loss(box=box.name, native_id=box.native_id, cells=lost, why=why, at=at))
        close_gone(store, box=box.name, generation=box.generation, native_id=box.native_id)
    except EvidenceError as error:
        raise Unsure(f"the record of box {box.name} can't be written: {error}") from error
    return {"box": box.name, "native_id": box.native_id, "platform": box.adapter, "lost": lost}
