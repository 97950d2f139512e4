"""Fault plans on the simulated platforms, one half of them. What has to hold stands in `story`."""

from __future__ import annotations

import pytest

from tests.chaos.sample import holds, seeds
from tests.chaos.stage import Stage


@pytest.mark.parametrize("seed", seeds(0))
def test_plan(stage: Stage, seed: int) -> None:
    holds(stage, seed)
