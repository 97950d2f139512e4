"""What `sacct` prints, read, and what is said and proved by it: the texts are those of Slurm 22.05.8."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from sweepstack.extensions.slurm.onbox import accounting, commands, endings, queue, standing, worker_state
from sweepstack.extensions.slurm.onbox.accounting import Accounting, Try
from sweepstack.extensions.slurm.onbox.queue import Task
from sweepstack.onbox.common.errors import Unreachable
from sweepstack.onbox.common.units import parse_size

BOX = "slurm-x"
STARVED = """\
2_0|FAILED|0:9||100M|1795535676|n1|slurm-x
2_0.batch|CANCELLED by 0|0:9|409722880||1795535676|n1|batch
"""
AGAIN = """\
3_0|REQUEUED|0:0||200M|1795535676|n1|slurm-x
3_0.batch|CANCELLED|0:15|3026944||1795535676|n1|batch
3_0|CANCELLED by 0|0:0||200M|1795535719|n2|slurm-x
3_0.batch|CANCELLED|0:15|2668K||1795535722|n2|batch
"""
KILLED = "slurmstepd-n1: error: StepId=2.batch exceeded memory limit (409722880 > 104857600), being killed\n"
ACCOUNTED = "resources.memory: 500MB"
"""For `STARVED`."""


class Site:
    """Slurm's commands: what each prints, None for one that fails. `asked`: sacct's questions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
        self.home, self.sacct, self.squeue, self.nodes = home, "", "", ""
        self.asked: list[tuple[str, ...]] = []
        self.limits: list[float] = []
        monkeypatch.setattr(commands, "ask", self._ask)
        for name in ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"):
            monkeypatch.delenv(name, raising=False)
        (home / "jobs").mkdir()
        (home / "jobs/batch.sh").touch()

    fails = False

    def _ask(self, name: str, *words: str, seconds: float = 20.0) -> str:
        if name == "sacct":
            self.asked.append(words)
            self.limits.append(seconds)
            if self.fails:
                raise Unreachable("`sacct` failed (1): Slurm accounting storage is disabled")
            return self.sacct
        return self.nodes if name == "scontrol" else self.squeue

    def log(self, task: str, text: str = "", tries: int = 0, age: float = -1.0) -> None:
        path = self.home / f"jobs/{task}.log"
        path.write_text(f"2026-11-24T12:40:59Z {task}.{tries} begins on n1\n{text}")
        os.utime(path, (time.time() - age, time.time() - age))

    def worker(self, name: str, host: str = "n1") -> None:
        record = self.home / f"workers/{name}/worker.json"
        record.parent.mkdir(parents=True)
        record.write_text(json.dumps({"host": host}))

    def look(self, *listed: Task, sacct: Accounting | None = None) -> list[endings.TaskEnd]:
        return endings.endings_of(BOX, self.home, listed, standing.ends(self.home), sacct or Accounting())


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Site:
    return Site(monkeypatch, tmp_path)


def listed(state: str, name: str = "2_0", restarts: int = 0) -> Task:
    job, _, task = name.partition("_")
    return Task(job, task, state, restarts, nodes="n1")


def test_each_try_of_a_task_is_read_with_what_its_steps_took(site: Site) -> None:
    site.sacct = STARVED + "9_[1-3]|PENDING|0:0||200M|1795535676|None assigned|slurm-x\n" + AGAIN
    found = Accounting().tries(BOX, ["2_0", "3_0", "7_0"])
    assert found["2_0"] == [Try("2_0", "FAILED", "0:9", 409722880, 100 << 20, 1795535676, "n1")]
    assert [(one.state, one.peak, one.nodes) for one in found["3_0"]] == [
        ("REQUEUED", 3026944, "n1"),
        ("CANCELLED", 2668 << 10, "n2"),
    ]
    assert "7_0" not in found
    (asked,) = site.asked
    assert {"--jobs=2_0,3_0,7_0", f"--user={os.geteuid()}", "--duplicates"} <= set(asked)


def test_a_job_of_the_same_number_is_another_one_s(site: Site) -> None:
    site.sacct = STARVED.replace("slurm-x", "slurm-y") + AGAIN
    assert set(Accounting().tries(BOX, ["2_0"])) == set()


@pytest.mark.parametrize(
    "odd",
    [
        "what is this",
        "2_0|FAILED|0:9||100M|1795535676|n1",
        "2_0|FAILED|9||100M|1795535676|n1|slurm-x",
        "2_0|?|0:9||100M|1795535676|n1|slurm-x",
        "2_0|FAILED|0:9||100M|yesterday|n1|slurm-x",
        STARVED + "3_0.batch|FAILED|0:9|5|||n1|batch",
        STARVED.replace("409722880", "much"),
    ],
)
def test_what_does_not_read_is_no_answer(site: Site, odd: str) -> None:
    site.sacct = odd
    with pytest.raises(Unreachable, match="can't be read"):
        Accounting().tries(BOX, ["2_0"])
    assert "sacct -j 2_0" in site.look(listed("OUT_OF_MEMORY"))[0].words


@pytest.mark.parametrize(
    ("peak", "asked", "line"),
    [
        (409722880, 100 << 20, "500MB"),
        (1, 0, "100MB"),
        (60 * 10**9, 64 << 30, "83GB"),  # it took all of it, whatever was seen
        (10 * 10**9, 0, "12GB"),
        (5 * 10**9, 0, "6GB"),
        (4_100_000_000, 0, "5GB"),
        (4_200_000_000, 0, "5100MB"),
    ],
)
def test_enough_memory_is_a_line_of_the_stack_config(peak: int, asked: int, line: str) -> None:
    found = accounting.enough([Try("2_0", "OUT_OF_MEMORY", "0:9", peak, asked, 0, ""), Try("2_1", "", "", 1, 1, 0, "")])
    assert found == f"resources.memory: {line}"
    assert parse_size(line).bytes >= 1.2 * max(peak, asked)
    assert accounting.enough([]) == accounting.enough([Try("2_0", "FAILED", "0:9", 0, 0, 0, "")]) == ""


def test_nothing_is_asked_where_squeue_has_all(site: Site) -> None:
    site.log("2_0")
    site.log("4_0")
    site.worker("4_0.0")
    (site.home / "journal.jsonl").write_text('{"event": "runner-stopped", "worker": "4_0.0", "why": "done"}\n')
    (found,) = site.look(listed("FAILED"), listed("RUNNING", "2_1"))
    assert (found.name, found.state, found.exit, found.starved) == ("2_0", "FAILED", "", False)
    assert site.asked == []


@pytest.mark.parametrize(("state", "said"), [("OUT_OF_MEMORY", ""), ("FAILED", KILLED)])
def test_a_task_that_was_killed_for_memory_is_told_how_much_to_ask_for(site: Site, state: str, said: str) -> None:
    site.sacct = STARVED
    site.log("2_0", said)
    (found,) = site.look(listed(state))
    assert f"set `{ACCOUNTED}`" in found.words
    assert (found.exit, found.peak, found.starved) == ("0:9", 409722880, True)
    assert len(site.asked) == 1


def test_tasks_that_squeue_has_forgotten_are_told_with_their_ends(site: Site) -> None:
    site.sacct = STARVED + AGAIN + "5_0|RUNNING|0:0||200M|1795535719|n2|slurm-x\n"
    site.log("2_0", KILLED)
    site.log("3_0", tries=1)
    site.log("5_0")
    site.worker("3_0.0")
    site.worker("3_0.1")
    (site.home / "journal.jsonl").write_text(
        '{"event": "runner-stopped", "worker": "3_0.0", "why": "wall"}\n'
        '{"event": "worker-ended", "worker": "3_0.1", "proof": "scheduler: gone", "by": "2_1.0"}\n'
    )
    site.log("4_0", age=100.0)  # of an array before the last
    found = {one.name: one for one in site.look()}
    assert set(found) == {"2_0", "3_0"}, "what the accounting has as running has not ended"
    assert f"set `{ACCOUNTED}`" in found["2_0"].words
    assert (found["3_0"].state, found["3_0"].restarts, found["3_0"].node) == ("CANCELLED", 1, "n2")
    (asked,) = site.asked
    assert "4_0" not in " ".join(asked)
    (site.home / "jobs/closed").touch()
    assert site.look() == [], "a person ended them"


@pytest.mark.parametrize(("why", "told"), [("wall", True), ("signal", True), ("done", False)])
def test_a_worker_that_was_to_go_on_is_told_if_its_task_ended(site: Site, why: str, told: bool) -> None:
    site.sacct = AGAIN
    site.log("3_0")
    site.worker("3_0.0")
    (site.home / "journal.jsonl").write_text(
        json.dumps({"event": "runner-stopped", "worker": "3_0.0", "why": why}) + "\n"
    )
    assert bool(site.look()) is told


def test_a_worker_that_could_not_even_begin_is_told(site: Site) -> None:
    site.sacct = "2_0|FAILED|127:0||100M|1795535676|n1|slurm-x\n"
    (site.home / "jobs/2_0.log").write_text("batch.sh: 2: exec: /no/python: not found\n")
    (found,) = site.look()
    assert "data/sweep/jobs/2_0.log" in found.words
    assert found.exit == "127:0"


def test_books_that_failed_are_left_alone_for_a_while(site: Site) -> None:
    site.fails = True
    site.log("3_0")
    sacct = Accounting()
    for _ in range(2):
        (found,) = site.look(listed("OUT_OF_MEMORY"), sacct=sacct)
        assert "sacct -j 2_0" in found.words
    assert len(site.asked) == 1


# -- the program that a worker asks about another one


def told(site: Site, job: str = "2_0", tries: int = 0) -> dict[str, str]:
    return worker_state.told(BOX, site.home, job, tries)


def row(*fields: object) -> str:
    return "".join(str(field).ljust(width) for field, (_, width) in zip(fields, queue._FIELDS, strict=True))


def test_an_end_that_squeue_has_forgotten_is_told_with_the_books(site: Site) -> None:
    site.nodes = "NodeName=n1 NodeHostName=n1 State=IDLE"
    site.worker("2_0.0")
    site.sacct = STARVED.replace("FAILED", "OUT_OF_MEMORY")
    said = told(site)
    assert said["state"] == "ended"
    assert "sacct: OUT_OF_MEMORY, exit code 0:9" in said["why"]
    assert f"set `{ACCOUNTED}`" in said["memory"]
    assert len(site.asked) == 1
    assert site.limits == [accounting.SECONDS]


def test_the_books_prove_no_end(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that does not answer, or a queue that lacks the asker's own task: what runs there still is not known."""
    site.worker("2_0.0")
    site.sacct = STARVED.replace("FAILED", "OUT_OF_MEMORY")
    site.nodes = "NodeName=n1 NodeHostName=n1 State=DOWN*"
    assert told(site)["state"] == "unknown"
    site.nodes = "NodeName=n1 NodeHostName=n1 State=IDLE"
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "9")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "0")
    assert told(site)["state"] == "unknown"
    assert site.asked == []


@pytest.mark.parametrize("tries", [0, 2])
def test_the_books_speak_only_of_a_worker_with_as_many_tries(site: Site, tries: int) -> None:
    """The accounting has two tries. A job that had this number before would be one more, of another worker."""
    site.sacct = AGAIN.replace("CANCELLED by 0", "OUT_OF_MEMORY")
    said = told(site, "3_0", tries)
    assert (said["state"], said["memory"], "sacct" in said["why"]) == ("ended", "", False)
    assert "for want of memory" in told(site, "3_0", 1)["memory"]


@pytest.mark.parametrize("sacct", ["nonsense", ""])
def test_without_an_answer_of_the_books_all_is_as_without_them(site: Site, sacct: str) -> None:
    site.sacct, site.fails = sacct, not sacct
    site.log("2_0", KILLED)
    said = told(site)
    assert said["state"] == "ended"
    assert "raise resources.memory, or run fewer" in said["memory"]
    site.log("2_0")
    assert told(site)["memory"] == ""


def test_the_accounting_is_asked_of_no_worker_that_runs_or_ended_otherwise(site: Site) -> None:
    for state in ("RUNNING", "COMPLETED", "FAILED"):
        site.squeue = row(2, 0, state, 0, 1795511669, 1795512269, "main", "n1", "n1", "None")
        assert told(site)["memory"] == ""
    assert site.asked == []


def test_the_books_get_the_time_that_is_left(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner waits so long for all of it: else an end that is proved would count as unknown."""
    clock = [0.0]
    monkeypatch.setattr(worker_state.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(worker_state, "_silent_node", lambda *_: clock.__setitem__(0, clock[0] + 13.5) or "")
    told(site)
    clock[0] = 100.0
    monkeypatch.setattr(worker_state, "_silent_node", lambda *_: clock.__setitem__(0, clock[0] + 15.5) or "")
    told(site)
    assert site.limits == [2.5]
