"""The user's own check: what counts as its answer, what it is given, and what it is not."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sweepstack.evidence.verify import CheckCode, check_code
from sweepstack.loaders.base import LoadResult, PlainSpec
from sweepstack.loaders.command import Check, environment
from sweepstack.loaders.load import load
from sweepstack.loaders.pool import FileToRead, read_all
from sweepstack.onbox.common.errors import ConfigError

SECRETS = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "RUNPOD_API_KEY", "VAST_API_KEY"),
    *("HF_TOKEN", "WANDB_API_KEY", "GITHUB_TOKEN", "SSH_AUTH_SOCK", "KUBECONFIG"),
    *("PULUMI_CONFIG_PASSPHRASE", "PULUMI_ACCESS_TOKEN", "PULUMI_BACKEND_URL", "PYTHONPATH", "LD_PRELOAD"),
)
linux = pytest.mark.skipif(sys.platform != "linux", reason="user namespaces are Linux's")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """The job's work dir."""
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "train.py").write_text("print('train')\n")
    return folder


@pytest.fixture
def code(work: Path) -> Iterator[CheckCode]:
    """Its copy."""
    with check_code(work) as found:
        yield found


def judge(code: CheckCode | None, tmp_path: Path, run: str, *, seconds: float = 60.0, **spec: Any) -> LoadResult:
    """What the pool makes of one file under this command."""
    path = tmp_path / "sample one.bin"
    path.write_bytes(b"\x01" * 1000)
    how = PlainSpec("command", run=run, **{"trust": True, **spec})
    job = FileToRead(str(path), how, None, 1000, code.root if code else None)
    ((_, result),) = read_all([job], seconds=lambda size: seconds)
    return result


def python(work: Path, body: str) -> str:
    """A check in the work dir."""
    (work / "check.py").write_text(f"import json, os, signal, sys\n{body}\n")
    return "python3 check.py {file}"


@pytest.mark.parametrize(
    ("run", "ok", "unknown", "reason"),
    [
        ("""echo '{"ok": true}'""", True, False, ""),
        ("""echo noise; echo '{"ok": true, "note": "PSNR 31"}'; echo; echo more >&2""", True, False, ""),
        ("""echo '{"ok": true, "note": " "}'""", True, False, ""),
        ("true", False, True, "its check ended with code 0 and without a last line"),
        ("echo ok", False, True, "its check ended with code 0 and without a last line"),
        pytest.param(
            """echo '{"ok": true}'; exit 3""",
            False,
            True,
            "its check said ok and ended with code 3",
            id="ok-and-exit-3",
        ),
        ("""echo '{"ok": true}'; echo bye""", False, True, "without a last line"),
        ("""echo '{"ok": 1}'""", False, True, "without a last line"),
        ("""echo '{"ok": "true"}'""", False, True, "without a last line"),
        ("""echo '[{"ok": true}]'""", False, True, "without a last line"),
        ("echo why not >&2; exit 1", False, True, 'such as {"ok": true}: why not'),
        ("""echo '{"ok": false, "reason": "PSNR 9"}'""", False, False, "is refused by its check: PSNR 9"),
        ("""echo '{"ok": false}'; exit 1""", False, False, "is refused by its check: it gave no reason"),
        ("no-such-program", False, True, "its check ended with code 127"),
        ("kill -9 $$", False, True, "its check was killed (SIGKILL)"),
        ("kill -40 $$", False, True, "its check was killed (signal 40)"),
    ],
)
def test_what_counts_as_an_answer(
    code: CheckCode, tmp_path: Path, run: str, ok: bool, unknown: bool, reason: str
) -> None:
    result = judge(code, tmp_path, f"{run} # {{file}}")
    assert (result.ok, result.unknown) == (ok, unknown), result
    assert reason in "".join(result.reasons)
    assert len(result.sha256) == 64
    assert result.notes == (("PSNR 31",) if "PSNR 31" in run else ()), "an empty note is none"


@pytest.mark.parametrize("lost", ["code", "."], ids=["its work dir", "its temporary folder"])
def test_a_check_that_can_not_be_run_is_no_answer(work: Path, tmp_path: Path, lost: str) -> None:
    """The disk is full, no process can be had, what it needs was taken away: nothing of that is the file's fault."""
    with check_code(work) as code:
        shutil.rmtree(Path(code.root, lost))
        result = judge(code, tmp_path, "true # {file}")
    assert (result.ok, result.unknown) == (False, True), result
    assert result.reasons == ("its check can't be run here: No such file or directory",)


def test_an_exit_code_is_no_answer(code: CheckCode, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x")
    result = load(str(path), PlainSpec("command", run="exit 0 # {file}", trust=True), check=Check(code.root, 60.0))
    assert (result.ok, result.unknown) == (False, True)


def test_without_a_worker_it_has_a_deadline_too(code: CheckCode, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x")
    run = """echo '{"ok": true}'; exec sleep 600 # {file}"""
    result = load(str(path), PlainSpec("command", run=run, trust=True), check=Check(code.root, 0.2))
    assert (result.ok, result.unknown) == (False, True)
    assert result.reasons == ("its check did not end within 0 s",)


def test_without_a_worker_it_sees_nothing_of_ours_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "hunter2")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    found = environment(tmp_path)
    assert "hunter2" not in found.values()
    assert (found["LANG"], found["HOME"]) == ("de_DE.UTF-8", str(tmp_path))


def test_it_is_given_the_file_and_the_work_dir(work: Path, tmp_path: Path) -> None:
    (work / "lib").mkdir()
    (work / "lib" / "psnr.py").write_text("def judge(path): return len(open(path, 'rb').read()) == 1000\n")
    run = python(work, "from lib.psnr import judge\nprint(json.dumps({'ok': judge(sys.argv[1])}))")
    with check_code(work) as code:
        assert judge(code, tmp_path, run).ok
        first = code.digest
        root = code.root
    assert not Path(root).exists()
    (work / "check.py").write_text("print('{\"ok\": false}')\n")
    with check_code(work) as code:
        assert not judge(code, tmp_path, run).ok
        assert code.digest != first


def test_it_sees_nothing_of_ours(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "hunter2")
    seen = tmp_path / "seen.json"
    body = (
        f"found = dict(env=dict(os.environ), home=os.listdir(os.environ['HOME']), fds=os.listdir('/proc/self/fd')"
        f" if os.path.exists('/proc/self/fd') else [])\nopen({str(seen)!r}, 'w').write(json.dumps(found))\n"
        "print(json.dumps({'ok': True}))"
    )
    run = python(work, body).replace("python3", sys.executable)  # a shim may set variables of its own
    with check_code(work) as code:
        assert judge(code, tmp_path, run).ok
    found = json.loads(seen.read_text())
    assert "hunter2" not in json.dumps(found)
    allowed = {"PATH", "LANG", "HOME", "TMPDIR", "PYTHONDONTWRITEBYTECODE", "PWD", "LC_CTYPE", "SHLVL", "_", "OLDPWD"}
    assert {name for name in found["env"] if not name.endswith("_NUM_THREADS")} <= allowed
    assert set(found["home"]) <= {"stdout", "stderr"}
    assert len(found["fds"]) <= 4  # its three, and the one that lists them


@linux
def test_it_reaches_no_network(work: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        socket.create_connection(("127.0.0.1", port), 5).close()  # here it can be reached
        body = (
            f"import socket\ntry:\n    socket.create_connection(('127.0.0.1', {port}), 5)\n"
            "except OSError as error:\n    print(json.dumps({'ok': False, 'reason': type(error).__name__}))\n"
            "else:\n    print(json.dumps({'ok': True}))"
        )
        run = python(work, body)
        with check_code(work) as code:
            result = judge(code, tmp_path, run)
    if result.network:
        pytest.skip("this system lets nobody leave the network, and the answer says so")
    assert not result.ok
    assert result.network is False


def test_what_it_started_ends_with_it(work: Path, tmp_path: Path) -> None:
    body = (
        "import subprocess\nchild = subprocess.Popen(['sleep', '600'])\n"
        "print(json.dumps({'ok': True, 'note': str(child.pid)}))"
    )
    run = python(work, body)
    with check_code(work) as code:
        result = judge(code, tmp_path, run)
    assert result.ok
    ended(int(result.notes[0]))


def test_it_has_a_deadline(work: Path, tmp_path: Path) -> None:
    note = tmp_path / "pids"
    body = (
        f"import subprocess, time\nchild = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(note)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\ntime.sleep(600)"
    )
    run = python(work, body)
    for seconds in (3.0, 30.0, 90.0):
        with check_code(work) as code:
            result = judge(code, tmp_path, run, seconds=seconds)
        assert result.unknown
        assert f"within {seconds:.0f} s" in result.reasons[0]
        if note.exists():  # on a busy machine it may be ended before it has begun, and that tells nothing
            break
    for pid in note.read_text().split():
        ended(int(pid))


def ended(pid: int) -> None:
    """Waits until a process is no more, but for its last entry."""
    for _ in range(2400):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.05)
    raise AssertionError(f"{pid} lives on")


@linux
def test_memory_is_bounded_and_running_out_of_it_is_no_answer(work: Path, tmp_path: Path) -> None:
    run = python(work, "bytearray(20 << 30)\nprint(json.dumps({'ok': True}))")
    with check_code(work) as code:
        result = judge(code, tmp_path, run)
    assert (result.ok, result.unknown) == (False, True)
    assert "MemoryError" in result.reasons[0]


def test_no_core_and_no_endless_file(work: Path, tmp_path: Path) -> None:
    body = (
        "import resource\nlimits = [resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_CORE, "
        "resource.RLIMIT_FSIZE)]\nprint(json.dumps({'ok': limits == [0, 1 << 30], 'reason': str(limits)}))"
    )
    run = python(work, body)
    with check_code(work) as code:
        assert judge(code, tmp_path, run).reasons == ()


def test_a_check_that_changes_the_file_is_found_out(code: CheckCode, tmp_path: Path) -> None:
    result = judge(code, tmp_path, """echo x >> {file}; echo '{"ok": true}'""")
    assert result.reasons == ("changed while it was read",)


@pytest.mark.parametrize("spec", [{"trust": False}, {"run": None}])
def test_without_trust_nothing_runs(code: CheckCode, tmp_path: Path, spec: dict[str, Any]) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x")
    flag = tmp_path / "ran"
    known = {"run": f"touch {flag}; echo '{{\"ok\": true}}' # {{file}}", "trust": True, **spec}
    ((_, result),) = read_all([FileToRead(str(path), PlainSpec("command", **known), None, 1, code.root)])
    assert (result.ok, result.unknown) == (False, True)
    assert "the stack file does not trust" in result.reasons[0]
    assert not flag.exists()


def test_without_its_code_nothing_is_known(tmp_path: Path) -> None:
    result = judge(None, tmp_path, "echo {file}")
    assert (result.ok, result.unknown) == (False, True)
    assert "its code is not here" in result.reasons[0]


def test_a_file_that_differs_is_not_shown_to_it(code: CheckCode, tmp_path: Path) -> None:
    path, flag = tmp_path / "a", tmp_path / "ran"
    path.write_bytes(b"x")
    spec = PlainSpec("command", run=f"touch {flag}; echo '{{\"ok\": true}}' # {{file}}", trust=True)
    ((_, result),) = read_all([FileToRead(str(path), spec, "0" * 64, 1, code.root)])
    assert "differs from what was sealed" in result.reasons[0]
    assert not result.unknown
    assert not flag.exists()


def test_the_work_dir_must_be_fit_to_ship(work: Path) -> None:
    (work / "id_rsa").write_text("key")
    with pytest.raises(ConfigError, match="looks like a key"), check_code(work):
        pass


def test_direct_use_needs_no_worker(code: CheckCode, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x")
    assert load(str(path), PlainSpec("command", run="echo {file}", trust=True)).unknown
    assert os.listdir(code.root) == ["code"]
