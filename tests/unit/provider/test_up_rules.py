"""What an `up` does with a box that does not run, and with its queue; no process runs."""

from __future__ import annotations

import itertools
import shutil
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from sweepstack.core.journal import Journal
from sweepstack.core.observation import Existence, Observation
from sweepstack.core.records import Again
from sweepstack.core.resources import QueueState
from sweepstack.onbox.common.errors import EvidenceMissing, StillCreating, SweepstackError, TeardownRefused, Unreachable
from sweepstack.onbox.host.platform import BoxRecord, Phase
from sweepstack.provider.resources import run_or_stop
from sweepstack.teardown.box_context import BoxFacts
from sweepstack.teardown.stop_check import AtRisk
from tests.unit.provider.plain_box import (
    CODE,
    OTHER,
    SEALED,
    SEEN,
    Shown,
    context,
    given,
    queue_of,
    ran,
    record,
    state_of,
)
from tests.unit.provider.support import Sweep
from tests.unit.provider.test_rested_box import STOPS
from tests.unit.teardown.support import NOW

# A stop


def paused(sweep: Sweep, monkeypatch: pytest.MonkeyPatch, **seen: Any) -> None:
    """The stop check's answer."""
    state = state_of(sweep, teardown=STOPS)
    known = {"at_rest": False, "record": None, "risk": AtRisk(), "verdict": SimpleNamespace(allowed=True), "seen": SEEN}
    pause = SimpleNamespace(box=context(state), facts=BoxFacts.of(state), **known | seen)
    monkeypatch.setattr(run_or_stop, "judge", lambda *_, **__: pause)
    monkeypatch.setattr(run_or_stop, "stop_refusal", lambda *_, **__: "REFUSED.")


def test_a_stop_is_refused_in_the_preview_and_in_the_update(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    new, state = sweep.box_inputs(want="stopped"), state_of(sweep, teardown=STOPS, want="stopped")
    paused(sweep, monkeypatch, verdict=SimpleNamespace(allowed=False))
    (refused,) = run_or_stop.check(sweep.op(), context(state), state, None, new)
    assert refused.reason == "REFUSED."
    with pytest.raises(TeardownRefused, match=r"REFUSED\."):
        run_or_stop.converge(sweep.op(), context(state), state)
    paused(sweep, monkeypatch, verdict=SimpleNamespace(allowed=False), at_rest=True)
    assert run_or_stop.check(sweep.op(), context(state), state, None, new) == [], "it stands still already"


def test_what_stands_still_is_not_stopped_again_and_nothing_is_stopped_without_its_records(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    state, stopped = state_of(sweep, teardown=STOPS, want="stopped"), record(Phase.STOPPED)

    def stop_box(*_: Any, **__: Any) -> BoxRecord:
        asked.append("stop")
        return stopped

    monkeypatch.setattr(run_or_stop, "stop_box", stop_box)
    for phase, stops in ((Phase.STOPPED, 0), (Phase.STOPPING, 1), (Phase.RUNNING, 2)):
        paused(sweep, monkeypatch, at_rest=phase.at_rest, record=record(phase))
        assert run_or_stop.converge(sweep.op(), context(state), state) == stopped
        assert len(asked) == stops, phase
    shutil.rmtree(sweep.store.root)
    with pytest.raises(SweepstackError, match="box box-0 is not stopped: its records can't be written"):
        run_or_stop.converge(sweep.op(), context(state), state)
    assert len(asked) == 2


# A start


@pytest.mark.parametrize(
    ("before", "after", "asks"),
    [
        ({"want": "stopped"}, {}, True),
        ({"want": "stopped", "when_done": "stop"}, {"when_done": "stop"}, True),
        ({"when_done": "stop"}, {}, True),
        ({"when_done": "stop"}, {"want": "stopped"}, False),
        ({"when_done": "stop"}, {"when_done": "stop"}, False),
        ({}, {}, False),
        ({}, {"when_done": "stop"}, False),
    ],
)
def test_who_asks_that_a_box_runs_though_it_has_nothing_to_run(
    sweep: Sweep, before: dict[str, str], after: dict[str, str], asks: bool
) -> None:
    assert run_or_stop.woken(state_of(sweep, **before), sweep.box_inputs(**after)) is asks


def test_a_cleared_box_is_not_waited_for_though_its_platform_does_not_answer(sweep: Sweep) -> None:
    state = state_of(sweep, clearance="cleared by x")
    found = run_or_stop.converge(sweep.op(), context(state, Shown(Unreachable("502"))), state)
    assert (found.phase, found.note, found.native_id) == (Phase.UNKNOWN, "502", "local-a")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock takes 10 ms."""
    ticks = itertools.count()
    monkeypatch.setattr(run_or_stop, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(run_or_stop, "LAG_SECONDS", 0.5)
    monkeypatch.setattr(run_or_stop, "time", SimpleNamespace(monotonic=lambda: next(ticks) / 100))


def up(sweep: Sweep, *shown: Any, timeout: float = 20, **changes: Any) -> BoxRecord:
    state = state_of(sweep, **changes)
    return run_or_stop.until_running(sweep.op(timeout=timeout), context(state, Shown(*shown)), state)


@pytest.mark.usefixtures("quick")
def test_a_box_that_comes_up_is_waited_for(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    let_in: list[str] = []
    monkeypatch.setattr(run_or_stop, "_until_answers", lambda *_: let_in.append("waited"))
    assert up(sweep, Phase.RUNNING).phase is Phase.RUNNING
    assert let_in == [], "it ran at the first look"
    assert up(sweep, Phase.CREATING, Unreachable("502"), Phase.RUNNING).phase is Phase.RUNNING
    assert let_in == ["waited"]
    monkeypatch.setattr(Shown, "over_ssh", True)
    there = record(Phase.RUNNING, endpoint=SimpleNamespace(host="h", port=22))
    assert up(sweep, Phase.RUNNING, there) == there, "it has no address before"
    assert up(sweep, Phase.STOPPED) == record(Phase.STOPPED), "its platform has no start"
    with pytest.raises(Unreachable):
        up(sweep, Unreachable("502"))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("phase", "words"),
    [
        (Phase.GONE, "is gone, and nothing of it bills: a person or the platform ended it"),
        (Phase.ENDING, "is being destroyed: a person or the platform ended it"),
        (Phase.FAILED, 'can\'t be started: . Next: sweepctl give-up --stack sweep-t data/box-0 --reason "…"'),
    ],
)
def test_a_box_that_comes_up_no_more_is_not_waited_for(sweep: Sweep, phase: Phase, words: str) -> None:
    with pytest.raises(SweepstackError) as ended:
        up(sweep, Phase.CREATING, phase)
    assert not isinstance(ended.value, StillCreating), "nothing of it is to be kept as a box that bills"
    assert words in str(ended.value)


@pytest.mark.usefixtures("quick")
def test_a_box_that_is_not_ready_is_remembered_as_it_was_seen(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    for shown, timeout, words in (
        ([Phase.UNKNOWN], 20, "has been unknown for 1 s: it may bill"),
        ([Phase.CREATING], 0.1, "is not ready yet after 0.1 s: it is creating, and bills"),
        ([Phase.CREATING, Unreachable("502")], 1, "is creating; its platform does not answer now: 502, and bills"),
    ):
        with pytest.raises(StillCreating, match=words) as late:
            up(sweep, *shown, timeout=timeout)
        assert late.value.outputs["phase"] == str(shown[0])
    # Each change of its phase begins a new count.
    monkeypatch.setattr(run_or_stop, "_until_answers", lambda *_: None)
    changing = [phase for _ in range(30) for phase in (Phase.UNKNOWN, Phase.CREATING)]
    assert up(sweep, *changing, Phase.RUNNING).phase is Phase.RUNNING


@pytest.mark.usefixtures("quick")
def test_how_long_a_box_is_waited_for_is_said_every_few_seconds(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_or_stop, "PROGRESS_SECONDS", 0.1)
    monkeypatch.setattr(run_or_stop, "_until_answers", lambda *_: None)
    up(sweep, *[Phase.CREATING] * 20, Phase.RUNNING, timeout=1000)
    said = [text for _, text in sweep.said.lines if "to run: it is" in text]
    assert 2 < len(said) < 15, said


def test_a_box_that_has_come_up_gets_time_to_answer(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_or_stop, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(run_or_stop, "ANSWER_SECONDS", 30.0)
    asked: list[str] = []

    def size(_path: str) -> int:
        asked.append("asked")
        if len(asked) < 3:
            raise Unreachable("its sshd is not up")
        return 0

    platform: Any = SimpleNamespace(channel=lambda *_: SimpleNamespace(size=size))
    run_or_stop._until_answers(sweep.op(), platform, record(Phase.RUNNING))
    assert len(asked) == 3


# Its queue


def starts(
    sweep: Sweep,
    monkeypatch: pytest.MonkeyPatch,
    seen: Observation,
    found: BoxRecord | None,
    queue: QueueState | None = None,
) -> tuple[bool, list[str]]:
    """Whether cells may be started, and what was done for it."""
    done: list[str] = []

    def until_running(*_: Any) -> BoxRecord:
        done.append("up")
        return record(Phase.RUNNING)

    monkeypatch.setattr(run_or_stop, "observe", lambda *_, **__: (seen, found))
    monkeypatch.setattr(run_or_stop, "until_running", until_running)
    monkeypatch.setattr(run_or_stop, "let_user_in", lambda *_: done.append("key"))
    queue = queue or queue_of(sweep, "a")
    return run_or_stop.start_again(sweep.op("Queue"), context(queue), queue), done


@pytest.mark.parametrize(
    ("phase", "want", "journal", "start", "done"),
    [
        (None, "running", None, True, []),
        (Phase.RUNNING, "running", SEALED, True, []),
        (Phase.RUNNING, "running", None, True, ["key"]),
        (Phase.CREATING, "running", None, True, ["up", "key"]),
        (Phase.UNKNOWN, "running", None, True, ["up", "key"]),
        (Phase.CREATING, "stopped", None, True, []),
        (Phase.STOPPED, "stopped", Journal(), False, []),
        (Phase.STOPPED, "running", SEALED, False, []),
        (Phase.STOPPED, "running", Journal(), True, ["up"]),
        (Phase.STOPPED, "running", None, True, ["up"]),
        (Phase.STOPPING, "running", SEALED, False, []),
    ],
)
def test_which_box_is_started_for_its_cells(
    sweep: Sweep,
    monkeypatch: pytest.MonkeyPatch,
    phase: Phase | None,
    want: str,
    journal: Journal | None,
    start: bool,
    done: list[str],
) -> None:
    """A stopped box with nothing to run is left as it is, and one that is wanted stopped is: a start costs money."""
    given(sweep, "a")
    seen = Observation(Existence.EXISTS, journal)
    found = None if phase is None else record(phase)
    assert starts(sweep, monkeypatch, seen, found, queue_of(sweep, "a", want=want)) == (start, done)


def test_the_whole_copy_of_a_journal_speaks_for_a_stopped_box(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, unread = queue_of(sweep, "a"), Observation(Existence.EXISTS)
    given(sweep, "a")
    assert not run_or_stop.rests_for_good(context(queue), queue), "there is no copy"
    for journal, rests in ((SEALED, True), (Journal(), False)):
        monkeypatch.setattr(run_or_stop, "_whole_copy", lambda *_, known=journal: known)
        assert run_or_stop.rests_for_good(context(queue), queue) is rests
        assert starts(sweep, monkeypatch, unread, record(Phase.STOPPED))[0] is not rests
    monkeypatch.setattr(run_or_stop, "_whole_copy", lambda *_: SEALED)
    shutil.rmtree(sweep.store.root)
    assert not run_or_stop.rests_for_good(context(queue), queue), "nor what its queue was given"
    assert run_or_stop.waiting_for(context(queue), queue) == []


@pytest.mark.parametrize(
    ("asked", "has", "price", "refused"),
    [
        (2, 2, 0.5, False),
        (2, 3, 0.5, False),
        (2, None, 0.5, False),
        (None, 0, 0.5, False),
        (2, 1, 0.5, True),
        (2, 0, None, True),
    ],
)
def test_a_box_that_came_back_with_fewer_gpus_runs_nothing(
    sweep: Sweep, asked: int | None, has: int | None, price: float | None, refused: bool
) -> None:
    queue = queue_of(sweep, "a", job={"gpus": asked})
    found = BoxRecord("local-a", "t", "here/1", Phase.RUNNING, price, NOW, location="here", gpu_count=has)
    run_or_stop.refuse_without_gpus(sweep.op("Queue"), queue, None)
    with pytest.raises(SweepstackError) if refused else nullcontext() as error:
        run_or_stop.refuse_without_gpus(sweep.op("Queue"), queue, found)
    if error is not None:
        assert f"came up with {has} of 2 GPUs; nothing runs." in str(error.value)
        assert (" It bills $0.50/h." in str(error.value)) is (price is not None)


@pytest.mark.parametrize(
    ("progress", "across", "retry", "works"),
    [
        (None, False, 0, True),
        ({"state": "sealed", "code": OTHER}, False, 0, False),
        ({"state": "sealed", "code": OTHER}, False, 1, True),
        ({"state": "running", "code": OTHER}, False, 0, True),
        ({"state": "failed", "final": True, "code": CODE}, False, 0, False),
        ({"state": "failed", "final": True, "code": OTHER}, False, 0, True),
        ({"state": "failed", "final": True, "code": OTHER, "saved": True}, False, 0, False),
        ({"state": "failed", "final": True, "code": OTHER, "saved": True, "work": "w"}, True, 0, True),
        ({"state": "failed", "final": True, "code": OTHER, "saved": True}, True, 0, False),
        ({"state": "failed", "final": True, "code": CODE, "failure_class": "files"}, False, 0, True),
        ({"state": "failed", "final": True, "code": CODE, "failure_class": "nan"}, False, 0, False),
        ({"state": "sealed", "code": CODE, "failure_class": "files"}, False, 0, False),
    ],
)
def test_which_cells_a_stopped_box_would_run(
    sweep: Sweep, progress: dict[str, Any] | None, across: bool, retry: int, works: bool
) -> None:
    given(sweep, "a")
    job = {"code": CODE, "resume": "across-code" if across else None}
    queue = queue_of(sweep, "a", job=job, retries={"a": Again(retry=retry)} if retry else None)
    journal = ran(a=progress) if progress is not None else Journal()
    assert run_or_stop._work(context(queue), queue, journal) == (["a"] if works else [])


def test_a_box_would_run_what_no_queue_has(sweep: Sweep) -> None:
    given(sweep, "a")
    queue = queue_of(sweep, "a", "b", "c", dropped={"c": "not worth it"})
    assert run_or_stop._work(context(queue), queue, SEALED) == ["b"]
    assert run_or_stop.waiting_for(context(queue), queue) == ["b"]


def test_the_state_of_a_queue_outlives_a_box_that_does_not_come_up(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: Any) -> BoxRecord:
        raise StillCreating("local-a", {"phase": "creating"}, ["not ready"])

    queue = queue_of(sweep, "a")
    monkeypatch.setattr(run_or_stop, "until_running", late)
    with pytest.raises(StillCreating, match="not ready") as error:
        run_or_stop._up(sweep.op("Queue"), context(queue), queue)
    assert QueueState.model_validate(error.value.outputs) == queue
    monkeypatch.setattr(sweep.store.__class__, "journal_at_rest", lambda *_: missing())
    assert run_or_stop._whole_copy(context(queue), queue) is None


def missing() -> None:
    raise EvidenceMissing("no record")
