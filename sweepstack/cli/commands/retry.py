"""`sweepctl retry`: records that cells run again; the next `pulumi up` tells the boxes."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from sweepstack.cli.options import AsJson, Stack, one_of
from sweepstack.cli.output import YES, Out
from sweepstack.cli.progress import Progress
from sweepstack.cli.prompt import answer, own_words
from sweepstack.core.journal import CellProgress, started
from sweepstack.core.search_log import Step
from sweepstack.evidence.search_log import append, read_search_log
from sweepstack.evidence.store import EvidenceStore
from sweepstack.launch.retries import Begin, Retry, add, next_retry, recorded_retries, waits
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import No, Unsure
from sweepstack.onbox.common.units import count
from sweepstack.operations.sweep.collect import take_snapshot
from sweepstack.operations.sweep.sources import open_sources, usable
from sweepstack.operations.sweep.target import Target
from sweepstack.status.compose import compose
from sweepstack.status.model import CellView
from sweepstack.status.snapshot import Snapshot
from sweepstack.teardown.ownership import who

FAILED = ("failed", "damaged", "suspect", "missing")
"""The states that `--failed` selects: cells that ended without a good result."""
SHOWN = 12


@dataclass(frozen=True)
class Choice:
    """The cells that a person named, why they run again, and with which checkpoints: `begin`."""

    cells: tuple[str, ...] = ()
    failed: bool = False
    all: bool = False
    reason: str = ""
    begin: Begin = ""

    @property
    def typed(self) -> str:
        """The cells, and how they begin, as they are typed."""
        named = "--all" if self.all else "--failed" if self.failed else " ".join(self.cells)
        return f"{named} --from {self.begin}" if self.begin else named


@dataclass(frozen=True)
class CellRetry:
    """One cell that is to run again. `waits`: an earlier retry that no `pulumi up` has brought to the boxes yet."""

    view: CellView
    retry: Retry
    waits: bool = False

    @property
    def supersedes(self) -> bool:
        """Whether a verified copy of it will no longer count."""
        return self.view.state == "verified" and not self.waits


def command(
    cells: Annotated[list[str] | None, typer.Argument(metavar="CELL", help="Cells by name.")] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="All cells that failed for good, or left no good copy.")
    ] = False,
    all_: Annotated[bool, typer.Option("--all", help="All cells that ran.")] = False,
    begin: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="start|set",
            help="Without the checkpoints that are there; or from the set before the newest, which needs a bucket. "
            "All are kept.",
        ),
    ] = "",
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why; recorded. Without a terminal it is your consent.")
    ] = "",
    stack: Stack = None,
    json: AsJson = False,
) -> int:
    """Run cells again, after the next `pulumi up`. A sealed cell starts from the beginning."""
    begins: Begin = one_of(begin, "start", "set", option="--from") if begin else ""
    choice = Choice(tuple(cells or ()), failed, all_, own_words("--reason", reason), begins)
    target, out = Target.find_sweep(stack), Out(as_json=json)
    sources = open_sources(target)
    store = usable(sources, f"retry {choice.typed}".rstrip())
    with Progress("looking"):
        snapshot = take_snapshot(sources)
    _may_run_at_all(snapshot)
    records = recorded_retries(store)
    views = _chosen(target, snapshot, choice)
    if begins == "set":
        _may_begin_with_a_set(target, snapshot, views, records)
    asked = [_asked(snapshot, view, records.get(view.name), choice) for view in views]
    new = [one for one in asked if not one.waits]
    _require_consent(target, new, choice)
    if new:
        _keep_from_now_on(store, snapshot, new, choice)
        add(store, {one.view.name: one.retry for one in new})
    _report(target, snapshot, asked, choice, out)
    return YES


def _keep_from_now_on(store: EvidenceStore, snapshot: Snapshot, asked: Sequence[CellRetry], choice: Choice) -> None:
    """Puts on record that the rule of a search stops these cells no more. First: a retry that is on record alone would
    wait for ever."""
    stopped = [one.view.name for one in asked if one.view.name in snapshot.pruned]
    if stopped:
        log = read_search_log(store.objects)
        reason = choice.reason or "sweepctl retry"
        kept = [Step(kind="kept", cell=name, by=who(), reason=reason) for name in stopped if name in log.pruned]
        append(store.objects, log, kept)


def _may_run_at_all(snapshot: Snapshot) -> None:
    stack = snapshot.state.stack
    if snapshot.teardown is not None:
        raise No(
            "a teardown has begun, and nothing is started until it is finished",
            [f"pulumi destroy --stack {stack}", f"sweepctl revoke --stack {stack}    (to go on instead)"],
        )
    if not snapshot.box_snapshots and snapshot.receipt is None:
        raise No("there is no box in the state, so nothing ran that could run again", [f"pulumi up --stack {stack}"])


def _chosen(target: Target, snapshot: Snapshot, choice: Choice) -> list[CellView]:
    """The cells to run again. Raises No, which names every cell that can't, and Unsure."""
    if sum((bool(choice.cells), choice.failed, choice.all)) != 1:
        raise Unsure("name cells, or say --failed, or --all: one of the three")
    stack = snapshot.state.stack
    views = {view.name: view for view in compose(snapshot).cells}
    for name in choice.cells:
        if name not in views:
            raise target.no_cell(name, views)
    if choice.failed:
        wanted = [view for view in views.values() if view.state in FAILED and _ended(snapshot, view)]
        if not wanted:
            raise No("no cell failed", [f"sweepctl status --stack {stack}"])
    elif choice.all:
        wanted = [view for view in views.values() if view.name not in snapshot.dropped and _ran(snapshot, view)]
        if not wanted:
            raise No(
                "no cell ran yet: they all start with what the next `pulumi up` brings", [f"pulumi up --stack {stack}"]
            )
    else:
        wanted = [views[name] for name in dict.fromkeys(choice.cells)]
    problems = [problem for view in wanted if (problem := _in_the_way(snapshot, view))]
    if problems:
        listed = "\n  ".join(text for text, _ in problems[:SHOWN])
        more = f"\n  … and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        raise No(f"nothing was written:\n  {listed}{more}", list(dict.fromkeys(next for _, next in problems))[:3])
    return wanted


def _in_the_way(snapshot: Snapshot, view: CellView) -> tuple[str, str] | None:
    """Why a cell can't run again now, and the command that helps; None if it can."""
    stack, name = snapshot.state.stack, view.name
    if name in snapshot.dropped and name not in snapshot.pruned:
        return f"{name} is dropped", f"pulumi up --stack {stack}    (after {name} is taken out of cells.drop)"
    holder = snapshot.holder_of(name)
    if holder is not None and not holder.gone:
        if not holder.reachable and not (holder.phase == "stopped" and holder.journal is not None):
            raise Unsure(
                f"box {holder.box.name} can't be reached: whether {name} runs is not known",
                [f"sweepctl status --stack {stack}"],
            )
        if holder.verdict.allowed:
            again = f"sweepctl revoke --stack {stack} && pulumi up --stack {stack}"
            return f"{name}: box {holder.box.name} is cleared, and nothing more is started on it", again
    if not _ran(snapshot, view) and name not in snapshot.pruned:
        return f"{name} has not run yet", f"pulumi up --stack {stack}"
    return None


def _may_begin_with_a_set(
    target: Target, snapshot: Snapshot, views: Sequence[CellView], records: Mapping[str, Retry]
) -> None:
    """Raises No where there can be no set of checkpoints before the newest: sets lie in a bucket alone."""
    stack = target.stack
    mounts = target.file.sweep().get("mounts") or {}
    if not any(isinstance(one, dict) and one.get("mode") == "MOUNT_CACHED" for one in mounts.values()):
        raise No(
            "--from set: there is no set before. Sets of checkpoints are kept in a bucket (mounts: MOUNT_CACHED), and "
            "this sweep has none",
            [f"sweepctl retry --stack {stack} {' '.join(view.name for view in views[:SHOWN])} --from start"],
        )
    for view in views:
        before, up = records.get(view.name), f"pulumi up --stack {stack}"
        holder = snapshot.holder_of(view.name)
        progress = holder.progress(view.name) if holder else None
        sealed = _sealed(snapshot, view, progress)
        if before is not None and waits(before, progress, sealed) and before.salt == before.retry:
            raise No(f"{view.name} waits for the next `pulumi up` already, to begin without checkpoints", [up])


def _is_at_work(snapshot: Snapshot, view: CellView) -> bool:
    """Whether it runs and does something: ending it costs what it did since its last checkpoint."""
    holder = snapshot.holder_of(view.name)
    progress = holder.progress(view.name) if holder else None
    runs = holder is not None and not holder.gone and progress is not None and progress.state == "running"
    return runs and bool(holder and holder.seen.runner_alive) and view.verdict != "hung"


def _asked(snapshot: Snapshot, view: CellView, before: Retry | None, choice: Choice) -> CellRetry:
    """The retry of one cell: a new one, or the one that waits already."""
    holder = snapshot.holder_of(view.name)
    progress = holder.progress(view.name) if holder else None
    retry = next_retry(
        before,
        progress,
        _sealed(snapshot, view, progress),
        by=who(),
        at=datetime.now(UTC).replace(microsecond=0),
        begin=choice.begin,
        ends=_is_at_work(snapshot, view),
        reason=choice.reason,
    )
    return CellRetry(view, retry, waits=retry is before)


def _sealed(snapshot: Snapshot, view: CellView, progress: CellProgress | None) -> str | None:
    """The manifest of its sealed copy by the journal; without a journal, of the verified copy."""
    if progress is not None and started(progress):
        return progress.manifest
    cells = snapshot.receipt.cells if snapshot.receipt else ()
    return next((cell.manifest for cell in cells if cell.name == view.name), None)


def _ran(snapshot: Snapshot, view: CellView) -> bool:
    holder = snapshot.holder_of(view.name)
    progress = holder.progress(view.name) if holder else None
    return _sealed(snapshot, view, progress) is not None or started(progress)


def _ended(snapshot: Snapshot, view: CellView) -> bool:
    """Whether the runner will not run it again by itself."""
    holder = snapshot.holder_of(view.name)
    progress = holder.progress(view.name) if holder else None
    return progress is None or progress.final


def _require_consent(target: Target, asked: Sequence[CellRetry], choice: Choice) -> None:
    """Asks for consent if verified copies will no longer count, or cells that run are ended: `yes` at a terminal, a
    reason elsewhere."""
    superseded = [one.view.name for one in asked if one.supersedes]
    ended = [one.view.name for one in asked if one.retry.ends]
    copies = f"{count(len(superseded), 'verified copy')} would count no more: {_names(superseded)}"
    parts = [copies.replace("copys", "copies")] if superseded else []
    parts += [f"{count(len(ended), 'cell')} would be ended while at work: {_names(ended)}"] if ended else []
    if not parts:
        return
    what = "; ".join(parts)
    if not sys.stdin.isatty():
        if choice.reason:
            return
        raise No(
            f"{what}. There is no terminal to ask at: give a reason as your consent",
            [f'sweepctl retry --stack {target.stack} {choice.typed} --reason "…"'],
        )
    if answer(f"{what}. Run them again? Type yes to go on: ").lower() != "yes":
        raise No("nothing was written", [f"sweepctl status --stack {target.stack}"])


def _names(cells: Collection[str]) -> str:
    shown = list(cells)[:SHOWN]
    return ", ".join(shown) + (f" … and {len(cells) - SHOWN} more" if len(cells) > SHOWN else "")


def _report(target: Target, snapshot: Snapshot, asked: Sequence[CellRetry], choice: Choice, out: Out) -> None:
    stack = target.stack
    following = [f"pulumi up --stack {stack}    (starts them)"]
    stale = any(one.supersedes for one in asked) and snapshot.receipt_digest is not None
    out.document(
        {
            "stack": stack,
            "cells": [
                {
                    "name": one.view.name,
                    "state": one.view.state,
                    "retry": one.retry.retry,
                    "from_checkpoint": one.retry.salt != one.retry.retry or one.retry.set_of is not None,
                    "waits": one.waits,
                    "supersedes": one.supersedes,
                }
                for one in asked
            ],
            "stale_receipt": snapshot.receipt_digest if stale else None,
            "next": [f"pulumi up --stack {stack}"],
        }
    )
    rows = [(one.view.name, one.view.state, str(one.retry.retry), _how(one)) for one in asked[:SHOWN]]
    out.table(("CELL", "STATE", "RETRY", "HOW"), rows)
    if len(asked) > SHOWN:
        out.line(f"… and {len(asked) - SHOWN} more")
    if choice.begin:
        out.line(
            f"checkpoints of before are kept, and the job does not see them: {_kept_in(snapshot, asked)} on the box"
        )
    if stale:
        out.line(f"the receipt {snapshot.receipt_digest} is stale as soon as they start: verify and approve again then")
    out.next(following)


def _kept_in(snapshot: Snapshot, asked: Sequence[CellRetry]) -> str:
    """The folder on the durable tier with the checkpoints that these cells no longer begin with."""
    identity = snapshot.state.identity.identity if snapshot.state.identity else "IDENTITY"
    names = [one.view.name for one in asked]
    return f"{box_layout.DURABLE}/{box_layout.checkpoints_dir(identity, names[0] if len(names) == 1 else 'CELL')}/"


def _how(one: CellRetry) -> str:
    how = "from nothing" if one.retry.salt == one.retry.retry else "goes on from its last checkpoint"
    if one.retry.set_of is not None and one.retry.salt == one.retry.retry:
        how = "from the set of checkpoints before the newest"
    if one.waits:
        return f"asked for before ({how}); `pulumi up` has not brought it in yet"
    return f"it is ended, and {how}" if one.view.verdict == "hung" or one.retry.ends else how
