"""What every fact of a profile is: closed, frozen, and checked against the facts beside it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Fact(BaseModel):
    """Closed and frozen, like all that we write."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)
