"""What a release is called, what it says of itself in CHANGELOG.md, and what is missing yet."""

from __future__ import annotations

import re
from pathlib import Path

from scripts.lib.errors import SetupError

VERSION_FILE = "sweepstack/core/version.py"
_VERSION = re.compile(r'^VERSION = "(.+)"$', re.MULTILINE)
_PLAIN = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
_DATED = re.compile(r"\S+ - \d{4}-\d{2}-\d{2}")


def version(tree: Path) -> str:
    """The version of a tree.

    Raises:
        SetupError: it is none that both Python and the engine read as it is.
    """
    found = _VERSION.search((tree / VERSION_FILE).read_text(encoding="utf-8"))
    if found is None or not _PLAIN.fullmatch(found[1]):
        raise SetupError(f"{VERSION_FILE}: VERSION has to be three numbers, such as 0.1.0")
    return found[1]


def entry(tree: Path, name: str) -> tuple[str, str]:
    """Heading and text of a version's entry in CHANGELOG.md, or of `Unreleased`.

    Raises:
        SetupError: there is none.
    """
    _, *entries = re.split(r"^## ", (tree / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for text in entries:
        heading, _, rest = text.partition("\n")
        if heading.split()[0] == name:
            return heading, rest.strip()
    raise SetupError(f"CHANGELOG.md has no entry {name}")


def missing(tree: Path, tag: str = "") -> list[str]:
    """What keeps this tree from being published under a tag; without a tag, under the one of its version.

    Raises:
        SetupError: as `version` and `entry`.
    """
    number = version(tree)
    found = []
    if tag and tag != f"v{number}":
        found.append(f"the tag is {tag}, and {VERSION_FILE} says {number}")
    if not _DATED.fullmatch(entry(tree, number)[0]):
        found.append(f"CHANGELOG.md: the heading of {number} has no date (## {number} - YYYY-MM-DD)")
    if re.search(r"^- ", entry(tree, "Unreleased")[1], re.MULTILINE):
        found.append(f"CHANGELOG.md: lines under Unreleased are not folded into {number}")
    return found
