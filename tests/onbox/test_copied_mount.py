"""COPY: a bucket's files on a box, whenever the runner is killed, and whatever lay there. Real rclone, on folders."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from sweepstack.onbox.runner import mounts
from sweepstack.onbox.runner.rclone import Remote
from tests.killing import killed_at

STEPS = 9
"""Of one copy over another: more than it has."""


def bucket(folder: Path, **files: str) -> Remote:
    """A source as rclone knows it, of a folder."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    assert shutil.which("rclone"), "apt-get install -y rclone (scripts/setup --dev does, as root)"
    remote = Remote({"source": f"s3://bucket/{folder.name}"}, dict(os.environ), [], threading.Event())
    remote.root = str(folder)
    return remote


def held(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_a_copy_that_was_cut_is_never_gone_on_with_from_another_source(tmp_path: Path) -> None:
    first, second = bucket(tmp_path / "first", a="1", only="1"), bucket(tmp_path / "second", a="2")
    target = tmp_path / "box" / "images"
    target.parent.mkdir()
    with killed_at(2):  # the first makes the folder; all is there, and has no name yet
        mounts._copy(first, target)
    assert not target.exists()
    mounts._copy(second, target)
    assert held(target) == {"a": "2"}
    mounts._copy(first, target)
    assert held(target) == {"a": "1", "only": "1"}


OTHERS = [pytest.param(step, marks=pytest.mark.proof) for step in range(1, STEPS + 1) if step != 5]
"""Step 5, when the old copy is out of the way and the new one has no name yet, stays in `make test`."""


@pytest.mark.parametrize("step", [5, *OTHERS])
def test_killed_at_any_step_it_keeps_what_a_job_wrote_there(tmp_path: Path, step: int) -> None:
    first, second = bucket(tmp_path / "first", a="1"), bucket(tmp_path / "second", a="2")
    target = tmp_path / "box" / "images"
    target.parent.mkdir()
    mounts._copy(first, target)
    (target / "index").write_text("a job's own")
    with killed_at(step):
        mounts._copy(second, target)
    mounts._copy(second, target)
    assert held(target) == {"a": "2"}
    aside = list(target.parent.glob("images.superseded-*"))
    assert [held(path) for path in aside] == [{"a": "1", "index": "a job's own"}], "once, and nothing was fetched twice"
