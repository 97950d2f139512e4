"""Looks at what was built, before anything of it is published."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from scripts.lib.errors import SetupError
from scripts.lib.processes import run
from scripts.release.build import SUMS, build, sums

_SECONDS = 1800.0
_COMMANDS = ("sweepctl", "sweepctl-check", "pulumi-resource-sweepstack", "pulumi-resource-command")


def whole(dist: Path) -> None:
    """Whether all files are what the list of digests says, and PyPI takes the packages.

    Raises:
        SetupError: with the first thing that is wrong.
    """
    if (dist / SUMS).read_text(encoding="utf-8") != sums(dist):
        raise SetupError(f"{dist / SUMS} is not the list of the files that lie beside it")
    packages = [*dist.glob("*.whl"), *dist.glob("sweepstack-*.tar.gz")]
    run([sys.executable, "-m", "twine", "check", "--strict", *packages], what="twine check", deadline=_SECONDS)


def same(root: Path, dist: Path, commit: str = "HEAD") -> None:
    """Whether the commit, built once more, gives the same bytes.

    Raises:
        SetupError: naming the files that differ.
    """
    with tempfile.TemporaryDirectory() as scratch:
        build(root, Path(scratch) / "dist", commit)
        again = (Path(scratch) / "dist" / SUMS).read_text(encoding="utf-8").splitlines()
    was = (dist / SUMS).read_text(encoding="utf-8").splitlines()
    if differ := sorted({line.split("  ")[1] for line in {*was} ^ {*again}}):
        raise SetupError(f"built again, these are other bytes: {', '.join(differ)}")


def begin(dist: Path, version: str) -> None:
    """Installs the wheel into an empty environment, and begins a project with it, as a new user does.

    What it depends on comes as pip's own settings say (`PIP_INDEX_URL`, `PIP_NO_INDEX`, …).

    Raises:
        SetupError: with what pip or the command said.
    """
    with tempfile.TemporaryDirectory() as scratch:
        venv, project = Path(scratch) / "venv", Path(scratch) / "project"
        project.mkdir()
        env = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
        env["PATH"] = os.pathsep.join([str(venv / "bin"), env["PATH"]])
        run([sys.executable, "-m", "venv", venv], what="an empty environment", deadline=_SECONDS, env=env)
        words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", next(dist.glob("*.whl")).resolve()]
        run([venv / "bin" / "python", *words], what="installing the wheel", deadline=_SECONDS, env=env)
        for name in _COMMANDS:
            if not os.access(venv / "bin" / name, os.X_OK):
                raise SetupError(f"the wheel installs no {name}")
        said = run(["sweepctl", "--version"], what="sweepctl", deadline=_SECONDS, cwd=project, env=env)
        if said.strip() != f"sweepctl {version}":
            raise SetupError(f"the installed sweepctl says {said.strip()!r}, and {version} was built")
        run(["sweepctl", "init"], what="sweepctl init", deadline=_SECONDS, cwd=project, env=env)
