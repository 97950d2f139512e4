"""The real clients and servers of trackers, in a sweep of the real engine: a job that is killed and goes on.

The clients are installed once into the cache, from `requirements.txt` here: 1.3 GB, of PyPI.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scripts.lib import wheels
from scripts.lib.console import Console
from scripts.lib.places import Places
from tests.engine.commands import Result, ok
from tests.engine.conftest import make_stack
from tests.engine.harness import ROOT, Stack
from tests.engine.test_secrets import holders
from tests.extensions.trackers.servers import down, hangs, server

__all__ = ["make_stack"]
pytestmark = [
    pytest.mark.engine,
    pytest.mark.proof,  # against stand-ins of the servers: test_trackers.py
    pytest.mark.timeout(1800),
]
PINS = Path(__file__).with_name("requirements.txt")
KEYS = {
    "WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567",
    "MLFLOW_TRACKING_TOKEN": "mlflow-Zq81kLmWx-not-to-be-seen",
    "TRACKIO_WRITE_TOKEN": "trackio-Hq27vBnTy-not-to-be-seen",
}
JOB = """
import os, signal, sys, time
from pathlib import Path
import aim, mlflow, trackio, wandb
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

out, seed, attempt = Path(sys.argv[1]), sys.argv[2], int(os.environ["SWEEPSTACK_ATTEMPT"])
assert os.environ["WANDB_API_KEY"] and os.environ["MLFLOW_TRACKING_TOKEN"]
run = wandb.init(config={"seed": seed})
trackio.init(project="of the job", config={"seed": seed})
aimed = aim.Run(experiment="of the job")
aimed["seed"] = seed
events = EventFileWriter(os.environ["TENSORBOARD_LOGGING_DIR"])
(out / "wandb-id.txt").write_text(run.id)
with mlflow.start_run():
    mlflow.log_param("attempt", attempt)
    for step in range(400 * (attempt - 1), 400 * attempt):
        run.log({"loss": 1 / (step + 1)}, step=step)
    begins = 3 * (attempt - 1)
    for step in range(begins, begins + 3):
        mlflow.log_metric("loss", 1 / (step + 1), step=step)
        trackio.log({"loss": 1 / (step + 1)}, step=step)
        aimed.track(1 / (step + 1), name="loss", step=step, context={"subset": "train"})
        value = Summary.Value(tag="loss", simple_value=1 / (step + 1))
        events.add_event(Event(step=step, summary=Summary(value=[value])))
    events.flush()
    if seed == "0" and attempt == 1:
        time.sleep(5)  # its client writes them in another process
        os.kill(os.getpid(), signal.SIGKILL)
    with mlflow.start_run(nested=True):
        mlflow.log_metric("inner", 1.0)
run.finish()
trackio.finish()
aimed.close()
events.close()
(out / "metrics.json").write_text('{"loss": 0.1}')
"""


@pytest.fixture(scope="session")
def clients() -> Path:
    """The Python that has them."""
    env, console, cancel = dict(os.environ), Console(), threading.Event()
    places = Places.of(ROOT, os.environ)
    folder = places.cache / f"trackers-{hashlib.sha256(PINS.read_bytes()).hexdigest()[:12]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "whole").exists():
            shutil.rmtree(folder, ignore_errors=True)
            pins = ROOT / "scripts" / "requirements-uv.txt"
            uv = wheels.find_uv(env) or wheels.install_uv(places.cache, pins, env, console, cancel)
            python = str(folder / "bin" / "python")
            subprocess.run([uv, "venv", "-q", "--python", places.python, folder], check=True, timeout=300)
            subprocess.run([uv, "pip", "install", "-q", "--python", python, "-r", PINS], check=True, timeout=1200)
            (folder / "whole").touch()
    return folder / "bin" / "python"


@contextmanager
def trackio_server(clients: Path, folder: Path) -> Iterator[str]:
    """A real one, on this machine, with its own data below `folder`."""
    uri = down()
    words = f"open_browser=False, block_thread=True, server_port={uri.rpartition(':')[2]}"
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "TRACKIO_DIR": str(folder), **KEYS}
    folder.mkdir()
    with open(folder / "log.txt", "w") as log:
        argv = [clients, "-c", f"import trackio; trackio.show({words})"]
        process = subprocess.Popen(argv, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        answers(f"{uri}/version", 180)
        yield uri
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 15)
        process.wait(30)


@contextmanager
def mlflow_server(clients: Path, folder: Path, port: int) -> Iterator[str]:
    """A real one, on this machine."""
    folder.mkdir(exist_ok=True)
    words = ["--backend-store-uri", f"sqlite:///{folder}/m.db", "--artifacts-destination", f"{folder}/files"]
    env = {"PATH": f"{clients.parent}:{os.environ['PATH']}", "HOME": str(folder), "MLFLOW_DISABLE_TELEMETRY": "true"}
    with open(folder / "log.txt", "w") as log:
        process = subprocess.Popen(
            [
                clients.with_name("mlflow"),
                "server",
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
                "--workers",
                "1",
                *words,
            ],
            env=env | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        answers(f"http://127.0.0.1:{port}/health", 180)
        yield f"http://127.0.0.1:{port}"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 15)
        process.wait(30)


def answers(url: str, seconds: float) -> bytes:
    until = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            return bytes(answer.read())
        assert time.monotonic() < until, f"{url} does not answer"
        time.sleep(0.3)


def python(clients: Path, text: str, *words: str, cwd: Path) -> Any:
    """What a program of the clients' Python prints as JSON."""
    env = {"PATH": os.environ["PATH"], "HOME": str(cwd), "MLFLOW_DISABLE_TELEMETRY": "true"}
    done = subprocess.run([clients, "-c", text, *words], cwd=cwd, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


LOOK = """
import json, sys, mlflow
client = mlflow.MlflowClient(sys.argv[1])
found = []
for run in client.search_runs([client.get_experiment_by_name("digits").experiment_id]):
    info, data = run.info, run.data
    rows = {key: client.get_metric_history(info.run_id, key) for key in data.metrics}
    curves = {key: sorted([one.step, one.value] for one in all_of) for key, all_of in rows.items()}
    facts = {"id": info.run_id, "name": info.run_name, "status": info.status}
    found.append({**facts, "params": data.params, "tags": data.tags, "curves": curves})
print(json.dumps(found))
"""
TRACKIO = """
import contextlib, json, sqlite3, sys
with contextlib.closing(sqlite3.connect(sys.argv[1])) as base:
    rows = base.execute("SELECT run_name, run_id, step, metrics FROM metrics ORDER BY step").fetchall()
    configs = [json.loads(text) for [text] in base.execute("SELECT config FROM configs ORDER BY run_name")]
print(json.dumps([[[*row[:3], json.loads(row[3])["loss"]] for row in rows], configs]))
"""
AIM = """
import json, sys
from aim import Repo, Run
repo, found = Repo.from_path(sys.argv[1]), {}
for name in repo.list_all_runs():
    run = Run(name, repo=repo, system_tracking_interval=None, capture_terminal_logs=False)
    rows = {metric.name: metric.data.items_list() for metric in run.metrics()}
    curve = [list(pair) for pair in zip(rows["loss"][0], rows["loss"][1][0])]
    facts = {"experiment": run.experiment, "tags": sorted(run.tags), "params": run.get(...), "names": sorted(rows)}
    found[run.name] = {**facts, "hash": name, "curve": curve}
print(json.dumps(found))
"""
READ = """
import json, struct, sys
from pathlib import Path
from wandb.proto import wandb_internal_pb2

def records(data):
    "The records of a client's log: blocks of 32 KiB, each part with its checksum, length and kind."
    at, whole = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        if at + 7 + length > len(data) or kind == 0:
            return
        whole, at = whole + data[at + 7 : at + 7 + length], at + 7 + length
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            whole = b""
            yield record

found = []
for path in sorted(Path(sys.argv[1]).rglob("run-*.wandb")):
    run, steps = None, []
    for record in records(path.read_bytes()):
        if record.WhichOneof("record_type") == "run":
            run = record.run
        if record.WhichOneof("record_type") == "history":
            steps.append(record.history.step.num)
    if run is not None:  # a client that was killed may have written nothing
        found.append([run.run_id, run.project, run.run_group, run.display_name, list(run.tags), steps])
print(json.dumps(found))
"""


def sweep(make_stack: Callable[..., Stack], clients: Path, uri: str, sink: str, aims: Path) -> Stack:
    """A sweep of two cells that log everywhere; the first try of one is killed. `sink`: where anything would go that
    a client sends from a cell. `aims`: a repository of Aim on this computer."""
    stack = make_stack("tracked", cells=("seed0", "seed1"), boxes=("box-0",))
    (stack.job / "logs.py").write_text(JOB)

    def change(sweep: dict[str, Any]) -> None:
        sweep["job"] |= {
            "run": f"{clients} logs.py {{out}} {{seed}}",
            "env": {"HTTP_PROXY": sink, "HTTPS_PROXY": sink, "WANDB_BASE_URL": sink},
            "secrets": list(KEYS),
            "tracker": {
                "wandb": {"project": "digits", "group": "g", "name": "seed {seed}", "tags": ["a", "{cell}"]},
                "mlflow": {"uri": uri, "experiment": "digits", "name": "run {cell}", "tags": {"seed": "{seed}"}},
                "trackio": {"uri": uri, "project": "digits", "name": "run {cell}"},
                "aim": {"uri": str(aims), "experiment": "digits", "name": "run {cell}", "tags": ["a", "seed {seed}"]},
                "tensorboard": {},
            },
        }
        sweep["artifacts"] = {"metrics.json": {"load": "json", "keys": ["loss"]}}

    stack.edit_config(change)
    return stack


def silent(result: Result) -> Result:
    for value in KEYS.values():
        assert value not in result.text, "a command showed a key"
    return result


def pull(stack: Stack, clients: Path, **env: str) -> tuple[dict[str, Any], float]:
    """A pull, with what the clients' Python has behind the packages of sweepctl: wandb. And the seconds it took."""
    site = stack.base / "site"
    site.mkdir(exist_ok=True)
    (packages,) = (clients.parents[1] / "lib").glob("python*/site-packages")
    (site / "sitecustomize.py").write_text(f"import sys\nsys.path.append({str(packages)!r})\n")
    path = f"{site}:{stack.env['PYTHONPATH']}"
    began = time.monotonic()
    result = silent(ok(stack.sweepctl("pull", "--json", env={**KEYS, "PYTHONPATH": path, **env})))
    found = result.json()["trackers"]
    return {one["tracker"]: one for one in found}, time.monotonic() - began


def test_trackers_from_a_killed_try_to_their_servers(
    make_stack: Callable[..., Stack], clients: Path, tmp_path: Path
) -> None:
    uri = down()
    port = int(uri.rpartition(":")[2])
    with hangs() as sink:
        stack = sweep(make_stack, clients, uri, sink.uri, tmp_path / "aim")
        silent(ok(stack.up(env=KEYS)))
        stack.wait_done()
        stack.wait_idle()
        assert sink.came == [], "a client asked a server from a cell"

    for value in KEYS.values():
        (only,) = holders(stack, value)
        assert only.endswith("secrets.json"), only

    # down, hanging, rejecting: each is a warning with the next command, and bounded
    away = {"WANDB_BASE_URL": uri}
    told, took = pull(stack, clients, **away)
    assert "does not answer" in told["mlflow"]["problem"]
    assert "does not answer" in told["wandb"]["problem"]
    assert "does not answer" in told["trackio"]["problem"]
    assert told["aim"] == {**told["aim"], "sent": 3, "problem": ""}
    assert "3 attempts left to send. Next, once that is mended: sweepctl pull --stack" in told["mlflow"]["problem"]
    assert took < 120
    with hangs(port) as hanging:
        told, took = pull(stack, clients, **away)
        assert hanging.came
        assert "does not answer" in told["mlflow"]["problem"]
        assert "does not answer" in told["wandb"]["problem"]
        assert took < 120
    for status in (401, 403):
        with server(status, port):
            told, took = pull(stack, clients, **away)
            assert str(status) in told["mlflow"]["problem"], told
            assert str(status) in told["wandb"]["problem"], told
            assert took < 120
    assert ok(stack.sweepctl("verify", env=KEYS))

    # the real server takes it: one run of a cell, whatever its tries
    away = {"WANDB_BASE_URL": down()}
    with mlflow_server(clients, tmp_path / "server", port):
        told, _ = pull(stack, clients, **away)
        assert told["mlflow"]["problem"] == ""
        assert told["mlflow"]["sent"] == 3
        again, _ = pull(stack, clients, **away)
        assert again["mlflow"]["sent"] == 0
        (stack.base / "data" / "sweepstack" / "trackers").rename(stack.base / "aside")
        third, _ = pull(stack, clients, **away)
        assert third["mlflow"]["sent"] == 3, "what is not known to be sent is sent again"
        runs = python(clients, LOOK, uri, cwd=tmp_path)
    by_name = {run["name"]: run for run in runs if "mlflow.parentRunId" not in run["tags"]}
    assert set(by_name) == {"run seed0", "run seed1"}
    first = by_name["run seed0"]
    assert [step for step, _ in first["curves"]["loss"]] == [0, 1, 2, 3, 4, 5], "both tries, and nothing twice"
    assert first["status"] == "FINISHED"
    assert first["params"] == {"attempt": "1"}
    assert first["tags"]["seed"] == "0"
    inner = [run for run in runs if run["tags"].get("mlflow.parentRunId") == first["id"]]
    assert [run["curves"] for run in inner] == [{"inner": [[0, 1.0]]}]
    assert told["mlflow"]["links"]["seed0"].endswith(f"/runs/{first['id']}")

    # Trackio and Aim: one run of a cell, with both tries
    tracker = stack.config()["job"]["tracker"]
    with trackio_server(clients, tmp_path / "trackio") as there:
        tracker["trackio"]["uri"] = there
        stack.edit_config(lambda sweep: sweep["job"].update(tracker=tracker))
        silent(ok(stack.up(env=KEYS)))
        told, _ = pull(stack, clients, **away, TRACKIO_WRITE_TOKEN="wrong")
        assert "A write_token is required" in told["trackio"]["problem"], told
        told, _ = pull(stack, clients, **away)
        assert told["trackio"] == {**told["trackio"], "sent": 3, "problem": ""}
        (stack.base / "data" / "sweepstack" / "trackers").rename(stack.base / "aside again")
        told, _ = pull(stack, clients, **away)
        assert (told["trackio"]["sent"], told["aim"]["sent"]) == (3, 3), "sent again"
    rows, configs = python(clients, TRACKIO, str(tmp_path / "trackio" / "digits.db"), cwd=tmp_path)
    assert len({one for name, one, *_ in rows if name == "run seed0"}) == 1
    assert [row[2:] for row in rows if row[0] == "run seed0"] == [[step, 1 / (step + 1)] for step in range(6)]
    assert [(one["seed"], one["sweepstack.cell"]) for one in configs] == [("0", "seed0"), ("1", "seed1")]
    aimed = python(clients, AIM, str(tmp_path / "aim"), cwd=tmp_path)
    assert set(aimed) == {"run seed0", "run seed1"}
    assert aimed["run seed0"]["curve"] == [[step, 1 / (step + 1)] for step in range(6)]
    assert (aimed["run seed0"]["experiment"], aimed["run seed0"]["tags"]) == ("digits", ["a", "seed 0"])
    assert aimed["run seed0"]["params"]["sweepstack"]["cell"] == "seed0"
    assert aimed["run seed0"]["params"]["seed"] == "0"
    assert aimed["run seed0"]["names"] == ["loss"], "not what the client measures of the machine"

    # Weights & Biases: one id over both tries, in the evidence, and named by the manifest
    logs = python(clients, READ, str(stack.evidence), cwd=tmp_path)
    ids = {run[0] for run in logs if run[3] == "seed 0"}
    assert len(ids) == 1, logs
    killed, whole = sorted(run[5] for run in logs if run[3] == "seed 0")
    assert killed == list(range(len(killed)))
    assert killed, "its client writes 32 KiB at once: the last of them are lost"
    assert whole == list(range(400, 800))
    assert {(run[1], run[2], tuple(sorted(run[4]))) for run in logs if run[3] == "seed 0"} == {
        ("digits", "g", ("a", "seed0"))
    }
    shown = ok(stack.sweepctl("show", "seed0")).text
    assert f"project digits, run {ids.pop()}" in shown
    status = ok(stack.sweepctl("status")).text
    assert f"{uri}, experiment digits" in status

    # TensorBoard reads the evidence, by the words that status has
    folder = status.words.partition("tensorboard --logdir ")[2].split()[0]
    at = int(down().rpartition(":")[2])
    said = tmp_path / "board.txt"
    with open(said, "w") as log:
        board = subprocess.Popen(
            [clients, "-m", "tensorboard.main", "--logdir", folder, "--host", "127.0.0.1", "--port", str(at)],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        here, until = f"http://127.0.0.1:{at}/data/plugin/scalars/tags", time.monotonic() + 60
        while len(tags := json.loads(answers(here, 120))) < 2:
            assert time.monotonic() < until, f"{tags}\n{said.read_text()}"
            time.sleep(0.5)
    finally:
        os.killpg(board.pid, 15)
        board.wait(30)
    assert set(tags) == {"seed0/tensorboard", "seed1/tensorboard"}
    for value in KEYS.values():
        assert [one for one in holders(stack, value) if not one.endswith("secrets.json")] == []

    # another name is no reason to run a cell again
    began = stack.started("box-0")
    tracker["wandb"]["name"] = "other {seed}"
    stack.edit_config(lambda sweep: sweep["job"].update(tracker=tracker))
    silent(ok(stack.up(env=KEYS)))
    stack.wait_idle()
    assert stack.started("box-0") == began
