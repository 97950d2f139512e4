"""A cell runs only the code that its record names: what the runner does when that is edited on the box."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.runner.attempt import describe
from sweepstack.onbox.runner.code import CodeCheck
from tests.onbox.harness import INTERPRETER, QUICK, Box, wait_for

TRAIN = "import sys, helper, time; open(sys.argv[1] + '/result.json', 'w').write('{}')\n"
RUN = "python train.py {out}"


def shipped(box: Box, **files: str) -> Path:
    box.code = box.ship({"train.py": TRAIN, "lib/words.txt": "a", "helper.py": ""} | files)
    return box.home / "code" / box.code[7:]


def refused(box: Box, reason: str, *files: str) -> None:
    """The cell waits: it neither ran nor failed, and the journal says why, once."""
    box.run(code=7)
    assert box.state("b") == box.state("c") == "pending"
    (said,) = box.events("setup-failed")
    assert (said["stage"], said["code"], said["files"]) == ("code", box.code, list(files))
    assert reason in said["reason"]


@pytest.mark.parametrize(
    ("change", "reason", "files"),
    [
        (
            lambda code: (code / "train.py").open("a").write("print('DRIFTED')\n"),
            "train.py on this box is",
            ["train.py"],
        ),
        (lambda code: (code / "lib" / "words.txt").unlink(), "lib/words.txt of code", ["lib/words.txt"]),
        (lambda code: (code / "train.py").chmod(0o755), "train.py on this box is not what was shipped", ["train.py"]),
        (lambda code: (code / "json.py").touch(), "json.py is not of code", []),
        (lambda code: ((code / "torch").mkdir(), (code / "torch" / "__init__.py").touch()), "torch/__init__.py is", []),
        (lambda code: code.rename(code.with_name("away")), "is not on this box", []),
    ],
    ids=["changed", "missing", "mode", "module beside it", "package beside it", "all of it"],
)
def test_code_that_is_not_what_was_shipped_starts_no_cell(box: Box, change: Any, reason: str, files: list[str]) -> None:
    """hosts.md S3: a train.py that was edited on the box ran, and its cell was verified with the old digest."""
    code = shipped(box)
    box.add("a", RUN)
    box.run("a")
    change(code)
    box.add("b", RUN)
    box.add("c", RUN)
    refused(box, reason, *files)


def test_an_edit_that_keeps_size_and_times_is_seen(box: Box) -> None:
    code = shipped(box)
    path = code / "train.py"
    before = path.stat()
    path.write_text(TRAIN.replace("import sys, helper", "import sys, hEXtra"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    box.add("b", RUN)
    box.add("c", RUN)
    refused(box, "train.py on this box", "train.py")


def test_what_a_job_leaves_beside_the_code_is_in_no_ones_way(box: Box) -> None:
    shipped(box)
    leave = "mkdir -p wandb/run-1 && cp train.py wandb/run-1/ && date > notes.txt && python train.py {out}"
    box.add("a", leave)
    box.add("b", leave)
    box.run("a", "b")
    assert box.events("setup-failed") == []


def test_what_the_set_up_builds_is_of_the_version_and_stays_as_it_is(box: Box) -> None:
    code = shipped(box)
    setup = "echo WORD = 1 > built.py && echo b > lib/words.txt"
    box.add("a", RUN, more={"setup": setup})
    box.run("a")
    box.add("a2", RUN, more={"setup": setup})
    box.run("a2")
    (code / "built.py").write_text("WORD = 2\n")
    box.add("b", RUN, more={"setup": setup})
    box.add("c", RUN, more={"setup": setup})
    refused(box, "built.py is not of code")


def test_a_runner_at_work_goes_on_once_the_files_are_shipped_again(box: Box) -> None:
    box.set(slots=2)
    code = shipped(box)
    box.add("a", f"while [ -e {box.hold('a')} ]; do sleep 0.05; done; {QUICK}")
    runner = box.start()
    runner.until("a", "running")
    (code / "train.py").write_text("")
    box.add("b", RUN)
    wait_for(lambda: bool(box.events("setup-failed")), box.log)
    (code / "train.py").write_text(TRAIN)
    again = box.list_of(box.code).with_name("again")
    again.write_bytes(box.list_of(box.code).read_bytes())
    again.replace(box.list_of(box.code))
    runner.until("b", "sealed")
    (box.control / "hold-a").unlink()
    assert runner.ended() == 0


def test_code_that_was_changed_while_a_cell_ran_is_said_in_its_manifest(box: Box) -> None:
    code = shipped(box)
    box.add("a", f"while [ -e {box.hold('a')} ]; do sleep 0.05; done; {QUICK}")
    runner = box.start()
    runner.until("a", "running")
    (code / "train.py").write_text("")
    (box.control / "hold-a").unlink()
    assert runner.ended() == 0
    assert "train.py on this box is not what was shipped" in box.manifest("a").provenance["code_changed"]


def test_a_list_that_was_changed_with_the_code_proves_nothing(box: Box) -> None:
    shipped(box)
    box.list_of(box.code).write_text("[]")
    box.add("b", RUN)
    box.add("c", RUN)
    refused(box, "the list of the files of code")


def test_a_compiled_file_older_than_its_source_is_not_run(box: Box) -> None:
    """Python holds a compiled file for that of its source when the source's time and size are those it names."""
    code = shipped(box, **{"helper.py": "WORD = 1\n"})
    source = code / "helper.py"
    before = source.stat()
    source.write_text("WORD = 2\n")
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    subprocess.run([INTERPRETER, "-c", "import helper"], cwd=code, check=True)
    time.sleep(0.02)
    source.write_text("WORD = 1\n")
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    box.add("b", "python -c 'import helper; assert helper.WORD == 1' && " + QUICK)
    box.run("b")


def test_what_a_look_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of 1,000 files and 20 MB is read whole at each start, within what a start takes anyway."""
    box = Box(tmp_path)
    code = box.ship({f"package{n % 20}/module{n}.py": f"{n}\n" * 4000 for n in range(1000)})
    check = CodeCheck(box.home)
    began = time.process_time()
    assert check.problem(code) is None
    assert time.process_time() - began < 2.0
    (box.home / "code" / code[7:] / "package3" / "module3.py").write_text("3\n" * 4000 + "#")
    assert check.problem(code).files == ["package3/module3.py"]


def installs(python: Path, version: str) -> None:
    (site,) = python.parents[1].glob("lib/python*/site-packages")
    for old in site.glob("thing-*.dist-info"):
        (old / "METADATA").unlink()
        old.rmdir()
    made = site / f"thing-{version}.dist-info"
    made.mkdir()
    (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: thing\nVersion: {version}\n")


def test_each_cell_names_the_environment_that_it_started_in(box: Box) -> None:
    """What is installed between two starts, under one runner, gives the second cell another environment on record."""
    python = box.root / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(python.parents[1])], check=True)
    installs(python, "1.0")
    box.set(python=str(python), image="pytorch:2.4", secrets=["A_KEY"])
    box.secrets({"A_KEY": "something"})
    box.add("a", f"while [ -e {box.hold('a')} ]; do sleep 0.05; done; {QUICK}")
    runner = box.start()
    runner.until("a", "running")
    box.add("b", f"while [ -e {box.hold('b')} ]; do sleep 0.05; done; {QUICK}")
    (box.control / "hold-a").unlink()
    runner.until("a", "sealed")
    runner.until("b", "running")
    installs(python, "2.0")
    (box.control / "hold-b").unlink()
    box.add("c")
    runner.until("c", "sealed")
    assert runner.ended() == 0
    first, second, third = (box.manifest(cell).environment for cell in "abc")
    assert (first["image"], first["secrets"]) == ("pytorch:2.4", ["A_KEY"])
    assert first["distributions"] == second["distributions"] != third["distributions"]
    noted = {one["digest"]: one for one in box.events("environment")}
    assert noted[first["distributions"]]["distributions"]["thing"] == "1.0"
    assert noted[third["distributions"]]["changed"] == ["thing 1.0 -> 2.0"]


ODD = {
    "plain-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: plain\nVersion: 1.0\n\nName: other\nVersion: 9\n",
    "lines-1.1.dist-info/METADATA": b"Name: lines\r\nVersion: 1.1\r\n\r\nVersion: 9\r\n",
    "folded-1.2.dist-info/METADATA": b"Summary: a\n  b\nversion: 1.2\nNAME: folded\nDescription: c\n  Name: x\n",
    "old.egg-info/PKG-INFO": b"Name: old\nVersion: 1.3\n",
    "alone-1.4.egg-info": b"Name: alone\nVersion: 1.4\n\nVersion: 9\n",
    "nothing-1.5.dist-info/RECORD": b"",
}


def test_an_environment_on_record_is_what_the_metadata_of_its_packages_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in ODD.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    said: dict[str | None, str | None] = {}
    for one in metadata.distributions():
        said.setdefault(one.metadata["Name"], one.version)
    assert said.items() >= {"plain": "1.0", "lines": "1.1", "folded": "1.2", "old": "1.3", "alone": "1.4"}.items()
    found = describe(sys.executable).distributions
    assert found.pop("?") is said.pop(None) is None, "one without metadata"
    assert found == said
