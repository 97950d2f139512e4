"""The plans that every `make test` plays: a file a platform, since a file is what a worker of the tests gets."""

from __future__ import annotations

from tests.chaos.stage import Stage

PLANS = 75
"""Of each platform. `python -m tests.chaos --plans 1000` plays all."""
TAIL = 60


def seeds(platform: int) -> list[int]:
    """Even seeds are RunPod's (0), odd ones vast.ai's (1)."""
    return list(range(platform, 2 * PLANS, 2))


def holds(stage: Stage, seed: int) -> None:
    """Plays the plan; what did not hold is told with the end of its story and the command that replays it."""
    verdict = stage.play(seed)
    told = "\n".join([*verdict.broken, "", *verdict.story[-TAIL:], "", f"replay: python -m tests.chaos {seed}"])
    assert not verdict.broken, f"seed {seed}\n{told}"
