"""A box whose lease is over and that has nothing to do stops itself, and never before: the real runner and watcher."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweepstack.onbox.common.processes import Process, scan
from sweepstack.onbox.runner import lease, patrol
from sweepstack.onbox.runner import off as off_module
from sweepstack.onbox.runner.off import issue
from tests.onbox.harness import Box, alive, around, wait_for

KEY = "rpa_NEVER_IN_A_LOG"
YEAR = 365 * 86_400.0


def leased(box: Box, seconds: float = 0.5, *, kills: tuple[str, ...] = (), **more: Any) -> Path:
    """A box with a lease, whose stop leaves a mark."""
    mark = box.control / "off"
    how: dict[str, Any] = {
        "by": "ssh",
        "native": "power-off",
        "command": f"echo off >> {shlex.quote(str(mark))}",
        "gone_seconds": 0.1,
    }
    box.set(**({"lease": {"seconds": seconds, "how": how, "kills": list(kills)}, "off_again_seconds": [600]} | more))
    return mark


def looks(box: Box, until: Callable[[], bool]) -> None:
    """A command looks at the box again and again, as `touch` of the agent does."""

    def one() -> bool:
        os.utime(box.home / "looked")
        return until()

    (box.home / "looked").touch()
    wait_for(one, box.log)


def watcher(box: Box) -> list[int]:
    return [pid for pid in box.processes() if b"--watch" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]


def events(box: Box) -> list[str]:
    return [str(entry["event"]) for entry in box.journal().entries]


def off(box: Box, count: int = 1) -> list[Mapping[str, Any]]:
    wait_for(lambda: len(box.events("box-off-failed")) >= count, box.log)
    return box.events("box-off")


class Vendor(ThreadingHTTPServer):
    """A vendor's API: what was asked, and the answer to it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[dict[str, Any]] = []
        self.refuses: dict[str, int] = {}
        self.answer: tuple[int, dict[str, str], bytes] = (200, {}, b'{"id": "pod", "status": "EXITED"}')

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v2/pods/pod/action"


class _Handler(BaseHTTPRequestHandler):
    server: Vendor

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append({"path": self.path, "body": body, "headers": dict(self.headers)})
        code, headers, said = self.server.answer
        code = self.server.refuses.get(self.path, code)
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_POST

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def vendor() -> Iterator[Vendor]:
    with Vendor() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()


def keyed(box: Box, vendor: Vendor, **more: Any) -> None:
    request = {"method": "POST", "url": vendor.url, "body": {"action": "stop"}}
    how: dict[str, Any] = {"by": "key", "native": "stop", "key": "RUNPOD_API_KEY", "requests": [request]}
    how = {**how, "gone_seconds": 0.1}
    box.set(lease={"seconds": 0.3, "how": how | more, "kills": []}, off_again_seconds=[0.2, 600])


def test_a_drained_box_stops_itself_once_no_command_looked_for_so_long(box: Box) -> None:
    mark = leased(box)
    box.add("a")
    assert box.start().ended() == 0  # and the watcher outlives it
    event = off(box)[0]
    assert mark.read_text() == "off\n"
    assert (event["native"], event["why"]) == ("power-off", "lease")
    assert events(box)[-3:] == ["cell-sealed", "box-off", "box-off-failed"]
    assert box.events("box-off-failed")[0]["reason"].startswith("it was accepted")


def test_each_look_renews_it(box: Box) -> None:
    mark = leased(box, 3)
    box.add("a")
    assert box.start().ended() == 0
    end = time.monotonic() + 6
    looks(box, lambda: time.monotonic() > end)
    assert not mark.exists()
    off(box)
    assert mark.exists()


def test_a_cell_that_works_keeps_it_on(box: Box) -> None:
    mark = leased(box, 0.1, stall_seconds=600)
    held = box.hold("a")
    box.add_steps("a")
    runner = box.start()
    box.in_the_middle("a")
    time.sleep(1)
    assert not mark.exists()
    assert "box-off" not in events(box)
    held.unlink()
    assert runner.ended() == 0
    off(box)


def test_a_hung_queue_is_ended_and_then_the_box_stops(box: Box) -> None:
    mark = leased(box, 0.5, stall_seconds=0.6, patrol_seconds=0.2, grace_seconds=5)
    box.add("a", "sleep 600")
    box.add("b")
    assert box.start().ended() == 143
    off(box)
    assert mark.exists()
    stopped = box.events("runner-stopped")[0]
    assert (stopped["why"], stopped["reason"]) == ("lease", "each cell that runs is hung")
    assert list(box.processes(cells=True)) == []
    assert box.journal().cells["a"].state == "running", "a stop is no failure: the next runner goes on with it"


def test_a_queue_without_room_is_ended_too(box: Box) -> None:
    mark = leased(box, 0.5, min_free={"bytes": 1 << 60})
    box.add("a")
    assert box.start().ended() == 143
    off(box)
    assert mark.exists()
    assert box.events("runner-stopped")[0]["reason"] == "nothing runs, and nothing can start"


def test_it_stays_where_a_stop_wipes_what_is_nowhere_else_and_says_so_once(box: Box) -> None:
    mark = leased(box, 0.2, kills=("scratch", "data"))
    box.add("a")
    assert box.start().ended() == 0
    wait_for(lambda: bool(box.events("lease-over")), box.log)
    time.sleep(1)
    told = box.events("lease-over")
    assert [one["why"] for one in told] == ["a stop wipes scratch and data, where its journal and its logs are"]
    assert not mark.exists()
    assert box.state("a") == "sealed"


def test_it_stays_where_nothing_can_end_its_bill(box: Box) -> None:
    box.set(lease={"seconds": 0.2, "how": {}, "kills": []})
    box.add("a")
    assert box.start().ended() == 0
    wait_for(lambda: bool(box.events("lease-over")), box.log)
    assert "box-off" not in events(box)


def test_cells_that_outlive_a_killed_runner_keep_it_on(box: Box) -> None:
    mark = leased(box, 0.3)
    held = box.hold("a")
    box.add_steps("a")
    runner = box.start()
    box.in_the_middle("a")
    wait_for(lambda: bool(watcher(box)), box.log)
    runner.kill()
    wait_for(lambda: bool(box.events("lease-over")), box.log)
    assert box.events("lease-over")[0]["why"] == "cells still run, without a runner"
    assert not mark.exists()
    held.unlink()
    off(box)
    assert mark.exists()


def test_cells_that_a_killed_runner_left_and_that_do_nothing_are_ended(box: Box) -> None:
    mark = leased(box, 0.3, stall_seconds=1)
    box.add("a", "sleep 600")
    runner = box.start()
    box.pid("a")
    wait_for(lambda: bool(watcher(box)), box.log)
    runner.kill()
    off(box)
    assert mark.exists()
    assert list(box.processes(cells=True)) == []


def test_the_next_runner_has_a_watcher_of_its_own_and_there_is_one(box: Box) -> None:
    leased(box, 20)
    box.add("a")
    box.run("a")
    wait_for(lambda: len(watcher(box)) == 1, box.log)
    first = watcher(box)[0]
    box.add("b")
    box.run("b")
    wait_for(lambda: first not in watcher(box) and len(watcher(box)) == 1, box.log)
    box.set(lease=None)
    wait_for(lambda: not watcher(box), box.log)


def test_what_it_did_not_expect_ends_no_watcher(box: Box) -> None:
    """No runner is left that would start another one: the box would bill on."""
    box.set(lease={"seconds": 0.2, "how": {"by": "ssh"}, "kills": []}, off_again_seconds=[0.2] * 1000)
    box.add("a")
    assert box.start().ended() == 0
    wait_for(lambda: "the watcher goes on" in box.log(), box.log)
    mark = leased(box, 0.2)
    off(box)
    assert mark.exists()


def test_without_a_lease_no_watcher_starts(box: Box) -> None:
    box.add("a")
    box.run("a")
    assert watcher(box) == []
    assert not (box.home / "looked").exists()


def test_the_vendor_is_asked_with_its_own_key_and_asked_again(box: Box, vendor: Vendor) -> None:
    keyed(box, vendor)
    vendor.answer = 401, {}, f"no such key: {KEY}".encode()
    box.add("a")
    assert box.start(env={"RUNPOD_API_KEY": KEY}).ended() == 0
    off(box, 1)
    vendor.answer = 200, {}, b'{"id": "pod"}'
    assert off(box, 2)[0]["command"] == f"POST {vendor.url}"
    sent = vendor.asked[0]
    assert json.loads(sent["body"]) == {"action": "stop"}
    assert sent["headers"]["Authorization"] == f"Bearer {KEY}"
    assert "Python" not in sent["headers"]["User-Agent"]
    reasons = [one["reason"] for one in box.events("box-off-failed")]
    assert reasons[0] == "the vendor answered 401: no such key: ***"
    assert "accepted, and the box still runs" in reasons[-1]
    assert not [path for path in box.root.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


def test_the_vendor_is_asked_though_the_runner_s_files_went_meanwhile(box: Box, vendor: Vendor) -> None:
    """As with a disk that can't be read any more: what asks is in memory by then."""
    change = """
        from pathlib import Path
        from sweepstack.onbox.runner import lease
        look = lease.Watcher._round
        def once(self):
            look(self)
            Path(lease.__file__).with_name("vendor.py").unlink(missing_ok=True)
        lease.Watcher._round = once
    """
    keyed(box, vendor)
    box.add("a")
    assert box.start(env={"RUNPOD_API_KEY": KEY}, script=around(box, change)).ended() == 0
    off(box)
    assert not (box.runner / "sweepstack" / "onbox" / "runner" / "vendor.py").exists()
    assert json.loads(vendor.asked[0]["body"]) == {"action": "stop"}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((302, {"Location": "/elsewhere"}, b""), "the vendor answered 302"),
        ((200, {}, b'{"success": false, "msg": "no"}'), "the vendor refused it"),
        ((200, {}, b'{"errors": [{"message": "no"}], "data": null}'), "the vendor refused it"),
        ((200, {}, b"<html>"), "can't be read"),
    ],
    ids=["redirect", "refusal", "errors", "no-json"],
)
def test_an_answer_that_is_no_yes(
    box: Box, vendor: Vendor, answer: tuple[int, dict[str, str], bytes], reason: str
) -> None:
    keyed(box, vendor)
    vendor.answer = answer
    box.add("a")
    assert box.start(env={"RUNPOD_API_KEY": KEY}).ended() == 0
    off(box)
    assert reason in box.events("box-off-failed")[0]["reason"]
    assert {one["path"] for one in vendor.asked} == {"/v2/pods/pod/action"}, "the key went elsewhere"


def test_the_second_request_is_sent_where_the_first_one_is_refused(box: Box, vendor: Vendor) -> None:
    other = {"method": "POST", "url": vendor.url.replace("/v2/pods/pod/action", "/graphql"), "body": {"query": "q"}}
    keyed(box, vendor, requests=[{"method": "POST", "url": vendor.url, "body": {"action": "stop"}}, other])
    vendor.refuses["/v2/pods/pod/action"] = 403
    box.add("a")
    assert box.start(env={"RUNPOD_API_KEY": KEY}).ended() == 0
    assert off(box, 1)[0]["command"] == f"POST {vendor.url}, else POST {other['url']}"
    assert [one["path"] for one in vendor.asked[:2]] == ["/v2/pods/pod/action", "/graphql"]
    assert json.loads(vendor.asked[1]["body"]) == {"query": "q"}
    assert "accepted, and the box still runs" in box.events("box-off-failed")[0]["reason"]
    vendor.refuses["/graphql"] = 500
    off(box, 2)
    said = box.events("box-off-failed")[1]["reason"]
    assert "answered 403" in said, said
    assert "; then the vendor answered 500" in said, said


def test_without_the_key_it_says_which_is_missing(box: Box, vendor: Vendor) -> None:
    keyed(box, vendor, key="NO_SUCH_KEY_HERE")
    box.add("a")
    assert box.start().ended() == 0
    off(box)
    assert box.events("box-off-failed")[0]["reason"].startswith("NO_SUCH_KEY_HERE is neither in")
    assert vendor.asked == []


@pytest.mark.parametrize("jump", [-YEAR, YEAR], ids=["back", "forward"])
def test_a_clock_that_moves_by_a_year_neither_ends_nor_prolongs_a_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """Rounds of 100 s and a lease of 1000 s: the clock moves, a look comes by the new clock, and it moves back."""
    home = tmp_path / "box" / "data" / "sweep"
    home.mkdir(parents=True)
    needed = {"schema": 1, "identity": "i", "box": "b", "native_id": "n", "generation": 1, "durable": "mnt"}
    how = {"by": "ssh", "native": "off", "command": "exit 1"}
    spec = {**needed, "python": "python3", "artifacts": [], "lease": {"seconds": 1000, "how": how, "kills": []}}
    (home / "spec.json").write_text(json.dumps(spec | {"off_again_seconds": [600.0]}))
    boot, wall, moves, looks_at, tried = [0.0], [time.time()], {300: jump, 800: -jump}, 500, []

    def pause(_: float) -> None:
        boot[0] += 100.0
        wall[0] += 100.0 + moves.get(int(boot[0]), 0.0)
        if boot[0] == looks_at:
            os.utime(home / "looked", (wall[0], wall[0]))
        assert boot[0] < 5000, "it never ends"

    def stop(*_: Any, **__: Any) -> bool:
        tried.append(boot[0])
        (home / "spec.json").write_text(json.dumps(spec | {"lease": None}))
        return True

    for module in (lease, off_module, patrol):
        monkeypatch.setattr(module, "boot_time", lambda: boot[0])
        shown = SimpleNamespace(sleep=pause, time=lambda: wall[0], time_ns=lambda: int(wall[0] * 1e9))
        monkeypatch.setattr(module, "time", shown)
    monkeypatch.setattr(lease, "issue", stop)
    assert lease.Watcher(home).run() == 0
    assert tried == [looks_at + 1000.0]


@pytest.mark.parametrize("sign", ["writes", "gpu"])
def test_a_cell_without_a_runner_that_hardly_computes_is_not_ended(
    box: Box, sign: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The patrol would not call it hung: it writes a line now and then, or it waits for a GPU that computes."""
    shown = iter(range(1000))
    monkeypatch.setattr(patrol, "usage", lambda _: {})
    monkeypatch.setattr(patrol, "gpus", lambda: [{"util": 90 if sign == "gpu" else 0}])
    process, left = Process(9, 1, 9, 9, "1", frozenset()), patrol.LeftBehind()
    folder = box.home / "cells" / "a" / "1"
    folder.mkdir(parents=True)
    now = [0.0]
    monkeypatch.setattr(patrol, "boot_time", lambda: now[0])
    for _ in range(10):
        if sign == "writes":
            (folder / "log.txt").write_text("x" * next(shown))
        now[0] += 50.0
        assert not left.idle([process], [folder], 100.0)
    monkeypatch.setattr(patrol, "gpus", list)
    found = []
    for _ in range(3):
        now[0] += 50.0
        found.append(left.idle([process], [folder], 100.0))
    assert found == [False, True, True], "since it does nothing any more"


def stopped(box: Box, **more: Any) -> tuple[Path, Any]:
    """A box whose lease is over as soon as it may be, and that judges what hangs after seconds."""
    more = {"stall_seconds": 0.5, "stuck_seconds": 0.5, "grace_seconds": 1, "patrol_seconds": 0.2, **more}
    mark = leased(box, 0.3, **more)
    return mark, box.start()


def test_a_runner_that_hangs_is_ended_when_nothing_works_and_then_the_box_stops(box: Box) -> None:
    """It holds runner.lock for ever: no one else could end the bill."""
    box.add("a", "sleep 600")
    mark, runner = stopped(box)
    box.pid("a")
    wait_for(lambda: bool(watcher(box)), box.log)
    os.kill(runner.pid, signal.SIGSTOP)
    off(box)
    assert mark.exists()
    assert runner.ended() == -signal.SIGKILL
    assert list(box.processes(cells=True)) == []
    (first, *_) = box.events("lease-over")
    assert first["why"].startswith("its runner hung for "), first
    assert box.journal().cells["a"].state == "running", "the next runner goes on with it"


WORK = "n=0; while [ $n -lt 3000 ]; do n=$((n+1)); done; sleep 0.1"
"""A cell that computes, and leaves the core to other tests now and then."""


@pytest.mark.parametrize("sign", ["log", "cpu"])
def test_a_cell_that_works_keeps_a_runner_that_hangs(box: Box, sign: str) -> None:
    busy = "while [ -e {} ]; do {}; done".replace("{}", shlex.quote(str(box.hold("a"))), 1)
    box.add("a", busy.replace("{}", "echo step; sleep 0.05" if sign == "log" else WORK))
    mark, runner = stopped(box, stall_seconds=3, stuck_seconds=3)
    box.pid("a")
    wait_for(lambda: bool(watcher(box)), box.log)
    os.kill(runner.pid, signal.SIGSTOP)
    time.sleep(8)  # more than twice what ends one whose cells do nothing
    assert alive(runner.pid)
    assert not mark.exists()
    (box.control / "hold-a").unlink()
    off(box)
    assert mark.exists()


def test_a_runner_that_hangs_where_the_box_stays_is_told_and_left_alone(box: Box) -> None:
    box.add("a", "sleep 600")
    mark = leased(box, 0.3, kills=("data",), stall_seconds=0.5, stuck_seconds=0.5)
    runner = box.start()
    box.pid("a")
    wait_for(lambda: bool(watcher(box)), box.log)
    os.kill(runner.pid, signal.SIGSTOP)
    note = box.home / "lease.lock"
    wait_for(lambda: note.exists() and "its runner hung" in note.read_text(), box.log)
    assert alive(runner.pid)
    assert not mark.exists()


def test_a_runner_that_can_not_begin_leaves_a_watcher(box: Box) -> None:
    """It ended the one before it, as each runner does: without its own, the box would bill on for ever."""
    mark = leased(box)
    box.set(durable="mnt/nowhere")
    assert box.start().ended() == 2
    off(box)
    assert mark.exists()


def test_what_was_frozen_with_its_watcher_does_not_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A box that was paused or asleep for hours: its runner had no time to show its pulse."""
    now = [1000.0]
    monkeypatch.setattr(patrol, "boot_time", lambda: now[0])
    (tmp_path / "runner.pid").write_text('{"pid": 999999999, "start_ticks": "1"}')
    (tmp_path / patrol.PULSE).touch()
    seen = patrol.Hang(tmp_path)
    for _ in range(5):
        now[0] += 15
        seen.look(list, list)
    now[0] += 9 * 3600
    seen.look(list, list)
    assert seen.why(600, 600) == ""
    for _ in range(50):
        now[0] += 15
        seen.look(list, list)
    assert seen.why(600, 600).startswith("its runner hung for ")
    patrol.Beat(tmp_path)()
    now[0] += 15
    seen.look(list, list)
    assert seen.why(600, 600) == ""


def test_a_copy_to_a_bucket_is_work_though_it_runs_in_a_session_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As rclone does, which the runner starts: a runner that can't show its pulse is not ended under it."""
    now = [1000.0]
    monkeypatch.setattr(patrol, "boot_time", lambda: now[0])
    monkeypatch.setattr(patrol, "gpus", list)
    words = "['cat', '/dev/zero'], stdout=subprocess.DEVNULL, start_new_session=True"
    program = f"import subprocess; subprocess.Popen({words}).wait(); input()"
    runner = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, start_new_session=True)

    def copies() -> list[int]:
        return [
            one.pid
            for one in scan()
            if one.parent == runner.pid and one.session == one.pid and one.argv[:1] == ("cat",)
        ]

    try:
        wait_for(lambda: bool(copies()), lambda: "nothing is copied")
        copy = copies()[0]
        (tmp_path / "runner.pid").write_text(json.dumps({"pid": runner.pid, "start_ticks": "1"}))
        (tmp_path / patrol.PULSE).touch()
        seen = patrol.Hang(tmp_path)
        for _ in range(5):
            read = patrol._copied(copy)
            wait_for(
                lambda read=read: patrol._copied(copy) > read + 60 * patrol.IDLE_BYTES, lambda: "the copy stands still"
            )
            now[0] += 60
            seen.look(list, list)
            assert seen.why(60, 60) == ""
        os.kill(copy, signal.SIGKILL)
        wait_for(lambda: not alive(copy), lambda: "the copy goes on")
        for _ in range(5):
            now[0] += 60
            seen.look(list, list)
        assert seen.why(60, 60).startswith("its runner hung for ")
    finally:
        for pid in copies():
            os.kill(pid, signal.SIGKILL)
        runner.kill()
        runner.wait()


def test_an_attempt_that_was_put_aside_after_a_power_cut_keeps_no_box_on(box: Box) -> None:
    mark = leased(box)
    (box.home / "cells" / "a" / "1.unrecorded-5").mkdir(parents=True)
    box.add("a")
    assert box.start().ended() == 0
    off(box)
    assert mark.exists()


def test_a_try_leaves_no_file_open(tmp_path: Path) -> None:
    """A box that can't stop tries for ever: a file for each try would end its watcher in the end."""
    home = tmp_path / "box" / "data" / "sweep"
    home.mkdir(parents=True)
    first = _next_files()
    for number in range(3):
        assert issue(home, {"by": "ssh", "native": "off", "command": "exit 1"}, bool, number, 0.0, why="lease")
    assert _next_files() == first


def _next_files() -> list[int]:
    """The numbers that the next files which this process opens would get."""
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(4)]
    for file in files:
        os.close(file)
    return files


def test_without_a_file_or_a_process_it_tries_again_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a watcher ended, and with it the last that could end the bill."""
    home = tmp_path / "box" / "data" / "sweep"
    home.mkdir(parents=True)
    needed = {"schema": 1, "identity": "i", "box": "b", "native_id": "n", "generation": 1, "durable": "mnt"}
    how = {"by": "ssh", "native": "off", "command": "exit 1"}
    spec = {**needed, "python": "python3", "artifacts": [], "lease": {"seconds": 0.2, "how": how, "kills": []}}
    (home / "spec.json").write_text(json.dumps(spec | {"off_again_seconds": [600.0]}))
    said: list[str] = []

    def pause(_: float) -> None:
        """Between two rounds: at first no file can be opened; then it can; then the box has no lease any more."""
        note = (home / "lease.lock").read_text().strip()
        said.append(note)
        clock[0] += 100.0
        if len(said) == 2:
            opens[0] = False
        elif (home / "journal.jsonl").exists() and "box-off-failed" in (home / "journal.jsonl").read_text():
            (home / "spec.json").write_text(json.dumps(spec | {"lease": None}))
        assert len(said) < 20

    clock, opens = [0.0], [True]
    real = lease.issue

    def no_file(*words: Any, **more: Any) -> bool:
        if opens[0]:
            raise OSError(24, "Too many open files")
        return real(*words, **more)

    for module in (lease, off_module):
        monkeypatch.setattr(module, "boot_time", lambda: clock[0])
    monkeypatch.setattr(lease, "issue", no_file)
    monkeypatch.setattr(lease, "time", SimpleNamespace(sleep=pause))
    assert lease.Watcher(home).run() == 0
    entries = [json.loads(line) for line in (home / "journal.jsonl").read_text().splitlines()]
    assert [entry["event"] for entry in entries] == ["lease-over", "box-off", "box-off-failed"]
    assert "Too many open files" in entries[0]["why"]
    assert any("Too many open files" in note for note in said), said
    assert (home / "lease.lock").read_text().strip() == ""
