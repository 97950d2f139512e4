"""`StrEnum` for Python 3.8, whose module `enum` does not have it."""

from __future__ import annotations

import enum


class StrEnum(str, enum.Enum):
    """A member equals its value, and is formatted and written to JSON as its value."""

    def __str__(self) -> str:
        return str(self.value)
