"""Finds the adapter of a platform by its name: one module of this package each, no list to edit."""

from __future__ import annotations

import importlib
import pkgutil
import re
from typing import cast

import provider.platforms
from provider.platforms.base import Platform
from sweep.errors import ConfigError

_NOT_ADAPTERS = frozenset({"base", "observe", "observe_volume", "offers", "power", "registry"})
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def adapters() -> list[str]:
    """The names of all adapters that are installed, sorted. Imports none of them."""
    found = (module.name for module in pkgutil.iter_modules(provider.platforms.__path__))
    return sorted(name for name in found if name not in _NOT_ADAPTERS and not name.startswith("_"))


def load_platform(adapter: str) -> Platform:
    """The platform behind `adapter`: the result of `connect()` in `provider/platforms/<adapter>.py`; of
    `connect_to(address)` where it is named with one, `<adapter>:<address>`, as hosts of the user's own are.

    Raises ConfigError for a name that there is no module for. A module that is there and does not import is a broken
    installation: that ImportError passes through and is never skipped.
    """
    name, _, address = adapter.partition(":")
    if not _NAME.fullmatch(name) or name not in adapters():
        raise ConfigError(f"there is no platform adapter {adapter!r}; installed are: {', '.join(adapters())}")
    module = importlib.import_module(f"provider.platforms.{name}")
    if not address:
        return cast(Platform, module.connect())
    if not hasattr(module, "connect_to"):
        raise ConfigError(f"the platform {name} has one account and no address: write {name}, not {adapter!r}")
    return cast(Platform, module.connect_to(address))
