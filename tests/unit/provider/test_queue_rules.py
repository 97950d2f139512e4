"""When a queue asks for an update, what it refuses, which code its cells keep; no process runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweepstack.core.journal import CellProgress, Journal
from sweepstack.core.observation import Existence, Observation
from sweepstack.core.records import Again
from sweepstack.core.resources import GateState, QueueInputs
from sweepstack.core.workdir import collect
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.launch.entries import QueueDamaged
from sweepstack.onbox.common.errors import ConfigError, PlatformError, SweepstackError
from sweepstack.onbox.host.platform import Phase
from sweepstack.provider.resources import code_mixing, host_address_change, run_or_stop, teardown
from sweepstack.provider.resources import queue as queues
from sweepstack.provider.resources.base import Failure, Gone
from sweepstack.provider.session import Severity
from tests.unit.provider.plain_box import CODE, OTHER, SEALED, Shown, context, given, queue_of, ran, record, state_of
from tests.unit.provider.support import GATE, QUEUE, Sweep, abandonment, approval_for

EMPTY = Journal()
TWO_HOURS = {"text": "2h", "seconds": 7200.0}


def nowhere(*_: Any) -> Any:
    raise PlatformError("no answer")


# Reading


def read(
    sweep: Sweep,
    monkeypatch: pytest.MonkeyPatch,
    queue: Any,
    *,
    journal: Journal | None = EMPTY,
    later: Callable[[], Journal] | None = None,
    found: Phase | None = Phase.RUNNING,
    workers: dict[str, Any] | None = None,
    **seen: Any,
) -> tuple[str, ...]:
    """Why it asks for an update. `later`: the journal when it is read again, after the runner's lock."""
    looked = Observation(Existence.EXISTS, journal, **seen), None if found is None else record(found)
    platform = SimpleNamespace(channel=lambda *_: None)
    monkeypatch.setattr(teardown, "context_of", lambda state: context(state, platform))
    monkeypatch.setattr(queues, "observe", lambda *_, **__: looked)
    monkeypatch.setattr(queues, "_workers", lambda _: workers or {})
    monkeypatch.setattr(queues, "read_journal", lambda _: later() if later is not None else journal)
    answer = QUEUE.read(sweep.op("Queue"), "q", queue)
    assert not isinstance(answer, Gone)
    assert answer.state == queue
    return answer.unhealthy


WAITS = ("queue of box-0: 1 cell waits and no runner is alive; `pulumi up` resumes it",)


def test_what_of_a_queue_asks_for_an_update(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    given(sweep, "a")
    queue = queue_of(sweep, "a")
    stopped = queue.model_copy(update={"want": "stopped"})
    assert read(sweep, monkeypatch, queue, runner_alive=False) == WAITS
    assert read(sweep, monkeypatch, queue, runner_alive=False, later=nowhere) == WAITS
    assert read(sweep, monkeypatch, queue, runner_alive=False, later=lambda: SEALED) == (), "it ended in between"
    assert read(sweep, monkeypatch, queue, runner_alive=True) == ()
    assert read(sweep, monkeypatch, queue, journal=SEALED, runner_alive=False) == ()
    assert read(sweep, monkeypatch, queue, found=None, runner_alive=False) == WAITS
    assert read(sweep, monkeypatch, stopped, found=Phase.STOPPED) == ()
    assert read(sweep, monkeypatch, stopped, found=Phase.RUNNING) == WAITS
    assert read(sweep, monkeypatch, queue, found=Phase.STOPPED) == WAITS
    (words,) = read(sweep, monkeypatch, queue, journal=None, note="no answer")
    assert words == "queue of box-0: unknown, no answer"
    monkeypatch.setattr(run_or_stop, "rests_for_good", lambda *_: True)
    assert read(sweep, monkeypatch, queue, journal=None, stopped=True) == ()
    shutil.rmtree(sweep.store.root)
    assert read(sweep, monkeypatch, queue, runner_alive=False) == (), "what it was given can't be read"


@pytest.mark.parametrize(
    ("cells", "workers", "asked"),
    [
        ("a", {"at_work": 1, "words": "1 runs"}, None),
        ("a", {"at_work": 0, "held": 1, "words": "1 is held"}, None),
        ("a", {"at_work": 0, "held": 0, "words": "none"}, "1 cell waits and no worker takes it: none; `pulumi up`"),
        ("ab", {"at_work": 0, "held": 1, "words": "1 is held"}, "2 cells wait and no worker takes them: 1 is held; "),
        ("ab", {"at_work": 0, "held": 2, "words": "2 are held"}, None),
        ("ab", {"at_work": 1, "lost": 1, "words": "1 is lost"}, "2 cells wait and not all workers take them: 1 is"),
        (
            "a",
            {"at_work": 0, "lost": 1, "held": 1, "words": "x"},
            "1 cell waits and no worker takes it: x; `pulumi up`",
        ),
    ],
)
def test_cells_of_a_cluster_ask_for_an_update_unless_a_person_holds_their_workers(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, cells: str, workers: dict[str, Any], asked: str | None
) -> None:
    given(sweep, *cells)
    queue = queue_of(sweep, *cells, job={"scheduler": {"workers": 2}})
    found = read(sweep, monkeypatch, queue, runner_alive=True, workers=workers)
    if asked is None:
        assert found == ()
    else:
        assert f"queue of box-0: {asked}" in found[0]
    assert ("held" in sweep.said.text(Severity.WARNING)) is (asked is None and bool(workers.get("held")))


def test_a_box_that_may_end_asks_for_nothing(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_of(sweep)
    approval = approval_for(state, abandon=(abandonment(state),))
    given(sweep)
    queue = queue_of(sweep, "a")
    (words,) = read(sweep, monkeypatch, queue)
    assert "1 cell is in no queue yet" in words
    assert read(sweep, monkeypatch, queue.model_copy(update={"approval": approval})) == ()
    assert read(sweep, monkeypatch, queue.model_copy(update={"want": "stopped"})) == ()


def test_a_box_that_can_t_be_asked_has_no_other_secrets_and_no_workers(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SWEEP_TEST_A", "hunter2-hunter2")
    queue = queue_of(sweep, "a", job={"secrets": ["SWEEP_TEST_A"]})
    silent: Any = context(queue, SimpleNamespace(channel=nowhere))
    assert queues._workers(silent) == {}
    assert not QUEUE._old_secrets(silent, queue, EMPTY)
    for there, old in (
        ({"SWEEP_TEST_A": "another"}, True),
        ({"SWEEP_TEST_A": "hunter2-hunter2"}, False),
        (None, False),
    ):
        monkeypatch.setattr(queues, "_secrets_on", lambda _, known=there: known)
        at: Any = context(queue, SimpleNamespace(channel=lambda *_: None))
        assert QUEUE._old_secrets(at, queue, EMPTY) is old
    monkeypatch.delenv("SWEEP_TEST_A")
    monkeypatch.setattr(queues, "_at", lambda _: silent)
    assert QUEUE._without_secrets(queue, EMPTY) == [], "whether it has them is not known; the update asks"
    assert QUEUE.check_early(sweep.op("Queue"), {"box": "local-a"}, queue.model_dump(mode="json")) == []
    assert QUEUE.check_early(sweep.op("Queue"), {}, {"cells": 3}) == [], "the check says what is wrong with it"


# What is refused in the preview


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The box is there and nothing ran on it; the cluster would not run its workers. What was asked."""
    asked: list[str] = []

    def refused(*_: Any) -> list[Failure]:
        asked.append("workers")
        return [Failure("job", "no such partition")]

    monkeypatch.setattr(queues, "observe", lambda *_, **__: (Observation(Existence.EXISTS, EMPTY), None))
    monkeypatch.setattr(queues, "worker_failures", refused)
    monkeypatch.setattr(queues, "renew_lease", lambda _: asked.append("lease"))
    return asked


def reasons(sweep: Sweep, old: QueueInputs | None, new: QueueInputs) -> list[str]:
    return [failure.reason for failure in QUEUE.check(sweep.op("Queue"), old, new).failures]


def test_what_would_stop_a_start_keeps_no_box_locked(sweep: Sweep, looked: list[str]) -> None:
    """Neither one that is to stand still nor one that may end; an approval that lets another box go changes nothing."""
    state, other = state_of(sweep), state_of(sweep, native_id="local-b")
    given(sweep, "a")
    old = sweep.queue_inputs(state, "a")
    for changes, refused in (
        ({}, True),
        ({"want": "stopped"}, False),
        ({"approval": approval_for(state, abandon=(abandonment(state),))}, False),
        ({"approval": approval_for(other, abandon=(abandonment(other),))}, True),
    ):
        assert reasons(sweep, old, old.model_copy(update=changes)) == (["no such partition"] if refused else [])
    assert looked == ["workers"] * 4
    assert reasons(sweep, None, old) == [], "before the first launch `check_early` asks"
    assert looked == ["workers"] * 4


def test_a_look_renews_the_lease_of_a_box_that_can_be_read(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, looked: list[str]
) -> None:
    plain, leased = (sweep.queue_inputs(state_of(sweep), "a", job={"lease": lease}) for lease in (None, TWO_HOURS))
    for old, journal, renews in ((leased, EMPTY, True), (plain, EMPTY, False), (leased, None, False)):
        looked.clear()
        seen = Observation(Existence.EXISTS, journal)
        monkeypatch.setattr(queues, "observe", lambda *_, known=seen, **__: (known, None))
        reasons(sweep, old, old)
        assert ("lease" in looked) is renews


def test_a_queue_that_does_not_read_says_how_it_is_moved_aside(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(*_: Any, **__: Any) -> None:
        raise QueueDamaged("line 3 does not read")

    given(sweep, "a")
    queue = queue_of(sweep, "a")
    platform = SimpleNamespace(channel=lambda *_: None)
    monkeypatch.setattr(teardown, "context_of", lambda state: context(state, platform))
    verdict = SimpleNamespace(verdict=SimpleNamespace(allowed=False))
    monkeypatch.setattr(teardown, "judge_end", lambda *_, **__: verdict)
    monkeypatch.setattr(run_or_stop, "start_again", lambda *_: True)
    for name in ("sign_box", "_move_in", "launch_spec"):
        monkeypatch.setattr(queues, name, lambda *_, **__: None)
    monkeypatch.setattr(queues, "launch", damaged)
    with pytest.raises(QueueDamaged, match=r"box-0: line 3 .*\. Next: sweepctl ssh --stack sweep-t box-0 -- mv "):
        QUEUE.update(sweep.op("Queue"), "q", queue, sweep.queue_inputs(state_of(sweep), "a"))


def test_an_address_that_can_t_be_written_refuses_a_queue(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = sweep.queue_inputs(state_of(sweep), "a")
    refused = [Failure("adapter", "no address")]
    monkeypatch.setattr(host_address_change, "written_out", lambda _, new: (new, refused))
    assert reasons(sweep, None, inputs) == ["no address"]
    gate = sweep.gate_inputs(state_of(sweep))
    assert GATE.check(sweep.op("Gate"), None, gate).failures == refused
    assert GATE.update(sweep.op("Gate"), "g", GateState(**gate.model_dump()), gate) == GateState(**gate.model_dump())
    assert GATE.check_early(sweep.op("Gate"), {}, {}) == []


class Cluster(Shown):
    def refusals(self, scheduler: Any) -> list[str]:
        if scheduler["workers"] == 9:
            raise PlatformError("the login node does not answer")
        return ["no such partition"]


def test_a_cluster_is_asked_only_about_workers_that_change(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    def inputs(workers: int | None, *cells: str, **changes: Any) -> QueueInputs:
        scheduler = None if workers is None else {"workers": workers}
        queue = sweep.queue_inputs(state_of(sweep), *cells, job={"scheduler": scheduler}, **changes)
        return queue if cells else queue.model_copy(update={"cells": ()})

    monkeypatch.setattr(queues, "IsCluster", Cluster)
    monkeypatch.setattr(queues, "load_platform", lambda _: Cluster(Phase.RUNNING))
    refused = [Failure("job", "no such partition")]
    for old, new, found in (
        (None, inputs(2, "a"), refused),
        (inputs(1, "a"), inputs(2, "a"), refused),
        (inputs(2, "a"), inputs(2, "a"), []),
        (None, inputs(None, "a"), []),
        (None, inputs(2), []),
        (None, inputs(2, "a", want="stopped"), []),
        (None, inputs(9, "a"), []),
    ):
        assert queues.worker_failures(sweep.op("Queue"), old, new) == found
    assert "whether the cluster would run its workers is not known (the login node" in sweep.said.warnings
    monkeypatch.setattr(queues, "load_platform", lambda _: Shown(Phase.RUNNING))
    assert queues.worker_failures(sweep.op("Queue"), None, inputs(2, "a")) == []


def test_a_retry_and_a_missing_work_dir(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetched(*_: Any) -> Path:
        raise ConfigError("its repository does not answer")

    queue = queue_of(sweep, "a", "b", retries={"a": Again(retry=3)})
    assert [queues._retry(queue, name) for name in ("a", "b")] == [3, 0]
    monkeypatch.setattr(queues, "located", fetched)
    assert queues._workdir(sweep.op("Queue"), "job") == Path("job"), "code that is on the box needs it no more"
    assert sweep.said.warnings == "its repository does not answer"


# Which code cells keep


def test_a_cell_that_was_found_sealed_has_the_code_that_another_journal_knows(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = ran(a={"state": "sealed", "code": OTHER}, b={"state": "pending"})
    own = ran(a={"state": "sealed"}, b={"state": "sealed"}, c={"state": "sealed", "code": CODE})
    monkeypatch.setattr(code_mixing, "_others", lambda *_: [there])
    inputs = sweep.queue_inputs(state_of(sweep), "a", "b", "c", "d")
    found = code_mixing.code_versions(Evidence(inputs.evidence), inputs, own)
    assert {name: one.code for name, one in found.kept.items()} == {"a": OTHER, "b": None, "c": CODE}
    assert found.takers == ("d",)


@pytest.mark.parametrize(
    ("progress", "asked", "goes_on", "keeps"),
    [
        ({"state": "sealed"}, None, False, True),
        ({"state": "running"}, None, False, True),
        ({"state": "running", "work": "w"}, None, True, True),
        ({"state": "failed", "final": True}, None, False, False),
        ({"state": "failed", "final": True, "saved": True}, None, False, True),
        ({"state": "failed", "final": True, "saved": True, "work": "w"}, None, True, False),
        ({"state": "sealed"}, Again(retry=1), False, False),
        ({"state": "running"}, Again(retry=1), False, True),
        ({"state": "running", "work": "w"}, Again(retry=1), True, False),
        ({"state": "running"}, Again(retry=1, salt=1), False, False),
        ({"state": "failed", "final": True, "saved": True}, Again(retry=1), False, True),
        ({"state": "failed", "final": True, "saved": True}, Again(retry=1, salt=1), False, False),
        ({"state": "failed", "saved": False}, Again(retry=1), False, False),
        ({"state": "dropped"}, Again(retry=1), False, False),
    ],
)
def test_which_cell_keeps_its_code(progress: dict[str, Any], asked: Again | None, goes_on: bool, keeps: bool) -> None:
    assert code_mixing.keeps(CellProgress("a", **progress), asked, goes_on) is keeps


@pytest.mark.parametrize(
    ("retries", "across", "words"),
    [
        (None, False, "a has a checkpoint of step 7, keeps its version and stays failed"),
        ({"a": Again(retry=1)}, False, "a has a checkpoint of step 7, keeps its version and goes on from it"),
        ({"a": Again(retry=2, salt=2)}, False, "failed, and starts anew with it: a"),
        (None, True, "failed, and goes on with new code: a from its checkpoint of step 7"),
        ({"a": Again(retry=2, salt=2)}, True, "failed, and starts anew with it: a"),
    ],
)
def test_what_becomes_of_a_failed_cell_is_said(
    sweep: Sweep, retries: dict[str, Again] | None, across: bool, words: str
) -> None:
    failed = {"state": "failed", "final": True, "saved": True, "saved_step": 7, "work": "w", "code": OTHER}
    job = {"code": CODE, "resume": "across-code" if across else None}
    new = sweep.queue_inputs(state_of(sweep), "a", job=job, retries=retries)
    old = sweep.queue_inputs(state_of(sweep), "a", job={"code": OTHER})
    standing = code_mixing.code_versions(Evidence(new.evidence), new, ran(a=failed), retries)
    assert words in code_mixing.change(standing, old, new)


def test_what_a_preview_lists_is_named_as_it_is(sweep: Sweep) -> None:
    before = {"gone.py": (1, "x"), "same.py": (1, "x"), "other.py": (1, "x"), "mode.sh": (1, "x")}
    now = {"same.py": (1, "x"), "other.py": (1, "y"), "mode.sh": (2, "x"), "new.py": (1, "x")}
    assert code_mixing._differing(before, now) == ["gone.py (gone)", "mode.sh", "new.py (new)", "other.py"]
    for number, more in ((8, ""), (9, " …")):
        known = [f"sha256:{digit}" + "0" * 63 for digit in "123456789"[:number]]
        found, (failure,) = code_mixing._pins({"a": "f", "b": "f"}, known, ["a"])
        assert found == {"a": "f", "b": "f"}
        assert failure.reason.endswith(f"800000{more}")
    old = sweep.queue_inputs(state_of(sweep), "a", "b")
    for left, words in (("b", "1 that started stays here (a)"), ("", "2 that started stay here (a, b)")):
        new = sweep.queue_inputs(state_of(sweep), *left) if left else old.model_copy(update={"cells": ()})
        ran_here = ran(a={"state": "sealed"}, b={"state": "sealed"})
        assert code_mixing.comings_and_goings(old, new, ["a", "b"], ran_here) == words


def test_the_version_that_the_queue_has_comes_first_of_those_with_the_same_code(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two versions may differ in the project's own files alone."""
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(EvidenceStore, "codes", lambda _: [CODE, OTHER])

    def same(_evidence: Any, versions: tuple[str, ...], _there: Any) -> None:
        asked.append(versions)

    monkeypatch.setattr(code_mixing, "_same_code", same)
    new = sweep.queue_inputs(state_of(sweep), "a")
    for code in (OTHER, "sha256:" + "e" * 64):
        old = sweep.queue_inputs(state_of(sweep), "a", job={"code": code})
        assert code_mixing.with_code_kept(sweep.op("Queue"), Evidence(new.evidence), old, new) == new
    assert asked == [(OTHER, CODE), (CODE, OTHER)]


def test_code_that_can_t_be_read_here_is_judged_where_it_ships(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """A preview refuses what it can see; what the evidence or the work dir does not show, the update meets."""
    op, evidence = sweep.op("Queue"), Evidence(sweep.identity.evidence)
    standing = code_mixing.CodeVersions({}, ("a",))
    crlf = sweep.project / "job" / "start.sh"
    crlf.write_bytes(b"#!/bin/sh\r\necho hi\r\n")
    crlf.chmod(0o755)
    (sweep.project / "job" / "idle.sh").write_bytes(b"#!/bin/sh\r\n")
    (sweep.project / "job" / "other.sh").write_bytes(b"#!/bin/sh\r\n")
    code = collect(sweep.project / "job").digest
    job = {"run": "./start.sh", "code": code}
    inputs = sweep.queue_inputs(state_of(sweep), "a", job=job)
    (refused,) = code_mixing.refused_scripts(op, evidence, standing, inputs)
    assert "start.sh" in refused.reason
    assert "So do 1 more." in sweep.said.warnings
    absent = sweep.queue_inputs(state_of(sweep), "a", job=job | {"run": "python nosuch.py --word {word}"})
    (unshipped,) = code_mixing.unstartable(op, standing, None, absent)
    assert "nosuch.py is not among the shipped files" in unshipped.reason
    for known in (inputs, absent):
        for unread in ({"workdir": "nowhere"}, {"code": CODE}):
            there = known.model_copy(update={"job": known.job.model_copy(update=unread)})
            assert code_mixing.refused_scripts(op, evidence, standing, there) == []
            assert code_mixing.unstartable(op, standing, None, there) == []
    with monkeypatch.context() as patch:
        patch.setattr(EvidenceStore, "codes", lambda _: [code])
        assert code_mixing.refused_scripts(op, evidence, standing, inputs) == [], "it was shipped before"
    shutil.rmtree(sweep.store.root)
    lost = Evidence(evidence.uri)
    assert code_mixing.refused_scripts(op, lost, standing, inputs) == [refused]
    assert code_mixing._staying(lost, inputs) == []
    again = {"a": Again(retry=1)}
    retried = inputs.model_copy(update={"retries": again})
    assert code_mixing._asked(lost, retried, {}) == again


def test_a_cell_that_would_begin_at_0_unasked_is_refused_where_a_bucket_has_its_checkpoints(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[set[str]] = []

    def begins_at_0(line: Any, *_: Any) -> None:
        raise SweepstackError(f"it would begin at 0 (salt {line['salt']})")

    def before(_store: Any, _box: str, _generation: int, names: set[str]) -> dict[str, Any]:
        asked.append(names)
        return {}

    monkeypatch.setattr(code_mixing, "on_another_box", begins_at_0)
    monkeypatch.setattr(code_mixing, "ran_on_ended_boxes", before)
    mounts = [{"name": "b", "source": "s3://bucket/prefix", "path": "/mnt/b", "mode": "MOUNT_CACHED"}]
    known = sweep.queue_inputs(state_of(sweep), "a", "b", dropped={"b": "not worth it"})
    job = known.job.model_copy(update={"mounts": tuple(SimpleNamespace(**one) for one in mounts)})
    inputs = known.model_copy(update={"job": job})
    evidence = Evidence(inputs.evidence)
    assert len(code_mixing.unasked(evidence, inputs, None)) == 2
    code_mixing.unasked(evidence, inputs, SEALED)
    code_mixing.unasked(evidence, inputs, EMPTY)
    assert asked == [{"a"}, set(), {"a"}], "what has begun here, or was dropped, is not looked for"
    assert code_mixing.unasked(evidence, known, None) == []
    shutil.rmtree(sweep.store.root)
    assert code_mixing.unasked(Evidence(evidence.uri), inputs, None) == []
