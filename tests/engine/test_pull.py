"""A pulled cell is a copy: it shares no byte with the box, and survives changes there."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.engine.commands import ok
from tests.engine.harness import Stack
from tests.engine.looking import different, tree


def copies(stack: Stack) -> dict[str, str]:
    """The pulled cells."""
    return tree(stack.evidence / "cells")


def test_copies_survive_rm_rf(verified: Stack) -> None:
    """`rm -rf` of the boxes' trees and of the durable tier's content leaves the copies whole, and they verify."""
    before = copies(verified)
    shutil.rmtree(verified.platform_root / "boxes")
    (verified.platform_root / "boxes").mkdir()
    for content in verified.volume_contents():
        shutil.rmtree(content)
        content.mkdir()
    after = copies(verified)
    assert after == before, different(before, after)


@pytest.mark.proof  # that they share no bytes: tests/unit/channel/test_contract.py
def test_copies_survive_truncation_in_place(verified: Stack) -> None:
    """Truncating and overwriting every file of the boxes and volumes in place does not reach the copies."""
    before = copies(verified)
    inodes = {(path.stat().st_dev, path.stat().st_ino) for path in (verified.evidence / "cells").rglob("*")}
    for path in [p for root in ("boxes", "volumes") for p in (verified.platform_root / root).rglob("*")]:
        if path.is_file() and not path.is_symlink():
            assert (path.stat().st_dev, path.stat().st_ino) not in inodes, f"{path} shares its bytes with a copy"
            with path.open("r+b") as handle:
                handle.write(b"\xff" * 64)
                handle.truncate(3)
    after = copies(verified)
    assert after == before, different(before, after)
    assert not [path for path in (verified.evidence / "cells").rglob("*") if path.is_symlink()]


@pytest.mark.proof  # on a box: tests/unit/evidence/test_pull.py
def test_pull_again_copies_nothing(verified: Stack) -> None:
    """A second pull leaves what is right as it is, times included."""

    def stamps() -> dict[str, int]:
        return {str(p): p.stat().st_mtime_ns for p in (verified.evidence / "cells").rglob("*") if p.is_file()}

    before = stamps()
    ok(verified.sweepctl("pull"))
    assert stamps() == before


@pytest.mark.proof  # on a box: tests/unit/evidence/test_pull.py
def test_pull_mends_what_is_wrong(verified: Stack) -> None:
    """A copy that was damaged here is copied again while the box is there."""
    path = verified.evidence / "cells" / verified.cells[0] / "model.safetensors"
    good = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(good[: len(good) // 2])
    ok(verified.sweepctl("pull"))
    assert path.read_bytes() == good
    assert verified.verify()["verified"] == 4


@pytest.mark.proof  # on a box: tests/unit/evidence/test_pull.py
def test_pull_resumes(finished: Stack) -> None:
    """A pull that was killed and is run again ends with the right bytes, and never with a part under a final name."""
    process = finished.start("sweepctl", "pull", "--stack", finished.name)
    cells = finished.evidence / "cells"
    finished.wait_for(lambda: cells.exists() or process.poll() is not None, "the pull to begin")
    os.kill(process.pid, 9)
    process.wait()
    partial = {path.name for path in cells.iterdir() if path.name in finished.cells} if cells.exists() else set()
    for name in partial:
        assert tree(cells / name) == tree(finished.durable_cell(name))
    ok(finished.sweepctl("pull"))
    for name in finished.cells:
        source = {path: what.split()[-1] for path, what in tree(finished.durable_cell(name)).items()}
        copy = {path: what.split()[-1] for path, what in tree(cells / name).items()}
        assert copy == source


@pytest.mark.proof  # on a box: tests/unit/evidence/test_pull.py
def test_pull_of_a_link_is_refused(finished: Stack) -> None:
    """A file that is a link on the box is not followed out of it: the cell is named, the secret is not copied."""
    secret = finished.base / "secret"
    secret.write_text("keep out")
    path = finished.durable_cell(finished.cells[0]) / "model.safetensors"
    path.unlink()
    path.symlink_to(secret)
    finished.sweepctl("pull")
    document = finished.verify()
    assert document["verified"] == 3, document
    for copy in finished.evidence.rglob("*"):
        if copy.is_file() and not copy.is_symlink():
            assert b"keep out" not in copy.read_bytes(), copy
