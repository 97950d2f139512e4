"""pytest plugin: every test rents, loses the first interrupt, and then sleeps.

An interrupt is lost where it is raised while Python collects garbage or calls a callback.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Any:
    rent = pyfuncitem.funcargs["rent"]

    def sleep() -> None:
        with contextlib.suppress(KeyboardInterrupt):
            Path.home().joinpath("asleep").touch()
            time.sleep(600)
        time.sleep(600)

    pyfuncitem.obj = lambda **_: (rent(), sleep())
    yield
