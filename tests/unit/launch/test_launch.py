"""Giving a box its cells: the record first, then the queue, then the runner; and called again, nothing twice."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from sweepstack.core.journal import Rest
from sweepstack.core.records import ArtifactSpec, Cell, Launch
from sweepstack.core.roster import Roster
from sweepstack.evidence.verify import ReadBox, VerifyRequest, verify
from sweepstack.launch.first_step import first_end
from sweepstack.launch.launch import FirstCellFailed
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import digest_of
from sweepstack.onbox.common.errors import ConfigError, PlatformError, SweepstackError, Unreachable
from tests.unit.launch.support import IDENTITY, Broken, Clock, Site

OTHER = digest_of("other code")


def given_elsewhere(site: Site, *cells: str, box: str = "box-1", generation: int = 1) -> None:
    """The queue of another box was given these cells."""
    digests = {name: Cell(name=name, params={"word": name}).config_digest for name in cells}
    site.store.write_birth(site.birth(box=box, generation=generation, native_id=f"local-{box}", tag=f"tag-{box}"))
    site.store.write_launch(
        Launch(
            box=box, generation=generation, native_id=f"local-{box}", cells=digests, code=OTHER, at=datetime.now(UTC)
        )
    )


def verified(site: Site, *cells: str) -> None:
    """These cells have a verified copy in the evidence."""
    for name in cells:
        sealed = site.folder / "platform" / "volumes" / site.volume / "content" / box_layout.sealed_dir(IDENTITY, name)
        target = site.store.cell_dir(name)
        target.mkdir(parents=True)
        for path in sealed.iterdir():
            (target / path.name).write_bytes(path.read_bytes())
    spec = site.spec(*cells)
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


# Converging


def test_cells_that_wait_for_a_person_start_no_runner_and_a_mended_name_seals_what_is_there(site: Site) -> None:
    wrong = (ArtifactSpec(path="model.json", load="json"),)
    with contextlib.suppress(FirstCellFailed):  # on a busy machine its failure comes after its first sign of life
        site.launch("a", "b", artifacts=wrong, slots=1)
    site.until_state("failed", "a")
    site.until(site.idle, "the runner's end")
    again = site.launch("a", "b", artifacts=wrong, slots=1)
    assert (again.appended, again.started_runner) == ((), False)
    assert "its cells that have not begun wait: a left the wrong files" in again.notes[0]
    assert site.journal.waits("b")
    assert not site.journal.waits("a")
    assert site.launch("a", "b", slots=1).started_runner
    site.until_state("sealed", "a", "b")
    assert (site.control / "started").read_text() == "a a\nb b\n"  # each was trained once


def test_the_second_call_does_nothing(site: Site) -> None:
    site.hold("a", "b")
    first = site.launch("a", "b")
    assert (first.appended, first.started_runner) == (("a", "b"), True)
    site.until_state("running", "a", "b")
    before = site.queue(), site.journal.head, site.runner_pid(), site.record_of_launch()
    for _ in range(2):
        again = site.launch("a", "b")
        assert (again.appended, again.removed, again.started_runner) == ((), (), False)
    assert (site.queue(), site.journal.head, site.runner_pid(), site.record_of_launch()) == before
    assert site.started().count("a a") == 1


def test_a_drained_queue_stays_as_it_is_until_a_new_cell_wakes_it_and_ends_the_word_of_a_stop(site: Site) -> None:
    """The journal's head, which a receipt names, does not move; and what was copied at the stop is whole until then."""
    site.launch("a")
    site.drained()
    head = site.journal.head
    site.store.write_rest(Rest(box=site.name, generation=1, native_id=site.native_id, head=head, at=datetime.now(UTC)))
    again = site.launch("a")
    assert (again.appended, again.started_runner, site.journal.head) == ((), False, head)
    assert (rest := site.store.rest(site.name, 1))
    assert rest.head == head
    later = site.launch("a", "b")
    assert (later.appended, later.started_runner) == (("b",), True)
    assert (rest := site.store.rest(site.name, 1))
    assert rest.head is None
    site.drained()
    assert site.started() == ["a a", "b b"]


def test_a_new_cell_joins_the_live_queue(site: Site) -> None:
    site.hold("a")
    site.launch("a")
    site.until_state("running", "a")
    pid, first = site.runner_pid(), site.recorded()
    later = site.launch("a", "b")
    assert (later.appended, later.started_runner) == (("b",), False)
    site.until_state("sealed", "b")
    assert site.runner_pid() == pid
    assert site.started() == ["a a", "b b"]
    assert (sorted(site.recorded().cells), site.recorded().at) == (["a", "b"], first.at)


def test_a_runner_that_was_killed_is_started_again(site: Site) -> None:
    site.hold("a")
    site.launch("a", "b", slots=1)
    site.until_state("running", "a")
    pid = int(site.runner_pid().split(b":")[1].split(b",")[0])
    os.killpg(pid, signal.SIGKILL)
    site.drained()
    site.release()
    again = site.launch("a", "b", slots=1)
    assert (again.appended, again.started_runner) == ((), True)
    site.until_state("sealed", "a", "b")
    assert site.journal.cells["a"].attempts == 2


def test_nothing_to_give_leaves_no_trace(site: Site) -> None:
    """No record, no queue: this box may still be ended as one on which nothing was launched."""
    done = site.launch()
    assert not done.started_runner
    assert site.record_of_launch() is None
    assert not (site.root / box_layout.HOME).exists()


def test_the_box_gets_the_code_and_the_settings(site: Site) -> None:
    site.launch("a", env={"WORD": "x"})
    spec = site.spec("a")
    assert site.channel.read(f"{box_layout.code_dir(spec.code)}/train.sh") == (site.job / "train.sh").read_bytes()
    assert any("shipping 1 file" in line for line in site.said)
    site.said.clear()
    site.drained()
    site.launch("a", env={"WORD": "x"})
    assert not any("shipping" in line for line in site.said)


# The record comes first


@pytest.mark.parametrize("verb", ["append_locked", "spawn"])
def test_the_launch_is_on_record_before_anything_can_start(site: Site, verb: str) -> None:
    """From the first line of the queue on, this is a box that needs a receipt; also when the answer is lost."""
    broken = Broken(site.channel, verb, Unreachable("the line is cut"))
    with pytest.raises(Unreachable):
        site.launch("a", "b", channel=broken)
    record = site.recorded()
    assert record.native_id == site.native_id
    assert record.cells == {cell.name: cell.config_digest for cell in site.spec("a", "b").cells}
    assert site.journal.entries == ()
    done = site.launch("a", "b")
    assert done.started_runner
    site.until_state("sealed", "a", "b")
    assert sorted(site.started()) == ["a a", "b b"]


@pytest.mark.parametrize("verb", ["put_tree", "write", "read"])
def test_what_fails_before_the_queue_leaves_no_launch(site: Site, verb: str) -> None:
    with pytest.raises((PlatformError, SweepstackError)):
        site.launch("a", channel=Broken(site.channel, verb, Unreachable("the line is cut")))
    assert site.record_of_launch() is None
    assert site.queue() == b""


def test_evidence_that_can_t_be_written_launches_nothing(site: Site) -> None:
    (site.store.root / "sweep.json").unlink()
    with pytest.raises(SweepstackError):
        site.launch("a")
    assert site.queue() == b""
    assert site.idle()


def test_a_later_launch_forgets_no_cell_that_ran(site: Site) -> None:
    """The record is what the gate asks for: it may grow, and only what never ran leaves it."""
    site.hold("a")
    site.launch("a", "b", "c", slots=1)
    site.until_state("running", "a")
    given_elsewhere(site, "c")
    done = site.launch("a", slots=1, elsewhere={"b": ""})
    assert set(done.removed) == {"b", "c"}
    assert sorted(site.recorded().cells) == ["a"]
    site.release()
    site.drained()
    assert site.states() == {"a": "sealed", "b": "dropped", "c": "dropped"}
    assert site.started() == ["a a"]


# Cells that are others' or done


def test_a_cell_that_another_living_box_was_given_is_left_to_it(site: Site) -> None:
    given_elsewhere(site, "a")
    nothing = site.launch("a")
    assert (nothing.appended, nothing.waiting, nothing.started_runner) == ((), ("a",), False)
    assert site.record_of_launch() is None
    done = site.launch("a", "b")
    assert (done.appended, done.waiting) == (("b",), ("a",))
    site.drained()
    assert site.started() == ["b b"]
    assert sorted(site.recorded().cells) == ["b"]


def test_a_cell_of_a_box_that_ended_is_taken_over(site: Site) -> None:
    given_elsewhere(site, "a")
    birth = site.store.birth("box-1", 1)
    assert birth is not None
    site.store.write_birth(birth.model_copy(update={"ended_at": datetime.now(UTC), "ended_how": "vanished"}))
    assert site.launch("a").appended == ("a",)


def test_an_earlier_generation_of_the_same_box_holds_nothing(site: Site) -> None:
    given_elsewhere(site, "a", box="box-0", generation=7)
    assert site.launch("a").appended == ("a",)


@pytest.fixture
def later(site: Site) -> Iterator[Site]:
    """Another box of the same sweep, with the same volume and evidence; the first one has run a and b, and ended."""
    site.launch("a", "b")
    site.drained()
    verified(site, "a", "b")
    site.store.write_birth(site.birth(ended_at=datetime.now(UTC), ended_how="vanished"))
    found = Site(site.folder, "box-2")
    yield found
    found.close()


def test_a_verified_cell_is_not_given_to_a_later_box(later: Site) -> None:
    done = later.launch("a", "b", "c")
    assert (done.appended, done.waiting) == (("c",), ())
    later.drained()
    assert later.started()[2:] == ["c c"]


def test_a_verified_copy_that_was_hurt_since_counts_no_more(later: Site) -> None:
    """Given again; and found sealed on the volume, so that nothing is trained twice."""
    (later.store.cell_dir("b") / "result.json").write_bytes(b"{}")
    assert later.launch("a", "b").appended == ("b",)
    later.drained()
    assert later.states() == {"b": "sealed"}
    assert len(later.started()) == 2


def test_a_verified_cell_of_another_config_is_another_cell(later: Site) -> None:
    assert later.launch(Cell(name="a", params={"word": "other"})).appended == ("a",)
    later.drained()
    assert later.started()[2:] == ["a other"]


# Cells that go


def test_what_is_left_away_is_taken_out_unless_it_has_started(site: Site) -> None:
    """Only `cells.drop` stops what runs."""
    site.hold("a", "b")
    site.launch("a", "b", "c")
    site.until_state("running", "a", "b")
    done = site.launch("a")
    assert done.removed == ("c",)
    site.release()
    site.drained()
    assert site.states() == {"a": "sealed", "b": "sealed", "c": "dropped"}
    assert sorted(site.started()) == ["a a", "b b"]
    assert sorted(site.recorded().cells) == ["a", "b"]


def test_a_dropped_cell_is_stopped(site: Site) -> None:
    site.hold("a", "b")
    site.launch("a", "b")
    site.until_state("running", "a", "b")
    done = site.launch("a", dropped={"b": "too slow"})
    assert done.removed == ("b",)
    site.until_state("dropped", "b")
    assert site.launch("a", dropped={"b": "too slow"}).removed == ()
    site.release()
    site.drained()
    assert site.states() == {"a": "sealed", "b": "dropped"}


def test_a_dropped_cell_that_was_never_given_is_never_given(site: Site) -> None:
    done = site.launch("a", "b", dropped={"b": "too slow"})
    assert done.appended == ("a",)
    site.drained()
    assert site.started() == ["a a"]


@pytest.mark.parametrize("end", ["sealed", "failed"])
def test_a_cell_dropped_after_its_end_holds_the_box_no_longer_and_can_come_back(site: Site, end: str) -> None:
    """It is on no roster any more, so no receipt will ever name it: on the launch record it would lock the box for
    good, and `approve --waive` says of it "is dropped: it needs no waiver". What failed is then tried anew, by a new
    runner; what is sealed is still there."""
    if end == "failed":
        site.fail("b")
        site.hold("b")
    site.launch("a", "b")
    site.release()
    site.drained()
    assert site.states()["b"] == end
    site.launch("a", dropped={"b": "not wanted"})
    site.drained()
    record = site.recorded()
    if site.states()["b"] != "dropped":
        assert ("b" in record.cells, record.dropped) == (False, {"b": "not wanted"}), "else nothing answers for it"
    if end == "failed":
        site.fail("b", yes=False)
    assert site.launch("a", "b").appended == (("b",) if end == "failed" else ())
    back = site.recorded()
    assert ("b" in back.cells, back.dropped) == (True, {})
    site.drained()
    assert site.states() == {"a": "sealed", "b": "sealed"}
    assert end == "failed" or len(site.started()) == 2, "nothing is run again"


def test_a_dropped_cell_can_come_back(site: Site) -> None:
    site.hold("a")
    site.launch("a", "b", slots=1)
    site.until_state("running", "a")
    site.launch("a", slots=1, dropped={"b": "wait"})
    site.release()
    site.drained()
    assert site.states() == {"a": "sealed", "b": "dropped"}
    done = site.launch("a", "b", slots=1)
    assert done.appended == ("b",)
    site.drained()
    assert site.states() == {"a": "sealed", "b": "sealed"}


# What must not change


def test_a_started_cell_keeps_its_config(site: Site) -> None:
    site.hold("a")
    site.launch("a")
    site.until_state("running", "a")
    before = site.queue(), site.record_of_launch()
    with pytest.raises(SweepstackError, match=r"a started with another config.*new name.*cells\.drop"):
        site.launch(Cell(name="a", params={"word": "other"}))
    assert (site.queue(), site.record_of_launch()) == before
    site.release()
    site.drained()
    with pytest.raises(SweepstackError, match="another config"):
        site.launch(Cell(name="a", params={"word": "other"}), "b")
    assert site.started() == ["a a"]


def test_a_cell_that_waits_may_change(site: Site) -> None:
    site.hold("a")
    site.launch("a", "b", slots=1)
    site.until_state("running", "a")
    other = Cell(name="b", params={"word": "other"})
    assert site.launch("a", other, slots=1).appended == ("b",)
    assert site.recorded().cells["b"] == other.config_digest
    site.release()
    site.drained()
    assert site.started() == ["a a", "b other"]


def test_code_that_is_not_what_was_previewed_is_not_shipped(site: Site) -> None:
    spec = site.spec("a")
    (site.job / "train.sh").write_text("echo edited meanwhile\n")
    with pytest.raises(ConfigError, match="changed between preview and up"):
        site.launch("a", code=spec.code)
    assert site.record_of_launch() is None
    assert site.queue() == b""


def test_new_code_is_for_cells_that_start_later(site: Site) -> None:
    site.hold("a")
    site.launch("a", "b", slots=1)
    site.until_state("running", "a")
    (site.job / "train.sh").write_text((site.job / "train.sh").read_text().replace("with $word", "anew with $word"))
    site.launch("a", "b", slots=1)
    site.release()
    site.drained()
    log = site.channel.read(f"{box_layout.attempt_dir('b', 1)}/log.txt")
    assert b"training b anew" in log
    assert b"anew" not in site.channel.read(f"{box_layout.attempt_dir('a', 1)}/log.txt")


@pytest.mark.parametrize("line", [b"not json\n", b"[]\n", b'{"op":"add"}\n'])
def test_a_queue_that_is_none_is_an_error_that_shows_the_line(site: Site, line: bytes) -> None:
    site.channel.append_locked(box_layout.QUEUE, line, box_layout.QUEUE_LOCK)
    with pytest.raises(SweepstackError, match="holds a line that is not an entry"):
        site.launch("a")
    assert site.record_of_launch() is None


def test_a_journal_that_is_none_launches_nothing(site: Site) -> None:
    site.channel.write(box_layout.JOURNAL, b'{"seq":1}\n')
    with pytest.raises(SweepstackError, match="journal line 1"):
        site.launch("a")
    assert site.record_of_launch() is None


# Noticed at once


def test_the_first_cell_that_fails_is_shown_with_its_last_words(site: Site, patient: None) -> None:
    """A traceback is output too: it must not pass for the sign of life that is waited for."""
    with pytest.raises(FirstCellFailed, match="a failed at once: exit code") as failed:
        site.launch("a", run="cat no-such-file.py {word} {out}")
    assert "No such file" in str(failed.value)
    assert site.record_of_launch() is not None
    site.drained()
    assert site.journal.cells["a"].final
    done = site.launch("a")
    assert (done.appended, done.started_runner) == (("a",), True), "what was mended is a new version: `up` starts it"
    site.drained()
    assert site.states() == {"a": "sealed"}


def test_a_version_that_could_not_start_is_said_before_a_cell_is_spent(site: Site, patient: None) -> None:
    with pytest.raises(FirstCellFailed, match=r"nothing was started with this code: no-such-file\.py is not"):
        site.launch("a", run="python no-such-file.py {word} {out}")
    site.drained()
    assert site.started() == []
    assert site.launch("a").started_runner  # mended: `up` alone must start it
    site.drained()
    assert site.states() == {"a": "sealed"}


def test_a_cell_that_fails_after_its_first_words_is_shown(site: Site, patient: None) -> None:
    site.fail("a")
    with pytest.raises(FirstCellFailed, match="the last words of a"):
        site.launch("a")


def test_a_cell_that_was_sealed_first_makes_the_launch_good(site: Site, patient: None) -> None:
    site.hold("b")
    site.fail("b")
    assert site.launch("a", "b").started_runner
    site.release()
    site.until_state("failed", "b")


def entry(event: str, cell: str, slot: int = 0, attempt: int = 1) -> dict[str, Any]:
    return {"event": event, "cell": cell, "attempt": attempt} | ({"slot": slot} if event == "cell-started" else {})


def test_a_cell_that_follows_another_is_not_the_first_to_fail() -> None:
    """`a` ended well and is being sealed: that takes longer than it takes `b`, in its place, to fail."""
    behind = [entry("cell-started", "a"), entry("cell-started", "b"), entry("cell-failed", "b")]
    assert first_end(behind) is None
    sealed = entry("cell-sealed", "a")
    assert first_end([*behind, sealed]) == sealed
    beside = [entry("cell-started", "a"), entry("cell-started", "b", slot=1), entry("cell-failed", "b")]
    assert first_end(beside) == beside[-1]
    again = [entry("cell-failed", "a"), entry("cell-started", "a", attempt=2), entry("cell-failed", "a", attempt=2)]
    assert first_end([entry("cell-started", "a"), *again]) == again[0]


def test_mended_settings_reach_a_runner_that_lives(site: Site, patient: None) -> None:
    site.hold("b")
    with pytest.raises(FirstCellFailed):
        site.launch("a", "b", run="test {word} = b && sh train.sh {word} {out} " + str(site.control))
    site.until(lambda: site.journal.cells["a"].final, "a to fail for good")
    done = site.launch("a", "b")
    assert (set(done.appended), done.started_runner) == ({"a", "b"}, False)
    site.until_state("sealed", "a")
    site.release()
    site.drained()


def test_unchanged_settings_are_not_tried_for_ever_and_a_failure_of_long_ago_is_not_taken_for_this_one(
    site: Site, patient: None
) -> None:
    """The journal is read from where it stood: what failed before this launch is known already."""
    with pytest.raises(FirstCellFailed):
        site.launch("a", run="false")
    site.drained()
    attempts = site.journal.cells["a"].attempts
    done = site.launch("a", run="false")
    assert not done.started_runner
    assert site.journal.cells["a"].attempts == attempts
    assert site.launch("a", "b", run="false || " + site.spec("a").job.run).started_runner
    site.drained()
    assert site.states() == {"a": "sealed", "b": "sealed"}


def test_a_runner_that_dies_at_once_is_shown_with_its_log(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    log = site.root / box_layout.RUNNER_LOG

    def has_ended() -> bool:
        said = log.exists() and "the durable tier is not there" in log.read_text()
        return said and not site.channel.lock_held(box_layout.RUNNER_LOCK)

    monkeypatch.setattr("sweepstack.launch.first_step.RUNNER_START_SECONDS", 0.5)
    monkeypatch.setattr("sweepstack.launch.first_step.time", Clock(has_ended))
    (site.root / "mnt" / "durable").unlink()
    with pytest.raises(FirstCellFailed, match=r"(?s)ended before it started a cell.*the durable tier is not there"):
        site.launch("a")


def test_a_runner_that_can_t_be_run_is_shown_with_its_log(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweepstack.launch.first_step.RUNNER_START_SECONDS", 3.0)
    site.channel.python = "/bin/cat"
    with pytest.raises(FirstCellFailed, match=r"(?s)ended before it started a cell; the runner's log"):
        site.launch("a")
    monkeypatch.setattr("sweepstack.launch.first_step.RUNNER_START_SECONDS", 120.0)
    site.channel.python = sys.executable
    site.launch("a")
    site.until_state("sealed", "a")


def test_a_runner_that_starts_slowly_is_waited_for(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen on a busy machine: "the runner ended", and a moment later its cell was at work."""
    slow = site.control / "python"
    slow.write_text(f'#!/bin/sh\nsleep 1\nexec {sys.executable} "$@"\n')
    slow.chmod(0o755)
    monkeypatch.setattr("sweepstack.launch.first_step.RUNNER_START_SECONDS", 0.2)
    site.channel.python = str(slow)
    assert site.launch("a").started_runner


def test_a_runner_that_dies_without_a_word_says_so(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweepstack.launch.first_step.RUNNER_START_SECONDS", 3.0)
    site.channel.python = "/bin/true"
    with pytest.raises(FirstCellFailed, match="the runner's log is empty"):
        site.launch("a")


def test_a_cell_that_lives_and_prints_nothing_makes_the_launch_good(site: Site) -> None:
    """Seen: `import torch` took more than 60 s on a busy machine, and `up` failed where nothing was wrong."""
    control = site.control / "may-end"
    clock = Clock(lambda: site.states().get("a") == "running")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sweepstack.launch.first_step.time", clock)
        done = site.launch("a", run=f"until test -e {control}; do sleep 0.1; done; {site.spec('a').job.run}", seconds=1)
    assert done.started_runner
    (note,) = done.notes
    assert note.startswith("no output yet: a runs, and has printed nothing within 1 s")
    control.touch()
    site.drained()
    assert site.states() == {"a": "sealed"}


def test_a_runner_that_starts_no_cell_is_an_error_after_the_deadline(site: Site) -> None:
    with pytest.raises(FirstCellFailed, match="no cell showed a sign of life within 0 s"):
        site.launch("a", run="sleep 60", seconds=0.0)


def test_mended_artifacts_are_tried_at_once(site: Site, patient: None) -> None:
    """The name in `artifacts` was misspelt: no file of that name ever comes, and exit code 0 is no sign of life."""
    with pytest.raises(FirstCellFailed, match=r"resutl\.json"):
        site.launch("a", artifacts=(ArtifactSpec(path="resutl.json", load="json"),))
    site.drained()
    assert site.journal.cells["a"].final
    site.launch("a")
    site.drained()
    assert site.states() == {"a": "sealed"}


def test_a_queue_that_waits_for_room_is_no_failure(site: Site, patient: None) -> None:
    """Nobody waits for a first step that can't come; what to do is said, and the queue goes on by itself later."""
    done = site.launch("a", min_free_bytes=1 << 60)
    assert done.notes
    assert done.notes[0].startswith("it waits for room (disk): ")
    assert site.started() == []
    site.launch("a", min_free_bytes=1)
    site.drained()
    assert site.started() == ["a a"]
