"""The same states on the real engine: each loss alone, and a fixed sample of the pairs. test_handlers.py stays."""

from __future__ import annotations

import random

import pytest

from tests.states import losses
from tests.states.conftest import At
from tests.states.test_handlers import PAIRS
from tests.states.walking import leads_out, rows

STARTS = ("finished", "cleared")
ALONE = [(start, name) for start in STARTS for name in losses.ALL]
SOME_PAIRS = random.Random(15).sample(PAIRS, 40)


@pytest.mark.engine
@pytest.mark.proof
@pytest.mark.parametrize(("start", "names"), rows(*ALONE, *SOME_PAIRS))
def test_alone_and_some_pairs(start: str, names: tuple[str, ...], real_at: At) -> None:
    leads_out(real_at(start), start, names)
