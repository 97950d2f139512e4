"""The smoke run on a box: before any cell of its version, once, in a cell's surroundings; and what a failure leaves."""

from __future__ import annotations

from tests.onbox.harness import Box, alive, wait_for

JOB = "sh -c 'echo > {out}/result.json'"


def smoke(box: Box, run: str, seconds: float = 120, code: str = "") -> None:
    box.set(smoke={"run": run, "seconds": seconds, "code": code or box.code})


def test_it_is_run_as_the_first_cell_and_once(box: Box) -> None:
    seen = f'echo "$SWEEPSTACK_CELL" {{lr}} >> {box.control}/seen; pwd >> {box.control}/seen; touch {{out}}/more'
    smoke(box, seen + "; test -d $SWEEPSTACK_SCRATCH && test -d $SWEEPSTACK_CHECKPOINT_DIR && env > {out}/env")
    for cell in ("a", "b"):
        box.add(cell, JOB, lr="it's", more={"setup": "true"})
    box.run("a", "b")
    assert (box.control / "seen").read_text() == f"a it's\n{box.home}/code/{box.code[7:]}\n"
    order = [str(one["event"]) for one in box.journal().entries if "setup" in one]
    assert order[:4] == ["setup-started", "setup-finished"] * 2
    assert box.events("setup-started")[1]["stage"] == "smoke"
    box.add("c", JOB, lr="it's", more={"setup": "true"})
    box.run("c")
    assert len(box.events("setup-started")) == 2  # nor by the next runner
    assert not list((box.root / "scratch" / "sweep").glob("smoke-*"))


def test_a_failure_starts_no_cell_and_the_next_runner_tries_again(box: Box) -> None:
    smoke(box, f"test -e {box.control}/mended || (echo no such column; exit 3)")
    box.add("a", JOB)
    box.run(code=7)
    (failed,) = box.events("setup-failed")
    assert failed["stage"] == "smoke"
    assert "the smoke run (job.smoke) as a: exit code 3: no such column" in str(failed["reason"])
    assert box.events("cell-started") == []
    (box.control / "mended").touch()
    box.run("a")
    assert [str(one["event"]) for one in box.journal().entries if "setup" in one][-2:] == [
        "setup-started",
        "setup-finished",
    ]


def test_it_has_a_deadline_and_leaves_no_process(box: Box) -> None:
    box.add("a", JOB)
    pid = box.control / "pid"
    for seconds in (1, 15, 150):  # on a busy machine it has not begun yet
        smoke(box, f"echo $$ > {box.control}/new; mv {box.control}/new {pid}; sleep 600", seconds=seconds)
        box.run(code=7)
        if pid.exists():
            break
    assert "it did not end within its deadline" in str(box.events("setup-failed")[-1]["reason"])
    assert not alive(int(pid.read_text()))


def test_new_code_is_tried_and_a_pinned_cell_is_not(box: Box) -> None:
    """The command was written for the job's code: a cell that is pinned to an older one would fail by it."""
    other = box.ship({"other.txt": ""})
    smoke(box, f"echo >> {box.control}/tried", code=other)
    box.add("pinned", JOB)
    box.run("pinned")
    assert not (box.control / "tried").exists()
    box.add("new", JOB, more={"code": other})
    box.run("new")
    assert (box.control / "tried").read_text() == "\n"


def test_a_runner_that_is_killed_in_it_begins_it_anew(box: Box) -> None:
    box.set(grace_seconds=0.3)
    smoke(box, f"echo $$ > {box.control}/pid; test -e {box.control}/go || sleep 600")
    box.add("a", JOB)
    runner = box.start()
    pid = box.control / "pid"
    wait_for(lambda: pid.exists() and pid.read_text().endswith("\n"), box.log)
    runner.kill()
    left = int(pid.read_text())
    (box.control / "go").touch()
    box.run("a")
    assert not alive(left)
    assert len(box.events("setup-started")) == 2


def test_secrets_are_in_no_log_of_it(box: Box) -> None:
    box.secrets({"TOKEN": "a-secret-word"})
    box.set(secrets=["TOKEN"])
    smoke(box, "echo it is $TOKEN; exit 1")
    box.add("a", JOB)
    box.run(code=7)
    (log,) = (box.home / "setup").glob("*.log")
    assert "a-secret-word" not in log.read_text() + str(box.events("setup-failed"))
