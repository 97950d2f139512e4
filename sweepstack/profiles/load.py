"""Reads `profiles/<platform>.md`: YAML front matter and eight sections of prose. No list to edit.

The prose has sections, the table of what survives, and the gotchas, each with its lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sweepstack.config.file import parse_document
from sweepstack.config.yaml_bounds import read_text
from sweepstack.core.extensions import folder_of, module_of, not_here
from sweepstack.core.paths import profiles_folder
from sweepstack.core.suggest import did_you_mean
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.profiles.mistakes import Mistake, NotHeld, of_error, of_flaw, of_sentence, unreadable
from sweepstack.profiles.model import SECTIONS, Gotcha, Profile, Section

FOLDER = profiles_folder()
_FENCE = "---"
_ADAPTER = re.compile(r"^adapter: (\w+)$", re.MULTILINE)

GOTCHAS = range(4, 9)
"""So many gotchas may a profile have."""
_HEADING = re.compile(r"^## (.*)$", re.MULTILINE)
_BULLET = re.compile(r"^- (?:\*\*(.*?)\*\* ?)?(.*?)(?=^- |\n\n|\Z)", re.MULTILINE | re.DOTALL)
_ID = re.compile(r"[A-Z][A-Z0-9]*(?:\d|-[A-Z]+)")
_DATE = re.compile(r"\((\d{4}-\d{2}|unverified)\)")
_SURVIVES = {True: "yes", False: "no", None: "unknown"}


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
    return _read(path, folder, f"profiles/{path.name}")


def mistakes_in(path: Path, shown: str) -> list[Mistake]:
    """What is wrong with the file of a profile, which may lie anywhere; empty where it holds."""
    try:
        _read(path, path.parent, shown)
    except NotHeld as error:
        return error.mistakes
    return []


def _read(path: Path, folder: Path, shown: str) -> Profile:
    """The profile in a file. Raises NotHeld with every mistake."""
    try:
        head, body, body_line = _split(read_text(path, shown), shown)
        document = parse_document(head, shown, first_line=2)
    except ConfigError as error:
        raise error if isinstance(error, NotHeld) else unreadable(shown, error) from error
    made: dict[str, Any] = {"unavailable": _unavailable(document.data.get("adapter"), folder)}
    mistakes = [of_flaw(flaw) for flaw in document.flaws]
    prose = read_prose(body, body_line)
    mistakes += prose.mistakes
    made |= {"sections": prose.sections, "gotchas": prose.gotchas}
    try:
        profile = Profile.model_validate({**document.data, **made})
    except ValidationError as error:
        raise NotHeld(shown, mistakes + of_error(error, document)) from None
    if profile.platform != path.stem:
        line = document.line(("platform",))
        text = f"is {profile.platform}, and the file is called {path.stem}; write {path.stem}, or call the file so"
        mistakes.append(of_sentence(text, line, "platform"))
    if mistakes := [*mistakes, *prose.against(profile)]:
        raise NotHeld(shown, mistakes)
    return profile


def load_profiles(names: Iterable[str], folder: Path = FOLDER) -> dict[str, Profile]:
    """The profiles of these platforms, by name. A broken profile that was not asked for breaks nothing."""
    return {name: load_profile(name, folder) for name in names}


def _unavailable(adapter: Any, folder: Path) -> str:
    """Why nothing can be had through `adapter`; looks for its module and imports none: the program knows no API."""
    if not isinstance(adapter, str) or module_of(adapter) is not None:
        return ""
    found = {
        name: _ADAPTER.search((folder / f"{name}.md").read_text(encoding="utf-8", errors="replace"))
        for name in platforms(folder)
    }
    there = [name for name, said in found.items() if said is not None and module_of(said[1]) is not None]
    others = ", ".join(there) or "none"
    return f"its boxes are reached through {not_here(folder_of(adapter))}; candidates whose adapter is: {others}"


def _split(text: str, shown: str) -> tuple[str, str, int]:
    """Front matter, prose, and the line at which the prose begins."""
    lines = text.splitlines()
    if not lines or lines[0] != _FENCE:
        raise NotHeld(shown, [Mistake(1, "", "it does not begin with facts", f"write {_FENCE} as its first line")])
    if _FENCE not in lines[1:]:
        fix = f"write {_FENCE} on a line of its own behind the last fact"
        raise NotHeld(shown, [Mistake(len(lines), "", "its facts have no end", fix)])
    end = lines.index(_FENCE, 1)
    return "\n".join(lines[1:end]), "\n".join(lines[end + 1 :]), end + 2


@dataclass
class Prose:
    """What stands below the front matter, and what is wrong with it."""

    sections: list[Section] = field(default_factory=list)
    gotchas: list[Gotcha] = field(default_factory=list)
    mistakes: list[Mistake] = field(default_factory=list)
    _lines: list[int] = field(default_factory=list)

    def against(self, profile: Profile) -> Iterator[Mistake]:
        """Where the table of what survives says something else than the facts."""
        if len(self.sections) < 2:
            return
        rows = {
            line.strip("| ").split("|")[0].strip(): (number, [cell.strip() for cell in line.strip("|").split("|")])
            for number, line in enumerate(self.sections[1].text.splitlines(), self._lines[1])
            if line.startswith("|")
        }
        for name, tier in profile.tiers.items():
            said = [
                _SURVIVES[tier.survives.get(verb)] if verb in profile.verbs else "-" for verb in ("stop", "destroy")
            ]
            at, cells = rows.get(name, (self._lines[1], []))
            if cells[2:4] != said:
                row = f"| {name} | … | {said[0]} | {said[1]} | … |"
                problem = "is not as its facts say" if cells else f"has no row of the tier {name}"
                yield Mistake(at, f"section 2. Storage, {name}", problem, f"write the row {row}, or mend the tier")


def read_prose(body: str, first_line: int) -> Prose:
    """The prose of a profile, whose first line is `first_line` of the file."""
    prose = Prose()
    headings = list(_HEADING.finditer(body))
    for index, heading in enumerate(headings):
        end = headings[index + 1].start() if index + 1 < len(headings) else len(body)
        text = body[heading.end() : end]
        title, at = heading[1], first_line + body.count("\n", 0, heading.start())
        prose.sections.append(Section(title=title.partition(". ")[2] or title, text=text.strip()))
        prose._lines.append(at + 1 + text[1:].count("\n", 0, len(text[1:]) - len(text[1:].lstrip())))
        expected = f"{index + 1}. {SECTIONS[index]}" if index < len(SECTIONS) else ""
        if title != expected:
            said = f"write ## {expected}" if expected else f"take it out; a profile has {len(SECTIONS)} sections"
            prose.mistakes.append(Mistake(at, f"## {title}", "is not the section that comes here", said))
            return prose
        if not text.strip():
            fix = "write what is known, with its month, or (unverified)"
            prose.mistakes.append(Mistake(at, f"section {title}", "is empty", fix))
        elif not _DATE.search(text):
            fix = "add the month of its facts, such as (2026-11), or (unverified)"
            prose.mistakes.append(Mistake(at, f"section {title}", "has no date", fix))
    if len(headings) < len(SECTIONS):
        at, missing = first_line + body.count("\n"), len(headings)
        fix = f"add ## {missing + 1}. {SECTIONS[missing]}"
        prose.mistakes.append(Mistake(at, "sections", f"there are {missing} of {len(SECTIONS)}", fix))
        return prose
    _gotchas(prose)
    return prose


def _gotchas(prose: Prose) -> None:
    text, first = prose.sections[6].text, prose._lines[6]
    seen: set[str] = set()
    for bullet in _BULLET.finditer(text):
        name, said = bullet[1] or "", " ".join(bullet[2].split())
        at = first + text.count("\n", 0, bullet.start())
        key = f"gotcha {name}".strip()
        if not _ID.fullmatch(name):
            fix = "write - **ID1** symptom → cause → fix, with an id such as RP1 or AD-DANGER"
            prose.mistakes.append(Mistake(at, key, "has no id of a gotcha", fix))
            continue
        if name in seen:
            prose.mistakes.append(Mistake(at, key, "is the id of two gotchas", "give the later one a new id"))
        if said.count("→") != 2:
            prose.mistakes.append(Mistake(at, key, "is not in three parts", "write symptom → cause → fix"))
        seen.add(name)
        prose.gotchas.append(Gotcha(id=name, text=said))
    if len(prose.gotchas) not in GOTCHAS:
        found, fix = len(prose.gotchas), "write 4 to 8: - **ID1** symptom → cause → fix"
        prose.mistakes.append(Mistake(first, "section 7. Gotchas", f"has {found} gotchas", fix))
