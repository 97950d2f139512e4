"""Reads `profiles/<platform>.md`: YAML front matter and eight sections of prose. No list to edit."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sweepstack.config.file import parse_document
from sweepstack.config.yaml_bounds import read_text
from sweepstack.core.adapters import folder_of, module_of
from sweepstack.core.extensions import not_here
from sweepstack.core.paths import profiles_folder
from sweepstack.core.suggest import did_you_mean
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.profiles.mistakes import Mistake, NotHeld, of_error, of_flaw, of_sentence, unreadable
from sweepstack.profiles.model import Profile
from sweepstack.profiles.prose import read_prose

FOLDER = profiles_folder()
_FENCE = "---"
_ADAPTER = re.compile(r"^adapter: (\w+)$", re.MULTILINE)


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
