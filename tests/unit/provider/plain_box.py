"""A box that no platform has: its state, its records, and a platform that shows it in one phase after the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from sweepstack.core.journal import CellProgress, Journal
from sweepstack.core.observation import Existence, Observation
from sweepstack.core.records import Birth, Launch
from sweepstack.core.resources import BoxState, QueueState
from sweepstack.onbox.host.platform import BoxRecord, Phase
from sweepstack.teardown.box_context import BoxContext, BoxFacts
from tests.unit.provider.support import Sweep
from tests.unit.teardown.support import NOW

SEEN = Observation(Existence.EXISTS)
CODE, OTHER = "sha256:" + "c" * 64, "sha256:" + "d" * 64


def state_of(sweep: Sweep, **changes: Any) -> BoxState:
    """A box that no platform has."""
    known = {"native_id": "local-a", "account": "here/1", "phase": "running", "tag": "t", "generation": 1}
    return BoxState.model_validate(sweep.box_inputs().model_dump() | known | changes)


def queue_of(sweep: Sweep, *cells: str, **changes: Any) -> QueueState:
    inputs = sweep.queue_inputs(state_of(sweep), *cells, **changes)
    return QueueState(**inputs.model_dump(), launched_at=datetime.now(UTC))


def context(state: Any, platform: Any = None) -> BoxContext:
    return BoxContext(BoxFacts.of(state), state.adapter, platform=platform)


def record(phase: Phase, **changes: Any) -> BoxRecord:
    return BoxRecord("local-a", "t", "here/1", phase, 0.5, NOW, location="here", **changes)


class Shown:
    """A platform that shows the box in one phase after the other, the last one for good; an error is raised."""

    name, over_ssh = "local", False

    def __init__(self, *answers: Phase | BoxRecord | Exception) -> None:
        self.answers: Iterator[Any] = itertools.chain(answers, itertools.repeat(answers[-1]))

    def get(self, *_: str) -> BoxRecord:
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return record(answer) if isinstance(answer, Phase) else answer


def born(sweep: Sweep, name: str = "box-0", **changes: Any) -> Birth:
    known = {"box": name, "generation": 1, "tag": "t", "platform": "local", "account": "here/1", "native_id": "local-a"}
    known |= {"price_per_hour": 0.5, "begun_at": NOW, "created_at": NOW}
    birth = Birth.model_validate(known | changes)
    sweep.store.write_birth(birth)
    return birth


def given(sweep: Sweep, *cells: str) -> None:
    launch = {"box": "box-0", "generation": 1, "native_id": "local-a", "code": CODE, "at": NOW}
    sweep.store.write_launch(Launch.model_validate(launch | {"cells": dict.fromkeys(cells, OTHER)}))


def ran(**cells: Any) -> Journal:
    return Journal(cells={name: CellProgress(name, **said) for name, said in cells.items()})


SEALED = ran(a={"state": "sealed", "code": CODE})
