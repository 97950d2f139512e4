"""Turns an API's refusals into our errors, by a table of each adapter.

A line of it is found by status, by code, and by words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sweepstack.onbox.common.errors import PlatformError
from sweepstack.platforms.common.http_client import Answer, HttpClient


@dataclass(frozen=True)
class Means:
    """One line of a table: what an answer means that has one of these `statuses` and `codes` (any, where there are
    none), and `words` in its text. `says`: the message, with `{asked}`, `{text}` and `{code}` filled in."""

    kind: type[PlatformError]
    says: str
    statuses: Sequence[int] = ()
    codes: Sequence[str] = ()
    words: re.Pattern[str] | None = None


@dataclass(frozen=True)
class Refusals:
    """The table; the first line that fits counts, and without one the HTTP status (`HttpClient.refusal`). `code`: the
    vendor's own code of an answer; "" when it has none."""

    code: Callable[[Answer], str]
    table: Sequence[Means]

    def error(self, http: HttpClient, answer: Answer, asked: str) -> PlatformError:
        """The error for an answer that is not 2xx. `asked`: what was asked for, for the message."""
        code, text = self.code(answer), answer.text or "no reason given"
        for one in self.table:
            fits = (not one.statuses or answer.status in one.statuses) and (not one.codes or code in one.codes)
            if fits and (one.words is None or one.words.search(text)):
                return one.kind(one.says.format(asked=asked, text=text, code=code))
        error = http.refusal(answer, asked)
        return type(error)(f"{error} ({code})") if code else error
