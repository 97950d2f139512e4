"""The check before a stop: free where nothing is at risk, and else as strict as a delete's, for its own verb alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweepstack.core.journal import parse_journal
from sweepstack.core.observation import Existence
from sweepstack.core.records import Abandonment
from sweepstack.onbox.agent.local_channel import LocalChannel
from sweepstack.teardown.box_check import Verdict
from sweepstack.teardown.box_context import BoxContext, BoxFacts
from sweepstack.teardown.check import may_end
from sweepstack.teardown.stop_check import MOST_FILES, AtRisk, StopEnding, look_for_risk, stop_facts, stop_line
from tests.unit.teardown.support import FIRST, Situation, abandonment, action

PATHS = {"scratch": "scratch", "data": "data", "durable": "mnt/durable"}
SOME = AtRisk(files=1, bytes=7, largest=(("scratch/notes.txt", 7),))


def facts_of_stop(situation: Situation) -> BoxFacts:
    return stop_facts(situation.facts, ("scratch",), ("data", "durable"))


def ask(situation: Situation, risk: AtRisk) -> Verdict:
    box = BoxContext(facts_of_stop(situation), "local")
    return may_end(StopEnding(box, situation.approval, situation.seen(), risk), now=situation.now, full=True)


def word_for_stop(situation: Situation, **changes: object) -> None:
    situation.approve(actions=(action(verb="stop"),), **changes)


def test_nothing_at_risk_needs_no_word(situation: Situation) -> None:
    situation.approval = None
    verdict = ask(situation, AtRisk())
    assert (verdict.allowed, verdict.way) == (True, "nothing-at-risk")


@pytest.mark.parametrize("risk", [SOME, AtRisk(home=True), AtRisk(unknown="it does not answer")])
def test_what_is_at_risk_or_not_seen_needs_a_word_for_this_verb(situation: Situation, risk: AtRisk) -> None:
    refused = ask(situation, risk)
    assert not refused.allowed
    assert refused.reasons[0] == "the approval allows destroy, not stop"
    assert refused.reasons[-1] == risk.words(("scratch",))
    word_for_stop(situation)
    verdict = ask(situation, risk)
    assert (verdict.allowed, verdict.way) == (True, "cleared")


def test_what_a_stop_takes_and_costs_is_said(situation: Situation) -> None:
    assert AtRisk(home=True).words(("data",)) == "the cells' own folders are on data, which a stop wipes"
    unseen = AtRisk(unknown="it does not answer").words(("data",))
    assert unseen == "what is on data, which a stop wipes, can't be seen: it does not answer"
    facts = facts_of_stop(situation)
    kept = "a stop kills scratch, keeps data, durable; then it bills "
    assert stop_line(facts, ("disk",), 0.03) == f"{kept}$0.03/h (disk)"
    assert stop_line(facts, (), None) == f"{kept}at a price that is not known"


def test_a_word_for_a_stop_is_none_for_a_destroy(situation: Situation) -> None:
    word_for_stop(situation)
    refused = situation.ask()
    assert not refused.allowed
    assert refused.reasons == ["the approval allows stop, not destroy"]


def test_what_was_given_up_for_a_stop_was_not_for_a_destroy(situation: Situation) -> None:
    """Not even where the approval's actions name both verbs, as after an edit by hand."""
    given = Abandonment(box="box-0", native_id="local-box-01", reason="a cache", verb="stop")
    situation.relaunch(other="sha256:" + "1" * 64)  # a cell that no receipt has
    situation.approve(actions=(action(verb="stop"), action()), abandon=(given,))
    assert ask(situation, SOME).way == "abandoned"
    assert not situation.ask().allowed
    situation.approve(actions=(action(verb="stop"), action()), abandon=(abandonment(),))
    assert situation.ask().way == "abandoned"
    assert not ask(situation, SOME).allowed


def test_an_edited_verb_of_an_abandonment_locks(situation: Situation) -> None:
    given = Abandonment(box="box-0", native_id="local-box-01", reason="a cache", verb="stop")
    situation.approve(actions=(action(),), abandon=(given,))
    situation.edit_approval(abandon=(given.model_copy(update={"verb": "destroy"}),))
    assert situation.ask().reasons == ["the waivers of the approval were edited after it was given"]


def test_a_running_cell_keeps_a_stop_that_kills_something(situation: Situation) -> None:
    word_for_stop(situation)
    situation.start(FIRST)
    situation.runner_alive = True
    assert not ask(situation, SOME).allowed


@pytest.mark.parametrize("what", ["account_problem", "existence"])
def test_the_wrong_account_and_the_unknown_stop_nothing(situation: Situation, what: str) -> None:
    word_for_stop(situation)
    if what == "account_problem":
        situation.account_problem = "it is another's"
    else:
        situation.existence = Existence.UNKNOWN
    assert not ask(situation, AtRisk()).allowed


# What is looked at


@pytest.fixture
def channel(tmp_path: Path) -> LocalChannel:
    for tier in ("scratch", "data"):
        (tmp_path / "box" / tier).mkdir(parents=True)
    return LocalChannel("local-abcdefghij", tmp_path / "box", {})


def write(tmp_path: Path, name: str, size: int = 10) -> None:
    path = tmp_path / "box" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


def test_scratch_of_sealed_cells_is_dispensable_and_nothing_else_is(
    channel: LocalChannel, tmp_path: Path, situation: Situation
) -> None:
    journal = situation.journal
    write(tmp_path, f"scratch/sweep/{FIRST}/1/cache")
    assert look_for_risk(channel, ("scratch",), PATHS, journal).nothing
    assert not look_for_risk(channel, ("scratch",), PATHS, parse_journal(b"")).nothing
    assert not look_for_risk(channel, ("scratch",), PATHS, None).nothing
    situation.start(FIRST)  # it runs again: its scratch is in use
    assert not look_for_risk(channel, ("scratch",), PATHS, situation.journal).nothing
    situation.log("cell-failed", cell=FIRST, attempt=2, exit_code=1, reason="exit code 1", final=True)
    assert situation.journal.cells[FIRST].state == "failed"
    assert not look_for_risk(channel, ("scratch",), PATHS, situation.journal).nothing, (
        "it may be all that is left of it"
    )
    situation.log("cell-dropped", cell=FIRST, reason="too slow")
    assert look_for_risk(channel, ("scratch",), PATHS, situation.journal).nothing
    write(tmp_path, "scratch/sweep/notes", 30)
    write(tmp_path, "scratch/deep/down/more", 20)
    risk = look_for_risk(channel, ("scratch",), PATHS, journal)
    assert (risk.files, risk.bytes, risk.more) == (2, 50, False)
    assert risk.largest == (("scratch/sweep/notes", 30), ("scratch/deep/down/more", 20))


def test_a_link_or_a_pipe_is_at_risk_and_not_followed(channel: LocalChannel, tmp_path: Path) -> None:
    (tmp_path / "box" / "scratch" / "link").symlink_to("/etc")
    risk = look_for_risk(channel, ("scratch",), PATHS, None)
    assert (risk.files, risk.largest) == (1, (("scratch/link", 0),))


def test_where_the_runners_home_dies_every_cell_does(channel: LocalChannel) -> None:
    assert look_for_risk(channel, ("data",), PATHS, None).home
    assert look_for_risk(channel, ("all",), {"all": "data/sweep"}, None).home
    assert not look_for_risk(channel, ("scratch",), {"scratch": "data/sweeping"}, None).home


def test_what_cannot_be_looked_at_is_at_risk(channel: LocalChannel, tmp_path: Path) -> None:
    assert "does not say where disk lies" in look_for_risk(channel, ("disk",), PATHS, None).unknown
    (tmp_path / "box").rename(tmp_path / "away")
    assert look_for_risk(channel, ("scratch",), PATHS, None).unknown


def test_very_many_files_are_counted_to_a_bound(
    channel: LocalChannel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweepstack.teardown.stop_check.MOST_FILES", 5)
    assert MOST_FILES > 5
    for number in range(9):
        write(tmp_path, f"scratch/{number}")
    risk = look_for_risk(channel, ("scratch",), PATHS, None)
    assert (risk.files, risk.more) == (5, True)
    assert risk.words(("scratch",)).startswith("at least 5 files")
