"""Keeps keys out of logs: a filter for the root logger, so that nobody has to remember to call it."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping

_NAMES = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|PASSPHRASE|CREDENTIAL)", re.IGNORECASE)
_SHAPES = re.compile(
    r"(Bearer\s+)\S+|((?:api[_-]?key|token|secret|password)[\"']?\s*[=:]\s*[\"']?)[^\s\"'&,}…]+", re.IGNORECASE
)
_PLACES = frozenset(("SWEEPSTACK_SSH_KEY",))
"""Variables whose value is the path of a file, which a message has to name: masked only where it is no path."""
_SHORTEST = 8
"""Values of fewer characters are not masked: they would mask ordinary words."""
_SHORTEST_SECRET = 4
"""The same for values that a person called secret."""
_PATH = re.compile(r"(~|\.{0,2})(/[\w .@+-]+)+")
_learned: dict[str, str] = {}
"""value → name"""


def learn(secrets: Mapping[str, str]) -> None:
    """From now on the values of these (name → value) are masked, too, whatever their names look like."""
    for name, value in secrets.items():
        for part in {value, *value.splitlines()}:
            if len(part.strip()) >= _SHORTEST_SECRET:
                _learned[part] = name


def redact(text: str) -> str:
    """`text` with the values of credential-like environment variables and key-shaped assignments replaced."""
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
