"""How a box ends, or stays: what its platform and a person are asked; no process runs."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from sweepstack.core.box_end import TeardownFacts
from sweepstack.core.journal import CellProgress, Journal
from sweepstack.core.observation import Existence, Observation
from sweepstack.core.resources import BoxState
from sweepstack.onbox.common.errors import (
    NoCapacity,
    NotYetGone,
    OutcomeUnknown,
    PlatformError,
    RateLimited,
    StillCreating,
    SweepstackError,
    Unproved,
    Unreachable,
)
from sweepstack.onbox.host.platform import BoxRecord, Phase
from sweepstack.provider.resources import box as boxes
from sweepstack.provider.resources import host_address_change, manual_end, market, run_or_stop, teardown
from sweepstack.provider.resources.base import Failure
from sweepstack.provider.resources.box import Turn, records_readable
from sweepstack.provider.resources.teardown import Judgement
from sweepstack.provider.session import Severity
from sweepstack.teardown.box_check import CellLine, Verdict
from sweepstack.teardown.handover_records import Handover
from tests.unit.provider.plain_box import SEEN, Shown, born, context, record, state_of
from tests.unit.provider.support import BOX, FACTS, Sweep, abandonment, approval_for
from tests.unit.teardown.support import NOW

BY_PERSON = {"by": "person", "native": "terminate", "manual": "click Terminate"}
BY_SSH = {"by": "ssh", "native": "power-off", "command": "shutdown"}


class Ends(Shown):
    """A platform that answers each request to end the box in turn, None for yes; then it shows the box."""

    def __init__(self, *asked: Exception | None, shown: tuple[Any, ...] = (Phase.ENDING,)) -> None:
        super().__init__(*shown)
        self.asked, self.waiting = 0, list(asked)

    def destroy(self, *_: str) -> None:
        self.asked += 1
        answer = self.waiting.pop(0) if len(self.waiting) > 1 else self.waiting[0]
        if answer is not None:
            raise answer


def ended(sweep: Sweep, platform: Ends, *, seconds: float = 20) -> str:
    """What is in the way when it was asked to end the box."""
    return boxes._end(sweep.op(), platform, state_of(sweep), Turn("local here/1", seconds))  # type: ignore[arg-type]


def test_an_end_is_asked_for_until_it_is_proved_or_refused(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boxes, "POLL_SECONDS", 0.0)
    for platform, times, words in (
        (Ends(None, shown=(Phase.ENDING, Phase.UNKNOWN, Phase.GONE)), 3, "the platform still lists it"),
        (Ends(PlatformError("403 Forbidden")), 1, "403 Forbidden"),
        (Ends(RateLimited("429"), OutcomeUnknown("no answer"), None, shown=(Phase.GONE,)), 3, "no answer"),
    ):
        assert ended(sweep, platform) == words
        assert platform.asked == times, words
    sweep.said.lines.clear()
    waits = NotYetGone("its bill does not stand still yet", within=120.0)
    assert ended(sweep, Ends(waits, waits, waits, None, shown=(Phase.GONE,))) == str(waits)
    assert sweep.said.text(Severity.PROGRESS).count("The proof takes 2 minutes at most") == 1, "it is said once"
    sweep.cancelled.set()
    assert ended(sweep, Ends(None)) == "the wait was cancelled"


@pytest.mark.parametrize(
    ("way", "adapter", "last"),
    [
        ("cleared", "local", "Next: pulumi destroy --stack sweep-t"),
        ("abandoned", "local", "Next: pulumi destroy --stack sweep-t"),
        ("cleared", "ssh:lab", "Next: pulumi destroy --stack sweep-t"),
        (
            "abandoned",
            "ssh:lab",
            "where that host is lost for good, before it: sweepctl confirm gone --stack sweep-t box-0 --saw "
            '"what the console shows"',
        ),
    ],
)
def test_an_end_that_is_not_proved_says_what_is_next(sweep: Sweep, way: str, adapter: str, last: str) -> None:
    state = state_of(sweep, adapter=adapter)
    with pytest.raises(NotYetGone, match=r"is not proved: 502\. May still bill") as error:
        boxes._prove_end(sweep.op(timeout=0.01), context(state, Ends(PlatformError("502"))), state, way)
    assert str(error.value).endswith(last)


# A change of a box


def judged(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, state: BoxState, *, allowed: bool, way: Any, **more: Any
) -> Judgement:
    """What the check of the end says of it."""
    verdict = Verdict(allowed=allowed, way=way, reasons=[] if allowed else ["not approved"], **more)
    found = Judgement(context(state), SEEN, verdict, None, None)
    monkeypatch.setattr(teardown, "judge_end", lambda *_, **__: found)
    return found


@pytest.mark.parametrize(
    ("allowed", "way", "before", "approved_now", "becomes"),
    [
        (True, "cleared", "locked", True, "waits"),
        (True, "cleared", "locked", False, "waits"),
        (True, "cleared", "cleared by x", True, "waits"),
        (True, "cleared", "cleared by x", False, "goes through"),
        (True, "gone", "locked", True, "goes through"),
        (False, None, "locked", False, "refused"),
    ],
)
def test_a_change_that_replaces_a_box_waits_until_it_is_cleared(
    sweep: Sweep,
    monkeypatch: pytest.MonkeyPatch,
    allowed: bool,
    way: str | None,
    before: str,
    approved_now: bool,
    becomes: str,
) -> None:
    """An approval ends the box, and rents no other one on the way."""
    born(sweep)
    state = state_of(sweep)
    judged(sweep, monkeypatch, state, allowed=allowed, way=way)
    old = sweep.box_inputs(clearance=before, resources={"disk": "10GB"})
    approval = approval_for(state) if approved_now else None
    checked = BOX.check(sweep.op(), old, sweep.box_inputs(resources={"disk": "20GB"}, approval=approval))
    assert bool(checked.failures) is (becomes == "refused")
    assert (checked.inputs.resources["disk"] == "10GB") is (becomes == "waits")
    assert ("box box-0 is cleared first; the change of resources waits" in sweep.said.warnings) is (becomes == "waits")
    assert ("box-0: " in sweep.said.infos) is (checked.inputs.clearance != before), sweep.said.infos


def test_a_preview_prices_what_is_not_rented_as_far_as_the_records_tell(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that can't be read don't prove that nothing is rented: a box that is given up has to get through."""
    shown: list[str] = []

    def preview(*_: Any) -> list[Failure]:
        shown.append("shown")
        return []

    monkeypatch.setattr(market, "preview", preview)
    there, nowhere = sweep.box_inputs(), sweep.box_inputs(evidence=sweep.identity.evidence + "-nowhere")
    for old, new, prices in (
        (None, there, True),
        (None, nowhere, True),
        (there, there, True),
        (nowhere, nowhere, False),
        (None, sweep.box_inputs(want="stopped"), False),
    ):
        shown.clear()
        BOX.check(sweep.op(), old, new)
        assert bool(shown) is prices
    early = there.model_dump(mode="json")
    for old_outputs, want, prices in (
        ({}, "running", True),
        ({"name": "box-0"}, "running", False),
        ({}, "stopped", False),
    ):
        shown.clear()
        assert BOX.check_early(sweep.op(), old_outputs, early | {"want": want}) == []
        assert bool(shown) is prices
    refused = [Failure("adapter", "no address")]
    monkeypatch.setattr(host_address_change, "written_out", lambda _, new: (new, refused))
    assert BOX.check(sweep.op(), None, there).failures == refused
    evidence = context(state_of(sweep)).evidence
    assert records_readable(evidence)
    shutil.rmtree(sweep.store.root)
    assert not records_readable(type(evidence)(evidence.uri))


def updated(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, converged: Any, old: BoxState, **changes: Any
) -> tuple[BoxState | StillCreating | NoCapacity, list[tuple[float | None, bool]]]:
    """The state after an update whose wait ends so, and the prices that were put on record."""
    prices: list[tuple[float | None, bool]] = []

    def converge(*_: Any, **__: Any) -> BoxRecord:
        if isinstance(converged, Exception):
            raise converged
        found: BoxRecord = converged
        return found

    def kept(_store: Any, state: BoxState, *, running: bool) -> None:
        prices.append((state.price_per_hour, running))

    monkeypatch.setattr(run_or_stop, "converge", converge)
    monkeypatch.setattr(boxes, "keep_price", kept)
    monkeypatch.setattr(boxes, "need", lambda *_: SimpleNamespace(change_bid=lambda *_: None))
    try:
        return BOX.update(sweep.op(), "local-a", old, sweep.box_inputs(price_per_hour=None, **changes)), prices
    except (StillCreating, NoCapacity) as error:
        return error, prices


def test_a_raised_bid_is_the_price_from_when_the_box_runs(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    old = state_of(sweep, bid=0.5)
    for phase in (Phase.RUNNING, Phase.STOPPED):
        dearer = BoxRecord("local-a", "t", "here/1", phase, 0.9, NOW, location="here")
        state, prices = updated(sweep, monkeypatch, dearer, old, bid=0.9)
        assert isinstance(state, BoxState)
        assert (state.price_per_hour, prices) == (0.9, [(0.9, phase is Phase.RUNNING)])
        assert updated(sweep, monkeypatch, dearer, old, bid=0.5)[1] == [], "the offer's price alone is none of ours"


def test_no_room_is_a_box_that_waits_only_where_its_bid_was_raised(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, full = state_of(sweep, bid=0.5), NoCapacity("outbid at 0.80")
    assert isinstance(updated(sweep, monkeypatch, full, old, bid=0.5)[0], NoCapacity)
    raised, _ = updated(sweep, monkeypatch, full, old, bid=0.7)
    assert isinstance(raised, StillCreating)
    assert "still outbid: outbid at 0.80" in raised.reasons[0]
    assert raised.outputs["bid"] == 0.7
    late = StillCreating("local-a", {"phase": "creating", "created_at": None}, ["not ready"])
    kept, _ = updated(sweep, monkeypatch, late, state_of(sweep, created_at=NOW))
    assert isinstance(kept, StillCreating)
    whole = BoxState.model_validate(kept.outputs)
    assert (whole.phase, whole.created_at) == ("creating", NOW), "what the platform tells, and what the state has"


def test_an_up_takes_back_every_word_but_the_one_that_gives_this_box_up(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    monkeypatch.setattr(boxes, "take_back", lambda facts, *_: taken.append(facts.native_id))
    old, other = state_of(sweep), state_of(sweep, native_id="local-b")
    for named, takes in ((old, []), (other, ["local-a"])):
        taken.clear()
        approval = approval_for(named, abandon=(abandonment(named),))
        updated(sweep, monkeypatch, record(Phase.RUNNING), old, approval=approval)
        assert taken == takes


class Market(Shown):
    """A platform on which a second box can carry the tag."""

    def list_tagged(self, *_: Any) -> list[BoxRecord]:
        found = next(self.answers)
        if isinstance(found, Exception):
            raise found
        return [
            record(found),
            *(
                BoxRecord(native_id, tag, "here/1", found, price, NOW, location="here")
                for native_id, tag, price in (("local-b", "t", 0.7), ("local-c", "t", None), ("local-d", "other", 0.7))
            ),
        ]


def test_a_second_box_of_the_same_tag_is_named_while_it_may_bill(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_of(sweep)
    monkeypatch.setattr(boxes, "HasMarket", Market)
    for phase in (Phase.GONE, Phase.ENDING, Unreachable("502")):
        boxes.warn_of_second_box(sweep.op(), context(state, Market(phase)), state)
    boxes.warn_of_second_box(sweep.op(), context(state, Shown(Phase.RUNNING)), state)
    assert sweep.said.warnings == ""
    boxes.warn_of_second_box(sweep.op(), context(state, Market(Phase.RUNNING)), state)
    assert [line.partition("and may bill")[2].partition(";")[0] for line in sweep.said.warnings.splitlines()] == [
        " $0.70/h",
        "",
    ]
    assert "sweepctl audit --end local:local-b" in sweep.said.warnings


# What a refused change may do instead


@pytest.mark.parametrize(
    ("cells", "price", "rows"),
    [
        ({"w": None}, 0.5, ["(of 1 cell not started,", "box-0 has no cell at work, so it can end at once"]),
        ({"w": None, "s": ("sealed", 1), "d": ("dropped", 1), "f": ("final", 1)}, 0.5, ["it can end at once"]),
        (
            {"r": ("running", 0), "w": None, "v": None},
            0.5,
            [
                "(of 2 cells not started,",
                "box-0 bills on until its started cell is done, at $0.50/h; how long is not known: no cell was sealed",
            ],
        ),
        (
            {"r": ("running", 1), "s": ("sealed", 2), "t": ("sealed", 4), "u": ("sealed", 3)},
            0.5,
            ["its started cell is done, at $0.50/h, about 2.00 h by the median of its sealed cells, $1.00 in all"],
        ),
        (
            {"r": ("running", 1), "q": ("failed", 9), "s": ("sealed", 3)},
            None,
            ["until its 2 started cells are done, at a price that is not on record, about 2.00 h by the median"],
        ),
    ],
)
def test_a_refused_change_says_how_the_cells_move_and_what_that_costs(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, cells: dict[str, Any], price: float | None, rows: list[str]
) -> None:
    """A cell: its state, and for how many hours it has run."""
    born(sweep)
    now = datetime.now(UTC)
    known: dict[str, CellProgress] = {}
    for name, said in cells.items():
        if said is not None:
            state, hours = said
            begun = now - timedelta(hours=hours)
            final = state == "final"
            ran_to = None if state == "running" else now
            known[name] = CellProgress(
                name, "failed" if final else state, 1, None, None, None, begun, ran_to, final=final
            )
    state = state_of(sweep, price_per_hour=price)
    lines = [CellLine(name, "running") for name in cells]
    seen = Observation(Existence.EXISTS, Journal(cells=known))
    judgement = Judgement(context(state), seen, Verdict(cells=lines), None, None)
    new = sweep.box_inputs(resources={"disk": "20GB", "gpu": {"count": 2.0}, "zones": ["a b", "c"], "spot": True})
    words = boxes.recipe(judgement, sweep.box_inputs(), new, ["resources"], stack="sweep-t")
    assert 'box-0-2: {want: running, resources: {disk: 20GB, gpu: {count: 2}, zones: ["a b", c], spot: true}}' in words
    for row in rows:
        assert row in words, words
    assert ("in all" in words) is any("in all" in row for row in rows)
    elsewhere = boxes.recipe(judgement, sweep.box_inputs(), new, ["resources", "mounts"], stack="sweep-t")
    assert elsewhere.startswith("To move: undo it and end this sweep here (sweepctl finish --stack sweep-t)")
    storage = sweep.box_inputs(resources={"storage_class": "late"}, pods={"image": "a"})
    claim = boxes.recipe(judgement, sweep.box_inputs(), storage, ["resources"], stack="sweep-t")
    assert claim.endswith("(sweepctl init NAME): this is the storage on which the box lies")
    shutil.rmtree(sweep.store.root)
    assert boxes.free_name(sweep.box_inputs(), context(state).evidence) == "box-0-2"
    assert boxes._hours_left(None, ["r"], 0.0) is None


# A person's step


def handed(**changes: Any) -> Handover:
    known = {"box": "box-0", "native_id": "local-a", "verb": "destroy", "by": "person", "native": "terminate"}
    return Handover.model_validate(known | {"way": "cleared", "begun_at": NOW, "ended_at": NOW} | changes)


@pytest.mark.parametrize(
    ("known", "existence", "found", "answer"),
    [
        (None, Existence.GONE, None, False),
        (handed(verb="stop"), Existence.GONE, None, False),
        (handed(), Existence.GONE, None, True),
        (handed(by="ssh"), Existence.GONE, None, True),
        (handed(), Existence.EXISTS, Phase.ENDING, None),
        (handed(), Existence.UNKNOWN, None, None),
        (handed(), Existence.EXISTS, Phase.RUNNING, False),
        (handed(ended_at=None), Existence.EXISTS, Phase.ENDING, False),
        (handed(by="ssh"), Existence.EXISTS, Phase.ENDING, False),
    ],
)
def test_whether_a_box_that_was_handed_to_a_person_has_ended(
    sweep: Sweep,
    monkeypatch: pytest.MonkeyPatch,
    known: Handover | None,
    existence: Existence,
    found: Phase | None,
    answer: bool | None,
) -> None:
    """None: it may bill, and only the person's step is open."""
    state, closed = state_of(sweep), []
    seen = Judgement(context(state), Observation(existence), Verdict(), None if found is None else record(found), None)
    monkeypatch.setattr(teardown, "judge_end", lambda *_, **__: seen)
    monkeypatch.setattr(teardown, "close", lambda *_: closed.append("closed"))
    monkeypatch.setattr(manual_end, "known_handover", lambda _: known)
    if answer is None:
        with pytest.raises(NotYetGone, match="only a person can end it"):
            manual_end.emptied(sweep.op(), context(state), state)
    else:
        assert manual_end.emptied(sweep.op(), context(state), state) is answer
    assert closed == (["closed"] if answer else [])


def test_nothing_is_handed_over_without_its_records(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_of(sweep, teardown=FACTS | {"issue": BY_PERSON})
    judgement = judged(sweep, monkeypatch, state, allowed=True, way="cleared")
    shutil.rmtree(sweep.store.root)
    assert state.teardown.issue is not None
    with pytest.raises(SweepstackError, match="box box-0 is not ended: its records can't be written"):
        manual_end.hand_over(sweep.op(), state, judgement, state.teardown.issue)


@pytest.mark.parametrize(
    ("known", "issue", "answer", "counts"),
    [
        (handed(), None, Unproved("nowhere"), True),
        (handed(), None, PlatformError("502"), False),
        (handed(), None, Phase.RUNNING, False),
        (handed(verb="stop"), None, Unproved("nowhere"), False),
        (None, None, Unproved("nowhere"), False),
        (handed(), BY_PERSON, Unproved("nowhere"), False),
    ],
)
def test_an_end_that_was_asked_for_needs_no_check_only_while_the_box_is_shown_nowhere(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, known: Handover | None, issue: Any, answer: Any, counts: bool
) -> None:
    state = state_of(sweep, teardown=FACTS | ({"issue": issue} if issue else {}))
    monkeypatch.setattr(manual_end, "known_handover", lambda _: known)
    found = manual_end.asked_for(context(state, Shown(answer)), state)
    assert found == (known if counts else None)


@pytest.mark.parametrize(
    ("asked", "shown", "problem"),
    [
        (None, (Phase.RUNNING, Phase.GONE), ""),
        (None, (Phase.ENDING,), ""),
        (None, (Phase.RUNNING,), "the host still has it"),
        (NotYetGone("a cell is on its way out"), (Phase.RUNNING,), "a cell is on its way out"),
        (PlatformError("no route to host"), (Phase.RUNNING,), "no route to host"),
    ],
)
def test_a_host_proves_that_nothing_of_the_box_is_left_on_it(
    sweep: Sweep, asked: Exception | None, shown: tuple[Phase, ...], problem: str
) -> None:
    state = state_of(sweep)
    said = manual_end._empty_host(sweep.op(timeout=0.15), context(state, Ends(asked, shown=shown)), state)
    assert said == problem


@pytest.mark.parametrize(
    ("adapter", "known", "waits"),
    [
        ("ssh:lab", {"by": "ssh", "accepted_at": NOW}, True),
        ("local", {"by": "ssh", "accepted_at": NOW}, False),
        ("ssh:lab", {"by": "person", "accepted_at": NOW}, False),
        ("ssh:lab", {"by": "ssh"}, False),
        ("ssh:lab", {"by": "ssh", "accepted_at": NOW, "silent_at": NOW}, False),
        ("ssh:lab", None, False),
    ],
)
def test_the_proof_of_an_accepted_command_is_waited_for_once(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, adapter: str, known: dict[str, Any] | None, waits: bool
) -> None:
    waited: list[str] = []
    monkeypatch.setattr(manual_end, "known_handover", lambda _: None if known is None else handed(**known))
    monkeypatch.setattr(manual_end, "finish", lambda *_, **__: waited.append("waited"))
    state = state_of(sweep, adapter=adapter)
    manual_end.finish_silence(sweep.op(), context(state, Shown(Phase.RUNNING)), state)
    assert waited == (["waited"] if waits else [])


def test_an_emptied_box_is_out_of_the_bill_by_a_person_s_step_where_there_is_one(sweep: Sweep) -> None:
    for issue, words in (
        (None, "Next: write boxes.box-0.want: gone, then pulumi up --stack sweep-t, which says what ends the bill"),
        (BY_SSH, "pulumi up --stack sweep-t, which says what ends the bill"),
        (BY_PERSON, "A person has to do this (terminate): click Terminate. Next: write boxes.box-0.want: gone"),
    ):
        facts = TeardownFacts.model_validate(FACTS | ({"issue": issue} if issue else {}))
        assert words in manual_end.out_of_the_bill(sweep.op(), facts, record(Phase.ENDING), "box-0")


# What is said of a box


def test_a_refusal_offers_to_end_together_what_is_locked_beside_it(sweep: Sweep) -> None:
    state = state_of(sweep)
    approval = approval_for(state)
    boxes_there: tuple[dict[str, Any], ...] = ({}, {}, {"ended_at": NOW}, {"native_id": None}, {})
    for number, changes in enumerate(boxes_there):
        birth = born(sweep, f"box-{number}", **{"native_id": f"local-{number}"} | changes)
        sweep.store.write_clearance(birth.native_id or "", approval if number == 4 else None)
    assert teardown._locked_beside(context(state)) == ["box-1"]
    shutil.rmtree(sweep.store.root)
    assert teardown._locked_beside(context(state)) == []


def test_what_the_platform_says_is_the_price_where_no_record_has_it(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    for price, found, says in (
        (None, record(Phase.RUNNING), 0.5),
        (None, None, None),
        (0.3, record(Phase.RUNNING), 0.3),
    ):
        monkeypatch.setattr(teardown, "observe", lambda *_, known=found, **__: (SEEN, known))
        state = state_of(sweep, price_per_hour=price)
        assert teardown.judge_end(context(state), state, None, full=False).facts.price_per_hour == says


def test_a_line_of_a_box_that_is_not_seen_says_why(sweep: Sweep) -> None:
    state, verdict = state_of(sweep), Verdict(cells=[CellLine("a", "verified"), CellLine("b", "running")])
    for note, words in (("", "1 of 2 cells verified; $0.50/h"), ("it does not answer", "it does not answer; $0.50/h")):
        seen = Observation(Existence.EXISTS, note=note)
        line = teardown.lock_line(Judgement(context(state), seen, verdict, None, None))
        assert line.startswith(f"box box-0 LOCKED: {words}")


def test_what_comes_after_a_command_is_shown_before_the_delete(sweep: Sweep) -> None:
    state = state_of(sweep)
    judgement = Judgement(context(state), SEEN, Verdict(), None, None)
    for issue, shown in ((None, set()), (BY_PERSON, {"bill_ends_by"}), (BY_SSH, {"bill_ends_by", "then"})):
        facts = TeardownFacts.model_validate(FACTS | ({"issue": issue} if issue else {}))
        live = teardown.live_facts(judgement, facts)
        assert live.model_dump(exclude_none=True).keys() & {"bill_ends_by", "then"} == shown
