"""Makes the review of a plan and of what is there. Pure: the same documents give the same review."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sweepstack.review.cell_changes import cell_changes, compared, first_words
from sweepstack.review.digest import change_digest
from sweepstack.review.endings import endings, left_behind, unlocked
from sweepstack.review.live import Live, LiveFact
from sweepstack.review.model import MAY_GO_ON, MAY_NOT, UNTOLD, Ending, Review
from sweepstack.review.money import made, money_of
from sweepstack.review.plan import Plan, refusals
from sweepstack.review.setting_changes import engine_lines, rented_lines, setting_changes
from sweepstack.teardown.ways import give_up, sure_first

NAMED = 4
"""So many are named in one line; the others are counted."""


def assess(plan: Plan, live: Live, *, expected: str = "", request: bool = False) -> Review:
    """The review. `expected`: the digest that an earlier review had; another one may not go on. `request`: a merge
    brings the change about, and not a person."""
    ends = endings(plan, live)
    digest = None if plan.errors else change_digest(plan, live, ends)
    problems = (*plan.problems, *live.problems)
    against = tuple(_against(plan, ends, digest, expected))
    code = MAY_NOT if against else UNTOLD if problems else MAY_GO_ON
    base, file = live.rosters.get("base"), live.rosters.get("file")
    review = Review(
        stack=live.stack,
        destroy=plan.destroy,
        store=live.store,
        code=code,
        digest=digest,
        against=against,
        endings=ends,
        unlocks=unlocked(plan),
        left=left_behind(plan, live),
        away=tuple(_away(live, ends)),
        makes=made(plan),
        lines=engine_lines(plan),
        rents=rented_lines(plan),
        settings=setting_changes(plan),
        updates=len({step.urn for step in plan.steps if step.op == "update"}),
        evidence=live.evidence,
        receipt=live.receipt,
        cells=live.cells,
        changes=cell_changes(plan, live),
        base=live.base,
        base_changes=tuple(compared(base, file)) if base is not None and file is not None else (),
        money=money_of(plan, live, ends),
        approvals=live.approvals,
        expired=tuple(one.expires <= live.now for one in live.approvals),
        facts=tuple(_facts(live, ends)),
        refusals=refusals(plan),
        warnings=tuple(dict.fromkeys(one.text for one in plan.said if one.severity == "warning")),
        notes=live.notes,
        unknown=live.unknown,
        problems=problems,
        expected=expected,
    )
    return replace(review, next=tuple(sure_first(_next(review, live, request))))


def _against(plan: Plan, ends: tuple[Ending, ...], digest: str | None, expected: str) -> Iterator[str]:
    if expected and digest is not None and expected != digest:
        yield f"the change is another one now: {digest}, and {expected} was reviewed"
    locked: dict[tuple[str, str], list[Ending]] = {}
    for one in ends:
        if one.irreversible and not one.cleared:
            locked.setdefault((one.verb, "; ".join(one.why)), []).append(one)
    for (verb, why), group in locked.items():
        names = ", ".join(f"{one.what} {one.name}" for one in group[:NAMED])
        more = f" and {len(group) - NAMED} more" if group[NAMED:] else ""
        yield f"{names}{more} would be {verb}, and {'is' if len(group) == 1 else 'are'} not cleared: {why}"
    for said in plan.errors[:1]:
        others = len(refusals(plan)) - 1
        more = f" (and {others} more)" if others else ""
        yield f"the preview is refused{more}: {first_words(said.text)}"


def _away(live: Live, ends: tuple[Ending, ...]) -> Iterator[str]:
    """Boxes that are gone from their platform, and the cells that went with them."""
    for box in live.boxes:
        if box.exists == "gone" and not any(one.native_id == box.native_id for one in ends):
            lost = [cell.name for cell in live.cells if cell.box == box.name and cell.state == "lost"]
            named = ", ".join(lost[:NAMED]) + (f" and {len(lost) - NAMED} more" if lost[NAMED:] else "")
            cells = f"; lost with it, and run again: {named}" if lost else "; no cell is lost with it"
            yield f"box {box.name} ({box.native_id}) is gone from {box.platform}{cells}"


def _facts(live: Live, ends: tuple[Ending, ...]) -> Iterator[LiveFact]:
    """The facts that what can't be undone relies on."""
    for fact in live.facts:
        leaning = {
            "volume" if one.what == "volume" else "stop" if one.verb == "stopped" else "destroy"
            for one in ends
            if one.irreversible and one.platform == fact.platform
        }
        if leaning & set(fact.leans):
            yield fact


def _next(review: Review, live: Live, request: bool) -> Iterator[str]:
    stack = review.stack
    if review.code == MAY_GO_ON and not (review.destroy or request or review.lines or review.settings):
        boxes = dict.fromkeys(command for box in live.boxes for command in box.next)  # an `up` would change nothing
        yield from [*boxes][:3] or [f"sweepctl status --stack {stack}"]
        return
    if review.code == MAY_GO_ON:
        verb = "review --destroy" if review.destroy else "review"
        yield "merge this request    (what its merge brings up is held to this digest)" if request else review.command
        yield f"sweepctl {verb} --stack {stack} --expect {review.digest}    (later: whether it is still this change)"
        return
    seen: dict[str, None] = {}
    for one in review.endings:
        if one.irreversible and not one.cleared:
            seen |= dict.fromkeys(one.next)
    yield from list(seen)[:3]
    locked = [one.name for one in review.endings if one.what == "box" and one.irreversible and not one.cleared]
    if locked and review.destroy and any(one.lost for one in review.irreversible):  # what is verified needs no word
        yield give_up(stack, locked)
    if review.refusals:
        yield f"sweepctl review --stack {stack}    (once the stack file is changed)"
    elif not seen:
        yield f"sweepctl review --stack {stack}{' --destroy' if review.destroy else ''}    (once that is mended)"
