"""Reads `profiles/<platform>.md`: YAML front matter and eight sections of prose. No list to edit."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sweepstack.config.file import Document, parse_document
from sweepstack.config.problems import dotted, keyed, value_at
from sweepstack.config.secret_rules import without_secrets
from sweepstack.config.yaml_bounds import read_text
from sweepstack.core.paths import PACKAGE, profiles_folder
from sweepstack.core.printable import visible
from sweepstack.core.suggest import did_you_mean
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.profiles.model import SECTIONS, Gotcha, Profile

FOLDER = profiles_folder()
ADAPTERS = PACKAGE / "platforms"
_FENCE = "---"
_HEADING = re.compile(r"^## (\d+)\. (.+)$", re.MULTILINE)
_ID = re.compile(r"[A-Z]+(?:\d+|-[A-Z]+)")
_GOTCHA = re.compile(rf"^- \*\*({_ID.pattern})\*\* (.+?)(?=^- \*\*|\Z)", re.MULTILINE | re.DOTALL)
_ADAPTER = re.compile(r"^adapter: (\w+)$", re.MULTILINE)
GOTCHAS = range(4, 9)


def platforms(folder: Path = FOLDER) -> list[str]:
    """The platforms that have a profile, sorted."""
    return sorted(path.stem for path in folder.glob("*.md") if not path.stem.isupper() and path.is_file())


@cache
def load_profile(name: str, folder: Path = FOLDER) -> Profile:
    """The profile of a platform. Raises ConfigError with file, line and every mistake. Reads one file, once."""
    path = folder / f"{name}.md"
    if not path.is_file():
        known = platforms(folder)
        if path.exists():
            raise ConfigError(f"profiles/{path.name} can't be read: it is no file. Put it back from the repository")
        raise ConfigError(f"there is no profile of {name!r}{did_you_mean(name, known)}; there are: {', '.join(known)}")
    shown = f"profiles/{path.name}"
    head, body, body_line = _split(read_text(path, shown), shown)
    document = parse_document(head, shown, first_line=2)
    made = {"unavailable": _unavailable(document.data.get("adapter"), folder)}
    problems = [f"line {flaw.line}  {'.'.join(map(str, flaw.loc))}  {flaw.text}" for flaw in document.flaws]
    sections, gotchas, found = _prose(body, body_line)
    problems += found
    try:
        profile = Profile.model_validate({**document.data, "sections": sections, "gotchas": gotchas, **made})
    except ValidationError as error:
        problems += _described(error, document)
        raise _refused(shown, problems) from None
    if profile.platform != name:
        problems.append(f"line {document.line(('platform',))}  platform  is {profile.platform}, the file says {name}")
    if problems:
        raise _refused(shown, problems)
    return profile


def load_profiles(names: Iterable[str], folder: Path = FOLDER) -> dict[str, Profile]:
    """The profiles of these platforms, by name. A broken profile that was not asked for breaks nothing."""
    return {name: load_profile(name, folder) for name in names}


def _unavailable(adapter: Any, folder: Path) -> str:
    """Why nothing can be had through `adapter`; looks for its module and imports none: the program knows no API."""
    if not isinstance(adapter, str) or (ADAPTERS / adapter / "platform.py").is_file():
        return ""
    found = {
        name: _ADAPTER.search((folder / f"{name}.md").read_text(encoding="utf-8", errors="replace"))
        for name in platforms(folder)
    }
    there = [
        name for name, said in found.items() if said is not None and (ADAPTERS / said[1] / "platform.py").is_file()
    ]
    return (
        f"its boxes are reached through the adapter {adapter}, which is not available yet in this version; "
        f"candidates that are: {', '.join(there) or 'none'}"
    )


def _refused(shown: str, problems: list[str]) -> ConfigError:
    lines = "\n".join(f"  {problem}" for problem in problems)
    return ConfigError(f"{shown} does not hold:\n\n{lines}", [f"{shown} {problem}" for problem in problems])


def _split(text: str, shown: str) -> tuple[str, str, int]:
    """Front matter, prose, and the line at which the prose begins."""
    lines = text.splitlines()
    if not lines or lines[0] != _FENCE or _FENCE not in lines[1:]:
        raise ConfigError(f"{shown}, line 1: expected YAML between two lines of {_FENCE}")
    end = lines.index(_FENCE, 1)
    return "\n".join(lines[1:end]), "\n".join(lines[end + 1 :]), end + 2


def _described(error: ValidationError, document: Document) -> list[str]:
    described = []
    for item in error.errors(include_url=False):
        loc = tuple(part for part in item["loc"] if part != "[key]")
        text = item["msg"].removeprefix("Value error, ")
        if not loc:  # several facts that don't fit together: each begins with the key that it is about
            described += [f"line {document.line(_key_in(line))}  {visible(line)}" for line in text.splitlines()]
            continue
        key = dotted(loc)
        if item["type"] == "extra_forbidden":
            text = f"unknown key{did_you_mean(str(loc[-1]), Profile.model_fields)}"
        elif item["type"] != "missing" and "[key]" not in item["loc"]:
            key = keyed(loc, value_at(document.data, loc))
        described.append(f"line {document.line(loc)}  {key}  {without_secrets(text)}")
    return described


def _key_in(problem: str) -> tuple[str, ...]:
    """The key that a sentence begins with: `verbs.destroy: …`, `stamps lacks …`."""
    return tuple(re.split(r"[:\s]", problem, maxsplit=1)[0].split("."))


def _prose(body: str, first_line: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[str]]:
    """Sections, gotchas, and what is wrong with them."""
    headings = list(_HEADING.finditer(body))
    problems = []
    sections = []
    for index, heading in enumerate(headings):
        end = headings[index + 1].start() if index + 1 < len(headings) else len(body)
        text = body[heading.end() : end].strip()
        sections.append({"title": heading[2], "text": text})
        if not text:
            problems.append(f"line {_line(body, heading, first_line)}  section {heading[1]} is empty")
    found = tuple(heading[2] for heading in headings)
    numbers = [int(heading[1]) for heading in headings]
    if found != SECTIONS or numbers != list(range(1, len(SECTIONS) + 1)):
        expected = ", ".join(f"{number}. {title}" for number, title in enumerate(SECTIONS, 1))
        line = _line(body, headings[0], first_line) if headings else first_line
        problems.append(f"line {line}  expected the sections {expected}, in this order")
        return sections, [], problems
    gotchas = [Gotcha(id=m[1], text=" ".join(m[2].split())) for m in _GOTCHA.finditer(sections[6]["text"])]
    line = _line(body, headings[6], first_line)
    bullets = re.findall(r"^- \*\*(.*?)\*\*", sections[6]["text"], re.MULTILINE)
    problems += [
        f"line {line}  {odd}: expected an id such as ID1 or ID-DANGER" for odd in bullets if not _ID.fullmatch(odd)
    ]
    ids = [gotcha.id for gotcha in gotchas]
    if len(gotchas) not in GOTCHAS:
        problems.append(
            f"line {line}  expected 4 to 8 gotchas (`- **ID1** symptom → cause → fix`), found {len(gotchas)}"
        )
    if len(set(ids)) != len(ids):
        twice = sorted({name for name in ids if ids.count(name) > 1})
        problems.append(f"line {line}  two gotchas have the same id: {', '.join(twice)}")
    problems += [f"line {line}  {g.id}: expected symptom → cause → fix" for g in gotchas if g.text.count("→") != 2]
    return sections, [gotcha.model_dump() for gotcha in gotchas], problems


def _line(body: str, match: re.Match[str], first_line: int) -> int:
    return body.count("\n", 0, match.start()) + first_line
