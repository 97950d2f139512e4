"""Which boxes and volumes a plan ends or stops, what dies with each, and what its check says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sweepstack.core.roster import in_order
from sweepstack.onbox.common import box_layout
from sweepstack.review.live import Live, LiveBox, open_cells
from sweepstack.review.model import Ending
from sweepstack.review.plan import ENDING, Plan, Step

_REPLACES = frozenset({"replace", "create-replacement", "delete-replaced"})


def endings(plan: Plan, live: Live) -> tuple[Ending, ...]:
    """Each box and volume once, by name: boxes that end, volumes that end, boxes that stop."""
    return (
        *sorted((_box(plan, live, step) for step in _ended(plan, "Box")), key=_by_name),
        *sorted((_volume(plan, live, step) for step in _ended(plan, "Volume") if _ends_it(live, step)), key=_by_name),
        *sorted(_stops(plan, live), key=_by_name),
    )


def _by_name(one: Ending) -> tuple[list[tuple[int, str]], str]:
    return in_order(one.name), one.native_id


def unlocked(plan: Plan) -> tuple[str, ...]:
    """The boxes and volumes that this change clears, and does not end: a destroy may end them from then on."""
    return tuple(
        f"{step.kind.lower()} {step.name}"
        for kind in ("Box", "Volume")
        for step in sorted(plan.of(kind, frozenset({"update"})), key=lambda step: step.name)
        if _cleared(step.new) and not _cleared(step.old)
    )


def _cleared(inputs: Mapping[str, Any]) -> bool:
    return str(inputs.get("clearance")).startswith("cleared")


def left_behind(plan: Plan, live: Live) -> tuple[str, ...]:
    """The volumes that leave the state, and survive with all that is on them."""
    return tuple(_left(live, step) for step in _ended(plan, "Volume") if not _ends_it(live, step))


def _ended(plan: Plan, kind: str) -> list[Step]:
    """The last step of each resource of this kind that ends: a replace has three. A step that does not say what it ends
    counts, too, unless another one says it."""
    found = {(step.urn, step.native_id): step for step in plan.of(kind, ENDING)}
    named = {urn for urn, native_id in found if native_id}
    return [step for (urn, native_id), step in found.items() if native_id or urn not in named]


def _verb(plan: Plan, step: Step) -> str:
    same = {one.op for one in plan.steps if one.urn == step.urn}
    return "replaced" if step.op in _REPLACES or same & {"replace", "create-replacement"} else "destroyed"


def _box(plan: Plan, live: Live, step: Step) -> Ending:
    box = live.box(step.native_id, step.name)
    known: dict[str, Any] = {"what": "box", "verb": _verb(plan, step), "name": step.name, "native_id": step.native_id}
    if box is None:
        facts = _mapping(step.before.get("teardown"))
        return Ending(
            **known,
            platform=str(step.before.get("platform") or step.before.get("adapter") or "?"),
            dies=tuple(facts.get("kills") or ("all that is on it",)),
            survives=tuple(facts.get("keeps") or ()),
            why=("it was not seen: look again",),
        )
    said = plan.clearances.get(box.name, "") if not plan.destroy and step.op == "delete" else ""
    leaves = said.startswith("cleared")
    cleared = box.allowed or leaves
    return Ending(
        **known,
        platform=box.platform,
        dies=box.kills,
        survives=tuple(_tiers(box, box.keeps)),
        lost=tuple(open_cells(box.cells)),
        cells=len(box.cells),
        cleared=cleared,
        way=(box.way or "") if box.allowed else "the approval that this change brings" if leaves else "",
        why=() if cleared else tuple(_why(plan, box, said)),
        gone=box.exists == "gone",
        unclaimed=box.unclaimed,
        in_no_copy=box.in_no_copy,
        by_hand=box.by_hand,
        next=() if cleared else _next(plan, live, box),
    )


def _why(plan: Plan, box: LiveBox, said: str) -> Iterator[str]:
    """The reasons of the check; and that the stack file has an approval that a destroy does not see yet."""
    if plan.destroy and box.proposed:
        yield "approved in the stack file, which no `pulumi up` has brought into the state yet"
        return
    if said and said != "locked":
        yield said.removeprefix("locked (").removesuffix(")")
        return
    yield from (box.proposed_reasons if box.proposed is False else box.reasons) or ("not approved",)


def _next(plan: Plan, live: Live, box: LiveBox) -> tuple[str, ...]:
    if plan.destroy and box.proposed:
        return (f"pulumi up --stack {live.stack}    (clears the boxes; then review again)",)
    if plan.destroy or not box.next:
        return box.next
    stack, waits = live.stack, any(cell.state in ("running", "pending") for cell in box.cells)
    wait = f"sweepctl wait --stack {stack} --for done && " if waits else ""
    return (f"{wait}sweepctl pull --verify --stack {stack} && sweepctl approve --stack {stack} --box {box.name}",)


def _tiers(box: LiveBox, tiers: tuple[str, ...]) -> Iterator[str]:
    """A tier that survives, with the volume that it is, where it is one."""
    for tier in tiers:
        volume = box.mounts.get(f"mnt/{tier}") or (box.mounts.get(box_layout.DURABLE) if tier == "durable" else None)
        yield f"{tier} (volume {volume})" if volume else tier


def _ends_it(live: Live, step: Step) -> bool:
    """Whether a delete of this volume deletes what is on it. A stack that does not keep it never does. A step that does
    not say whose it is counts as an end."""
    if step.before:
        return bool(step.before.get("guarded"))
    volume = live.volume(step.native_id)
    return volume is None or volume.guarded


def _volume(plan: Plan, live: Live, step: Step) -> Ending:
    """A volume that this stack keeps. Its verdict is by the approval in the stack file. A destroy has only the one in
    the state, so there the state has to call it cleared, too."""
    volume = live.volume(step.native_id)
    why = ("it was not seen: look again",) if volume is None else volume.reasons
    cleared = volume is not None and volume.allowed
    if cleared and plan.destroy and not _cleared(step.before):
        cleared, why = False, ("approved in the stack file, which no `pulumi up` has brought into the state yet",)
    used = ", ".join(volume.users) if volume is not None else ""
    return Ending(
        what="volume",
        verb="replaced" if step.op in _REPLACES else "destroyed",
        name=step.name,
        native_id=step.native_id,
        platform=volume.platform if volume else str(step.before.get("adapter") or "?"),
        dies=(f"all that is on it (used by {used})" if used else "all that is on it",),
        cleared=cleared,
        way=(volume.way or "") if volume else "",
        why=() if cleared else why or ("not approved",),
        gone=volume is not None and volume.way == "gone",
        next=() if cleared else (f"sweepctl finish --stack {live.stack}    (approve, up, destroy)",),
    )


def _left(live: Live, step: Step) -> str:
    volume = live.volume(step.native_id)
    if volume is None:
        return f"volume {step.name} ({step.native_id})"
    if volume.kept:
        return f"volume {volume.name} ({volume.native_id}): the stack that keeps it goes on keeping it"
    cost = "its price is not known" if volume.usd_per_month is None else f"${volume.usd_per_month:.2f} a month"
    costs = cost if volume.usd_per_month else "costs nothing" if volume.usd_per_month == 0 else cost
    end = f"sweepctl audit --end {volume.platform}:{volume.native_id}"
    return f"volume {volume.name} ({volume.native_id}) at {volume.location}: {costs}; `{end}` ends it"


def _stops(plan: Plan, live: Live) -> Iterator[Ending]:
    """Boxes that are to run no more, and that are kept. The preview itself refuses a stop that is not approved."""
    for step in plan.of("Box", frozenset({"update"})):
        if step.new.get("want") != "stopped" or step.old.get("want", "running") == "stopped":
            continue
        box = live.box(step.native_id, step.name)
        facts = _mapping(_mapping(step.new.get("teardown")).get("stop"))
        kills = box.stop_kills if box else tuple(facts.get("kills") or ())
        yield Ending(
            what="box",
            verb="stopped",
            name=step.name,
            native_id=step.native_id,
            platform=box.platform if box else str(step.before.get("adapter") or "?"),
            dies=kills,
            survives=tuple(_tiers(box, box.stop_keeps)) if box else tuple(facts.get("keeps") or ()),
            cleared=not plan.errors,
            way="the preview, which refuses a stop that kills what is nowhere else" if not plan.errors else "",
            why=() if not plan.errors else ("the preview failed",),
            gone=box is not None and box.exists == "gone",
            clocks=box.clocks if box else "",
        )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
