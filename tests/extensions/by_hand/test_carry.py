"""What a session may delete or write over where it carries to: what it carried there itself, nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sweepstack.extensions.by_hand.onbox import carry
from sweepstack.extensions.by_hand.onbox.carry import Carrier
from sweepstack.onbox.common import box_layout

CELL = f"{box_layout.DURABLE}/id/checkpoints/a/0123456789abcdef"


class Session:
    def __init__(self, folder: Path) -> None:
        self.work, self.out = folder / "work", folder / "out"
        self.carrier = Carrier(self.work, self.out, {"identity": "id"})
        (self.work / box_layout.HOME).mkdir(parents=True)
        (self.work / box_layout.JOURNAL).write_bytes(b"")

    def save(self, name: str, at: int, *, where: Path | None = None, cell: str = CELL) -> None:
        path = (where or self.work) / cell / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        os.utime(path, (at, at))

    def prune(self, name: str, cell: str = CELL) -> None:
        (self.work / cell / name).unlink()

    def carried(self, cell: str = CELL) -> set[str]:
        self.carrier.carry()
        return {path.name for path in (self.out / cell).glob("*")}


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path)


def test_progress_that_a_lagging_mount_shows_late_is_kept(session: Session) -> None:
    """An earlier session's checkpoint, which this one began without."""
    session.save("step-900", 50, where=session.out)
    session.save("step-100", 100)
    assert session.carried() == {"step-100", "step-900"}
    session.save("step-200", 200)
    session.prune("step-100")
    session.save("step-800", 60, where=session.out)  # shown later still
    assert session.carried() == {"step-200", "step-800", "step-900"}


def test_a_checkpoint_that_the_job_pruned_goes_with_a_newer_one(session: Session) -> None:
    session.save("step-100", 100)
    assert session.carried() == {"step-100"}
    session.save("step-200", 200)
    session.prune("step-100")
    assert session.carried() == {"step-200"}


def test_one_that_went_on_from_the_folder_is_pruned_too(session: Session) -> None:
    session.save("step-100", 100, where=session.out)
    session.save("step-100", 100)
    assert session.carried() == {"step-100"}
    session.save("step-200", 200)
    session.prune("step-100")
    assert session.carried() == {"step-200"}


def test_nothing_goes_without_a_newer_one_of_the_same_cell(session: Session) -> None:
    session.save("step-100", 100)
    session.save("step-900", 900, cell=CELL.replace("/a/", "/b/"))
    assert session.carried() == {"step-100"}
    session.prune("step-100")
    assert session.carried() == {"step-100"}, "the folder of the session was emptied: this is the only copy"
    session.save("step-50", 50)
    assert session.carried() == {"step-50", "step-100"}, "an older one replaces nothing"


def test_those_of_a_sealed_cell_go_with_the_job_s(session: Session) -> None:
    session.save("step-100", 100)
    assert session.carried() == {"step-100"}
    session.prune("step-100")
    line = json.dumps({"event": "cell-sealed", "cell": "a"}).encode() + b"\n"
    (session.work / box_layout.JOURNAL).write_bytes(line)
    assert session.carried() == set()


def test_half_of_a_file_takes_no_whole_one_away(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job writes its checkpoint in place while it is carried."""
    session.save("last.ckpt", 100)
    session.carried()
    session.save("last.ckpt", 200)
    copied = carry._copied

    def meanwhile(path: Path, part: Path) -> str:
        sha256 = copied(path, part)
        with path.open("a") as handle:
            handle.write("the rest")
        return sha256

    monkeypatch.setattr(carry, "_copied", meanwhile)
    assert session.carried() == {"last.ckpt"}
    assert session.carrier.changing == [f"{CELL}/last.ckpt"]
    assert (session.out / CELL / "last.ckpt").stat().st_mtime == 100
    monkeypatch.undo()
    assert session.carried() == {"last.ckpt"}
    assert (session.carrier.changing, (session.out / CELL / "last.ckpt").read_text()) == ([], "last.ckptthe rest")


def test_a_log_that_was_rotated_leaves_what_was_carried(session: Session) -> None:
    log = session.work / box_layout.PATROL
    log.write_text("one\ntwo\n")
    session.carried()
    log.write_text("three\n")
    session.carried()
    log.write_text("three\nfour\n")
    session.carried()
    assert (session.out / box_layout.PATROL).read_text() == "three\nfour\n"
    kept = session.out / "superseded" / f"{box_layout.PATROL}-1"
    assert [path.read_text() for path in kept.parent.iterdir()] == ["one\ntwo\n"]


def test_what_was_emptied_is_filled_again(session: Session) -> None:
    """A record of what was carried is no proof that it is there."""
    session.save("step-100", 100)
    session.carried()
    (session.out / CELL / "step-100").unlink()
    session.carrier = Carrier(session.work, session.out, {"identity": "id"})
    assert session.carried() == {"step-100"}
