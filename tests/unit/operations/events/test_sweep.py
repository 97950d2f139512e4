"""Which events a picture of a sweep holds: each kind from a snapshot, with its id, its sentence, what to type."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sweepstack.billing.balance import BalanceLeft
from sweepstack.billing.ledger import Bill, Span, Spent
from sweepstack.billing.stray import Stray
from sweepstack.config.events import KINDS
from sweepstack.core.box_end import ClockFact, TeardownFacts
from sweepstack.core.budget import Budget
from sweepstack.core.heartbeat import Doing, Patrol
from sweepstack.core.journal import CellProgress, Journal
from sweepstack.core.observation import Existence, Observation
from sweepstack.core.records import Action, Approval, Cell, Launch, Teardown
from sweepstack.onbox.host.platform import Told
from sweepstack.operations.events.event import Event
from sweepstack.operations.events.holding_now import events_of
from sweepstack.status.compose import compose
from sweepstack.status.engine.state import BoxEntry, StackState
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.teardown.box_check import BoxEnding
from sweepstack.teardown.box_context import BoxContext
from sweepstack.teardown.check import may_end
from tests.unit.entries import box_entry

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
DIGEST = f"sha256:{'0' * 64}"
CELLS = tuple(Cell(name=name, params={"lr": name}) for name in ("a", "b"))
CLOCKS = (ClockFact(what="released", days=15, kills=("data",)),)


def entry(**known: Any) -> BoxEntry:
    ends = TeardownFacts(verb="destroy", kills=("data",), keeps=())
    return box_entry(**{"adapter": "acme", "native_id": "id-0", "urn": "urn:x", "teardown": ends} | known)


def ran(name: str, state: Any = "running", **known: Any) -> CellProgress:
    return CellProgress(name, state, 1, next(cell.config_digest for cell in CELLS if cell.name == name), **known)


def picture(
    *cells: CellProgress, alive: bool | None = True, box: BoxEntry | None = None, seen: Any = None, **known: Any
) -> Snapshot:
    """A box at $1.50/h that was given both cells, as its journal has them. `known`: of the snapshot or of its box."""
    box = box or entry()
    journal = Journal(
        cells={one.name: one for one in cells}, entries=known.pop("entries", ()), hold=known.pop("hold", ())
    )
    observed = seen or Observation(Existence.EXISTS, journal, runner_alive=alive)
    digests = {cell.name: cell.config_digest for cell in CELLS}
    launch = Launch(box="box-0", generation=1, native_id="id-0", cells=digests, code=DIGEST, at=NOW)
    of_box = {key: known.pop(key) for key in ("phase", "patrol", "said", "told", "bare", "ends_at") if key in known}
    found: dict[str, Any] = {"box": box, "queue": None, "launch": launch, "seen": observed, "phase": "running"}
    found |= {"verdict": may_end(BoxEnding(BoxContext(box.facts(), box.adapter), None, observed), now=NOW, full=False)}
    found |= {"where": "", "price_per_hour": 1.5, "since": NOW, "journal": journal}
    boxes = (BoxSnapshot(**found | of_box),)
    return Snapshot(StackState("abl", boxes=(box,)), NOW, CELLS, {}, box_snapshots=boxes, **known)


def hung(name: str = "a") -> Patrol:
    return Patrol(NOW, running={name: Doing(1, "hung", "no log, no file, no CPU for 11 min")})


def stopped(days: float) -> Spent:
    """The box stands still since so many days."""
    begin = NOW - timedelta(days=days)
    spans = (Span("running", 1.5, begin - timedelta(hours=1), begin), Span("stopped", 0.1, begin, None))
    return Spent((Bill("box-0", "id-0", "acme", "a", 1, spans, None),), NOW)


def used(hours: float) -> Spent:
    spans = (Span("running", 1.5, NOW - timedelta(hours=hours), None),)
    return Spent((Bill("box-0", "id-0", "acme", "a", 1, spans, None),), NOW)


def approval(hours_left: float, lasts: float = 72, native_id: str = "id-0") -> Approval:
    expires = NOW + timedelta(hours=hours_left)
    action = Action(verb="destroy", box="box-0", native_id=native_id)
    given = {"waivers_digest": DIGEST, "by": "me", "at": expires - timedelta(hours=lasts), "expires": expires}
    return Approval(receipt=DIGEST, actions=(action,), **given)


TRIED = {"event": "box-off", "time": "2026-11-23T09:00:00.000Z", "native": "shutdown"}
OFF_FAILED = {"event": "box-off-failed", "time": "2026-11-23T09:01:00.000Z", "native": "shutdown"}
OFF = (TRIED, TRIED, OFF_FAILED | {"reason": "no way"})
GONE = Observation(Existence.GONE)
STILL = Observation(Existence.EXISTS, note="instance 7 can't be reached: it is stopped", stopped=True)
OUTBID = {"said": "preempted: it was outbid; its disk is kept and bills", "told": Told.PREEMPTED}
EITHER = {"said": "vast.ai shows both alike", "told": Told.TAKEN_OR_STOPPED}
ORPHAN = Stray(
    *("box", "acme", "id-7", "tag", "box-7"), price_per_hour=2.0, why="no state has it", next="pulumi up --stack abl"
)
SEALED = (ran("a", "sealed", manifest=DIGEST), ran("b", "failed", final=True, reason="exit code 1"))
GOES_ON = "$1.50/h goes on"


@pytest.mark.parametrize(
    ("seen", "event_id", "sentence", "cost", "following"),
    [
        (
            picture(ran("a", "failed", final=True, reason="exit code 1"), ran("b")),
            "failed/id-0/a/0/1",
            "cell a failed on box box-0: exit code 1",
            GOES_ON,
            "sweepctl logs --stack abl a",
        ),
        (
            picture(ran("a"), alive=False),
            "failed/id-0/a/0/1",
            "cell a failed on box box-0: its runner is not alive; `pulumi up` resumes it",
            GOES_ON,
            "sweepctl logs --stack abl a",
        ),
        (
            picture(ran("a", "failed", final=True, failure_class="files", reason="artifact missing: m"), hold=("a",)),
            "held/id-0/",
            "box box-0: 1 cell that has not begun waits: a left the wrong files (artifact missing: m)",
            GOES_ON,
            "pulumi up --stack abl    (after artifacts names what a left: seals it, and trains nothing)",
        ),
        (
            picture(ran("a"), ends_at=NOW + timedelta(days=1)),
            "clock/id-0/its host's contract ends",
            "box box-0: its host's contract ends, after which it can't run and may be deleted, in 1 d "
            f"({NOW + timedelta(days=1):%Y-%m-%d %H:%M} UTC): kills data",
            GOES_ON,
            "sweepctl finish --stack abl",
        ),
        (
            picture(ran("a"), patrol=hung()),
            "hung/id-0/a/0/1",
            "cell a hangs on box box-0: no log, no file, no CPU for 11 min",
            GOES_ON,
            "sweepctl retry --stack abl a && pulumi up --stack abl    (ends it, and starts it again)",
        ),
        (
            picture(*SEALED, alive=False),
            "drained/id-0/",
            "box box-0 has nothing left to run: 1 sealed, 1 failed",
            GOES_ON,
            "sweepctl finish --stack abl",
        ),
        (
            picture(seen=STILL, phase="stopped", **OUTBID),
            "preempted/id-0",
            "box box-0 (id-0) was preempted: it was outbid; its disk is kept and bills",
            "",
            "sweepctl status --stack abl",
        ),
        (
            picture(seen=STILL, phase="stopped", **EITHER),
            "preempted/id-0",
            "box box-0 (id-0) is stopped, and no command of ours did that: it was up at 2026-11-23 12:00 UTC. Its "
            "platform did, a person at its console, or a job with the box's own key (docs/security.md). vast.ai shows "
            "both alike",
            "",
            "sweepctl status --stack abl",
        ),
        (
            picture(ran("a"), seen=GONE, phase="gone"),
            "gone/id-0",
            "box box-0 (id-0) is gone from acme, and with it 2 cells without a copy",
            "",
            "pulumi up --stack abl",
        ),
        (
            picture(*SEALED, alive=False, entries=OFF),
            "lease/id-0/",
            "box box-0 should have stopped itself, could not (tried 2 times; shutdown: no way): it still bills $1.50/h",
            GOES_ON,
            "sweepctl finish --stack abl",
        ),
        (
            picture(
                box=entry(teardown=TeardownFacts(verb="destroy", kills=("data",), keeps=(), clocks=CLOCKS)),
                seen=Observation(Existence.EXISTS, stopped=True),
                phase="stopped",
                spent=stopped(13),
            ),
            "clock/id-0/released/2026-11-25",
            "box box-0: released in 2 d (2026-11-25 12:00 UTC): kills data",
            GOES_ON,
            "sweepctl finish --stack abl",
        ),
        (
            picture(ran("a"), spent=used(6), budget=Budget(usd=10)),
            "budget/10usd-0h-0.8",
            "80 % of the budget is used: $9.00 of $10.00 (90 %)",
            GOES_ON,
            "sweepctl status --stack abl",
        ),
        (
            picture(ran("a"), balances=(BalanceLeft("acme", 3.0, True, 1.5),)),
            "balance/acme/2026-11-23",
            "the balance ends the boxes: $3.00 left at acme lasts 2.0 h (until 2026-11-23 14:00 UTC) at $1.50/h",
            GOES_ON,
            "add money at acme; sweepctl pull --stack abl",
        ),
        (
            picture(ran("a"), approval=approval(11)),
            "approval/2026-11-23T23:00:00Z",
            "the approval to destroy box box-0 expires at 2026-11-23 23:00 UTC",
            GOES_ON,
            "sweepctl finish --stack abl",
        ),
        (
            picture(ran("a"), approval=approval(-3)),
            "approval/2026-11-23T09:00:00Z",
            "the approval to destroy box box-0 has expired at 2026-11-23 09:00 UTC",
            GOES_ON,
            "sweepctl finish --stack abl",
        ),
        (
            picture(weaker_policy=approval(11)),
            f"policy/{approval(11).by}/{approval(11).at:%Y-%m-%dT%H:%M:%SZ}",
            f"{approval(11).by} approved a weaker policy; it holds until 2026-11-23 23:00 UTC",
            "",
            "sweepctl policy --stack abl",
        ),
        (
            picture(ran("a"), orphans=(ORPHAN,)),
            "audit/acme/id-7",
            "box box-7 (id-7): no state has it",
            "$2.00/h goes on",
            "pulumi up --stack abl",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and "/" in value and " " not in value else "",
)
def test_each_kind(seen: Snapshot, event_id: str, sentence: str, cost: str, following: str) -> None:
    (event,) = [one for one in events_of(seen, compose(seen)) if one.kind == event_id.partition("/")[0]]
    assert event.id.startswith(event_id)
    assert (event.sentence, event.cost, event.next) == (sentence, cost, following)
    assert event.words.startswith(event.sentence), "no word of ours is masked"
    assert (event.stack, event.at, event.kind in KINDS) == ("abl", NOW, True)
    later = replace(seen, now=NOW + timedelta(minutes=5))
    assert event.id in {one.id for one in events_of(later, compose(later))}, "the same thing at a later look"


def settled(states: dict[str, str]) -> list[Event]:
    seen = picture(*SEALED, alive=False)
    view = compose(seen)
    return events_of(seen, replace(view, cells=tuple(replace(one, state=states[one.name]) for one in view.cells)))


def test_a_sweep_whose_cells_are_all_settled_is_verified() -> None:
    (event,) = [one for one in settled({"a": "verified", "b": "waived"}) if one.kind == "verified"]
    assert event.sentence == "every cell is settled: 1 verified, 1 waived; $0.00 so far"
    assert (event.next, event.cost) == ("sweepctl finish --stack abl", GOES_ON)
    assert "verified" not in {one.kind for one in settled({"a": "verified", "b": "sealed"})}


def kinds(seen: Snapshot) -> set[str]:
    return {event.kind for event in events_of(seen, compose(seen))}


@pytest.mark.parametrize(
    "quiet",
    [
        picture(ran("a"), ran("b")),
        picture(ran("a", "failed", final=False), ran("b")),  # it is tried again by itself
        picture(ran("a", "sealed", manifest=DIGEST)),  # b waits
        picture(seen=Observation(Existence.UNKNOWN, note="it does not answer"), phase="unknown"),
        picture(seen=GONE, phase="gone", teardown=Teardown(native_ids=("id-0",), begun_at=NOW)),
        picture(ran("a"), spent=used(1), budget=Budget(usd=10)),
        picture(ran("a"), balances=(BalanceLeft("acme", 500.0, True), BalanceLeft("other", 0.1, True))),
        picture(ran("a"), approval=approval(13)),
        picture(ran("a"), approval=approval(3, lasts=4)),
        picture(ran("a"), approval=approval(1, native_id="id-9")),  # its box has ended
        picture(ran("a"), orphans=(replace(ORPHAN, proved=False),)),
        picture(seen=STILL, phase="stopped", box=entry(want="stopped"), **OUTBID),  # nothing of it was to run
        picture(seen=STILL, phase="stopped", spent=stopped(1), **OUTBID),  # a command of ours stopped it before
        picture(seen=STILL, phase="stopped", spent=stopped(1), **EITHER),
    ],
)
def test_what_needs_no_person_is_no_event(quiet: Snapshot) -> None:
    assert kinds(quiet) == set()


def ids(seen: Snapshot, kind: str) -> set[str]:
    return {event.id for event in events_of(seen, compose(seen)) if event.kind == kind}


@pytest.mark.parametrize(
    ("kind", "first", "again"),
    [
        ("failed", picture(SEALED[1]), picture(replace(SEALED[1], retry=1))),
        ("failed", picture(SEALED[1]), picture(replace(SEALED[1], attempts=3))),
        ("hung", picture(ran("a"), patrol=hung()), picture(replace(ran("a"), attempts=2), patrol=hung())),
        ("drained", picture(*SEALED), picture(SEALED[0], replace(SEALED[1], retry=1))),
        (
            "balance",
            picture(balances=(BalanceLeft("acme", 2.0),)),
            replace(picture(balances=(BalanceLeft("acme", 1.0),)), now=NOW + timedelta(days=1)),
        ),
    ],
)
def test_what_happens_again_is_another_event(kind: str, first: Snapshot, again: Snapshot) -> None:
    assert len(ids(first, kind)) == len(ids(again, kind)) == 1
    assert ids(first, kind) != ids(again, kind)


def test_an_event_as_a_line() -> None:
    seen = picture(ran("a"), patrol=hung())
    (event,) = events_of(seen, compose(seen))
    line = event.line()
    assert line[8:] == (
        "  hung       cell a hangs on box box-0: no log, no file, no CPU for 11 min; $1.50/h goes on. "
        "Next: sweepctl retry --stack abl a && pulumi up --stack abl    (ends it, and starts it again)"
    )
