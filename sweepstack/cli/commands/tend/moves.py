"""Moves waiting cells from another box's queue to an idle box, for `sweepctl tend`.

The engine does it, under the stack's lock: `pulumi up` with the queues as targets rents nothing and ends nothing. A
preview comes first. If it shows any change other than the cells of a queue, such as code that was edited since the last
`up`, nothing is done, and a person is told.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweepstack.cli.commands.tend.round import Round
from sweepstack.cli.output import note
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.status.engine.call import find_engine
from sweepstack.status.snapshot import Snapshot

PREVIEW_SECONDS = 300.0
CELLS = frozenset({"cells", "elsewhere"})
"""The inputs of a queue with its cells."""

Run = Callable[[Sequence[str]], int]
"""Runs the engine with these arguments to its end, and returns its exit code."""


@dataclass
class Moves:
    """The memory of one run of `tend`. `tried`: the idle boxes and waiting cells at the last call of the engine."""

    tried: tuple[tuple[str, ...], tuple[str, ...]] = field(default=((), ()))


def level(root: Path, snapshot: Snapshot, round_: Round, moves: Moves, run: Run) -> None:
    """Moves waiting cells to idle boxes. Calls the engine only once for the same boxes and cells."""
    idle = tuple(box_snapshot.box.name for box_snapshot in snapshot.box_snapshots if box_snapshot.idles)
    waits = tuple(sorted(name for box_snapshot in snapshot.box_snapshots for name in box_snapshot.waiting))
    if not idle or not waits or (idle, waits) == moves.tried:
        return
    moves.tried = (idle, waits)
    queues = [
        box_snapshot.queue.urn
        for box_snapshot in snapshot.box_snapshots
        if box_snapshot.queue is not None and not box_snapshot.gone
    ]
    targets = [word for urn in queues for word in ("--target", urn)]
    stack = snapshot.state.stack
    names = f"box {', '.join(idle)} {'has' if len(idle) == 1 else 'have'} nothing to do"
    try:
        steps = _preview(root, stack, targets)
    except SweepstackError as error:
        round_.problems.append(f"{names}, and the preview of moving cells failed: {error}")
        return
    more, other = _what(steps, idle)
    if other:
        round_.problems.append(
            f"{names} and {len(waits)} cells wait elsewhere, but `pulumi up` would also change {', '.join(other)}: "
            f"type it yourself (pulumi up --stack {stack})"
        )
        return
    if not any(more.values()):
        return
    command = ["up", "--stack", stack, "--yes", "--non-interactive", "--skip-preview", *targets]
    note(f"$ pulumi {' '.join(command[:6])} --target {len(queues)} queues: {names}, and cells wait elsewhere")
    code = run(command)
    if code == 0:
        round_.moved = {box: count for box, count in more.items() if count}
    else:
        round_.problems.append(f"`pulumi up` of the queues ended with {code}: cells stay where they wait")


def _preview(root: Path, stack: str, targets: Sequence[str]) -> list[Mapping[str, Any]]:
    command = [find_engine(), "preview", "--json", "--stack", stack, "--non-interactive", *targets]
    try:
        found = subprocess.run(
            command, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PREVIEW_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SweepstackError(str(error)) from error
    try:
        document = json.loads(found.stdout)
    except ValueError:
        document = None
    if found.returncode or not isinstance(document, dict):
        print(found.stderr, end="", file=sys.stderr)
        raise SweepstackError(f"`pulumi preview` ended with {found.returncode}")
    return [step for step in document.get("steps", []) if isinstance(step, dict)]


def _what(steps: Sequence[Mapping[str, Any]], idle: Sequence[str]) -> tuple[dict[str, int], list[str]]:
    """From a preview: idle box → how many more cells it would have; and all other changes, as text."""
    more = dict.fromkeys(idle, 0)
    other: list[str] = []
    for step in steps:
        op, urn = str(step.get("op")), str(step.get("urn"))
        if op in ("same", "refresh", "read"):
            continue
        kind, name = urn.split("::")[2].rpartition("$")[2].rpartition(":")[2], urn.rpartition("::")[2]
        reasons = set(step.get("diffReasons") or step.get("detailedDiff") or ())
        if op != "update" or kind != "Queue" or not {reason.partition("[")[0] for reason in reasons} <= CELLS:
            if kind != "Stack":
                what = ", ".join(sorted(reasons - CELLS)) or op
                other.append(f"{kind.lower()} {name} ({what})")
            continue
        before, after = (_cells(step.get(key)) for key in ("oldState", "newState"))
        if name in more:
            more[name] = len(after - before)
    return more, other


def _cells(state: Any) -> set[str]:
    inputs = state.get("inputs") if isinstance(state, dict) else None
    cells = inputs.get("cells") if isinstance(inputs, dict) else None
    return {str(cell) for cell in cells} if isinstance(cells, list) else set()
