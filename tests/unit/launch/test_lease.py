"""A box with a lease: what it is told, who watches it, and what renews it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from sweepstack.channel import prefetch
from sweepstack.launch.launch import launch
from sweepstack.onbox import start_lease
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.locks import take
from sweepstack.onbox.runner.records import Journal
from tests.unit.launch.support import Site

LEASE = {"seconds": 7200.0, "kills": [], "how": {"by": "ssh", "native": "off", "command": "sh -c true"}}


def eventually(there: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not there():
        assert time.monotonic() < end
        time.sleep(0.02)


def watched(site: Site) -> bool:
    return site.channel.lock_held(box_layout.LEASE_LOCK)


def test_it_is_told_and_watched_and_each_up_renews_it(site: Site) -> None:
    site.launch("one", lease=LEASE)
    told = json.loads(site.channel.read(box_layout.SPEC))["lease"]
    assert told == {**LEASE, "how": {**LEASE["how"], "path": os.environ["PATH"]}}  # type: ignore[dict-item]
    eventually(lambda: watched(site))
    looked = Path(site.root) / box_layout.LOOKED
    os.utime(looked, (1, 1))
    site.drained()
    site.launch("one", lease=LEASE)
    assert looked.stat().st_mtime > 1
    assert watched(site), "the watcher outlives the runner"


def test_a_drained_box_that_gets_a_lease_is_watched_from_then_on(site: Site) -> None:
    site.launch("one")
    site.drained()
    assert not watched(site)
    assert site.channel.touch(box_layout.LOOKED) is False, "a look makes no file on a box without a lease"
    assert not (site.root / box_layout.LOOKED).exists()
    done = site.launch("one", lease=LEASE)
    assert not done.started_runner
    eventually(lambda: watched(site))


def test_an_up_that_meets_a_try_to_stop_starts_the_runner_once_it_failed(site: Site) -> None:
    """The try holds the runner's lock, and reads no new line of the queue: without a runner its cells would wait."""
    site.launch("one")
    site.drained()
    lock = os.open(site.root / box_layout.RUNNER_LOCK, os.O_RDWR)
    assert take(lock, 60)
    journal = Journal(site.root / box_layout.JOURNAL)
    journal.append("box-off", native="stop", command="POST https://vendor.example", why="lease")

    def fails(said: str) -> None:
        """Once the launch waits for it."""
        if "stop itself" in said and not tried:
            tried.append(said)
            journal.append("box-off-failed", native="stop", reason="401", tries=1, again=60.0, why="lease")
            os.close(lock)

    tried: list[str] = []
    assert launch(site.spec("one", "two", lease=LEASE), site.channel, site.store, progress=fails).started_runner
    assert tried


def test_the_answer_to_a_touch_is_not_kept() -> None:
    answers = prefetch.Answers()
    answers.keep([prefetch.touch(box_layout.LOOKED)], [prefetch.PrefetchedAnswer(b"", True)])
    assert not answers


def test_a_box_that_is_started_again_by_itself_is_watched(site: Site) -> None:
    """Its machine failed and came back: there is no runner, and no command knows of it."""
    site.launch("one", lease=LEASE)
    site.drained()
    for process in site.channel.processes():
        site.channel.terminate(process.pid)
    eventually(lambda: not watched(site))
    script = Path(site.root) / box_layout.ON_START
    subprocess.run([script], check=True, timeout=60)
    eventually(lambda: watched(site))
    (process,) = site.channel.processes()
    assert "--watch" in process.argv


def test_the_start_command_of_a_launched_box_only_sees_to_its_watcher(site: Site) -> None:
    """Its lease is long over, and runner and watcher were killed at once: a new watcher is started, once."""
    site.launch("one", lease=LEASE)
    site.drained()
    for process in site.channel.processes():
        site.channel.terminate(process.pid)
    eventually(lambda: not watched(site))
    asked = {"home": str(site.root / box_layout.HOME), "seconds": 0.0, "gone": 0.0, "key": "", "here": ""}
    timer = start_lease.Timer(**asked, requests=())
    with mock.patch.object(timer, "ask", side_effect=AssertionError("a box with a launch")):
        timer.look()
        eventually(lambda: watched(site))
        timer.watched = 0.0
        timer.look()
    assert len(site.channel.processes()) == 1


def test_an_up_waits_for_the_try_of_a_start_command_and_renews_its_lease_first(site: Site) -> None:
    """It holds the runner's lock, and there is neither a journal nor a runner yet."""
    home = site.root / box_layout.HOME
    start_lease.Timer(home=str(home), seconds=3600.0, gone=0.0)
    os.utime(home / "looked", (1, 1))
    lock = os.open(site.root / box_layout.RUNNER_LOCK, os.O_RDWR | os.O_CREAT)
    assert take(lock, 60)
    seen: list[float] = []
    waited: list[str] = []

    def waits(said: str) -> None:
        seen.append((home / "looked").stat().st_mtime)
        if "stop itself" in said and not waited:
            waited.append(said)
            os.close(lock)

    assert launch(site.spec("one", lease=LEASE), site.channel, site.store, progress=waits).started_runner
    assert waited
    assert seen[0] > 1, "else it would be stopped while code is sent to it"
