"""Answers the program's one question: which box is to run which cell. Changes nothing.

`launch.cell_shares` has the rules. The program reads no platform and no evidence, so it asks before it declares a box.
If something can't be read here, cells are shared out by names alone, and every box is declared: a box that may exist is
never left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sweepstack.core.bucket_address import evidence_uri
from sweepstack.core.functions import READY, SHARES
from sweepstack.core.journal import CellProgress, cell_times, started
from sweepstack.core.observation import Observation
from sweepstack.core.parallel import in_parallel
from sweepstack.core.records import Again, Birth
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.traces import generations
from sweepstack.launch.cell_shares import BoxSeen, Shares, SplitFacts, SplitQuestion, by_names_alone, shares
from sweepstack.launch.entries import verified_cells
from sweepstack.launch.retries import Retry, next_retry, recorded_retries, too_low
from sweepstack.onbox.common.cell_durations import Took
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.operations.observe import keep_journals, observe
from sweepstack.provider.resources import code_mixing
from sweepstack.provider.resources.imported import not_declared
from sweepstack.provider.session import Session
from sweepstack.teardown.box_context import BoxAt
from sweepstack.teardown.launched import copied_journal

LOOK_SECONDS = 20.0
"""Seconds that all boxes together have to answer. A box that does not answer keeps the cells that it was given."""


def invoke(session: Session, token: str, args: Mapping[str, Any]) -> dict[str, Any]:
    """Answers the engine's Invoke. Raises SweepstackError for another function, or for a question that does not
    validate."""
    if token == READY:  # who can answer has imported all that resources need
        return {}
    if token != SHARES:
        raise SweepstackError(f"sweepstack has no function {token}; it has {SHARES} and {READY}")
    try:
        asked = SplitQuestion.model_validate_json(str(args.get("asked")))
    except ValidationError as error:
        raise SweepstackError(f"{SHARES}: {error}") from error
    found = answer(session.project_root, asked)
    if (evidence := evidence_uri(session.project_root, asked.pull_to)) is not None:
        stop = not_declared(session.project_root, asked.stack, Evidence(evidence), found.cells, up=asked.up)
        found = found.model_copy(update={"stop": stop})
    return {"shares": found.model_dump_json()}


def answer(project_root: Path, asked: SplitQuestion, *, now: datetime | None = None) -> Shares:
    """Returns the shares, by the evidence, the platforms and the boxes. Blocks for `LOOK_SECONDS` at most while it asks
    them. When the evidence can't be read, names alone decide."""
    evidence = evidence_uri(project_root, asked.pull_to)
    try:
        marker = EvidenceStore.read_marker(evidence) if evidence is not None else None
        if marker is None or (marker.project, marker.stack) != (asked.project, asked.stack):
            begins = now or datetime.now(UTC)  # there is no evidence of this sweep yet
            return shares(asked, SplitFacts(begins, counted=_counted(None, asked, {}, {}, begins)))
        opened = Evidence(evidence or "")
        return shares(asked, _known(opened, asked, now or datetime.now(UTC)))
    except (SweepstackError, OSError) as error:
        return by_names_alone(asked, str(error))


def _known(evidence: Evidence, asked: SplitQuestion, now: datetime) -> SplitFacts:
    store = evidence.store
    births = store.births()
    living = {birth.box: birth for birth in sorted(births, key=lambda one: one.generation) if birth.ended_at is None}
    asks = {box: _asking(evidence, birth) for box, birth in living.items() if birth.native_id is not None}
    found = in_parallel(asks, LOOK_SECONDS)
    if asked.up:
        keep_journals(store, {(box, living[box].generation): seen.journal for box, seen in found.items()})
    given = {(launch.box, launch.generation): frozenset(launch.cells) for launch in store.launches()}
    boxes, took, begun = {}, [], False
    ran: dict[str, CellProgress] = {}
    for birth in births:
        seen = found.get(birth.box) if living.get(birth.box) is birth else None
        journal = (
            seen.journal
            if seen is not None and seen.journal is not None
            else copied_journal(store, birth.box, birth.generation)
        )
        had = given.get((birth.box, birth.generation), frozenset())
        begun = begun or (
            bool(had) if journal is None else any(one.state != "pending" for one in journal.cells.values())
        )
        if journal is not None:
            ran |= {name: p for name, p in journal.cells.items() if started(p) and not _later(ran.get(name), p)}
            times = cell_times(journal).took
            took += [Took(name, birth.native_id or "", seconds) for name, seconds in times.items()]
        if living.get(birth.box) is birth:
            boxes[birth.box] = BoxSeen(
                machine=birth.native_id or "",
                there=seen is None or not seen.lost,
                given=had,
                journal=journal,
                reachable=seen is not None and (seen.journal is not None or seen.stopped),
                resting=seen is not None and seen.stopped,
                skew=seen.skew if seen is not None else 0.0,
            )
    unrecorded = _unrecorded(store, asked.boxes.keys() - {birth.box for birth in births})
    teardown, record = store.teardown(), recorded_retries(store)
    counted = _counted(store, asked, record, ran, now)
    again: dict[str, Again | Retry] = {**record, **counted}
    superseded = {name: retry.manifest for name, retry in again.items() if retry.manifest is not None}
    digests = {cell.name: cell.config_digest for cell in asked.cells}
    return SplitFacts(
        now=now,
        boxes=boxes,
        verified=verified_cells(store, digests, superseded),
        retries={name: retry.retry for name, retry in again.items()},
        took=took,
        ending={birth.box for birth in births if teardown is not None and birth.native_id in teardown.native_ids},
        unrecorded=unrecorded,
        begun=begun or bool(unrecorded),
        counted=counted,
        refused=too_low(asked.retry, record),
    )


def _later(one: CellProgress | None, other: CellProgress) -> bool:
    """Whether the first was started for a later retry, or later, than the second."""
    if one is None or one.started_at is None or other.started_at is None:
        return one is not None and one.retry > other.retry
    return (one.retry, one.started_at) > (other.retry, other.started_at)


def _counted(
    store: EvidenceStore | None,
    asked: SplitQuestion,
    record: Mapping[str, Retry],
    ran: Mapping[str, CellProgress],
    now: datetime,
) -> dict[str, Again]:
    """The retries of `cells.retry` that no `up` has brought yet; the `up` that does writes them down. A cell that runs
    is ended for it."""
    new = [name for name, count in asked.retry.items() if count > (record[name].counted if name in record else 0)]
    digest = store.latest_receipt() if store is not None and any(name not in ran for name in new) else None
    receipt = store.receipt(digest) if store is not None and digest else None
    sealed = {cell.name: cell.manifest for cell in receipt.cells} if receipt else {}
    found = {}
    for name in new:
        progress = ran.get(name)
        manifest = progress.manifest if progress is not None else sealed.get(name)
        runs = progress is not None and progress.state == "running"
        retry = next_retry(record.get(name), progress, manifest, by="", at=now, ends=runs)
        found[name] = retry.again.model_copy(update={"counted": asked.retry[name]})
    return found


def _unrecorded(store: EvidenceStore, unborn: Set[str]) -> Set[str]:
    """Those of these boxes without a birth record that were rented. Reads every receipt, unless `unborn` is empty."""
    return unborn & generations(store).keys() if unborn else unborn


def _asking(evidence: Evidence, birth: Birth) -> Callable[[], Observation]:
    def ask() -> Observation:
        seen = observe(BoxAt.of(birth, evidence), files=False)[0]
        if seen.journal is not None:
            code_mixing.remember(birth, seen.journal)  # the queues of this preview ask for the same ones
        return seen

    return ask
