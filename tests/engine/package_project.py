"""A project of a user who has the package in a virtual environment, and no checkout."""

from __future__ import annotations

import os
import re
import shutil
import site
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.engine.commands import Result, engine, ok, run

ROOT = Path(__file__).resolve().parents[2]
IN_THE_WHEEL = (
    ".pulumi-version",
    "README.md",
    "pyproject.toml",
    "components",
    "examples",
    "profiles",
    "scripts",
    "sweepstack",
)


@dataclass
class Project:
    """A folder of that user, with the engine on PATH and an empty home. Nothing of Pulumi's is set."""

    base: Path
    folder: Path
    env: dict[str, str]

    def run(self, *argv: str) -> Result:
        return run(argv, cwd=self.folder, env=self.env)

    def shell(self, *lines: str) -> Result:
        """Typed into one shell, which ends at the first line that fails."""
        return self.run("bash", "-ec", "\n".join(lines))

    def install(self, wheel: Path) -> None:
        words = ["pip", "install", "--quiet", "--no-deps", "--no-index", "--force-reinstall", str(wheel)]
        ok(self.run(str(self.folder / ".venv" / "bin" / "python"), "-m", *words))

    def make_environment(self) -> None:
        """A virtual environment: what sweepstack depends on is this environment's, nothing of ours."""
        words = [sys.executable, "-m", "venv", "--without-pip", ".venv"]
        subprocess.run(words, cwd=self.folder, check=True, timeout=120)
        (packages,) = (self.folder / ".venv" / "lib").glob("python*/site-packages")
        shutil.copy(self.dependencies, packages)

    @property
    def dependencies(self) -> Path:
        """A file that shows a virtual environment the packages of this one."""
        file = self.base / "dependencies.pth"
        file.write_text("\n".join(site.getsitepackages()) + "\n")
        return file


def tree_of(into: Path, version: str) -> Path:
    """What of this tree a wheel is made from, as that version."""
    tree = into / f"tree-{version}"
    for name in IN_THE_WHEEL:
        copied = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        tree.mkdir(parents=True, exist_ok=True)
        copied(ROOT / name, tree / name)
    place = tree / "sweepstack" / "core" / "version.py"
    place.write_text(re.sub(r'(?m)^VERSION = ".*"$', f'VERSION = "{version}"', place.read_text()))
    return tree


def build(into: Path, version: str) -> Path:
    """A wheel of this tree's files, as that version. Needs no network: the builder is in this environment."""
    words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(into)]
    subprocess.run(words, cwd=tree_of(into, version), check=True, capture_output=True, timeout=120)
    return into / f"sweepstack-{version}-py3-none-any.whl"


@contextmanager
def empty_project(base: Path, name: str = "my lab") -> Iterator[Project]:
    """An empty folder. What runs below `base` at the end is ended."""
    folder = base / name
    for made in (folder, base / "home"):
        made.mkdir(parents=True)
    python = Path(sys.executable).resolve().parent  # `python3` of the same version, without this environment
    env = {
        "PATH": os.pathsep.join([str(folder / ".venv" / "bin"), str(engine().parent), str(python), "/usr/bin", "/bin"]),
        "HOME": str(base / "home"),
        "PULUMI_HOME": str(base / "home" / ".pulumi"),  # the engine asks the account for its home, and not $HOME
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_OPTION_YES": "true",  # there is no terminal to say it at
        "NO_COLOR": "1",
    }
    try:
        yield Project(base, folder, env)
    finally:
        run(["pkill", "-KILL", "-f", str(base)], cwd=base, env=env)
