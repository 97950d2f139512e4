"""For the tests of a release: pip without a network."""

from __future__ import annotations

import os
import site
from collections.abc import Callable

import pytest


@pytest.fixture
def offline_pip(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Called, it lets pip install just the file that it is given; what that depends on is this environment's."""

    def offline() -> None:
        for name in ("PIP_NO_DEPS", "PIP_NO_INDEX"):
            monkeypatch.setenv(name, "1")
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(site.getsitepackages()))

    return offline
