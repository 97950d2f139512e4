"""What the commands of Slurm print, read: the texts are those of Slurm 22.05.8."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweepstack.config.rent import OWNED
from sweepstack.extensions.slurm.channel import _files
from sweepstack.extensions.slurm.onbox import (
    allocation,
    cluster,
    commands,
    jobs,
    pilot,
    queue,
    request,
    standing,
    states,
    task_log,
    vanished,
    worker_state,
)
from sweepstack.extensions.slurm.onbox.cluster import Cluster, Nodes, Partition
from sweepstack.extensions.slurm.onbox.request import WorkerRequest
from sweepstack.onbox.common.errors import RequestRefused, Unreachable
from sweepstack.onbox.common.nodes import ALLOCATION, Allocation
from sweepstack.onbox.common.processes import BOX_ID_VARIABLE, WORKER_VARIABLE
from sweepstack.teardown.unclaimed import _OURS

PARTITION = (
    "PartitionName=short AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=NO QoS=N/A "
    "DefaultTime=NONE DisableRootJobs=NO Hidden=NO MaxNodes=UNLIMITED MaxTime=00:01:00 MinNodes=0 Nodes=n[1-2] "
    "PriorityTier=2 State=UP TotalCPUs=16 TotalNodes=2"
)
CONFIG = "ClusterName             = lab\nMaxArraySize            = 1001\nKillWait                = 2 sec\n"
GPUS = Nodes(2, 8, 8000, frozenset({"ib"}), {("gpu", "a100"): 4})
LAB = Cluster(
    "lab", "22.05.8", 1001, 30.0, False, (Partition("gpu", True, True, 86400.0, None, (GPUS, Nodes(9, 64, 250000))),)
)


def line(*fields: object) -> str:
    widths = [width for _, width in queue._FIELDS]
    return "".join(str(field).ljust(width) for field, width in zip(fields, widths, strict=True))


def says(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr(commands, "ask", lambda *_, **__: "\n".join(lines))


RUNNING = line(1, 0, "RUNNING", 0, 1795511669, 1795512269, "main", "n1", "n1", "None")
AGAIN = line(1, 1, "COMPLETING", 1, "N/A", "N/A", "main", "n1", "n1", "None")
WAITS = line(1, 3, "PENDING", 1, "N/A", "N/A", "main", "", "n/a", "launch failed requeued held")


def test_a_row_is_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    says(monkeypatch, RUNNING, AGAIN, WAITS)
    first, second, third = queue.tasks("slurm-x")
    assert (first.worker, first.ends, first.ended, first.waits) == ("1_0.0", 1795512269.0, False, False)
    assert (second.worker, second.starts, second.ended) == ("1_1.1", None, False)
    assert third.waits
    assert "scontrol release 1_3" in states.reason(third.reason, third.name)
    drained = "(Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions)"
    assert states.reason(drained, "1_0").endswith("partitions: `sinfo -R` says why"), "as Slurm 22.05 says it"


@pytest.mark.parametrize(
    ("state", "reason", "held"),
    [
        ("PENDING", "launch failed requeued held", "by Slurm"),
        ("PENDING", "launch_failed_requeued_held", "by Slurm"),
        ("REQUEUE_HOLD", "JobHoldMaxRequeue", "by Slurm"),
        ("PENDING", "JobHeldUser", "by a person"),
        ("PENDING", "JobHeldAdmin", "by a person"),
        ("PENDING", "job requeued in held state", "by a person"),
        ("REQUEUE_HOLD", "", "by a person"),
        ("PENDING", "Priority", ""),
        ("RUNNING", "JobHeldUser", ""),
    ],
)
def test_who_holds_a_task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, state: str, reason: str, held: str) -> None:
    """As Slurm 22.05 said it after `scontrol hold`, `uhold` and `requeuehold`, and after a launch that failed. A task
    that runs while it is held ends as any other."""
    says(monkeypatch, line(1, 0, state, 1, "N/A", "N/A", "main", "", "n/a", reason))
    found = standing.tasks_now("slurm-x", tmp_path)
    released: list[str] = []
    monkeypatch.setattr(commands, "send", lambda *words, **_: released.append(words[1]))
    jobs.hasten(queue.live("slurm-x"))
    assert (len(found.stuck), len(found.held)) == (bool(held), held == "by a person")
    assert ("release" in released) is (held == "by Slurm")
    assert (f"1 held by a person, and left so ({reason}" in found.words()) is (held == "by a person" and bool(reason))


@pytest.mark.parametrize("odd", ["slurm_load_jobs error", line("1", "N/A", "RUNNING", 0, "", "", "", "", "", ""), "1"])
def test_what_can_not_be_read_is_unknown(monkeypatch: pytest.MonkeyPatch, odd: str) -> None:
    says(monkeypatch, RUNNING, odd)
    with pytest.raises(Unreachable):
        queue.tasks("slurm-x")


@pytest.mark.parametrize(
    ("job", "tries", "is_"),
    [("1_0", 0, "running"), ("1_0", 1, "unknown"), ("1_1", 0, "running"), ("1_3", 0, "ended"), ("1_3", 1, "unknown")],
)
def test_only_a_proof_says_that_a_worker_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object, job: str, tries: int, is_: str
) -> None:
    says(monkeypatch, RUNNING, AGAIN, WAITS)
    assert worker_state.state("slurm-x", tmp_path, job, tries)[0] == is_  # type: ignore[arg-type]


def several(nodes: str, host: str, state: str = "RUNNING") -> str:
    """A row of a worker of several nodes."""
    return line(1, 0, state, 0, 1795511669, 1795512269, "main", nodes, host, "None")


@pytest.mark.parametrize(
    ("row", "lost"),
    [
        (several("n[1-2]", "n1"), False),
        (several("n[08-11,20]", "n09"), False),
        (several("r[1-2]c[1-3],gpu1", "r2c3"), False),
        (several("n2", "n1"), True),
        (several("n[2-4,10]", "n1"), True),
        (several("n[08-11]", "n8"), True),
        (several("n2", "n1", "COMPLETING"), False),
        (several("", "n/a", "PENDING"), False),
        (several("n[2-", "n1"), False),
        (several(f"n[{','.join(map(str, range(2, 60)))}"[:120], "n1"), False),
    ],
)
def test_a_job_that_lost_the_node_of_its_worker_is_known_by_its_list_of_nodes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, row: str, lost: bool
) -> None:
    """What can't be read is none."""
    says(monkeypatch, row)
    (task,) = queue.tasks("slurm-x")
    assert task.lost_its_worker is lost
    assert standing.judged([task], tmp_path).lost == [], "its worker did not say that it was on a node of its job"
    if task.state == "RUNNING":  # else a person's word that it ended would not be refused
        assert worker_state.state("slurm-x", tmp_path, task.name, task.restarts)[0] == "running"
    (tmp_path / "workers" / task.worker).mkdir(parents=True)
    (tmp_path / "workers" / task.worker / "worker.json").write_text(json.dumps({"nodes": [task.host, "n2"]}))
    found = standing.judged([task], tmp_path)
    assert bool(found.lost) is lost
    assert not (lost and (found.at_work or standing.may_run(found, tmp_path)))
    assert ("1 only hold nodes: Slurm has lost that of the worker (1_0" in found.words()) is lost


def test_what_such_a_worker_had_is_told_with_the_command_that_frees_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its job counts as RUNNING, and proves nothing; nor does a node that answers again."""
    record = tmp_path / "workers" / "1_0.0" / "worker.json"
    record.parent.mkdir(parents=True)
    record.write_text('{"host": "n1", "nodes": ["n1", "n2"]}')
    (tmp_path / "spec.json").write_text('{"box": "a"}')
    began = [{"event": "cell-started", "cell": cell, "worker": "1_0.0"} for cell in ("x", "y", "z")]
    entries = [*began, {"event": "cell-sealed", "cell": "x", "worker": "1_0.0"}]
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    nodes = "NodeName=n1 NodeHostName=n1 State=IDLE\nNodeName=n2 NodeHostName=n2 State=IDLE"
    row = several("n2", "n1")
    monkeypatch.setattr(commands, "ask", lambda program, *_, **__: nodes if program == "scontrol" else row)
    assert worker_state.state("slurm-x", tmp_path, "1_0", 0)[0] == "unknown"
    found = standing.judged(queue.live("slurm-x"), tmp_path)
    (said,) = vanished.words("slurm-x", tmp_path, found)
    assert said.startswith("1_0.0 has y, z still: 1_0 holds n2 only, and its node n1 does not answer (lost)")
    assert said.endswith('`sweepctl confirm worker a 1_0.0 --saw "…"`')

    row = several("n[1-2]", "n1")
    assert vanished.words("slurm-x", tmp_path, standing.judged(queue.live("slurm-x"), tmp_path)) == []
    row = several("n1", "n1", "CANCELLED")
    ended = standing.judged([], tmp_path)
    assert vanished.words("slurm-x", tmp_path, ended) == [], "its nodes answer: the next worker takes its cells"
    nodes = nodes.replace("IDLE", "DOWN", 1)
    (said,) = vanished.words("slurm-x", tmp_path, ended)
    assert said.startswith("1_0.0 has y, z still: 1_0 is CANCELLED, but its node n1 does not answer (DOWN)")
    with (tmp_path / "journal.jsonl").open("a") as journal:
        journal.write('{"event":"worker-ended","proof":"seen","worker":"1_0.0"}\n')
    assert vanished.words("slurm-x", tmp_path, ended) == []


@pytest.mark.parametrize(("second", "is_"), [("IDLE", "ended"), ("DOWN", "unknown"), ("IDLE*", "unknown")])
def test_each_node_of_a_worker_has_to_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, second: str, is_: str
) -> None:
    """On the second one a rank may still run, although the first has ended."""
    record = tmp_path / "workers" / "1_3.0" / "worker.json"
    record.parent.mkdir(parents=True)
    record.write_text('{"host": "n1", "nodes": ["n1", "n2"]}')
    nodes = f"NodeName=n1 NodeHostName=n1 State=IDLE\nNodeName=n2 NodeHostName=n2 State={second}"
    monkeypatch.setattr(commands, "ask", lambda program, *_, **__: nodes if program == "scontrol" else WAITS)
    said, why = worker_state.state("slurm-x", tmp_path, "1_3", 0)
    assert said == is_, why
    assert ("n2" in why) is (is_ == "unknown")


def test_a_worker_of_several_nodes_is_told_them_its_own_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(program: str, *words: str, **_: object) -> str:
        if "hostnames" in words:
            return "n1\nn2\n"
        return "NodeName=n1 NodeAddr=10.0.0.1 State=MIXED\nNodeName=n2 NodeAddr=10.0.0.2 State=MIXED\n"

    for name, text in {"NUM_NODES": "2", "NODELIST": "n[1-2]", "ID": "17"}.items():
        monkeypatch.setenv(f"SLURM_JOB_{name}", text)
    monkeypatch.setenv("SLURMD_NODENAME", "n2")
    monkeypatch.setattr(commands, "ask", ask)
    monkeypatch.setattr(commands, "program", lambda name: f"/usr/bin/{name}")
    monkeypatch.setenv(ALLOCATION, allocation.variables()[ALLOCATION])
    found = Allocation.of_environment()
    assert found is not None
    assert list(found.nodes.items()) == [("n2", "10.0.0.2"), ("n1", "10.0.0.1")]
    assert found.start[-1] == "--nodelist={node}"
    assert {"--jobid=17", "--overlap"} <= set(found.start)
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "1")
    assert allocation.variables() == {}


def test_a_task_that_is_listed_no_more_has_ended_if_this_one_is_listed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    says(monkeypatch, RUNNING)
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "1")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "0")
    assert worker_state.state("slurm-x", tmp_path, "1_7", 0)[0] == "ended"  # type: ignore[arg-type]
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "9")
    assert worker_state.state("slurm-x", tmp_path, "1_7", 0)[0] == "unknown"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "tries", "found"),
    [
        ("slurmstepd: error: StepId=7.batch exceeded memory limit (541118464 > 209715200), being killed", 1, True),
        ("slurmstepd-n1: error: Exceeded job memory limit", 1, True),
        ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=7.batch. Some of your processes", 1, True),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch. Some of the step tasks", 1, True),
        ("slurmstepd: error: Exceeded job memory limit", 0, False),  # another try of the task
        ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-24T12:41:01 DUE TO PREEMPTION ***", 1, False),
        ("my model exceeded memory limit: oom-kill", 1, False),
    ],
)
def test_the_log_of_a_task_says_that_it_took_too_much_memory(
    tmp_path: Path, said: str, tries: int, found: bool
) -> None:
    (tmp_path / "jobs").mkdir()
    begins = "2026-11-24T12:40:59Z 7_0.{} begins on n1\n"
    (tmp_path / "jobs/7_0.log").write_text(f"{begins.format(0)}7_0.0 ended with 138\n{begins.format(1)}{said}\n")
    assert task_log.killed_for_memory(tmp_path, "7_0", tries) is found
    assert not task_log.killed_for_memory(tmp_path, "8_0", tries)


def test_partitions_and_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(program: str, *words: str, **_: object) -> str:
        if program == "sinfo":
            return "short|2|8|8000|(null)|gpu:a100:2(S:0-1),nvme:1\n"
        return CONFIG if "config" in words else PARTITION

    monkeypatch.setattr(commands, "ask", ask)
    found = cluster.read_cluster()
    assert (found.name, found.arrays, found.kill_wait, found.limits) == ("lab", 1001, 2.0, False)
    (short,) = found.partitions
    assert (short.wall, short.up, short.default) == (60.0, True, False)
    assert short.nodes[0].gres == {("gpu", "a100"): 2, ("nvme", ""): 1}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 1800.0), ("5:30", 330.0), ("02:00:00", 7200.0), ("1-00:00:00", 86400.0), ("2-12", 216000.0)],
)
def test_times(text: str, seconds: float) -> None:
    assert cluster.seconds(text) == seconds


def test_no_limit_is_none_and_nonsense_is_refused() -> None:
    assert cluster.seconds("UNLIMITED") is None
    with pytest.raises(ValueError, match="no time"):
        cluster.seconds("soon")


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"partition": "gpuu"}, "did you mean gpu"),
        ({"gpus": 5}, "no node of gpu has 5× GPU"),
        ({"gpus": 1, "gpu_names": ["H100"]}, "it has a100"),
        ({"constraint": "ibb"}, "did you mean ib"),
        ({"gres": "nvme:1"}, "no node of gpu has nvme:1"),
        ({"gpus": 1, "cpu": 9}, "with the rest has 9 CPUs"),
        ({"memory_bytes": 10**12}, "resources.memory"),
        ({"wall_seconds": 10**6}, "resources.time"),
        ({"wall_seconds": 120}, "too short"),
        ({"nodes": 3, "gpus": 1}, "job.nodes is 3, and gpu has 2 nodes with the rest"),
    ],
)
def test_what_the_cluster_does_not_have_is_refused(facts: dict[str, object], said: str) -> None:
    assert said in "\n".join(request.cluster_refusals(WorkerRequest.of(facts), LAB))


def test_what_it_has_is_spelled_for_sbatch() -> None:
    asked = WorkerRequest.of(
        {"gpus": 2, "gpu_names": ["A100"], "memory_bytes": 4 << 30, "wall_seconds": 3600, "cpu": 4}
    )
    assert request.cluster_refusals(asked, LAB) == []
    said = request.options(asked, LAB)
    assert {"--gres=gpu:a100:2", "--mem=4096M", "--time=60", "--cpus-per-task=4", "--requeue"} <= set(said)
    assert f"--signal=B:USR1@{asked.lead}" in said
    assert {"--nodes=1", "--ntasks=1"} <= set(said)
    several = request.options(WorkerRequest.of({"nodes": 2}), LAB)
    assert {"--nodes=2", "--ntasks-per-node=1", "--no-kill"} <= set(several), (
        "a lost node does not take the worker along"
    )


def test_an_option_of_the_site_can_not_take_the_place_of_one_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last of two counts, and one that lacks its value takes the next word for it: here one that comes again."""
    lines: list[tuple[str, ...]] = []

    def tell(*words: str, **_: object) -> str:
        lines.append(words)
        return "7"

    monkeypatch.setattr(commands, "send", tell)
    monkeypatch.setattr(queue, "tasks", lambda _: [])
    asked = WorkerRequest.of({"gpus": 1, "qos": "q", "sbatch": ["--exclude=n3", "--comment"]})
    jobs.submit("slurm-x", tmp_path, asked, LAB, 1, "/py", "/pilot", "runner")
    assert request.dry_run(asked, LAB) == ""
    submitted, tried = lines
    for words in lines:
        rest = words[words.index("--comment") + 2 :]
        assert words.index("--exclude=n3") < words.index("--comment")
        assert {"--requeue", "--nodes=1", "--open-mode=append", "--qos=q"} <= set(rest)
    several = request.options(WorkerRequest.of({"nodes": 2, "memory_bytes": 1 << 30, "wall_seconds": 9999}), LAB)
    ours = {word[2:].partition("=")[0] for word in (*submitted, *tried, *several) if word.startswith("--")}
    assert ours - {"exclude", "comment"} <= set(OWNED)


POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
FULL = f"sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: {POLICY}"


@pytest.mark.parametrize(
    ("room", "text", "refused", "made"),
    [
        (2, FULL, "", ["7"]),
        (0, FULL, "", []),  # a box whose workers are the two that the limit leaves
        (2, f"sbatch: error: {POLICY}", "", ["7"]),
        (0, f"sbatch: error: {POLICY}", POLICY, None),  # no number would do: it may be the time that is too long
        (2, "sbatch: error: Invalid qos specification", "Invalid qos", None),
    ],
)
def test_workers_beyond_what_may_be_submitted_now_are_no_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, text: str, refused: str, made: list[str] | None
) -> None:
    """In the preview as when they are submitted: what the limit leaves, and the rest by a later `pulumi up`."""
    from sweepstack.onbox.common.run_process import Completed

    left = [room]

    def run(_: str, words: tuple[str, ...], *__: object) -> Completed:
        size = 1 + int(next(word for word in words if word.startswith("--array")).rpartition("-")[2])
        if size > left[0] or "Invalid" in text:
            return Completed(1, b"", text.encode())
        left[0] -= size * ("--test-only" not in words)
        return Completed(0, b"7", b"")

    monkeypatch.setattr(commands, "_run", run)
    monkeypatch.setattr(queue, "tasks", lambda _: [])
    asked = WorkerRequest.of({"workers": 4})
    said = request.dry_run(asked, LAB)
    assert refused in said
    assert bool(said) is bool(refused)
    if made is None:
        with pytest.raises(RequestRefused):
            jobs.submit("slurm-x", tmp_path, asked, LAB, 4, "/py", "/pilot", "runner")
    else:
        assert jobs.submit("slurm-x", tmp_path, asked, LAB, 4, "/py", "/pilot", "runner") == made


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (
            "sbatch: error: Batch job submission failed: Invalid account or account/partition combination",
            RequestRefused,
        ),
        (
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
            Unreachable,
        ),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", Unreachable),
        ("", Unreachable),
    ],
)
def test_a_lost_answer_is_no_refusal(monkeypatch: pytest.MonkeyPatch, said: str, error: type[Exception]) -> None:
    from sweepstack.onbox.common.run_process import Completed

    monkeypatch.setattr(commands, "_run", lambda *_: Completed(1, b"", said.encode()))
    with pytest.raises(error):
        commands.send("sbatch", "--parsable")


def test_what_nodes_get_has_the_names_that_older_versions_know_for_ours() -> None:
    shipped = [f"pilot-0a1b2c3d4e5f/{path}" for path, _, _ in _files()]
    assert [path for path in shipped if _OURS.fullmatch(path) is None] == []
    assert "pilot-0a1b2c3d4e5f/sweepstack/onbox/slurm/pilot.py" in shipped


@pytest.mark.parametrize(("spec", "mark"), [({"shared": {}}, "7_1.2"), ({}, None)])
def test_a_worker_has_its_mark_from_the_start_so_that_it_need_not_begin_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: dict[str, object], mark: str | None
) -> None:
    """Without it, each try imported the runner twice."""
    (tmp_path / "spec.json").write_text(json.dumps({"native_id": "slurm-x", **spec}))
    for name, value in {"ARRAY_JOB_ID": "7", "ARRAY_TASK_ID": "1", "RESTART_COUNT": "2"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.setattr(pilot.Pilot, "_ends", lambda _: None)
    env = pilot.Pilot(tmp_path, "runner.py")._env()
    assert (env[BOX_ID_VARIABLE], env.get(WORKER_VARIABLE)) == ("slurm-x", mark)
