"""The base class of all handlers: what each resource type answers to the engine.

All verbs are abstract: a default that echoes its inputs would look healthy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, ClassVar, Generic

from sweepstack.core.resources import InputsT, StateT
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import SweepstackError
from sweepstack.platforms.registry import at_addresses
from sweepstack.provider.session import Failure as Failure
from sweepstack.provider.session import Operation


class Decision(Enum):
    """What a change of an input causes."""

    UPDATE = "update"
    """An update in place."""
    REPLACE = "replace"
    """A replace: the old resource is ended first, after the same check as in a destroy."""
    MOVE = "move"
    """An update in place if only the address of the same host changes and the host proves it; else a replace."""
    REFUSE = "refuse"
    """A failure of Check, which says why, and what to do instead."""
    IGNORE = "ignore"
    """Nothing: it is no person's change."""

    def resolved(self, before: object, after: object) -> Decision:
        """What the change from `before` to `after` causes: a MOVE is an UPDATE or a REPLACE, the others are
        themselves."""
        if self is not Decision.MOVE:
            return self
        return Decision.UPDATE if at_addresses(before, after) else Decision.REPLACE


@dataclass
class Checked(Generic[InputsT]):
    """The inputs as they go into the state, and the failures that refuse them."""

    inputs: InputsT
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True)
class Gone:
    """Read's answer when the platform proves that the resource does not exist any more."""


@dataclass(frozen=True)
class ReadAnswer(Generic[InputsT, StateT]):
    """Read's answer. `unhealthy`: reasons to show; with any, the engine asks for an update next time."""

    inputs: InputsT
    state: StateT
    unhealthy: tuple[str, ...] = ()


class Handler(ABC, Generic[InputsT, StateT]):
    """Create, read, update and delete of one resource type.

    `decisions` names every input field once; a test enumerates them. Any method may raise SweepstackError, whose
    message the person reads. `create` and `update` raise StillCreating when the resource exists but is not ready: the
    engine then remembers it and asks again.
    """

    token: ClassVar[str]
    inputs_type: type[InputsT]
    state_type: type[StateT]
    decisions: ClassVar[dict[str, Decision]]
    replaces_before_delete: ClassVar[bool] = False
    refusals: ClassVar[dict[str, str]] = {}
    """Input → why it may not change, for inputs where there is more to say than that."""
    not_in_outputs: ClassVar[frozenset[str]] = frozenset()
    """Inputs that outputs don't repeat: else the engine would carry each of 10,000 cells twice through every step."""

    @abstractmethod
    def check(self, op: Operation, old: InputsT | None, new: InputsT) -> Checked[InputsT]:
        """Completes and judges new inputs. Runs in every preview, but not before a destroy. Changes nothing.

        `old`: the inputs in the state, None for a new resource; the engine (3.259) sends no outputs here.
        """

    def check_early(self, op: Operation, old: dict[str, Any], new: dict[str, Any]) -> list[Failure]:
        """Judges new inputs of which some are not known yet (a preview, before the box exists): what can be refused now
        is refused before anything is rented. `old` is empty for a new resource. Changes nothing."""
        return []

    @abstractmethod
    def create(self, op: Operation, inputs: InputsT) -> tuple[str, StateT]:
        """Makes the resource, or adopts the one that an earlier try made. Returns its id and state. Blocks until it is
        ready. Costs money for a box."""

    @abstractmethod
    def read(self, op: Operation, identifier: str, state: StateT) -> ReadAnswer[InputsT, StateT] | Gone:
        """Looks at the resource. Never raises for an outage: an unknown state is `unhealthy`, so that other teardowns
        go on."""

    def find(self, op: Operation, asked: str) -> ReadAnswer[InputsT, StateT]:
        """Answers `pulumi import`: the resource behind `PLATFORM:ID`, as it goes into the state. Its output `native_id`
        is its id there. Raises SweepstackError, where this type is not imported, too."""
        raise SweepstackError(
            f"{asked} cannot be imported by its id. Next: pulumi up --stack {op.stack}, which finds what this sweep "
            "has by its tag, and adopts it"
        )

    @abstractmethod
    def update(self, op: Operation, identifier: str, old: StateT, new: InputsT) -> StateT:
        """Changes the resource in place, and returns its new state. With unchanged inputs it finishes an unfinished
        create."""

    @abstractmethod
    def delete(self, op: Operation, identifier: str, state: StateT) -> None:
        """Ends the resource, or raises. Returns only when it is proved gone, or kept on purpose. Idempotent."""

    def preview_create(self, op: Operation, inputs: dict[str, Any]) -> None:
        """Refuses a create that can't go through, by raising SweepstackError. The engine asks it for what it would
        really create; some inputs may not be known yet. Changes nothing."""

    def preview_outputs(self, op: Operation, old_outputs: dict[str, Any], news: dict[str, Any]) -> dict[str, Any]:
        """The outputs that an update will have, as far as a preview can know them. Changes nothing."""
        return {**old_outputs, **news}

    def changes(self, old: InputsT, new: InputsT) -> dict[str, Decision]:
        """The inputs that differ, each with what its change causes (never MOVE). Ignored inputs are left out."""
        before = self.comparable(old)
        after = self.comparable(new)
        return {
            name: decision.resolved(before.get(name), after.get(name))
            for name, decision in self.decisions.items()
            if decision is not Decision.IGNORE and before.get(name) != after.get(name)
        }

    def refusal(self, name: str, old: InputsT, new: InputsT) -> str:
        """Why this input may not change, and what to do instead; "" if there is no more to say than that it may not."""
        return self.refusals.get(name, "")

    def noticed(self, old: dict[str, Any], new: dict[str, Any]) -> tuple[str, ...]:
        """Ignored inputs whose change needs an update all the same. Takes raw inputs; raises nothing."""
        return ()

    def comparable(self, value: InputsT) -> dict[str, Any]:
        """The inputs as plain JSON types, to compare them."""
        dumped = value.model_dump(mode="json")
        return {name: dumped.get(name) for name in self.decisions}
