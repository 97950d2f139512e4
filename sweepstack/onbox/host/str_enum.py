"""`enum.StrEnum` for Python 3.8, which has none."""

from __future__ import annotations

import enum


class StrEnum(str, enum.Enum):
    """Members are their values: where one is compared, formatted or written as JSON."""

    def __str__(self) -> str:
        return str(self.value)
