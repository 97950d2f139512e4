"""How `make test` shares the tests among its workers: a sweep is prepared once, by one worker. And where files lie."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests import in_memory
from tests.rented.world import image
from tests.scheduling import import_share
from tests.simulators.machines import Machine

ROOT = Path(__file__).resolve().parents[2]
NOTES = """
import os, pathlib, time, pytest

@pytest.mark.parametrize("number", range({count}))
def test_it(number):
    with open({log!r}, "a") as log:
        print(os.environ["PYTEST_XDIST_WORKER"], {name!r}, file=log)
"""
BOTH = """
    until = time.monotonic() + 20
    while len({{line.split()[0] for line in open({log!r}) if "chaos" in line}}) < 2 and time.monotonic() < until:
        time.sleep(0.01)
"""
"""Ends once both workers have had such a test: one that is slow to begin would leave them all to the other."""
MOMENT = """
Stack = object

@pytest.fixture
def verified():
    pass

def test_moment(verified: Stack) -> None:
    with open({log!r}, "a") as log:
        print(os.environ["PYTEST_XDIST_WORKER"], "moment", file=log)
"""


def test_a_file_has_one_worker_and_the_longest_begin_but_what_waits_goes_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tests = tmp_path / "tests"
    for name, count in {"engine": 8, "s3": 4, "unit": 2, "week": 1, "chaos": 8, "pods": 2}.items():
        for number in range(2):
            path = tests / name / f"test_{name}_{number}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            text = NOTES + {"engine": MOMENT, "chaos": BOTH, "pods": "# shared_cluster(…)"}.get(name, "")
            path.write_text(text.format(count=count, log=str(log), name=f"{name} {number}"))
    shutil.copy2(ROOT / "tests" / "conftest.py", tests)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (options,) = re.findall(r"^PYTEST_SHARING := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", *options.split()]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    lines = log.read_text().splitlines()
    moments = [line for line in lines if line.endswith("moment")]
    assert len(moments) == 2
    assert len(set(moments)) == 1, "a moment is prepared by two workers"
    pods = [line for line in lines if " pods " in line]
    assert (len(pods), len({line.split()[0] for line in pods})) == (4, 1), "the cluster is started by two workers"
    lines = [line for line in lines if line not in (*moments, *pods)]
    assert len(lines) == 2 * (8 + 4 + 2 + 1 + 8)
    assert len({line for line in lines if "chaos" in line}) > 2, "what goes alone has one worker"
    lines = [line for line in lines if "chaos" not in line]
    assert len(set(lines)) == 8, f"a file was split: {sorted(set(lines))}"
    for worker in {line.split()[0] for line in lines}:
        folders = [line.split()[1] for line in lines if line.startswith(worker)]
        assert list(dict.fromkeys(folders)) == sorted(set(folders), key=["engine", "week", "s3", "unit"].index)
    assert "$(PYTEST_SHARING)" in (ROOT / "Makefile").read_text().split("\ntest:")[1].split("\n\n")[0]


def test_each_worker_imports_a_share_of_the_modules_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Together they are all modules, one that does not import keeps none from the others, and `live` is left out."""
    package = tmp_path / "shared_modules"
    for name, text in {"a": "", "b": "", "c": "raise OSError", "d": "", "live": ""}.items():
        (package / name).mkdir(parents=True)
        (package / name / f"test_{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    imported: list[set[str]] = []
    import_share(package, 0, 1)
    assert not [name for name in sys.modules if name.startswith("shared_modules.")], "these are no package"
    for folder in (package, *(package / name for name in "abcd"), package / "live"):
        (folder / "__init__.py").touch()
    for number in range(2):
        import_share(package, number, 2)
        found = {name for name in sys.modules if name.startswith("shared_modules.") and ".test_" in name}
        imported.append({name.rpartition("_")[2] for name in found})
        for name in [name for name in sys.modules if name.startswith("shared_modules")]:
            del sys.modules[name]
    assert not imported[0] & imported[1]
    assert imported[0] | imported[1] == {"a", "b", "d"}


def test_an_image_is_gone_with_its_world() -> None:
    """Else machines of the tests that come after in this process had the image's packages, too."""
    with image():
        assert Machine.image_binds
        assert Machine.image_tools
    assert not Machine.image_binds
    assert not Machine.image_tools


def test_the_files_of_tests_lie_in_memory_where_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders are the disk's, but where another one is mounted: what is asked of them is the same."""
    usual = tempfile.gettempdir()
    monkeypatch.delenv("TMPDIR", raising=False)
    if in_memory.will_do(tmp_path, 0):  # no macOS, nor a disk without extended attributes
        assert in_memory.folder(tmp_path, 0) == str(tmp_path)
    assert not list(tmp_path.iterdir())
    assert in_memory.folder(tmp_path, 2**60) == in_memory.folder(tmp_path / "none", 0) == usual
    if os.geteuid() == 0:
        mount = ["mount", "-t", "tmpfs", "-o", "noexec", "tmpfs", str(tmp_path)]
        if subprocess.run(mount, capture_output=True, timeout=60).returncode == 0:
            refused = in_memory.folder(tmp_path, 0)
            subprocess.run(["umount", str(tmp_path)], check=True, timeout=60)
            assert refused == usual
    monkeypatch.setenv("TMPDIR", usual)
    assert in_memory.folder(tmp_path, 0) == usual, "a person's own choice stays"
    makefile = (ROOT / "Makefile").read_text()
    for recipe in ("test", "proof"):
        assert "$(IN_MEMORY)" in makefile.split(f"\n{recipe}:")[1].split("\n\n")[0]
