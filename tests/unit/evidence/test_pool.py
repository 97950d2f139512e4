"""Worker processes: bounded, replaceable, and without anything of ours to lose."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweepstack.loaders import pool, worker
from sweepstack.loaders.base import PlainSpec
from sweepstack.loaders.pool import FileToRead, WorkersBroken, read_all, worker_environment
from tests.unit.evidence.torchzip import Blob, View, save, tensor

TORCH = PlainSpec("torch")


def checkpoint(path: Path, value: float = 1.0) -> FileToRead:
    """A good checkpoint on disk."""
    save({"w": tensor(np.full(100, value, np.float32))}, path)
    return FileToRead(str(path), TORCH, None, path.stat().st_size)


def fake_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> Path:
    """Puts a script in the worker's place; it appends its environment's names to the file returned."""
    log = tmp_path / "workers"
    script = tmp_path / "worker.py"
    script.write_text(
        f"import json, os, signal, sys, time\nopen({str(log)!r}, 'a').write(' '.join(sorted(os.environ)) + '\\n')\n"
        "good = {'results': [[True, [], [], 1, '', 0, False, False]], 'seconds': {}, 'network': None}\n"
        "for line in sys.stdin:\n    files = json.loads(line)['files']\n    assert len(files) == 1, 'one at a time'\n"
        f"    path = files[0][0]\n{body}\n    print(json.dumps(good), flush=True)\n"
    )
    real = subprocess.Popen

    def start(arguments: list[str], **settings: Any) -> Any:
        assert arguments[:4] == [sys.executable, "-I", "-B", "-c"]
        assert Path(arguments[5]) == Path(pool.__file__).parents[2]
        return real([sys.executable, "-I", str(script)], **settings)

    monkeypatch.setattr(pool.subprocess, "Popen", start)
    return log


def test_every_file_gets_its_own_answer(tmp_path: Path) -> None:
    jobs = [checkpoint(tmp_path / f"{n}.pt", float("nan") if n == 3 else n) for n in range(6)]
    found = {Path(job.path).name: result for job, result in read_all(jobs, workers=2)}
    assert {name for name, result in found.items() if not result.ok} == {"3.pt"}
    assert found["3.pt"].reasons == ("100 non-finite (w)",)
    assert list(read_all([])) == []


def test_workers_know_nothing_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "secret")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("LD_PRELOAD", "")
    log = fake_worker(tmp_path, monkeypatch, "    pass")
    list(read_all([checkpoint(tmp_path / "a.pt")]))
    names = set(log.read_text().split())
    assert names <= {"PATH", "HOME", "LANG", "LC_CTYPE", *pool.THREAD_CAPS}
    assert worker_environment()["OMP_NUM_THREADS"] == "1"
    assert worker_environment()["PATH"] == os.environ["PATH"]


def test_workers_say_whether_they_could_reach_a_network(tmp_path: Path) -> None:
    ((_, result),) = read_all([checkpoint(tmp_path / "a.pt")])
    can = subprocess.run(
        [sys.executable, "-c", "from sweepstack.loaders.confine import leave_network; print(leave_network())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert result.network is (can.strip() == "False")


def test_who_leaves_the_network_says_so_and_reaches_nothing() -> None:
    """Where the kernel lets a process leave it, ours has to have left; where not, it must not say so."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        script = (
            "import ctypes, os, socket\nfrom sweepstack.loaders.confine import leave_network\n"
            "flags = (0x40000000, 0x50000000) if hasattr(os, 'sched_getaffinity') else ()\n"
            "could = False\n"
            "for one in flags:\n"
            "    if not (child := os.fork()):\n"
            "        os._exit(ctypes.CDLL(None).unshare(one) != 0)\n"
            "    could = could or os.waitpid(child, 0)[1] == 0\n"
            "left = leave_network()\n"
            f"reached = socket.socket().connect_ex(('127.0.0.1', {server.getsockname()[1]})) == 0\n"
            "print(could, left, not reached)"
        )
        said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.split() in (["True"] * 3, ["False"] * 3)


def test_what_a_reader_did_not_foresee_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """One such file must not end the reading of all others."""

    def defect(*_: Any, **__: Any) -> Any:
        raise RecursionError

    monkeypatch.setattr(worker, "load", defect)
    asked = {"files": [["/a", None, None, 1]], "specs": [], "reader": "restricted", "seconds": 9, "check": None}
    monkeypatch.setattr(worker, "_limit", lambda *_: None)
    ((row,), _) = worker._read(asked, lambda _: None).values()
    assert row[:2] == (False, ("could not be read (RecursionError)",))


def test_a_worker_that_ran_a_command_serves_no_other_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "code").mkdir()
    path = tmp_path / "a.json"
    path.write_text("{}")
    started: list[Any] = []
    popen = pool.subprocess.Popen
    monkeypatch.setattr(pool.subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1])
    command = PlainSpec("command", run="""echo '{"ok": true}' # {file}""", trust=True)
    for spec, count in ((command, 3), (PlainSpec("json"), 1)):
        started.clear()
        jobs = [FileToRead(str(path), spec, None, None, str(tmp_path))] * 3
        assert all(result.ok for _, result in read_all(jobs, workers=1)), spec.load
        assert len(started) == count, spec.load


def test_after_a_stop_no_worker_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it comes between the death of one and its replacement."""
    monkeypatch.setattr(pool.subprocess, "Popen", None)
    slot = pool._Slot("restricted", pool.deadline_for, None)
    slot.stop()
    with pytest.raises(pool._Died):
        slot._worker()


def test_a_hung_worker_is_killed_and_the_rest_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = fake_worker(tmp_path, monkeypatch, "    if 'hang' in path: time.sleep(600)")
    jobs = [checkpoint(tmp_path / name) for name in ("a.pt", "hang.pt", "b.pt")]
    jobs[1] = replace(jobs[1], size=10**9)  # by which it has its own deadline

    def seconds(size: int) -> float:
        return 1.0 if size == 10**9 else 120.0  # the others have all the time that a busy machine needs

    found = {Path(job.path).name: result for job, result in read_all(jobs, workers=1, seconds=seconds)}
    assert {name for name, result in found.items() if result.ok} == {"a.pt", "b.pt"}
    assert found["hang.pt"].reasons == ("could not be read within 1 s",)
    assert found["hang.pt"].unknown
    assert len(log.read_text().splitlines()) >= 2


def test_a_worker_that_dies_is_replaced_and_asked_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flag = tmp_path / "died"
    body = (
        "    if 'bad' in path: os.kill(os.getpid(), signal.SIGSEGV)\n"
        f"    if 'once' in path and not os.path.exists({str(flag)!r}):\n"
        f"        open({str(flag)!r}, 'w'); os._exit(3)"
    )
    fake_worker(tmp_path, monkeypatch, body)
    jobs = [checkpoint(tmp_path / name) for name in ("bad.pt", "once.pt", "good.pt")]
    found = {Path(job.path).name: result for job, result in read_all(jobs, workers=1)}
    assert found["bad.pt"].reasons == ("its reader died (SIGSEGV)",)
    assert found["bad.pt"].unknown
    assert found["once.pt"].ok
    assert found["good.pt"].ok


def test_workers_that_cannot_start_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_worker(tmp_path, monkeypatch, "    raise ImportError('no numpy here')")
    with pytest.raises(WorkersBroken, match="no numpy here"):
        list(read_all([checkpoint(tmp_path / "a.pt")]))


def test_an_abandoned_reading_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_worker(tmp_path, monkeypatch, "    if 'slow' in path: time.sleep(600)")
    many = [checkpoint(tmp_path / f"with-it-{number}.pt") for number in range(1, pool.LEAST_TOGETHER)]
    jobs = [checkpoint(tmp_path / "slow.pt"), *many, checkpoint(tmp_path / "good.pt")]
    started: list[Any] = []
    popen = pool.subprocess.Popen

    def note(*arguments: Any, **settings: Any) -> Any:
        started.append(popen(*arguments, **settings))
        return started[-1]

    monkeypatch.setattr(pool.subprocess, "Popen", note)
    others = set(threading.enumerate())  # of what other tests of this process left, such as a cluster
    reading = read_all(jobs, workers=2)
    job, _ = next(reading)
    assert job.path.endswith("good.pt")
    reading.close()
    assert started
    assert all(process.poll() is not None for process in started)
    assert not [thread for thread in threading.enumerate() if "serve" in thread.name and thread not in others]


def test_readers_that_are_stopped_one_after_the_other_all_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for an entry to end by. One that was not stopped yet took another's, which then waited for ever."""
    stop = pool._Slot.stop

    def slowly(slot: Any) -> None:
        time.sleep(0.2)
        stop(slot)

    monkeypatch.setattr(pool._Slot, "stop", slowly)
    jobs = [checkpoint(tmp_path / f"{n}.pt") for n in range(4)]
    reading = threading.Thread(target=lambda: list(read_all(jobs, workers=4)), daemon=True)
    reading.start()
    reading.join(60)
    assert not reading.is_alive()


def test_memory_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "memo.pt"
    # A memo slot far away asks for 2 GB at once: the limit says no, and the worker lives on.
    save({"w": View(Blob(b"\0" * 4), 0, (1,), (1,))}, path, pickle_bytes=b"\x80\x02Nr\x00\x00\x00\x08.")
    jobs = [FileToRead(str(path), TORCH, None, path.stat().st_size), checkpoint(tmp_path / "good.pt")]
    found = {Path(job.path).name: result for job, result in read_all(jobs, workers=1)}
    assert found["memo.pt"].reasons == ("needs more memory than a reader is given",)
    assert found["memo.pt"].unknown
    assert not found["good.pt"].unknown
    assert found["good.pt"].ok


def test_processor_time_is_bounded(tmp_path: Path) -> None:
    deep = b"\x80\x02})" + b"q\x00h\x00\x86" * 60 + b"Ns."  # a dict key that takes 2^60 steps to hash
    path = tmp_path / "slow.pt"
    save({"w": tensor(np.ones(3, np.float32))}, path, pickle_bytes=deep)
    jobs = [FileToRead(str(path), TORCH, None, path.stat().st_size), checkpoint(tmp_path / "good.pt")]
    found = {Path(job.path).name: result for job, result in read_all(jobs, workers=1, seconds=lambda size: 2.0)}
    assert found["slow.pt"].reasons == ("could not be read within 2 s",)
    assert found["good.pt"].ok


def test_small_files_are_asked_for_together_and_alone_where_one_takes_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    real = pool._Slot._send

    def send(process: Any, request: bytes) -> None:
        sent.append(len(request))
        real(process, request)

    monkeypatch.setattr(pool._Slot, "_send", staticmethod(send))
    jobs = []
    for number in range(400):
        path = tmp_path / f"{number}.json"
        path.write_text("{" if number == 7 else f'{{"loss": {number}}}')
        jobs.append(FileToRead(str(path), PlainSpec("json", ("loss",)), None, path.stat().st_size))
    found = {Path(job.path).stem: result for job, result in read_all(jobs, workers=2)}
    assert [name for name, result in found.items() if not result.ok] == ["7"]
    assert len(found) == 400
    assert len(sent) <= 16
    assert max(sent) < pool.REQUEST_BYTES

    slow = tmp_path / "slow.pt"
    deep = b"\x80\x02})" + b"q\x00h\x00\x86" * 60 + b"Ns."
    save({"w": tensor(np.ones(3, np.float32))}, slow, pickle_bytes=deep)
    jobs.insert(3, FileToRead(str(slow), TORCH, None, slow.stat().st_size))
    assert sum(job.size or 0 for job in jobs[:40]) < 2 * slow.stat().st_size

    def seconds(size: int) -> float:
        return (
            1.0 if size >= slow.stat().st_size else 120.0
        )  # what it is in; the others are quick, but where it is busy

    found = {Path(job.path).stem: result for job, result in read_all(jobs[:40], workers=1, seconds=seconds)}
    assert len(found) == 40
    assert sorted(name for name, result in found.items() if not result.ok) == ["7", "slow"]
    assert found["slow"].reasons == ("could not be read within 1 s",)


def test_small_files_are_read_while_the_next_ones_are_not_known_yet(tmp_path: Path) -> None:
    """Ten thousand cells are looked at for seconds: no core waits for the last of them."""
    path = tmp_path / "a.json"
    path.write_text("{}")
    job = FileToRead(str(path), PlainSpec("json"), None, 2)
    begun = threading.Event()
    waited: list[bool] = []

    def jobs() -> Iterator[FileToRead]:
        yield from [job] * (2 * pool.TOGETHER + 1)
        waited.append(begun.wait(60))
        yield job

    found = list(read_all(jobs(), workers=2, progress=lambda job, count: begun.set()))
    assert waited == [True]
    assert len(found) == 2 * pool.TOGETHER + 2
    assert all(result.ok for _, result in found)


def test_a_worker_gets_many_files_at_once_but_few_bytes_and_the_largest_come_first() -> None:
    sizes = [*[pool.SMALL_BYTES] * 9, pool.SMALL_BYTES + 1, *[10] * 100, pool.SMALL_BYTES + 2]
    batches = list(pool._batches([FileToRead(f"/{n}", None, None, size) for n, size in enumerate(sizes)], 2))
    assert sorted(job.path for batch in batches for job in batch) == sorted(f"/{n}" for n in range(len(sizes)))
    assert all(sum(job.size or 0 for job in batch) <= pool.TOGETHER_BYTES for batch in batches)
    assert all(len(batch) <= pool.TOGETHER for batch in batches)
    alone = [batch[0].size for batch in batches if (batch[0].size or 0) > pool.SMALL_BYTES]
    assert alone == [pool.SMALL_BYTES + 2, pool.SMALL_BYTES + 1]
    few = [FileToRead(f"/{n}", None, None, 10) for n in range(pool.LEAST_TOGETHER)]
    assert list(pool._batches(few, 2)) == [few], "a second worker starts for what one has read by then"


def test_names_too_long_for_one_request_are_asked_for_in_parts(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["d" * 200] * 15)
    folder.mkdir(parents=True)
    jobs = []
    for number in range(100):
        (folder / f"{number}.json").write_text("{}")
        jobs.append(FileToRead(str(folder / f"{number}.json"), PlainSpec("json"), None, 2))
    found = list(read_all(jobs, workers=1))
    assert len({job.path for job, result in found if result.ok}) == 100


def test_a_files_end_moving_away_under_the_reader_is_survived(tmp_path: Path) -> None:
    job = checkpoint(tmp_path / "a.pt")
    os.truncate(job.path, 100)
    ((_, result),) = read_all([job])
    assert result.reasons[0].startswith("truncated: 100 of")


def test_the_worker_imports_little() -> None:
    code = "import sys, sweepstack.loaders.worker; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"pulumi", "typer", "rich", "pydantic", "grpc", "torch"} & set(loaded)


def test_workers_run_the_code_of_the_process_that_asks(tmp_path: Path) -> None:
    """Not that of the installed package: a second checkout, or a test of changed code, would judge the wrong one."""
    root = Path(pool.__file__).parents[2]
    shutil.copytree(root / "sweepstack", tmp_path / "sweepstack", ignore=shutil.ignore_patterns("__pycache__", "cli"))
    reader = tmp_path / "sweepstack/loaders/json_file.py"
    reader.write_text(reader.read_text().replace("is not JSON", "is of the changed code"))
    (tmp_path / "broken.json").write_text("{")
    code = (
        "from sweepstack.loaders.base import PlainSpec\nfrom sweepstack.loaders.pool import FileToRead, read_all\n"
        f"((_, result),) = read_all([FileToRead({str(tmp_path / 'broken.json')!r}, PlainSpec('json'), None, 1)])\n"
        "print(*result.reasons)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60
    )
    assert "is of the changed code" in said.stdout, said.stdout + said.stderr
