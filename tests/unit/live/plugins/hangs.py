"""pytest plugin: every test rents, and then hangs, in code without line numbers.

A signal that arrives between two lines leaves a traceback entry whose line is None, and pytest can't print that.
"""

from __future__ import annotations

import time
from typing import Any

import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Any:
    rent = pyfuncitem.funcargs["rent"]

    def hang() -> None:
        time.sleep(600)

    hang.__code__ = hang.__code__.replace(co_linetable=b"")
    pyfuncitem.obj = lambda **_: (rent(), hang())
    yield
