"""A cell that somebody asks for once more: `retry` and `salt` of a queue line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from sweepstack.onbox.common.next_version import checkpoint_name
from sweepstack.onbox.runner.cut_checkpoint import doubt, last_beat, newest
from sweepstack.onbox.runner.records import Entry, Queue
from tests.onbox.harness import IDENTITY, Box, wait_for

COUNT = "echo $SWEEPSTACK_ATTEMPT > {out}/result.json"
SAVED = "$SWEEPSTACK_CHECKPOINT_DIR/n"
CUT = """
import json, os, pathlib, signal, sys
saved, out = pathlib.Path(sys.argv[1]) / "last.json", pathlib.Path(sys.argv[2]) / "result.json"
step = json.loads(saved.read_text())["step"] if saved.exists() else 0
if os.environ["SWEEPSTACK_ATTEMPT"] == "1":
    saved.write_text('{"ste')
    os.kill(os.getpid(), signal.SIGKILL)
out.write_text(str(step))
"""
"""Its first try is killed in the middle of a save."""
RESUME = f"cat {SAVED} >> {{out}}/result.json; echo x >> {SAVED}; echo . >> {{out}}/result.json"


def again(box: Box, name: str, run: str = COUNT, retry: int = 1, salt: int = 0) -> None:
    box.add(name, run, more={"retry": retry, "salt": salt})


def test_sealed_cell_runs_again_and_what_it_left_is_kept_aside(box: Box) -> None:
    box.add("a", COUNT)
    box.run("a")
    again(box, "a")
    box.run("a")
    assert (box.sealed("a") / "result.json").read_text() == "2\n"
    assert (box.volume / IDENTITY / "cells" / "a.superseded-1" / "result.json").read_text() == "1\n"
    assert [one["retry"] for one in box.events("cell-started", "a")] == [0, 1]
    assert json.loads((box.sealed("a") / "manifest.json").read_bytes())["retry"] == 1
    head = box.journal().head
    again(box, "a")  # the same line once more asks for nothing new
    box.run("a")
    assert box.journal().head == head
    again(box, "a", retry=2)
    box.run("a")
    assert (box.sealed("a") / "result.json").read_text() == "3\n"


def test_cell_that_failed_for_good_runs_again_with_a_fresh_count(box: Box) -> None:
    box.set(retries=1)
    box.add("a", "exit 3")
    box.run(code=1)
    again(box, "a", run="exit 3")
    box.run(code=1)
    assert [one["final"] for one in box.events("cell-failed", "a")] == [False, True, False, True]


def test_dropped_cell_runs_again(box: Box) -> None:
    box.add("a", COUNT)
    box.drop("a")
    box.run()
    again(box, "a")
    box.run("a")


def test_cell_that_is_asked_for_while_it_runs_runs_once_more_afterwards(box: Box) -> None:
    held = box.hold("a")
    box.add_steps("a")
    runner = box.start()
    box.in_the_middle("a")
    pid = box.pid("a")
    box.add("a", f"python steps.py {{seed}} {{out}} {box.control}", seed=1, more={"retry": 1})
    box.add("b")
    box.set(slots=2)
    runner.until("b", "sealed")
    assert box.pid("a") == pid  # what runs is not disturbed
    held.unlink()
    assert runner.ended() == 0
    assert len(box.events("cell-sealed", "a")) == 2


def test_cell_that_is_ended_for_a_retry_begins_anew_with_what_was_asked_for(box: Box) -> None:
    box.hold("a")
    box.add_steps("a")
    runner = box.start()
    box.in_the_middle("a")
    box.add("a", COUNT, seed=1, more={"retry": 1, "salt": 1, "ends": True})
    assert runner.ended() == 0
    (failed,) = box.events("cell-failed", "a")
    assert (failed["class"], failed["final"]) == ("stopped", False)
    assert "it was ended to run again" in failed["reason"]
    assert (box.sealed("a") / "result.json").read_text() == "2\n"


def test_salt_decides_whether_it_begins_from_nothing(box: Box) -> None:
    box.set(retries=0)
    box.add("a", RESUME)
    box.run("a")
    again(box, "a", RESUME, retry=1)
    box.run("a")
    assert (box.sealed("a") / "result.json").read_text() == "x\n.\n"  # goes on from its checkpoint
    again(box, "a", RESUME, retry=2, salt=2)
    box.run("a")
    assert (box.sealed("a") / "result.json").read_text() == ".\n"


def test_a_cut_checkpoint_is_named_and_a_retry_from_the_start_does_without(box: Box) -> None:
    """Seen: killed in the middle of a save, it failed for ever, and no command began without what was cut."""
    box.set(retries=1)
    code = box.ship({"cut.py": CUT})
    box.add("a", "python cut.py {checkpoints} {out}", more={"code": code})
    box.run(code=1)
    killed, second = box.events("cell-failed", "a")
    assert "checkpoint" not in killed
    folder = box.volume / IDENTITY / "checkpoints" / "a"
    (kept,) = folder.iterdir()
    assert second["checkpoint"] == f"{kept.name}/last.json"
    assert "without a new one: last.json (5 bytes, the newest" in second["reason"]
    box.add("a", "python cut.py {checkpoints} {out}", more={"code": code, "retry": 1, "salt": 1})
    box.run("a")
    assert (kept / "last.json").read_text() == '{"ste'
    assert len(list(folder.iterdir())) == 2
    assert (box.sealed("a") / "result.json").read_text() == "0"


def test_a_cell_that_fails_in_the_same_way_without_checkpoints_is_in_no_doubt(box: Box) -> None:
    box.set(retries=2)
    box.add("a", "echo 1 > {checkpoints}/n; echo no such luck >&2; exit 1")
    box.run(code=1)
    assert [one.get("checkpoint") for one in box.events("cell-failed", "a")] == [None, None, None]


def test_the_line_names_the_run_whose_set_before_the_newest_is_meant(tmp_path: Path) -> None:
    box = Box(tmp_path)
    for more in (
        {},
        {"retry": 1, "salt": 1, "set_of": 0},
        {"retry": 2, "salt": 1, "set_of": 0},
        {"retry": 3, "salt": 3},
    ):
        box.add("a", more=more)
    queue = Queue(box.home / "queue.jsonl")
    queue.refresh()
    first, second, third, last = [one for one in queue.cells["a"] if isinstance(one, Entry)]
    assert (first.origin, second.origin, third.origin, last.origin) == ("", first.work, first.work, "")
    assert second.work == third.work, "which goes on from its own"
    assert len({first.work, second.work, last.work}) == 3


def test_a_file_that_is_younger_than_the_last_heartbeat_is_the_one_in_doubt(tmp_path: Path) -> None:
    patrol, folder = tmp_path / "patrol.jsonl", tmp_path / "saved"
    for name in ("checkpoint-2", "wandb/run-1"):
        (folder / name).mkdir(parents=True)
    others = [(name, 30) for name in (".hidden", "half.tmp", "wandb/run-1/a.json", "events.out.tfevents.1.box")]
    for name, second in (("checkpoint-2/weights", 20), ("checkpoint-1", 10), *others):
        (folder / name).write_text("x")
        os.utime(folder / name, (second, second))
    lines = [(9, 1), (15, 1), (25, 2)]
    rows = [{"time": f"1970-01-01T00:00:{at}.000Z".replace(":9.", ":09."), "n": n} for at, n in lines]
    patrol.write_text(
        "".join(
            json.dumps({"time": one["time"], "running": [{"cell": "a", "attempt": one["n"]}]}) + "\n" for one in rows
        )
        + '{"time": '
    )
    found = newest(folder)
    assert found is not None
    assert found.path == "checkpoint-2/weights"
    beat = last_beat(patrol, "a", 1)
    assert beat == "1970-01-01T00:00:15.000Z"
    said = doubt(found, folder, "unknown", 1.0, beat)
    assert "the newest, written after that try's last heartbeat at 00:00:15) may be cut" in said
    assert "heartbeat" not in doubt(found, folder, "unknown", 1.0, last_beat(patrol, "a", 2)), "it is older"
    assert last_beat(patrol, "a", 3) == ""
    assert doubt(found, folder, "transient", 1.0, beat) == "", "the network is no matter of checkpoints"
    assert doubt(found, folder, "unknown", 1000.0, beat) == ""
    (folder / "checkpoint-3").write_text("x")
    assert doubt(found, folder, "unknown", 1.0, beat) == "", "it read what it found, and saved anew"


def test_another_config_does_not_come_in_by_asking_again(box: Box) -> None:
    box.add("a", COUNT, lr=1)
    box.run("a")
    box.add("a", COUNT, lr=2, more={"retry": 1})
    box.run("a")
    assert box.manifest("a").params == {"lr": 1}
    assert len(box.events("cell-refused", "a")) == 1


def test_copy_of_before_is_not_taken_for_the_result_on_the_next_box(make_box: Callable[..., Box]) -> None:
    one = make_box()
    one.add("a", COUNT)
    one.run("a")
    two = make_box(generation=1)
    again(two, "a")
    two.run("a")
    assert two.events("cell-found-sealed", "a") == []
    assert two.manifest("a").generation == 1
    three = make_box(generation=2)
    again(three, "a")
    three.run("a")
    assert [entry["retry"] for entry in three.events("cell-found-sealed", "a")] == [1]
    head = three.journal().head
    three.run("a")
    assert three.journal().head == head


def test_asked_for_while_no_runner_lives(box: Box) -> None:
    """Its started attempt is not gone on with: it was asked for as something new."""
    box.set(retries=0)
    box.hold("a")
    box.add_steps("a")
    runner = box.start()
    box.in_the_middle("a")
    runner.kill()
    os.killpg(box.pid("a"), 9)
    box.add("a", COUNT, seed=1, more={"retry": 1})
    box.run("a")
    assert [one["retry"] for one in box.events("cell-started", "a")] == [0, 1]
    assert (box.sealed("a") / "result.json").read_text() == "2\n"


def test_a_failed_cell_takes_the_fix_unless_it_has_a_checkpoint(box: Box) -> None:
    """Seen: with a try left it ran the old command once more, though the mended one was in the queue already."""
    box.set(retries=1)
    for name, does in {"a": "exit 3", "b": f"echo 1 > {SAVED}; exit 3"}.items():
        box.add(name, f"while [ ! -e {box.control}/{name} ]; do sleep 0.05; done; {does}")
    box.set(slots=2)
    runner = box.start()
    for name in ("a", "b"):
        wait_for(lambda name=name: bool(box.events("cell-started", name)), box.log)
        box.add(name, RESUME)  # while it runs: what runs is not disturbed
        (box.control / name).touch()
    assert runner.ended() == 1
    assert [one["checkpoints"] for one in box.events("cell-failed", "a")] == [False]
    assert (box.sealed("a") / "result.json").read_text() == ".\n"
    assert [one["checkpoints"] for one in box.events("cell-failed", "b")] == [True, True]
    first, second = box.events("cell-started", "b")
    assert first["version"] == second["version"]
    assert box.journal().cells["b"].saved
    again(box, "b", RESUME)  # it is asked for, but not from nothing
    box.run(code=1)
    third = box.events("cell-started", "b")[-1]
    assert (third["version"], third["retry"]) == (first["version"], 1)
    assert [one["final"] for one in box.events("cell-failed", "b")] == [False, True, False, True], "all its tries again"
    head = box.journal().head
    box.run(code=1)
    assert box.journal().head == head, "the retry is done"
    again(box, "b", RESUME, retry=2, salt=2)
    box.run("b")
    assert (box.sealed("b") / "result.json").read_text() == ".\n"


def test_new_code_goes_on_in_the_folder_that_its_line_names_and_the_seal_says_so(box: Box) -> None:
    box.set(retries=1)
    old = box.ship({"job.sh": f"echo x >> {SAVED}; exit 1"})
    new = box.ship({"job.sh": f"echo x >> {SAVED}; n=$(wc -l < {SAVED}); test $n -gt 3 && echo $n > $1/result.json"})
    run = "sh job.sh {out}"
    box.add("a", run, more={"code": old})
    box.run(code=1)
    (folder,) = (box.volume / IDENTITY / "checkpoints" / "a").iterdir()
    assert folder.name == checkpoint_name(
        *(box.events("cell-started", "a")[0][key] for key in ("config_digest", "work"))
    )
    box.add("a", run, more={"code": new})
    box.run(code=1)  # it keeps its version, which failed for good
    there = {"folder": folder.name, "checkpoints_of": [old]}
    box.add("a", run, more={"code": new, **there})
    box.add("b", COUNT, more={"folder": "0" * 16, "checkpoints_of": [old]})
    box.run("a", "b")
    assert (box.sealed("a") / "result.json").read_text() == "4\n"
    assert [one.get("folder") for one in box.events("cell-started", "a")] == [None, None, folder.name, folder.name]
    assert box.manifest("a").checkpoints_of == (old,)
    assert box.manifest("b").checkpoints_of == (), "it began at 0"
