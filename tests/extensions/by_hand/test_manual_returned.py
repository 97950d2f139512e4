"""What a folder that came back may not do: hold a command for ever, or bring in what no session wrote."""

from __future__ import annotations

import os
import shutil
import signal
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sweepstack.extensions.by_hand import returns
from sweepstack.extensions.by_hand.onbox.returned import MARK, SESSION
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import Unreachable
from tests.extensions.by_hand.test_manual_sessions import HandSite, back, site  # noqa: F401

DEEP = "[" * 200_000
"""JSON that no parser gets to the end of."""


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    def late(*_: object) -> None:
        raise AssertionError(f"it still waits after {seconds} s")

    former = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)


def test_a_mark_that_does_not_read_is_no_mark(back: HandSite) -> None:  # noqa: F811
    mark = back.returned / back.native_id / MARK
    whole = mark.read_bytes()
    (mark.parent / SESSION).write_text(DEEP)
    assert back.states() == {"a": "sealed"}
    for text in (DEEP, "", " " * (1 << 20) + whole.decode()):
        mark.write_text(text)
        with pytest.raises(Unreachable, match="Put it back: it is not lost"):
            back.channel  # noqa: B018 - opening it is the look
    mark.unlink()
    os.mkfifo(mark)
    with at_most(20), pytest.raises(Unreachable, match="Put it back: it is not lost"):
        back.channel  # noqa: B018


def test_a_link_in_a_copy_is_not_followed(back: HandSite) -> None:  # noqa: F811
    for path in (box_layout.JOURNAL, box_layout.HOME, box_layout.DURABLE, "mnt"):
        place, elsewhere = back.returned / back.native_id / path, back.folder / "elsewhere"
        place.rename(elsewhere)
        place.symlink_to(elsewhere)
        with pytest.raises(Unreachable, match="a link"):
            back.channel  # noqa: B018
        place.unlink()
        elsewhere.rename(place)
        assert back.states() == {"a": "sealed"}, path


def test_only_logs_come_back_beside_the_journal(back: HandSite) -> None:  # noqa: F811
    copy, private = back.returned / back.native_id, back.folder / "private"
    private.mkdir()
    (private / "key").write_text("of this computer")
    logs = copy / box_layout.SETUP_LOGS
    shutil.rmtree(logs, ignore_errors=True)
    logs.symlink_to(private)
    record = f"{box_layout.HOME}/provenance/{'0' * 64}.json"
    for place, text in ((back.root, '{"git": 1}'), (copy, '{"git": "edited"}')):
        (place / record).parent.mkdir(exist_ok=True)
        (place / record).write_text(text)
    assert back.states() == {"a": "sealed"}
    assert not (back.root / box_layout.SETUP_LOGS / "key").exists()
    assert (back.root / record).read_text() == '{"git": 1}', "what this computer wrote of the code that it shipped"


def test_a_part_of_an_archive_starts_nothing(back: HandSite) -> None:  # noqa: F811
    """Cut between two files, in the middle of a file, and before the first."""
    archive = back.away / "in" / f"box-0.{back.native_id}.tar"
    archive.parent.mkdir()
    with tarfile.open(archive, "w") as packed:
        packed.add(back.carried, arcname=back.native_id)
    with tarfile.open(archive) as packed:
        starts = [member.offset for member in packed]
    for size in sorted((starts[len(starts) // 2], archive.stat().st_size // 3, 0), reverse=True):
        os.truncate(archive, size)
        done = back.run("--out", "out-2", "--work", "work-2", "--from", "in")
        assert (done.returncode, "is no whole archive" in done.stderr) == (2, True), done.stderr


def test_a_file_of_the_code_is_replaced_and_not_written_into(back: HandSite) -> None:  # noqa: F811
    work = back.away / "work" / back.native_id / box_layout.HOME
    code = next(path for path in work.rglob("code/**/train.sh"))
    mine = back.folder / "mine"
    mine.write_text("a file of the person")
    code.unlink()
    code.symlink_to(mine)
    back.up("a", "b")
    back.session()
    assert mine.read_text() == "a file of the person"


def test_a_journal_of_another_box_is_not_taken_in(site: HandSite) -> None:  # noqa: F811
    site.up("a")
    site.session()
    copy = site.bring_back()
    queue = site.root / box_layout.QUEUE
    given = queue.read_bytes()
    queue.write_bytes(given.replace(b'"cell":"a"', b'"cell":"b"'))
    with pytest.raises(Unreachable, match=r"its journal is of another box\. It speaks of a, which"):
        site.channel  # noqa: B018 - opening it is the look
    assert not (site.root / box_layout.JOURNAL).exists(), "the box's own journal can still be taken in"
    assert copy.is_dir()
    queue.write_bytes(given)
    assert site.states() == {"a": "sealed"}


def test_a_log_that_comes_back_shorter_takes_no_longer_one_away(tmp_path: Path) -> None:
    copy, box = tmp_path / "copy", tmp_path / "box"
    log = box_layout.RUNNER_LOG

    def came(text: str, at: int) -> list[str]:
        path = copy / log
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (at, at))
        returns._bring_logs(copy, box)
        kept = box / "superseded" / box_layout.HOME
        return [(box / log).read_text(), *(one.read_text() for one in sorted(kept.glob("*")))]

    assert came("one\ntwo\n", 5) == ["one\ntwo\n"]
    assert came("one\n", 6) == ["one\ntwo\n"], "half of it is synchronized"
    assert came("one\ntwo\nthree\n", 4) == ["one\ntwo\nthree\n"]
    assert came("new\n", 3) == ["new\n", "one\ntwo\nthree\n"], "of another session"
    assert came("neu\n", 2) == ["neu\n", "one\ntwo\nthree\n", "new\n"], "of the same length"
