"""zizmor, as its strictest persona, and actionlint read the workflows as they are written; no network is asked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from scripts.lib.go_tool import ACTIONLINT
from scripts.lib.places import Places
from sweepstack.extensions.pipelines import from_templates
from sweepstack.extensions.pipelines.commands.ci.github import FILES, VALUE

SECONDS = 300
QUEUE = 'unexpected key "queue" for "concurrency" section'
"""GitHub has it since May 2026 (github.blog/changelog/2026-05-07), and actionlint 1.7.12 does not know it."""
PROGRAM = ACTIONLINT.binary(Places.of(Path(__file__).parents[3], os.environ))


def workflows(folder: Path) -> list[Path]:
    """The four files, as `sweepctl ci github` writes them."""
    found = []
    for name in FILES:
        text = from_templates.filled(
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


def actionlint(*files: Path) -> subprocess.CompletedProcess[str]:
    assert PROGRAM.is_file(), "actionlint is not in the cache: python3 scripts/setup --dev"
    # Neither shellcheck nor pyflakes: what a machine has of them would change the result.
    command = [str(PROGRAM), "-no-color", "-shellcheck=", "-pyflakes=", "-ignore", QUEUE, *map(str, files)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def test_actionlint_finds_nothing(tmp_path: Path) -> None:
    done = actionlint(*workflows(tmp_path / ".github/workflows"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_actionlint_would_find_it(tmp_path: Path) -> None:
    (file, *_) = workflows(tmp_path / ".github/workflows")
    file.write_text(file.read_text().replace("github.token", "github.tokn"))
    assert actionlint(file).returncode != 0
