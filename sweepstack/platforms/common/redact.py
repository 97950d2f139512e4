"""Keeps secrets out of logs: a filter on the root logger replaces them in every message."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping

_NAMES = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSPHRASE|CREDENTIAL)", re.IGNORECASE)
_SHAPES = re.compile(
    r"(Bearer\s+)\S+|((?:api[_-]?key|token|secret|password)[\"']?\s*[=:]\s*[\"']?)[^\s\"'&,}…]+", re.IGNORECASE
)
_PLACES = frozenset(("SWEEPSTACK_SSH_KEY", "SWEEPSTACK_SIGNING_KEY"))
"""Environment variables that hold the path of a key file, which messages have to name: masked only when the value is
no path."""
_SHORTEST = 8
"""Shorter values are not masked: ordinary words would be masked with them."""
_SHORTEST_SECRET = 4
"""The same limit for values that a person marked as secret (`learn`)."""
_PATH = re.compile(r"(~|\.{0,2})(/[\w .@+-]+)+")
_learned: dict[str, str] = {}
"""value → name"""
_places: dict[str, str] = {}
"""adapter → the name of the variable, or the path of the file, that its credential came from"""


def learn(secrets: Mapping[str, str], *, of: str = "", file: str = "") -> None:
    """Masks these values (name → value) from now on, too, whatever their names look like. `of`: the adapter that uses
    them; `file`: where they came from, if no variable of that name holds them."""
    for name, value in secrets.items():
        if of:
            _places[of] = name if os.environ.get(name, "").strip() == value else file or name
        for part in {value, *value.splitlines()}:
            if len(part.strip()) >= _SHORTEST_SECRET:
                _learned[part] = name


def place_of(adapter: str) -> str:
    """The name of the variable, or the path of the file, that this adapter's credential came from; "" where none was
    used."""
    return _places.get(adapter, "")


def redact(text: str) -> str:
    """`text` without secrets: values of environment variables with names such as …KEY or …TOKEN, values given to
    `learn`, and what follows `Bearer`, `api_key=` and the like are replaced."""
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST and _NAMES.search(name) and not (name in _PLACES and _PATH.fullmatch(value)):
            text = text.replace(value, f"[{name}]")
    for value, name in sorted(_learned.items(), key=lambda item: -len(item[0])):
        text = text.replace(value, f"[{name}]")
    return _SHAPES.sub(lambda match: f"{match.group(1) or match.group(2)}[redacted]", text)


class RedactingFilter(logging.Filter):
    """Redacts the rendered message of every record that passes."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = redact(record.getMessage()), ()
        return True


def install() -> None:
    """Puts the filter on every handler of the root logger. Idempotent."""
    for handler in logging.getLogger().handlers:
        if not any(isinstance(present, RedactingFilter) for present in handler.filters):
            handler.addFilter(RedactingFilter())
