"""Asks a vendor to stop this very box, with the key that it put into it.

The key is read when it is needed, and is in no file, log, journal or error of ours.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SECONDS = 60.0
SAID_CHARS = 200
AGENT = "sweepstack-runner"
"""Some vendors refuse Python's own name."""
FIRST_PROCESS = Path("/proc/1/environ")
"""Where a container's variables are: a login over SSH does not get them."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to another address."""

    def redirect_request(self, *_args: Any, **_more: Any) -> None:
        return None


def stop_at_vendor(asked: Mapping[str, Any]) -> str:
    """Sends the `requests` of `asked` (`method`, `url`, `body` each) one after the other until the vendor accepts one,
    with the key in the variable `key`. Blocks for `SECONDS` a request at most.

    Returns "" when one was accepted, else why each was not. Never raises, and names the key's value nowhere."""
    name = str(asked.get("key"))
    key = _key(name)
    if not key:
        return f"{name} is neither in this environment nor in that of process 1, so there is no key to stop it with"
    reasons = []
    for request in asked.get("requests") or ():
        try:
            reason = _scrubbed(_send(request, key), key)
        except Exception as error:
            reason = _scrubbed(f"{type(error).__name__}: {error}", key)
        if not reason:
            return ""
        reasons.append(reason)
    return "; then ".join(reasons) or "no request is known that stops it"


def _send(asked: Mapping[str, Any], key: str) -> str:
    body = asked.get("body")
    request = urllib.request.Request(
        str(asked["url"]),
        data=None if body is None else json.dumps(body).encode("utf-8"),
        method=str(asked["method"]),
        headers={
            "Authorization": f"Bearer {key}",
            "Content-Type": "application/json",
            "Accept": "application/json",
            "User-Agent": AGENT,
        },
    )
    try:
        with urllib.request.build_opener(_NoRedirect()).open(request, timeout=SECONDS) as answer:
            said = answer.read(1 << 16)
    except urllib.error.HTTPError as error:
        return f"the vendor answered {error.code}: {_said_words(error.read(1 << 16))}"
    try:
        told = json.loads(said) if said.strip() else {}
    except ValueError:
        return f"the vendor's answer can't be read: {_said_words(said)}"
    if isinstance(told, dict) and (told.get("success") is False or told.get("errors")):
        return f"the vendor refused it: {_said_words(said)}"
    return ""


def _key(name: str) -> str:
    if os.environ.get(name):
        return os.environ[name]
    try:
        words = FIRST_PROCESS.read_bytes().split(b"\0")
    except OSError:
        return ""
    prefix = name.encode() + b"="
    return next((word[len(prefix) :].decode("utf-8", "replace") for word in words if word.startswith(prefix)), "")


def _said_words(said: bytes) -> str:
    return " ".join(said.decode("utf-8", "replace").split())


def _scrubbed(text: str, key: str) -> str:
    return text.replace(key, "***")[:SAID_CHARS]
