"""The engine's question to pip is answered by pip, once for each environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.engine.harness import PIP_ONCE

LIST = ("list", "-v", "--format", "json")


def test_the_answer_is_pip_s_and_is_asked_for_again_when_a_package_comes(tmp_path: Path) -> None:
    ours = tmp_path / "tests" / "engine" / "pip_once"
    shutil.copytree(PIP_ONCE, ours)
    more = tmp_path / "more-packages"
    more.mkdir()
    kept = tmp_path / ".cache" / "pip-list"

    def said(*words: str, path: tuple[Path, ...] = (more, ours)) -> str:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
        command = [sys.executable, "-m", "pip", *words]
        return subprocess.run(command, env=env, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    true = said(*LIST, path=(more,))
    assert [said(*LIST), said(*LIST)] == [true, true]
    (answer,) = kept.iterdir()
    answer.write_text(answer.read_text().replace('"pip"', '"kept"'))
    assert said(*LIST) == true.replace('"pip"', '"kept"'), "it was asked again"

    (more / "newcomer-1.0.dist-info").mkdir()
    (more / "newcomer-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: newcomer\nVersion: 1.0\n")
    names = {one["name"] for one in json.loads(said(*LIST))}
    assert {"newcomer", "pip"} <= names
    assert "pip" in said("--version"), "other commands are pip's"
