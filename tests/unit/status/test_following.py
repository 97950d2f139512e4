"""What to type next while somebody else has to finish the end of a box."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest

from sweepstack.billing.balance import BalanceLeft
from sweepstack.billing.ledger import Spent
from sweepstack.billing.stray import Stray
from sweepstack.cli.render import trouble
from sweepstack.core.box_end import ClockFact, StopFacts, TeardownFacts
from sweepstack.core.heartbeat import Patrol
from sweepstack.core.journal import CellProgress, Journal, ProgressState, SetupProgress, WorkerProgress, parse_journal
from sweepstack.core.observation import Existence, Observation
from sweepstack.core.records import Cell, Teardown
from sweepstack.status.compose import compose
from sweepstack.status.engine.state import StackState
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.teardown.box_check import BoxEnding, Verdict
from sweepstack.teardown.box_context import BoxContext
from sweepstack.teardown.check import may_end
from sweepstack.teardown.handover_records import Handover
from tests.unit.entries import box_entry, queue_entry

NOW = datetime(2026, 11, 22, 9, tzinfo=UTC)


def snapshot(by: Literal["ssh", "person"]) -> Snapshot:
    """One box on a host that does not answer, and whose end was begun."""
    box = box_entry()
    seen = Observation(Existence.UNKNOWN, note="it does not answer")
    handed = Handover(
        box="box-0", native_id="host-1", verb="destroy", by=by, native="its end", way="cleared", begun_at=NOW
    )
    box_snapshot = BoxSnapshot(
        box=box,
        queue=None,
        launch=None,
        seen=seen,
        verdict=may_end(BoxEnding(BoxContext(box.facts(), box.adapter), None, seen), now=NOW, full=False),
        phase="unknown",
        where="",
        price_per_hour=0.5,
        since=NOW,
        journal=None,
        copied=False,
        proposed=None,
        claims_cleared=False,
        handed=handed,
    )
    return Snapshot(StackState("s", boxes=(box,)), NOW, (), {}, box_snapshots=(box_snapshot,))


@pytest.mark.parametrize(
    ("worker", "words"),
    [
        ("6_1.0", ""),
        ("6_0.0", "its worker 6_0.0 has ended (FAILED): another one takes it once that is proved"),
        ("6_2.0", "its worker 6_2.0 has ended (PENDING): another one takes it once"),  # it waits for its next try
        ("6_3.0", "its worker 6_3.0 has ended: another one takes it next"),
        ("6_4.0", "Slurm has lost n1"),
        ("6_5.0", "whether its worker 6_5.0 runs is not known: the scheduler lists it no more"),
        ("", ""),
    ],
)
def test_a_cell_whose_worker_is_dead_says_so_and_shows_no_heartbeat(worker: str, words: str) -> None:
    """The heartbeat of the box is that of any worker."""

    def task(name: str, state: str = "RUNNING", **more: Any) -> dict[str, Any]:
        return {"name": name, "state": state, "try": 0, "starts": None, "node": "n1", "words": "", **more}

    tasks = (
        task("6_0", "FAILED", exit="0:9", max_rss=None),
        task("6_1"),
        task("6_2", "PENDING", **{"try": 1}),
        task("6_4", words="Slurm has lost n1, where its worker was: `pulumi up` ends it, and submits another"),
    )
    cell = Cell(name="a", params={})
    progress = CellProgress("a", "running", 1, cell.config_digest, worker=worker)
    workers = {"6_3.0": WorkerProgress("6_3.0", NOW, ended="scheduler: it has")}
    journal = Journal(cells={"a": progress}, workers=workers)
    whole = snapshot("person")
    (box,) = whole.box_snapshots
    seen = Observation(Existence.EXISTS, journal, runner_alive=True, workers=tasks)
    box = replace(box, seen=seen, journal=journal, patrol=Patrol(NOW - timedelta(seconds=2)), handed=None)
    (view,) = compose(replace(whole, roster=(cell,), box_snapshots=(box,))).cells
    assert view.state == "running"
    assert words in view.note
    assert ("heartbeat" in view.note) is not bool(words)


@pytest.mark.parametrize(
    ("worker", "ended", "words"),
    [
        (
            "6_0.0",
            "",
            "whether its worker 6_0.0 runs is not known: the scheduler lists it no more; `pulumi up` resumes",
        ),
        ("6_0.0", "scheduler: it has", "its runner is not alive; `pulumi up` resumes it"),
        ("", "", "its runner is not alive; `pulumi up` resumes it"),
    ],
)
def test_a_worker_that_the_scheduler_has_forgotten_is_not_said_to_have_ended(
    worker: str, ended: str, words: str
) -> None:
    """Without accounting Slurm forgets a task some minutes after its end; its node may be silent, and run it still."""
    cell = Cell(name="a", params={})
    progress = CellProgress("a", "running", 1, cell.config_digest, worker=worker)
    journal = Journal(cells={"a": progress}, workers={"6_0.0": WorkerProgress("6_0.0", NOW, ended=ended)})
    whole = snapshot("person")
    (box,) = whole.box_snapshots
    seen = Observation(Existence.EXISTS, journal, runner_alive=False)
    box = replace(box, seen=seen, journal=journal, handed=None)
    (view,) = compose(replace(whole, roster=(cell,), box_snapshots=(box,))).cells
    assert view.note.startswith(words)


def test_an_end_that_a_person_finishes_waits_for_their_word() -> None:
    first, second = compose(snapshot("person")).next
    assert first.startswith("sweepctl confirm gone --stack s box-0 --saw")
    assert second == "pulumi destroy --stack s"


def test_an_end_that_the_host_itself_issues_is_asked_for_again() -> None:
    first, second = compose(snapshot("ssh")).next
    assert first.startswith("pulumi destroy --stack s")
    assert second.startswith("sweepctl confirm gone --stack s box-0 --saw")


def test_a_box_that_was_given_up_on_a_silent_host_needs_a_persons_word_first() -> None:
    given_up = Verdict(allowed=True, way="abandoned")
    teardown = Teardown(native_ids=("host-1",), begun_at=NOW)
    asked = snapshot("person")
    (box_snapshot,) = asked.box_snapshots

    def next_of(**changes: Any) -> tuple[str, ...]:
        return tuple(
            compose(
                replace(asked, teardown=teardown, box_snapshots=(replace(box_snapshot, handed=None, **changes),))
            ).next
        )

    first, second = next_of(verdict=given_up)
    assert first.startswith("sweepctl confirm gone --stack s box-0 --saw")
    assert second.startswith("pulumi destroy --stack s")
    assert next_of()[0] == "pulumi destroy --stack s", "it was not given up"
    there = Observation(Existence.EXISTS, note="its journal does not read")
    assert next_of(verdict=given_up, seen=there)[0] == "pulumi destroy --stack s", "its host answers"


def test_what_an_account_has_left_stands_in_status_as_hours() -> None:
    """A box that is gone spends nothing."""
    view = compose(replace(snapshot("ssh"), balances=(BalanceLeft("ssh:root@192.0.2.7:22", 1.0),)))
    assert view.money_lines[0] == (
        "balance  $1.00 left at ssh:root@192.0.2.7:22 lasts 2.0 h (until 2026-11-22 11:00 UTC) at at least $0.50/h; "
        "what else bills there is not known"
    )
    (alarm,) = view.alarms
    assert alarm.startswith("the balance ends the boxes: $1.00 left at ssh:root@192.0.2.7:22 lasts 2.0 h")
    assert (f"ALARM  {alarm}", "bold red") in trouble(view)
    (balance,) = view.as_json()["balances"]
    assert (balance["hours"], balance["at"], balance["short"]) == (2.0, "2026-11-22T11:00:00+00:00", True)


def test_an_account_without_a_box_of_ours_is_no_alarm() -> None:
    asked = snapshot("ssh")
    gone = replace(asked.box_snapshots[0], seen=Observation(Existence.GONE), phase="gone")
    view = compose(
        replace(asked, box_snapshots=(gone,), balances=(BalanceLeft("ssh:root@192.0.2.7:22", 0.0, per_hour=2.0),))
    )
    assert view.alarms == ()
    assert "lasts 0.0 h" in view.money_lines[0]


def test_a_balance_that_could_not_be_asked_is_unknown_and_never_endless() -> None:
    view = compose(replace(snapshot("ssh"), balances=(BalanceLeft("ssh:root@192.0.2.7:22", None, why="no answer"),)))
    assert view.money_lines[0].startswith("balance  unknown at ssh:root@192.0.2.7:22")
    assert (view.alarms, view.as_json()["balances"][0]["hours"]) == ((), None)


def test_a_box_that_is_locked_again_while_a_teardown_is_open_is_not_sent_to_an_up() -> None:
    """It would be refused, and so is a destroy."""
    asked = snapshot("person")
    (box_snapshot,) = asked.box_snapshots
    journal = parse_journal(b"")
    teardown = Teardown(native_ids=("host-1",), begun_at=NOW)

    def next_of(**changes: Any) -> tuple[str, ...]:
        locked = replace(box_snapshot, handed=None, claims_cleared=True, **changes)
        return tuple(compose(replace(asked, teardown=teardown, box_snapshots=(locked,))).next)

    anew, given_up = next_of(seen=Observation(Existence.EXISTS, journal), journal=journal)
    assert anew.startswith("sweepctl finish --stack s ")
    assert given_up.startswith("sweepctl give-up --stack s data/box-0 ")
    unread = next_of(seen=Observation(Existence.EXISTS, note="its journal does not read"))
    assert [line.split(" --reason")[0] for line in unread] == ["sweepctl give-up --stack s data/box-0"]


def test_a_box_that_came_up_without_gpus_is_not_said_to_be_resumed_by_an_up() -> None:
    asked = snapshot("person")
    (box_snapshot,) = asked.box_snapshots
    journal = parse_journal(b"")
    seen = Observation(Existence.EXISTS, journal, runner_alive=False)
    bare = replace(box_snapshot, handed=None, seen=seen, phase="running", journal=journal, bare="0 of 1")
    first, second, pull = compose(replace(asked, box_snapshots=(bare,))).next
    assert "boxes.box-0.want is set to stopped" in first
    assert "it has 0 of 1 GPUs now" in first
    assert "further name below boxes" in second
    assert pull.startswith("sweepctl pull --stack s && sweepctl give-up --stack s data/box-0 ")


COPY = "cp kept stacks/Pulumi.s.yaml && sweepctl finish --stack s    (the last that was up)"
END = "pulumi destroy --stack s"


def stopped(allowed: bool, **changes: Any) -> Snapshot:
    """One box that is stopped and answers, with nothing left to run on it, cleared or not."""
    asked = snapshot("person")
    (box_snapshot,) = asked.box_snapshots
    journal = parse_journal(b"")
    verdict = Verdict(allowed=allowed, way="cleared" if allowed else None)
    seen = Observation(Existence.EXISTS, journal, stopped=True)
    rests = replace(box_snapshot, handed=None, seen=seen, phase="stopped", journal=journal, verdict=verdict)
    return replace(asked, box_snapshots=(rests,), **changes)


def test_no_command_gives_up_boxes_where_none_is_locked() -> None:
    """`approve` without a box is refused: its reason belongs to no option."""
    cleared = stopped(True, finish_refused=True, file_back=COPY)
    assert compose(cleared).next == (COPY, END)


@pytest.mark.parametrize("first", [COPY, f"mv a b && {COPY}"])
def test_a_stack_file_that_is_put_back_where_finish_is_refused_has_the_way_out_beside_it(first: str) -> None:
    back, given_up = compose(stopped(False, finish_refused=True, file_back=first)).next
    assert back == first
    assert given_up.startswith(f'sweepctl give-up --stack s data/box-0 --reason "…" && {END}')
    assert compose(stopped(False, file_back=first)).next == (first,)


def orphan(why: str = "on record as rented, and not in the state", proved: bool = True) -> Stray:
    return Stray(
        *("box", "local", "host-2", "t", "box-1"),
        why=why,
        next="pulumi up --stack s    (adopts it)",
        proved=proved,
    )


def test_the_end_of_a_box_beside_the_state_hides_no_way_out_of_a_silent_one() -> None:
    asked = snapshot("person")
    (box_snapshot,) = asked.box_snapshots
    both = replace(asked, box_snapshots=(replace(box_snapshot, handed=None),), orphans=(orphan(),))
    up, end, given_up = compose(both).next
    assert up.startswith("pulumi up --stack s")
    assert end.startswith("sweepctl audit --end local:host-2 --abandon")
    assert given_up.startswith("sweepctl give-up --stack s data/box-0 ")


def test_what_calls_boxes_gone_stands_last() -> None:
    asked = snapshot("person")
    (box_snapshot,) = asked.box_snapshots
    why = "not known: `sweepctl adopt --also a    (only if they are really gone)`, or `sweepctl adopt --also ACCOUNT`"
    lost = orphan(why, proved=False)
    both = replace(asked, box_snapshots=(replace(box_snapshot, handed=None),), orphans=(lost,))
    *_, given_up, gone = compose(both).next
    assert given_up.startswith("sweepctl give-up --stack s data/box-0 ")
    assert gone.startswith("sweepctl adopt --also a")


def test_the_lease_of_a_box_stands_among_the_lines_of_money() -> None:
    asked = snapshot("person")
    (box_snapshot,) = asked.box_snapshots
    lease = {"text": "2h", "seconds": 7200, "by": "key", "native": "stop", "key": "K", "of_a_newer_version": 1}

    def said(lease_text: str | None, told: dict[str, Any] | None, **changes: Any) -> list[str]:
        box = box_snapshot.box.model_copy(update={"lease": lease_text})
        job = {"lease": told} if told else {}
        queue = queue_entry(job)
        seen = replace(box_snapshot, box=box, queue=queue, handed=None, **changes)
        return [line for line in compose(replace(asked, box_snapshots=(seen,))).money_lines if line.startswith("box-0")]

    (line,) = said("2h", lease)
    assert line.startswith("box-0: lease 2h: 2h after the last look, and once nothing is left to do, the box stops")
    assert "unproved: no live run has shown that this key works" in line
    assert line.endswith("not renewed: it was not reached")
    there = Observation(Existence.EXISTS, parse_journal(b""))
    assert said("2h", lease, seen=there)[0].endswith("renewed by this look")
    assert said("2h", None) == ["box-0: lease 2h: the box was not told yet; `pulumi up` tells it"]
    assert said("none", None) == ["box-0: lease none: it bills until a person or `sweepctl tend` ends that"]
    assert said(None, None) == []


def test_what_a_stopped_box_bills_on_stands_there_with_its_price() -> None:
    asked = snapshot("person")
    (box_snapshot,) = asked.box_snapshots
    stop = StopFacts(kills=(), keeps=("data",), bills_after=("the volume disk",), price_per_hour=0.01)
    teardown = box_snapshot.box.teardown.model_copy(update={"stop": stop})
    box = box_snapshot.box.model_copy(update={"teardown": teardown})
    seen = Observation(Existence.EXISTS, parse_journal(b""), stopped=True)
    view = compose(replace(asked, box_snapshots=(replace(box_snapshot, box=box, seen=seen, handed=None),)))
    assert "box-0 is stopped, and bills on ($0.01/h): the volume disk" in view.money_lines


def test_what_the_jobs_of_a_cluster_used_stands_among_the_lines_of_money() -> None:
    asked = snapshot("person")
    (box_snapshot,) = asked.box_snapshots

    def said(**scheduler: Any) -> list[str]:
        queue = queue_entry({"scheduler": {"workers": 2, "gpus": 4, **scheduler}})
        worker = WorkerProgress("1_0.0", NOW - timedelta(hours=3), "it ended: wall", None, NOW - timedelta(hours=1))
        seen = replace(box_snapshot, queue=queue, handed=None, journal=Journal(workers={"1_0.0": worker}))
        return [line for line in compose(replace(asked, box_snapshots=(seen,))).money_lines if "GPU-hours" in line]

    assert said(price_per_gpu_hour=1.25)[0].startswith("used 8.0 GPU-hours ($10.00); about 8.0 ($10.00) when")
    assert said(gpu_hours=8.0)[0].startswith("ALLOCATION USED UP: used 8.0 GPU-hours of 8; ")
    assert said() == []


def test_what_failed_with_workers_that_have_ended_is_no_alarm_of_the_next_one() -> None:
    """It may wait in Slurm's queue for hours, and tries the set-up itself."""
    asked = snapshot("person")
    (box_snapshot,) = asked.box_snapshots
    setup = {"d": SetupProgress("d", "failed", reason="n2 can't be reached")}

    def said(ended: str, alive: bool) -> tuple[str, str]:
        worker = WorkerProgress("1_0.0", NOW - timedelta(hours=3), ended, None, None)
        journal = Journal(
            setups=setup, workers={"1_0.0": worker}, entries=({"event": "runner-started", "time": NOW.isoformat()},)
        )
        seen = Observation(Existence.EXISTS, journal, alive)
        found = replace(box_snapshot, seen=seen, journal=journal, handed=None)
        (box,) = compose(replace(asked, box_snapshots=(found,))).boxes
        return box.setup, "; ".join(box.alarms)

    assert said("it ended: nothing to take", True) == ("", "")
    assert said("it ended: nothing to take", False)[0] == "failed"
    setup_of_now, alarms = said("", True)
    assert setup_of_now == "failed"
    assert "n2 can't be reached" in alarms
    assert "has not written one heartbeat" in alarms


def test_a_purge_counts_from_the_oldest_cell_that_lies_there_alone() -> None:
    """The box runs: no stop has begun any clock."""
    asked = snapshot("person")
    (box_snapshot,) = asked.box_snapshots
    clock = ClockFact(what="the site removes old files", days=30, kills=("data",), unused=True)
    box = box_snapshot.box.model_copy(
        update={"teardown": TeardownFacts(verb="destroy", kills=(), keeps=(), clocks=(clock,))}
    )

    def said(*days: float, state: ProgressState = "sealed") -> list[str]:
        cells = [Cell(name=f"c{number}", params={}) for number in range(len(days))]
        progress = {
            cell.name: CellProgress(cell.name, state, 1, ended_at=NOW - timedelta(days=day))
            for cell, day in zip(cells, days, strict=True)
        }
        seen = replace(
            box_snapshot,
            box=box,
            handed=None,
            phase="running",
            journal=Journal(cells=progress),
            seen=Observation(Existence.EXISTS, Journal(cells=progress), True),
        )
        made = replace(asked, roster=tuple(cells), spent=Spent((), NOW), box_snapshots=(seen,))
        return [line for line in compose(made).money_lines if line.startswith("clock")]

    (line,) = said(28, 3)
    assert line == "clock  box box-0: the site removes old files in 2 d (2026-11-24 09:00 UTC): kills data"
    assert said(28, state="failed") == []
    assert said() == []
