"""The suite runs against every installed adapter; each brings a `harness_<adapter>.py`, and none may skip it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from provider.platforms.base import Phase
from provider.platforms.registry import adapters


@pytest.fixture(params=adapters())
def harness(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The adapter with a world of its own to break; afterwards nothing may be left rented or running."""
    path = Path(__file__).with_name(f"harness_{request.param}.py")
    assert path.exists(), f"the adapter {request.param!r} has no {path.name}: the suite is not optional"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    world = module.Harness(tmp_path, monkeypatch)
    yield world
    world.repair()
    platform = world.connect()
    for record in platform.list_tagged(""):
        platform.destroy(record.native_id, record.account)
        assert platform.get(record.native_id, record.account).phase is Phase.GONE
    assert platform.list_tagged("") == []
