"""Pins a box's host key at first contact after each start; later only that key is accepted.

A pin is a known_hosts file of its own, below the user's data directory by native id and start marker, under the box's
own name (`HostKeyAlias`), so that a changed address or port changes nothing. First contact itself is not protected: no
platform's API names a host key. What was accepted then, when and where is kept in the pin.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import os
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from sweepstack.onbox.agent.channel import SshEndpoint
from sweepstack.onbox.common.errors import PlatformError
from sweepstack.onbox.common.xdg import data_folder

_SAFE = re.compile(r"[A-Za-z0-9_.-]{1,80}")
_KEY = re.compile(r"(?:ssh|ecdsa|sk-ssh|sk-ecdsa)-[A-Za-z0-9@.-]+")


class HostKeyChanged(PlatformError):
    """Another host key than the pinned one answers at a box's address: nothing was sent to it."""


class Pin:
    """The host key of one start of one box. `path` is a known_hosts file, whether it exists or not."""

    def __init__(self, native_id: str, start: str, folder: Path | None = None) -> None:
        self.native_id, self.start = native_id, start
        self.path = (folder or default_folder()) / _name(native_id) / (_name(start) if start else "first")

    @property
    def alias(self) -> str:
        """The host name under which the key stands in `path`."""
        return f"sweepstack-{_name(self.native_id)}"

    @property
    def pinned(self) -> bool:
        return self.path.is_file()

    @property
    def compared(self) -> bool:
        """Whether a person compared it with what the box says of itself. False where nothing is pinned."""
        try:
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
            receipt = json.loads(lines[0].partition(": ")[2])
        except (OSError, ValueError, IndexError):
            return False
        return isinstance(receipt, dict) and receipt.get("protected") is True

    def fingerprints(self) -> list[str]:
        """Of each pinned key, as people compare them: `ED25519 SHA256:…`. Empty while nothing is pinned."""
        return [fingerprint(key) for key in keys_of(self.path)]

    def keep(self, keys: Sequence[str], endpoint: SshEndpoint, *, compared: bool = False) -> None:
        """Pins what the box showed (type and base64 of each). `compared`: a person did so, with what the box itself
        says. Where another command was faster, its keys must be the same: else HostKeyChanged."""
        receipt = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "host": endpoint.host,
            "port": endpoint.port,
            "keys": [fingerprint(key) for key in keys],
            "protected": compared,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        staged = self.path.with_name(f".{self.path.name}.{os.getpid()}.{os.urandom(4).hex()}")
        try:
            pinned = "".join(f"{self.alias} {key}\n" for key in keys)
            staged.write_text(f"# first contact: {json.dumps(receipt)}\n{pinned}", encoding="utf-8")
            os.link(staged, self.path)  # never over a pin that is there
        except FileExistsError:
            if not set(keys) & set(keys_of(self.path)):
                raise changed(self, endpoint) from None
        finally:
            with contextlib.suppress(FileNotFoundError):
                staged.unlink()

    def forget(self) -> None:
        """Deletes the pin: the next contact is a first one. Only when a person asks for it. Idempotent."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()


def changed(pin: Pin, endpoint: SshEndpoint) -> HostKeyChanged:
    """The error for a box that shows another key than it did."""
    known = ", ".join(pin.fingerprints()) or "unreadable"
    host = f" {endpoint.known_as}" if endpoint.known_as else ""
    return HostKeyChanged(
        f"the host key of {pin.native_id} at {endpoint.host}:{endpoint.port} is not the one that it had when it was "
        f"first reached since this start ({known}): another machine may be in between, or another box has its address. "
        f"Nothing was sent. Compare it in the platform's own console, or on the host itself; then "
        f"`sweepctl confirm host BOX{host}`"
    )


def default_folder() -> Path:
    """`$XDG_DATA_HOME/sweepstack/host-keys`, by default below `~/.local/share`."""
    return data_folder() / "host-keys"


def fingerprint(key: str) -> str:
    """Of a public key (type, base64), as `ssh-keygen -lf` shows it."""
    kind, data = key.split()[:2]
    try:
        digest = hashlib.sha256(base64.b64decode(data, validate=True)).digest()
    except (ValueError, binascii.Error):
        return f"{kind} (damaged)"
    word = {"ssh-ed25519": "ED25519", "ssh-rsa": "RSA"}.get(kind, "ECDSA" if kind.startswith("ecdsa") else kind)
    return f"{word} SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def keys_of(path: Path) -> list[str]:
    """Type and base64 of each line of a known_hosts file."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []
    found = [line.split()[1:3] for line in lines if line.strip() and not line.startswith("#")]
    return [" ".join(words) for words in found if len(words) == 2 and _KEY.fullmatch(words[0])]


def _name(text: str) -> str:
    """A file name for what a platform calls something."""
    if _SAFE.fullmatch(text) and not text.startswith("."):
        return text
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]
