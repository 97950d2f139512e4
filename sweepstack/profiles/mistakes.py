"""Each mistake in a profile's file: its line, its key, what is wrong, and what to write instead.

A check of `profiles.model` words a mistake as `KEY…: what is wrong; what to write`. Behind its last semicolon stands
the fix, before its first colon or space the key.
"""

from __future__ import annotations

import re
import types
import typing
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from sweepstack.config.file import Document, Flaw, Loc
from sweepstack.config.problems import dotted, keyed, shape_at, value_at
from sweepstack.config.secrets import without_secrets
from sweepstack.core.printable import visible
from sweepstack.core.suggest import did_you_mean
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.profiles.model import Profile

_AT_LINE = re.compile(r", line (\d+): (.*)", re.DOTALL)
_FLAWS = {
    "an alias that contains itself": "write the value in its place",
    "expected text as a key": "write a key of letters",
    "this key stands twice in the same mapping": "take one of the two out",
}
_PATTERNS = {
    "path": "write a path below the box's own folder, such as mnt/durable",
    "place": "write a path that begins with / or ~/, such as /root/data; {volume} in it is the mount's source",
    "platform": "write lower-case letters, digits, - and _, a letter first",
    "adapter": "write lower-case letters, digits and _, a letter first",
    "variable": "write the name of a variable, such as VENDOR_API_KEY",
    "host_driver_cuda_max": 'write a version in quotes, such as "12.8", or null',
    "proved": 'write the month as "2026-11", or null',
}
"""What is asked of a text, by the last part of its key."""
_VARIABLE = "write the name of an environment variable, such as HF_HOME"


@dataclass(frozen=True)
class Mistake:
    """One mistake. `key` may be "" where the file is no profile at all; with a wrong value it has that, too."""

    line: int
    key: str
    problem: str
    fix: str

    @property
    def words(self) -> str:
        """In one line."""
        said = f"{self.problem}; {self.fix}"
        return f"line {self.line}  {self.key}  {said}" if self.key else f"line {self.line}  {said}"


class NotHeld(ConfigError):
    """A profile that does not hold, with each mistake in it."""

    def __init__(self, shown: str, mistakes: list[Mistake]) -> None:
        ordered = sorted(dict.fromkeys(mistakes), key=lambda mistake: mistake.line)
        lines = "\n".join(f"  {visible(mistake.words)}" for mistake in ordered)
        super().__init__(
            f"{shown} does not hold:\n\n{lines}", [f"{shown} {visible(mistake.words)}" for mistake in ordered]
        )
        self.mistakes = ordered


def unreadable(shown: str, error: ConfigError) -> NotHeld:
    """The same for a file that is no UTF-8 or no YAML: `error` names the line."""
    text = str(error).removeprefix(shown)
    found = _AT_LINE.match(text)
    line, said = (int(found[1]), found[2]) if found is not None else (1, text.lstrip(", "))
    problem, _, fix = said.partition("; ")
    if not fix:
        fix = "quote the value there, or mend the brackets, colons and indents before it"
    return NotHeld(shown, [Mistake(line, "", problem, fix)])


def of_flaw(flaw: Flaw) -> Mistake:
    """What YAML allows and a profile does not."""
    problem, _, fix = flaw.text.partition(": ")
    if flaw.text.startswith("the tag "):
        problem, fix = flaw.text, "take the tag out"
    return Mistake(flaw.line, dotted(flaw.loc), problem, _FLAWS.get(problem, fix))


def of_sentence(text: str, line: int, key: str = "") -> Mistake:
    """Of `KEY…: what is wrong; what to write`; the key may be given instead."""
    said, _, fix = text.rpartition("; ")
    if not key:
        first, _, said = said.partition(" ")
        key = re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", first.removesuffix(":"))
    return Mistake(line, key, said, fix)


def of_error(error: ValidationError, document: Document) -> list[Mistake]:
    """The mistakes of a front matter that was refused."""
    found = []
    items = error.errors(include_url=False)
    for item in items:
        loc = tuple(part for part in item["loc"] if part != "[key]")
        if item["type"] == "too_short" and any(other["loc"][: len(loc)] == loc != other["loc"] for other in items):
            continue  # what is in it is refused, and so not counted
        if loc:
            found.append(_of_item(item, loc, document))
            continue
        for text in item["msg"].removeprefix("Value error, ").splitlines():  # facts that don't fit together
            found.append(of_sentence(without_secrets(visible(text)), document.line(_key_in(text))))
    return found


def _key_in(sentence: str) -> Loc:
    """The key that a sentence begins with: `verbs.destroy: …`, `danger_clocks.0.kills: …`, `stamps lacks …`."""
    parts = re.split(r"[:\s]", sentence, maxsplit=1)[0].split(".")
    return tuple(int(part) if part.isdigit() else part for part in parts)


def _of_item(item: Any, loc: Loc, document: Document) -> Mistake:
    kind, line = item["type"], document.line(loc)
    if kind == "extra_forbidden":
        known = shape_at(Profile, loc[:-1]).model_fields
        near = did_you_mean(str(loc[-1]), known).removeprefix("; ")
        return Mistake(line, dotted(loc), "unknown key", near or f"take it out; known are: {', '.join(known)}")
    if kind == "missing":
        return Mistake(line, dotted(loc), "is missing", f"add it: {_wanted(_annotation(loc))}")
    if "[key]" in item["loc"]:
        own = kind == "string_pattern_mismatch"
        wanted = _VARIABLE if own else _instead(item, loc)
        return Mistake(line, dotted(loc), "can't be this key", wanted)
    key = keyed(loc, value_at(document.data, loc))
    return Mistake(line, without_secrets(key), _problem(kind), without_secrets(_instead(item, loc)))


def _problem(kind: str) -> str:
    return {"literal_error": "is none of its values", "too_short": "is empty"}.get(kind, "is not what belongs there")


def _instead(item: Any, loc: Loc) -> str:
    """What to write in place of a wrong value."""
    kind, text = item["type"], str(item["msg"])
    if kind == "string_pattern_mismatch":
        return _PATTERNS.get(str(loc[-1]), f"write text of this form: {item['ctx']['pattern']}")
    if kind == "literal_error":
        near = did_you_mean(str(item.get("input")), re.findall(r"'([^']*)'", item["ctx"]["expected"]))
        null = ", or null" if type(None) in typing.get_args(_annotation(loc)) else ""
        return f"write {item['ctx']['expected']}{null}{near}".replace("'", '"')
    if kind == "too_short":
        return "write at least one item, such as those of another profile"
    if text.startswith("expected "):
        return f"write {text.removeprefix('expected ')}"
    return f"write {_wanted(_annotation(loc))}"


def _annotation(loc: Loc) -> Any:
    """The type at a key of a profile."""
    inside: Any = Profile
    for part in loc:
        inside = _bare(inside)
        if isinstance(inside, type) and issubclass(inside, BaseModel):
            field = inside.model_fields.get(str(part))
            inside = field.annotation if field is not None else str
        else:
            arguments = [one for one in typing.get_args(inside) if one is not Ellipsis]
            inside = arguments[-1] if arguments else str
    return inside


def _bare(annotation: Any) -> Any:
    """The annotation without its constraints, and without null."""
    while typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        options = [one for one in typing.get_args(annotation) if one is not type(None)]
        return _bare(options[0]) if len(options) == 1 else annotation
    return annotation


def _wanted(annotation: Any) -> str:
    """A type in words."""
    words = _kind_words(_bare(annotation))
    return f"{words}, or null" if type(None) in typing.get_args(annotation) else words


def _kind_words(bare: Any) -> str:
    origin = typing.get_origin(bare) or bare
    if origin is Literal:
        return " or ".join(f'"{value}"' for value in typing.get_args(bare))
    if isinstance(origin, type) and issubclass(origin, BaseModel):
        needed = [name for name, field in origin.model_fields.items() if field.is_required()]
        return f"keys and values ({', '.join(needed)})" if needed else "keys and values"
    known = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        tuple: "a list, such as [a, b]",
        dict: "keys and values",
    }
    return known.get(origin, "text, in quotes where it is a number or a word such as no")
