"""`sweepctl` new, wait, logs, finish, and what all commands share."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

from sweepstack.cli.commands.logs import _CONTROL
from sweepstack.cli.options import parse_duration
from sweepstack.cli.output import size, span
from sweepstack.cli.progress import Progress
from sweepstack.config.edit.stack_file import StackFile
from sweepstack.onbox.common.errors import Unreachable, Unsure
from sweepstack.onbox.common.units import count
from sweepstack.operations.sweep import cell_results
from tests.unit.cli.support import STACK, World

# new


def test_new_writes_a_file_that_the_program_accepts(world: World) -> None:
    from sweepstack.config.stack_config import StackConfig

    result = world.run("init", "day-2", "--json", stack=None)
    assert result.code == 0
    assert result.json["file"] == "stacks/Pulumi.day-2.yaml"
    assert result.json["next"][0] == "pulumi stack init day-2"
    assert "(make up STACK=day-3 does the first and the last)" in world.run("init", "day-3", stack=None).out
    file = StackFile.locate(world.root, "day-2")
    assert file.pull_to() == "~/sweeps/day-2"
    assert file.path.read_text().count("#") > 5
    config = StackConfig.load(world.root, "day-2")
    unused = [name for name in config.roster.cells[0].params if f"{{{name}}}" not in config.job.run]
    assert unused == [], "a template that is to be repaired first"


# wait


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweepstack.cli.commands.wait.POLL_SECONDS", 0.05)


@pytest.mark.usefixtures("quick")
def test_wait_goes_on_until_it_is_true(world: World) -> None:
    box = world.add()
    box.launch("lr0.1", "lr0.3", "lr0.9")
    box.seal("lr0.1")
    box.seal("lr0.3")
    box.start("lr0.9")
    box.alive()
    begin = time.monotonic()
    timer = threading.Timer(0.5, lambda: box.seal("lr0.9"))
    timer.start()
    assert world.run("wait", "done", "--timeout", "120s").code == 0
    assert time.monotonic() - begin >= 0.4
    timer.join()


@pytest.mark.usefixtures("quick")
def test_wait_waits_an_outage_out(world: World) -> None:
    box = world.add()
    box.launch("lr0.1")
    box.start("lr0.1")
    world.run("pull")
    world.move_registry()
    result = world.run("wait", "--timeout", "0.5s")
    assert result.code == 1
    assert "not done within" in result.err, "an unreachable box is no reason to give up"


@pytest.mark.usefixtures("quick")
def test_wait_for_first_step(world: World) -> None:
    box = world.add()
    box.launch("lr0.1")
    box.start("lr0.1")
    box.alive()
    early = world.run("wait", "first-step", "--timeout", "0.3s")
    assert early.code == 1
    assert "not first-step within 0 s: 1 running, 2 pending" in early.err
    (box.root / "data/sweep/cells/lr0.1/1/log.txt").write_text("step 1\n")
    assert world.run("wait", "first-step", "--timeout", "5s").code == 0


# logs


def test_logs_from_the_box(world: World) -> None:
    box = world.add()
    box.launch("lr0.1")
    box.start("lr0.1", log="one\n")
    box.fail("lr0.1", final=False)
    box.start("lr0.1", attempt=2, log="two\nthree\nfour\n")
    assert world.run("logs", "lr0.1").out == "two\nthree\nfour\n"
    assert world.run("logs", "lr0.1", "--attempt", "1").out == "one\n"
    assert world.run("logs", "lr0.1", "--tail", "2").out == "three\nfour\n"
    assert world.run("logs", "lr0.1", "--tail", "0").out == ""
    assert world.run("logs", "lr0.1", "--json").json["text"] == "two\nthree\nfour\n"
    result = world.run("logs", "lr0.1", "--attempt", "3")
    assert result.code == 1
    assert "has had 2 attempts" in result.err


def test_logs_follow_until_the_cell_ends(world: World) -> None:
    box = world.add()
    box.launch("lr0.1")
    box.start("lr0.1", log="one\n")
    box.alive()
    log = box.root / "data/sweep/cells/lr0.1/1/log.txt"

    def later() -> None:
        with log.open("a") as handle:
            handle.write("two\n")
        box.fail("lr0.1")

    timer = threading.Timer(0.7, later)
    timer.start()
    assert world.run("logs", "lr0.1", "-f").out == "one\ntwo\n"
    timer.join()


def test_logs_from_the_volume(world: World) -> None:
    first, _ = world.full()
    first.vanish()
    result = world.run("logs", "lr0.1")
    assert result.out == "training lr0.1\ndone\n"
    assert "volume" in result.err


def test_logs_of_what_has_not_started(world: World) -> None:
    box = world.add()
    box.launch("lr0.1")
    result = world.run("logs", "lr0.1")
    assert result.code == 2
    assert "has not started" in result.err


def test_long_logs_are_read_from_their_end(world: World) -> None:
    box = world.add()
    box.launch("lr0.1")
    box.start("lr0.1", log="".join(f"line {number}\n" for number in range(40000)))
    assert world.run("logs", "lr0.1", "--tail", "3").out == "line 39997\nline 39998\nline 39999\n"
    assert len(world.run("logs", "lr0.1").out.splitlines()) == 40000


def test_a_log_can_colour_and_no_more() -> None:
    text = "\x1b[31mred\x1b[0m\x1b]0;owned\x07\x1b[2J\x1b[1;1H\x07ok\n"
    assert _CONTROL.sub("", text) == "\x1b[31mred\x1b[0mok\n"


# finish


def test_finish_runs_the_loop_and_looks_again(world: World) -> None:
    first, second = world.full()
    world.run("pull")
    receipt = world.run("verify", "--json").json["receipt"]
    # What the engine leaves behind: after `up` the boxes are cleared, after `destroy` they are gone.
    before = world.file.path.read_text()
    assert world.run("approve", receipt).code == 0
    world.up()
    (world.engine / "after-up.json").write_text(json.dumps(world.export()))
    world.file.path.write_text(before)
    first.approval = second.approval = None
    first.clearance = second.clearance = "locked"
    (world.engine / "after-destroy.json").write_text(json.dumps(world.empty()))
    world.on("up", "cp $home/after-up.json $home/state.json")
    world.on("destroy", f"cp $home/after-destroy.json $home/state.json; rm -rf {first.root} {second.root}")
    result = world.run("finish", receipt)
    assert result.code == 0, result
    commands = [line for line in result.out.splitlines() if line.startswith("$ ")]
    assert commands == [
        f"$ sweepctl pull --stack {STACK}",
        f"$ sweepctl verify --stack {STACK}",
        f"$ sweepctl approve --stack {STACK} {receipt}",
        f"$ pulumi up --stack {STACK} --yes",
        f"$ pulumi destroy --stack {STACK} --yes",
    ]
    assert "nothing bills any more" in result.out
    assert world.calls() == [
        f"up --stack {STACK} --yes --non-interactive",
        f"destroy --stack {STACK} --yes --non-interactive",
    ]


def test_finish_without_the_stack_file_ends_what_was_given_up(world: World) -> None:
    """Nothing names the evidence any more once the state is empty, and its records still say that nothing bills."""
    box = world.add()
    box.launch("lr0.1")
    assert world.run("give-up", "data/box-0", "--reason", "a drill", types="box-0").code == 0
    world.file.path.unlink()
    (world.engine / "after-destroy.json").write_text(json.dumps(world.empty()))
    world.on("destroy", f"cp $home/after-destroy.json $home/state.json; rm -rf {box.root}")
    result = world.run("finish")
    assert result.code == 0, result
    assert "nothing bills any more" in result.out
    assert world.store.objects.uri in result.out, "the evidence is named"


def test_finish_tells_its_steps_where_a_later_one_is_refused(world: World) -> None:
    world.full()
    result = world.run("finish", "--json")
    assert result.code == 1
    assert "no terminal to ask at" in result.json["error"]
    assert [(step["command"].split()[1], step["exit"]) for step in result.json["steps"]] == [("pull", 0), ("verify", 0)]


def test_finish_asks_before_anything_is_ended(world: World) -> None:
    world.full()
    alone = world.run("finish")
    assert alone.code == 1
    assert "there is no terminal to ask at" in alone.err
    assert world.file.approval() is None
    assert world.calls() == []
    refused = world.run("finish", types="n")
    assert refused.code == 1
    assert "not approved; nothing was written" in refused.err
    assert world.calls() == []
    world.run("approve", types="yes")
    for cleared in (False, True):
        if cleared:
            world.up()
        result = world.run("finish", types="no")
        assert result.code == 1
        assert "everything is approved" in result.err
        assert world.calls() == []


def test_finish_goes_on_with_what_is_approved_already(world: World) -> None:
    *_, receipt = world.verified()
    world.run("approve", receipt)
    world.up()
    world.on("destroy", "exit 1")
    result = world.run("finish")
    assert result.code == 1
    assert world.calls() == [f"destroy --stack {STACK} --yes --non-interactive"]
    assert f"next   sweepctl status --stack {STACK}" in result.err


def test_finish_does_not_believe_an_exit_code(world: World) -> None:
    *_, receipt = world.verified()
    world.run("approve", receipt)
    result = world.run("finish")  # an engine that says yes and does nothing
    assert result.code == 1
    assert "still locked" in result.err
    assert world.calls() == [f"up --stack {STACK} --yes --non-interactive"]
    world.up()
    result = world.run("finish")
    assert result.code == 1
    assert "something still bills" in result.out


# All commands


def test_what_nobody_foresaw_is_one_message(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("sweepstack.cli.commands.status.sweep.compose", crash)
    result = world.run("status", "--json")
    assert result.code == 2
    assert result.json["next"] == []
    assert "ZeroDivisionError" in result.err
    assert "Traceback" not in result.err


def test_a_platform_that_does_not_answer_leaves_the_command_to_type_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> None:
        raise Unreachable("RunPod does not answer (GET /pods: ConnectError); nothing was changed")

    monkeypatch.setattr("sweepstack.cli.commands.status.sweep.compose", silent)
    result = world.run("status", "--json")
    assert (result.code, result.json["next"]) == (2, [f"sweepctl status --json --stack {STACK}"])
    assert f"next   sweepctl status --stack {STACK}" in world.run("status").err


def test_no_color_is_honoured(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.full()
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[3" not in world.run("status").out
    monkeypatch.delenv("NO_COLOR")
    assert "\x1b[3" in world.run("status").out


def test_help_imports_next_to_nothing() -> None:
    program = (
        "import sys, sweepstack.cli.entry\n"
        "sys.argv = ['sweepctl', '--help']\n"
        "try:\n    sweepstack.cli.entry.main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'rich', 'pydantic', 'yaml', 'numpy', 'pulumi', 'grpc', 'safetensors'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)\n"
    )
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for command in ("init", "status", "wait", "logs", "pull", "verify", "approve", "finish"):
        assert command in done.stdout


@pytest.mark.parametrize(
    ("words", "rest"),
    [
        (("status", "--help"), {"status"}),
        (("profile", "show", "--help"), {"profile", "show"}),
        (("stat",), set()),
        ((), set()),
    ],
)
def test_only_the_asked_verb_is_imported(words: tuple[str, ...], rest: set[str]) -> None:
    program = (
        "import atexit, sys; from sweepstack.cli.entry import main\n"
        "ours = ('sweepstack.cli.commands.', 'sweepstack.extensions')\n"
        "def told():\n    print(*(n for n in sys.modules if n.startswith(ours)), file=sys.stderr)\n"
        "atexit.register(told)\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=120)
    imported = {name.rpartition(".")[2] for name in done.stderr.splitlines()[-1].split()}
    assert imported == rest, done


def test_progress_is_quiet_below_two_seconds_and_goes_to_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Progress("copying"):
        pass
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("sweepstack.cli.progress.PATIENCE", 0.1)
    with Progress("copying", unit="bytes") as progress:
        progress.expect(2_000_000)
        progress.advance(500_000)
        progress.say("lr0.1")
        out, err, ends = "", "", time.monotonic() + 60
        while "(" not in err and time.monotonic() < ends:
            time.sleep(0.02)
            more = capsys.readouterr()
            out, err = out + more.out, err + more.err
        progress.at("lr0.3", 1_500_000, 2_500_000)
        while "lr0.3" not in err and time.monotonic() < ends:
            time.sleep(0.02)
            err += capsys.readouterr().err
    assert out == ""
    assert "copying: 500.0 kB of 2.0 MB lr0.1" in err
    assert "copying: 1.5 MB of 2.5 MB lr0.3" in err


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("15min", 900), ("12h", 43200), ("3d", 259200), ("0.5s", 0.5)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "0h", "-1h", "72", "h", "1w", "1h30"])
def test_no_durations(text: str) -> None:
    with pytest.raises(Unsure):
        parse_duration(text)


def test_words_for_people() -> None:
    assert [span(seconds) for seconds in (-1, 12, 2460, 12000, 187200)] == [
        "0 s",
        "12 s",
        "41 min",
        "3 h 20 min",
        "2 d 4 h",
    ]
    assert [size(number) for number in (7, 1500, 3.1e9)] == ["7 B", "1.5 kB", "3.1 GB"]
    assert [count(number, "box") for number in (1, 2)] == ["1 box", "2 boxes"]


def test_finish_goes_on_where_no_cell_is_left_for_a_box_that_was_never_rented(world: World) -> None:
    """The stack file wants one more box. `up` rents none without a cell to train, so it is in no one's way."""
    _first, _second, receipt = world.verified()
    text = world.file.path.read_text()
    world.file.path.write_text(text.replace("box-1: {want: running}", "box-1: {want: running}, box-2: {}"))
    asked = world.run("finish", receipt)
    assert asked.code == 1  # an engine that says yes and does nothing
    assert "wants box-2 up" not in asked.err
    assert "a box is still locked" in asked.err
    assert world.calls() == [f"up --stack {STACK} --yes --non-interactive"]


def test_finish_rents_no_further_box_on_its_way_out(world: World) -> None:
    world.verified()
    world.monkeypatch.setattr("sweepstack.cli.commands.finish.unrented", lambda *_: ("box-1",))
    refused = world.run("finish", "--json")
    assert refused.json["next"] == [
        f"sweepctl finish --stack {STACK}    (after boxes.box-1.want is set to gone in {world.file.shown})"
    ], refused
    assert world.calls() == []


@pytest.fixture
def torn_down(world: World) -> World:
    """lr0.1 verified; lr0.3 failed twice, pulled, waived; lr0.9 never started; then the boxes were destroyed."""
    box = world.add()
    box.launch("lr0.1", "lr0.3", "lr0.9")
    box.seal("lr0.1")
    box.start("lr0.3", log="first\n", metrics=[{"step": 1, "loss": 2.5}])
    box.fail("lr0.3", final=False)
    box.start("lr0.3", attempt=2, log="Traceback\nboom\n", metrics=[{"step": 1, "loss": 2.5}, {"step": 2, "loss": 3.5}])
    (box.root / "data/sweep/cells/lr0.3/2/out/metrics.json").write_text('{"loss": 9.5}')
    box.fail("lr0.3", attempt=2)
    assert world.run("pull").code == 0
    assert world.run("verify").code == 1
    box.vanish()
    shutil.rmtree(world.volume_folder)
    world.save(world.empty())
    return world


def test_logs_of_a_cell_that_failed_outlive_the_box(torn_down: World) -> None:
    world = torn_down
    result = world.run("logs", "lr0.3", fresh=False)
    assert (result.code, result.out) == (0, "Traceback\nboom\n")
    assert "lr0.3, attempt 2, from the copy of what it left on box box-0 (not sealed)" in result.err
    assert world.run("logs", "lr0.3", "--attempt", "1", fresh=False).out == "first\n"
    assert world.run("logs", "lr0.3", "-f", fresh=False).out == "Traceback\nboom\n"
    assert world.run("logs", "lr0.3", "--tail", "1", "--json", fresh=False).json["text"] == "boom\n"


def test_results_and_curves_of_a_cell_that_failed_outlive_the_box(torn_down: World) -> None:
    world = torn_down
    with world.file.path.open("a") as handle:
        handle.write("    metrics: {file: metrics.jsonl, x: step, y: [loss]}\n")
    cell_results._by_file.cache_clear()  # each command is a process of its own
    cells = {cell["name"]: cell for cell in world.run("results", "--all", "--json", fresh=False).json["cells"]}
    assert (cells["lr0.3"]["state"], cells["lr0.1"]["state"]) == ("failed", "verified")
    assert cells["lr0.3"]["values"] == {"loss": 9.5, "metrics.jsonl:loss": 3.5}
    assert "lr0.3" not in {cell["name"] for cell in world.run("results", "--json", fresh=False).json["cells"]}
    curves = world.run("results", "--as", "plot", "lr0.3", "--json", fresh=False)
    assert curves.code == 0, curves
    assert curves.json["curves"][0]["points"] == [[1, 2.5], [2, 3.5]]


def test_what_never_started_is_told_from_what_was_not_copied(torn_down: World) -> None:
    world = torn_down
    result = world.run("logs", "lr0.9", fresh=False)
    assert result.code == 2
    assert "there is no log of lr0.9: no record says that it ever started" in result.err
    shutil.rmtree(world.evidence / "unsealed")
    shutil.rmtree(world.evidence / "records/unsealed")
    result = world.run("logs", "lr0.3", fresh=False)
    assert result.code == 2
    assert "its log was on box box-0, which is gone, and `sweepctl pull` had not copied it before" in result.err
    assert "it has not started" not in result.err
    assert f"next   sweepctl status --stack {STACK}" in result.err
    assert world.run("status", "--json", fresh=False).json["cells"][1]["state"] == "failed"
