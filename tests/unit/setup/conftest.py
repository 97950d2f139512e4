"""A small checkout with the real launcher and shim, and a fake engine that says how it was started."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts.lib import launchers
from scripts.lib.places import Places

ROOT = Path(__file__).resolve().parents[3]

FAKE_ENGINE = f"""#!{sys.executable}
import json, os, signal, sys
blocked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, set())
ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
print(json.dumps({{"argv": sys.argv[1:], "env": dict(os.environ), "ignored": ignored, "blocked": blocked}}))
"""


def write_command(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


@dataclass
class Checkout:
    """A checkout in a temporary home. `start` runs a command there with an environment of exactly these variables."""

    places: Places
    home: Path
    engine: Path

    def install(self, *, offline: bool = False) -> None:
        launchers.install_launcher(self.places, str(self.engine), offline=offline)

    def start(
        self, *argv: str, cwd: Path | None = None, before: str = "", path: str = "/usr/bin:/bin", **env: str
    ) -> subprocess.CompletedProcess[str]:
        words = [str(self.places.bin / "pulumi"), *argv]
        if before:  # a shell line that ends in running "$@"
            words = ["/bin/sh", "-c", before, "sh", *words]
        return subprocess.run(
            words,
            cwd=cwd or self.places.root,
            env={"HOME": str(self.home), "PULUMI_HOME": str(self.home / ".pulumi"), "PATH": path, **env},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def seen(self, *argv: str, **options: Any) -> dict[str, Any]:
        """What the engine saw when the launcher became it."""
        done = self.start(*argv, **options)
        assert done.returncode == 0, done.stderr
        record: dict[str, Any] = json.loads(done.stdout)
        return record


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    root, home = tmp_path / "check out", tmp_path / "home"
    (root / "scripts").mkdir(parents=True)
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for name in ("launcher", "shim"):
        shutil.copy(ROOT / "scripts" / name, root / "scripts" / name)
    places = Places(root, tmp_path / "cache", home / ".local" / "bin")
    places.bin.mkdir(parents=True)
    places.python.symlink_to(sys.executable)
    made = Checkout(places, home, write_command(tmp_path / "engine" / "pulumi", FAKE_ENGINE))
    made.install()
    return made
