"""Makes the package schema from the models, so that it always agrees with them.

Other languages get typed SDKs from it. What describes the package as a whole comes from the metadata of the installed
distribution, that is from pyproject.toml. The words below each field of a class are read out of its source. They cost
nothing at run time: Python drops them when it compiles the class.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import json
import re
import typing
from collections.abc import Mapping
from importlib.metadata import metadata
from typing import Any, Final

from sweepstack.config.declared import MACHINES
from sweepstack.config.model import SweepConfig
from sweepstack.config.volume_stack import StoreShape
from sweepstack.core.choices import WORDS
from sweepstack.core.functions import READY, SHARES
from sweepstack.core.paths import DOCS_URL
from sweepstack.core.spelling import camel
from sweepstack.core.version import VERSION
from sweepstack.platforms.common.keys import declared
from sweepstack.provider.dispatch import HANDLERS, handler_for
from sweepstack.provider.resources.base import Decision

LANGUAGE: Final = {
    "csharp": {
        "rootNamespace": "Pulumi",
        "packageReferences": {"Pulumi": "3.*"},
        "respectSchemaVersion": True,
    },
    "go": {
        "importBasePath": "github.com/sweepstack/pulumi-sweepstack/sdk/go/sweepstack",
        "generateResourceContainerTypes": True,
        "respectSchemaVersion": True,
    },
    "nodejs": {
        "packageName": "pulumi-sweepstack",
        "dependencies": {"@pulumi/pulumi": "^3.0.0"},
        "respectSchemaVersion": True,
    },
    "python": {
        "packageName": "pulumi_sweepstack",
        "requires": {"pulumi": ">=3.0.0,<4.0.0"},
        "pyproject": {"enabled": True},
        "respectSchemaVersion": True,
    },
}

_PROVIDER: Final = "The keys of platforms. A program that uses two accounts of one has a provider for each."
_SHARES: Final = {
    "description": "Which box is to run which cell, by the evidence and what the boxes say. Changes nothing.",
    "inputs": {
        "description": "The question.",
        "type": "object",
        "properties": {
            "asked": {"type": "string", "description": "whose evidence, which cells, which boxes: JSON text"}
        },
        "required": ["asked"],
    },
    "outputs": {
        "description": "The answer.",
        "type": "object",
        "properties": {"shares": {"type": "string", "description": "box → its cells: JSON text"}},
        "required": ["shares"],
    },
}
_READY: Final = {
    "description": "Internal: answers once the plugin has loaded what resources need. Our program asks it first, so "
    "that the engine starts the plugin while the program is still loading.",
}


_TEXTS: Final = {"type": "object", "additionalProperties": {"type": "string"}}
_BOTH: Final = {
    "identity": {"type": "string", "description": "who it is in its evidence"},
    "evidence": {"type": "string", "description": "where the evidence lies: a path, or the URI of a bucket"},
    "next": {"type": "string", "description": "what to type next"},
}
COMPONENTS: Final[Mapping[str, Any]] = {
    "sweepstack:index:Sweep": {
        "description": "A sweep, one for a stack. Without inputs `sweepstack:sweep` of the stack file describes it. "
        "With inputs the program does, and they stand in `Program.<stack>.yaml` beside the stack file.",
        "properties": {
            **_BOTH,
            "boxes": {**_TEXTS, "description": "box → its id on its platform"},
            "hosts": {
                "type": "object",
                "additionalProperties": {"$ref": "pulumi.json#/Any"},
                "description": "box on a host of one's own → what the host says of itself; absent without one",
            },
        },
        "required": [*_BOTH, "boxes"],
    },
    "sweepstack:index:Store": {
        "description": "The volumes that outlive sweeps, one for a stack. Without inputs `sweepstack:store` of the "
        "stack file describes them. With inputs the program does, as for a `Sweep`.",
        "properties": {
            **_BOTH,
            "volumes": {**_TEXTS, "description": "volume → its id on its platform"},
            "where": {**_TEXTS, "description": "volume → its region"},
            "usdPerMonth": {
                "type": "object",
                "additionalProperties": {"type": "number"},
                "description": "volume → USD per month; absent: unknown",
            },
        },
        "required": [*_BOTH, "volumes", "where", "usdPerMonth"],
    },
}
"""What `components.construct` declares. A BoxGroup is a part of a sweep: no program declares one."""
SHAPES: Final[Mapping[str, Any]] = {"sweepstack:index:Sweep": SweepConfig, "sweepstack:index:Store": StoreShape}
"""Component → the keys of a stack config that are its inputs."""
OF_PARTS: Final = "Internal: a part of `Sweep` and `Store`, which declare it; no program has to."
INTERNAL: Final = frozenset({"sweepstack:index:Identity", "sweepstack:index:Queue", "sweepstack:index:Gate"})


@functools.cache
def schema_json() -> str:
    """Returns the Pulumi package schema as JSON text."""
    types: dict[str, Any] = {}
    resources = {token: _resource(token, types) for token in HANDLERS}
    resources |= {token: _component(token, types) for token in COMPONENTS}
    about = metadata("sweepstack")
    urls = dict(text.split(", ", 1) for text in about.get_all("Project-URL") or ())
    releases = urls.get("Repository", "").replace("https://github.com", "github://api.github.com")
    described = {
        "description": about["Summary"],
        "keywords": (about["Keywords"] or "").split(","),
        "license": about["License-Expression"],
        "homepage": urls.get("Repository"),
        "repository": urls.get("Repository"),
        "pluginDownloadURL": releases,  # the engine fetches the plugin there for programs in other languages
    }
    return json.dumps(
        {
            "name": "sweepstack",
            "displayName": "Sweepstack",
            "publisher": "sweepstack",
            "version": VERSION,
            # A checkout that was set up before its pyproject.toml had them knows none of these, and works.
            **{key: value for key, value in described.items() if value and value != [""]},
            "language": LANGUAGE,
            "config": {"variables": _keys()},
            "provider": {"description": _PROVIDER, "inputProperties": _keys()},
            "types": types,
            "resources": resources,
            "functions": {SHARES: _SHARES, READY: _READY},
        }
    )


def _component(token: str, types: dict[str, Any]) -> dict[str, Any]:
    """A component: its inputs are the keys of a stack config, none of them required, since the stack file may have
    them; what commands write there is no program's."""
    model = SHAPES[token]
    schema = model.model_json_schema(mode="validation")
    _add_types(types, model, schema.get("$defs", {}), of_config=True)
    inputs = _properties(schema, linked(inherited_docs(model)), model.__name__, types)
    return {
        **COMPONENTS[token],
        "isComponent": True,
        "inputProperties": {name: of for name, of in inputs.items() if name not in map(camel, MACHINES)},
        "requiredInputs": [],
    }


def _keys() -> dict[str, Any]:
    """The provider's configuration: the keys that the installed adapters declare."""
    return {
        key.option: {
            "type": "string",
            "secret": True,
            "description": f"The key of an account at {key.opens}. Without it the environment's {key.variable} counts.",
            "defaultInfo": {"environment": [key.variable]},
        }
        for key in sorted(declared().values(), key=lambda key: key.option)
    }


def _resource(token: str, types: dict[str, Any]) -> dict[str, Any]:
    handler = handler_for(token)
    inputs = handler.inputs_type.model_json_schema(mode="validation")
    state = handler.state_type.model_json_schema(mode="validation")
    said = inherited_docs(handler.state_type)
    _add_types(types, handler.state_type, state.get("$defs", {}))
    _add_enums(types, state)
    properties = _properties(inputs, said)
    for name, decision in handler.decisions.items():
        if decision in (Decision.REPLACE, Decision.MOVE):
            properties[camel(name)]["willReplaceOnChanges"] = True
    return {
        "description": (f"{OF_PARTS} " if token in INTERNAL else "") + (inspect.getdoc(handler.inputs_type) or ""),
        "inputProperties": properties,
        "requiredInputs": _required(inputs),
        "properties": _properties(state, said),
        "required": _required(state),
    }


def _add_types(types: dict[str, Any], model: Any, definitions: Mapping[str, Any], *, of_config: bool = False) -> None:
    """Adds to `types` the models that `model` holds, at any depth, each once. A model that is passed as a text has no
    definition. `of_config`: those of a stack config, whose closed sets of words are enums by the name of their key."""
    for name, field in model.model_fields.items():
        if of_config and name in MACHINES:
            continue
        for held in models_in(field.annotation):
            token = f"sweepstack:index:{held.__name__}"
            if token not in types and held.__name__ in definitions:
                definition, said = definitions[held.__name__], inherited_docs(held)
                owner, said = (held.__name__, linked(said)) if of_config else ("", said)
                types[token] = {
                    "type": "object",
                    "description": inspect.getdoc(held) or "",
                    "properties": _properties(definition, said, owner, types),
                    "required": _required(definition),
                }
                _add_types(types, held, definitions, of_config=of_config)


def _add_enums(types: dict[str, Any], schema: Any) -> None:
    """Adds to `types` what is a closed set of words anywhere in a JSON schema (`core.choices`)."""
    if isinstance(schema, list):
        for one in schema:
            _add_enums(types, one)
    elif isinstance(schema, dict) and isinstance(schema.get(WORDS), dict):
        words = [{"value": word, "description": what} for word, what in schema[WORDS].items()]
        known = {"type": "string", "description": schema["description"], "enum": words}
        if types.setdefault(f"sweepstack:index:{schema['title']}", known) != known:
            raise AssertionError(f"two enums are called {schema['title']}")
    elif isinstance(schema, dict):
        for one in schema.values():
            _add_enums(types, one)


def _properties(
    schema: dict[str, Any], said: dict[str, str], owner: str = "", types: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The properties of a model with their descriptions. `said`: field → its description. With an `owner` each closed
    set of words is added to `types` as an enum, called after both."""
    found, said = {}, {camel(name): text for name, text in said.items()}
    for name, value in schema.get("properties", {}).items():
        outside = camel(name)
        of = _property(value)
        if owner and types is not None and (words := _words(value)):
            called = f"{outside[:1].upper()}{outside[1:]}"
            token = f"sweepstack:index:{called}"  # a resource's input may be the same one
            if {word["value"] for word in types.get(token, {}).get("enum", ())} != set(words):
                token = f"sweepstack:index:{owner.removesuffix('Config')}{called}"
                text = said.get(outside, "")
                enum = [{"value": word, "description": meaning(word, words, text)} for word in words]
                types[token] = {"type": "string", "description": text, "enum": enum}
            of = _with_enum(of, {"$ref": f"#/types/{token}"})
        found[outside] = {**of, "description": said[outside]} if outside in said else of
    return found


def _words(schema: dict[str, Any]) -> list[str]:
    """The closed set of words that a value, or each item of a list, is one of."""
    for one in (schema, schema.get("items", {}), *schema.get("anyOf", ())):
        if "enum" in one and WORDS not in one and one.get("type") == "string":
            return list(one["enum"])
    return []


def meaning(word: str, words: list[str], text: str) -> str:
    """What one word means: in the text of its key from its name and a colon to the next such; else the whole text."""
    mark = r"`(?: \(default\))?:"
    others = "|".join(map(re.escape, words))
    found = re.search(rf"`{re.escape(word)}{mark} (.*?)(?=[.;]? `(?:{others}){mark}|$)", text)
    return found[1] if found is not None and len(words) < 6 else text


def _with_enum(of: dict[str, Any], enum: dict[str, Any]) -> dict[str, Any]:
    """A type with an enum in place of its text."""
    if of.get("type") == "string":
        return enum
    if "oneOf" in of:
        return {"oneOf": [_with_enum(one, enum) if one.get("type") == "string" else one for one in of["oneOf"]]}
    return {**of, "items": _with_enum(of["items"], enum)} if "items" in of else of


def linked(said: dict[str, str]) -> dict[str, str]:
    """Descriptions of docs/stack-config.md with links that hold elsewhere, too."""

    def link(found: re.Match[str]) -> str:
        return f"]({DOCS_URL}/{'stack-config.md' if found[1].startswith('#') else ''}{found[1]})"

    return {name: re.sub(r"\]\((?!https?:)([^)\s]+)\)", link, text) for name, text in said.items()}


def _required(schema: Mapping[str, Any]) -> list[str]:
    return [camel(name) for name in schema.get("required", ())]


def _property(schema: dict[str, Any]) -> dict[str, Any]:
    """A JSON-schema property in the engine's dialect: no unions with null, no formats, `$ref` by token."""
    if "anyOf" in schema:
        options = [_property(option) for option in schema["anyOf"] if option.get("type") != "null"]
        return options[0] if len(options) == 1 else {"oneOf": options}
    if WORDS in schema:
        return {"$ref": f"#/types/sweepstack:index:{schema['title']}"}
    if "$ref" in schema:
        return {"$ref": f"#/types/sweepstack:index:{schema['$ref'].rsplit('/', 1)[-1]}"}
    kind = schema.get("type")
    if kind == "array":
        return {"type": "array", "items": _property(schema.get("items", {}))}
    if kind == "object":
        patterns = list(schema.get("patternProperties", {}).values())  # where a key has a form, such as a cell's name
        extra = patterns[0] if patterns else schema.get("additionalProperties")
        return {"type": "object", "additionalProperties": _property(extra) if isinstance(extra, dict) else _ANY}
    if kind in ("string", "integer", "number", "boolean"):
        return {"type": kind}
    return dict(_ANY)


_ANY = {"$ref": "pulumi.json#/Any"}


def attribute_docs(cls: type) -> dict[str, str]:
    """Field → the string that stands below it in the class. Needs the source file, as a wheel has it."""
    (body,) = ast.parse(inspect.cleandoc("\n" + inspect.getsource(cls))).body
    assert isinstance(body, ast.ClassDef)
    return {
        statement.target.id: " ".join(following.value.value.split())
        for statement, following in itertools.pairwise(body.body)
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and isinstance(following, ast.Expr)
        and isinstance(following.value, ast.Constant)
        and isinstance(following.value.value, str)
    }


def inherited_docs(cls: type) -> dict[str, str]:
    """The same, with the fields of the classes of ours that it builds on."""
    found: dict[str, str] = {}
    ours = cls.__module__.partition(".")[0]
    for one in reversed(cls.__mro__):
        if one.__module__.partition(".")[0] == ours:
            found |= attribute_docs(one)
    return found


def models_in(annotation: typing.Any) -> list[typing.Any]:
    """The models that an annotation names: `Box` in `tuple[Box, ...] | None`."""
    if isinstance(annotation, type) and hasattr(annotation, "model_fields"):
        return [annotation]
    return [model for argument in typing.get_args(annotation) for model in models_in(argument)]
