"""Turns the engine's requests into calls of the handlers, and property values into typed models.

No other module does that. In a preview some values are unknown, before the box exists, and no model can be made. Then
Check asks only `check_early` and returns the inputs as they are, and Diff compares what is known.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from sweepstack.core import schema
from sweepstack.core.paths import docs_page
from sweepstack.evidence.publish import succession_problem
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import SweepstackError, WrongAccount
from sweepstack.provider.configuration import wrong_account
from sweepstack.provider.details import Kind, details, differs
from sweepstack.provider.resources.base import Checked, Decision, Failure, Gone, Handler, ReadAnswer
from sweepstack.provider.session import Operation, token_of
from sweepstack.provider.wire import UNKNOWN, holds_unknown

HANDLERS: Final[Mapping[str, str]] = {
    "sweepstack:index:Identity": "sweepstack.provider.resources.identity:IdentityHandler",
    "sweepstack:index:Volume": "sweepstack.provider.resources.volume:VolumeHandler",
    "sweepstack:index:Box": "sweepstack.provider.resources.box:BoxHandler",
    "sweepstack:index:Queue": "sweepstack.provider.resources.queue:QueueHandler",
    "sweepstack:index:Gate": "sweepstack.provider.resources.gate:GateHandler",
}
_loaded: dict[str, Handler[Any, Any]] = {}


def handler_for(token: str) -> Handler[Any, Any]:
    """The handler of a resource type, imported on first use. Raises SweepstackError for an unknown type."""
    if token not in HANDLERS:
        raise SweepstackError(f"sweepstack has no resource type {token}; it has {', '.join(HANDLERS)}")
    if token not in _loaded:
        module, _, name = HANDLERS[token].partition(":")
        _loaded[token] = getattr(importlib.import_module(module), name)()
    return _loaded[token]


@dataclass(frozen=True)
class Difference:
    """The answer to Diff: the inputs that changed, those of them that cause a replace, whether the old resource is
    deleted before the new one is created, and what changed inside of these inputs."""

    changed: tuple[str, ...]
    replaces: tuple[str, ...]
    delete_before_replace: bool
    details: tuple[tuple[str, Kind], ...] = ()


def check(op: Operation, old_inputs: dict[str, Any], news: dict[str, Any]) -> tuple[dict[str, Any], list[Failure]]:
    """Returns the completed inputs, and all failures at once."""
    handler = handler_for(token_of(op.urn))
    unexpected = sorted(set(news) - set(handler.inputs_type.model_fields) - {"__defaults"})
    if unexpected:
        return news, [Failure(name, f"{handler.token} has no input of this name") for name in unexpected]
    news = {key: value for key, value in news.items() if key != "__defaults"}
    for carried in ("live",):
        if carried in handler.inputs_type.model_fields and old_inputs.get(carried) is not None:
            news[carried] = old_inputs[carried]
    if holds_unknown(news):
        if "clearance" in handler.inputs_type.model_fields:
            news["clearance"] = old_inputs.get("clearance", "locked")
        return news, handler.check_early(op, old_inputs, news)
    try:
        new = handler.inputs_type.model_validate(news)
    except ValidationError as error:
        return news, [Failure(_path(item["loc"]), item["msg"]) for item in error.errors()]
    old = _old(handler, old_inputs)
    old, problem = _followed(handler, old, new)
    if problem:
        others = [failure for failure in _refusals(handler, old, new) if failure.property != "evidence"]
        return news, [Failure("evidence", problem), *others]
    checked: Checked[Any] = handler.check(op, old, new)
    refused = _refusals(handler, old, checked.inputs)
    return to_properties(checked.inputs), [*checked.failures, *refused]


def _followed(handler: Handler[Any, Any], old: Any, new: Any) -> tuple[Any, str]:
    """Returns `old` with its evidence where the new inputs have it, and "". If the evidence may not move there, returns
    `old` unchanged and the reason.

    `evidence` may change in one way only: to where `sweepctl pull --to` copied it. The handler then sees no difference,
    and reads the new location, which has everything.
    """
    if old is None or "evidence" not in handler.inputs_type.model_fields or old.evidence == new.evidence:
        return old, ""
    problem = succession_problem(old.evidence, new.evidence, old.identity)
    if problem:
        what = handler.token.rsplit(":", 1)[-1].lower()
        return old, f"may not change once {what} exists, but to where `sweepctl pull --to` brought it: {problem}"
    return old.model_copy(update={"evidence": new.evidence}), ""


def _old(handler: Handler[Any, Any], old_inputs: dict[str, Any]) -> Any:
    """The inputs in the state as a model. None for a new resource, for inputs with unknown values, and for inputs that
    do not validate (a person edited the state)."""
    if not old_inputs or holds_unknown(old_inputs):
        return None
    try:
        return handler.inputs_type.model_validate(old_inputs)
    except ValidationError:
        return None


def _refusals(handler: Handler[Any, Any], old: Any, new: Any) -> list[Failure]:
    if old is None:
        return []
    what = handler.token.rsplit(":", 1)[-1].lower()
    return [
        Failure(
            name,
            handler.refusal(name, old, new) or f"may not change once {what} exists; see {docs_page('resources.md')}",
        )
        for name, decision in handler.changes(old, new).items()
        if decision is Decision.REFUSE
    ]


def diff(op: Operation, old_inputs: dict[str, Any], old_outputs: dict[str, Any], news: dict[str, Any]) -> Difference:
    """Returns which inputs changed, and whether that is a replace. Compares raw values, so that a damaged old state
    raises nothing. Raises WrongAccount where the resource is given to a provider of another account."""
    handler = handler_for(token_of(op.urn))
    if problem := wrong_account(op.session, old_inputs | old_outputs):
        raise WrongAccount(f"{_what(op, handler)}: {problem}")
    changed = [
        name
        for name, decision in handler.decisions.items()
        if decision is not Decision.IGNORE and differs(old_inputs.get(name), news.get(name))
    ]
    changed += handler.noticed(old_inputs, news)
    replaces = [
        name
        for name in changed
        if not old_inputs.get("imported")  # it becomes what the program says of it, as it is
        and handler.decisions[name].resolved(old_inputs.get(name), news.get(name)) is Decision.REPLACE
    ]
    found = [
        part
        for name in changed
        for part in list(details(name, old_inputs.get(name), news.get(name))) or [(name, Kind.UPDATE)]
    ]
    return Difference(tuple(changed), tuple(replaces), handler.replaces_before_delete, tuple(found))


def create(op: Operation, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Returns id and outputs. Costs money for a box. A preview creates nothing: it returns the inputs, with the other
    outputs unknown. Raises SweepstackError."""
    handler = handler_for(token_of(op.urn))
    if op.preview:
        handler.preview_create(op, inputs)
        later = {
            name: UNKNOWN for name in handler.state_type.model_fields if name not in handler.inputs_type.model_fields
        }
        return "", _shown(handler, {**inputs, **later})
    identifier, state = handler.create(op, handler.inputs_type.model_validate(inputs))
    return identifier, _written(handler, state)


def find(op: Operation, asked: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Answers an import (`Handler.find`). Returns id, inputs and outputs. Raises SweepstackError."""
    handler = handler_for(token_of(op.urn))
    found = handler.find(op, asked)
    return found.state.native_id, to_properties(found.inputs), _written(handler, found.state)


def read(
    op: Operation, identifier: str, inputs: dict[str, Any], outputs: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any], tuple[str, ...]] | None:
    """Returns (inputs, outputs, reasons that it is unhealthy), or None when it is proved gone. Raises SweepstackError
    for a state that a newer sweepstack wrote."""
    handler = handler_for(token_of(op.urn))
    _require_known(op, handler, outputs)
    try:
        state = _state(handler, inputs, outputs)
    except ValidationError as error:
        # Returned, not raised: `up` can fix it, and a refresh, which comes before every command, must not fail.
        return inputs, outputs, (_unreadable(op, handler, outputs, error),)
    seen: ReadAnswer[Any, Any] | Gone = handler.read(op, identifier, state)
    if isinstance(seen, Gone):
        return None
    versioned = {schema.KEY: outputs[schema.KEY]} if schema.KEY in outputs else {}
    return to_properties(seen.inputs), _outputs(handler, seen.state) | versioned, seen.unhealthy


def update(
    op: Operation, identifier: str, old_inputs: dict[str, Any], old_outputs: dict[str, Any], news: dict[str, Any]
) -> dict[str, Any]:
    """Returns the outputs after the change; in a preview, those that it will have. Raises SweepstackError."""
    handler = handler_for(token_of(op.urn))
    if op.preview:
        return _shown(handler, handler.preview_outputs(op, old_outputs, news)) | {schema.KEY: schema.STATE}
    new = handler.inputs_type.model_validate(news)
    _require_known(op, handler, old_outputs)
    try:
        state = _state(handler, old_inputs, old_outputs)
    except ValidationError as error:
        state = _mended(op, handler, old_inputs, old_outputs, news, error)
    old, problem = _followed(handler, state, new)
    if problem:
        raise SweepstackError(problem)
    return _written(handler, handler.update(op, identifier, old, new))


def delete(op: Operation, identifier: str, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
    """Ends the resource. Returns when it is proved gone, or kept on purpose; else raises SweepstackError."""
    handler = handler_for(token_of(op.urn))
    _require_known(op, handler, outputs)
    try:
        state = _state(handler, inputs, outputs)
    except ValidationError as error:
        raise SweepstackError(_unreadable(op, handler, outputs, error)) from error
    handler.delete(op, identifier, state)


def to_properties(model: Any) -> dict[str, Any]:
    """A model as JSON types, without the fields that are None: the engine leaves out inputs that were not given,
    too."""
    dumped: dict[str, Any] = model.model_dump(mode="json", exclude_none=True)
    return dumped


def _outputs(handler: Handler[Any, Any], model: Any) -> dict[str, Any]:
    """A state as outputs, without `live`: what Read saw would make every refresh look like a change."""
    return {key: value for key, value in _shown(handler, to_properties(model)).items() if key != "live"}


def _written(handler: Handler[Any, Any], state: Any) -> dict[str, Any]:
    """The outputs of a resource that was just created or updated, with the number of their schema."""
    return _outputs(handler, state) | {schema.KEY: schema.STATE}


def _require_known(op: Operation, handler: Handler[Any, Any], outputs: Mapping[str, Any]) -> None:
    """Raises SweepstackError if a newer sweepstack wrote this state: this version must not overwrite it."""
    why = schema.why_too_new(outputs.get(schema.KEY), schema.STATE)
    if why:
        raise SweepstackError(f"{_what(op, handler)} in the engine's state can't be read here: {why}")


def _unreadable(op: Operation, handler: Handler[Any, Any], outputs: Mapping[str, Any], error: ValidationError) -> str:
    """Says what is wrong with an entry of the state, and which command fixes it. Raises SweepstackError if the entry
    has fields that this version does not know."""
    why = schema.unknown(error)
    if why:
        raise SweepstackError(f"{_what(op, handler)} in the engine's state can't be read here: {why}") from error
    if any(item["loc"][:1] and item["loc"][0] not in handler.inputs_type.model_fields for item in error.errors()):
        way = f"pulumi state delete --stack {op.stack} --target-dependents '{op.urn}' && pulumi up --stack {op.stack}"
        return (
            f"{_what(op, handler)} in the engine's state is damaged: {schema.first(error)}. Next: {way}    (takes the "
            "entry out, and finds what it stood for again by its tag)"
        )
    return (
        f"{_what(op, handler)} in the engine's state is damaged: {schema.first(error)}. Next: "
        f"pulumi up --stack {op.stack}    (writes it again)"
    )


def _mended(
    op: Operation,
    handler: Handler[Any, Any],
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    news: Mapping[str, Any],
    error: ValidationError,
) -> Any:
    """The state, with its damaged inputs taken from the program. Raises SweepstackError if it still does not
    validate."""
    words = _unreadable(op, handler, outputs, error)
    bad = {str(item["loc"][0]) for item in error.errors() if item["loc"]}
    kept = {name: value for name, value in inputs.items() if name not in bad}
    try:
        return _state(handler, {**{name: value for name, value in news.items() if name in bad}, **kept}, dict(outputs))
    except ValidationError:
        raise SweepstackError(words) from error


def _what(op: Operation, handler: Handler[Any, Any]) -> str:
    return f"{handler.token.rsplit(':', 1)[-1]} {op.name}"


def _shown(handler: Handler[Any, Any], outputs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in outputs.items() if name not in handler.not_in_outputs}


def _state(handler: Handler[Any, Any], inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
    """The state as a model: its own outputs, and the inputs as they are now. An input that was taken out of the program
    must not come back from old outputs.

    Raises ValidationError if they do not validate.
    """
    own = {
        name: value
        for name, value in outputs.items()
        if (name not in handler.inputs_type.model_fields or name in _FROM_THE_PLATFORM) and name != schema.KEY
    }
    return handler.state_type.model_validate(own | {k: v for k, v in inputs.items() if not holds_unknown(v)})


_FROM_THE_PLATFORM: Final = frozenset({"price_per_hour"})
"""Inputs that a person may leave out. The platform's value is then in the outputs, and is kept from there."""


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location)
