"""`sweepctl status --probe`: probes each box once, a line for each; for cron, by its exit code.

Changes nothing. For a box that does not answer it reports only that: what runs on it is not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from sweepstack.cli.commands.status.sweep import picture
from sweepstack.cli.output import NO, UNSURE, YES, Out, span
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.units import count
from sweepstack.operations.sweep.sources import open_sources
from sweepstack.operations.sweep.target import Target
from sweepstack.status.compose import BoxView, SweepView
from sweepstack.status.engine.call import ExportCall
from sweepstack.status.snapshot import BoxSnapshot, Snapshot

Verdict = Literal["healthy", "done", "escalate", "unreachable"]
_CODES: dict[Verdict, int] = {"healthy": YES, "done": YES, "escalate": NO, "unreachable": UNSURE}


@dataclass(frozen=True)
class BoxFinding:
    """One line: a box's verdict, and why."""

    box: str
    native_id: str
    verdict: Verdict
    words: tuple[str, ...]


def probe(target: Target, out: Out, begun: ExportCall | None = None) -> int:
    """Exit 0: every box is healthy or done; 1: one needs a person; 2: one is unreachable."""
    now = datetime.now(UTC)
    following: Sequence[str]
    try:
        snapshot, view = picture(open_sources(target, begun), files=True)
    except SweepstackError as error:
        findings = [BoxFinding("-", "", "unreachable", (f"the state is not known: {error}",))]
        following = [f"sweepctl status --stack {target.stack}"]
    else:
        findings = findings_of(snapshot, view)
        following = view.next
    codes = {_CODES[finding.verdict] for finding in findings}
    code = NO if NO in codes else UNSURE if UNSURE in codes else YES
    out.document(
        {
            "stack": target.stack,
            "time": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "boxes": [vars(finding) | {"words": list(finding.words)} for finding in findings],
            "next": list(following) if code else [],
        }
    )
    for finding in findings:
        style = {"escalate": "bold red", "unreachable": "yellow"}.get(finding.verdict)
        where = f"{target.stack}/{finding.box}"
        out.line(
            f"{now:%Y-%m-%dT%H:%M:%SZ}  {where}  {finding.verdict}  {'; '.join(finding.words)}", style=style, wrap=False
        )
    if code:
        out.next(following)
    return code


def findings_of(snapshot: Snapshot, view: SweepView) -> list[BoxFinding]:
    """A finding for every box of the state, and for every orphan. One line if there is none."""
    found = [
        _box(box_snapshot, box, view) for box_snapshot, box in zip(snapshot.box_snapshots, view.boxes, strict=True)
    ]
    for orphan in view.unknown:
        known: Verdict = "escalate" if orphan.proved else "unreachable"
        found.append(BoxFinding(orphan.name or "-", orphan.native_id, known, (f"UNKNOWN: {orphan.why}",)))
    if not found and not snapshot.searched:
        found.append(BoxFinding("-", "", "unreachable", ("no box is in the state; what runs elsewhere is not known",)))
    return found or [BoxFinding("-", "", "done", ("no box is up",))]


def _box(box_snapshot: BoxSnapshot, box: BoxView, view: SweepView) -> BoxFinding:
    def finding(verdict: Verdict, *words: str) -> BoxFinding:
        return BoxFinding(box.name, box.native_id, verdict, tuple(word for word in words if word))

    if box_snapshot.gone:
        lost = [cell.name for cell in view.cells if cell.box == box.name and cell.state == "lost"]
        return finding("escalate", f"gone from {box.platform}", f"{count(len(lost), 'cell')} lost" if lost else "")
    if box.phase == "stopped":
        return finding("done", "stopped")
    if not box_snapshot.reachable:
        return finding(
            "unreachable", box_snapshot.seen.account_problem or box_snapshot.seen.note or "it does not answer"
        )
    mine = set(box_snapshot.launch.cells) if box_snapshot.launch else set()
    cells = [cell for cell in view.cells if cell.name in mine and cell.box in (box.name, None)]
    failed = [cell.name for cell in cells if cell.state == "failed"]
    left = [cell.name for cell in cells if cell.state in ("running", "pending", "failed", "blocked_disk")]
    worries = list(box.alarms)
    if (
        left and not box_snapshot.seen.runner_alive and not box_snapshot.stranded
    ):  # stranded cells have an alarm of their own
        dead = f"its runner is not alive, and {count(len(left), 'cell')} did not finish{_named(left)}"
        worries.append(box_snapshot.held_by or dead)
    elif finals := [
        name for name in failed if (progress := box_snapshot.progress(name)) is not None and progress.final
    ]:
        worries.append(f"{count(len(finals), 'cell')} failed{_named(finals)}")
    facts = [
        ", ".join(f"{number} {state}" for state, number in Counter(cell.state for cell in cells).items())
        or "nothing was launched on it",
        f"heartbeat {span(box.heartbeat_seconds)} ago" if box.heartbeat_seconds is not None and left else "",
        f"disk {box.disk_used:.0%}" if box.disk_used is not None else "",
        *(f"{cell.name} {cell.note}" for cell in cells if cell.suspect),
    ]
    if worries:
        return finding("escalate", *worries, *facts)
    return finding("healthy" if left else "done", *facts)


def _named(names: Sequence[str]) -> str:
    return f": {', '.join(names[:3])}{', …' if names[3:] else ''}"
