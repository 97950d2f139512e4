"""What the engine would do: the document that `pulumi preview --json` prints.

Only what a review needs is read. What is not understood is kept as a problem: a review that could not read the whole
plan says so, and never that nothing ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sweepstack.core import schema
from sweepstack.core.resources import FIRST_TYPES
from sweepstack.onbox.common.dataclass import dataclass, field

SAME = frozenset({"same", "refresh", "read"})
"""Operations that change nothing."""
ENDING = frozenset({"delete", "replace", "create-replacement", "delete-replaced"})
"""Operations of which an old resource is ended. A replace is a destroy, and a create."""
MAKING = frozenset({"create", "replace", "create-replacement", "import", "import-replacement"})
KNOWN = SAME | ENDING | MAKING | {"update", "read-replacement", "discard", "discard-replaced", "remove-pending-replace"}
_OURS = "sweepstack:index:"
_NOW = {before: now for now, before in FIRST_TYPES.items()}
_PRICE = re.compile(r"^box (\S+): .*\$(\d+(?:\.\d+)?)/h")
"""What the provider says of a box that would be rented (`market.describe`)."""
_INPUT = re.compile(r"[a-z_]+: ")
_FAILED = re.compile(r"^(?:error|warning): (?:\S+ resource '[^']*'[^\n]*? has a problem:\s*)?")


@dataclass(frozen=True)
class Step:
    """One operation. `kind`: Box, Queue, Gate, Volume, Identity, a component, or the whole type of what is not ours."""

    op: str
    urn: str
    kind: str
    name: str
    native_id: str
    old: Mapping[str, Any]
    new: Mapping[str, Any]
    before: Mapping[str, Any]
    """Outputs and inputs of the old resource together."""
    reasons: tuple[str, ...] = ()
    """The inputs whose change makes this step."""

    @property
    def name_of_box(self) -> str:
        """Of a queue or a gate: its box."""
        return str(self.new.get("box_name") or self.before.get("box_name") or self.name)


@dataclass(frozen=True)
class EngineMessage:
    """A line of the engine or the provider. `severity`: info, warning or error; `name`: of which resource."""

    severity: str
    name: str
    text: str


@dataclass(frozen=True)
class EnginePlan:
    """All that would change. `destroy`: it is the plan of a `pulumi destroy`."""

    destroy: bool
    steps: tuple[Step, ...]
    said: tuple[EngineMessage, ...] = ()
    problems: tuple[str, ...] = field(default_factory=tuple)

    @property
    def errors(self) -> tuple[EngineMessage, ...]:
        """Why the preview failed; empty where it went through."""
        return tuple(one for one in self.said if one.severity == "error")

    def of(self, kind: str, ops: frozenset[str] | None = None) -> list[Step]:
        """The steps of one kind of resource, with one of these operations."""
        return [step for step in self.steps if step.kind == kind and (ops is None or step.op in ops)]

    def price_of(self, box: str) -> float | None:
        """USD per hour of a box that would be rented, as the provider says it in the preview."""
        for one in self.said:
            found = _PRICE.match(one.text)
            if found and found[1] == box:
                return float(found[2])
        return None

    @property
    def clearances(self) -> Mapping[str, str]:
        """Box that leaves the program → what the provider's check says of its approval, by the Identity's inputs."""
        for step in self.of("Identity"):
            found = step.new.get("clearances")
            if isinstance(found, Mapping):
                return {str(name): str(words) for name, words in found.items()}
        return {}


def read_plan(document: Any, *, destroy: bool) -> EnginePlan:
    """The plan of a document. Never raises: what it does not understand is in `problems`."""
    problems: list[str] = []
    if not isinstance(document, Mapping):
        return EnginePlan(destroy, (), (), ("the engine's preview is no JSON object",))
    steps = []
    raw = document.get("steps")
    for entry in raw if isinstance(raw, list) else []:
        step = _step(entry)
        if step is None:
            problems.append("a step of the preview can't be read")
        elif step.op not in KNOWN:
            problems.append(f"the preview names an operation that this version does not know: {step.op} {step.urn}")
            steps.append(step)
        elif step.op not in ("refresh", "read") or step.kind == "Identity":
            steps.append(step)
    if not isinstance(raw, list):
        problems.append("the preview names no steps")
    said = tuple(_said(entry) for entry in document.get("diagnostics") or [] if isinstance(entry, Mapping))
    if document.get("maybeCorrupt"):
        problems.append("the engine says that its state may be corrupt")
    return EnginePlan(destroy, tuple(steps), said, tuple(problems))


def preview_refusals(plan: EnginePlan) -> tuple[str, ...]:
    """Why the preview failed: resource and words. A resource that is refused for several of its inputs with the same
    words is named once, with these inputs."""
    found: dict[tuple[str, str], tuple[str, list[str]]] = {}
    for one in plan.errors:
        name, _, words = one.text.partition(": ") if _INPUT.match(one.text) else ("", "", one.text)
        plain = " ".join(words.split())
        key = next((key for key in found if key[0] == one.name and key[1].startswith(plain)), (one.name, plain))
        text, inputs = found.setdefault(key, (one.text, []))
        if text != one.text and name:
            inputs.append(name)
    return tuple(
        (f"{name}: " if name else "") + text + (f"\n\nThe same for {', '.join(inputs)}." if inputs else "")
        for (name, _), (text, inputs) in found.items()
    )


def cells_of(inputs: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the cells in a queue's inputs."""
    found = inputs.get("cells")
    texts = found if isinstance(found, list) else ()
    return tuple(str(cell["name"]) if isinstance(cell, Mapping) else str(cell).partition(" ")[0] for cell in texts)


def _step(entry: Any) -> Step | None:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("op"), str) or not isinstance(entry.get("urn"), str):
        return None
    old, new = schema.mapping(entry.get("oldState")), schema.mapping(entry.get("newState"))
    kind = entry["urn"].split("::")[-2].rsplit("$", 1)[-1] if entry["urn"].count("::") >= 3 else str(new.get("type"))
    before, inputs = schema.entry(old), schema.inputs(new)
    return Step(
        op=entry["op"],
        urn=entry["urn"],
        kind=_NOW.get(kind, kind).removeprefix(_OURS),
        name=str(before.get("name") or inputs.get("name") or entry["urn"].split("::")[-1]),
        native_id=str(before.get("native_id") or old.get("id") or ""),
        old=schema.inputs(old),
        new=inputs,
        before=before,
        reasons=tuple(str(one) for one in entry.get("diffReasons") or entry.get("replaceReasons") or ()),
    )


def _said(entry: Mapping[str, Any]) -> EngineMessage:
    text = _FAILED.sub("", str(entry.get("message", ""))).strip()
    severity = str(entry.get("severity", "info")).removesuffix("#err")
    if severity == "error":
        return EngineMessage(severity, str(entry.get("urn") or "").split("::")[-1], text)
    return EngineMessage(severity, str(entry.get("urn") or "").split("::")[-1], " ".join(text.split()))
