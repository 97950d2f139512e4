"""The world of a live run: a real account, with a ceiling on what may be spent and nothing left at the end.

The fixtures have the names of those in `tests/conformance`, so that its tests run here as they are. What imports the
suite comes late: its tags bear the run's own name, which is not there yet when pytest reads this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.host.platform import Platform


@pytest.fixture
def harness(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The real platform; what a test leaves there is ended before the next one."""
    from tests.live.harness import LiveHarness
    from tests.live.run import LiveRun

    run = request.config.stash.get(LiveRun.KEY, None)
    if run is None:
        pytest.fail("this spends real money: --live PLATFORM --spend USD", pytrace=False)
    world = LiveHarness(run, monkeypatch, tmp_path)
    yield world
    world.repair()
    left = run.end_all()
    assert not left, f"what this test rented is not gone: {left}"


@pytest.fixture
def platform(harness: Any) -> Platform:
    """The adapter, with a purse."""
    found: Platform = harness.connect()
    return found


@pytest.fixture
def rent(harness: Any, platform: Platform) -> Any:
    """Rents with a real platform's patience."""
    from tests.live.renting import LiveRenter

    return LiveRenter(harness, platform)
