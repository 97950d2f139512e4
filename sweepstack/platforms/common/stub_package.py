"""Imports single modules of a package without running its `__init__`, for SDKs that import slowly."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from sweepstack.core.paths import package_fix


def import_as_stub(name: str, **said: object) -> None:
    """Registers an empty package under `name` in `sys.modules`: its submodules can be imported, its `__init__` is not
    run, and its only attributes are `said`.

    Does nothing when the package was imported before. From then on no code of this process may need the whole package.
    Raises ImportError when it is not installed.
    """
    if name in sys.modules:
        return
    spec = importlib.util.find_spec(name)
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError(f"{name} is not installed in {sys.prefix}; run `{package_fix()}`", name=name)
    shell = ModuleType(name, "search path only; see sweepstack/platforms/common/stub_package.py")
    shell.__path__ = list(spec.submodule_search_locations)
    shell.__spec__ = spec
    for key, value in said.items():
        setattr(shell, key, value)
    sys.modules[name] = shell
