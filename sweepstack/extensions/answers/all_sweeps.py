"""`sweepctl ledger --all`: what all sweeps of a backend cost, what still bills, and who rented.

The sweeps are those whose states the backend has, and those of whose evidence a stack file of this checkout or this
computer knows. Each one's cost comes from the ledger in its evidence, as `sweepctl ledger` counts it. What can't be
read is named, and the sum is then a lower bound.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sweepstack.billing.ledger import Bill, Spent, spent
from sweepstack.billing.stray import Stray
from sweepstack.cli.commands.ledger import open_boxes, proved_gone, saved_by_stops
from sweepstack.cli.commands.results.forms import comma_separated
from sweepstack.cli.output import UNSURE, YES, Out
from sweepstack.cli.progress import Progress
from sweepstack.config.edit.stack_file import SWEEP_KEY
from sweepstack.config.project import project_name
from sweepstack.core.parallel import in_parallel
from sweepstack.evidence.stack_copy import remembered, remembered_stacks
from sweepstack.evidence.store import EvidenceStore
from sweepstack.evidence.sweep_holder import held_elsewhere
from sweepstack.onbox.common.dataclass import dataclass, field, replace
from sweepstack.onbox.common.errors import EvidenceMissing, SweepstackError
from sweepstack.onbox.common.units import count, spell_rate
from sweepstack.operations.strays.known_states import KnownStates, read_known
from sweepstack.operations.strays.other_backends import backend_of
from sweepstack.operations.strays.volumes import leftovers
from sweepstack.status.engine.state import BoxEntry, StackState, last_update

AnswerT = TypeVar("AnswerT")
READ_SECONDS = 120.0
"""For so long the ledgers are read, all at once; one that did not answer then is named."""
MOST_ROWS = 200
"""So many sweeps are printed, those that bill first; `--json` and `--as csv` have all of them."""
FEW = 5
"""Sweeps that are not counted and named one by one."""
NOT_ON_RECORD = "not on record"


@dataclass(frozen=True)
class Part:
    """What some boxes cost: a sweep's, or a person's. `gone`: native ids that are proved gone and have an open bill."""

    found: Spent
    complete: bool
    gone: frozenset[str] = frozenset()

    @property
    def billing(self) -> list[Bill]:
        """Those that bill now, or may."""
        return [bill for bill in self.found.bills if bill.open is not None and bill.native_id not in self.gone]

    @property
    def per_hour(self) -> float:
        return sum(bill.per_hour or 0.0 for bill in self.billing)

    def as_json(self) -> dict[str, Any]:
        return {
            "boxes": len(self.found.bills),
            "hours": round(self.found.hours, 6),
            "usd": round(self.found.usd, 6),
            "complete": self.complete,
            "billing": len(self.billing),
            "per_hour": self.per_hour,
        }

    def texts(self) -> tuple[str, str, str, str]:
        """Boxes, hours, USD and USD an hour, as a table has them."""
        known = any(bill.usd(self.found.at) is not None for bill in self.found.bills) or not self.found.bills
        usd = "?" if not known else f"{'' if self.complete else '≥ '}{self.found.usd:.2f}"
        unpriced = any(bill.per_hour is None for bill in self.billing)
        rate = f"{'≥ ' if unpriced else ''}{spell_rate(self.per_hour)}" if self.billing else ""
        return str(len(self.found.bills)), f"{self.found.hours:.2f}", usd, rate


@dataclass(frozen=True)
class SweepCost:
    """One sweep. `whose`: native id → `user@host` of the `pulumi up` that rented it; `open`: its boxes with an open
    bill; `left`: volumes that outlived them."""

    project: str
    stack: str
    evidence: str
    found: Spent
    whose: Mapping[str, str]
    open: Sequence[BoxEntry] = ()
    left: Sequence[Stray] = ()
    saved: Any = None
    """As `saved_by_stops` returns it."""
    gone: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return f"{self.project}/{self.stack}"

    @property
    def part(self) -> Part:
        return Part(self.found, self.found.complete, self.gone)

    @property
    def people(self) -> list[str]:
        """Who rented its boxes, sorted."""
        return sorted({self.whose.get(bill.native_id, NOT_ON_RECORD) for bill in self.found.bills})

    @property
    def accounts(self) -> list[str]:
        """`platform account` of its boxes, sorted."""
        return sorted({f"{bill.platform} {bill.account}" for bill in self.found.bills})

    @property
    def dates(self) -> tuple[datetime | None, datetime | None]:
        """When its first bill began, and when its last one ended; None while one goes on, and where it is not known."""
        begins = [bill.begin for bill in self.found.bills if bill.begin is not None]
        ends = [bill.ended_at for bill in self.found.bills]
        return min(begins, default=None), max((end for end in ends if end), default=None) if all(ends) else None

    def as_json(self) -> dict[str, Any]:
        first, last = self.dates
        saved = self.saved
        return {
            "project": self.project,
            "stack": self.stack,
            "evidence": self.evidence,
            "who": self.people,
            "accounts": self.accounts,
            **self.part.as_json(),
            "from": first.isoformat() if first else None,
            "to": last.isoformat() if last else None,
            "gone": sorted(self.gone),
            "volumes_left": [volume.as_json("volumes_left") for volume in self.left],
            "saved": None if saved is None else saved.as_json(),
            "problems": list(self.found.problems),
        }


@dataclass
class Everything:
    """What was read. `unknown`: a line for each thing that could not be read; `elsewhere`: a line for
    each sweep that is not counted: another backend holds it, or its evidence is not there any more."""

    sweeps: list[SweepCost] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return not self.unknown and all(sweep.found.complete for sweep in self.sweeps)

    @property
    def whole(self) -> Part:
        """All sweeps together."""
        return _together([(sweep, bill) for sweep in self.sweeps for bill in sweep.found.bills], self.complete)

    @property
    def people(self) -> dict[str, tuple[Part, list[str]]]:
        """Who → what their boxes cost, and the sweeps that these are of; those who cost most come first."""
        mine: dict[str, list[tuple[SweepCost, Bill]]] = {}
        for sweep in self.sweeps:
            for bill in sweep.found.bills:
                mine.setdefault(sweep.whose.get(bill.native_id, NOT_ON_RECORD), []).append((sweep, bill))
        found = {
            who: (_together(both, None), list(dict.fromkeys(sweep.name for sweep, _ in both)))
            for who, both in mine.items()
        }
        return dict(sorted(found.items(), key=lambda one: (-one[1][0].found.usd, one[0])))

    @property
    def saved(self) -> Any:
        """What rules saved in all sweeps, as in one; its USD is None where one sweep's is not known."""
        each = [sweep.saved for sweep in self.sweeps if sweep.saved is not None]
        if not each:
            return None
        usd = [one.usd for one in each]
        total = None if None in usd else sum(one for one in usd if one is not None)
        return replace(each[0], cells=sum(one.cells for one in each), hours=sum(one.hours for one in each), usd=total)


def _together(bills: Sequence[tuple[SweepCost, Bill]], complete: bool | None) -> Part:
    """`complete` None: by these bills and their sweeps' records."""
    at = bills[0][0].found.at if bills else datetime.now(UTC)
    known = all(bill.whole and not sweep.found.problems for sweep, bill in bills) if complete is None else complete
    gone = frozenset(native_id for sweep, _ in bills for native_id in sweep.gone)
    return Part(Spent(tuple(bill for _, bill in bills), at), known, gone)


def report(root: Path, form: str, out: Out) -> int:
    """Prints it. Exit 2: a part is not known. Reads only, costs nothing. Blocks for reads of the backend, then for
    `READ_SECONDS` for the evidence, and for the look at boxes with an open bill."""
    with Progress("reading every state of this backend"):
        backend, known = backend_of(root), read_known(root)
    with Progress("reading ledgers") as progress:
        found = read_all(known, root, backend, progress)
    out.document(document(found, backend))
    if form == "csv":
        sys.stdout.write(table(found))
        for line in [*found.unknown, *found.elsewhere]:
            print(line, file=sys.stderr)
    else:
        render(found, backend, out)
    return YES if found.complete else UNSURE


def read_all(known: KnownStates, root: Path, backend: str, progress: Progress) -> Everything:
    """Reads each ledger. Never raises for one that does not read: it is in `unknown`."""
    found, now = Everything(unknown=list(known.problems)), datetime.now(UTC)
    states = {_full(name, root): state for name, state in known.states.items()}
    stores = {store.objects.uri: store for store in known.stores.values()}
    places = list(dict.fromkeys([*stores, *(uri for stack in remembered_stacks() for uri in remembered(stack))]))
    progress.expect(len(places))

    def ask(uri: str) -> SweepCost | str:
        try:
            store = stores.get(uri) or EvidenceStore.open(uri)
        except EvidenceMissing:
            return f"{uri} is not counted: this computer remembers evidence there, which is not there any more"
        held = held_elsewhere(store, backend)
        full = _name(store)
        if held is not None:
            return f"{full} is not counted: the state in {held.backend} holds it ({store.shown})"
        return _read(store, states.get(full, StackState(stack=store.marker.stack)), now)

    answers = _all_at_once({uri: partial(ask, uri) for uri in places}, progress)
    sweeps = [one for one in answers.values() if isinstance(one, SweepCost)]
    found.elsewhere = [one for one in answers.values() if isinstance(one, str)]
    for uri, answer in answers.items():
        if isinstance(answer, SweepstackError):
            name = _name(stores[uri]) if uri in stores else uri
            found.unknown.append(f"what {name} cost is not known: {answer}")
    there = {one.name for one in sweeps}
    silent = {_full(name, root): name for name, state in known.states.items() if not _has_evidence(state)}
    asked = {full: partial(_without, full, name, root) for full, name in silent.items() if full not in there}
    for full, said in _all_at_once(asked, progress).items():
        found.unknown += [f"what {full} cost is not known: {said}"] if said else []
    gone = proved_gone([box for sweep in sweeps for box in sweep.open])
    of = [replace(one, gone=gone & {bill.native_id for bill in one.found.bills}) for one in sweeps]
    found.sweeps = sorted(of, key=lambda one: (not one.part.billing, -one.found.usd, one.name))
    return found


def _all_at_once(
    tasks: Mapping[str, Callable[[], AnswerT]], progress: Progress
) -> dict[str, AnswerT | SweepstackError]:
    """What each answered, in the order of the tasks; its error for one that failed or did not answer in time."""

    def safely(ask: Callable[[], AnswerT]) -> AnswerT | SweepstackError:
        try:
            return ask()
        except SweepstackError as error:
            return error
        except OSError as error:
            return SweepstackError(str(error))
        finally:
            progress.advance()

    told = in_parallel({key: partial(safely, ask) for key, ask in tasks.items()}, READ_SECONDS)
    late = SweepstackError(f"it did not answer within {READ_SECONDS:.0f} s")
    return {key: told.get(key, late) for key in tasks}


def _has_evidence(state: StackState) -> bool:
    """Whether the state says where its evidence is (then it was read, or a problem says why not), or has volumes
    alone."""
    return state.identity is not None or bool(state.boxes or state.volumes)


def _name(store: EvidenceStore) -> str:
    return f"{store.marker.project}/{store.marker.stack}"


def _full(stack: str, root: Path) -> str:
    """`project/stack` of a stack as the engine lists it: this project's own by its bare name."""
    parts = stack.split("/")
    return "/".join(parts[-2:]) if len(parts) > 1 else f"{project_name(root)}/{stack}"


def _without(full: str, stack: str, root: Path) -> str:
    """Why it is not known what a stack cost whose state is empty and whose evidence was not found; "" where the
    engine's history shows that nothing of it was ever brought up, or that it is no sweep. Raises SweepstackError."""
    last = last_update(stack, root)
    if last is None or (last.get("config") and SWEEP_KEY not in last["config"]):
        return ""
    return "its state is empty, and neither a stack file here nor this computer knows where its evidence is"


def _read(store: EvidenceStore, state: StackState, now: datetime) -> SweepCost:
    """One sweep by its evidence. Raises EvidenceError."""
    births = store.births()
    found = spent(store, now, births)
    lease = store.lease()
    host = f"unknown@{lease.host}" if lease is not None else ""
    whose = {one.native_id: one.by or host for one in births if one.native_id and (one.by or host)}
    return SweepCost(
        project=store.marker.project,
        stack=store.marker.stack,
        evidence=store.objects.uri,
        found=found,
        whose=whose,
        open=open_boxes(state, store, found, births),
        left=leftovers(state, store, births),
        saved=saved_by_stops(store, found),
    )


def document(found: Everything, backend: str) -> dict[str, Any]:
    """The documented shape of `sweepctl ledger --all --json`."""
    saved = found.saved
    return {
        "backend": backend,
        **found.whole.as_json(),
        "saved": None if saved is None else saved.as_json(),
        "sweeps": [sweep.as_json() for sweep in found.sweeps],
        "people": [{"who": who, "sweeps": of, **part.as_json()} for who, (part, of) in found.people.items()],
        "unknown": found.unknown,
        "elsewhere": found.elsewhere,
    }


COLUMNS = ("project", "stack", "who", "accounts", "boxes", "hours", "usd", "complete", "billing", "per_hour")
LATER = ("from", "to", "saved_cells", "saved_hours", "saved_usd", "evidence")


def table(found: Everything) -> str:
    """A line for each sweep, comma-separated, with all digits; several people or accounts with `; ` between them."""

    def row(sweep: dict[str, Any]) -> list[str]:
        saved = sweep["saved"] or {}
        named = {f"saved_{key}": saved.get(key) for key in ("cells", "hours", "usd")}
        values = [(sweep | named)[column] for column in (*COLUMNS, *LATER)]
        return ["" if one is None else "; ".join(one) if isinstance(one, list) else str(one) for one in values]

    return comma_separated((*COLUMNS, *LATER), [row(sweep.as_json()) for sweep in found.sweeps])


def render(found: Everything, backend: str, out: Out) -> None:
    """Prints a table of sweeps and one of people, what is not known, and the sums."""
    shown = found.sweeps[:MOST_ROWS]
    if shown:
        rows = [(one.name, ", ".join(one.people) or "-", *one.part.texts(), *_dates(one)) for one in shown]
        out.table(("SWEEP", "WHO", "BOXES", "HOURS", "USD", "$/H NOW", "FROM", "TO"), rows)
    if more := found.sweeps[MOST_ROWS:]:
        usd = sum(one.found.usd for one in more)
        out.line(f"… and {count(len(more), 'more sweep')}, ${usd:.2f} together: --json and --as csv have all")
    people = found.people
    if len(people) > 1:
        out.table(
            ("WHO", "SWEEPS", "BOXES", "HOURS", "USD", "$/H NOW"),
            [(who, str(len(of)), *part.texts()) for who, (part, of) in people.items()],
        )
    for line in _notes(found):
        out.line(line)
    for line in found.unknown:
        out.line(f"unknown  {line}", style="yellow")
    if found.saved is not None:
        out.line(found.saved.words)
    whole = found.whole
    goes_on = f"; ${spell_rate(whole.per_hour)}/h goes on" if whole.billing else "; nothing in a ledger goes on"
    sums = f"{'' if found.complete else 'at least '}${whole.found.usd:.2f} in {count(len(found.sweeps), 'sweep')}"
    out.line(f"total  {sums} of {backend}, {whole.found.hours:.2f} hours of running boxes{goes_on}", style="bold")
    out.next(_following(found))


def _notes(found: Everything) -> Iterable[str]:
    for sweep in found.sweeps:
        for problem in sweep.found.problems:
            yield f"note   {sweep.name}: {problem}"
        if sweep.gone:
            closes = "`pulumi up` or `pulumi destroy` closes that"
            yield f"note   {sweep.name}: {count(len(sweep.gone), 'box')} gone, and counted until now: {closes}"
        for volume in sweep.left:
            yield f"note   {sweep.name}: volume {volume.name} outlived its boxes: {volume.words}"
    for line in found.elsewhere[:FEW]:
        yield f"note   {line}"
    if (more := len(found.elsewhere) - FEW) > 0:
        yield f"note   {count(more, 'more sweep')} not counted: --json names them"


def _following(found: Everything) -> list[str]:
    billing = [one for one in found.sweeps if one.part.billing]
    words = "(what bills and stands in no state)"
    return [*(f"sweepctl ledger --stack {one.stack}" for one in billing[:1]), f"sweepctl audit    {words}"]


def _dates(sweep: SweepCost) -> tuple[str, str]:
    first, last = sweep.dates
    goes_on = "goes on" if sweep.part.billing else "not closed" if sweep.gone else "?" if sweep.found.bills else ""
    return _day(first) if first else "", _day(last) if last else goes_on


def _day(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d}"
