"""Builds what a release publishes from one commit: packages, plugin archives, SBOM, notes, digests."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from scripts.lib.errors import SetupError
from scripts.lib.extras import declared
from scripts.lib.processes import run
from scripts.release.facts import entry, version
from scripts.release.plugin import archives
from scripts.release.sbom import sbom

SUMS = "SHA256SUMS"
NOTES = "NOTES.md"
_SECONDS = 600.0


def build(root: Path, into: Path, commit: str = "HEAD") -> list[Path]:
    """Builds a commit of the repository `root` into an empty or new folder; what is not committed counts for nothing.

    Two builds of one commit by one Python are equal to the byte. Returns the files.

    Raises:
        SetupError: the folder has files, or what a tool said.
    """
    if into.exists() and any(into.iterdir()):
        raise SetupError(f"{into} has files already: remove it first")
    into.mkdir(parents=True, exist_ok=True)
    epoch = int(_git(root, "show", "--no-patch", "--format=%ct", f"{commit}^{{commit}}").decode())
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch)
        with tarfile.open(fileobj=io.BytesIO(_git(root, "archive", "--format=tar", commit))) as tar:
            tar.extractall(tree, filter="data")
        number = version(tree)
        wheel, sdist = packages(tree, into, epoch)
        made = [wheel, sdist, *archives(wheel, declared(tree), number, epoch, into)]
        made.append(into / f"sweepstack-{number}.cdx.json")
        made[-1].write_text(sbom(root, tree, wheel, number, epoch), encoding="utf-8")
        made.append(into / NOTES)
        made[-1].write_text(entry(tree, number)[1] + "\n", encoding="utf-8")
    (into / SUMS).write_text(sums(into), encoding="utf-8")
    return [*made, into / SUMS]


def packages(tree: Path, into: Path, epoch: int) -> tuple[Path, Path]:
    """Wheel and sdist of a tree, by the builder of this environment: the lock pins it, and no network is asked."""
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    words = [sys.executable, "-m", "hatchling", "build", "-d", into.resolve()]
    run(words, what="building the package", deadline=_SECONDS, cwd=tree, env=env)
    return next(into.glob("*.whl")), next(into.glob("sweepstack-*.tar.gz"))


def sums(folder: Path) -> str:
    """The digest of each file of a folder but the list itself, as `sha256sum --check` reads it."""
    files = sorted(path for path in folder.iterdir() if path.name != SUMS)
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


def _git(root: Path, *words: str) -> bytes:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, check=False, timeout=_SECONDS)
    if done.returncode != 0:
        raise SetupError(f"git {words[0]}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
