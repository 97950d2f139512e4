"""A closed set of words as the schema has it: an enum with a name, in which each word is described."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import WithJsonSchema

WORDS = "words"
"""Where a JSON schema keeps what `choice` was told."""


def choice(name: str, what: str, words: Mapping[str, str]) -> WithJsonSchema:
    """Beside a `Literal`, or a text: `what` it chooses, and what each word means. Validates nothing."""
    return WithJsonSchema({"type": "string", "title": name, "description": what, "enum": list(words), WORDS: words})
