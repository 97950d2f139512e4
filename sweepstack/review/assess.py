"""Makes the review of a plan and of what is there. Pure: the same documents give the same review.

Which boxes and volumes a plan ends or stops, what dies with each, and what its check says; what the sweep costs now,
what it will if it is kept, and what this change adds or saves; and each change of the engine's diff in words: what is
made, and every setting before and after.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sweepstack.billing.balance import MONTH_HOURS
from sweepstack.billing.deadlines import starting
from sweepstack.billing.stray import end_command
from sweepstack.config.policy import Policy, parse_policy
from sweepstack.config.secrets import is_secret_value, without_given
from sweepstack.core.policy_text import NONE, PolicyText, read_copy
from sweepstack.core.roster import in_order
from sweepstack.core.schema import mapping
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.canonical import digest_of
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.onbox.common.units import spell_rate
from sweepstack.review.cell_changes import NOTHING, cell_changes, compared, first_words, value_text
from sweepstack.review.digest import BY_ITSELF, FREE, change_digest, changed_inputs
from sweepstack.review.live import Live, LiveFact
from sweepstack.review.model import MAY_GO_ON, MAY_NOT, UNTOLD, Money, PlannedEnd, Review, SettingChange
from sweepstack.review.plan import ENDING, MAKING, SAME, EnginePlan, Step, preview_refusals
from sweepstack.status.snapshot import BoxSnapshot
from sweepstack.teardown.policy_strictness import stricter, weaker
from sweepstack.teardown.refusal import give_up, sure_first

NAMED = 4
"""So many are named in one line; the others are counted."""


def assess(plan: EnginePlan, live: Live, *, expected: str = "", request: bool = False) -> Review:
    """The review. `expected`: the digest that an earlier review had; another one may not go on. `request`: a merge
    brings the change about, and not a person."""
    ends = endings(plan, live)
    digest = None if plan.errors else change_digest(plan, live, ends)
    problems = (*plan.problems, *live.problems)
    against = tuple(_against(plan, ends, digest, expected))
    code = MAY_NOT if against else UNTOLD if problems else MAY_GO_ON
    base, file = live.rosters.get("base"), live.rosters.get("file")
    review = Review(
        live=live,
        destroy=plan.destroy,
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
        changes=cell_changes(plan, live),
        base_changes=tuple(compared(base, file)) if base is not None and file is not None else (),
        money=money_of(plan, live, ends),
        facts=tuple(_facts(live, ends)),
        refusals=preview_refusals(plan),
        warnings=tuple(dict.fromkeys(one.text for one in plan.said if one.severity == "warning")),
        problems=problems,
        expected=expected,
    )
    return replace(review, next=tuple(sure_first(_next(review, request))))


def _against(plan: EnginePlan, ends: tuple[PlannedEnd, ...], digest: str | None, expected: str) -> Iterator[str]:
    if expected and digest is not None and expected != digest:
        yield f"the change is another one now: {digest}, and {expected} was reviewed"
    locked: dict[tuple[str, str], list[PlannedEnd]] = {}
    for one in ends:
        if one.irreversible and not one.cleared:
            locked.setdefault((one.verb, "; ".join(one.why)), []).append(one)
    for (verb, why), group in locked.items():
        names = ", ".join(f"{one.what} {one.name}" for one in group[:NAMED])
        more = f" and {len(group) - NAMED} more" if group[NAMED:] else ""
        yield f"{names}{more} would be {verb}, and {'is' if len(group) == 1 else 'are'} not cleared: {why}"
    for said in plan.errors[:1]:
        others = len(preview_refusals(plan)) - 1
        more = f" (and {others} more)" if others else ""
        yield f"the preview is refused{more}: {first_words(said.text)}"


def _away(live: Live, ends: tuple[PlannedEnd, ...]) -> Iterator[str]:
    """Boxes that are gone from their platform, and the cells that went with them."""
    for box in live.snapshot.box_snapshots:
        entry = box.box
        if box.gone and not any(one.native_id == entry.native_id for one in ends):
            lost = [cell.name for cell in live.view.cells if cell.box == entry.name and cell.state == "lost"]
            named = ", ".join(lost[:NAMED]) + (f" and {len(lost) - NAMED} more" if lost[NAMED:] else "")
            cells = f"; lost with it, and run again: {named}" if lost else "; no cell is lost with it"
            yield f"box {entry.name} ({entry.native_id}) is gone from {entry.rented_from}{cells}"


def _facts(live: Live, ends: tuple[PlannedEnd, ...]) -> Iterator[LiveFact]:
    """The facts that what can't be undone relies on."""
    for fact in live.facts:
        leaning = {
            "volume" if one.what == "volume" else "stop" if one.verb == "stopped" else "destroy"
            for one in ends
            if one.irreversible and one.platform == fact.platform
        }
        if leaning & set(fact.leans):
            yield fact


def _next(review: Review, request: bool) -> Iterator[str]:
    live, stack = review.live, review.live.view.stack
    if review.code == MAY_GO_ON and not (review.destroy or request or review.lines or review.settings):
        # An `up` would change nothing.
        boxes = dict.fromkeys(command for box in live.snapshot.box_snapshots for command in live.next_of(box))
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


_REPLACES = frozenset({"replace", "create-replacement", "delete-replaced"})


def endings(plan: EnginePlan, live: Live) -> tuple[PlannedEnd, ...]:
    """Each box and volume once, by name: boxes that end, volumes that end, boxes that stop."""
    return (
        *sorted((_box(plan, live, step) for step in _ended(plan, "Box")), key=_by_name),
        *sorted((_volume(plan, live, step) for step in _ended(plan, "Volume") if _ends_it(live, step)), key=_by_name),
        *sorted(_stops(plan, live), key=_by_name),
    )


def _by_name(one: PlannedEnd) -> tuple[list[tuple[int, str]], str]:
    return in_order(one.name), one.native_id


def unlocked(plan: EnginePlan) -> tuple[str, ...]:
    """The boxes and volumes that this change clears, and does not end: a destroy may end them from then on."""
    return tuple(
        f"{step.kind.lower()} {step.name}"
        for kind in ("Box", "Volume")
        for step in sorted(plan.of(kind, frozenset({"update"})), key=lambda step: step.name)
        if _cleared(step.new) and not _cleared(step.old)
    )


def _cleared(inputs: Mapping[str, Any]) -> bool:
    return str(inputs.get("clearance")).startswith("cleared")


def left_behind(plan: EnginePlan, live: Live) -> tuple[str, ...]:
    """The volumes that leave the state, and survive with all that is on them."""
    return tuple(_left(live, step) for step in _ended(plan, "Volume") if not _ends_it(live, step))


def _ended(plan: EnginePlan, kind: str) -> list[Step]:
    """The last step of each resource of this kind that ends: a replace has three. A step that does not say what it ends
    counts, too, unless another one says it."""
    found = {(step.urn, step.native_id): step for step in plan.of(kind, ENDING)}
    named = {urn for urn, native_id in found if native_id}
    return [step for (urn, native_id), step in found.items() if native_id or urn not in named]


def _verb(plan: EnginePlan, step: Step) -> str:
    same = {one.op for one in plan.steps if one.urn == step.urn}
    return "replaced" if step.op in _REPLACES or same & {"replace", "create-replacement"} else "destroyed"


def _box(plan: EnginePlan, live: Live, step: Step) -> PlannedEnd:
    box = live.box(step.native_id, step.name)
    known: dict[str, Any] = {"what": "box", "verb": _verb(plan, step), "name": step.name, "native_id": step.native_id}
    if box is None:
        facts = mapping(step.before.get("teardown"))
        return PlannedEnd(
            **known,
            platform=str(step.before.get("platform") or step.before.get("adapter") or "?"),
            dies=tuple(facts.get("kills") or ("all that is on it",)),
            survives=tuple(facts.get("keeps") or ()),
            why=("it was not seen: look again",),
        )
    said = plan.clearances.get(box.box.name, "") if not plan.destroy and step.op == "delete" else ""
    leaves, ends, issue = said.startswith("cleared"), box.box.teardown, box.box.teardown.issue
    verdict = box.verdict
    cleared = verdict.allowed or leaves
    return PlannedEnd(
        **known,
        platform=box.box.rented_from,
        dies=ends.kills,
        survives=tuple(_tiers(box, ends.keeps)),
        lost=live.open_cells_of(box),
        cells=len(verdict.cells),
        cleared=cleared,
        way=(verdict.way or "") if verdict.allowed else "the approval that this change brings" if leaves else "",
        why=() if cleared else tuple(_why(plan, box, said)),
        gone=box.gone,
        unclaimed=verdict.unclaimed.words if verdict.unclaimed else "",
        in_no_copy=live.in_no_copy.get(box.box.name, ""),
        by_hand=(issue.manual or issue.native) if issue is not None and issue.by == "person" else "",
        next=() if cleared else _next_of_box(plan, live, box),
    )


def _why(plan: EnginePlan, box: BoxSnapshot, said: str) -> Iterator[str]:
    """The reasons of the check; and that the stack file has an approval that a destroy does not see yet."""
    if plan.destroy and box.proposed and box.proposed.allowed:
        yield "approved in the stack file, which no `pulumi up` has brought into the state yet"
        return
    if said and said != "locked":
        yield said.removeprefix("locked (").removesuffix(")")
        return
    by_file = box.proposed if box.proposed and not box.proposed.allowed else box.verdict
    yield from by_file.reasons or ("not approved",)


def _next_of_box(plan: EnginePlan, live: Live, box: BoxSnapshot) -> tuple[str, ...]:
    stack, ways = live.view.stack, live.next_of(box)
    if plan.destroy and box.proposed and box.proposed.allowed:
        return (f"pulumi up --stack {stack}    (clears the boxes; then review again)",)
    if plan.destroy or not ways:
        return ways
    waits = any(cell.state in ("running", "pending") for cell in live.cells_of(box))
    wait = f"sweepctl wait --stack {stack} done && " if waits else ""
    return (f"{wait}sweepctl pull --verify --stack {stack} && sweepctl approve --stack {stack} --box {box.box.name}",)


def _tiers(box: BoxSnapshot, tiers: tuple[str, ...]) -> Iterator[str]:
    """A tier that survives, with the volume that it is, where it is one."""
    for tier in tiers:
        mounts = box.box.mounts
        volume = mounts.get(f"mnt/{tier}") or (mounts.get(box_layout.DURABLE) if tier == "durable" else None)
        yield f"{tier} (volume {volume})" if volume else tier


def _ends_it(live: Live, step: Step) -> bool:
    """Whether a delete of this volume deletes what is on it. A stack that does not keep it never does. A step that does
    not say whose it is counts as an end."""
    if step.before:
        return bool(step.before.get("guarded"))
    volume = live.volume(step.native_id)
    return volume is None or bool(volume.entry.guarded)


def _volume(plan: EnginePlan, live: Live, step: Step) -> PlannedEnd:
    """A volume that this stack keeps. Its verdict is by the approval in the stack file. A destroy has only the one in
    the state, so there the state has to call it cleared, too."""
    volume = live.volume(step.native_id)
    why = ("it was not seen: look again",) if volume is None else volume.reasons
    cleared = volume is not None and volume.allowed
    if cleared and plan.destroy and not _cleared(step.before):
        cleared, why = False, ("approved in the stack file, which no `pulumi up` has brought into the state yet",)
    used = ", ".join(volume.users) if volume is not None else ""
    return PlannedEnd(
        what="volume",
        verb="replaced" if step.op in _REPLACES else "destroyed",
        name=step.name,
        native_id=step.native_id,
        platform=volume.entry.adapter if volume else str(step.before.get("adapter") or "?"),
        dies=(f"all that is on it (used by {used})" if used else "all that is on it",),
        cleared=cleared,
        way=(volume.way or "") if volume else "",
        why=() if cleared else why or ("not approved",),
        gone=volume is not None and volume.way == "gone",
        next=() if cleared else (f"sweepctl finish --stack {live.view.stack}    (approve, up, destroy)",),
    )


def _left(live: Live, step: Step) -> str:
    volume = live.volume(step.native_id)
    if volume is None:
        return f"volume {step.name} ({step.native_id})"
    entry, per_month = volume.entry, volume.entry.price_per_month
    named = f"volume {entry.name} ({entry.native_id})"
    if entry.kept:
        return f"{named}: the stack that keeps it goes on keeping it"
    unknown = "its price is not known" if per_month is None else "costs nothing"
    costs = f"${per_month:.2f} a month" if per_month else unknown
    return f"{named} at {entry.location}: {costs}; `{end_command(entry.adapter, entry.native_id)}` ends it"


def _stops(plan: EnginePlan, live: Live) -> Iterator[PlannedEnd]:
    """Boxes that are to run no more, and that are kept. The preview itself refuses a stop that is not approved."""
    for step in plan.of("Box", frozenset({"update"})):
        if step.new.get("want") != "stopped" or step.old.get("want", "running") == "stopped":
            continue
        box = live.box(step.native_id, step.name)
        facts = mapping(mapping(step.new.get("teardown")).get("stop"))
        stop = box.box.teardown.stop if box else None
        yield PlannedEnd(
            what="box",
            verb="stopped",
            name=step.name,
            native_id=step.native_id,
            platform=box.box.rented_from if box else str(step.before.get("adapter") or "?"),
            dies=(stop.kills if stop else ()) if box else tuple(facts.get("kills") or ()),
            survives=tuple(_tiers(box, stop.keeps if stop else ())) if box else tuple(facts.get("keeps") or ()),
            cleared=not plan.errors,
            way="the preview, which refuses a stop that kills what is nowhere else" if not plan.errors else "",
            why=() if not plan.errors else ("the preview failed",),
            gone=box is not None and box.gone,
            clocks=starting(box.box.teardown.clocks, live.snapshot.now) if box else "",
        )


def money_of(plan: EnginePlan, live: Live, endings: tuple[PlannedEnd, ...]) -> Money:
    """The figures. What a new box costs is what the preview says, else what the stack file says, else unknown."""
    adds, saves, unknown = 0.0, 0.0, []
    for step in _made(plan):
        price = _price(plan, step)
        if price is None:
            most = step.new.get("max_price")
            unknown.append(
                f"{step.name}: {f'at most ${spell_rate(most)}/h' if isinstance(most, int | float) else 'not known'}"
            )
        adds += price or 0.0
    for one in endings:
        box = live.box(one.native_id, one.name) if one.what == "box" and not one.gone else None
        if box is None:
            continue
        price = box.price_per_hour
        stop = box.box.teardown.stop
        left = 0.0 if one.verb != "stopped" else stop.price_per_hour if stop else None
        if price is None or left is None:
            unknown.append(f"{one.name}: what it saves is not known")
        saves += max((price or 0.0) - (left or 0.0), 0.0) if left is not None else 0.0
    for step in plan.of("Box", frozenset({"update"})):
        was, price = _number(step.before.get("price_per_hour")), _number(step.new.get("price_per_hour"))
        if step.old.get("want") == "stopped" and step.new.get("want") == "running":
            box = live.box(step.native_id, step.name)
            adds += max((_first(price, was) or 0.0) - ((box.price_per_hour if box else 0.0) or 0.0), 0.0)
        elif step.new.get("want", "running") == "running" and price != _number(step.old.get("price_per_hour")):
            more = (price or 0.0) - (was or 0.0)
            adds, saves = adds + max(more, 0.0), saves + max(-more, 0.0)
        if (bid := _number(step.new.get("bid"))) is not None and bid != _number(step.old.get("bid")):
            unknown.append(f"{step.name}: up to ${spell_rate(bid)}/h by its new bid")
    now, volumes = live.view.meter, live.volumes_per_month
    return Money(
        per_hour=now.per_hour,
        so_far=now.so_far,
        idle=now.idle,
        per_day=now.per_hour * 24 + volumes * 24 / MONTH_HOURS,
        per_month=now.per_hour * MONTH_HOURS + volumes,
        adds=adds,
        saves=saves,
        volumes=_volumes(plan, live, endings),
        unknown=tuple(unknown),
        incomplete=now.incomplete,
        at_the_end=now.projected,
        lines=live.view.money_lines,
    )


def _made(plan: EnginePlan) -> list[Step]:
    """One step for each box that is rented."""
    return list({step.urn: step for step in plan.of("Box", MAKING) if step.new}.values())


def made(plan: EnginePlan) -> tuple[str, ...]:
    """The boxes and volumes that the plan makes: `box box-2`."""
    volumes = {step.urn: step for step in plan.of("Volume", MAKING) if step.new and not step.new.get("kept")}
    boxes = sorted(f"box {step.name}" for step in _made(plan))
    return (*boxes, *(f"volume {step.name}" for step in volumes.values()))


def _price(plan: EnginePlan, step: Step) -> float | None:
    placed: Any = step.new.get("placed")
    told = placed.get("price_per_hour") if isinstance(placed, Mapping) else None
    return _first(plan.price_of(step.name), _number(step.new.get("price_per_hour")), _number(told))


def _volumes(plan: EnginePlan, live: Live, endings: tuple[PlannedEnd, ...]) -> float:
    """USD a month that the plan's volumes add, less those that end."""
    found = 0.0
    for step in {step.urn: step for step in plan.of("Volume", MAKING)}.values():
        size, price = _number(step.new.get("size_gb")), _number(step.new.get("price_per_gb_month"))
        found += 0.0 if step.new.get("kept") else (size or 0.0) * (price or 0.0)
    for step in plan.of("Volume", frozenset({"update"})):
        found += _per_month(step.new, live, step) - _per_month(step.old, live, step)
    for one in endings:
        volume = live.volume(one.native_id) if one.what == "volume" else None
        found -= (volume.entry.price_per_month or 0.0) if volume is not None else 0.0
    return found


def _per_month(inputs: Mapping[str, Any], live: Live, step: Step) -> float:
    """USD a month of a volume by its inputs; its platform's price of a GB where the inputs name none."""
    size, price = _number(inputs.get("size_gb")), _number(inputs.get("price_per_gb_month"))
    volume = live.volume(step.native_id) if price is None else None
    if volume is not None and volume.entry.actual_size_gb and volume.entry.price_per_month is not None:
        price = volume.entry.price_per_month / volume.entry.actual_size_gb
    return 0.0 if inputs.get("kept") else (size or 0.0) * (price or 0.0)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


WORDS: Mapping[str, str] = {
    "account": "account that pays",
    "adapter": "platform's adapter",
    "approval": "approval of its end",
    "artifacts": "artifact",
    "artifacts_digest": "rules of the artifacts, by digest",
    "bid": "bid, USD an hour",
    "box": "native id of the box",
    "box_name": "box",
    "budget": "budget",
    "claims": "what a folder of the host must be",
    "dropped": "dropped cell",
    "evidence": "evidence",
    "generation": "generation of the box",
    "guarded": "a check decides its end",
    "identity": "random name of the sweep",
    "ignore_balance": "rented without enough balance, because",
    "image": "container image",
    "imported": "import by hand",
    "job": "job",
    "job.code": "code, by digest",
    "job.env": "environment variable",
    "job.run": "command of a cell",
    "keep_until": "wanted until",
    "kept": "another stack keeps it",
    "leaving": "approval of the boxes that leave",
    "least_bytes": "least bytes of the artifacts",
    "lease": "lease",
    "links": "link of a mount",
    "list_lag": "seconds in which the platform's list may lack it",
    "max_price": "highest price, USD an hour",
    "metrics": "curve of a cell",
    "mounts": "volume that is mounted at",
    "name": "name",
    "named": "boxes of the stack file",
    "pins": "code of a cell, by digest",
    "placed": "chosen offer",
    "places": "folder of the host",
    "platform": "platform",
    "pods": "what its pods are like",
    "policy": "policy",
    "price_per_gb_month": "price, USD a GB-month",
    "price_per_hour": "price, USD an hour",
    "priority": "what starts first",
    "project": "project",
    "pull_to": "place of the evidence",
    "region": "region",
    "resources": "what is rented",
    "retries": "retry of the cell",
    "roster_digest": "list of cells, by digest",
    "search": "search: space, sampler and bounds",
    "secrets": "secrets by name",
    "size_gb": "size in GB",
    "smoke": "smoke run",
    "sources": "copy to begin from",
    "stack": "stack",
    "teardown": "how it ends",
    "volume": "kept volume",
    "want": "wanted",
    "when_done": "when its queue is drained",
}
"""Input → its words. Those of a field below it are its name, of which each word stands by itself."""
_VERBS = {"create": "makes", "import": "takes in", "update": "changes", "delete": "takes out"}
_KINDS = {
    "Identity": "the name and the evidence of the sweep",
    "Volume": "volume {name}",
    "Box": "box {name}",
    "Queue": "the queue of {name}",
    "Gate": "the gate of {name}",
    "BoxGroup": "the group of {name} in the engine's list",
    "Sweep": "the group of the sweep in the engine's list",
    "Store": "the group of the volumes in the engine's list",
    "pulumi:pulumi:Stack": "the stack itself",
}
_RENTED = (
    "platform",
    "adapter",
    "resources",
    "image",
    "pods",
    "price_per_hour",
    "max_price",
    "bid",
    "placed",
    "lease",
    "budget",
)


def engine_lines(plan: EnginePlan) -> tuple[str, ...]:
    """One line for each operation of the engine's diff, and what the provider says of a resource."""
    steps = dict.fromkeys(
        f"{_VERBS.get(step.op, 'replaces')} {_named(step)}" for step in plan.steps if step.op not in SAME
    )
    said = dict.fromkeys(one.text for one in plan.said if one.severity == "info" and one.name)
    return (*sorted(steps, key=in_order), *sorted(said, key=in_order))


def rented_lines(plan: EnginePlan) -> tuple[str, ...]:
    """What each new box is: platform, GPUs, disk, region, image, price, lease, budget."""
    found: dict[str, list[str]] = {}
    for step in plan.of("Box"):
        if step.op in MAKING and step.new:
            known = {name: step.new[name] for name in _RENTED if step.new.get(name) not in (None, {}, [], "")}
            words = [f"{label}: {value}" for label, value in _flat("Box", {"lease": "none", **known}).items()]
            found.setdefault("; ".join(words), []).append(step.name)
    return tuple(f"rents {', '.join(dict.fromkeys(names))}: {words}" for words, names in found.items())


def setting_changes(plan: EnginePlan) -> tuple[SettingChange, ...]:
    """Every input that changes, before and after, once for all resources that change alike. Different changes give
    different texts, and no change of an input gives none."""
    found: dict[tuple[str, str, str], dict[str, None]] = {}
    for step in plan.steps:
        if step.op in ("delete", "delete-replaced", "refresh", "read"):
            continue
        for what, before, after in _of_step(step):
            late = ", for the next box that is rented" if step.op == "same" and step.kind == "Box" else ""
            found.setdefault((what + late, before, after), {})[_whose(step)] = None
    return tuple(
        SettingChange(*key, tuple(sorted(found[key], key=in_order)))
        for key in sorted(found, key=lambda key: in_order(": ".join(key)))
    )


def _named(step: Step) -> str:
    return _KINDS.get(step.kind, f"{{name}} ({step.kind})").replace("{name}", step.name_of_box)


def _whose(step: Step) -> str:
    return {"Identity": "the sweep", "Volume": f"volume {step.name}"}.get(step.kind, step.name_of_box)


def _of_step(step: Step) -> Iterator[tuple[str, str, str]]:
    changed = changed_inputs(step)
    if "policy" in changed and step.kind in BY_ITSELF:
        yield from _policy(*changed.pop("policy"))
    before, after = (_flat(step.kind, {name: pair[at] for name, pair in changed.items()}) for at in (0, 1))
    for label in {**before, **after}:
        if before.get(label) != after.get(label):
            yield label, before.get(label, NOTHING), after.get(label, NOTHING)


def _flat(kind: str, inputs: Mapping[str, Any]) -> dict[str, str]:
    """Words of each value → its text."""
    return {": ".join(labels): _told(labels[-1], value) for labels, value in _leaves(kind, inputs, "", ())}


def _told(name: str, value: Any) -> str:
    """A value in words. Of what may be a secret, by its name or in it, a digest tells whether it changes."""
    text = value_text(value)
    shown = "…" if is_secret_value(name, str(value)) else without_given(text)
    return text if shown == text else f"{shown} (digest {digest_of(value)[7:15]})"


def _leaves(kind: str, value: Any, path: str, labels: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    entries: Iterable[tuple[str, Any]]
    if isinstance(value, Mapping) and value:
        entries = value.items()
    elif isinstance(value, list | tuple) and any(isinstance(item, Mapping | list | tuple) for item in value):
        entries = [(str(number), item) for number, item in enumerate(value, start=1)]
    else:
        if labels and value is not None:
            yield labels, value
        return
    free = any(path == one or path.startswith(f"{one}.") for one in (*FREE.get(kind, ()), "claims", "retries"))
    for name, item in entries:
        below = name if not path else f"{path}.{name}"
        word = WORDS.get(below) or (value_text(name) if free else name.replace("_", " "))
        yield from _leaves(kind, item, below, (word,) if below in WORDS else (*labels, word))


def _policy(before: Any, after: Any) -> Iterator[tuple[str, str, str]]:
    """A change of the policy by what it means: weaker and stricter rules; and its texts by their digests."""
    old, new = _policy_text(before), _policy_text(after)
    yield "policy, by digest", _digest(old, before), _digest(new, after)
    if old is None or new is None:
        return
    with suppress(SweepstackError):
        was, now = parse_policy(old), parse_policy(new)
        for line in weaker(was, now):
            yield f"policy, WEAKER: {line}", "stricter", "weaker"
        looser = weaker(now, was)
        for key in stricter(was, now):
            if key in Policy.model_fields:
                yield f"policy, stricter: {key.replace('_', ' ')}", _rule(was.rules, key), _rule(now.rules, key)
        for line in (one for one in looser if one.partition(":")[0] not in Policy.model_fields):
            yield f"policy, stricter: {line}, before this change", "weaker", "stricter"


def _rule(rules: Policy, key: str) -> str:
    value = getattr(rules, key)
    return NOTHING if value is None else value_text(value)


def _policy_text(copy: Any) -> PolicyText | None:
    """The policy that binds by this copy; None where it can't be told."""
    if not copy:
        return NONE
    try:
        chains = read_copy(str(copy)).chains
    except ValueError:
        return None
    return chains[0].policy if len(chains) == 1 else None


def _digest(policy: PolicyText | None, copy: Any) -> str:
    return value_text(copy) if policy is None else policy.short if policy != NONE else NOTHING
