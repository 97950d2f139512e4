"""Which backend's state this process works for: what a lease compares."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit


def backend_name() -> str:
    """The backend's URL without credentials; a local one with the host's name. "unknown" when nothing names one."""
    url = os.environ.get("PULUMI_BACKEND_URL") or _logged_in()
    if not url:
        return "unknown"
    parts = urlsplit(url)
    if parts.scheme == "file":
        return f"file://{socket.gethostname()}{os.path.realpath(os.path.expanduser(parts.netloc + parts.path))}"
    return urlunsplit((parts.scheme, parts.hostname or "", parts.path, "", ""))


def is_local(backend: str) -> bool:
    """Whether the state lives on one machine's disk."""
    return backend.startswith("file://")


def _logged_in() -> str:
    home = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")
    try:
        return str(json.loads((home / "credentials.json").read_text()).get("current") or "")
    except (OSError, ValueError, AttributeError):
        return ""
