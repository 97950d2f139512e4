"""A connection that is cut at any moment of a sweep's life: nothing is lost, nothing runs twice, no verdict is false.

What is cut is the sshd's session, at a frame of the protocol that a seed picks: so a slow machine sees the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from sweepstack.channel.ssh import link as ssh_link
from sweepstack.core.observation import Existence
from sweepstack.core.records import Approval
from sweepstack.core.resources import BoxState
from sweepstack.evidence.pull import BoxSource, pull_all
from sweepstack.onbox.common.errors import StillCreating, SweepstackError
from sweepstack.operations.observe import observe
from sweepstack.teardown.box_context import BoxAt
from tests.simulators.host import Host
from tests.unit.provider.hosts import HostSweep
from tests.unit.provider.support import approval_for
from tests.unit.provider.test_box_end import delete

SEEDS = (1, 2, 3)
MOST_FRAMES = {"create": 4, "launch": 18, "run": 6, "pull": 12, "verify": 4, "clear": 8, "destroy": 10}
"""Within which each step of a seed is cut once; the launch ships as well, and is done twice."""
TRIES = 6
T = TypeVar("T")


class Scissors:
    """Cuts a host's connections at the nth frame from now, sent or received."""

    def __init__(self, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
        self.host, self.left, self.cuts = host, 0, 0
        sent, received = ssh_link.Link._frame, ssh_link.Link.answer

        def frame(link: ssh_link.Link, *words: Any) -> None:
            self.tick()
            sent(link, *words)

        def answer(link: ssh_link.Link, *words: Any, **more: Any) -> Any:
            self.tick()
            return received(link, *words, **more)

        monkeypatch.setattr(ssh_link.Link, "_frame", frame)
        monkeypatch.setattr(ssh_link.Link, "answer", answer)

    def tick(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.cuts += 1
            self.host.cut()


def again(do: Callable[[], T]) -> T:
    """As a person does it who reads the error and types the same command again. What is raised is ours, every time."""
    for _ in range(TRIES):
        try:
            return do()
        except (SweepstackError, StillCreating) as error:
            last = error
    raise last


# The other seeds cut at other frames of the same steps.
@pytest.mark.parametrize("seed", [SEEDS[0], *(pytest.param(seed, marks=pytest.mark.proof) for seed in SEEDS[1:])])
def test_whatever_is_cut(hosts: HostSweep, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice, host = random.Random(seed), hosts.hosts["box-0"]
    scissors = Scissors(host, monkeypatch)

    def cutting(step: str, do: Callable[[], T]) -> T:
        """At one of its frames, whatever it does there."""
        scissors.left = dice.randint(1, MOST_FRAMES[step])
        return again(do)

    hosts.hold("a", "b")
    box = cutting("create", hosts.box)
    assert hosts.boxes_on("box-0") == [box.native_id], "one box, however often it was asked for"
    queue = cutting("launch", lambda: hosts.queue(box))
    scissors.left = 0
    hosts.settled(box, "a", "b")
    runners = hosts.workers(box)
    cutting("launch", lambda: hosts.queue(box))
    assert queue.box == box.native_id
    assert hosts.workers(box) == runners, "a second up, cut or not, restarts nothing"

    scissors.left = dice.randint(1, MOST_FRAMES["run"])
    honest(box)
    scissors.left = 0
    assert hosts.workers(box) == runners, "the runner does not notice"
    hosts.release()
    hosts.drained(box)

    cutting("pull", lambda: pulled(hosts, box))
    receipt = cutting("verify", lambda: hosts.verified(box))
    approval = approval_for(box, receipt=receipt)
    cleared = cutting("clear", lambda: clear(hosts, box, approval))
    scissors.left = 0
    receipt_cells = {cell.name: cell.state for cell in hosts.store.receipt(receipt).cells}
    assert receipt_cells == {"a": "verified", "b": "verified"}
    cutting("destroy", lambda: delete(hosts, cleared))
    scissors.left = 0
    assert hosts.boxes_on("box-0") == []
    assert hosts.alive(box) == set()
    assert hosts.born().ended_how == "cleared"
    assert sorted(hosts.started()) == ["a a", "b b"], "nothing ran twice"
    assert hosts.store.losses() == []
    assert scissors.cuts >= 7, "every step was cut"


def honest(box: BoxState) -> None:
    """A look that is cut says what it knows: there and running, or unknown; never gone, never failed."""
    for _ in range(3):
        seen, _record = observe(BoxAt(box.adapter, box.native_id, box.account))
        assert seen.existence in (Existence.EXISTS, Existence.UNKNOWN)
        assert seen.runner_alive in (True, None)
        if seen.journal is not None:
            assert {progress.state for progress in seen.journal.cells.values()} <= {"running"}
        else:
            assert seen.note
    seen, _record = observe(BoxAt(box.adapter, box.native_id, box.account))
    assert seen.runner_alive is True


def clear(hosts: HostSweep, box: BoxState, approval: Approval) -> BoxState:
    """The `up` with the approval. A look that was cut leaves the box locked, and says so."""
    inputs, refused = hosts.checked(box, approval=approval)
    if refused or not inputs.clearance.startswith("cleared"):
        raise SweepstackError("; ".join([*refused, inputs.clearance]))
    return hosts.updated(box, inputs)


def pulled(hosts: HostSweep, box: BoxState) -> None:
    results = pull_all([BoxSource(box.name, box.generation, hosts.channel(box))], hosts.identity.identity, hosts.store)
    problems = [result.problem for result in results if result.problem]
    if problems:
        raise SweepstackError("; ".join(problems))
