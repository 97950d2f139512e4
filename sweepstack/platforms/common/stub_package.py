"""Packages entered without what they import on their way: for SDKs of which one module is needed."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType


def enter_as_shell(name: str, **said: object) -> None:
    """Puts an empty package in the place of `name`: its modules can be imported from below it, and it says only `said`.

    Nothing is done where the package was imported before. Nothing in this process may need the whole one afterwards.
    Raises ImportError where it is not installed.
    """
    if name in sys.modules:
        return
    spec = importlib.util.find_spec(name)
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError(f"{name} is not installed in {sys.prefix}; run `make up`", name=name)
    shell = ModuleType(name, "search path only; see sweepstack/platforms/common/stub_package.py")
    shell.__path__ = list(spec.submodule_search_locations)
    shell.__spec__ = spec
    for key, value in said.items():
        setattr(shell, key, value)
    sys.modules[name] = shell
