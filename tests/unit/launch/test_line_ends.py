"""Scripts with the line ends of Windows: what a shell or a shebang runs is named before it ships, nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweepstack.core.workdir import collect
from sweepstack.launch.line_ends import crlf_problems


def problems(folder: Path) -> list[str]:
    return crlf_problems(folder, collect(folder).files)


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
