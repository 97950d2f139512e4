"""The command to type next, at the end of an error that names none."""

from __future__ import annotations

import os
import re

from sweepstack.onbox.common.errors import SweepstackError, Unreachable
from sweepstack.provider.session import again

_NEXT = re.compile(r"\bnext\b:?\s+\S", re.IGNORECASE)


def with_next(words: str, command: str) -> str:
    """An error's words, with this command where they name none."""
    return words if _NEXT.search(words) or not command else f"{ended(words)} Next: {command}"


def said_of(error: SweepstackError) -> str:
    """An error's words. Where a platform did not answer, the engine's command is what to type again."""
    return with_next(str(error), again(os.getppid())) if isinstance(error, Unreachable) else str(error)


def ended(words: str) -> str:
    """These words as a sentence that another one may follow."""
    words = words.rstrip()
    return words if words.endswith((".", "!", "?", ":")) else f"{words}."
