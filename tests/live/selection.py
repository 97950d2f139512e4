"""Which tests of the conformance suite can be asked of a real platform."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

from tests.live.harness import CANNOT
from tests.live.run import REGION_VARIABLE


def possible(module: str) -> dict[str, Callable[..., Any]]:
    """The tests of a module by name, without those that need a platform which fails on demand, and without those that
    need a volume where nobody said in which region."""
    found = {}
    for name, test in vars(importlib.import_module(module)).items():
        if not name.startswith("test_") or not inspect.isfunction(test):
            continue
        used = set(_names(test.__code__))
        if used & CANNOT or "fault" in inspect.signature(test).parameters:
            continue
        if "volume" in used and not os.environ.get(REGION_VARIABLE):
            continue
        found[name] = test
    return found


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
