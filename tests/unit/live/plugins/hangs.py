"""pytest plugin: every test rents, and then never ends."""

from __future__ import annotations

import time
from typing import Any

import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Any:
    rent = pyfuncitem.funcargs["rent"]
    pyfuncitem.obj = lambda **_: (rent(), time.sleep(600))
    yield
