"""The smoke run: in a cell's surroundings, remembered when it passed, and clear about why it did not."""

from __future__ import annotations

import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sweepstack.core.job import Smoke
from sweepstack.core.records import Cell
from sweepstack.core.workdir import collect
from sweepstack.launch import smoke as module
from sweepstack.launch.smoke import Outcome, SmokeFailed, ensure, memory, passed, preview_line, smoke_of
from sweepstack.onbox.common.errors import ConfigError

CELL = Cell(name="lr0.1-seed0", params={"lr": 0.1, "seed": 0, "name of it": "a'b", "flag": True})


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose job is `job/train.sh`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(module, "GRACE_SECONDS", 1.0)
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "train.sh").write_text("echo training\n")
    return tmp_path


def spec(root: Path, run: str = "sh train.sh", **known: Any) -> Smoke:
    code = collect(root / "job").digest
    facts = {"seconds": 30.0, "env": {}, "workdir": "job", "code": code} | known
    return smoke_of(CELL, run=run, **facts)


def run(root: Path, what: Smoke, **how: Any) -> Outcome:
    return ensure(what, root, progress=how.pop("progress", lambda _: None), **how)


def counted(root: Path) -> str:
    """A command that leaves a line each time it runs."""
    return f"echo once >> {root}/count"


def times(root: Path) -> int:
    return len((root / "count").read_text().splitlines()) if (root / "count").exists() else 0


def test_it_runs_once_for_one_code_and_config(project: Path) -> None:
    what = spec(project, counted(project))
    assert passed(what) is None
    assert "not passed yet" in preview_line(what)
    assert run(project, what).ran
    assert not run(project, what).ran
    assert times(project) == 1
    assert "passed in" in preview_line(what)
    assert run(project, what, force=True).ran
    assert times(project) == 2


@pytest.mark.parametrize(
    "change", [{"run": "sh train.sh --more"}, {"env": {"A": "1"}}, {"params": {"lr": "0.3"}}, {"cell": "other"}]
)
def test_what_decides_makes_it_run_again(project: Path, change: dict[str, Any]) -> None:
    what = spec(project)
    run(project, what)
    assert passed(what.model_copy(update=change)) is None
    assert passed(what.model_copy(update={"seconds": 5.0})) is not None


def test_new_code_makes_it_run_again(project: Path) -> None:
    run(project, spec(project))
    (project / "job" / "train.sh").write_text("echo better\n")
    assert passed(spec(project)) is None


def test_its_surroundings_are_a_cell_s(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_ACCESS_TOKEN", "pul-0123456789")
    monkeypatch.setenv("HF_TOKEN", "hf-0123456789")
    what = spec(
        project,
        f"env > {project}/env; pwd > {project}/pwd; echo {{lr}} {{cell}} {{flag}} {{out}} > {project}/filled",
        env={"TAG": "{cell}/{seed}"},
        secrets=("HF_TOKEN",),
    )
    run(project, what)
    env = dict(line.split("=", 1) for line in (project / "env").read_text().splitlines())
    assert env["TAG"] == "lr0.1-seed0/0"
    assert (env["SWEEPSTACK_CELL"], env["SWEEPSTACK_ATTEMPT"], env["PYTHONUNBUFFERED"]) == ("lr0.1-seed0", "1", "1")
    for name in ("SWEEPSTACK_OUT", "SWEEPSTACK_CHECKPOINT_DIR", "SWEEPSTACK_SCRATCH", "SWEEPSTACK_BOX_ID"):
        assert env[name]
    assert env["HF_TOKEN"] == "hf-0123456789"
    assert "PULUMI_ACCESS_TOKEN" not in env
    assert (project / "filled").read_text() == f"0.1 lr0.1-seed0 true {env['SWEEPSTACK_OUT']}\n"
    where = Path((project / "pwd").read_text().strip())
    assert where != project / "job"
    assert not where.exists(), "nothing is left behind"


def test_the_checkpoint_helper_is_there(project: Path) -> None:
    run(project, spec(project, "python -c 'import sweepstack_checkpoint'"))


def test_it_sees_what_ships_and_nothing_else(project: Path) -> None:
    """A file that nobody would ship is missing here already."""
    (project / "job" / ".hidden-data").write_text("x")
    with pytest.raises(SmokeFailed, match=r"(?s)exit code 2.*hidden-data.*No such file"):
        run(project, spec(project, "ls .hidden-data"))


def test_a_missing_artifact_is_a_note(project: Path) -> None:
    what = spec(project, "touch {out}/a.json", artifacts=("a.json", "b.json"))
    assert run(project, what).passed.missing == ("b.json",)
    assert preview_line(what).endswith("it left no b.json")


def test_a_failure_shows_the_end_of_its_log(project: Path) -> None:
    noise = "; ".join(f"echo line {number}" for number in range(40))
    with pytest.raises(SmokeFailed) as failed:
        run(project, spec(project, f"{noise}; echo KeyError: lr >&2; exit 3"))
    text = str(failed.value)
    assert "the smoke run failed: exit code 3 after" in text
    assert "  | KeyError: lr" in text
    assert "line 39" in text
    assert "| line 2\n" not in text
    assert "Nothing was rented" in text
    assert "as    lr0.1-seed0" in text


def test_a_failure_is_not_remembered_as_anything(project: Path) -> None:
    what = spec(project, f"test -f {project}/mended")
    for _ in range(2):
        with pytest.raises(SmokeFailed):
            run(project, what)
    (project / "mended").touch()
    assert run(project, what).ran


def test_control_characters_and_secrets_are_not_shown(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf-0123456789")
    what = spec(project, "printf 'a\\033[2Jb %s\\n' $HF_TOKEN; exit 1", secrets=("HF_TOKEN",))
    with pytest.raises(SmokeFailed) as failed:
        run(project, what)
    assert "\033" not in str(failed.value)
    assert "hf-0123456789" not in str(failed.value)


def test_nothing_of_a_secret_is_shown_either(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the rest of one that begins like another, nor what is left of one behind a cut; nor in what is said of it."""
    monkeypatch.setattr(module, "PROGRESS_SECONDS", 0.05)
    monkeypatch.setenv("HF_USER", "hf-012345")
    monkeypatch.setenv("HF_TOKEN", "hf-012345-" + "t" * module.TAIL_BYTES)
    noise = "head -c 20000 /dev/zero | tr '\\0' x"
    echoed, heard = project / "echoed", project / "heard"
    script = f"{noise}; echo $HF_TOKEN; touch {echoed}; until test -e {heard}; do sleep 0.02; done; exit 1"
    what = spec(project, script, secrets=("HF_USER", "HF_TOKEN"), seconds=120.0)
    said: list[str] = []
    after: list[str] = []

    def hear(text: str) -> None:
        said.append(text)
        if echoed.exists():
            after.append(text)
        if len(after) > 1:  # the first of them may be from before that
            heard.touch()

    with pytest.raises(SmokeFailed) as failed:
        run(project, what, progress=hear)
    assert len(after) > 1
    assert not any("ttt" in text or "012345" in text for text in [str(failed.value), *said])
    assert "****" in str(failed.value)


def test_a_signal_without_a_name_is_a_number(project: Path) -> None:
    with pytest.raises(SmokeFailed, match="killed by signal 40 after"):
        run(project, spec(project, "kill -40 $$"))


def test_a_secret_that_is_not_set_is_said_before_anything_runs(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="HF_TOKEN not set here"):
        run(project, spec(project, counted(project), secrets=("HF_TOKEN",)))
    assert times(project) == 0


def test_its_deadline_ends_all_of_it(project: Path) -> None:
    for seconds in (0.5, 5, 50):  # on a busy machine it may be ended before it has begun, and that tells nothing
        script = f"(sleep 600 & echo $! > {project}/new; mv {project}/new {project}/child; wait)"
        what = spec(project, script, seconds=seconds)
        with pytest.raises(SmokeFailed, match=f"not through within {seconds} s"):
            run(project, what)
        if (project / "child").exists():
            break
    assert_ended(int((project / "child").read_text()))


def test_what_it_leaves_running_is_ended(project: Path) -> None:
    run(project, spec(project, f"sleep 60 & echo $! > {project}/child"))
    assert_ended(int((project / "child").read_text()))


def test_a_cancel_ends_it(project: Path) -> None:
    cancelled = threading.Event()
    what = spec(project, f"echo $$ > {project}/new; mv {project}/new {project}/child; sleep 600", seconds=120.0)

    def cancel() -> None:
        while not (project / "child").exists():
            time.sleep(0.01)
        cancelled.set()

    threading.Thread(target=cancel, daemon=True).start()
    with pytest.raises(SmokeFailed, match="cancelled"):
        run(project, what, cancelled=cancelled)
    assert_ended(int((project / "child").read_text()))


def test_boxes_of_one_up_run_it_once(project: Path) -> None:
    what = spec(project, counted(project) + "; sleep 0.2")
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda _: run(project, what), range(4)))
    assert times(project) == 1
    assert sum(outcome.ran for outcome in outcomes) == 1


def test_boxes_of_one_up_see_it_fail_once(project: Path) -> None:
    what = spec(project, counted(project) + "; sleep 0.5; exit 1")

    def fails(_: int) -> str:
        with pytest.raises(SmokeFailed) as failed:
            run(project, what)
        return str(failed.value)

    with ThreadPoolExecutor(3) as pool:
        texts = set(pool.map(fails, range(3)))
    assert times(project) == 1
    assert len(texts) == 1


def test_a_box_that_asks_later_in_the_same_command_sees_the_same_failure(project: Path) -> None:
    """The boxes of one `up` ask when each is ready to be made, which may be after the first was refused."""
    what = spec(project, counted(project) + "; exit 1")
    began = time.time()
    for _ in range(2):
        with pytest.raises(SmokeFailed):
            ensure(what, project, progress=lambda _: None, since=began)
    assert times(project) == 1
    with pytest.raises(SmokeFailed):
        ensure(what, project, progress=lambda _: None)
    assert times(project) == 2


def test_progress_is_its_last_line(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROGRESS_SECONDS", 0.05)
    said: list[str] = []
    heard = project / "heard"

    def hear(line: str) -> None:
        said.append(line)
        if len(said) > 1 and line.endswith("epoch 1"):  # the first line is the command itself
            heard.touch()

    run(
        project,
        spec(project, f"echo epoch 1; until test -e {heard}; do sleep 0.02; done", seconds=120.0),
        progress=hear,
    )
    assert any(line.endswith("epoch 1") for line in said[1:])


def test_a_work_dir_that_changed_meanwhile_is_refused(project: Path) -> None:
    what = spec(project)
    (project / "job" / "train.sh").write_text("echo other\n")
    with pytest.raises(ConfigError, match="changed while it was looked at"):
        run(project, what)


@pytest.mark.parametrize("garbage", [b"", b"{", b"[]", b'{"at": 1}', b"\xff"])
def test_a_damaged_memory_is_none(project: Path, garbage: bytes) -> None:
    what = spec(project, counted(project))
    run(project, what)
    for path in memory().glob(f"{what.key}.*"):
        path.write_bytes(garbage)
    assert run(project, what).ran
    assert times(project) == 2


def test_it_travels_as_plain_values(project: Path) -> None:
    what = spec(project, env={"B": "1", "A": "2"})
    plain = json.loads(json.dumps(what.model_dump(mode="json", exclude_defaults=True)))
    assert Smoke.model_validate(plain) == what
    assert Smoke.model_validate(plain).key == what.key


def assert_ended(pid: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state == "Z":
            return
        time.sleep(0.02)
    os.kill(pid, 9)
    raise AssertionError("it still ran")
