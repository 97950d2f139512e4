"""Tells of what an audit found: the places that the stacks of this checkout name, each thing once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from sweepstack.cli.commands.audit.known_boxes import Known
from sweepstack.cli.events import PATIENCE, channels
from sweepstack.cli.output import note
from sweepstack.config.edit.stack_file import StackFile
from sweepstack.core.bucket_address import evidence_uri
from sweepstack.operations.events.deliver import Delivery, deliver
from sweepstack.operations.events.event import Event
from sweepstack.operations.events.stray import stray


class AnyFinding(Protocol):
    """What is asked of a finding (`accounts.Finding`)."""

    @property
    def kind(self) -> str: ...
    @property
    def platform(self) -> str: ...
    @property
    def native_id(self) -> str: ...
    @property
    def standing(self) -> str: ...
    @property
    def whose(self) -> tuple[str, ...]: ...
    @property
    def next(self) -> str: ...
    @property
    def price_per_hour(self) -> float | None: ...
    @property
    def price_per_month(self) -> float | None: ...


def tell_findings(findings: Sequence[AnyFinding], root: Path, known: Known) -> None:
    """Tells of findings that bill and that no state knows of. Blocks for `PATIENCE` at most, and never raises.

    A finding that is known to some stacks is told where these say; any other by the first stack that names a place.
    """
    begun: list[Delivery] = []
    covered: set[str] = set()
    for stack, store in sorted(known.stores.items()):
        file = StackFile.locate(root, stack)
        if not findings or evidence_uri(root, file.pull_to() or "") != store.objects.uri:
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


def _event(finding: AnyFinding, stack: str) -> Event:
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
