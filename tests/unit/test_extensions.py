"""The core without its extensions: a copy of the checkout with folders taken out, in a process of its own."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sweepstack
from sweepstack.cli.app import _files, app
from sweepstack.core.extensions import COMMANDS, FOLDER
from sweepstack.core.paths import PACKAGE
from sweepstack.loaders.shipped_checks import main

ROOT = PACKAGE.parent
ALL = sorted(path.parent.name for path in FOLDER.glob("*/__init__.py"))
QUICK = (
    *(
        f"tests/unit/cli/test_every_command.py::test_{name}"
        for name in ("every_command", "no_row_for_what_is_no_command")
    ),
    "tests/unit/config/test_file.py",
    "tests/unit/profiles/test_profiles.py",
    "tests/unit/cli/test_results.py::test_without_the_extension_a_page_names_it",
    "tests/unit/teardown/test_without_signing.py",
)
"""Tests of the core that read commands, stack files, profiles and the registry of adapters, and of what is said where
an extension is missing."""
WHOLE = (
    "tests/unit/config",
    "tests/unit/profiles",
    *(f"tests/unit/cli/test_{name}.py" for name in ("audit", "commands", "completion", "every_command", "profile")),
)
SECONDS = 1800
CORE_ALONE = """
import contextlib, importlib, io, json, pkgutil, sys
import components, sweepstack
from sweepstack.cli.app import app

def typed(*words):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            app(list(words))
        except SystemExit as left:
            return left.code, said.getvalue()

commands, tests = json.loads(sys.argv[1])
shown = {words: typed(*words.split()) for words in commands}
for part in (components, sweepstack):  # the provider leaves out parts of the SDK that components need
    for one in pkgutil.walk_packages(part.__path__, part.__name__ + "."):
        if not one.name.endswith("__main__"):
            importlib.import_module(one.name)
print(json.dumps({"place": sweepstack.__file__, "modules": sorted(sys.modules), "shown": shown}), flush=True)
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *tests]))
"""
"""Types the commands, imports every module, prints what it saw, and runs the tests."""


def copy_without(extensions: list[str], place: Path) -> Path:
    """A copy of the checkout without these folders. What is no code of ours stays where it is, behind a link."""
    place.mkdir()
    for path in ROOT.iterdir():
        if path.name in ("sweepstack", "tests"):
            shutil.copytree(
                path, place / path.name, ignore=lambda folder, _: extensions if folder == str(FOLDER) else ()
            )
        elif path.name not in (".git", ".cache"):
            (place / path.name).symlink_to(path)
    return place


def played(place: Path, commands: list[str], tests: tuple[str, ...]) -> dict[str, Any]:
    """What `CORE_ALONE` saw in this copy, where the tests passed."""
    env = {**os.environ, "PYTHONPATH": str(place), "COLUMNS": "120"}
    words = [sys.executable, "-c", CORE_ALONE, json.dumps([commands, tests])]
    done = subprocess.run(words, cwd=place, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[0])
    assert Path(told["place"]).is_relative_to(place), "it has imported the checkout, and no copy"
    assert len(told["modules"]) > 500
    return told


def test_the_table_has_each_command_of_each_folder() -> None:
    """It is read where a folder is gone, so nothing else would show that it lacks a command."""
    groups = [name for name, one in _files().items() if one.ispkg]
    files = {name: one.name for group in ("", *groups) for name, one in _files(group).items()}
    theirs = {name: module.split(".")[2] for name, module in files.items() if ".extensions." in module}
    whole = {name for name in theirs if " " not in name}
    assert {name: theirs[name] for name in theirs if name in whole or name.partition(" ")[0] not in whole} == COMMANDS


def test_no_test_of_the_core_imports_an_extension() -> None:
    """Else it would go with the folder. Those of `tests/live`, which asks boxes for facts, may."""
    found = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "tests/unit").rglob("*.py"))
        if re.search(r"^\s*(from|import) sweepstack\.extensions", path.read_text("utf-8"), re.MULTILINE)
    ]
    assert [path for path in found if not path.startswith("tests/unit/live/")] == []


def test_the_core_stands_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All are taken out: each module is imported, each other command is there, and a missing one names its folder."""
    with pytest.raises(SystemExit):
        app(["--help"])
    whole = rows(capsys.readouterr().out)
    place = copy_without(ALL, tmp_path / "copy")
    told = played(place, ["--help", *(f"{command} box-0" for command in COMMANDS)], QUICK)
    assert not [name for name in told["modules"] if name.startswith("sweepstack.extensions.")]
    code, left = told["shown"]["--help"]
    assert code == 0
    assert rows(left) == [row for row in whole if row.split()[0] not in COMMANDS]
    for command, extension in COMMANDS.items():
        code, said = told["shown"][f"{command} box-0"]
        assert code == 2
        assert f"`sweepctl {command}` belongs to the extension `{extension}`, which is not installed here" in " ".join(
            said.split()
        )


def rows(help_text: str) -> list[str]:
    return [line for line in help_text.splitlines() if line.startswith("  ")]


def test_a_name_of_the_package_names_the_folder_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweepstack.core.extensions.ROOTS", {})
    with pytest.raises(ImportError, match="open belongs to the extension `library`, which is not installed here"):
        _ = sweepstack.open
    with pytest.raises(AttributeError, match="no attribute 'close'"):
        _ = sweepstack.close  # type: ignore[attr-defined]


def test_a_check_names_the_folder_that_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sweepstack.core.extensions.ROOTS", {})
    assert main(["hf-shards", "x.safetensors.index.json"]) == 2
    assert "sweepctl-check belongs to the extension `formats`, which is not installed here" in capsys.readouterr().err


@pytest.mark.proof  # all of them taken out, with fewer tests: test_the_core_stands_alone
@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("taken", [*([name] for name in ALL), ALL], ids="+".join)
def test_each_can_be_taken_out(taken: list[str], tmp_path: Path) -> None:
    """And with it those that need it, by their `REQUIRES`."""
    modules = {name: importlib.import_module(f"sweepstack.extensions.{name}") for name in ALL}
    gone = [name for name in ALL if {name, *getattr(modules[name], "REQUIRES", ())} & {*taken}]
    place = copy_without(gone, tmp_path / "copy")
    told = played(place, ["--help"], WHOLE)
    left = {name.split(".")[2] for name in told["modules"] if name.startswith("sweepstack.extensions.")}
    assert left == {*ALL} - {*gone}
