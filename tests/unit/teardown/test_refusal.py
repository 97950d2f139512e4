"""What a person reads when a teardown is refused: what is not safe, would die, waiting costs, and what to type."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from sweepstack.billing.cost import BoxCosts
from sweepstack.core.observation import Existence
from sweepstack.teardown.box_check import CellLine, Verdict
from sweepstack.teardown.box_context import BoxFacts
from sweepstack.teardown.refusal import (
    SHOWN,
    next_commands,
    of_box,
    out_of_lost,
    refusal_text,
    seen_ended,
    waiting_cost,
)
from tests.unit.teardown.deviations import DEVIATIONS
from tests.unit.teardown.support import FIRST, NOW, SECOND, Situation, approval

FACTS = BoxFacts(
    identity="abcdefghjk",
    evidence="file://desk/results/sweep-t",
    name="box-0",
    native_id="local-box-01",
    account="desk/1",
    generation=1,
    verb="destroy",
    kills=("scratch", "data"),
    keeps=("durable",),
    roster_digest="",
    price_per_hour=0.5,
    created_at=NOW - timedelta(hours=3),
)


def verdict(*states: str, reasons: tuple[str, ...] = ("not approved",)) -> Verdict:
    """A refusal over cells in these states."""
    cells = [CellLine(f"c{number:02}", state) for number, state in enumerate(states)]
    return Verdict(reasons=list(reasons), cells=cells, launched=bool(cells))


def text(what: Verdict, facts: BoxFacts = FACTS) -> str:
    return refusal_text(facts, what, stack="sweep-t", now=NOW)


def test_the_first_line_says_that_nothing_happened_and_how_far_it_is() -> None:
    said = text(verdict("verified", "running", "waived"))
    assert said.splitlines()[:2] == ["REFUSED.", "Nothing was deleted. Box box-0: 2 of 3 cells verified."]


def test_every_unsettled_cell_is_named_up_to_the_limit() -> None:
    states = ["running"] * SHOWN
    said = text(verdict("verified", *states))
    for index in range(1, SHOWN + 1):
        assert f"c{index:02}  running" in said
    assert "c00" not in said
    assert "more" not in said


@pytest.mark.parametrize("beyond", [1, 40])
def test_beyond_the_limit_the_rest_is_counted(beyond: int) -> None:
    said = text(verdict(*["pending"] * (SHOWN + beyond)))
    assert sum("pending" in line for line in said.splitlines()) == SHOWN
    assert f"… and {beyond} more" in said
    assert f"{SHOWN + beyond} cells without a verified copy" in said


def test_a_second_box_does_not_repeat_what_was_said_of_the_first() -> None:
    said: dict[tuple[str, str], str] = {}
    first, second = (
        refusal_text(
            replace(FACTS, name=name, native_id=f"id-{name}"),
            verdict("running"),
            stack="sweep-t",
            now=NOW,
            others=["a", "b"],
            said=said,
        )
        for name in ("a", "b")
    )
    assert "next  " in first
    assert first.endswith(
        'sweepctl give-up --stack sweep-t data/a data/b --reason "…" && pulumi destroy --stack sweep-t'
    )
    for row in ("locked because", "not safe yet", "would die"):
        assert row in first
        assert row in second
    assert "sweepctl" not in second
    assert second.splitlines()[-1] == "as for          box a: would survive, waiting costs, next, give up"
    again = refusal_text(
        replace(FACTS, name="a", native_id="id-a"),
        verdict("running"),
        stack="sweep-t",
        now=NOW,
        others=["a", "b"],
        said=said,
    )
    assert again == first, "of one box all is said each time"


def test_cells_of_different_length_are_aligned() -> None:
    cells = [CellLine("lr0.03-seed0", "sealed", "why"), CellLine("lr0.1-seed0", "running", "why")]
    said = text(Verdict(reasons=["x"], cells=cells, launched=True)).splitlines()
    assert len({line.index("why") for line in said if line.endswith("why")}) == 1


def test_what_would_die_and_what_would_not() -> None:
    said = text(verdict("sealed"))
    assert "box box-0 (local-box-01), its scratch, data: 1 cell without a verified copy" in said
    assert "durable; the evidence at file://desk/results/sweep-t" in said
    assert "its nothing" in text(verdict("sealed"), replace(FACTS, kills=()))
    assert "would survive" not in text(verdict("sealed"), replace(FACTS, keeps=()))


def test_waiting_costs_this_much() -> None:
    assert waiting_cost(FACTS, now=NOW) == "$0.50/h, $12.00/day; $1.50 so far"
    assert waiting_cost(replace(FACTS, created_at=None), now=NOW) == "$0.50/h, $12.00/day"
    assert waiting_cost(replace(FACTS, price_per_hour=0.0), now=NOW) == "$0.00/h, $0.00/day; $0.00 so far"


def test_an_unknown_price_is_called_unknown_and_never_free() -> None:
    cost = waiting_cost(replace(FACTS, price_per_hour=None), now=NOW)
    assert cost.startswith("unknown")
    assert "$" not in cost
    assert cost in text(verdict("running"), replace(FACTS, price_per_hour=None))


def test_a_clock_that_is_behind_owes_nobody_money() -> None:
    assert "$0.00 so far" in waiting_cost(FACTS, now=NOW - timedelta(days=1))


def commands(what: Verdict, facts: BoxFacts = FACTS) -> dict[str, str]:
    return dict(next_commands(facts, what, stack="sweep-t"))


def test_what_still_runs_is_waited_for() -> None:
    for state in ("running", "pending"):
        rows = commands(verdict("verified", state))
        assert rows["next"] == "sweepctl wait --stack sweep-t done && sweepctl finish --stack sweep-t"


@pytest.mark.parametrize("states", [("sealed", "verified"), ("verified",), ("missing", "sealed"), ("failed",)])
def test_what_is_done_is_finished(states: tuple[str, ...]) -> None:
    assert commands(verdict(*states))["next"].startswith("sweepctl finish --stack sweep-t")


@pytest.mark.parametrize("state", ["damaged", "unsupported", "failed", "missing"])
def test_what_can_t_be_mended_can_be_accepted_by_name(state: str) -> None:
    rows = commands(verdict("verified", state, "sealed", state))
    last = "pulumi up --stack sweep-t && pulumi destroy --stack sweep-t"
    waive = "cell/c01 cell/c03"
    assert rows["accept"] == f'sweepctl give-up --stack sweep-t {waive} --reason "…" && {last}    ({state})'


def test_there_is_always_a_way_out() -> None:
    """Live: whatever the state, giving up is one line away."""
    for states in ((), ("running",), ("verified",), ("damaged",), ("pending", "failed")):
        for reasons in ((), ("not approved",), ("the box's journal could not be read",)):
            rows = commands(verdict(*states, reasons=reasons))
            assert rows["give up"].startswith('sweepctl give-up --stack sweep-t data/box-0 --reason "…"')
            assert rows["give up"].endswith(' --reason "…" && pulumi destroy --stack sweep-t')
            assert "next" in rows


def test_a_box_on_which_nothing_was_launched_is_approved_by_its_name() -> None:
    rows = commands(verdict())
    last = "pulumi up --stack sweep-t && pulumi destroy --stack sweep-t"
    assert rows["next"] == f"sweepctl approve --stack sweep-t --box box-0 && {last}"


def test_an_approved_box_that_cannot_be_read_asks_for_nothing_but_the_same_destroy() -> None:
    destroy = "pulumi destroy --stack sweep-t    (once it answers; "
    for what, begins in ((verdict("verified"), destroy), (verdict("sealed"), "sweepctl finish --stack sweep-t ")):
        what.silent = "it does not answer"
        assert commands(what)["next"].startswith("sweepctl finish")
        what.approved = True
        assert commands(what)["next"].startswith(begins)


def test_two_locked_boxes_are_given_up_in_one_line() -> None:
    """Each refusal names both: the line need not be typed once for each."""
    rows = dict(next_commands(FACTS, verdict("running"), stack="sweep-t", others=("box-1",)))
    boxes = "data/box-0 data/box-1"
    assert rows["give up"] == f'sweepctl give-up --stack sweep-t {boxes} --reason "…" && pulumi destroy --stack sweep-t'


# From real situations


def refusal_of(situation: Situation) -> str:
    found = situation.ask()
    assert not found.allowed
    return refusal_text(situation.facts, found, stack="sweep-t", now=NOW)


def test_a_sweep_that_is_verified_and_not_approved(situation: Situation) -> None:
    situation.approval = None
    said = refusal_of(situation)
    assert "2 of 2 cells verified" in said
    assert "not approved" in said
    assert "sweepctl finish --stack sweep-t" in said
    assert "not safe yet" not in said


def test_a_sweep_in_the_middle_of_its_work(situation: Situation) -> None:
    situation.approval, situation.runner_alive = None, True
    situation.start(SECOND)
    said = refusal_of(situation)
    assert f"{SECOND}  running" in said
    assert FIRST not in said
    assert "sweepctl wait --stack sweep-t done" in said


@pytest.mark.parametrize(
    "name", ["evidence_on_another_host", "evidence_gone", "launch_record_damaged", "marker_damaged"]
)
def test_evidence_that_can_t_be_used_is_never_called_an_empty_box(situation: Situation, name: str) -> None:
    """No cell is listed, since nobody can read which there are. To approve the box as one on which nothing was
    launched can't work then, and must not be what a person is told to type."""
    DEVIATIONS[name][0](situation)
    said = refusal_of(situation)
    assert "sweepctl approve --stack sweep-t --box box-0" not in said
    assert "data/box-0" in said
    assert said.splitlines()[1].endswith("Box box-0: its cells are not known.")


def test_evidence_elsewhere_names_the_host_and_what_to_do(situation: Situation) -> None:
    DEVIATIONS["evidence_on_another_host"][0](situation)
    said = refusal_of(situation)
    assert "far-away-" in said
    assert "sweepctl pull --to" in said


def test_another_account_is_said_before_all_else(situation: Situation) -> None:
    situation.approval = approval(None)
    situation.account_problem = "this belongs to there/1, and the account at hand is here/1"
    line = next(line for line in refusal_of(situation).splitlines() if line.startswith("locked because"))
    assert line.split(maxsplit=2)[2].startswith("this belongs to there/1")


def test_no_abandonment_is_advised_for_a_box_of_another_account(situation: Situation) -> None:
    """`give-up` is refused for it, too."""
    situation.approval = approval(None)
    situation.account_problem = "this belongs to there/1, and the account at hand is here/1. Type `claim there/1`"
    said = refusal_of(situation)
    assert "data/" not in said
    ways = said.splitlines()[-2:]
    assert ways[0].split(maxsplit=1) == ["next", "claim there/1"]
    assert ways[1].strip() == "sweepctl status --stack sweep-t    (with the account that the box was rented with)"


def test_a_box_that_was_rented_and_never_used(situation: Situation) -> None:
    situation.nothing_ever_ran()
    situation.approval = None
    said = refusal_of(situation)
    assert "sweepctl approve --stack sweep-t --box box-0 && pulumi up --stack sweep-t" in said


def test_an_unreadable_journal_is_said(situation: Situation) -> None:
    situation.readable = False
    said = refusal_of(situation)
    assert "the box's journal could not be read: it does not answer" in said
    assert "data/box-0" in said


def test_a_journal_without_a_launch_record_is_not_called_empty(situation: Situation) -> None:
    situation.forget_launch()
    said = refusal_of(situation)
    assert "there is no launch record, but the box has a journal" in said
    assert "sweepctl approve --stack sweep-t --box box-0" not in said


def test_nobody_is_told_that_an_unknown_box_is_gone(situation: Situation) -> None:
    situation.existence, situation.readable, situation.approval = Existence.UNKNOWN, False, None
    assert "gone" not in refusal_of(situation)


def test_a_queue_from_which_all_cells_were_taken_out_is_finished(situation: Situation) -> None:
    """It was launched once: that needs a receipt, and an approval of the box alone would be refused again."""
    situation.store.write_launch(situation.launch().model_copy(update={"cells": {}}))
    situation.approval = None
    said = refusal_of(situation)
    assert "--box box-0" not in said
    assert "sweepctl finish --stack sweep-t" in said


def test_costs_by_the_ledger_know_of_stops_the_sweep_and_the_budget() -> None:
    costs = BoxCosts(
        per_hour=0.03, so_far=3.8, sweep_per_hour=1.92, budget="$11.20 of $60.00 (19 %)", kept={"durable": 14}
    )
    said = text(verdict("running"), replace(FACTS, costs=costs))
    assert "waiting costs   $0.03/h, $0.72/day; $3.80 so far; the sweep $1.92/h; budget $11.20 of $60.00 (19 %)" in said
    assert "would survive   durable ($14.00/month); the evidence at" in said


def test_costs_that_the_ledger_does_not_know_fall_back_on_the_box_s_price() -> None:
    costs = BoxCosts(per_hour=None, so_far=None, sweep_per_hour=0.0)
    assert "$0.50/h, $12.00/day; $1.50 so far" in text(verdict("running"), replace(FACTS, costs=costs))


def test_the_commands_in_a_hosts_words_name_the_box() -> None:
    said = of_box("sweepctl confirm gone BOX --saw x, sweepctl give-up data/BOX, sweepctl adopt BOX", "b", "s")
    assert said == (
        "sweepctl confirm gone --stack s b --saw x, sweepctl give-up --stack s data/b, sweepctl adopt --stack s b"
    )


def test_a_box_of_which_nothing_can_be_told_ends_by_what_a_person_saw_where_no_api_knows_it() -> None:
    assert seen_ended("s", "box-0", "ssh:root@192.0.2.7:22").endswith("(once you saw that it has ended)")
    assert seen_ended("s", "box-0", "runpod") == ""


@pytest.mark.parametrize(
    ("price", "when"),
    [(0.5, "once it is ended at its console: it answers, and bills"), (None, "it answers, and bills"), (0, "for good")],
)
def test_a_lost_folder_is_confirmed_only_after_what_bills_has_ended(price: float | None, when: str) -> None:
    (way,) = out_of_lost("s", "box-0", price_per_hour=price, safe=True)
    assert when in way
    ways = out_of_lost("s", "box-0", price_per_hour=price, safe=False)
    assert "sweepctl status" in ways[0]
    assert when in ways[1]
