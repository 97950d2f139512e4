"""What a handler of one resource type answers to. All verbs are abstract: a default that echoes looks healthy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Generic

from sweepstack.platforms.registry import at_addresses
from sweepstack.provider.models import InputsT, StateT
from sweepstack.provider.session import Failure as Failure
from sweepstack.provider.session import Operation


class Decision(Enum):
    """What a changed input does."""

    UPDATE = "update"
    """In place."""
    REPLACE = "replace"
    """The old one is ended first, and so passes the same check as a destroy."""
    MOVE = "move"
    """In place where only the address of the same host changes, once that is proved; any other change replaces."""
    REFUSE = "refuse"
    """Never: Check says why and what to do instead."""
    IGNORE = "ignore"
    """Not the person's doing; no reason for anything."""

    def resolved(self, before: object, after: object) -> Decision:
        """What this very change does: a MOVE is an UPDATE or a REPLACE, all others are themselves."""
        if self is not Decision.MOVE:
            return self
        return Decision.UPDATE if at_addresses(before, after) else Decision.REPLACE


@dataclass
class Checked(Generic[InputsT]):
    """Inputs as they go into the state, or why they don't."""

    inputs: InputsT
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True)
class Gone:
    """Read's answer when the platform proves that the thing is no more."""


@dataclass(frozen=True)
class Seen(Generic[InputsT, StateT]):
    """Read's answer. `unhealthy`: reasons to show, and to be asked for an update next time."""

    inputs: InputsT
    state: StateT
    unhealthy: tuple[str, ...] = ()


class Handler(ABC, Generic[InputsT, StateT]):
    """CRUD of one resource type.

    `decisions` names every input field once; a test enumerates them. Any method may raise SweepstackError, whose
    message the person reads. `create` and `update` raise StillCreating when the thing exists but is not ready: the
    engine then remembers it and asks again.
    """

    token: ClassVar[str]
    inputs_type: type[InputsT]
    state_type: type[StateT]
    decisions: ClassVar[dict[str, Decision]]
    replaces_before_delete: ClassVar[bool] = False
    refusals: ClassVar[dict[str, str]] = {}
    """Input → why it may not change, where there is more to say than that it may not."""
    not_in_outputs: ClassVar[frozenset[str]] = frozenset()
    """Inputs that outputs don't repeat: the engine would carry every one of 10,000 cells twice through each step."""

    @abstractmethod
    def check(self, op: Operation, old: InputsT | None, new: InputsT) -> Checked[InputsT]:
        """Completes and judges new inputs. Runs in every preview; not before a destroy. Changes nothing.

        `old` are the inputs in the state: the engine (3.259) sends no outputs here.
        """

    def check_early(self, op: Operation, old: dict[str, Any], new: dict[str, Any]) -> list[Failure]:
        """Judges new inputs of which some are not known yet (a preview, before the box exists): what can be refused
        now is refused before anything is rented. `old` is empty for a new resource. Changes nothing."""
        return []

    @abstractmethod
    def create(self, op: Operation, inputs: InputsT) -> tuple[str, StateT]:
        """Makes the thing, or adopts the one that an earlier try made. Costs money for a box. Blocks until ready."""

    @abstractmethod
    def read(self, op: Operation, identifier: str, state: StateT) -> Seen[InputsT, StateT] | Gone:
        """Looks. Never raises for an outage: unknown is `unhealthy`, so that other teardowns go on."""

    @abstractmethod
    def update(self, op: Operation, identifier: str, old: StateT, new: InputsT) -> StateT:
        """Changes in place. With unchanged inputs it is a probe that finishes an unfinished create."""

    @abstractmethod
    def delete(self, op: Operation, identifier: str, state: StateT) -> None:
        """Ends it, or raises. Returns only when it is proved gone, or kept on purpose. Idempotent."""

    def foreseen(self, op: Operation, old_outputs: dict[str, Any], news: dict[str, Any]) -> dict[str, Any]:
        """The outputs that an update will have, as far as a preview can tell. Changes nothing."""
        return {**old_outputs, **news}

    def changes(self, old: InputsT, new: InputsT) -> dict[str, Decision]:
        """The inputs that differ, with what each difference does (no MOVE any more); ignored ones left out."""
        before = self.comparable(old)
        after = self.comparable(new)
        return {
            name: decision.resolved(before.get(name), after.get(name))
            for name, decision in self.decisions.items()
            if decision is not Decision.IGNORE and before.get(name) != after.get(name)
        }

    def refusal(self, name: str, old: InputsT, new: InputsT) -> str:
        """Why this input may not change, and the way out; empty where there is no more to say than that it may not."""
        return self.refusals.get(name, "")

    def noticed(self, old: dict[str, Any], new: dict[str, Any]) -> tuple[str, ...]:
        """Ignored inputs that differ in a way that asks for an update all the same. Raw inputs; raises nothing."""
        return ()

    def comparable(self, value: InputsT) -> dict[str, Any]:
        """The inputs of either side as plain JSON types."""
        dumped = value.model_dump(mode="json")
        return {name: dumped.get(name) for name in self.decisions}
