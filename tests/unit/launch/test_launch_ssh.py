"""The queue of a box that is reached by SSH: launched, read back, cut off, pulled and verified over its own sshd."""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweepstack.core.roster import Roster
from sweepstack.evidence.pull import BoxSource, pull_all
from sweepstack.evidence.verify import ReadBox, VerifyRequest, verify
from sweepstack.launch.launch import FirstCellFailed
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import Unreachable
from tests.simulators import machines
from tests.unit.launch.ssh_site import Asked, SshSite
from tests.unit.launch.support import IDENTITY


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SshSite]:
    machines.require()
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr("sweepstack.launch.first_step.SETTLE_SECONDS", 0.0)
    found = SshSite(tmp_path)
    yield found
    found.close()


def pull(site: SshSite) -> list[str]:
    (done,) = pull_all([BoxSource(site.name, 1, site.channel)], IDENTITY, site.store)
    assert done.problem == ""
    return [result.state for result in done.results]


def test_cells_are_run_sealed_pulled_and_verified(site: SshSite) -> None:
    done = site.launch("a", "b", "c")
    assert (done.appended, done.started_runner) == (("a", "b", "c"), True)
    site.drained()
    assert site.states() == {"a": "sealed", "b": "sealed", "c": "sealed"}
    assert sorted(site.started()) == ["a a", "b b", "c c"]
    assert pull(site) == ["pulled"] * 3
    assert pull(site) == ["current"] * 3
    spec = site.spec("a", "b", "c")
    outcome = verify(
        VerifyRequest(
            identity=IDENTITY,
            stack="sweep-t",
            roster=Roster(spec.cells),
            artifacts=spec.artifacts,
            store=site.store,
            boxes=[ReadBox(site.name, site.native_id, 1, site.journal)],
            workers=1,
        )
    )
    assert outcome.ok, outcome.receipt
    again = site.launch("a", "b", "c")
    assert (again.appended, again.started_runner) == ((), False)
    assert sorted(site.started()) == ["a a", "b b", "c c"]


def test_a_launch_asks_little(site: SshSite, monkeypatch: pytest.MonkeyPatch) -> None:
    site.hold("a")
    asked = Asked(monkeypatch)
    site.launch("a")
    before_the_wait = asked.total - sum(asked.verbs[verb] for verb in ("lock_held", "read", "size"))
    first = dict(asked.verbs)
    asked.verbs.clear()
    site.launch("a")
    assert asked.total <= 9, dict(asked.verbs)
    assert before_the_wait <= 13, first


def test_a_wait_reads_only_what_is_new(site: SshSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal grows for weeks, and is read ten times a second while a first step is waited for."""
    site.launch("a")
    site.drained()
    length = site.channel.size(box_layout.JOURNAL) or 0
    looks: list[tuple[int, int]] = []
    before = site.channel.read

    def read(path: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        data = before(path, offset=offset, limit=limit)
        if path == box_layout.JOURNAL:
            looks.append((offset, len(data)))
        return data

    monkeypatch.setattr(site.channel, "read", read)
    site.launch("a", "b")
    assert length > 0
    assert [offset for offset, _ in looks[:2]] == [0, 0]
    assert len(looks) > 2
    assert all(offset >= length for offset, _ in looks[2:])


def test_what_was_launched_outlives_the_connection_and_the_command(site: SshSite) -> None:
    site.hold("a")
    site.launch("a")
    pid = site.runner_pid()
    site.channel.close()  # type: ignore[attr-defined]
    assert site.machine.gateway is not None
    site.machine.gateway.cut()
    site.machine.drop_sessions()
    site.channel = site.connect()  # type: ignore[assignment]
    assert site.launch("a").started_runner is False
    assert site.runner_pid() == pid
    site.release()
    site.drained()
    assert site.started() == ["a a"]


def test_the_first_cell_that_fails_is_shown_with_its_last_words(site: SshSite, patient: None) -> None:
    site.fail("a")
    with pytest.raises(FirstCellFailed, match="the last words of a"):
        site.launch("a")


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.proof) for seed in range(2, 6))])
def test_a_launch_that_is_cut_anywhere_is_finished_by_the_next(site: SshSite, seed: int) -> None:
    """Nothing runs twice, nothing is lost, and a cut is never said to be a failure of the cell."""
    dice = random.Random(seed)
    gateway = site.machine.gateway
    assert gateway is not None
    site.channel.size("data")
    before = gateway.connections
    for _ in range(3):
        gateway.cut_after(dice.randrange(1, 4000))
        with contextlib.suppress(Unreachable):  # and nothing else: FirstCellFailed would be a verdict
            site.launch("a", "b")
    assert gateway.connections > before
    gateway.cut_after(1 << 40)
    site.launch("a", "b")
    site.drained()
    assert site.states() == {"a": "sealed", "b": "sealed"}
    assert sorted(site.started()) == ["a a", "b b"]


def test_a_pull_that_is_cut_anywhere_goes_on(site: SshSite) -> None:
    site.launch("a", "b")
    site.drained()
    gateway = site.machine.gateway
    assert gateway is not None
    dice, cut = random.Random(1), 0
    for _ in range(30):
        before = gateway.connections
        gateway.cut_after(dice.randrange(100, 9000))
        (done,) = pull_all([BoxSource(site.name, 1, site.channel)], IDENTITY, site.store)
        cut += gateway.connections > before
        states = [result.state for result in done.results]
        assert not {"refused", "absent"} & set(states), done
        if len(states) == 2 and set(states) == {"current"}:
            break
    assert cut
    gateway.cut_after(1 << 40)
    assert pull(site) == ["current"] * 2


def test_the_box_has_what_is_needed_and_no_path_of_ours(site: SshSite) -> None:
    site.launch("a")
    site.drained()
    for path in (box_layout.SPEC, box_layout.QUEUE, box_layout.JOURNAL):
        text = site.channel.read(path).decode()
        assert str(Path.cwd()) not in text
        assert str(site.job) not in text
    assert "/usr/bin/python3" in site.channel.read(box_layout.SPEC).decode()
