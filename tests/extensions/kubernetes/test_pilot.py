"""What a pod's container runs, with the real runner and real cells; and what one pod says of another."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sweepstack.channel import agent_source
from sweepstack.extensions.kubernetes import jobs
from sweepstack.extensions.kubernetes.onbox import api_server, pilot, worker_state
from sweepstack.extensions.kubernetes.workers import SHIPPED, pilot_files
from sweepstack.onbox.common.errors import NotAuthorized, Unreachable
from sweepstack.onbox.common.processes import BOX_ID_VARIABLE, WORKER_VARIABLE
from tests.extensions.kubernetes.made import BOX, RUNS, ended, node, pod
from tests.onbox.harness import INTERPRETER, SECONDS, Box

UID = "6f1f9a7e-0000-4000-8000-00000000000a"
OTHER = "6f1f9a7e-0000-4000-8000-00000000000b"


class Pod:
    """A box on this machine, and a process that has what a pod's container has."""

    def __init__(self, box: Box) -> None:
        self.box, self.folder = box, box.home / "pilot-test"
        for path, source, _ in pilot_files():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, self.folder / path)
        state = [INTERPRETER, str(self.folder / "worker_state.py"), box.native_id, str(box.home)]
        box.set(shared={"worker_state": state}, min_free={"bytes": 0, "inodes": 0}, patrol_seconds=30)
        self.process: subprocess.Popen[bytes] | None = None

    def env(self, uid: str) -> dict[str, str]:
        given = {pilot.POD_UID: uid, pilot.POD_NAME: "p-0", pilot.BOX: self.box.native_id, "HOME": str(self.box.root)}
        return {**given, "PATH": f"/opt/of-the-image/bin:{os.environ['PATH']}", "A_SECRET": "x"}

    def argv(self, seconds: int = 60, longest: int = 60) -> list[str]:
        program = [INTERPRETER, "-E", "-s", str(self.folder / "pilot.py")]
        return [*program, str(self.box.home), "runner-test/runner.py", str(seconds), str(longest)]

    def start(self, uid: str = UID) -> subprocess.Popen[bytes]:
        self.process = subprocess.Popen(self.argv(), env=self.env(uid), stderr=subprocess.PIPE)
        return self.process

    def ended(self) -> int:
        assert self.process is not None
        _, said = self.process.communicate(timeout=SECONDS)
        self.said = said.decode()
        return self.process.returncode

    def events(self) -> list[tuple[str, str]]:
        path = self.box.home / "journal.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(entry["event"], entry.get("worker", "")) for entry in map(json.loads, lines)]


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Pod]:
    box = Box(tmp_path)
    found = Pod(box)
    (box.home / "jobs").mkdir()
    yield found
    if found.process is not None and found.process.poll() is None:
        found.process.kill()
        found.process.wait()
    box.clean()


def until(what: Callable[[], Any]) -> None:
    ends = time.monotonic() + SECONDS
    while not what():
        assert time.monotonic() < ends
        time.sleep(0.02)


def test_a_pod_runs_one_worker_of_its_own_name_until_nothing_is_left(there: Pod) -> None:
    there.box.add("c0", "env > {out}/env; echo 1 > {out}/result.json", n=0)
    there.start()
    assert there.ended() == 0, there.said
    assert {worker for event, worker in there.events() if event == "cell-sealed"} == {f"{UID}.0"}
    assert there.events()[-1] == ("runner-stopped", f"{UID}.0")
    record = json.loads((there.box.home / "workers" / f"{UID}.0" / "worker.json").read_bytes())
    assert (record["job"], record["try"]) == (UID, "0")
    env = next((there.box.home / "cells").glob("*/1/out/env"), None) or next(there.box.volume.rglob("env"))
    assert "/opt/of-the-image/bin" in env.read_text()
    assert "A_SECRET" not in env.read_text()


def test_a_worker_has_its_marks_from_the_start_so_that_it_need_not_start_itself_anew(there: Pod) -> None:
    said = there.box.home / "said"
    runner = there.box.home / "runner-test" / "runner.py"
    runner.write_text(f"import json, os\nopen({str(said)!r}, 'a').write(json.dumps(dict(os.environ)))\n")
    there.start()
    assert there.ended() == 0, there.said
    env = json.loads(said.read_text())
    assert (env[WORKER_VARIABLE], env[BOX_ID_VARIABLE]) == (f"{UID}.0", there.box.native_id)


def test_a_pod_that_is_told_to_end_saves_and_asks_for_another(there: Pod) -> None:
    saves = "trap 'echo saved > {control}/saved; exit 143' TERM; touch {control}/on; while :; do sleep 0.1; done"
    there.box.add("c0", saves.replace("{control}", str(there.box.control)), n=0)
    process = there.start()
    until((there.box.control / "on").exists)
    process.send_signal(signal.SIGTERM)
    assert there.ended() == pilot.AGAIN, there.said
    assert (there.box.control / "saved").exists()
    assert there.events()[-1] == ("runner-stopped", f"{UID}.0")


def test_no_worker_begins_on_a_box_whose_workers_were_ended(there: Pod) -> None:
    there.box.add("c0", "true", n=0)
    closed = there.box.home / pilot.CLOSED
    closed.parent.mkdir(exist_ok=True)
    closed.touch()
    there.start()
    assert there.ended() == 0
    assert "its workers were ended" in there.said
    assert there.events() == []


def test_a_record_of_a_pods_end_frees_its_cell_and_without_one_it_stays(there: Pod) -> None:
    hold = there.box.control / "hold"
    hold.touch()
    run = f"echo 1 > {{out}}/result.json; while [ -e {hold} ]; do sleep 0.1; done"
    there.box.add("c0", run, n=0)
    process = there.start(OTHER)
    until(lambda: ("cell-started", f"{OTHER}.0") in there.events())
    process.kill()
    process.wait()
    # On this machine the worker itself runs on, as on a node that was lost: only its record is of another host.
    record = there.box.home / "workers" / f"{OTHER}.0" / "worker.json"
    known = json.loads(record.read_bytes())
    subprocess.run(["kill", "-9", str(known["pid"])], check=True)
    record.write_text(json.dumps({**known, "boot": "another", "machine": ""}))
    hold.unlink()
    there.start(UID)
    assert there.ended() == 0
    assert ("cell-sealed", f"{UID}.0") not in there.events()
    said = pod(ended(137, "OOMKilled"), phase="Failed")
    said["metadata"]["uid"] = OTHER
    path = there.box.home / worker_state.RECORDS / f"{OTHER}.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(worker_state.record_of(said, "its node says so"))
    there.start("6f1f9a7e-0000-4000-8000-00000000000c")
    assert there.ended() == 0
    assert ("worker-ended", f"{OTHER}.0") in there.events()
    assert ("cell-sealed", "6f1f9a7e-0000-4000-8000-00000000000c.0") in there.events()


def waiting(home: Path, *before: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """The shell of a worker's pod, whose files are not there. `before`: words that make it the first process there."""
    argv = [*before, "sh", "-c", jobs.shell(str(home))]
    return subprocess.Popen(argv, env=env, stderr=subprocess.PIPE, text=True)


def test_a_pod_waits_for_its_command_or_is_told_to_end(there: Pod) -> None:
    process = waiting(there.box.home)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    part = there.box.home / "part"
    part.write_text("exec sh -c 'exit 7'\n")
    part.rename(there.box.home / pilot.START)
    assert process.wait(SECONDS) == 7
    (there.box.home / pilot.START).unlink()
    told = waiting(there.box.home)
    time.sleep(0.3)
    told.send_signal(signal.SIGTERM)
    assert told.wait(5) == pilot.AGAIN


def test_a_worker_is_started_early_and_reads_nothing_of_its_box_before_its_queue_is_there(there: Pod) -> None:
    there.box.add("c0", "echo 1 > {out}/result.json", n=0)
    later = [there.box.home / name for name in ("spec.json", pilot.QUEUE)]
    for path in later:
        path.rename(path.with_suffix(".later"))
    process = there.start()
    until(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text)
    time.sleep(0.5)
    assert process.poll() is None
    for path in later:
        path.with_suffix(".later").rename(path)
    assert there.ended() == 0, there.said
    assert ("cell-sealed", f"{UID}.0") in there.events()


def test_a_worker_that_waits_for_its_queue_is_told_to_end(there: Pod) -> None:
    process = there.start()
    until(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text)
    process.send_signal(signal.SIGTERM)
    assert there.ended() == pilot.AGAIN
    assert there.events() == []


IN_A_POD = ("unshare", "--fork", "--pid", "--mount-proc", "--map-root-user", "--user")
BRINGS = ("sh", "-c", 'sleep "$1" & shift; exec "$@"', "sh")
"""Something else runs in the pod at first: for so many seconds."""


@pytest.mark.parametrize(
    ("started", "brings", "most", "least"),
    [(False, "60", 60, 1), (True, "0", 60, 1), (True, "5", 60, 5), (True, "60", 3, 2)],
)
def test_a_pod_whose_queue_does_not_come_ends_by_itself(
    there: Pod, monkeypatch: pytest.MonkeyPatch, started: bool, brings: str, most: int, least: int
) -> None:
    """One whose program came: not while something is brought by it; and in any case after a while."""
    if subprocess.run([*IN_A_POD, "true"], capture_output=True).returncode:
        pytest.skip("no namespaces of processes here")
    monkeypatch.setattr(jobs, "WAIT_SECONDS", 2)
    if started:
        (there.box.home / pilot.START).write_text(f"exec {shlex.join(there.argv(2, most))}\n")
    begun = time.monotonic()
    process = waiting(there.box.home, *IN_A_POD, *BRINGS, brings, env=there.env(UID))
    _, said = process.communicate(timeout=SECONDS)
    assert process.returncode in jobs.NO_SENSE, "another pod would wait in vain, too"
    assert "did not come" in said
    assert "pulumi up" in said
    assert least <= time.monotonic() - begun < 30
    assert there.events() == []


@pytest.mark.parametrize(
    ("code", "told", "meant"),
    [(0, False, 0), (1, True, 0), (8, False, 0), (11, False, 75), (143, True, 75), (-9, False, 137), (2, False, 2)],
)
def test_the_exit_code_says_whether_another_pod_goes_on(code: int, told: bool, meant: int) -> None:
    assert pilot.code_of_pod(code, told) == meant


# -- what one pod says of another


def asked(home: Path, job: str = OTHER) -> dict[str, str]:
    return worker_state.told(BOX, home, job)


def test_the_api_server_is_believed_of_pods_that_it_shows_and_of_none_that_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = pod(RUNS)
    shown["metadata"]["uid"] = OTHER
    monkeypatch.setattr(api_server, "pods", lambda *_: [shown])
    monkeypatch.setattr(api_server, "node", lambda _: node())
    assert asked(tmp_path)["state"] == "running"
    monkeypatch.setattr(api_server, "node", lambda _: None)
    assert asked(tmp_path)["state"] == "unknown"
    shown["status"]["containerStatuses"][0]["state"] = ended(137, "OOMKilled")
    assert asked(tmp_path)["state"] == "ended"
    assert "resources.memory" in asked(tmp_path)["memory"]
    monkeypatch.setattr(api_server, "pods", lambda *_: [])
    assert asked(tmp_path)["state"] == "unknown"
    assert "sweepctl confirm worker" in asked(tmp_path)["why"]


@pytest.mark.parametrize("error", [NotAuthorized("no"), Unreachable("no")])
def test_a_pod_that_may_not_ask_knows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(api_server, "pods", refuse)
    assert asked(tmp_path)["state"] == "unknown"
    assert asked(tmp_path, "../../etc/passwd")["state"] == "unknown"
    assert asked(tmp_path, OTHER)["memory"] == ""


def test_all_that_pods_run_is_shipped() -> None:
    paths = {path for path, _, _ in pilot_files()}
    assert {"pilot.py", "worker_state.py", "sweepstack/onbox/kubernetes/pilot.py"} <= paths
    assert SHIPPED == ("common", "kubernetes")
    assert not [path for path in agent_source.sources("kubernetes") if path.name.startswith("test")]


def test_a_worker_of_several_pods_has_ended_once_all_of_them_have(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(api_server, "pods", lambda *_: [])
    records, held = tmp_path / worker_state.RECORDS, tmp_path / pilot.HELD / f"{UID}.json"
    for folder in (records, held.parent):
        folder.mkdir(parents=True)
    (records / f"{UID}.json").write_text(json.dumps({"state": "ended", "uid": UID, "why": "it is over"}))
    held.write_text(json.dumps({"nodes": {"pod-1": {"id": OTHER}}}))
    said = worker_state.told(BOX, tmp_path, UID)
    assert said["state"] == "unknown"
    assert "its other pod pod-1 has not ended, as far as is known" in said["why"]
    assert f"confirm worker BOX {OTHER}.0" in said["why"], "the pod's own name, which a person says it of"
    assert said["lacks"] == said["why"]
    (records / f"{OTHER}.json").write_text(json.dumps({"state": "ended", "uid": OTHER, "why": "it is over"}))
    said = worker_state.told(BOX, tmp_path, UID)
    assert (said["state"], said["lacks"]) == ("ended", "")
    held.write_text("{")
    assert worker_state.told(BOX, tmp_path, UID)["state"] == "unknown"
