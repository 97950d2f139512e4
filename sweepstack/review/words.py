"""A review in words: the headline, what dies, what survives, cells, money, consent, facts.

In blocks, which a terminal, a comment and a page draw alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.units import count, spell_rate
from sweepstack.review.model import MAY_GO_ON, MAY_NOT, CellChange, Money, PlannedEnd, Review

NAMED = 4
"""So many are named in one line; the others are counted."""
_VERBS = {"destroyed": "destroyed", "replaced": "destroyed, and another one is rented", "stopped": "stopped"}
NEXT = "Next"
_WAYS = {
    "cleared": "approved, and each of its cells is verified or waived",
    "abandoned": "ABANDONED by an approval: what is nowhere else is lost",
    "emptied": "nothing of it is left on its host, which bills on",
    "nothing-launched": "approved, and nothing was ever launched on it",
}
"""The ways of the check that ends a box, in words."""


def written(review: Review) -> list[Block]:
    """All parts, in the order in which a person decides. The first three say whether anything dies, and whether it may
    go on."""
    return [
        Heading(headline(review)),
        Line(dies_line(review), strong=bool(review.irreversible)),
        Line(verdict_line(review), strong=True),
        Heading("What can't be undone"),
        *_irreversible(review),
        Heading("What dies, what survives, and where"),
        *_fates(review),
        *([] if review.live.store else _cells(review)),
        *_settings(review),
        *_refused(review),
        Heading("Money"),
        Listing(list(money_lines(review)), "line"),
        Heading("Who approved what, until when"),
        *_approvals(review),
        Heading("Facts relied on that are old or unproved"),
        *_facts(review),
        *_more(review),
        Heading(NEXT),
        Commands(review.next),
        Line(
            f"digest of this change: {review.digest}"
            if review.digest
            else "This change has no digest: a preview that is refused does not show all of it."
        ),
    ]


def headline(review: Review) -> str:
    """`t: pulumi up DESTROYS 1 box`."""
    verb = "destroy" if review.destroy else "up"
    if review.refusals and not review.ended:
        return f"{review.live.view.stack}: pulumi {verb} is REFUSED, and destroys nothing"
    return f"{review.live.view.stack}: pulumi {verb} {', '.join(_deeds(review))}"


def _deeds(review: Review) -> Iterator[str]:
    for what in ("box", "volume"):
        plain = [one for one in review.ended if one.what == what and one.verb == "destroyed"]
        again = [one for one in review.ended if one.what == what and one.verb == "replaced"]
        if plain:
            yield f"DESTROYS {count(len(plain), what)}"
        if again:
            yield f"DESTROYS {count(len(again), what)} to replace {'it' if len(again) == 1 else 'them'}"
    if not review.ended:
        yield "destroys nothing"
    stops = [one for one in review.endings if one.verb == "stopped"]
    if stops:
        yield f"stops {count(len(stops), 'box')}"
    rents = len(review.makes) - len([name for name in review.makes if not name.startswith("box ")])
    again = [one for one in review.ended if one.what == "box" and one.verb == "replaced"]
    if rents > len(again):
        yield f"rents {count(rents - len(again), 'box')}"
    if review.unlocks:
        kinds = [one.partition(" ")[0] for one in review.unlocks]
        found = " and ".join(count(kinds.count(kind), kind) for kind in dict.fromkeys(kinds))
        yield f"UNLOCKS {found} for a later destroy"


def dies_line(review: Review) -> str:
    """What dies, in one line: boxes and volumes by name, and how many cells with them."""
    parts = []
    there = review.irreversible
    for one in there[:NAMED]:
        lost = f", and {_cells_lost(one)}" if one.lost else ""
        its = f": its {_and(one.dies) or 'machine, and no tier'}" if one.what == "box" else f", and {one.dies[0]}"
        parts.append(f"{one.shown}{its}{lost}")
    if there[NAMED:]:
        cells = sum(len(one.lost) for one in there[NAMED:])
        lost = f", with {count(cells, 'cell')} without a verified copy" if cells else ""
        parts.append(f"{len(there) - NAMED} more, named below{lost}")
    gone = [one for one in review.endings if one.gone]
    after = f" {_named(gone)} {'is' if len(gone) == 1 else 'are'} gone already, and leave the state." if gone else ""
    left = ""
    if review.left:
        leave, survive = ("leaves", "survives") if len(review.left) == 1 else ("leave", "survive")
        left = f" {count(len(review.left), 'volume')} {leave} the state and {survive}."
    if review.away:
        after += f" Gone before: {'; '.join(review.away[:NAMED])}."
    if review.unlocks:
        more = f" and {len(review.unlocks) - NAMED} more" if review.unlocks[NAMED:] else ""
        left += f" From then on `pulumi destroy` may end {', '.join(review.unlocks[:NAMED])}{more}."
    if not parts:
        nothing = "The change is refused, and nothing is done" if review.refusals else "No box and no volume ends by it"
        return f"DIES: nothing. {nothing}.{after}{left}"
    return f"DIES: {'; '.join(parts)}.{after}{left}"


def _cells_lost(one: PlannedEnd) -> str:
    names = ", ".join(cell.name for cell in one.lost[:NAMED])
    more = f" and {len(one.lost) - NAMED} more" if one.lost[NAMED:] else ""
    return f"{count(len(one.lost), 'cell')} without a verified copy ({names}{more})"


def verdict_line(review: Review) -> str:
    """May it go on, and why not."""
    if review.code == MAY_GO_ON:
        cleared = "; all that can't be undone is cleared" if review.irreversible else ""
        return f"MAY GO ON: yes{cleared} (exit 0)"
    if review.code == MAY_NOT:
        more = f"; and {len(review.against) - 2} more" if review.against[2:] else ""
        return f"MAY GO ON: NO: {'; '.join(review.against[:2])}{more} (exit 1)"
    return f"MAY GO ON: could not tell: {'; '.join(review.problems[:2])} (exit 2)"


def _irreversible(review: Review) -> Iterator[Block]:
    if not review.irreversible:
        yield Line(
            "Nothing: the change is refused."
            if review.refusals
            else "Nothing: no box and no volume is destroyed, and no stop kills anything."
        )
        return
    rows = [
        (
            one.shown,
            f"{_VERBS[one.verb]}",
            "yes" if one.cleared else "NO",
            _WAYS.get(one.way, one.way) if one.cleared else "; ".join(one.why),
        )
        for one in review.irreversible
    ]
    yield Grid(("WHAT", "IS", "CLEARED", "BY, OR WHY NOT"), rows, "end", "that can't be undone")


def _fates(review: Review) -> Iterator[Block]:
    fates = [one for one in review.endings if not one.gone]
    if fates:
        rows = [
            (
                f"{one.what} {one.name}",
                ", ".join(one.dies) or "nothing",
                "; ".join(one.survives) or "nothing",
                _share(one),
            )
            for one in fates
        ]
        yield Grid(("WHAT", "DIES", "SURVIVES", "CELLS"), rows, "end")
    lost = [(cell.name, one.name, cell.state, cell.reason) for one in fates for cell in one.lost]
    if lost:
        yield Grid(("WITHOUT A VERIFIED COPY", "BOX", "STATE", "WHY"), lost, "cell", "without a verified copy")
    told = []
    for one in fates:
        for label, text in (
            ("files of no cell (unclaimed) die", one.unclaimed if one.unclaimed != "nothing" else ""),
            ("in no copy, and die", one.in_no_copy),
            ("a person ends the bill", one.by_hand),
            ("clock", one.clocks if one.verb == "stopped" else ""),
        ):
            if text:
                told.append(f"{one.name}: {label}: {text}")
    told += [f"{one.shown} is gone already, and leaves the state" for one in review.endings if one.gone]
    told += list(review.away)
    told += [f"survives: {text}" for text in review.left]
    evidence = review.live.view.evidence
    told.append(f"survives: the evidence at {evidence}" if evidence else "there is no evidence yet")
    yield Listing(told, "line")


def _share(one: PlannedEnd) -> str:
    if one.what == "volume":
        return "-"
    if one.verb == "stopped":
        return "they wait on it"
    return f"{one.cells - len(one.lost)} of {one.cells} verified" if one.cells else "it has none"


def _cells(review: Review) -> Iterator[Block]:
    view = review.live.view
    yield Heading(f"Cells: {view.verified} of {len(view.cells)} verified")
    rest = [cell for cell in view.cells if cell.state != "verified"]
    named = {cell.name for one in review.endings if not one.gone for cell in one.lost}
    if rest and named >= {cell.name for cell in rest}:
        yield Line("Those without a verified copy are named above.")
    elif rest:
        yield Grid(
            ("CELL", "STATE", "BOX", "WHY"),
            [(c.name, c.state, c.box or "", c.note) for c in rest],
            "cell",
            "not verified",
        )
    elif view.cells:
        yield Line(f"All are verified, by receipt {view.receipt}.")
    else:
        yield Line("There is no cell yet.")
    yield Heading("Cells that change")
    yield from _changes(review)


def _changes(review: Review) -> Iterator[Block]:
    base = review.live.base
    if base:
        yield Line(f"Against the stack file of {base}: {summary(review.base_changes)}.")
        if review.base_changes:
            yield _change_grid(review.base_changes, f"of cells against {base}")
    if review.destroy:
        yield Line("None: a destroy changes no stack file.")
        return
    found = summary(review.changes).capitalize()
    yield Line(f"Against what is up: {found.lower()}." if base else f"{found}.")
    if review.changes:
        yield _change_grid(review.changes, "of cells")


def summary(changes: Sequence[CellChange]) -> str:
    """`2 added, 1 moved`."""
    counts: dict[str, int] = {}
    for one in changes:
        counts[one.change] = counts.get(one.change, 0) + 1
    return ", ".join(f"{number} {change}" for change, number in counts.items()) or "none"


def _change_grid(changes: Sequence[CellChange], of: str) -> Grid:
    return Grid(("CELL", "CHANGE", "BOX", "WHY"), [(c.name, c.change, c.box, c.why) for c in changes], "change", of)


def _settings(review: Review) -> Iterator[Block]:
    yield Heading("What else changes")
    if not review.lines and not review.settings:
        yield Line("Nothing: what is up stays as it is.")
    if review.rents:
        yield Listing(review.rents, "box")
    if review.lines:
        yield Listing(review.lines, "line")
    if review.settings:
        rows = [(one.what, one.before, one.after, ", ".join(one.of)) for one in review.settings]
        yield Grid(("SETTING", "BEFORE", "AFTER", "OF"), rows, "setting", "that change")


def _refused(review: Review) -> Iterator[Block]:
    if review.refusals:
        yield Heading("Refused by the preview")
        for text in review.refusals:
            yield Quoted(text)
        yield Line("A preview ends with its refusals: what it did not come to is not known.")


def money_lines(review: Review) -> Iterator[str]:
    """One statement each: now, if kept, by this change, idle."""
    money = review.money
    least = " (at least: some prices or times are not on record)" if money.incomplete else ""
    yield f"now: ${spell_rate(money.per_hour)} an hour; ${money.so_far:.2f} so far{least}"
    yield f"if kept as it is: ${money.per_day:.2f} a day, ${money.per_month:.2f} a month"
    if review.refusals:
        yield "what the change would cost or save is not known: its preview is refused"
    else:
        at_least = " at least" if money.unknown else ""
        yield f"this change {_by_this(money)}; after it: ${spell_rate(money.after)} an hour{at_least}"
    if review.makes:
        more = f" and {len(review.makes) - NAMED} more" if review.makes[NAMED:] else ""
        seen = ", as far as its preview went" if review.refusals else ""
        yield f"it makes {', '.join(review.makes[:NAMED])}{more}{seen}"
    yield from (f"not known before it is rented: {text}" for text in money.unknown)
    yield (
        f"idle: ${spell_rate(money.idle)} an hour buys no training now"
        if money.idle
        else "idle: nothing is paid for a box without work"
    )
    if money.at_the_end is not None:
        yield f"about ${money.at_the_end:.2f} in all when the last cell is through, if nothing changes"
    yield from money.lines


def _by_this(money: Money) -> str:
    parts = [f"adds ${spell_rate(money.adds)} an hour"] if money.adds else []
    parts += [f"saves ${spell_rate(money.saves)} an hour"] if money.saves else []
    if money.volumes:
        parts.append(f"{'adds' if money.volumes > 0 else 'saves'} ${abs(money.volumes):.2f} a month for volumes")
    return " and ".join(parts) or ("has no known price" if money.unknown else "leaves the price as it is")


def _approvals(review: Review) -> Iterator[Block]:
    approvals, now = review.live.approvals, review.live.snapshot.now
    if not approvals:
        yield Line("No approval is on record, and none is in the stack file.")
        return
    yield Grid(
        ("BY", "FOR", "RECEIPT", "GIVEN", "UNTIL", "WHERE"),
        [
            (
                one.by,
                ", ".join(one.actions[:NAMED])
                + (f" and {len(one.actions) - NAMED} more" if one.actions[NAMED:] else ""),
                one.approval.receipt or "none",
                f"{one.approval.at:%Y-%m-%d %H:%M} UTC",
                f"{one.approval.expires:%Y-%m-%d %H:%M} UTC" + (", EXPIRED" if one.approval.expires <= now else ""),
                one.where,
            )
            for one in approvals
        ],
        "approval",
    )
    given = [f"{_GIVEN_UP[cell.state]} {cell.name}: {cell.reason}" for one in approvals for cell in one.given_up]
    if given:
        yield Listing(given, "waiver")


_GIVEN_UP = {"waived": "waived: cell", "abandoned": "ABANDONED:", "let go": "let go: unclaimed files on"}


def _facts(review: Review) -> Iterator[Block]:
    if not review.facts:
        yield Line("None." if review.irreversible else "None: nothing is destroyed, so no fact is relied on.")
        return
    yield Listing(
        [
            fact.words + (f"; accepted on {fact.accepted}" if fact.accepted else "; NOT accepted" if fact.stale else "")
            for fact in review.facts
        ],
        "fact",
    )


def _more(review: Review) -> Iterator[Block]:
    lines = [
        *(f"could not tell: {text}" for text in review.problems),
        *(f"the state is not as things are: {text}" for text in review.live.unknown),
        *(f"the preview warns: {text}" for text in review.warnings if not _told(review, text)),
        *(f"note: {text}" for text in review.live.notes if not _told(review, text)),
    ]
    if lines:
        yield Heading("Also")
        yield Listing(list(dict.fromkeys(lines)), "note")


def _told(review: Review, text: str) -> bool:
    """Whether it says no more than what stands above of a box that is gone, or that this change rents."""
    return any(gone.startswith(text) for gone in review.away) or any(
        text.startswith(f"{made} is in the stack file and not rented") for made in review.makes
    )


def _and(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _named(endings: Sequence[PlannedEnd]) -> str:
    names = ", ".join(one.shown for one in endings[:NAMED])
    return names + (f" and {len(endings) - NAMED} more" if endings[NAMED:] else "")


FOLD = 12
"""A list of more is folded in a comment and on a page."""


@dataclass(frozen=True)
class Heading:
    """The title of a section."""

    text: str


@dataclass(frozen=True)
class Line:
    """One statement. `strong`: it decides whether a person may go on."""

    text: str
    strong: bool = False


@dataclass(frozen=True)
class Listing:
    """Statements below each other. `noun`: what one of them is, for a list that is folded."""

    items: Sequence[str]
    noun: str


@dataclass(frozen=True)
class Grid:
    """A table; its first column holds names. `noun`: what a row is; `of`: which ones they are, as the caption says."""

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    noun: str
    of: str = ""


@dataclass(frozen=True)
class Quoted:
    """Another program's words, as they are."""

    text: str


@dataclass(frozen=True)
class Commands:
    """What to type next."""

    lines: Sequence[str]


Block = Heading | Line | Listing | Grid | Quoted | Commands
