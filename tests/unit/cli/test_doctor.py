"""`sweepctl doctor`: what it finds wrong on a machine and a sweep, and that it says how to fix it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sweepstack.cli.commands.doctor import engine, machine
from sweepstack.cli.commands.doctor import sweep as one_sweep
from sweepstack.cli.commands.doctor.finding import Finding
from sweepstack.onbox.common.errors import Unreachable
from sweepstack.onbox.host.folder_platform import LocalPlatform
from sweepstack.operations.sweep import engine_mend
from sweepstack.operations.sweep.target import Target
from tests.unit.cli.support import STACK, World


def by_name(world: World) -> dict[str, Finding]:
    """What the checks of the world's sweep say."""
    target = Target.find(STACK, start=world.root)
    return {finding.name: finding for _, check in one_sweep.checks(target) for finding in check()}


@pytest.fixture
def healthy(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A sweep with nothing to complain about."""
    (world.root / "job" / "train.py").write_text("import json\nimport sweepstack_checkpoint\n")
    monkeypatch.setattr("sweepstack.cli.commands.doctor.sweep.find_engine", lambda: str(world.engine / "pulumi"))
    world.add("box-0")
    world.save()
    return world


def test_a_healthy_sweep(healthy: World) -> None:
    found = by_name(healthy)
    assert {name: finding.verdict for name, finding in found.items()} == dict.fromkeys(found, "ok") | {
        "disk (evidence)": found["disk (evidence)"].verdict
    }
    assert set(found) >= {"stack file", "work dir", "imports", "secrets", "evidence", "ledger", "state", "boxes"}
    assert "3 cells on 1 box, local" in found["stack file"].found


def test_mistakes_of_the_stack_file(healthy: World) -> None:
    healthy.file.path.write_text(healthy.file.path.read_text().replace("candidates: [local]", "candidates: [locale]"))
    found = by_name(healthy)
    assert found["stack file"].verdict == "fail"
    assert "locale" in found["stack file"].found
    assert found["job"].verdict == "unknown"


def test_every_mistake_of_the_stack_file_is_listed_without_a_stack(healthy: World) -> None:
    """`pulumi preview` shows them, too, and only once there is a stack: a new file may have none."""
    text = healthy.file.path.read_text().replace("candidates: [local]", "candidates: [locale]\n    bosex: {}\n    x: 1")
    healthy.file.path.write_text(text)
    found = by_name(healthy)["stack file"]
    assert "(and 2 more)" in found.found
    assert "line 12  bosex" in found.fix
    assert "unknown key" in found.fix
    assert len(found.fix.splitlines()) == 3
    said = healthy.run("doctor").out
    assert "fail   stack file: fix it in" in said
    assert "unknown job: fix it first" in said


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is that of Linux")
def test_a_list_that_is_too_long_for_the_engine(healthy: World) -> None:
    """The engine's own words name neither file nor key: `fork/exec …/python3: argument list too long`."""
    text = healthy.file.path.read_text()
    rows = "".join(
        f"        - {{lr: {number}.5, name: one-of-the-many-cells-of-a-long-list-{number}}}\n" for number in range(2500)
    )
    start, end = text.index("    cells:"), text.index("    artifacts:")
    healthy.file.path.write_text(f"{text[:start]}    cells:\n      list:\n{rows}{text[end:]}")
    found = by_name(healthy)["stack file"]
    assert found.verdict == "fail"
    assert "is too long for the engine" in found.found
    assert "argument list too long" in found.fix


def test_yaml_that_is_none_is_told_with_file_and_line(healthy: World) -> None:
    healthy.file.path.write_text("config:\n  sweepstack:sweep:\n    artifacts: {a: {run: check {file}, load: json}}\n")
    found = by_name(healthy)["stack file"]
    assert found.verdict == "fail"
    assert f"{healthy.file.shown}, line 3: not valid YAML" in found.found
    assert found.fix == f"fix it in {healthy.file.shown}"


def test_no_secret_of_the_stack_file_is_printed(healthy: World) -> None:
    text = healthy.file.path.read_text().replace(
        "candidates: [local]", "candidates: [local]\n    bid: ghp_" + "a1B2" * 9 + "\n    x: 1"
    )
    healthy.file.path.write_text(text.replace("pull_to:", "pull_to: https://me:hunter2@host/x #"))
    said = healthy.run("doctor")
    assert "pull_to" in said.out
    assert "hunter2" not in said.out + said.err
    assert "a1B2a1B2" not in said.out + said.err


def test_an_import_that_is_not_there(healthy: World) -> None:
    (healthy.root / "job" / "train.py").write_text("import torchvision_that_nobody_has\n")
    imports = by_name(healthy)["imports"]
    assert imports.verdict == "fail"
    assert "torchvision_that_nobody_has" in imports.found


def test_a_script_that_is_not_there(healthy: World) -> None:
    (healthy.root / "job" / "train.py").rename(healthy.root / "job" / "main.py")
    assert "train.py is not among" in by_name(healthy)["imports"].found


def test_a_work_dir_that_would_ship_a_key(healthy: World) -> None:
    (healthy.root / "job" / "id_rsa").write_text("x")
    assert by_name(healthy)["work dir"].verdict == "fail"


def test_the_webhook_s_variable(healthy: World, monkeypatch: pytest.MonkeyPatch) -> None:
    text = healthy.file.path.read_text()
    healthy.file.path.write_text(text.replace("    boxes:", "    budget: {usd: 5, webhook: BUDGET_HOOK}\n    boxes:"))
    monkeypatch.delenv("BUDGET_HOOK", raising=False)
    assert by_name(healthy)["webhook"].verdict == "warn"
    monkeypatch.setenv("BUDGET_HOOK", "http://secret.example/T0")
    webhook = by_name(healthy)["webhook"]
    assert (webhook.verdict, webhook.found) == ("ok", "BUDGET_HOOK is set")


def test_evidence_of_another_sweep(healthy: World) -> None:
    marker = healthy.evidence / "sweep.json"
    marker.write_text(marker.read_text().replace(f'"{STACK}"', '"other"'))
    evidence = by_name(healthy)["evidence"]
    assert evidence.verdict == "fail"
    assert "holds the evidence of sweepstack/other" in evidence.found


def test_a_damaged_ledger(healthy: World) -> None:
    folder = healthy.evidence / "records" / "ledger"
    folder.mkdir(exist_ok=True)
    (folder / "local-x--0.json").write_text("{")
    assert by_name(healthy)["ledger"].verdict == "warn"


def test_a_box_that_the_state_does_not_have(healthy: World) -> None:
    lost = healthy.add("box-1")
    healthy.gone = ["box-1"]
    healthy.save()
    boxes = by_name(healthy)["boxes"]
    assert boxes.verdict == "fail"
    assert lost.native_id in boxes.found
    assert boxes.fix.startswith(f"pulumi up --stack {STACK}")


def test_a_platform_that_does_not_answer(healthy: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> list[object]:
        raise Unreachable("no answer")

    monkeypatch.setattr(LocalPlatform, "list_tagged", silent)
    boxes = by_name(healthy)["boxes"]
    assert boxes.verdict == "unknown"
    assert "no answer" in boxes.found


def test_records_that_do_not_open_beside_an_empty_state(healthy: World) -> None:
    healthy.engine_says(f"error: no stack named '{STACK}' found")
    (healthy.evidence / "sweep.json").write_bytes(b"\0" * 40)
    boxes = by_name(healthy)["boxes"]
    assert boxes.verdict == "unknown"
    assert "sweep.json" in boxes.found


def test_a_backend_without_the_stack(healthy: World) -> None:
    healthy.engine_says(f"error: no stack named '{STACK}' found")
    state = by_name(healthy)["state"]
    assert state.verdict == "warn"
    assert state.fix == f"pulumi stack init {STACK} && pulumi up --stack {STACK}"


# The machine


def locked(folder: Path, **facts: object) -> Finding:
    """The finding for a lock with these facts."""
    known = {"pid": os.getpid(), "hostname": socket.gethostname(), "timestamp": "2026-11-21T09:00:00Z"} | facts
    place = folder / ".pulumi" / "locks" / "organization" / "sweepstack" / "t"
    place.mkdir(parents=True, exist_ok=True)
    (place / "1.json").write_text(json.dumps(known))
    return engine.lock(folder, "t", "sweepstack")


def test_the_engine_s_lock(tmp_path: Path) -> None:
    assert engine.lock(tmp_path, "t", "sweepstack").verdict == "ok"
    assert locked(tmp_path).verdict == "warn"
    child = subprocess.Popen(["true"])
    child.wait()
    left = locked(tmp_path, pid=child.pid)
    assert (left.verdict, left.fix) == ("fail", "pulumi cancel --stack t")
    assert locked(tmp_path, hostname="gpu-desk").verdict == "unknown"
    for nobody in ("x", None, 0, -1, 10**30):
        assert locked(tmp_path, pid=nobody).verdict == "unknown"


def test_the_engine_s_lock_is_judged_by_the_launcher_s_own_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a lock away that this very finding calls one of a process which has ended."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "launcher").write_text("def holder(path):\n    return 'there', 7, 'noon', True\n")
    monkeypatch.setattr(engine_mend, "shipped", lambda name: tmp_path / name)
    assert "process 7 on there since noon, which has ended" in locked(tmp_path).found


def test_a_clock_that_was_set_back(tmp_path: Path) -> None:
    assert engine.clock(tmp_path).verdict == "ok"
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"
    state = tmp_path / ".pulumi" / "stacks" / "sweepstack" / "t.json"
    state.parent.mkdir(parents=True)
    state.write_text("{}")
    os.utime(state, (time.time() + 3600, time.time() + 3600))
    assert engine.clock(tmp_path).verdict == "fail"


def test_a_backend_folder_that_is_not_there(tmp_path: Path) -> None:
    assert engine.clock(tmp_path / "absent").verdict == "fail"


def test_room_on_a_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = machine.room({"a": tmp_path, "b": tmp_path / "not" / "made" / "yet"})
    assert one.name == "disk (a, b)"
    honest = os.statvfs(tmp_path)

    class Full:
        f_bavail, f_frsize, f_blocks, f_flag = 10, 4096, honest.f_blocks, 0
        f_files, f_favail = 10**6, 10**6

    monkeypatch.setattr(os, "statvfs", lambda _: Full)
    assert machine.room({"a": tmp_path})[0].verdict == "fail"
    Full.f_bavail, Full.f_favail = 10**9, 5
    assert machine.room({"a": tmp_path})[0].verdict == "fail", "inodes"
    Full.f_favail, Full.f_flag = 10**6, os.ST_RDONLY
    assert "can only be read" in machine.room({"a": tmp_path})[0].found
    Full.f_files, Full.f_flag = 0, 0
    assert machine.room({"a": tmp_path})[0].verdict == "ok", "a file system that counts no inodes"


def test_tools_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert machine.git()[0].verdict == "fail"
    assert {finding.verdict for finding in machine.tools()} == {"warn"}


def test_a_passphrase_file_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE", raising=False)
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE_FILE", str(tmp_path / "absent"))
    assert engine.passphrase()[0].verdict == "fail"
    (tmp_path / "absent").write_text("x")
    assert engine.passphrase()[0].verdict == "ok"


def test_a_check_that_breaks_or_says_nothing_hides_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that says nothing has found nothing (`extras`): it was shown as one that did not answer in time."""

    def broken() -> list[Finding]:
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr(machine, "git", broken)
    monkeypatch.setattr(engine, "checks", lambda _: iter([("quiet", list)]))
    result = world.run("doctor", "--json")
    checks = {check["name"]: check for check in result.json["checks"]}
    assert checks["git"]["verdict"] == "unknown"
    assert "nobody thought of this" in checks["git"]["found"]
    assert checks["python"]["verdict"] == "ok"
    assert "quiet" not in checks
    assert result.code in (1, 2)
