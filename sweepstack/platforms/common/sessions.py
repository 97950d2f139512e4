"""The sessions of an adapter: one for each API key, shared by all threads of this process."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from sweepstack.onbox.common.errors import NotAuthorized, RequestRefused
from sweepstack.platforms.common import redact

S = TypeVar("S")


class Sessions(Generic[S]):
    """One session for each API address and key, made by `make` when it is first asked for. Safe to share between
    threads."""

    def __init__(self, make: Callable[[str, str], S]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: dict[tuple[str, str], S] = {}

    def of(self, base: str, key: str) -> S:
        """The session of this address and key. Sends no request."""
        with self._lock:
            if (base, key) not in self._made:
                self._made[base, key] = self._make(base, key)
            return self._made[base, key]

    def forget(self) -> None:
        """Drops all sessions with their cached answers: for tests that change the simulated platform directly."""
        with self._lock:
            self._made.clear()


def base_url(variable: str, usual: str) -> str:
    """The API's address, from the environment variable; without it the `usual` one."""
    return os.environ.get(variable, "").strip().rstrip("/") or usual


def must_be_a_key(key: str, platform: str, missing: str, check: str) -> None:
    """Raises NotAuthorized when there is no key (`missing`: the message), and for one that no HTTP header can carry
    (`check`: where it stands)."""
    if not key:
        raise NotAuthorized(missing)
    if not key.isascii() or not key.isprintable() or " " in key:
        raise NotAuthorized(f"the key for {platform} is not one: it holds blanks or other special signs{check}")


def key_in(variable: str, platform: str, missing: str, adapter: str) -> str:
    """The key in this environment variable, which no message shows from now on. Raises NotAuthorized when there is none
    (`missing`: the message)."""
    key = os.environ.get(variable, "").strip()
    must_be_a_key(key, platform, missing, f": {variable}")
    redact.learn({variable: key}, of=adapter)
    return key


def checked_id(native_id: str, form: re.Pattern[str], thing: str) -> str:
    """The id, checked so that it may stand in a URL's path. Raises RequestRefused for what can't be an id of such a
    `thing`."""
    if not form.fullmatch(native_id):
        raise RequestRefused(f"{native_id!r} is no id of a {thing}")
    return native_id
