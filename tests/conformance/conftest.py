"""The suite runs against every installed adapter; each brings a `harness_<adapter>.py`, and none may skip it.

Marks: `machines` gives the test real boxes, `host_boxes` asks only adapters whose boxes are processes of this host,
`wire` only those with an API between them and their platform, `able(CanStop)` only those that are such a platform,
`fault_of("preempted")` only those whose platform can have that fault.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sweepstack.core.extensions import adapters
from sweepstack.onbox.common.errors import NotYetGone
from sweepstack.onbox.host.platform import Phase, Platform
from sweepstack.platforms.registry import load_platform
from tests.conformance.harness import WIRE, harness_class, variants
from tests.conformance.suite import Renter

GONE_SECONDS = 120.0


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test an adapter that it is about; with `fault` and `verb` also one a fault that its platform can have."""
    if "harness" not in metafunc.fixturenames:
        return
    marks = {mark.name for mark in metafunc.definition.iter_markers()}
    kinds = [kind for mark in metafunc.definition.iter_markers("able") for kind in mark.args]
    faults = {fault for mark in metafunc.definition.iter_markers("fault_of") for fault in mark.args}
    worlds = _worlds()
    asked = [
        name
        for name, world in worlds.items()
        if (world.host or "host_boxes" not in marks)
        and (world.wire or "wire" not in marks)
        and (getattr(world, "spawns", True) or "machines" not in marks)
        and not faults & world.impossible
        and not any(kind in getattr(world, "lacks", ()) for kind in kinds)
        and all(isinstance(load_platform(name.partition("+")[0]), kind) for kind in kinds)
    ]
    test = metafunc.function.__name__
    if "fault" not in metafunc.fixturenames:
        params = [pytest.param(name, marks=_later(worlds[name], test)) for name in asked]
        metafunc.parametrize("harness", params, indirect=True)
        return
    (verbs,) = (mark.args for mark in metafunc.definition.iter_markers("verbs"))
    cases = [(name, *pair) for name in asked for pair in sorted(worlds[name].plays) if pair[1] in verbs]
    metafunc.parametrize(
        ("harness", "fault", "verb"),
        [pytest.param(*case, marks=_later(worlds[case[0]], case[1:]), id="-".join(case)) for case in cases],
        indirect=["harness"],
    )


@functools.cache
def _worlds() -> dict[str, Any]:
    """The class of each harness, to be read: a test has its own (`harness`)."""
    return {name: harness_class(name) for adapter in adapters() for name in variants(adapter)}


def _later(world: Any, test: str | tuple[str, ...]) -> list[pytest.MarkDecorator]:
    """The mark of what is played in `make proof` alone: of an adapter whose promises other tests prove, as its harness
    says, all but the tests and the (fault, verb) pairs that it calls `quick`; and what another adapter's code proves of
    a wire."""
    if getattr(world, "proved_by", ""):
        return [pytest.mark.proof] if test not in getattr(world, "quick", ()) else []
    return [pytest.mark.proof] if test[0] in WIRE and getattr(world, "wire_of", "") else []


@pytest.fixture
def harness(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The adapter with a world of its own to break; afterwards nothing may be left rented or running."""
    machines = request.node.get_closest_marker("machines") is not None
    world = harness_class(request.param)(tmp_path, monkeypatch, machines)
    try:
        yield world
        world.repair()
        platform = world.connect()
        left = {record.native_id: record.account for record in platform.list_tagged("")}
        assert world.rentals() <= set(left), "something bills that the adapter does not know"
        end = time.monotonic() + GONE_SECONDS
        for native_id, account in left.items():
            while True:
                with suppress(NotYetGone):
                    platform.destroy(native_id, account)
                if platform.get(native_id, account).phase is Phase.GONE:
                    break
                assert time.monotonic() < end, f"{native_id} does not go away"
                time.sleep(0.05)
        assert platform.list_tagged("") == []
        assert world.rentals() == set(), "something bills that the adapter calls gone"
    finally:
        world.close()


@pytest.fixture
def platform(harness: Any) -> Platform:
    """The adapter, in its harness's world."""
    platform: Platform = harness.connect()
    return platform


@pytest.fixture
def rent(harness: Any, platform: Platform) -> Renter:
    """Rents through that adapter."""
    return Renter(harness, platform)
