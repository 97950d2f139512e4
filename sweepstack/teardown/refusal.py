"""Writes a refusal: what is not safe, what would die, what waiting costs, and the next command.

One rule for the ways on that any screen names: what loses nothing stands first. A box is given up by a line of `next`
only where nothing else leads on, or where something was found that may keep the other ways from working.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, MutableMapping, Sequence
from datetime import UTC, datetime

from sweepstack.billing.ledger import without_price
from sweepstack.core.records import REFUSED
from sweepstack.onbox.common.errors import ONLY_IF
from sweepstack.onbox.common.units import count, spell_rate
from sweepstack.platforms.registry import has_address
from sweepstack.teardown.box_check import CellLine, Verdict
from sweepstack.teardown.box_context import BoxFacts
from sweepstack.teardown.revocation import WRITTEN_AGAIN
from sweepstack.teardown.unclaimed import lock_reason

_BOX = re.compile(r"\bsweepctl ([a-z-]+(?: [a-z][a-z-]*)?)((?: --abandon)? | data/)BOX\b")
SHOWN = 12
"""Number of cells that are listed one by one; the others are counted."""

GIVES_UP, NOT_BACK = "gives them up", "where it will not come back"
"""What is said behind the command that gives boxes up. The second one: evidence that can't be read may be away for an
hour."""
_CELLS = re.compile(r"\bsweepctl (drop |give-up .*(cell|unclaimed)/)")
_LOOKS = re.compile(r"sweepctl (status|logs|doctor|audit|results)\b")
_BOXES = re.compile(r"\bsweepctl (give-up .*\bdata/|audit .*--abandon\b)")


def refusal_text(
    facts: BoxFacts,
    verdict: Verdict,
    *,
    stack: str,
    now: datetime | None = None,
    others: Sequence[str] = (),
    said: MutableMapping[tuple[str, str], str] | None = None,
) -> str:
    """The refusal for one box, as lines of text. The first line is for the engine's row, in one word; then: nothing was
    deleted, and how far the box is.

    `others`: boxes of the sweep that are locked, too: one line then gives all of them up. `said`: rows that this
    command has printed for other boxes. A row that would be the same here is named and not repeated. The function adds
    the rows of this box.
    """
    settled = len(verdict.cells) - len(verdict.unsettled)
    far = "its cells are not known" if verdict.launched is None else f"{settled} of {len(verdict.cells)} cells verified"
    head = f"REFUSED.\nNothing was deleted. Box {facts.name}: {far}."
    rows: list[tuple[str, str]] = []
    why = "; ".join(verdict.reasons)
    if why:
        rows.append(("locked because", why))
    rows += _cell_rows(verdict.unsettled)
    dying = ", ".join(facts.kills) or "nothing"
    bare = len(verdict.unsettled)
    cells = f": {count(bare, 'cell')} without a verified copy" if bare else ""
    rows.append(("would die", f"box {facts.name} ({facts.native_id}), its {dying}{cells}"))
    if verdict.unclaimed:
        rows.append(("unclaimed", verdict.unclaimed.words))
    evidence = f"the evidence at {facts.evidence}" if verdict.evidence else ""
    if facts.keeps:
        rows.append(("would survive", "; ".join(filter(None, (", ".join(_kept(facts)), evidence)))))
    if not verdict.evidence:
        rows.append(("not there", f"the evidence at {facts.evidence}: put it back, or give the box up"))
    rows.append(("waiting costs", waiting_cost(facts, now=now)))
    rows += next_commands(facts, verdict, stack=stack, others=others)
    rows = _unsaid(rows, facts.name, said if said is not None else {})
    width = max(len(label) for label, _ in rows)
    body = [f"{label:<{width}}  {text}" for label, text in rows]
    return "\n".join([head, "", *body])


def _unsaid(
    rows: Sequence[tuple[str, str]], box: str, said: MutableMapping[tuple[str, str], str]
) -> list[tuple[str, str]]:
    """The rows without those that were printed, word for word, for another box; and a last row that names them and that
    box."""
    kept, same = [], {}
    for row in rows:
        label, _ = row
        before = said.setdefault(row, box) if label not in ("", "locked because", "not safe yet") else box
        if before == box:
            kept.append(row)
        else:
            same[label] = before
    if same:
        kept.append(("as for", f"box {next(iter(same.values()))}: {', '.join(same)}"))
    return kept


def next_commands(
    facts: BoxFacts, verdict: Verdict, *, stack: str, others: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """The commands that lead from here to "nothing bills any more"."""
    if verdict.account_problem:
        ways = of_another_account(stack, [verdict.account_problem])
        return [("next" if index == 0 else "", way) for index, way in enumerate(ways)]
    destroy = f"pulumi destroy --stack {stack}"
    boxes = " ".join(f"data/{name}" for name in sorted({facts.name, *others}))
    abandon = f'sweepctl give-up --stack {stack} {boxes} --reason "…" && {destroy}'
    if any(WRITTEN_AGAIN in reason for reason in verdict.reasons):
        return [("next", revoked_again(stack)), ("give up", abandon)]
    let_go = []
    if lock_reason(verdict.unclaimed, None):
        command = f'sweepctl give-up --stack {stack} unclaimed/{facts.name} --reason "…"'
        let_go = [("let go", f"{command}    (the unclaimed bytes)")]
        if verdict.held_by_unclaimed:
            return [("next", f"{command} && sweepctl finish --stack {stack}"), ("give up", abandon)]
    if verdict.launched is None and not verdict.folder_lost:
        return [("next", f"fix what is in the way, then pulumi destroy --stack {stack}"), ("give up", abandon)]
    if not verdict.launched and not verdict.folder_lost:
        return [
            ("next", f"sweepctl approve --stack {stack} --box {facts.name} && pulumi up --stack {stack} && {destroy}"),
            *let_go,
            ("give up", abandon),
        ]
    rows = []
    if verdict.rests:
        return [("next", to_be_read(stack, [facts.name])), *let_go, ("give up", abandon)]
    if verdict.folder_lost:
        safe = not verdict.unsettled
        ways = out_of_lost(stack, facts.name, price_per_hour=facts.price_per_hour, safe=safe)
        return [("next" if index == 0 else "", way) for index, way in enumerate(ways)]
    if verdict.silent:
        # Approved, and every cell verified: the same destroy succeeds once its journal can be read again.
        again = destroy if verdict.approved and not verdict.unsettled else f"sweepctl finish --stack {stack}"
        return [
            ("next", f"{again}    (once it answers; `sweepctl status` says why it does not)"),
            *let_go,
            ("give up", abandon),
        ]
    if any(cell.state in ("running", "pending") for cell in verdict.unsettled):
        rows.append(("next", f"sweepctl wait --stack {stack} done && sweepctl finish --stack {stack}"))
    else:
        rows.append(("next", f"sweepctl finish --stack {stack}    (pull, verify, approve, up, destroy)"))
    bad = [cell for cell in verdict.unsettled if cell.state in REFUSED or cell.state in ("failed", "missing")]
    if bad:
        states = ", ".join(sorted({cell.state for cell in bad}))
        lost = " ".join(f"cell/{cell.name}" for cell in bad)
        done = f'sweepctl give-up --stack {stack} {lost} --reason "…" && pulumi up --stack {stack} && {destroy}'
        rows.append(("accept", f"{done}    ({states})"))
    return [*rows, *let_go, ("give up", abandon)]


def to_be_read(stack: str, boxes: Iterable[str]) -> str:
    """The commands where boxes are stopped, and what was read of them before that does not count: they are started, and
    end once they were read."""
    wants = ", ".join(f"boxes.{name}.want" for name in boxes)
    after = f"after `when_done: keep`, and {wants}: running: a start bills, and lets it be read"
    return f"pulumi up --stack {stack} && sweepctl finish --stack {stack}    ({after})"


def revoked_again(stack: str) -> str:
    """The command where the list of what was revoked does not read, so that no approval counts: the rest comes after
    it."""
    return f"sweepctl revoke --stack {stack} && sweepctl status --stack {stack}    (then approvals count again)"


def of_another_account(stack: str, problems: Iterable[str]) -> list[str]:
    """The commands when boxes are another account's: neither a pull nor an abandonment helps with the present one."""
    named = [command for problem in problems for command in re.findall(r"`([^`]+)`", problem)]
    return sure_first([*named, f"sweepctl status --stack {stack}    (with the account that the box was rented with)"])


def seen_ended(stack: str, box: str, adapter: str) -> str:
    """The commands that close the record of a box of which nothing can be told any more, and that no state may have: a
    person gives it up, and confirms its end. "" where an API knows what has ended: a confirmation does not count there.
    """
    if not has_address(adapter):
        return ""
    give_up = f'sweepctl give-up --stack {stack} data/{box} --reason "…"'
    return f'{give_up} && sweepctl confirm gone --stack {stack} {box} --saw "…"    (once you saw that it has ended)'


def of_box(words: str, box: str, stack: str = "") -> str:
    """The words of a host, which knows no name of ours: its commands with the name of the box instead of BOX. Of "" for
    the box, as they are."""
    of_stack = f" --stack {stack}" if stack else ""
    return _BOX.sub(rf"sweepctl \1{of_stack}\2{box}", words) if box else words


def out_of_lost(stack: str, box: str, *, price_per_hour: float | None, safe: bool) -> list[str]:
    """The ways out for a box whose host answers and has lost its folder. `safe`: nothing on it is worth more than a
    word: all of it is verified, or given up."""
    confirm = f'sweepctl confirm gone --stack {stack} {box} --saw "…"'
    if price_per_hour != 0:  # it answers, and bills: no word ends that
        when = "once it is ended at its console: it answers, and bills"
    else:
        when = "where it is lost for good, and not on a disk that is not mounted"
    if safe:
        return [f"{confirm}    ({when})"]
    return [
        f"sweepctl status --stack {stack}    (once its folder is back: nothing is lost then)",
        f'sweepctl give-up --stack {stack} data/{box} --reason "…" && {confirm}    ({when})',
    ]


def waiting_cost(facts: BoxFacts, *, now: datetime | None = None, short: bool = False) -> str:
    """Price per hour and day, and what was spent so far; says so if the price is unknown. `short`: for a table, without
    the whole sweep's.

    By the ledger, if `facts.costs` has it: the ledger knows of stops, of changed prices, and of the sweep's budget.
    """
    costs = facts.costs
    price = facts.price_per_hour if costs is None or costs.per_hour is None else costs.per_hour
    if price is None:
        return "unknown" if short else "unknown: the box has no price on record"
    text = f"${spell_rate(price)}/h" if short else f"${spell_rate(price)}/h, ${price * 24:.2f}/day"
    so_far = costs.so_far if costs is not None else None
    if so_far is None and facts.created_at is not None:
        so_far = max(((now or datetime.now(UTC)) - facts.created_at).total_seconds() / 3600, 0) * price
    lacks = costs.unpriced if costs is not None and costs.so_far is not None else 0
    if so_far is not None:
        text += f"; {'at least ' if lacks else ''}${so_far:.2f} so far{without_price(lacks)}"
    if short:
        return text
    if costs is not None and costs.sweep_per_hour > price:
        text += f"; the sweep ${spell_rate(costs.sweep_per_hour)}/h"
    return text + (f"; budget {costs.budget}" if costs is not None and costs.budget else "")


def _kept(facts: BoxFacts) -> list[str]:
    """The tiers that survive, with what they cost a month if that is known."""
    kept = facts.costs.kept if facts.costs is not None else {}
    return [f"{tier} (${kept[tier]:.2f}/month)" if tier in kept else tier for tier in facts.keeps]


def _cell_rows(unsettled: Sequence[CellLine]) -> list[tuple[str, str]]:
    rows = []
    shown = unsettled[:SHOWN]
    name = max((len(cell.name) for cell in shown), default=0)
    state = max((len(cell.state) for cell in shown), default=0)
    for index, cell in enumerate(shown):
        text = f"{cell.name:<{name}}  {cell.state:<{state}}  {cell.reason}".rstrip()
        rows.append(("not safe yet" if index == 0 else "", text))
    if len(unsettled) > SHOWN:
        rows.append(("", f"… and {len(unsettled) - SHOWN} more"))
    return rows


def give_up(stack: str, boxes: Sequence[str], when: str = GIVES_UP) -> str:
    """The way that is always there: by name, with a reason, and on record. `when`: what is said behind it."""
    names = " ".join(f"data/{name}" for name in sorted(boxes))
    return f'sweepctl give-up --stack {stack} {names} --reason "…" && pulumi destroy --stack {stack}    ({when})'


def accept(stack: str, cells: Iterable[str], when: str) -> str:
    """The way that does without these cells, or takes them as they are, and finishes."""
    lost = " ".join(f"cell/{name}" for name in cells)
    return f'sweepctl give-up --stack {stack} {lost} --reason "…" && sweepctl finish --stack {stack}    ({when})'


def gives_up(way: str) -> bool:
    """Whether this line gives up what is on a box or a volume."""
    return _BOXES.search(way) is not None


def sure_first(ways: Iterable[str]) -> list[str]:
    """The commands, each once: those that lose nothing, then what gives up a cell, then what gives up a box, each in
    their order. Last those that call boxes gone if a condition holds, which only the person knows."""
    return sorted(dict.fromkeys(ways), key=lambda way: (ONLY_IF in way, gives_up(way), _CELLS.search(way) is not None))


def without_need(ways: Iterable[str]) -> list[str]:
    """The same without what gives a box up, where another of them changes something."""
    named = sure_first(ways)
    others = [way for way in named if not gives_up(way)]
    return others if any(not _LOOKS.match(way) for way in others) else named
