"""What answers the engine's question for all packages says what pip says, and is pip for everything else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

QUICK = Path(__file__).parents[3] / "scripts" / "quick"
ASKED = ("-m", "pip", "list", "-v", "--format", "json")


def answer(*words: str, path: str, cwd: Path) -> str:
    env = {**os.environ, "PYTHONPATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run([sys.executable, *words], cwd=cwd, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def both(cwd: Path, *more: Path) -> tuple[list[Any], list[Any]]:
    """The list as the real pip says it, and as ours does."""
    rest = os.pathsep.join(map(str, more))
    return json.loads(answer(*ASKED, path=rest, cwd=cwd)), json.loads(
        answer(*ASKED, path=os.pathsep.join([str(QUICK), *([rest] if rest else [])]), cwd=cwd)
    )


def test_it_says_what_pip_says_and_imports_nothing_of_it(tmp_path: Path) -> None:
    theirs, ours = both(tmp_path)
    assert ours == theirs
    assert {"pip", "pulumi"} <= {row["name"] for row in ours}
    program = f"import sys; sys.path.insert(0, {str(QUICK)!r}); sys.argv[1:] = {list(ASKED[2:])!r}\n"
    program += (
        "import runpy; runpy.run_path(sys.path[0] + '/pip.py', run_name='__main__'); assert 'pip' not in sys.modules"
    )
    assert json.loads(answer("-c", program, path="", cwd=tmp_path)) == theirs


def package(folder: Path, name: str, **files: str) -> None:
    info = folder / name
    info.mkdir(parents=True)
    for file, text in files.items():
        (info / file.replace("direct_url", "direct_url.json")).write_text(text)


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("pulumi_thing-1.2.dist-info", {"METADATA": "Name: pulumi-thing\nVersion: 1.2\n\nVersion: 9\n"}),
        (
            "pulumi_thing-1.2.dist-info",
            {"METADATA": "Name: pulumi_thing\nVersion: 1.2\nSummary: a\n  b\n", "INSTALLER": "hand\n"},
        ),
        (
            "here-1.dist-info",
            {
                "METADATA": "Name: here\nVersion: 1\n",
                "direct_url": '{"url": "file:///a/b%20c", "dir_info": {"editable": true}}',
            },
        ),
        ("old-1.egg-info", {"PKG-INFO": "Name: old\nVersion: 1\n"}),
    ],
    ids=["plain", "installer", "editable", "egg"],
)
def test_what_else_may_be_installed_is_told_the_same(tmp_path: Path, name: str, files: dict[str, str]) -> None:
    package(tmp_path / "more", name, **files)
    theirs, ours = both(tmp_path, tmp_path / "more")
    assert ours == theirs
    assert any(row["location"] == str(tmp_path / "more") for row in ours), "it was not there to be found"


def test_the_current_folder_is_not_installed(tmp_path: Path) -> None:
    package(tmp_path, "stray-1.dist-info", METADATA="Name: stray\nVersion: 1\n")
    theirs, ours = both(tmp_path)
    assert ours == theirs
    assert "stray" not in {row["name"] for row in ours}


def test_all_else_is_pip_s(tmp_path: Path) -> None:
    assert answer("-m", "pip", "--version", path=str(QUICK), cwd=tmp_path) == answer(
        "-m", "pip", "--version", path="", cwd=tmp_path
    )
    where = "import pip, pip._internal; print(pip.__file__)"
    assert answer("-c", where, path=str(QUICK), cwd=tmp_path) == answer("-c", where, path="", cwd=tmp_path)
