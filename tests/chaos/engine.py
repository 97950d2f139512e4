"""Plays Pulumi's engine for one stack: refresh, check, diff, create, update, delete; and the state that it would keep.

What it keeps after an accident is what the real one keeps (seen with 3.259): after a provider that died in Create,
nothing; after ErrorResourceInitFailed, the id, outputs and inputs, and the mark that makes the next `up` ask for an
update. `options.refresh: always`: every command reads first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.provider_process import Answer, Died, Provider

STACK = "sweep-x"
SECONDS = {"create": 2.5, "update": 2.0, "delete": 3.0}
"""customTimeouts of the resources. The API's waits are thirty times shorter than real ones."""


@dataclass
class Resource:
    """A resource of the state. `unhealthy`: its last create, update or read said InitFailed."""

    kind: str
    name: str
    id: str
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    unhealthy: bool = False

    @property
    def urn(self) -> str:
        return urn(self.kind, self.name)


@dataclass
class Outcome:
    """What a command came to. `errors`: what a person reads, one for each resource that failed."""

    errors: list[str] = field(default_factory=list)
    died: bool = False
    warnings: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.errors and not self.died


def urn(kind: str, name: str) -> str:
    """`urn:pulumi:<stack>::<project>::<type>::<name>`."""
    return f"urn:pulumi:{STACK}::project::sweepstack:index:{kind}::{name}"


Program = Callable[[Mapping[str, Resource]], dict[str, Any] | None]
"""The inputs of one resource, out of those before it; None while it can't be made (what it needs is not there)."""


class Engine:
    """One stack. `program`: (kind, name, its inputs), in the order in which they depend on each other."""

    def __init__(self, folder: Path, program: Callable[[], list[tuple[str, str, Program]]]) -> None:
        self._file = folder / "state.json"
        self._program = program
        self.state: dict[str, Resource] = {}
        self.delete_seconds = SECONDS["delete"]

    def of(self, kind: str) -> list[Resource]:
        """The state's resources of a kind."""
        return [resource for resource in self.state.values() if resource.kind == kind]

    def up(self, provider: Provider, *, state: dict[str, Resource] | None = None) -> Outcome:
        """`pulumi up`. `state`: another copy, for a second `up` at the same time."""
        outcome = Outcome()
        kept = self.state if state is None else state
        with _Watched(outcome):
            self._refresh(provider, outcome, kept)
            failed = False
            for kind, name, program in self._program():
                news = program(kept)
                if news is None:
                    break
                failed |= not self._step(provider, outcome, kept, kind, name, news)
                if failed and kind == "Identity":
                    break
        self._save()
        return outcome

    def refresh(self, provider: Provider) -> Outcome:
        """`pulumi refresh`."""
        outcome = Outcome()
        with _Watched(outcome):
            self._refresh(provider, outcome, self.state)
        self._save()
        return outcome

    def preview(self, provider: Provider) -> Outcome:
        """`pulumi preview`: as far as it asks the provider. Changes no state."""
        outcome = Outcome()
        kept = dict(self.state)
        with _Watched(outcome):
            self._refresh(provider, outcome, kept)
            for kind, name, program in self._program():
                news = program(kept)
                if news is None:
                    break
                old = kept.get(urn(kind, name))
                checked = provider.ask("check", urn(kind, name), olds=old.inputs if old else {}, news=news)
                outcome.errors += [checked.error] if checked.error else checked.value["failures"]
        return outcome

    def destroy(self, provider: Provider) -> Outcome:
        """`pulumi destroy`: deletes in the opposite order; what something else still needs is left alone."""
        outcome = Outcome()
        with _Watched(outcome):
            self._refresh(provider, outcome, self.state)
            order = ("Gate", "Box", "Identity")
            blocked: set[str] = set()
            for kind in order:
                for resource in self.of(kind):
                    if resource.name in blocked or (kind == "Identity" and blocked):
                        continue
                    done = provider.ask(
                        "delete",
                        resource.urn,
                        self.delete_seconds,
                        id=resource.id,
                        inputs=resource.inputs,
                        outputs=resource.outputs,
                    )
                    if done.error:
                        outcome.errors.append(done.error)
                        blocked.add(resource.name)
                    else:
                        del self.state[resource.urn]
                        self._save()
        self._save()
        return outcome

    def _refresh(self, provider: Provider, outcome: Outcome, kept: dict[str, Resource]) -> None:
        for resource in list(kept.values()):
            seen = provider.ask("read", resource.urn, id=resource.id, inputs=resource.inputs, outputs=resource.outputs)
            if seen.error:
                outcome.errors.append(seen.error)
                raise _Stop
            if seen.value is None:
                del kept[resource.urn]
                continue
            resource.inputs, resource.outputs = seen.value["inputs"], seen.value["outputs"]
            resource.unhealthy = bool(seen.value["unhealthy"])
            outcome.warnings += seen.value["unhealthy"]

    def _step(
        self,
        provider: Provider,
        outcome: Outcome,
        kept: dict[str, Resource],
        kind: str,
        name: str,
        news: dict[str, Any],
    ) -> bool:
        where = urn(kind, name)
        old = kept.get(where)
        checked = provider.ask("check", where, olds=old.inputs if old else {}, news=news)
        if checked.error or checked.value["failures"]:
            outcome.errors += [checked.error] if checked.error else checked.value["failures"]
            return False
        inputs = checked.value["inputs"]
        if old is None:
            made = provider.ask("create", where, SECONDS["create"], inputs=inputs)
            return self._keep(outcome, kept, Resource(kind, name, "", inputs, {}), made)
        found = provider.ask("diff", where, old_inputs=old.inputs, olds=old.outputs, news=inputs)
        if found.error:
            outcome.errors.append(found.error)
            return False
        if found.value["replaces"]:
            assert kind == "Gate", f"{name}: no plan changes what a box is: {found.value}"
            ended = provider.ask(
                "delete", where, self.delete_seconds, id=old.id, inputs=old.inputs, outputs=old.outputs
            )  # deleteBeforeReplace
            if ended.error:
                outcome.errors.append(ended.error)
                return False
            del kept[where]
            made = provider.ask("create", where, SECONDS["create"], inputs=inputs)
            return self._keep(outcome, kept, Resource(kind, name, "", inputs, {}), made)
        if not found.value["changed"] and not old.unhealthy:
            old.inputs = inputs
            return True
        made = provider.ask(
            "update", where, SECONDS["update"], id=old.id, old_inputs=old.inputs, olds=old.outputs, news=inputs
        )
        return self._keep(outcome, kept, Resource(kind, name, old.id, inputs, old.outputs), made)

    def _keep(self, outcome: Outcome, kept: dict[str, Resource], resource: Resource, made: Answer) -> bool:
        if made.failed is not None:
            resource.id, resource.outputs = made.failed["id"], made.failed["outputs"]
            resource.unhealthy = True
            kept[resource.urn] = resource
        elif not made.error:
            resource.id = made.value.get("id", resource.id)
            resource.outputs = made.value["outputs"]
            kept[resource.urn] = resource
        if made.error:
            outcome.errors.append(made.error)
        self._save()
        return not made.error

    def _save(self) -> None:
        """After every step, as the file backend does: no path of this machine is kept but here."""
        self._file.write_text(json.dumps({where: vars(resource) for where, resource in self.state.items()}))


class _Stop(Exception):
    """The command ends here; why is in the outcome."""


class _Watched:
    """Turns the end of the provider, or of the command, into the outcome."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        if kind is Died:
            self._outcome.died = True
        return kind in (Died, _Stop)
