"""Ends code at a chosen step of its work on files, as `kill -9` would: that step is not made, and nothing after it."""

from __future__ import annotations

import builtins
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

NAMES = ("rename", "replace", "link", "symlink", "unlink", "remove", "rmdir", "mkdir", "truncate")


class Killed(BaseException):
    """The process is gone: what would tidy up can do nothing any more."""


@contextmanager
def killed_at(step: int | None) -> Iterator[None]:
    """Inside, the step-th call that changes a name is not made; one that opens a file to write leaves it empty, as a
    process does that dies before its first byte is out. Ends quietly where that happened; None never kills."""
    if step is None:
        yield
        return
    left, saved = step, [(os, name, getattr(os, name)) for name in NAMES]
    opener = io.open

    def count() -> bool:
        nonlocal left
        left -= 1
        return left == 0

    def counted(make: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any, **more: Any) -> Any:
            if left <= 0 or count():
                raise Killed
            return make(*words, **more)

        return call

    def opened(file: Any, mode: str = "r", *words: Any, **more: Any) -> Any:
        if not set(mode) & set("wxa+"):
            return opener(file, mode, *words, **more)
        if left <= 0:
            raise Killed
        handle = opener(file, mode, *words, **more)
        if count():
            handle.close()
            raise Killed
        return handle

    try:
        for place, name, make in saved:
            setattr(place, name, counted(make))
        builtins.open = io.open = opened  # type: ignore[assignment]
        with suppress(Killed):
            yield
    finally:
        for place, name, make in saved:
            setattr(place, name, make)
        builtins.open = io.open = opener
