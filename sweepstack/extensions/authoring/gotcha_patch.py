"""A new gotcha as a patch for `git apply`: neither the profile nor the page of failures is written.

It gets a row in docs/failure-modes.md, and its words stand in the platform's profile. Where that is full, or the gotcha
is universal, they stand on the page itself.
"""

from __future__ import annotations

import difflib
import re
import shutil
import tempfile
import textwrap
from pathlib import Path

from sweepstack.extensions.authoring.gotcha_bar import Proposal
from sweepstack.extensions.authoring.gotcha_list import LETTER, PAGE, ROW, UNIVERSAL, letters_of, next_id
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.profiles.load import FOLDER, GOTCHAS, load_profile

WIDTH = 120


def patch(
    platform: str, proposal: Proposal, month: str, *, replaces: str = "", folder: Path = FOLDER, page: Path = PAGE
) -> tuple[str, str]:
    """(id, unified diff). `replaces`: the id of the profile's list whose place it takes. Raises ConfigError where there
    is no place for it, or the profile would not load."""
    if not page.is_file():
        raise ConfigError(f"docs/{page.name} is not there: propose it in a checkout of sweepstack, which has it")
    rows = page.read_text("utf-8")
    if platform == UNIVERSAL:
        new = next_id(LETTER, [rows])
        return new, _of_page(rows, new, proposal, page)
    profile = load_profile(platform, folder)
    ids = [gotcha.id for gotcha in profile.gotchas]
    if replaces and replaces not in ids:
        raise ConfigError(f"profiles/{platform}.md has no gotcha {replaces}; it has {', '.join(ids)}")
    before = (folder / f"{platform}.md").read_text("utf-8")
    new = next_id(letters_of(ids), [before, rows])
    if not replaces and len(ids) + 1 not in GOTCHAS:
        return new, _of_page(rows, new, proposal, page)
    after = _with(before, _wrapped(f"- **{new}** {proposal.text}. ({month})", "  "), ids[-1], replaces)
    _loads(platform, after, new, folder)
    row = _row(rows, new, proposal, f"`profiles/{platform}.md`")
    return new, _diff(before, after, f"profiles/{platform}.md") + _diff(rows, row, f"docs/{page.name}")


def _loads(platform: str, text: str, new: str, folder: Path) -> None:
    """Raises ConfigError where the profile with this text would not load, or not have the gotcha."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch, "profiles")
        shutil.copytree(folder, copy)
        (copy / f"{platform}.md").write_text(text, "utf-8")
        if new not in [gotcha.id for gotcha in load_profile(platform, copy).gotchas]:
            raise ConfigError(f"profiles/{platform}.md: its gotchas don't stand as expected, so no patch was made")


def _with(text: str, entry: str, last: str, replaces: str) -> str:
    """The profile with the entry in place of `replaces`, or behind the last one."""
    found = re.search(rf"^- \*\*{re.escape(replaces or last)}\*\* .+\n(?:(?!- \*\*).+\n)*", text, re.MULTILINE)
    if found is None:
        raise ConfigError(f"the profile has no lines of {replaces or last} as expected, so no patch was made")
    begin = found.start() if replaces else found.end()
    return f"{text[:begin]}{entry}\n{text[found.end() :]}"


def _of_page(rows: str, new: str, proposal: Proposal, page: Path) -> str:
    """The patch that has both, row and words, on the page."""
    told = _wrapped(f"**{new}.** {proposal.text}.", "")
    return _diff(rows, f"{_row(rows, new, proposal, 'this page').rstrip()}\n\n{told}\n", f"docs/{page.name}")


def _row(rows: str, new: str, proposal: Proposal, where: str) -> str:
    """The page with its row, behind the last one with the same letters, else behind the last of all."""
    there = list(ROW.finditer(rows))
    same = [row for row in there if letters_of([row[1]]) == letters_of([new])]
    if not there:
        raise ConfigError("docs/failure-modes.md has no row as expected, so no patch was made")
    at = (same or there)[-1].end()
    what, _, fix = proposal.parts
    return f'{rows[:at]}\n| {new} | {what} | told | {where}: "{fix}" |{rows[at:]}'


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _diff(before: str, after: str, shown: str) -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{shown}", f"b/{shown}"
    )
    return "".join(lines)
