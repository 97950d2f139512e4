"""New stamps for a profile, as a patch that a person applies; the profile is never written."""

from __future__ import annotations

import difflib
import re
import shutil
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from sweepstack.extensions.authoring.box_answers import FactAnswer
from sweepstack.onbox.common.errors import ConfigError, SweepstackError
from sweepstack.profiles.load import load_profile


class NoStamps(SweepstackError):
    """Why nothing is proposed."""


def propose(profile: Path, answers: Sequence[FactAnswer], day: date, *, proved_live: bool) -> str:
    """A unified diff against the profile, for `git apply`; "" when nothing changes.

    A fact gets a stamp only where all answers to it agree. `proved_live`: the whole loop was played. Raises NoStamps
    where the profile can't be changed so: its lines are not as expected, or it would not load.
    """
    before = profile.read_text("utf-8")
    after = _changed(before, stamped(answers), day, proved_live)
    if after == before:
        return ""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(profile.parent, Path(folder, "profiles"))
        Path(folder, "profiles", profile.name).write_text(after, "utf-8")
        try:
            load_profile(profile.stem, Path(folder, "profiles"))
        except ConfigError as error:
            raise NoStamps(f"with the new stamps {profile.name} would not load: {error}") from error
    shown = f"profiles/{profile.name}"
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{shown}", f"b/{shown}"
    )
    return "".join(lines)


def stamped(answers: Sequence[FactAnswer]) -> list[str]:
    """The facts that may have a new stamp: answered whole, and contradicted by no other answer."""
    wrong = {answer.fact for answer in answers if answer.verdict == "contradicted"}
    return sorted({answer.fact for answer in answers if answer.stamped} - wrong)


def _changed(text: str, facts: Sequence[str], day: date, proved_live: bool) -> str:
    head, fence, body = text.removeprefix("---\n").partition("\n---\n")
    if not text.startswith("---\n") or not fence:
        raise NoStamps("the profile has no head between two lines of ---")
    month = f"{day:%Y-%m}"
    if proved_live:
        head = _replace(head, r"^proved_live: .*$", f"proved_live: {month}")
    for fact in facts:
        if fact == "own_key":
            head = _replace(head, r"^(own_key: \{.*\bproved: )[^},]+", rf"\g<1>{month}")
            continue
        head = _replace(head, rf"^(  {re.escape(fact)}: )[\w-]+$", rf"\g<1>{month}", below="stamps")
        head = _source(head, fact, f'"a live run of {day:%Y-%m-%d} asked a box"')
    return f"---\n{head}{fence}{body}"


def _block(head: str, name: str) -> tuple[int, int]:
    """Where the indented lines below a key begin and end."""
    match = re.search(rf"^{name}:\n((?:  .*(?:\n|\Z))+)", head, re.MULTILINE)
    if match is None:
        raise NoStamps(f"the profile's head has no lines below {name}:")
    return match.span(1)


def _replace(head: str, pattern: str, new: str, below: str = "") -> str:
    begin, end = _block(head, below) if below else (0, len(head))
    part, count = re.subn(pattern, new, head[begin:end], flags=re.MULTILINE)
    if count != 1:
        raise NoStamps(f"the profile's head has {count} lines like {pattern}")
    return head[:begin] + part + head[end:]


def _source(head: str, fact: str, source: str) -> str:
    begin, end = _block(head, "sources")
    part, line = head[begin:end], f"  {fact}: {source}"
    old = re.compile(rf"^  {re.escape(fact)}: .*$", re.MULTILINE)
    part = old.sub(lambda _: line, part) if old.search(part) else f"{part.rstrip(chr(10))}\n{line}\n"
    return head[:begin] + part + head[end:]
