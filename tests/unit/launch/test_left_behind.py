"""Told before a box is rented: which files stay here, and what the job could not start without."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sweepstack.core.workdir import collect
from sweepstack.launch import unshipped_files
from sweepstack.launch.unshipped_files import unshipped_scripts

FILES = {
    ".gitignore": "data/\n*.bin\n.venv/\n__pycache__/\nresults/\nenv/\n",
    "train.py": "import json\nimport numpy\nfrom pkg import net, loss\n",
    "pkg/__init__.py": "",
    "pkg/net.py": "from . import layer\nfrom .blocks import *\nimport helpers\n",
    "pkg/loss.py": "import torch\n",
    "helpers.py": "",
}
IGNORED = ("data/a.csv", "data/deep/b.csv", "big.bin", ".venv/a.py", "pkg/__pycache__/x.pyc", "env/pyvenv.cfg")
FORGOTTEN = "is not among the shipped files: git add it, or name it under job.include"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The work dir, with all that ships."""
    (tmp_path / "pkg").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_what_git_ignores_is_told_with_count_and_size(job: Path) -> None:
    """But for caches, environments, and what is no code of the job."""
    for words in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *words], cwd=job, check=True)
    for name in (*IGNORED, "results/mini/cell", "notes.txt"):
        (job / name).parent.mkdir(exist_ok=True, parents=True)
        (job / name).write_bytes(b"x" * (3000 if name == "big.bin" else 10))
    own = (f"{job}/results/mini/",)
    assert unshipped_files.words(job, collect(job, (), own), own) == [
        "not tracked by git and left behind: notes.txt",
        "ignored by git and left behind: big.bin (3.0 kB), data/ (2 files, 20 B); job.include ships what the job reads",
    ]
    include = ["data/*.csv", "big.bin", "notes.txt"]
    (line,) = unshipped_files.words(job, collect(job, include, own), own)
    assert line.startswith("ignored by git and left behind: data/ (1 file, 10 B);")
    include = ["data/**/*.csv", "*.bin", "*.txt"]
    assert unshipped_files.words(job, collect(job, include, own), own) == []


def test_outside_git_nothing_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("x")
    assert unshipped_files.words(tmp_path, collect(tmp_path), ()) == []


def needs(job: Path, run: str) -> list[str]:
    return unshipped_scripts(job, set(FILES), run)


@pytest.mark.parametrize(
    "run",
    [
        "python nosuch.py --lr {lr}",
        "A=1 python3 -u ./nosuch.py",
        "torchrun --nproc 2 nosuch.py",
        "python pkg/../nosuch.py",
    ],
)
def test_a_script_that_does_not_ship_is_told(job: Path, run: str) -> None:
    (problem,) = needs(job, run)
    assert problem.endswith(f"nosuch.py {FORGOTTEN}")


@pytest.mark.parametrize(
    "run",
    ["python train.py", "python -m pkg.net", "python -m pytest", "bash run.sh", "python /opt/x.py", "python ../x.py"],
)
def test_what_ships_or_is_not_known_here_passes(job: Path, run: str) -> None:
    assert needs(job, run) == []


@pytest.mark.parametrize("name", ["pkg/layer.py", "pkg/blocks.py", "pkg/extra.py"])
def test_a_module_that_lies_here_and_does_not_ship_is_told(job: Path, name: str) -> None:
    (job / "pkg" / "loss.py").write_text("import pkg.extra\n")
    (job / name).write_text("")
    (problem,) = needs(job, "python train.py --out {out}")
    assert problem.endswith(f", and {name} {FORGOTTEN}")
    assert problem.startswith(("pkg/net.py imports ", "pkg/loss.py imports pkg.extra"))


def test_a_module_that_is_run_and_was_forgotten_is_told(job: Path) -> None:
    (job / "pkg" / "main.py").write_text("")
    assert needs(job, "python -m pkg.main") == [f"pkg/main.py {FORGOTTEN}"]


@pytest.mark.parametrize(
    "text", ["import json\nimport sys\nsys.path.append('lib')\nimport later\n", "import json\n", "def (\n"]
)
def test_what_python_may_find_elsewhere_is_not_told(job: Path, text: str) -> None:
    (job / "train.py").write_text(text)
    for name in ("later.py", "json.py"):
        (job / name).write_text("")
    assert needs(job, "python train.py") == []
