"""The sweep of `support.build`, made once and copied for each test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.teardown.support import Situation, build


@pytest.fixture(scope="session", autouse=True)
def nothing_is_flushed() -> Iterator[None]:
    """No power is cut in these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep that may be torn down. Nobody writes here."""
    folder = tmp_path_factory.mktemp("template")
    build(folder)
    return folder


@pytest.fixture
def situation(template: Path, tmp_path: Path) -> Situation:
    """Box-0 is cleared, until the test does something."""
    shutil.copytree(template, tmp_path / "sweep", symlinks=True)
    return Situation.of(tmp_path / "sweep")
