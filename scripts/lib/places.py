"""Where things are: the checkout, its venv, the cache and the user's own commands."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


def xdg(env: Mapping[str, str], name: str, default: str) -> Path:
    """An XDG base folder. A relative value is ignored, as the specification says."""
    value = env.get(name, "")
    return Path(value) if os.path.isabs(value) else Path(os.path.expanduser("~")) / default


@dataclass(frozen=True)
class Places:
    """All paths that set-up reads or writes. Nothing outside `cache`, `venv` and `user_bin` is ever written."""

    root: Path
    cache: Path
    user_bin: Path

    @classmethod
    def of(cls, root: Path, env: Mapping[str, str]) -> Places:
        home = Path(os.path.expanduser("~"))
        return cls(root, xdg(env, "XDG_CACHE_HOME", ".cache") / "sweepstack", home / ".local" / "bin")

    @property
    def venv(self) -> Path:
        return self.root / ".venv"

    @property
    def bin(self) -> Path:
        return self.venv / "bin"

    @property
    def python(self) -> Path:
        return self.bin / "python"

    @property
    def record(self) -> Path:
        """What set-up did last, read by the next set-up; its presence marks a checkout that has been set up."""
        return self.venv / "sweepstack.json"

    @property
    def engine_sources(self) -> Path:
        return self.root / "scripts" / "engine"

    @property
    def builds_lock(self) -> Path:
        """Held by the process that makes an engine or the S3 server: both build in `cache/go`."""
        return self.engines / ".lock"

    @property
    def engines(self) -> Path:
        return self.cache / "engine"


def target() -> tuple[str, str]:
    """This machine as the official downloads name it: ("linux" | "darwin", "x64" | "arm64"), or as it names itself."""
    machine = platform.machine().lower()
    return platform.system().lower(), {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}.get(machine, machine)
