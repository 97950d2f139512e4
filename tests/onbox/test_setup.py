"""What is made ready before a version's first cell: environment, setup, probe; and what a failure of it leaves."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweepstack.onbox.common.canonical import digest_of
from tests.onbox.harness import Box, alive, wait_for

PACKAGE = {
    "pyproject.toml": """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "local-thing"
version = "1.5"
""",
    # A wheel is a zip: so a package folder installs without a network and without a build tool.
    "backend.py": """
import zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "local_thing-1.5-py3-none-any.whl"
    info = "local_thing-1.5.dist-info"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.writestr("local_thing.py", "WORD = 'installed'\\ndef main(): print(WORD)\\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: local-thing\\nVersion: 1.5\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/entry_points.txt", "[console_scripts]\\nlocal-thing = local_thing:main\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return name
""",
}
INSTALL = "pip install --no-index --no-build-isolation ./thing"
JOB = """
import json, os, sys
import local_thing, box_thing
json.dump([local_thing.WORD, box_thing.WORD, sys.prefix, os.environ["VIRTUAL_ENV"]], open(sys.argv[1], "w"))
"""


def bare_python(folder: Path) -> str:
    """The python of a virtual environment without pip, as uv makes them, with a package of its own."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "box_thing.py").write_text("WORD = 'of the box'\n")
    in_place = folder / "in-place"  # as an editable install is named there
    in_place.mkdir()
    (in_place / "edited_thing.py").write_text("")
    (site / "edited.pth").write_text(f"{in_place}\n")
    program = folder / "bin" / "which-python"
    program.write_text(f"#!{folder}/bin/python\nimport sys, edited_thing; print(sys.prefix)\n")
    program.chmod(0o755)
    return str(folder / "bin" / "python")


def version(box: Box, name: str, **files: str) -> str:
    """Ships some code; its digest."""
    return box.ship({"version.txt": name} | {path.replace("_py", ".py"): text for path, text in files.items()})


def add(box: Box, cell: str, setup: str, run: str, **more: Any) -> None:
    box.add(cell, run, more={"setup": setup, **more})


def events(box: Box) -> list[str]:
    return [str(one["event"]) for one in box.journal().entries]


def test_setup_installs_into_an_environment_that_sees_the_boxes_packages(box: Box, tmp_path: Path) -> None:
    """Without a network; and the box's python is a virtual environment's itself, without pip."""
    box.set(python=bare_python(tmp_path / "base"))
    code = version(box, "v1", train_py=JOB)
    thing = box.home / "code" / code[7:] / "thing"
    thing.mkdir()
    for name, text in PACKAGE.items():
        (thing / name).write_text(text)
    check = " && local-thing > {out}/result.txt && which-python >> {out}/result.txt"
    for cell in ("a", "b"):
        add(box, cell, INSTALL, "python train.py {out}/result.json" + check, code=code)
    box.run("a", "b")
    prepared = digest_of([INSTALL, code])
    env = box.home / "envs" / prepared[7:23]
    word, of_box, prefix, active = json.loads((box.sealed("a") / "result.json").read_text())
    assert (word, of_box) == ("installed", "of the box")
    assert (prefix, active) == (str(env), str(env))
    assert (box.sealed("a") / "result.txt").read_text() == f"installed\n{env}\n"  # also the box's own programs
    started, finished = box.events("setup-started"), box.events("setup-finished")
    assert [(one["setup"], one["code"]) for one in started] == [(prepared, code)]  # once, for both cells
    assert [one["setup"] for one in finished] == [prepared]
    order = events(box)
    assert order.index("setup-finished") < order.index("cell-started")
    assert {one["setup"] for one in box.events("cell-started")} == {prepared}
    assert "Successfully installed local-thing-1.5" in (box.home / "setup" / f"{prepared[7:23]}.log").read_text()
    assert "local_thing" not in str(list((tmp_path / "base").rglob("*")))  # the box's own python stays as it was
    add(box, "c", INSTALL, "python train.py {out}/result.json", code=code)
    box.run("c")
    assert len(box.events("setup-started")) == 1  # nor by the next runner


def test_half_made_environment_is_made_anew(box: Box) -> None:
    """kill -9 in the middle of a setup: the next runner ends what still runs of it, and begins from nothing."""
    box.set(grace_seconds=0.3)
    half = f"touch $VIRTUAL_ENV/half; test -e {box.control}/go || sleep 600; test ! -e $VIRTUAL_ENV/once; "
    setup = half + "touch $VIRTUAL_ENV/once"
    add(box, "a", setup, "test -e $VIRTUAL_ENV/once && echo > {out}/result.json")
    runner = box.start()
    folder = box.home / "envs" / digest_of([setup, box.code])[7:23]
    wait_for((folder / "half").exists, box.log)
    (folder / "stale").touch()
    (folder / "once").touch()
    runner.kill()
    left = [pid for pid in box.processes() if alive(pid)]
    assert left
    (box.control / "go").touch()
    box.run("a")
    assert not [pid for pid in left if alive(pid)]
    assert not (folder / "stale").exists()
    assert len(box.events("setup-started")) == 2
    assert not list((box.home / "setup").glob("*.pid"))


def test_failed_setup_leaves_its_cells_pending_and_others_go_on(box: Box) -> None:
    setup = "echo preparing; echo no such package >&2; exit 4; echo never"
    add(box, "a", setup, "true")
    add(box, "b", "", "sh -c 'echo > {out}/result.json'")
    box.run("b", code=7)
    assert box.state("a") == "pending"
    assert box.events("cell-started", "a") == []
    (failure,) = box.events("setup-failed")
    assert failure["setup"] == digest_of([setup, box.code])
    assert failure["reason"].startswith("exit code 4: no such package (log: data/sweep/setup/")
    assert "never" not in (box.home / "setup" / f"{failure['setup'][7:23]}.log").read_text()
    box.run(code=7)
    assert len(box.events("setup-started")) == 2  # the next runner tried again
    add(box, "a", "true", "echo > {out}/result.json")
    box.run("a")


def test_cells_over_several_nodes_wait_where_that_extension_was_not_shipped(box: Box) -> None:
    shutil.rmtree(box.runner / "sweepstack" / "onbox" / "nodes")
    (box.runner / "nodes.py").unlink()
    box.add("a", env={"SWEEPSTACK_NODES": "2"})
    box.add("b")
    box.run("b", code=7)
    (failure,) = box.events("setup-failed")
    assert (failure["stage"], box.state("a")) == ("nodes", "pending")
    assert failure["reason"].startswith("cells over several nodes need the extension `nodes`, which was not installed")


def test_cells_of_other_versions_go_on_while_a_setup_runs(box: Box) -> None:
    add(box, "a", f"while ! [ -e {box.control}/go ]; do sleep 0.05; done", "echo > {out}/result.json")
    box.add("b")
    runner = box.start()
    runner.until("b", "sealed")
    assert events(box).count("setup-finished") == 0
    (box.control / "go").touch()
    assert runner.ended() == 0
    assert box.state("a") == "sealed"


def test_commands_of_a_setup_end_at_the_first_failure_and_see_the_code(box: Box) -> None:
    add(box, "a", "ls steps.py\nfalse\ntouch here", "true")
    box.run(code=7)
    assert "exit code 1" in box.events("setup-failed")[0]["reason"]
    assert not (box.home / "code" / box.code[7:] / "here").exists()


def test_setup_that_does_not_end_is_ended(box: Box) -> None:
    add(box, "a", "echo waits for a prompt; sleep 600", "true")
    for seconds in (1.5, 15.0, 150.0):  # on a busy machine it has not come to its words yet
        box.set(setup_seconds=seconds)
        box.run(code=7)
        reason = box.events("setup-failed")[-1]["reason"]
        assert "did not end within its deadline; " in reason
        if "waits for a prompt" in reason:
            break
    assert "did not end within its deadline; waits for a prompt" in reason
    assert list(box.processes()) == []


def test_sigterm_ends_a_setup_and_the_next_runner_begins_it_anew(box: Box) -> None:
    setup = f"touch {box.control}/begun; test -e {box.control}/go || sleep 600"
    add(box, "a", setup, "echo > {out}/result.json")
    runner = box.start()
    wait_for((box.control / "begun").exists, box.log)
    os.kill(runner.pid, signal.SIGTERM)
    assert runner.ended() == 143
    assert box.events("setup-failed") == []
    assert list(box.processes()) == []
    (box.control / "go").touch()
    box.run("a")


def test_variables_of_a_job_reach_its_setup(box: Box) -> None:
    """But those that only a cell can fill in."""
    box.set(env={"INDEX": "near", "RUN": "run-{cell}"})
    add(box, "a", f'echo "$INDEX,$RUN,$HOME" > {box.control}/seen', "echo > {out}/result.json")
    box.run("a")
    home = pwd.getpwuid(os.getuid()).pw_dir  # nothing is inherited: not the HOME of whoever launched it
    assert (box.control / "seen").read_text() == f"near,,{home}\n"


def test_a_cell_of_an_older_queue_keeps_its_digests(box: Box) -> None:
    """Empty additions change nothing: what began before them goes on from its checkpoint."""
    box.add("a")
    box.add("b", more={"setup": "", "retry": 0, "salt": 0})
    box.run("a", "b")
    assert len({one["version"] for one in box.events("cell-started")}) == 1


# -- the probe


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ("python nosuch.py {out}", "nosuch.py is not among the shipped files"),
        ("A=1 python -u sub/nosuch.py", "sub/nosuch.py is not among the shipped files"),
        ("torchrun --nproc-per-node 2 nosuch.py", "nosuch.py is not among the shipped files"),
        ("python train.py {out}", "train.py imports no_such_module, also_missing, which this box does not have"),
        ("python -m no_such_package.train", "imports no_such_package"),
        ("python broken.py", "broken.py, line 2:"),
        ("python9 fine.py", "/python3): write that in job.run"),
    ],
)
def test_cells_that_could_not_start_are_not_started(box: Box, run: str, said: str) -> None:
    train = "import os, no_such_module\nfrom also_missing.part import x\n"
    code = version(box, "v1", train_py=train, broken_py="x = 1\nif:\n", fine_py="")
    box.add("a", run, more={"code": code})
    box.run(code=7)
    (failure,) = box.events("setup-failed")
    assert said in failure["reason"]
    assert failure["setup"] == digest_of(["", code])
    assert box.state("a") == "pending"


NOT_UNDERSTOOD = [
    "python fine.py",
    "cd sub && python there.py",
    "python hacked.py",  # finds its modules where only it knows
    "PYTHONPATH=sub python uses.py",
    "python -c 'import json' nosuch.py",
    "python -X dev fine.py",
    'echo "it\'s" nosuch.py',
    "test ! -e nosuch.py || python nosuch.py",
    "python -m json.tool --help",
]


def test_what_the_probe_does_not_understand_it_does_not_judge(box: Box) -> None:
    fine = "import json, beside\ntry:\n    import no_such_module\nexcept ImportError:\n    pass\n"
    hacked = "import sys\nsys.path.insert(0, 'sub')\nimport below\n"
    code = version(box, "v1", fine_py=fine, beside_py="", hacked_py=hacked, uses_py="import below\n")
    sub = box.home / "code" / code[7:] / "sub"
    sub.mkdir()
    (sub / "there.py").write_text("import below\n")
    (sub / "below.py").write_text("")
    cells = {f"a{number}": run for number, run in enumerate(NOT_UNDERSTOOD)}
    for cell, run in cells.items():
        box.add(cell, f"{run} > {{out}}/result.json; echo >> {{out}}/result.json", more={"code": code})
    box.run(*cells)
    assert box.events("setup-failed") == []


def test_probe_sees_what_the_setup_installed_and_what_lies_beside(box: Box) -> None:
    setup = "echo > $(python -c 'import sysconfig; print(sysconfig.get_paths()[\"purelib\"])')/late_module.py"
    code = version(box, "v1", train_py="import late_module, sweepstack_checkpoint\nopen('{out}')\n")
    add(box, "a", setup, "python train.py || echo > {out}/result.json", code=code)
    box.run("a")


@pytest.mark.parametrize(("seen", "asked"), [(0, 2), (1, 2), (2, 2), (2, ["0"])])
def test_no_cell_starts_on_a_box_that_lacks_its_gpus(make_box: Callable[..., Box], seen: int, asked: object) -> None:
    """B03: a box may come back without a card."""
    box = make_box(gpus=asked)
    if seen:
        box.show_gpus(seen)
    box.add("a")
    enough = seen >= (asked if isinstance(asked, int) else 1)
    box.run(code=0 if enough else 7)
    assert box.state("a") == ("sealed" if enough else "pending")
    if not enough:
        assert box.events("setup-failed")[0]["reason"] == f"{seen} of 2 GPUs are seen on this box (nvidia-smi -L)"


# -- secrets


def test_secrets_reach_cells_and_setup_and_nothing_that_is_kept(box: Box) -> None:
    box.set(secrets=["API_KEY"], retries=0)
    box.secrets({"API_KEY": "sk-very-secret-value", "OTHER": "not-named-value"})
    seen = 'test "$API_KEY" = "sk-very-"secret-value && test -z "$OTHER"'
    add(box, "a", f"{seen}; echo key $API_KEY", f"{seen} && echo key $API_KEY; echo 1 > {{out}}/result.json")
    box.add("b", "echo failed with $API_KEY >&2; exit 3")
    box.run("a", code=1)
    reason = box.events("cell-failed", "b")[0]["reason"]
    assert reason == "exit code 3: failed with ********************"
    for path in [*box.home.rglob("*"), *box.volume.rglob("*")]:
        if path.is_file() and path.name != "secrets.json":
            assert b"sk-very-secret" not in path.read_bytes(), path
    assert (box.sealed("a") / "log.txt").read_text().startswith("key ********************\n")
    assert box.manifest("a").attempt == 1


def test_secret_that_begins_another_leaves_nothing_of_it(box: Box) -> None:
    box.set(secrets=["USER", "TOKEN"], retries=0)
    box.secrets({"USER": "sk-very-secret", "TOKEN": "sk-very-secret-and-its-tail"})
    add(box, "a", "echo setup has $TOKEN", "echo cell has $TOKEN; echo 1 > {out}/result.json")
    box.run("a")
    (setup,) = (box.home / "setup").glob("*.log")
    assert f"setup has {'*' * 27}\n" in setup.read_text()
    assert f"cell has {'*' * 27}\n" in (box.sealed("a") / "log.txt").read_text()


@pytest.mark.parametrize("before", [190, 5000], ids=["begins before the cut", "ends behind it"])
def test_secret_that_a_cut_goes_through_is_not_shown(box: Box, before: int) -> None:
    """What is quoted of a log is its last line, and that only in part."""
    box.set(secrets=["TOKEN"], retries=0)
    box.secrets({"TOKEN": "sk-" + 20000 * "s"})
    say = f"head -c {before} /dev/zero | tr '\\0' x; echo $TOKEN; exit 3"
    add(box, "a", say, "true")
    box.add("b", say)
    box.run(code=7)
    reasons = [box.events("setup-failed")[0]["reason"], box.events("cell-failed", "b")[0]["reason"]]
    assert all(reason.startswith("exit code 3: ") for reason in reasons)
    assert not any("sss" in reason for reason in reasons), reasons


@pytest.mark.parametrize(
    ("values", "mode", "said"),
    [
        ({"API_KEY": "x" * 9}, 0o644, "can be read by others (mode 0644"),
        ({"API_KEY": "x" * 9}, 0o640, "can be read by others (mode 0640"),
        ({"OTHER": "x" * 9}, 0o600, "lacks API_KEY"),
        (None, 0o600, "can't be read: FileNotFoundError"),
    ],
)
def test_secrets_that_can_not_be_used_start_nothing(
    box: Box, values: dict[str, str] | None, mode: int, said: str
) -> None:
    box.set(secrets=["API_KEY"])
    if values is not None:
        box.secrets(values, mode)
    box.add("a")
    box.run(code=7)
    assert said in box.events("setup-failed")[0]["reason"]
    assert box.state("a") == "pending"
    box.secrets({"API_KEY": "x" * 9})
    box.run("a")
