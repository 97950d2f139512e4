"""The prose of a profile: its sections, the table of what survives, and the gotchas, with lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from sweepstack.profiles.mistakes import Mistake
from sweepstack.profiles.model import SECTIONS, Gotcha, Profile, Section

GOTCHAS = range(4, 9)
"""So many gotchas may a profile have."""
_HEADING = re.compile(r"^## (.*)$", re.MULTILINE)
_BULLET = re.compile(r"^- (?:\*\*(.*?)\*\* ?)?(.*?)(?=^- |\n\n|\Z)", re.MULTILINE | re.DOTALL)
_ID = re.compile(r"[A-Z]+(?:\d+|-[A-Z]+)")
_DATE = re.compile(r"\((\d{4}-\d{2}|unverified)\)")
_SURVIVES = {True: "yes", False: "no", None: "unknown"}


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
