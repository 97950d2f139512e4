"""The keys that a stack gives its providers, for commands: of its config, and of its state.

The engine alone can open them: it is asked once for each, where the stack's file or state shows one (docs/adr/026).
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sweepstack.onbox.common.errors import NotAuthorized, SweepstackError
from sweepstack.platforms.common.keys import Key, declared
from sweepstack.status.engine.call import EngineCall, find_engine

PROVIDER = "pulumi:providers:sweepstack"
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
            asked = (key.option, account)
            try:
                if asked not in self._answered:
                    self._answered[asked] = self._in_state(*asked) if account else self._in_config(key)
            except SweepstackError as error:
                if not os.environ.get(key.variable):
                    raise NotAuthorized(
                        f"the stack {self._stack} has a key for {key.opens} ({key.path}), which can't be read here: "
                        f"{error}. Next: `export PULUMI_CONFIG_PASSPHRASE=…`, or what else opens the stack's secrets; "
                        f"or `export {key.variable}=…`"
                    ) from None
                self._answered[asked] = ""
            return self._answered[asked]

    def _in_config(self, key: Key) -> str:
        text = self._file.read_text(encoding="utf-8", errors="replace") if self._file.is_file() else ""
        if key.option not in text and "environment:" not in text:  # it may come from an environment of Pulumi ESC
            return ""
        return _said(self._stack, self._root, "config", "get", key.path).decode().strip()

    def _in_state(self, option: str, account: str) -> str:
        if (option, account) not in _elsewhere:
            return ""
        held = _held(json.loads(_said(*_elsewhere[option, account], "stack", "export", "--show-secrets")))
        return next((json.loads(value["plaintext"]) for *of, value in held if of == [option, account]), "")


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


def _said(stack: str, root: Path, *words: str) -> bytes:
    """What the engine prints; nothing for a key that is not there. Raises SweepstackError with its own words."""
    code, out, complaint = EngineCall([find_engine(), *words, "--stack", stack], root).answer()
    if code != 0 and not ("configuration key" in complaint and "not found" in complaint):
        raise SweepstackError(complaint or f"`pulumi {' '.join(words[:2])}` ended with {code}")
    return out if code == 0 else b""
