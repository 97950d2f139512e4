"""States on the real handlers and the real `sweepctl`, without the engine: each loss alone, and all pairs."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from tests.states import losses
from tests.states.conftest import At
from tests.states.starts import STARTS
from tests.states.walking import leads_out, rows

SAMPLE = (
    ("cut", "boxes: without power"),
    ("finished", "evidence: gone"),
    ("finished", "marker: torn"),
    ("finished", "birth: gone"),
    ("finished", "registry: gone"),
    ("finished", "stack file: torn"),
    ("finished", "state: gone"),
    ("finished", "this computer: renamed"),
    ("cleared", "launch: gone"),
    ("cleared", "pulled artifact: torn", "clearance: gone"),
    ("cleared", "evidence: gone", "backend: lost, made anew"),
    ("half", "open teardown: torn"),
    ("half", "records: gone"),
)
"""In `make test`. All others: `make proof`."""
ALONE = [(start, name) for start in STARTS for name in losses.ALL]
PAIRED = [f"{thing}: torn" for thing in losses.FILES] + [loss.name for loss in losses.WHOLE]
"""One way for each thing: how it is damaged matters alone, what else is damaged matters in a pair."""
PAIRS = [(start, *pair) for start in ("finished", "cleared") for pair in combinations(PAIRED, 2)]
SOME_PAIRS = random.Random(16).sample(PAIRS, 400)
"""A fixed sample: twenty minutes in one process. `-n 2` shares it out, and `-k` takes a part."""
IN_TEST = 1
"""So many of them are in `make test`."""


@pytest.mark.parametrize(("start", "names"), rows(*SAMPLE))
def test_sample(start: str, names: tuple[str, ...], fast_at: At) -> None:
    leads_out(fast_at(start), start, names)


@pytest.mark.proof
@pytest.mark.parametrize(("start", "names"), rows(*ALONE))
def test_alone(start: str, names: tuple[str, ...], fast_at: At) -> None:
    leads_out(fast_at(start), start, names, next_too=True)


@pytest.mark.parametrize(("start", "names"), rows(*SOME_PAIRS[:IN_TEST]))
def test_some_pairs(start: str, names: tuple[str, ...], fast_at: At) -> None:
    leads_out(fast_at(start), start, names)


@pytest.mark.proof
@pytest.mark.parametrize(("start", "names"), rows(*SOME_PAIRS[IN_TEST:]))
def test_in_pairs(start: str, names: tuple[str, ...], fast_at: At) -> None:
    leads_out(fast_at(start), start, names)
