"""A person's word that an old fact of a profile counts: that fact, of that month, for a while."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from sweepstack.config.types import Day, Shape, wrong

_MONTH = re.compile(r"\d{4}-\d{2}(-\d{2})?|unverified")
_NAME = re.compile(r"[a-z][a-z0-9_-]*\.[a-z][a-z0-9_]*")


def _month(value: Any) -> str:
    if not isinstance(value, str) or not _MONTH.fullmatch(value):
        raise wrong('the month that the profile gives for the fact, such as "2026-06", or unverified')
    return value


def _name(value: Any) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise wrong("PLATFORM.FACT, as `sweepctl profile check --old` names it")
    return value


FactName = Annotated[str, BeforeValidator(_name)]


class AcceptedFact(Shape):
    """An old or unverified fact of a profile that a person takes as it is."""

    anchor: ClassVar[str] = "accept_facts"
    month: Annotated[str, BeforeValidator(_month)]
    """the month that the profile gave for the fact then: `"2026-06"`, or `unverified`. Once the profile gives another
    one, this acceptance counts no more"""
    accepted: Day
    """the day on which it was accepted; it counts for six months"""
