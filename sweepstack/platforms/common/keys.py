"""The keys of platforms: the names under which a person may give each one, and which one counts now.

A key of the provider's configuration comes before the environment's. The plugin's process has the keys of one provider
(`provider.configuration`). A command has a stack's, which it reads when the first is asked for (`look_in`). Keys are
kept in this process alone. See docs/adr/026.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

from sweepstack.core.extensions import ROOTS
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.platforms.common import redact

BY_KEY: Final = "key-"
"""What an account's name begins with where the platform names none: the rest is made of the key's digest."""


@dataclass(frozen=True)
class Key:
    """The key of one adapter, whose package has it as `KEY`."""

    option: str
    """its name in the provider's configuration"""
    variable: str
    """the environment variable that has it"""
    opens: str
    """the vendor, for messages"""

    @property
    def path(self) -> str:
        """Its name in a stack config."""
        return f"sweepstack:{self.option}"


Source = Callable[[Key, str], str]
"""(key, account) → the key that a stack has for it; "" where it has none. Raises NotAuthorized where it has one that
can't be read here."""
_given: dict[str, dict[str, str]] = {}
"""option → account, or "" where none is known → key"""
_sources: list[Source] = []


@cache
def declared() -> Mapping[str, Key]:
    """Adapter → its key, for all that are installed; also for a platform whose wallet alone has one."""
    found = {}
    for package, root in ROOTS.items():
        for folder in sorted({file.parent for name in ("platform", "wallet") for file in root.glob(f"*/{name}.py")}):
            key = getattr(importlib.import_module(f"{package}.{folder.name}"), "KEY", None)
            if isinstance(key, Key):
                found[folder.name] = key
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


def is_given(key: Key, value: str) -> bool:
    """Whether this value came from a provider's configuration."""
    return value in _given.get(key.option, {}).values()


def learn(key: Key, value: str, adapter: str, file: str = "") -> None:
    """No message shows this key from now on. `file`: where it came from, if from nowhere else."""
    given = is_given(key, value)
    redact.learn({key.path if given else key.variable: value}, of=adapter, file=key.path if given else file)


def hint(key: Key, value: str, usual: str) -> str:
    """Where a person put this key, for messages; `usual` where it is none of a configuration."""
    return key.path if is_given(key, value) else usual


def way(key: Key) -> str:
    """What a person types to put another key in the place of the one that counts."""
    given = "" in _given.get(key.option, {})
    return f"`pulumi config set --secret {key.path} …`" if given else f"`export {key.variable}=…`"


def tells(account: str) -> bool:
    """Whether this is an account's own name: of another one, a key is another account's."""
    return bool(account) and not account.startswith(BY_KEY)
