"""The package schema, made from the models, so that other languages get typed SDKs and it cannot drift."""

from __future__ import annotations

import json
from typing import Any

from sweepstack.provider.dispatch import HANDLERS, handler_for
from sweepstack.provider.resources.base import Decision


def schema_json(version: str) -> str:
    """The Pulumi package schema as JSON text."""
    types: dict[str, Any] = {}
    resources = {token: _resource(token, types) for token in HANDLERS}
    return json.dumps(
        {
            "name": "sweepstack",
            "version": version,
            "description": "Boxes, queues and teardown gates for sweeps of training runs.",
            "types": types,
            "resources": resources,
        }
    )


def _resource(token: str, types: dict[str, Any]) -> dict[str, Any]:
    handler = handler_for(token)
    inputs = handler.inputs_type.model_json_schema(mode="validation")
    state = handler.state_type.model_json_schema(mode="validation")
    for name, definition in {**inputs.get("$defs", {}), **state.get("$defs", {})}.items():
        types[f"sweepstack:index:{name}"] = _object(definition)
    properties = {name: _property(value) for name, value in inputs["properties"].items()}
    for name, decision in handler.decisions.items():
        if decision in (Decision.REPLACE, Decision.MOVE):
            properties[name]["willReplaceOnChanges"] = True
    return {
        "description": (handler.inputs_type.__doc__ or "").strip(),
        "inputProperties": properties,
        "requiredInputs": inputs.get("required", []),
        "properties": {name: _property(value) for name, value in state["properties"].items()},
        "required": state.get("required", []),
    }


def _object(definition: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": (definition.get("description") or "").strip(),
        "properties": {name: _property(value) for name, value in definition.get("properties", {}).items()},
        "required": definition.get("required", []),
    }


def _property(schema: dict[str, Any]) -> dict[str, Any]:
    """A JSON-schema property in the engine's dialect: no unions with null, no formats, `$ref` by token."""
    if "anyOf" in schema:
        options = [option for option in schema["anyOf"] if option.get("type") != "null"]
        return _property(options[0])
    if "$ref" in schema:
        return {"$ref": f"#/types/sweepstack:index:{schema['$ref'].rsplit('/', 1)[-1]}"}
    kind = schema.get("type")
    if kind == "array":
        return {"type": "array", "items": _property(schema.get("items", {}))}
    if kind == "object":
        extra = schema.get("additionalProperties")
        return {"type": "object", "additionalProperties": _property(extra) if isinstance(extra, dict) else _ANY}
    if kind in ("string", "integer", "number", "boolean"):
        return {"type": kind}
    return dict(_ANY)


_ANY = {"$ref": "pulumi.json#/Any"}
