"""`job.tracker`: what a cell gets, what a pull sends, and that no tracker costs a pull more than a warning.

With the real clients and servers: `test_real.py`, in make proof.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.box import job_input
from sweepstack.core import trackers
from sweepstack.core.job import JobInput, TrackerInput
from sweepstack.core.workdir import NO_CODE
from sweepstack.extensions.trackers import mlflow_server, sync
from sweepstack.launch.ship import settings
from sweepstack.launch.spec import LaunchSpec
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.tracked import run_id
from sweepstack.profiles.plan import BoxPlan
from tests.extensions.formats.curves import trackio
from tests.extensions.trackers.servers import down, hangs, server
from tests.onbox.harness import Box as OnBox
from tests.unit.cli.support import IDENTITY, STACK, World
from tests.unit.config.helpers import broken, load, refusal

TRACKER = (
    "      tracker: {wandb: {project: p, group: 'g {seed}', name: 'lr {lr}', tags: [a, b]}, "
    "mlflow: {uri: 'http://127.0.0.1:9', experiment: e, tags: {of: 'seed {seed}'}}}\n"
)
WITH = broken("      env: {TAG", f"{TRACKER}      env: {{TAG")
KEY = "a-key-of-mine-1234567890"


def _job(root: Path, text: str) -> JobInput:
    tracker = load(root, text).job.tracker
    known = {"run": "x", "workdir": "x", "code": NO_CODE, "env": {"TAG": "{cell}"}}
    asked = {"tracker": tracker.model_dump(mode="json", exclude_none=True)} if tracker is not None else {}
    return JobInput.model_validate({**known, **asked})


def told(job: JobInput) -> dict[str, Any]:
    state = JobInput.model_validate(job_input(job, BoxPlan("box-0", (), "running", {}, slots=1, gpus=0), NO_CODE))
    return settings(LaunchSpec("abcdefghjk", "box-0", "n", 1, (), {}, {}, state, Path("/"), (), None), "python3")


def test_a_cell_logs_offline(tmp_path: Path) -> None:
    env = told(_job(tmp_path, WITH))["env"]
    assert env["WANDB_MODE"] == "offline"
    assert (env["WANDB_RESUME"], env["WANDB_PROJECT"], env["WANDB_NAME"]) == ("allow", "p", "lr {lr}")
    assert (env["WANDB_RUN_GROUP"], env["WANDB_TAGS"]) == ("g {seed}", "a,b")
    assert env["MLFLOW_TRACKING_URI"].startswith("{out}/"), "no server is asked by a cell"
    more = "trackio: {uri: 'https://t.org', project: p}, aim: {uri: ~/aim, experiment: e}, mlflow:"
    env = told(_job(tmp_path, WITH.replace("mlflow:", more)))["env"]
    assert env["TRACKIO_DIR"] == "{out}/tracker/trackio"
    assert env["__AIM_REPO_NAME__"] == "{out}/tracker/aim"
    assert set(trackers.of_smoke(True)) < set(env)


def test_without_it_nothing_changes_and_with_it_no_cell_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = broken("max_price: 2.10", "max_price: 2.10")
    cells = [(cell.name, cell.config_digest) for cell in load(tmp_path, plain).roster.cells]
    assert [(cell.name, cell.config_digest) for cell in load(tmp_path, WITH).roster.cells] == cells
    monkeypatch.delattr(trackers, "_module")  # what asks for the extension fails from here on
    assert told(_job(tmp_path, plain))["env"] == {"TAG": "{cell}"}
    assert "tracked" not in told(_job(tmp_path, plain))
    assert "tracker" not in job_input(_job(tmp_path, plain), BoxPlan("b", (), "running", {}, slots=1, gpus=0), NO_CODE)
    with pytest.raises(NameError):
        told(_job(tmp_path, WITH))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("http://127.0.0.1:9", "http://me:word@lab.org", "without user or key"),
        ("'lr {lr}'", "'lr {wrong}'", "{wrong}: no cell has such a parameter"),
        ("'seed {seed}'", "'{wrong}'", "{wrong}: no cell has such a parameter"),
        ("project: p, ", "", "job.tracker.wandb.project"),
        ("experiment: e", "experiment: 'e {lr}'", "without placeholders"),
        ("mlflow: {uri: 'http://127.0.0.1:9'", "aim: {uri: 'aim://'", "a server of Aim without key"),
        ("wandb: {project: p, group", "trackio: {uri: 'ftp://a', project: p, group", "a server without user or key"),
    ],
)
def test_a_mistake_is_refused_with_its_key(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert WITH.count(old) == 1
    assert said in refusal(tmp_path, WITH.replace(old, new))


def test_all_tries_of_a_cell_have_one_run_and_its_manifest_names_it(make_box: Callable[..., OnBox]) -> None:
    box = make_box(tracked={"wandb": "https://wandb.ai/e/p/runs/{run}"}, retries=1, secrets=["WANDB_API_KEY"])
    box.secrets({"WANDB_API_KEY": KEY})
    say = 'echo "$WANDB_RUN_ID" >> {out}/../../ids; test "$WANDB_API_KEY"'
    box.add("a", f"{say} && test $(wc -l < {{out}}/../../ids) = 2 && echo 1 > {{out}}/result.json")
    box.run("a")
    run = run_id("abcdefghij", "a")
    assert next(box.home.rglob("ids")).read_text().split() == [run, run]
    assert box.manifest("a").provenance["trackers"] == {"wandb": f"https://wandb.ai/e/p/runs/{run}"}
    assert [path.name for path in box.root.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()] == [
        "secrets.json"
    ]


STORE = "tracker/mlruns/1/{run}"


def store(run: str, lr: str, loss: bytes) -> dict[str, bytes]:
    """What MLflow's client leaves of one run."""
    at = STORE.format(run=run)
    return {
        f"{at}/meta.yaml": b"end_time: 1795943134999\nstart_time: 1795943134000\nstatus: 3\n",
        f"{at}/metrics/loss": loss,
        f"{at}/params/lr": lr.encode(),
        f"{at}/tags/mlflow.user": b"ann",
        f"{at}/artifacts/model.bin": b"\0" * 64,
    }


def tracked(
    world: World, monkeypatch: pytest.MonkeyPatch, *, more: tuple[str, bytes, bytes] | None = None, **asked: Any
) -> None:
    """A cell that was tried twice, and logged to MLflow each time; a sweep with this tracker. `more`: one more file of
    both tries."""
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", KEY)
    box = world.add("box-0")
    box.launch("lr0.1")
    box.start("lr0.1")
    name, of_first, of_second = more or ("other", b"1", b"2")
    first = store("r1", "0.1", b"1795943134660 0.5 0\n1795943134661 0.")
    for path, data in {**first, name: of_first}.items():
        file = box.root / box_layout.attempt_dir("lr0.1", 1) / "out" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    box.fail("lr0.1", final=False)
    wandb = {"tracker/wandb/offline-run-1-x/run-x.wandb": b"log"}
    second = store("r2", "0.2", b"1795943134662 0.25 1\n1795943134663 nan 2\n")
    box.seal("lr0.1", attempt=2, files={"log.txt": b"x\n", name: of_second} | second | wandb)
    exported = world.resource

    def with_tracker(kind: str, name: str, identifier: str, outputs: dict[str, Any]) -> dict[str, Any]:
        if kind == "Queue":
            outputs = outputs | {"job": outputs["job"] | {"tracker": TrackerInput.model_validate(asked).model_dump()}}
        return exported(kind, name, identifier, outputs)

    monkeypatch.setattr(world, "resource", with_tracker)


def mlflow(uri: str) -> dict[str, Any]:
    return {"uri": uri, "experiment": "e", "name": "run {cell}", "tags": {"lr": "{lr}"}}


def test_runs_of_trackio_are_sent_to_its_server(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    [first] = trackio([{"step": 0, "loss": 0.5}, {"step": 1, "loss": "NaN"}], ("r1",), lr=0.1).values()
    [second] = trackio([{"step": 2, "loss": 0.1, "image": {"_type": "trackio.image"}}], ("r2",), lr=0.2).values()
    with server() as found:
        asked = {"uri": found.uri, "project": "p", "group": "lr {lr}", "name": "run {cell}"}
        tracked(world, monkeypatch, more=("tracker/trackio/a.db", first, second), trackio=asked)
        monkeypatch.setenv("TRACKIO_WRITE_TOKEN", KEY)
        found.status = 400
        refused = world.run("pull")
        assert refused.code == 0, refused
        assert "2 attempts left to send" in " ".join(refused.out.split())
        assert KEY not in refused.out + refused.err
        found.status, found.asked[:] = 200, []
        (said,) = world.run("pull", "--json").json["trackers"]
        assert (said["sent"], said["problem"]) == (2, ""), said
        assert said["links"] == {"lr0.1": f"{found.uri}/?project=p"}
        logs = [row for path, body in found.asked if path == "/api/bulk_log" for row in body["kwargs"]["logs"]]
        assert {(row["project"], row["run"], row["run_id"]) for row in logs} == {
            ("p", "run lr0.1", run_id(IDENTITY, "lr0.1"))
        }, "one run of both tries"
        assert [(row["step"], row["metrics"]) for row in logs] == [
            (0, {"loss": 0.5}), (1, {"loss": "NaN"}), (2, {"loss": 0.1}),
        ]  # fmt: skip
        assert [row["log_id"] for row in logs] == ["r1-0", "r1-1", "r2-2"], "so a server takes none twice"
        assert logs[-1]["config"] == {
            "lr": 0.2, "sweepstack.cell": "lr0.1", "sweepstack.sweep": IDENTITY, "_Group": "lr 0.1"
        }  # fmt: skip
        assert world.run("pull", "--json").json["trackers"][0]["sent"] == 0
        assert f"{found.uri}, project p" in world.run("status").out
        assert set(found.keys) == {f"Bearer {KEY}"}
        assert holders(world) == []


def test_a_file_of_trackio_that_does_not_read_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with server() as found:
        tracked(world, monkeypatch, more=("tracker/trackio/a.db", b"no base", b"no base"),
                trackio={"uri": found.uri, "project": "p"})  # fmt: skip
        (said,) = world.run("pull", "--json").json["trackers"]
        assert said["problem"].startswith("a.db of lr0.1 does not read: "), said


@pytest.mark.parametrize("uri", ["~/aim", "aim://127.0.0.1:9"])
def test_aim_needs_its_package_beside_sweepctl(world: World, monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    """With it: `test_real.py`."""
    tracked(world, monkeypatch, more=("tracker/aim/VERSION", b"1.2", b"1.2"), aim={"uri": uri, "experiment": "e"})
    result = world.run("pull", "--json")
    assert result.code == 0
    (said,) = result.json["trackers"]
    assert f"Next: {sys.executable} -m pip install aim; 2 attempts left to send" in said["problem"]
    assert "experiment e" in said["words"]


def holders(world: World) -> list[str]:
    return [str(one) for one in world.folder.rglob("*") if one.is_file() and KEY.encode() in one.read_bytes()]


def test_a_pull_sends_each_try_once_and_says_where(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with server() as found:
        tracked(world, monkeypatch, mlflow=mlflow(found.uri))
        first = world.run("pull", "--json")
        assert first.code == 0, first
        (said,) = first.json["trackers"]
        assert (said["sent"], said["problem"]) == (2, ""), said
        assert list(found.runs) == [run_id(IDENTITY, "lr0.1")], "one run of both tries"
        link = f"{found.uri}/#/experiments/7/runs/r0"
        assert said["links"] == {"lr0.1": link}
        batches = [body for path, body in found.asked if path == "runs/log-batch"]
        rows = [(row["step"], row["value"]) for body in batches for row in body.get("metrics", [])]
        assert rows == [(0, 0.5), (1, 0.25), (2, "NaN")], "a line that was cut off is left out"
        params = [pair for body in batches for pair in body.get("params", [])]
        assert params == [{"key": "lr", "value": "0.1"}], "a server refuses another value of a later try"
        assert {"key": "lr", "value": "0.1"} in [pair for body in batches for pair in body.get("tags", [])]
        (made,) = [body for path, body in found.asked if path == "runs/create"]
        assert made["run_name"] == "run lr0.1"
        ends = [body["status"] for path, body in found.asked if path == "runs/update"]
        assert ends == ["FAILED", "FINISHED"]
        before = len(found.asked)
        assert world.run("pull", "--json").json["trackers"][0]["sent"] == 0
        assert len(found.asked) == before, "what was sent is not sent again"
        for verb in ("status", "results"):
            assert found.uri in world.run(verb).out
            assert world.run(verb, "--json").json["trackers"][0]["links"] == {"lr0.1": link}
        assert set(found.keys) == {f"Bearer {KEY}"}
        assert holders(world) == []


@pytest.mark.parametrize(
    ("status", "said"),
    [(401, "does not accept the key"), (403, "forbids"), (500, "no usable answer"), (None, "does not answer")],
)
def test_a_server_that_is_down_or_rejects_the_key_is_a_warning(
    world: World, monkeypatch: pytest.MonkeyPatch, status: int | None, said: str
) -> None:
    monkeypatch.setattr("sweepstack.platforms.common.http_client.BACKOFF_SECONDS", 0.01)
    with server(status or 200) as found:
        tracked(world, monkeypatch, mlflow=mlflow(found.uri if status else down()))
        result = world.run("pull")
        assert result.code == 0, result
        assert "not sent, the evidence has it all" in result.out
        assert said in result.out, result
        assert f"2 attempts left to send. Next, once that is mended: sweepctl pull --stack {STACK}" in " ".join(
            result.out.split()
        )
        assert KEY not in result.out + result.err
        assert "1 of 3 verified" in world.run("verify").out
        found.status = 200
        if status:
            assert world.run("pull", "--json").json["trackers"][0]["sent"] == 2, "the next pull sends it"
        assert holders(world) == []


def test_a_server_that_hangs_holds_a_pull_for_seconds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_server, "FIRST_SECONDS", 1.0)
    with hangs() as found:
        tracked(world, monkeypatch, mlflow=mlflow(found.uri))
        result = world.run("pull")
        assert result.code == 0, result
        assert "does not answer" in result.out
        assert found.came
        assert KEY not in result.out + result.err


def test_a_slow_server_holds_a_pull_for_its_time_and_the_next_one_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server() as found:
        tracked(world, monkeypatch, mlflow=mlflow(found.uri))
        monkeypatch.setattr(sync, "SECONDS", 1.5)
        found.pause = 0.3
        (said,) = world.run("pull", "--json").json["trackers"]
        assert said["sent"] == 0
        assert "its time was up; 2 attempts left to send" in said["problem"], said
        found.pause = 0.0
        monkeypatch.setattr(sync, "SECONDS", 60.0)
        assert world.run("pull", "--json").json["trackers"][0]["sent"] == 2
        assert list(found.runs) == [run_id(IDENTITY, "lr0.1")], "what had begun is gone on with"


def test_the_page_says_where_the_runs_are(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    tracked(world, monkeypatch, mlflow=mlflow("http://127.0.0.1:9"), tensorboard={"folder": "tensorboard"})
    page = world.folder / "page.html"
    assert world.run("results", "--as", "html", "-o", str(page)).code in (0, 1)
    assert "mlflow: http://127.0.0.1:9, experiment e" in page.read_text()
    assert f"tensorboard --logdir {world.evidence}/cells" in page.read_text()


WANDB = """
import json, os, pathlib, sys
def main():
    said = {"argv": sys.argv[1:], "names": sorted(name for name in os.environ if name.startswith("WANDB"))}
    said["key"] = os.environ.get("WANDB_API_KEY")
    with open(os.environ["HOME"] + "/said", "a") as out:
        out.write(json.dumps(said) + "\\n")
    if os.path.exists(os.environ["HOME"] + "/rejects"):
        print("wandb: ERROR the key " + said["key"] + " is not known (401)")
        return 1
    for word in sys.argv:
        if "offline-run" in word:
            (next(pathlib.Path(word).glob("*.wandb")).with_suffix(".wandb.synced")).touch()
sys.exit(main())
"""


def test_runs_of_wandb_are_sent_by_its_own_program(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "wandb").mkdir()
    (tmp_path / "wandb" / "__init__.py").touch()
    (tmp_path / "wandb" / "__main__.py").write_text(WANDB)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(sys.path)}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.syspath_prepend(str(tmp_path))
    tracked(world, monkeypatch, wandb={"project": "p", "entity": "lab", "name": "{cell}"})
    monkeypatch.setattr("sweepstack.platforms.common.http_client.BACKOFF_SECONDS", 0.01)
    monkeypatch.setenv("WANDB_BASE_URL", down())
    assert "does not answer" in world.run("pull").out
    assert not (tmp_path / "said").exists(), "a server that is down is not waited for"
    (tmp_path / "rejects").touch()
    with server() as found:
        monkeypatch.setenv("WANDB_BASE_URL", found.uri)
        _sent_by_its_own_program(world, tmp_path, found)


def _sent_by_its_own_program(world: World, tmp_path: Path, found: Any) -> None:
    refused = world.run("pull")
    assert refused.code == 0, refused
    assert "is not known (401); 1 attempt left to send" in " ".join(refused.out.split())
    assert KEY not in refused.out + refused.err
    (tmp_path / "rejects").unlink()
    (said,) = world.run("pull", "--json").json["trackers"]
    run = run_id(IDENTITY, "lr0.1")
    assert said["links"] == {"lr0.1": f"{found.uri}/lab/p/runs/{run}"}
    assert said["words"] == f"{found.uri}/lab/p/groups/{IDENTITY}"
    first, second = map(json.loads, (tmp_path / "said").read_text().splitlines())
    assert first["argv"][:6] == ["sync", "--yes", "--project", "p", "--entity", "lab"]
    assert second["key"] == KEY
    assert second["names"] == ["WANDB_API_KEY", "WANDB_BASE_URL", "WANDB_ERROR_REPORTING"], (
        "a run's own variables are not its own"
    )
    assert not any(KEY in word for word in second["argv"])
    assert holders(world) == [str(tmp_path / "said")], "what the test itself wrote"
