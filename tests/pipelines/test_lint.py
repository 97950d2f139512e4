"""zizmor reads the workflows as they are written, as its strictest persona; nothing is asked of a network."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sweepstack.cli.commands.ci import pipelines
from sweepstack.cli.commands.ci.github import FILES, VALUE

SECONDS = 300


def workflows(folder: Path) -> list[Path]:
    """The four files, as `sweepctl ci github` writes them."""
    found = []
    for name in FILES:
        text = pipelines.filled(
            f"github-{name}.yml", setup="make env", branch="main", secrets=["SOME_API_KEY"], expression=VALUE
        )
        found.append(folder / f"sweeps-{name}.yml")
        found[-1].parent.mkdir(parents=True, exist_ok=True)
        found[-1].write_text(text)
    return found


def zizmor(*files: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).parent / "zizmor"), "--offline", "--no-config", "--persona=auditor"]
    return subprocess.run([*command, *map(str, files)], capture_output=True, text=True, timeout=SECONDS, check=False)


def test_zizmor_finds_nothing(tmp_path: Path) -> None:
    done = zizmor(*workflows(tmp_path / ".github/workflows"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_zizmor_would_find_it(tmp_path: Path) -> None:
    (file, *_) = workflows(tmp_path / ".github/workflows")
    file.write_text(file.read_text().replace("  pull_request:", "  pull_request_target:"))
    assert zizmor(file).returncode != 0
