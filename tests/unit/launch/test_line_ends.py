"""Scripts with the line ends of Windows: what a shell or a shebang runs is named before it ships, nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweepstack.core.workdir import collect
from sweepstack.launch.line_ends import CrlfScript, crlf_scripts


def scripts(folder: Path, *commands: str) -> list[CrlfScript]:
    return crlf_scripts(folder, collect(folder).files, commands)


def problems(folder: Path, *commands: str) -> list[str]:
    return [script.problem for script in scripts(folder, *commands)]


def put(folder: Path, name: str, text: str, mode: int = 0o644) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode())
    path.chmod(mode)


def test_u26_a_shell_script_is_named_with_its_line_and_the_fix(tmp_path: Path) -> None:
    put(tmp_path, "train.sh", "set -e\npython a.py\r\n")
    (said,) = problems(tmp_path)
    assert said.startswith("train.sh, line 2: ends with CRLF")
    assert "sed -i 's/\\r$//' train.sh" in said
    assert "'*.sh text eol=lf' >> .gitattributes" in said


@pytest.mark.parametrize(
    "first", ["#!/bin/bash", "#! /bin/sh", "#!/usr/bin/env bash", "#!/usr/bin/env -S bash -e", "#!/usr/bin/dash"]
)
def test_u26_a_shebang_makes_it_a_shell_script_whatever_its_name(tmp_path: Path, first: str) -> None:
    put(tmp_path, "run", f"{first}\necho\r\n")
    (said,) = problems(tmp_path)
    assert said.startswith("run, line 2:")
    assert "'run text eol=lf'" in said


def test_u26_the_kernel_reads_the_first_line_of_what_is_executable(tmp_path: Path) -> None:
    """`/usr/bin/env: 'python3\\r': No such file or directory`. As `python train.py` the same file runs."""
    put(tmp_path, "tool.py", "#!/usr/bin/env python3\r\nprint(1)\r\n", 0o755)
    put(tmp_path, "train.py", "#!/usr/bin/env python3\r\nprint(1)\r\n")
    (said,) = problems(tmp_path)
    assert said.startswith("tool.py, line 1:")


def test_files_that_no_shell_runs_may_end_as_they_like(tmp_path: Path) -> None:
    put(tmp_path, "train.py", "print(1)\r\n")
    put(tmp_path, "config.yaml", "a: 1\r\n")
    put(tmp_path, "data.csv", "#!a,b\r\n")
    put(tmp_path, "good.sh", "#!/bin/sh\nprintf 'a\\r\\n'\n")
    put(tmp_path, "empty.sh", "")
    assert problems(tmp_path) == []


RUNS = "bash scripts/train.sh --seed {seed}"


@pytest.mark.parametrize(
    ("files", "commands", "runs"),
    [
        ({"train.sh": "echo\r\n"}, (RUNS,), True),
        ({"train.sh": "echo\r\n"}, ("python train.py", "pip install -e . && . ./train.sh"), True),
        ({"train.sh": "echo\r\n"}, ("python train.py",), False),
        ({"train.sh": "echo\r\n"}, ("bash pretrain.sh --log train.sh.log",), False),
        ({"run.sh": "bash lib/train.sh\n", "train.sh": "echo\r\n"}, ("bash run.sh",), True),
        ({"run.py": "call(['sh', 'train.sh'])\n", "train.sh": "echo\r\n"}, ("python3 run.py",), True),
        ({"run.py": "call(['sh', 'train.sh'])\n", "train.sh": "echo\r\n"}, ("python3 -m run",), True),
        ({"other.py": "call(['sh', 'train.sh'])\n", "train.sh": "echo\r\n"}, ("python3 -m run",), False),
        ({"train": "#!/bin/sh\necho\r\n"}, ("make",), False),
    ],
)
def test_a_script_counts_where_a_command_reaches_it(
    tmp_path: Path, files: dict[str, str], commands: tuple[str, ...], runs: bool
) -> None:
    for name, text in files.items():
        put(tmp_path, name, text)
    (script,) = scripts(tmp_path, *commands)
    assert script.runs is runs


def test_what_may_be_executed_counts_without_a_command(tmp_path: Path) -> None:
    put(tmp_path, "train", "#!/bin/sh\necho\r\n", 0o755)
    put(tmp_path, "vendored.sh", "echo\r\n", 0o755)  # no shebang: only `sh vendored.sh` runs it
    first, second = scripts(tmp_path, "make")
    assert (first.runs, second.runs) == (True, False)
