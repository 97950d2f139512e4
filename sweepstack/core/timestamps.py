"""A time as a record or a person writes it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AwareDatetime, BeforeValidator


def _no_number(value: Any) -> Any:
    """A number would be read as seconds of 1970 or later, so that `expires: 99999999999` lets a box end for ever."""
    if isinstance(value, int | float):
        raise ValueError("expected a time with its zone, such as 2026-11-21T12:00:00Z")
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(_no_number)]
"""A time with its zone, as text."""
