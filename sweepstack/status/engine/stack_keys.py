"""The keys that a stack gives its providers, for commands: of its config, and for other accounts of its state.

The engine alone can open them, so it is asked: once for each key, and only where the stack's file or its state shows
that there is one. See docs/adr/026.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.errors import NotAuthorized, SweepstackError
from sweepstack.platforms.common.keys import Key, declared
from sweepstack.status.engine.call import EngineCall, find_engine

PROVIDER = "pulumi:providers:sweepstack"
_NOT_THERE = re.compile(r"configuration key .* not found")
_OF_AN_ENVIRONMENT = re.compile(r"^environment:", re.MULTILINE)
_elsewhere: dict[tuple[str, str], tuple[str, Path]] = {}
"""(name of the key, account) → the stack in whose state a provider of a program's own has it, and its project."""


class StackKeys:
    """A source of keys (`platforms.common.keys.look_in`). `file`: the stack's file. To make one reads nothing."""

    def __init__(self, stack: str, project_root: Path, file: Path) -> None:
        self._stack, self._root, self._file = stack, project_root, file
        self._answered: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()

    def __call__(self, key: Key, account: str) -> str:
        with self._lock:
            return self._answer(key, account)

    def _answer(self, key: Key, account: str) -> str:
        asked = (key.option, account)
        if asked not in self._answered:
            try:
                self._answered[asked] = self._in_state(key, account) if account else self._in_config(key)
            except SweepstackError as error:
                if not os.environ.get(key.variable):
                    raise NotAuthorized(
                        f"the stack {self._stack} has a key for {key.opens} ({key.path}), which can't be read here: "
                        f"{error}. Next: PULUMI_CONFIG_PASSPHRASE or what else opens its secrets; or `export "
                        f"{key.variable}=…`"
                    ) from None
                self._answered[asked] = ""
        return self._answered[asked]

    def _in_config(self, key: Key) -> str:
        try:
            text = self._file.read_text(encoding="utf-8")
        except (OSError, UnicodeError):
            return ""
        if key.option not in text and not _OF_AN_ENVIRONMENT.search(text):
            return ""
        return _said(self._stack, self._root, "config", "get", key.path, unless=_NOT_THERE).decode().strip()

    def _in_state(self, key: Key, account: str) -> str:
        if (key.option, account) not in _elsewhere:
            return ""
        stack, root = _elsewhere[key.option, account]
        for option, of, value in _held(json.loads(_said(stack, root, "stack", "export", "--show-secrets"))):
            if (option, of) == (key.option, account) and isinstance(value := _opened(value), str):
                return value
        return ""


def note(export: Mapping[str, Any], stack: str, project_root: Path) -> None:
    """Notes which accounts the providers of this state have a key for, without the keys."""
    _elsewhere.update({(option, account): (stack, project_root) for option, account, _ in _held(export)})


def _held(export: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """(name of the key, account, the key as the state has it), of the providers that a program made. That of the
    default provider stands in the config, where it is newer."""
    for resource in (export.get("deployment") or {}).get("resources") or ():
        if resource.get("type") == PROVIDER and "::default" not in str(resource.get("urn")):
            inputs = resource.get("inputs") or {}
            for adapter, account in (inputs.get("accounts") or {}).items():
                if (key := declared().get(adapter)) and key.option in inputs:
                    yield key.option, account, inputs[key.option]


def _opened(value: Any) -> Any:
    """A secret as `--show-secrets` prints it: its JSON text."""
    return json.loads(value["plaintext"]) if isinstance(value, Mapping) and "plaintext" in value else value


def _said(stack: str, root: Path, *words: str, unless: re.Pattern[str] | None = None) -> bytes:
    """What the engine prints; nothing where its complaint is `unless`. Raises SweepstackError with its own words."""
    code, out, complaint = EngineCall([find_engine(), *words, "--stack", stack], root).answer()
    if code != 0 and not (unless and unless.search(complaint)):
        raise SweepstackError(complaint or f"`pulumi {' '.join(words[:2])}` ended with {code}")
    return out if code == 0 else b""
