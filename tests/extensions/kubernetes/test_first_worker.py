"""The first worker of a new box is asked for before its files are there: what waits begins no cell, and is not left."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from sweepstack.channel.ssh.link import Link
from sweepstack.core.records import Teardown
from sweepstack.core.resources import BoxState
from sweepstack.extensions.kubernetes import channel as pod_channel
from sweepstack.extensions.kubernetes import gate, jobs, reader, workers
from sweepstack.extensions.kubernetes.api import Cluster
from sweepstack.extensions.kubernetes.onbox import pilot
from sweepstack.onbox.common.errors import ConfigError, NotYetGone, SweepstackError
from tests.extensions.kubernetes.world import CONTROL, MOST_COMMANDS, KubeSweep, forget_pods
from tests.unit.provider.support import QUEUE, approval_for

WAIT_SECONDS = 6


class Killed(BaseException):
    """The process is gone."""


class Life:
    """Of a process that is killed at the `nth` thing that it does to the cluster or on the box: nothing is done from
    then on. `late`: that one is done still. `done`: what was, in words."""

    def __init__(self, patch: pytest.MonkeyPatch, nth: int, *, late: bool) -> None:
        self.nth, self.late, self.over = nth, late, False
        self.done: list[str] = []
        sent, request = Cluster._sent, Link.request

        def ask(cluster: Cluster, method: str, path: str, *more: Any) -> Any:
            return self.does(method != "GET" and "accessreviews" not in path, f"{method} {path}",
                             lambda: sent(cluster, method, path, *more))  # fmt: skip

        def on_box(link: Link, verb: str, **more: Any) -> None:
            self.does(verb not in ("ping", "read", "size", "listdir", "has"), verb, lambda: request(link, verb, **more))

        patch.setattr(Cluster, "_sent", ask)
        patch.setattr(Link, "request", on_box)

    def does(self, counts: bool, what: str, do: Callable[[], Any]) -> Any:
        if self.over:
            raise Killed
        self.done += [what] if counts else []
        self.over = counts and len(self.done) == self.nth
        if self.over and not self.late:
            raise Killed
        found = do()
        if self.over:
            raise Killed
        return found


@contextlib.contextmanager
def killed(monkeypatch: pytest.MonkeyPatch, nth: int, *, late: bool = False) -> Iterator[Life]:
    """What is done in it ends so; the process after it knows nothing of it."""
    with monkeypatch.context() as patch:
        life = Life(patch, nth, late=late)
        with contextlib.suppress(Killed):
            yield life
    forget_pods()
    reader.FIRST.clear()


def at_work(sweep: KubeSweep) -> list[str]:
    """The pods that are there and have not ended, and bill."""
    pods = [*sweep.pods(), *sweep.pods("reader")]
    return [one["metadata"]["name"] for one in pods if one["status"].get("phase") in ("Pending", "Running")]


def brought_up(sweep: KubeSweep) -> BoxState:
    box = sweep.box()
    sweep.queue(box)
    return box


def ends(sweep: KubeSweep, box: BoxState) -> None:
    """A destroy ends all that is there."""
    for last in (False, False, True)[-MOST_COMMANDS:]:
        try:
            sweep.platform.destroy(box.native_id, box.account)
            break
        except NotYetGone:
            assert not last, sweep.picture()
    assert sweep.left() == []


MOST_NTH, FIRST_JOB = 25, 2
"""More things than it does; the one by which the first worker is asked for."""


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize(
    "nth", [pytest.param(n, marks=[pytest.mark.proof] * (n != FIRST_JOB)) for n in range(1, MOST_NTH + 1)]
)
def test_a_command_that_is_killed_leaves_no_pod_behind_and_the_next_one_goes_on(
    sweep: KubeSweep, monkeypatch: pytest.MonkeyPatch, nth: int, late: bool
) -> None:
    """Anywhere: each thing that it does to the cluster, or on the box."""
    sweep.roster, sweep.scheduler["workers"] = ("a",), 1
    gate.install(sweep.platform.cluster)
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "WAIT_SECONDS", WAIT_SECONDS)
        patch.setattr(reader, "IDLE_SECONDS", WAIT_SECONDS)  # on a busy machine one may be asked for, too
        patch.setattr(reader, "LOOK_SECONDS", 1)
        with killed(patch, nth, late=late) as life:
            brought_up(sweep)
    if nth == FIRST_JOB:
        assert life.done[-1].endswith("/jobs"), life.done
        assert bool(sweep.asked_for()) == late
    if sweep.asked_for():
        sweep.until(sweep.pods, "the pod, which comes a moment later")
    assert nth < MOST_NTH or not life.over, "its end is not in the test"
    sweep.until(lambda: not at_work(sweep), "end of all pods, by themselves")
    box = brought_up(sweep)
    sweep.until_sealed(box)
    assert sweep.starts() == {"a": 1}
    sweep.assert_honest(box)
    ends(sweep, box)


def test_a_queue_that_is_refused_gives_its_first_worker_back_and_no_cell_begins(sweep: KubeSweep) -> None:
    box = sweep.box()
    inputs = sweep.queue_inputs(box)
    train = sweep.project / "job" / "train.sh"
    right = train.read_text()
    train.write_text(f"{right}# changed after the preview")
    with pytest.raises(ConfigError, match="changed between preview and up"):
        QUEUE.create(sweep.op("Queue"), inputs)
    assert sweep.asked_for() == []
    sweep.until(lambda: not at_work(sweep), "its pod's end")
    train.write_text(right)
    sweep.queue(box)
    sweep.until_sealed(box)
    sweep.assert_honest(box)
    assert max(sweep.starts().values()) == 1


@pytest.mark.parametrize("how", ["stopped", "in a teardown", "let go"])
def test_no_worker_is_asked_for_before_a_queue_that_may_not_begin(
    sweep: KubeSweep, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(workers, "ask_first", lambda _cluster, native_id, _asked: asked.append(native_id))
    box = sweep.box()
    changes: dict[str, Any] = {"stopped": {"want": "stopped"}}.get(how, {})
    if how == "let go":
        changes = {"approval": approval_for(box)}
    if how == "in a teardown":
        sweep.store.write_teardown(Teardown(native_ids=("another",), begun_at=datetime.now(UTC)))
    with contextlib.suppress(SweepstackError):
        sweep.queue(box, **changes)
    assert asked == []


def test_where_no_node_takes_the_first_worker_the_queue_is_written_by_a_reader(sweep: KubeSweep) -> None:
    good, sweep.scheduler = sweep.scheduler, {**sweep.scheduler, "cpu": 100}
    box = sweep.box()
    queue = sweep.queue(box)
    assert sweep.pods("reader")
    assert len(sweep.asked_for()) == 1
    sweep.scheduler = good
    QUEUE.update(sweep.op("Queue"), "q", queue, sweep.queue_inputs(box))
    sweep.until_sealed(box)
    sweep.assert_honest(box)


NOTES = f"""\
tr '\\0' ' ' < /proc/1/cmdline > {CONTROL}/pilot
find /dev/shm -name '*.pyc' > {CONTROL}/compiled
env > {CONTROL}/env
"""
"""What its cell sees of its pod."""


def test_a_new_box_has_one_pod_and_no_reader(sweep: KubeSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "FIRST_SECONDS", 60.0)  # however busy this machine is
    monkeypatch.setattr(pod_channel, "PATIENCE_SECONDS", 60.0)
    sweep.roster, sweep.scheduler["workers"] = ("a",), 2
    train = sweep.project / "job" / "train.sh"
    train.write_text(f"{NOTES}{train.read_text()}")
    box = brought_up(sweep)
    sweep.until_sealed(box)
    assert not sweep.pods("reader")
    assert len(sweep.pods()) == 1
    noted = {name: (sweep.control / name).read_text() for name in ("pilot", "compiled", "env")}
    assert int(noted["pilot"].split()[-2]) == jobs.WAIT_SECONDS, "it was started before its queue was there"
    assert f"{pilot.COMPILED}/" in noted["compiled"]
    assert "re/_compiler" in noted["compiled"], "what its agent compiled of the standard library"
    assert "onbox" not in noted["compiled"], "the worker writes none"
    assert pilot.COMPILED not in noted["env"], "it is no cell's"
    ends(sweep, box)
