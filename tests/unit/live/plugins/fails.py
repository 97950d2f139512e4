"""pytest plugin: every test fails when it has rented."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Any:
    rent = pyfuncitem.funcargs["rent"]
    pyfuncitem.obj = lambda **_: (rent(), pytest.fail("as tests do"))
    yield
