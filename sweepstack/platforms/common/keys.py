"""The keys of platforms: where a person may put each one, and which one counts (docs/adr/026).

One of the provider's configuration comes first. The plugin has those of one provider; a command, those of a stack.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from functools import cache

from sweepstack.core.extensions import ROOTS
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.platforms.common import redact


@dataclass(frozen=True)
class Key:
    """The key of one adapter, whose package has it as `KEY`: its name in the provider's configuration, the environment
    variable, and the vendor in messages."""

    option: str
    variable: str
    opens: str

    @property
    def path(self) -> str:
        """Its name in a stack config."""
        return f"sweepstack:{self.option}"


Source = Callable[[Key, str], str]
"""(key, account) → the key that a stack has for it; "" for none. Raises NotAuthorized for one that can't be read."""
_given: dict[str, dict[str, str]] = {}
"""option → account, or "" where none is known → key"""
_sources: list[Source] = []


@cache
def declared() -> Mapping[str, Key]:
    """Adapter → its key, for all that are installed."""
    found = {}
    for package, root in ROOTS.items():
        for folder in sorted(file.parent.name for file in root.glob("*/__init__.py")):
            if isinstance(key := getattr(importlib.import_module(f"{package}.{folder}"), "KEY", None), Key):
                found[folder] = key
    return found


def give(key: Key, value: str, account: str = "") -> None:
    """Takes this key from now on, for this account alone where one is named. No message shows it."""
    redact.learn({key.path: value})
    _given.setdefault(key.option, {})[account] = value.strip()


def look_in(source: Source | None) -> None:
    """Forgets what was given, and asks this source for what else is looked for."""
    _given.clear()
    _sources[:] = [source] if source else []


def find(key: Key, account: str = "") -> str:
    """The key for this account, where one is known; else the one that counts for all, else the environment's, else "".
    Raises NotAuthorized as `Source`."""
    for asked in dict.fromkeys((account, "")):
        if asked in (given := _given.get(key.option, {})):
            return given[asked]
        for source in _sources:
            if value := source(key, asked):
                give(key, value, asked)
                return value.strip()
    return os.environ.get(key.variable, "").strip()


def learn(key: Key, value: str, adapter: str, file: str = "") -> None:
    """No message shows this key from now on. `file`: where it came from, if from nowhere else."""
    redact.learn({hint(key, value, key.variable): value}, of=adapter, file=hint(key, value, file))


def hint(key: Key, value: str, usual: str) -> str:
    """Where a person put this key, for messages; `usual` where it is none of a configuration."""
    return key.path if value in _given.get(key.option, {}).values() else usual


def way(key: Key) -> str:
    """What a person types to put another key in the place of the one that counts."""
    given = "" in _given.get(key.option, {})
    return f"`pulumi config set --secret {key.path} …`" if given else f"`export {key.variable}=…`"


def tells(account: str) -> bool:
    """Whether a platform gave the account this name: `key-…` is made of the key, where it gives none."""
    return bool(account) and not account.startswith("key-")
