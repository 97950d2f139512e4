"""Each row of the table of next commands is met by a picture of its own: none hides behind an earlier one."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from sweepstack.core.heartbeat import Doing, Patrol
from sweepstack.core.journal import CellProgress, Journal, SetupProgress
from sweepstack.core.observation import Existence, Observation
from sweepstack.core.records import Cell, Launch, Receipt, ReceiptBox, ReceiptCell, Teardown
from sweepstack.onbox.common.files_hold import FILES
from sweepstack.onbox.common.longer import SOURCE
from sweepstack.status.compose import compose
from sweepstack.status.engine.state import StackState
from sweepstack.status.next_commands import ROWS, Now, following
from sweepstack.status.snapshot import BoxSnapshot, Snapshot
from sweepstack.teardown.box_check import Verdict
from tests.unit.entries import queue_entry, volume_entry
from tests.unit.status.test_following import NOW, orphan, snapshot

CELL = Cell(name="a", params={})
LONGER = Cell(name="b", params={SOURCE: "a"})
DIGEST = f"sha256:{'0' * 64}"
QUEUE = queue_entry()
LAUNCH = Launch(box="box-0", generation=1, native_id="host-1", cells={"a": CELL.config_digest}, code=DIGEST, at=NOW)
DROPPED = {"a": "not needed"}
"""The only cell, dropped: all is settled."""
TEARDOWN = Teardown(native_ids=("host-1",), begun_at=NOW)
(ASKED,) = snapshot("person").box_snapshots
SILENT = replace(ASKED, handed=None)


def box(state: str = "", alive: bool = False, journal: Journal | None = None, **more: Any) -> BoxSnapshot:
    """A box that answers and is locked. `state`: of the one cell, by its journal; "" where it has not begun."""
    ran = {"a": CellProgress("a", state, 1, CELL.config_digest, **more.pop("cell", {}))} if state else {}  # type: ignore[arg-type]
    journal = journal or Journal(cells=ran)
    seen = Observation(Existence.EXISTS, journal, alive, **more.pop("seen", {}))
    known = {"verdict": Verdict(), "phase": "running", "queue": QUEUE} | more
    return replace(SILENT, seen=seen, journal=journal, **known)


def sweep(*boxes: BoxSnapshot, queues: bool = True, **more: Any) -> Snapshot:
    """The picture of a sweep of one cell."""
    state = StackState("s", boxes=tuple(one.box for one in boxes), queues=(QUEUE,) if queues else ())
    known = {"roster": () if "dropped" in more else (CELL,), "box_snapshots": boxes} | more
    return replace(snapshot("person"), **{"state": state} | known)


def second(one: BoxSnapshot) -> BoxSnapshot:
    return replace(one, box=one.box.model_copy(update={"name": "box-1", "native_id": "host-2"}))


def refused() -> Receipt:
    """A receipt that calls the copy of the cell suspect."""
    cell = ReceiptCell(
        name="a",
        config_digest=CELL.config_digest,
        state="suspect",
        box="box-0",
        generation=1,
        attempt=1,
        manifest=DIGEST,
        files=(),
        reasons=("it differs",),
    )
    head = ReceiptBox(box="box-0", native_id="host-1", generation=1, journal_head=Journal().head, cells=("a",))
    known: dict[str, Any] = {"identity": "a1b2c3", "stack": "s", "roster_digest": DIGEST, "artifacts_digest": DIGEST}
    return Receipt(schema=2, boxes=(head,), cells=(cell,), verified=0, total=1, **known)


EMPTIED = box(seen={"emptied": True})
MUTE = second(SILENT)
"""Would add commands to a row that does not stand alone."""
FAILED = {"ended_at": NOW, "final": True}
PICTURES = {
    "its evidence was moved": sweep(box(), MUTE, evidence_back="mv /b /a", evidence_problem="it is away"),
    "the folder of a box is lost": sweep(box(seen={"folder_lost": True}), MUTE),
    "a box is another account's": sweep(box(verdict=Verdict(account_problem="it was rented by another account")), MUTE),
    "its evidence can't be opened": sweep(box(), evidence_problem="it is away"),
    "boxes beside the state": sweep(box(), orphans=(orphan(),)),
    "an imported box that no `up` has taken": sweep(
        replace(box(), box=ASKED.box.model_copy(update={"imported": True})), MUTE
    ),
    "the end of a box is another's: its host's, or a person's": sweep(ASKED),
    "a teardown, and a given-up box's host does not answer": sweep(
        replace(SILENT, verdict=Verdict(allowed=True, way="abandoned")), teardown=TEARDOWN
    ),
    "a teardown, and boxes of it are locked again": sweep(box(), teardown=TEARDOWN),
    "a teardown that has begun": sweep(box(verdict=Verdict(allowed=True)), teardown=TEARDOWN),
    "a stack of volumes": sweep(
        state=StackState(
            "s",
            volumes=(volume_entry(guarded=True),),
        )
    ),
    "no box, and every cell is settled": sweep(dropped=DROPPED),
    "no box": sweep(),
    "some boxes are emptied, and their host bills": sweep(EMPTIED, second(box())),
    "all boxes are emptied, and their hosts bill": sweep(EMPTIED),
    "every box may end": sweep(box(verdict=Verdict(allowed=True))),
    "a box is gone before all is settled": sweep(replace(SILENT, seen=Observation(Existence.GONE), phase="gone")),
    "the stack file approves what the state does not have yet": sweep(box(proposed=Verdict(allowed=True))),
    "a box can't be read": sweep(SILENT),
    "a set-up failed, or a box has no room": sweep(
        box(journal=Journal(setups={"d": SetupProgress("d", "failed", reason="no route")}))
    ),
    "a box lacks the GPUs that were promised": sweep(box(bare="0 of 1")),
    "cells wait for what they begin from": sweep(
        box("sealed", alive=True, queue=QUEUE.model_copy(update={"cells": (CELL, LONGER)})), roster=(CELL, LONGER)
    ),
    "cells wait, and no runner lives": sweep(box(launch=LAUNCH)),
    "cells were asked to run again": sweep(box("failed", alive=True, cell=FAILED), to_run_again=("a",)),
    "a box should have stopped itself": sweep(
        box(
            journal=Journal(
                cells={"a": CellProgress("a", "sealed", 1, CELL.config_digest)},
                entries=({"event": "box-off", "time": (NOW - timedelta(hours=1)).isoformat(), "native": "off"},),
            )
        )
    ),
    "a cell hangs": sweep(box("running", alive=True, patrol=Patrol(NOW, running={"a": Doing(1, "hung")}))),
    "cells run": sweep(box("running", alive=True, patrol=Patrol(NOW))),
    "cells ended well and left the wrong files": sweep(box("failed", cell=FAILED | {"failure_class": FILES})),
    "stopped boxes have cells that wait": sweep(box(launch=LAUNCH, seen={"stopped": True}, phase="stopped")),
    "cells wait": sweep(box()),
    "all is settled, and a stopped box has to be read once more": sweep(
        box(verdict=Verdict(rests=True), seen={"stopped": True}, phase="stopped"), dropped=DROPPED
    ),
    "all is settled": sweep(box(), dropped=DROPPED),
    "cells ran on a box that has no queue in the state": sweep(box("sealed", queue=None), queues=False),
    "cells failed": sweep(box("failed", cell=FAILED)),
    "verify refused copies": sweep(
        box("sealed", cell={"manifest": DIGEST}), receipt=refused(), receipt_digest=refused().digest
    ),
    "all cells ended": sweep(box("sealed")),
}


def test_each_row_has_a_picture() -> None:
    assert list(PICTURES) == [row.state for row in ROWS]


@pytest.mark.parametrize("state", PICTURES)
def test_the_first_row_that_holds_is_the_one_of_the_picture(state: str) -> None:
    now = Now(PICTURES[state], compose(PICTURES[state]))
    first = next(row for row in ROWS if row.holds(now))
    assert first.state == state
    ways = list(first.ways(now))
    assert ways
    assert all(way.startswith(("sweepctl ", "pulumi ", "mv ")) for way in ways)
    assert not first.alone or list(following(now.snapshot, now.view)) == ways


def test_a_worker_that_waits_for_its_files_is_no_reason_to_wait_for_it() -> None:
    """The `up` that asked for it was killed before it wrote the queue."""
    now = sweep(box(alive=True, queue=None), queues=False)
    assert following(now, compose(now))[0].startswith("pulumi up")
