"""Two creates of one tag on one machine: the second waits, and nothing is rented when it can't."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sweepstack.onbox.common.errors import PlatformError
from sweepstack.onbox.host.platform import Wait
from sweepstack.platforms.common.tag_lock import hold_tag_lock

HOLD = """
import sys
from sweepstack.onbox.host.platform import Wait
from sweepstack.platforms.common.tag_lock import hold_tag_lock
with hold_tag_lock("acme", "me", sys.argv[1], Wait(20)):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def test_another_process_keeps_the_tag_until_it_ends_however_it_ends() -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, "tag-1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with hold_tag_lock("acme", "me", "tag-2", Wait(20)), hold_tag_lock("acme", "you", "tag-1", Wait(20)):
        pass  # other tags and accounts are other locks
    with pytest.raises(PlatformError, match="nothing was rented"), hold_tag_lock("acme", "me", "tag-1", Wait(0.2)):
        raise AssertionError("two at once")
    holder.kill()
    holder.wait(120)
    with hold_tag_lock("acme", "me", "tag-1", Wait(20)) as memory:
        assert not memory.first


def test_who_is_the_first_is_known_once_the_lock_is_held() -> None:
    with hold_tag_lock("acme", "me", "new", Wait(20)) as memory:
        assert memory.first
    with hold_tag_lock("acme", "me", "new", Wait(20)) as memory:
        assert not memory.first


def test_a_cancel_ends_the_waiting() -> None:
    wait = Wait(20)
    wait.cancelled.set()
    with (
        hold_tag_lock("acme", "me", "tag", Wait(20)),
        pytest.raises(PlatformError, match="cancelled"),
        hold_tag_lock("acme", "me", "tag", wait),
    ):
        raise AssertionError("two at once")


def test_a_folder_that_cannot_be_written_rents_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    with pytest.raises(PlatformError, match="nothing was rented"), hold_tag_lock("acme", "me", "tag", Wait(1)):
        raise AssertionError("without a lock")
