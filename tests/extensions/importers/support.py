"""What a stack file that was imported starts, as a shell says it, and what the other tool would have."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweepstack.config.stack_config import StackConfig
from sweepstack.core.roster import expand
from sweepstack.onbox.common.placeholders import fill

STUB = """\
exec 3>&1
python() { words=; for word in "$@"; do words="$words$word\x1f"; done; printf '%s\\n' "$words" >&3; }
python3() { python "$@"; }
srun() { "$@"; }
"""
"""Says its words in place of a Python."""
PROJECT = (
    "name: lab\nruntime: {name: python}\nstackConfigDir: stacks\nplugins: {providers: [{name: sweepstack, path: x}]}\n"
)

Words = list[tuple[str, ...]]


def project(root: Path) -> None:
    """A project without a stack."""
    (root / "stacks").mkdir()
    (root / "Pulumi.yaml").write_text(PROJECT)


def started(root: Path, stack: str) -> Words:
    """The commands of all cells of a stack file, sorted: what a shell starts when the runner has filled them in."""
    config = StackConfig.load(root, stack)
    lines = []
    for cell in expand(config.cells).cells:
        values: Mapping[str, Any] = {**cell.params, "cell": cell.name, "out": "OUT", "checkpoints": "KEPT"}
        env = {name: fill(text, values) for name, text in config.job.env.items()}
        command = fill(config.job.run, values, shlex.quote)
        exports = "".join(f"export {name}={shlex.quote(text)}; " for name, text in env.items())
        lines.append(f"({exports}{command})")
    return said("\n".join(lines), root)


def said(text: str, root: Path, shell: str = "sh", **env: str) -> Words:
    """What a script starts, as a real shell says it. The order is that of words: jobs in the background have none."""
    done = subprocess.run(
        [shell, "-c", STUB + text], cwd=root, capture_output=True, text=True, timeout=60, env={**os.environ, **env}
    )
    assert done.returncode == 0, done.stderr
    rows = [tuple(_plain(word) for word in row.split("\x1f")[:-1]) for row in done.stdout.splitlines() if "\x1f" in row]
    return sorted(rows)


def _plain(word: str) -> str:
    """A number in one spelling: a stack file's 0.001 is 1e-3."""
    head, equals, text = word.rpartition("=")
    try:
        return word if text.lstrip("-").isdigit() else f"{head}{equals}{float(text)!r}"
    except ValueError:
        return word


def plain(words: list[tuple[str, ...]]) -> Words:
    """The same of words that another tool was asked for."""
    return sorted(tuple(_plain(word) for word in row) for row in words)
