"""What the runner makes of a queue, and of changes to it while it runs."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sweepstack.core.records import Cell
from tests.onbox.harness import INTERPRETER, Box, alive, around, wait_for

VERSION = subprocess.run(
    [INTERPRETER, "-c", "import platform; print(platform.python_version())"], capture_output=True, text=True, check=True
).stdout.strip()


def test_cells_run_and_are_sealed(box: Box) -> None:
    box.set(metrics={"file": "metrics.jsonl", "x": "step", "y": ["loss"]})
    run = "echo hi; echo '{ }' > {out}/result.json; echo '{ }' > {out}/metrics.jsonl; mkdir {out}/a; echo > {out}/a/b"
    cells = [box.add("lr0.1-seed0", run, lr=0.1, seed=0), box.add("lr0.1-seed1", run, lr=0.1, seed=1)]
    box.run()
    for cell in cells:
        manifest = box.manifest(cell.name)
        assert (manifest.config_digest, manifest.params, manifest.code) == (cell.config_digest, cell.params, box.code)
        assert (manifest.box, manifest.native_id, manifest.generation, manifest.attempt) == (
            "box-0",
            box.native_id,
            0,
            1,
        )
        assert {file.path: file.role for file in manifest.files} == {
            "result.json": "artifact",
            "metrics.jsonl": "metrics",
            "a/b": "extra",
            "log.txt": "log",
        }
        assert manifest.environment["python"] == VERSION
        assert (box.sealed(cell.name) / "log.txt").read_text().startswith("hi\n[sweepstack] attempt 1: exit code 0 ")
    events = [entry["event"] for entry in box.journal().entries]
    assert "environment" in events  # once more where site-packages was touched meanwhile
    events = [event for event in events if event != "environment"]
    assert events[:2] == ["runner-started", "cell-started"]
    assert sorted(events[2:]) == ["cell-sealed", "cell-sealed", "cell-started"]


def test_relaunch_with_nothing_to_do_leaves_the_head(box: Box) -> None:
    box.add("a")
    box.run("a")
    head = box.journal().head
    box.run("a")
    assert box.journal().head == head


def test_start_says_from_which_checkpoint_it_goes_on(box: Box) -> None:
    box.add_steps("a")
    box.run("a")
    box.add("a", f"python steps.py {{seed}} {{out}} {box.control}", seed=1, more={"retry": 1})
    box.run("a")
    assert [one.get("checkpoint_step") for one in box.events("cell-started", "a")] == [None, 12]


def test_empty_queue_is_drained(box: Box) -> None:
    box.run()
    assert box.journal().entries == ()


def test_values_reach_the_job_as_they_are(box: Box) -> None:
    """Quoting is the runner's business: nothing in a value is the shell's."""
    nasty = "it's $(touch broken) `id` \"; rm -rf x & {seed} \\ \n end"
    run = "python -c 'import json,sys; json.dump(sys.argv[2:], open(sys.argv[1], \"w\"))' {out}/result.json"
    box.add(
        "a", f"{run} {{s}} {{f}} {{b}} {{n}} {{l}} {{cell}} ${{HOME}}", s=nasty, f=1e-05, b=True, n=None, l=[1, "x y"]
    )
    box.run("a")
    got = json.loads((box.sealed("a") / "result.json").read_text())
    assert got == [
        nasty,
        "1e-05",
        "true",
        "null",
        '[1, "x y"]',
        "a",
        pwd.getpwuid(os.getuid()).pw_dir,
    ]


def test_environment_of_a_job_is_written_down_not_inherited(box: Box) -> None:
    box.set(env={"A": "spec", "B": "spec"})
    box.add("a", "env -0 > {out}/result.json", env={"B": "entry", "ID": "run-{cell}-{seed}"}, seed=3)
    assert box.start(env={"AWS_SECRET_ACCESS_KEY": "x", "LD_PRELOAD": ""}).ended() == 0
    words = (box.sealed("a") / "result.json").read_text().split("\0")
    env = dict(word.partition("=")[::2] for word in words if word)
    assert (env["A"], env["B"], env["ID"]) == ("spec", "entry", "run-a-3")
    assert env["PATH"].startswith(str(Path(INTERPRETER).parent) + ":")
    attempt = box.home / "cells" / "a" / "1"
    assert (env["SWEEPSTACK_CELL"], env["SWEEPSTACK_ATTEMPT"], env["SWEEPSTACK_OUT"]) == ("a", "1", f"{attempt}/out")
    assert env["SWEEPSTACK_CHECKPOINT_DIR"].startswith(str(box.root / "mnt/durable/abcdefghij/checkpoints/a"))
    assert (env["PYTHONPATH"], env["PYTHONUNBUFFERED"]) == (str(box.home / "checkpoint"), "1")
    assert set(env) - {
        "A",
        "B",
        "ID",
        "PATH",
        "HOME",
        "LANG",
        "PYTHONPATH",
        "PYTHONUNBUFFERED",
        "PWD",
        "OLDPWD",
        "_",
    } == {f"SWEEPSTACK_{name}" for name in ("BOX_ID", "CELL", "OUT", "ATTEMPT", "CHECKPOINT_DIR", "SCRATCH")}


@pytest.mark.parametrize(("gpus", "seen"), [(4, {"0,1", "2,3"}), (["5", "7"], {"5", "7"}), (1, {"0"})])
def test_slots_share_the_gpus(box: Box, gpus: object, seen: set[str]) -> None:
    box.set(slots=2, gpus=gpus)
    box.show_gpus(4)
    both = f"touch {box.control}/{{cell}}; while ! [ -e {box.control}/a -a -e {box.control}/b ]; do sleep 0.01; done"
    for name in ("a", "b"):
        box.add(name, f"{both}; printf $CUDA_VISIBLE_DEVICES > {{out}}/result.json")
    box.run("a", "b")
    assert {(box.sealed(name) / "result.json").read_text() for name in ("a", "b")} == seen


def test_slot_is_free_when_all_of_a_cell_has_ended(box: Box) -> None:
    """What it left in the background may still hold the GPU."""
    mark = f"{box.control}/left"
    trap = f"trap 'sleep 0.4; rm {mark}; exit' TERM"
    box.add(
        "a",
        f"({trap}; touch {mark}; for i in $(seq 2400); do sleep 0.05; done) & "
        f"until test -e {mark}; do sleep 0.01; done; echo > {{out}}/result.json",
    )
    box.add("b", f"test ! -e {mark}; echo $? > {{out}}/result.json")
    box.run("a", "b")
    assert (box.sealed("b") / "result.json").read_text() == "0\n"


def test_appending_restarts_nothing(box: Box) -> None:
    held = box.hold("a")
    box.add_steps("a")
    runner = box.start()
    box.in_the_middle("a")
    pid = box.pid("a")
    box.set(slots=2)
    box.add("b")
    runner.until("b", "sealed")
    assert alive(pid)
    assert box.pid("a") == pid
    held.unlink()
    assert runner.ended() == 0
    assert box.journal().cells["a"].attempts == 1
    assert len(box.events("runner-started")) == 1


def test_append_is_never_lost_to_a_runner_that_ends(box: Box) -> None:
    """Whoever appends looks at the runner's lock afterwards, and starts a runner only if it is free."""
    box.start()
    for number in range(15):
        box.add(f"c{number}", "echo > {out}/result.json")
        if not _held(box.home / "runner.lock"):
            box.start()
        if number % 3:
            wait_for(lambda number=number: box.state(f"c{number}") == "sealed", box.log)
    wait_for(lambda: all(process.poll() is not None for process in box.started), box.log)
    # A runner that finds the lock held ends with 3: on a busy machine the lock may look free while the runner before it
    # is still starting.
    assert {one.returncode for one in box.started} <= {0, 3}
    assert {box.state(f"c{number}") for number in range(15)} == {"sealed"}
    assert all(box.journal().cells[f"c{number}"].attempts == 1 for number in range(15))


def test_runner_lets_its_lock_go_before_the_queue_s(box: Box) -> None:
    """Whoever appends while it ends finds its lock free, and starts the next one; never a held one that ends anyway."""
    change = f"""
        verdict = runner.Schedule.verdict
        def slow(self):
            open({str(box.control / "ending")!r}, "w").close()
            while not os.path.exists({str(box.control / "go")!r}):
                sealing.os.sched_yield()
            return verdict(self)
        runner.Schedule.verdict = slow"""
    ending = box.start(script=around(box, change))
    wait_for((box.control / "ending").exists, box.log)
    box.add("a")
    assert not _held(box.home / "runner.lock")
    box.run("a")
    (box.control / "go").touch()
    assert ending.ended() == 0


def _held(path: Path) -> bool:
    import fcntl

    with open(path, "ab") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_dropping(box: Box) -> None:
    """Taken out while it waits: never started. While it runs: ended, whatever it does about SIGTERM. Sealed: stays."""
    box.set(grace_seconds=0.5)
    box.add("sealed")
    box.add(
        "running", f"trap '' TERM; touch {box.control}/middle-running; echo; for i in $(seq 1200); do sleep 0.1; done"
    )
    box.add("waiting")
    box.add("last")
    runner = box.start()
    box.in_the_middle("running")
    pid = box.pid("running")
    for name in ("sealed", "running", "waiting"):
        box.drop(name, f"{name} was wrong")
    assert runner.ended() == 0, box.log()
    assert not alive(pid)
    assert {name: box.state(name) for name in ("sealed", "running", "waiting", "last")} == {
        "sealed": "sealed",
        "running": "dropped",
        "waiting": "dropped",
        "last": "sealed",
    }
    assert not (box.home / "cells" / "waiting").exists()
    assert box.journal().cells["running"].reason == "running was wrong"
    head = box.journal().head
    box.run()
    assert box.journal().head == head
    box.add("waiting")
    box.run("waiting")


def test_second_runner_is_refused(box: Box) -> None:
    held = box.hold("a")
    box.add_steps("a")
    first = box.start()
    box.in_the_middle("a")
    head, record = box.journal().head, (box.home / "runner.pid").read_text()
    assert box.start().ended(5) == 3
    assert (box.journal().head, (box.home / "runner.pid").read_text()) == (head, record)
    assert json.loads(record)["pid"] == first.pid
    held.unlink()
    assert first.ended() == 0


def test_failed_cell_is_retried_with_the_identical_config_then_given_up(box: Box) -> None:
    box.set(retries=2)
    box.add("a", "echo try {lr} $SWEEPSTACK_ATTEMPT; echo boom >&2; exit 3", lr=0.1)
    box.add("b")
    box.run("b", code=1)
    failures = box.events("cell-failed", "a")
    assert [(one["attempt"], one["exit_code"], one["reason"], one["final"]) for one in failures] == [
        (1, 3, "exit code 3: boom", False),
        (2, 3, "exit code 3: boom", False),
        (3, 3, "exit code 3: boom", True),
    ]
    starts = box.events("cell-started", "a")
    assert len({(one["config_digest"], one["code"], one["version"], tuple(one["argv"])) for one in starts}) == 1
    assert [box.output("a", n).splitlines()[0] for n in (1, 2, 3)] == ["try 0.1 1", "try 0.1 2", "try 0.1 3"]
    head = box.journal().head
    box.run(code=1)
    assert box.journal().head == head  # given up is given up
    box.add("a", "echo > {out}/result.json", lr=0.2)  # another config under its name
    box.run(code=1)
    assert len(box.events("cell-started", "a")) == 3
    box.add("a", "echo mended; echo > {out}/result.json", lr=0.1)  # the same cell, a newer version
    box.run("a")
    assert box.manifest("a").attempt == 4


def test_retry_lets_others_go_first(box: Box) -> None:
    box.add("a", "test -e {out}/../../2 && echo > {out}/result.json")
    box.add("b")
    box.run("a", "b")
    order = [(one["cell"], one["attempt"]) for one in box.events("cell-started")]
    assert order == [("a", 1), ("b", 1), ("a", 2)]


def test_started_cell_keeps_its_config_and_its_version(box: Box) -> None:
    held = box.hold("a")
    cell = box.add_steps("a", seed=1)
    runner = box.start()
    box.in_the_middle("a")
    box.add_steps("a", seed=2)
    box.append(box.line(cell, "exit 9"))
    runner.kill()
    os.killpg(box.pid("a"), 9)
    held.unlink()
    box.run("a")
    assert box.manifest("a").params == {"seed": 1}
    assert len(box.events("cell-refused", "a")) == 1
    head = box.journal().head
    box.run("a")
    assert box.journal().head == head  # refused once, not at every look


def test_entry_that_can_not_be_run_is_refused(box: Box) -> None:
    entries: list[tuple[str, dict[str, object], str]] = [
        ("a0", {"params": {"lr": 1}}, "config digest"),
        ("a1", {"code": "sha256:../../x"}, "code digest"),
        ("a.partial-1", {}, "the runner's own"),
        ("a2", {"run": "echo {nosuch}"}, "no such parameter"),
        ("a3", {"retry": "one"}, "no count"),
        ("a4", {"setup": ["pip install x"]}, "no text"),
    ]
    for name, change, _ in entries:
        box.append(box.line(Cell(name=name, params={})) | change)
    box.add("b")
    box.run("b", code=1)
    cells = box.journal().cells
    for name, _, said in entries:
        assert cells[name].final, said
        assert said in (cells[name].reason or "")
        assert len(box.events("cell-started", name)) <= 1, said


def test_queue_line_that_is_none_is_no_success(box: Box) -> None:
    with open(box.home / "queue.jsonl", "ab") as handle:
        handle.write(b'{"op":"add","cell":"../x"}\nrubbish\n')
    box.add("b")
    box.run("b", code=1)


def test_torn_queue_line_waits_for_its_end(box: Box) -> None:
    box.add("a")
    with open(box.home / "queue.jsonl", "ab") as handle:
        handle.write(b'{"op":"add","ce')
    box.run("a")
    assert list(box.journal().cells) == ["a"]


def test_unusable_box_starts_nothing(box: Box) -> None:
    box.add("a")
    assert box.start(env={"SWEEPSTACK_BOX_ID": "local-other"}).ended() == 2
    (box.root / "mnt" / "durable").unlink()
    (box.root / "mnt" / "durable").symlink_to(box.volume.with_name("unmounted"))
    assert box.start().ended() == 2
    assert "durable tier is not there" in box.log()
    (box.home / "spec.json").write_text('{"schema": 1}')
    assert box.start().ended() == 2
    assert not (box.home / "cells").exists()


def test_bad_spec_is_complained_of_once(box: Box) -> None:
    """And again when it is bad in another way. The one before goes on being used."""
    box.set(patrol_seconds=0.1)
    held = box.hold("a")
    box.add_steps("a")
    runner = box.start()
    box.in_the_middle("a")
    for number, bad in enumerate(("{", '{"schema": 1}'), 1):
        (box.home / "spec.json").write_text(bad)
        for name in (f"b{number}", f"c{number}"):  # each makes it look again, more than once
            seen = len(box.patrol())
            box.add(name)
            wait_for(lambda seen=seen: len(box.patrol()) > seen + 1, box.log)  # type: ignore[misc]
        assert box.log().count("going on with the one before") == number
    held.unlink()
    assert runner.ended() == 0
    assert [box.state(name) for name in ("a", "b1", "c2")] == ["sealed"] * 3


def test_heartbeat_says_what_runs(box: Box) -> None:
    held = box.hold("a")
    box.add_steps("a")
    runner = box.start()
    box.in_the_middle("a")
    wait_for(lambda: len(box.patrol()) > 1, box.log)
    line = box.patrol()[1]
    assert [(one["cell"], one["attempt"], one["pid"]) for one in line["running"]] == [("a", 1, box.pid("a"))]
    assert line["disk_free"] > 0
    assert line["inodes_free"] > 0
    held.unlink()
    assert runner.ended() == 0


def test_two_boxes_do_not_see_each_other(make_box: Callable[..., Box]) -> None:
    one, two = make_box(), make_box()
    held = one.hold("a")
    one.add_steps("a")
    runner = one.start()
    one.in_the_middle("a")
    two.add("a2")
    two.run("a2")
    assert alive(one.pid("a"))
    held.unlink()
    assert runner.ended() == 0
