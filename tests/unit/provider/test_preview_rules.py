"""What is asked and said before anything is rented: offers, prices, a sweep's name; nothing is made."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sweepstack.billing.budget import BUDGET
from sweepstack.core.budget import Budget, Outlook
from sweepstack.core.resources import Placed, VolumeInputs
from sweepstack.evidence.open_evidence import Evidence
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.sweep_holder import Takeover, take_over
from sweepstack.launch.smoke import SmokeFailed
from sweepstack.onbox.common.errors import (
    ConfigError,
    EvidenceMissing,
    NoCapacity,
    PlatformError,
    StillCreating,
    SweepstackError,
)
from sweepstack.onbox.host.offers import Offer
from sweepstack.onbox.host.platform import RENTED_ON, BoxRecord, Phase, VolumeRecord
from sweepstack.operations.volumes.mounting_sweeps import VERB
from sweepstack.provider.resources import (
    before_renting,
    create,
    host_address_change,
    identity,
    market,
    policy_limits,
    run_or_stop,
    volume,
    want_gone,
)
from sweepstack.provider.resources import box as boxes
from sweepstack.provider.resources.base import Failure
from sweepstack.provider.resources.teardown import Judgement
from sweepstack.teardown import box_context
from sweepstack.teardown.box_check import Verdict
from tests.unit.provider.plain_box import CODE, SEEN, Shown, born, context, record, state_of
from tests.unit.provider.support import BOX, IDENTITY, VOLUME, Sweep, action, approval_for
from tests.unit.provider.test_budget import charge
from tests.unit.teardown.support import NOW

CHEAP = Offer("cheap", "A100", 1, 2.0, "US", stopped_per_hour=0.01, network_per_gb=0.002)
DEAR = Offer("dear", "A100", 2, 4.0, "EU", stopped_per_hour=0.02, stopped_at_least=True)
ALONE = replace(CHEAP, key="alone", single=True)


class Shop:
    """A market."""

    name = "shop"

    def __init__(self) -> None:
        self.answer: list[Offer] | Exception = [CHEAP, DEAR]
        self.asked = 0
        self.foreseen: list[float] = []

    def offers(self, constraints: Any) -> list[Offer]:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return [] if constraints.volume else self.answer


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shop:
    made = Shop()

    def foresee(_op: Any, _inputs: Any, price: float, _evidence: Any) -> None:
        made.foreseen.append(price)

    def load(name: str) -> Any:
        if name == "nowhere":
            raise SweepstackError("no such adapter")
        return made if name == "shop" else Shown(Phase.RUNNING)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("_asked", "_promised", "_remembered"):
        monkeypatch.setattr(market, name, {})
    monkeypatch.setattr(market, "ASKED_FOR_SECONDS", -1.0)
    monkeypatch.setattr(market, "load_platform", load)
    monkeypatch.setattr(market, "HasMarket", Shop)
    monkeypatch.setattr(before_renting, "foresee", foresee)
    return made


def preview(sweep: Sweep, **inputs: Any) -> tuple[list[Failure], str]:
    """What refuses the box, and what is said of it."""
    sweep.said.lines.clear()
    found = market.preview(sweep.op(), {"name": "box-0", "adapter": "shop", "dry_run": True} | inputs)
    return found, sweep.said.text()


def placed(offer: Offer, price: float | None = None) -> dict[str, Any]:
    return {"offer": offer.key, "price_per_hour": offer.price_per_hour if price is None else price}


def test_a_preview_shows_the_offer_that_an_up_would_take(sweep: Sweep, shop: Shop) -> None:
    for inputs, price, words in (
        ({"name": None}, None, ""),
        ({"adapter": "local", "price_per_hour": 0.5}, 0.5, ""),
        ({}, 2.0, "box box-0: A100 in US at $2.000/h; stopped $7.30/month; traffic $0.002/GB"),
        ({"placed": placed(DEAR)}, 4.0, "box box-0: 2 x A100 in EU at $4.000/h; stopped $14.60/month at least"),
        ({"placed": placed(DEAR, 3.5)}, None, "it was placed at $3.500/h, and nothing dearer is rented"),
        ({"placed": placed(ALONE)}, None, "the offer alone that was placed is not to be had now; what is: A100 in US"),
    ):
        shop.foreseen.clear()
        found, said = preview(sweep, **inputs)
        assert found == []
        assert shop.foreseen == ([] if price is None else [price])
        assert words in said
        assert said.startswith("box box-0: " if words else "")
    shop.answer = PlatformError("502")
    assert preview(sweep) == ([], "box box-0: what shop has now is not known (502)")
    shop.answer = []
    found, said = preview(sweep)
    assert (found, "has nothing now that fits; `pulumi up` would stop" in said) == ([], True)


def test_an_offer_that_one_box_can_have_is_shown_to_one(sweep: Sweep, shop: Shop) -> None:
    shop.answer = [ALONE]
    constraints = market.constraints_of(sweep.box_inputs())
    assert preview(sweep)[0] == []
    assert market._shown(sweep.op(), constraints) == 2.0
    found, said = preview(sweep, name="box-1")
    assert (found, "all 1 offers that shop shows go to other boxes" in said) == ([], True)
    assert market._shown(sweep.op(), constraints) is None, "one of them got no price, so there is no ceiling"


def test_a_volume_away_from_all_offers_is_refused(sweep: Sweep, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    there = VolumeRecord("vol-1", "t", "data", "somewhere", region="AP")
    monkeypatch.setattr(market, "_mounted", lambda *_: there)
    (refused,), _ = preview(sweep, volume="data")
    assert "volume data is in AP, and nothing fits there now; elsewhere: A100 in US" in refused.reason
    shop.answer = []
    assert preview(sweep, volume="data")[0] == [], "nothing fits anywhere: that may change"
    assert market._words([]) == "nothing"


def test_boxes_of_one_preview_share_an_answer_for_seconds(
    sweep: Sweep, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(market, "ASKED_FOR_SECONDS", 1000.0)
    preview(sweep)
    preview(sweep, name="box-1")
    assert shop.asked == 1
    monkeypatch.setattr(market, "ASKED_FOR_SECONDS", -1.0)
    preview(sweep)
    assert shop.asked == 2


@pytest.mark.usefixtures("shop")
def test_where_a_box_bills_by_an_offer() -> None:
    assert [market.bills(name) for name in ("shop", "local", "nowhere", None)] == [True, False, True, False]


@pytest.mark.parametrize(
    ("max_price", "chosen", "shown", "most"),
    [
        (None, None, None, None),
        (3.0, None, None, 3.0),
        (3.0, None, 2.0, 2.0),
        (3.0, None, 4.0, 3.0),
        (None, None, 2.0, 2.0),
        (3.0, 2.5, 1.0, 2.5),
        (None, 2.5, None, 2.5),
    ],
)
def test_a_box_costs_no_more_than_the_least_that_was_said(
    sweep: Sweep,
    monkeypatch: pytest.MonkeyPatch,
    max_price: float | None,
    chosen: float | None,
    shown: float | None,
    most: float | None,
) -> None:
    monkeypatch.setattr(market, "_shown", lambda *_: shown)
    offer = None if chosen is None else Placed(offer="k", price_per_hour=chosen)
    assert market.ceiling(sweep.op(), sweep.box_inputs(max_price=max_price, placed=offer)) == most


@pytest.mark.parametrize(
    ("prices", "most"),
    [
        ([(2.0, 0), (3.0, 60)], 3.0),
        ([(2.0, 0), (3.0, 25 * 3600)], 2.0),
        ([(2.0, 0), (None, 60)], None),
        ([(2.0, 0), (None, 25 * 3600)], 2.0),
        ([], None),
        (None, None),
    ],
)
@pytest.mark.usefixtures("shop")
def test_what_a_preview_showed_of_late_is_the_ceiling(
    sweep: Sweep, prices: list[tuple[float | None, float]] | None, most: float | None
) -> None:
    """Price, and how many seconds ago."""
    constraints = market.constraints_of(sweep.box_inputs())
    file = market._file(sweep.op(), constraints)
    file.parent.mkdir(parents=True)
    shown = [{"price_per_hour": price, "at": time.time() - ago} for price, ago in prices or ()]
    file.write_text("[" if prices is None else json.dumps(dict(enumerate(shown))))
    assert market._shown(sweep.op(), constraints) == most


@pytest.mark.parametrize(
    ("offers", "most", "more", "again"),
    [
        ([CHEAP, DEAR], 1.0, "A100 in US at $2.000/h; 2 x A100 in EU", "pulumi preview --stack sweep-t shows"),
        ([CHEAP, DEAR], 3.0, "2 x A100 in EU at $4.000/h", "sweepctl place --stack sweep-t && sweepctl place next"),
        ([CHEAP, DEAR], None, "", "other constraints"),
        ([CHEAP], 2.0, "", "other constraints"),
        (PlatformError("502"), 1.0, "", "other constraints"),
    ],
)
def test_what_could_be_had_instead_is_said(
    sweep: Sweep, shop: Shop, monkeypatch: pytest.MonkeyPatch, offers: Any, most: float | None, more: str, again: str
) -> None:
    shop.answer = offers
    monkeypatch.setattr(market, "need", lambda platform, _: platform)
    platform: Any = shop
    words = market.not_to_be_had(sweep.op(), platform, sweep.box_inputs(adapter="shop"), NoCapacity("none"), most)
    assert (f" at ${most or 0:.3f}/h or less, which is what was shown: none" in words) is bool(more)
    assert (f"the next offers: {more}" in words) is bool(more)
    assert f"\n  next   {again}" in words


# A box that is to be made


def test_nothing_is_rented_while_another_box_comes_first_or_what_is_left_is_too_little(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float | None] = []

    def refuse(*known: Any) -> None:
        asked.append(known[-1])
        raise SweepstackError("past the budget")

    monkeypatch.setattr(before_renting, "refuse_past", refuse)
    for price, most, counted in ((0.5, 3.0, 0.5), (None, 3.0, 3.0), (None, None, None)):
        with pytest.raises(SweepstackError, match="past the budget"):
            sweep.box(price_per_hour=price, max_price=most)
        assert asked.pop() == counted
    monkeypatch.setattr(want_gone, "why_others_come_first", lambda *_: "box-9 is there, and locked")
    with pytest.raises(SweepstackError, match="box-9 is there, and locked"):
        sweep.box()
    assert (asked, sweep.store.births(), sweep.listed()) == ([], [], [])


@pytest.mark.parametrize(
    ("phase", "ending", "want", "converges"),
    [
        (Phase.RUNNING, False, "running", False),
        (Phase.STOPPED, False, "running", True),
        (Phase.STOPPED, True, "running", False),
        (Phase.RUNNING, False, "stopped", True),
        (Phase.RUNNING, True, "stopped", True),
    ],
)
def test_an_adopted_box_is_started_or_stopped_as_it_is_wanted(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, phase: Phase, ending: bool, want: str, converges: bool
) -> None:
    """None is started while a teardown is open: it is adopted only so that it can end."""
    done: list[str] = []

    def converge(*_: Any, **__: Any) -> BoxRecord:
        done.append("converged")
        return record(Phase.STOPPING)

    there = record(phase)
    monkeypatch.setattr(boxes, "generation_of", lambda *_: (1, there))
    monkeypatch.setattr(boxes, "rent", lambda *_: there)
    monkeypatch.setattr(boxes, "sign_new", lambda *_: None)
    monkeypatch.setattr(run_or_stop, "converge", converge)
    if ending:
        monkeypatch.setattr(EvidenceStore, "teardown", lambda _: SimpleNamespace())
    state = sweep.box(want=want)
    assert bool(done) is converges
    assert state.phase == ("stopping" if converges else str(phase))


def test_an_emptied_box_is_adopted_and_nothing_is_rented(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boxes, "generation_of", lambda *_: (1, record(Phase.ENDING, note=RENTED_ON)))
    monkeypatch.setattr(boxes, "rent", lambda *_: pytest.fail("nothing of it is left"))
    with pytest.raises(StillCreating) as left:
        BOX.create(sweep.op(), sweep.box_inputs())
    assert (left.value.identifier, left.value.outputs["native_id"]) == ("local-a", "local-a")


def test_what_a_box_that_is_not_ready_costs_is_said(sweep: Sweep) -> None:
    for phase, price, words in (
        ("stopped", 0.5, " It is stopped, and what it keeps goes on billing."),
        ("stopping", None, " It is stopped, and what it keeps goes on billing."),
        ("running", 0.5, " It bills $0.50/h."),
        ("creating", 0.5, " It may bill $0.50/h."),
        ("running", None, ""),
    ):
        assert create._bills(state_of(sweep, phase=phase, price_per_hour=price)) == words


@pytest.mark.parametrize(("told", "price"), [(None, 0.5), (0.7, 0.7)])
def test_an_emptied_box_comes_back_at_what_it_bills(sweep: Sweep, told: float | None, price: float) -> None:
    """Its host knows no price any more, and its bill goes on."""
    emptied = BoxRecord("local-a", "t", "here/1", Phase.ENDING, told, None, location="here", note=RENTED_ON)
    platform: Any = Shown(emptied)
    born(sweep)
    generation, found = create.generation_of(sweep.op(), sweep.store, platform, sweep.box_inputs())
    assert found is not None
    assert (generation, found.price_per_hour, found.created_at) == (1, price, NOW)


def test_the_key_of_a_new_box_is_the_person_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweepstack.channel.ssh.keys.public_key", lambda: "ssh-ed25519 AAAA ada")
    assert create.public_key() == "ssh-ed25519 AAAA ada"


def test_a_ctrl_c_while_an_earlier_try_is_looked_for_rents_nothing(sweep: Sweep) -> None:
    """A list that lags shows nothing yet, and by the record nothing was asked for."""
    platform: Any = SimpleNamespace(sees_all=False, find_by_tag=lambda *_: None)
    birth = born(sweep, native_id=None, shown_by=datetime.now(UTC) + timedelta(minutes=15))
    sweep.cancelled.set()
    with pytest.raises(PlatformError, match="cancelled while looking for t, which an earlier try may have rented"):
        create._left_by_an_earlier_try(sweep.op(), platform, birth)


def test_an_address_that_does_not_read_is_a_failure_of_its_key(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    def spelled(*_: Any) -> str:
        raise ConfigError("no such host")

    new = sweep.box_inputs()
    monkeypatch.setattr(host_address_change, "spelled", spelled)
    assert host_address_change.written_out(None, new) == (new, [Failure("adapter", "no such host")])


@pytest.mark.parametrize(
    ("price", "at_birth", "refused"),
    [(None, 0.5, True), (None, 0.1, False), (0.1, 0.5, False), (0.5, 0.1, True), (None, None, False)],
)
def test_a_stopped_box_starts_at_the_price_of_its_birth_where_a_market_named_it(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, price: float | None, at_birth: float | None, refused: bool
) -> None:
    (sweep.project / "policy.yaml").write_text("max_price_per_hour: 0.2")
    monkeypatch.chdir(sweep.project)
    state = state_of(sweep)
    now = policy_limits.bound(sweep.op(), context(state).evidence, None)
    assert now.rules
    if at_birth is not None:
        born(sweep, price_per_hour=at_birth)
    judgement = Judgement(context(state), SEEN, Verdict(), record(Phase.STOPPED), None)
    new = sweep.box_inputs(price_per_hour=price)
    assert bool(policy_limits.start_problems(now, new, judgement, "sweep-t")) is refused


def test_a_policy_says_where_evidence_may_be(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(sweep.project)
    for kind, place, fix in (
        ("s3", "file://here/x", "pull_to: s3://bucket/prefix"),
        ("folder", "s3://lab/sweep", "pull_to: a folder"),
    ):
        (sweep.project / "policy.yaml").write_text(f"evidence: {kind}\n")
        (rule,) = policy_limits.bound(sweep.op(), context(state_of(sweep)).evidence, None).rules
        (refused,) = policy_limits.place_problems(rule, place, "pull_to")
        assert refused.reason.endswith(f"Next: {fix}")


def test_what_is_said_of_a_volume_that_comes_stays_or_leaves(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    known = VolumeInputs.model_validate(sweep.volume.model_dump(include=set(VolumeInputs.model_fields)))
    assert volume.say(sweep.op("Volume"), {"name": None, "adapter": "local"}, new=True) == []
    asked: list[bool] = []

    def say(_op: Any, _inputs: Any, *, new: bool) -> list[Failure]:
        asked.append(new)
        return []

    monkeypatch.setattr(volume, "say", say)
    for old in (None, known):
        VOLUME.check(sweep.op("Volume"), old, known)
    assert asked == [True, False]
    box = state_of(sweep)
    actions = (action(box, box="data", verb=VERB), action(box, box="other", verb="stop"))
    approval = approval_for(box).model_copy(update={"actions": actions})
    assert volume.leaving_words(approval) == {"data": "to be checked by its delete"}


def test_a_policy_is_no_stray_one_while_the_state_can_t_be_read(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    def unread(_: Any) -> tuple[str, ...]:
        raise SweepstackError("the engine does not answer")

    monkeypatch.setattr(policy_limits, "policies_of_state", unread)
    born(sweep, policy=CODE)
    assert not policy_limits.is_stray(sweep.op(), context(state_of(sweep)), None)


# The sweep itself


def test_an_approval_that_leaves_lasts_an_hour_as_it_was_signed(sweep: Sweep) -> None:
    approval = approval_for(state_of(sweep))
    assert want_gone.for_this_change(approval).expires <= datetime.now(UTC) + want_gone.LASTS
    signatures: Any = ("by ada",)
    kept = want_gone.for_this_change(approval.model_copy(update={"signatures": signatures}))
    assert (kept.expires, kept.signatures) == (approval.expires, signatures)
    assert kept.until is not None
    nowhere = Evidence(sweep.identity.evidence + "-nowhere")
    assert want_gone.judge_leaving(nowhere, approval, want_gone.Rules("", None), full=False) == []


def test_what_of_a_sweep_may_not_change_says_what_to_do(sweep: Sweep) -> None:
    old, new = sweep.identity_inputs(), sweep.identity_inputs(project="other", stack="sweep-u")
    assert "is of the project project. Next: name: project again" in IDENTITY.refusal("project", old, new)
    assert "pulumi stack rename sweep-t --stack sweep-u" in IDENTITY.refusal("stack", old, new)
    assert IDENTITY.refusal("pull_to", old, new) == ""


def test_a_preview_of_a_moved_sweep_shows_where_its_evidence_is(sweep: Sweep) -> None:
    old = {"pull_to": "results", "evidence": "file://here/x", "identity": "i"}
    op = sweep.op("Identity")
    assert IDENTITY.preview_outputs(op, old, {"pull_to": "results", "budget": None}) == old | {"budget": None}
    there = IDENTITY.preview_outputs(op, old, {"pull_to": "s3://lab/sweep"})
    assert (there["evidence"], there["identity"]) == ("s3://lab/sweep", "i")


def test_a_sweep_follows_its_evidence_only_where_all_of_it_is(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    op, asked = sweep.op("Identity"), []

    def succession(_before: str, there: str, _identity: str) -> str:
        asked.append(there)
        return "3 objects are missing there"

    monkeypatch.setattr(identity, "succession_problem", succession)
    for inputs in (sweep.identity_inputs(), sweep.identity_inputs(pull_to="./results")):
        assert IDENTITY.update(op, "i", sweep.identity, inputs).evidence == sweep.identity.evidence
    assert asked == []
    with pytest.raises(SweepstackError, match="pull_to: 3 objects are missing there"):
        IDENTITY.update(op, "i", sweep.identity, sweep.identity_inputs(pull_to="s3://lab/sweep"))
    assert asked == ["s3://lab/sweep"]


def test_a_sweep_that_another_backend_holds_keeps_its_name_here_and_says_so(sweep: Sweep) -> None:
    for taken in (False, True):
        if taken:
            takeover = Takeover(held_by="here", taken_to="s3://team-state", by="ann", at=NOW, reason="moved")
            take_over(sweep.store, takeover)
        sweep.said.lines.clear()
        seen = IDENTITY.read(sweep.op("Identity"), "i", sweep.identity)
        assert not isinstance(seen, type(None))
        assert getattr(seen, "state", None) == sweep.identity
        assert ("s3://team-state" in sweep.said.warnings) is taken
    with pytest.raises(StillCreating, match="s3://team-state") as held:
        sweep.found()
    assert held.value.identifier == held.value.outputs["identity"] == sweep.identity.identity


def test_two_ups_that_name_a_sweep_at_once_agree_on_its_name(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """The marker is not there, then it is, and the second one takes the name that it has."""
    found, real = EvidenceStore.found, EvidenceStore.read_marker
    winner = real(sweep.identity.evidence)
    assert winner is not None

    def lost(evidence: str, name: str, *who: str) -> EvidenceStore:
        if name != winner.identity:
            raise EvidenceMissing("it has another name")
        return found(evidence, name, *who)

    monkeypatch.setattr(EvidenceStore, "found", staticmethod(lost))
    for later, agrees in ((winner, True), (winner.model_copy(update={"stack": "other"}), False), (None, False)):
        markers = iter([None, later])
        monkeypatch.setattr(EvidenceStore, "read_marker", staticmethod(lambda _, known=markers: next(known)))
        if agrees:
            assert sweep.found().identity == winner.identity
        else:
            with pytest.raises(EvidenceMissing, match="it has another name"):
                sweep.found()


def test_a_lost_answer_is_asked_about_until_its_record_is_closed(sweep: Sweep) -> None:
    op = sweep.op("Identity")
    lost = born(sweep, "box-0", native_id=None, asked_at=NOW)
    over = born(sweep, "box-1", native_id=None, asked_at=NOW, ended_at=NOW)
    for births, words in (
        ([lost, over], "next  sweepctl confirm never-rented --stack sweep-t box-0 --saw"),
        ([over], "next  pulumi up --stack sweep-t    (adopts it by its tag; then finish)"),
    ):
        assert identity._way_out(op, births, ["box-0"]).startswith(words)
    lab = [born(sweep, f"box-{one}", platform="ssh:lab", ended_at=NOW if one else None) for one in (0, 1)]
    ways = identity._way_out(op, lab, ["box-0"]).partition("\nover  ")[2]
    assert "sweepctl confirm gone --stack sweep-t box-0 --saw" in ways, "of a host no API tells what has ended"
    assert "box-1" not in ways


@pytest.mark.parametrize(
    ("shown", "tagged", "words"),
    [
        (Phase.RUNNING, None, "box box-0: local-a on local still exists"),
        (Phase.UNKNOWN, None, "may still run, and whether it has ended is not known: "),
        (Phase.GONE, "local-b", "box box-0: local-b on local carries its tag"),
        (Phase.GONE, None, ""),
        (PlatformError("502"), None, "box box-0: local-a on local may still bill: 502"),
    ],
)
def test_what_the_ledger_names_may_bill_until_it_is_proved_gone(
    monkeypatch: pytest.MonkeyPatch, shown: Any, tagged: str | None, words: str
) -> None:
    platform = Shown(shown)
    found = None if tagged is None else replace(record(Phase.RUNNING), native_id=tagged)
    monkeypatch.setattr(Shown, "find_by_tag", lambda *_: found, raising=False)
    monkeypatch.setattr(box_context, "load_platform", lambda *_: platform)
    said = identity._may_bill("box-0", "t", "local", "here/1", "local-a", rented=False)
    assert words in said
    assert bool(said) is bool(words)


# Budget, balance and smoke run


def test_a_budget_is_told_of_by_an_up_alone_and_where_there_is_something_to_tell(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def deliver(_store: Any, _channels: Any, events: list[Any]) -> Any:
        told.extend(event.kind for event in events)
        return SimpleNamespace(wait=lambda _: False, problems=[])

    monkeypatch.setattr("sweepstack.operations.events.deliver.deliver", deliver)
    budget = Budget.model_validate({"usd": 10})
    nowhere = sweep.identity.evidence + "-nowhere"

    def say(evidence: str = sweep.identity.evidence, *, dry_run: bool) -> frozenset[str]:
        told.clear()
        op = sweep.op("Identity")
        outlook = Outlook(boxes=1, slots=1, cells=2, dry_run=dry_run)
        before_renting.say_budget(op, Evidence(evidence), budget, outlook)
        known: before_renting.Expected = op.session.shared[before_renting.FORECAST]
        return known.there

    assert (say(dry_run=False), told) == (frozenset(), [])
    assert (say(nowhere, dry_run=False), told) == (frozenset(), [])
    for box, ended in (("box-0", None), ("box-1", NOW)):
        born(sweep, box, native_id=None, ended_at=ended)
    charge(sweep, "old", "local-old", hours=25, price=0.5, ended=True)
    assert (say(dry_run=True), told) == (frozenset({"box-0"}), [])
    assert say(dry_run=False) == {"box-0"}
    assert len(told) == 1


def test_the_budget_of_the_last_up_is_on_record(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    evidence, budget = Evidence(sweep.identity.evidence), Budget.model_validate({"usd": 10})
    before_renting.keep_budget(evidence, budget)
    assert sweep.store.record(BUDGET, Budget) == budget
    monkeypatch.setattr(EvidenceStore, "write_record", lambda *_: pytest.fail("it is there already"))
    before_renting.keep_budget(evidence, budget)


def test_a_smoke_run_that_fails_rents_nothing(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise SmokeFailed("exit 1")

    smoke: Any = SimpleNamespace()
    monkeypatch.setattr(before_renting, "ensure", fails)
    with pytest.raises(SmokeFailed, match="box box-0 is not rented: exit 1\n  next "):
        before_renting.smoke_first(sweep.op(), smoke, "box-0")
    before_renting.smoke_first(sweep.op(), None, "box-0")


def test_how_long_the_balance_lasts_is_said_once_where_there_is_one(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(before_renting, "_say", lambda *_: said.append("said"))
    monkeypatch.setattr(before_renting, "_runway", lambda *_: None)
    for balance, times in ((None, 0), (SimpleNamespace(), 1)):
        monkeypatch.setattr(before_renting, "_ask", lambda *_, known=balance: known)
        op = sweep.op()
        for _ in range(2):
            before_renting.say_runway(op, sweep.box_inputs(), Evidence(sweep.identity.evidence))
        assert len(said) == times
