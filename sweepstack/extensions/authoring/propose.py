"""`profile new --gotcha`: holds a new gotcha against the bar, and writes it as a patch."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sweepstack.cli.output import YES, Out
from sweepstack.cli.prompt import answer
from sweepstack.config.edit.stack_file import StackFile
from sweepstack.core import this_host
from sweepstack.core.suggest import did_you_mean
from sweepstack.extensions.authoring.gotcha_bar import (
    Proposal,
    below_the_bar,
    hidden_values,
    without_names,
    without_values,
)
from sweepstack.extensions.authoring.gotcha_list import UNIVERSAL, known_gotchas, near
from sweepstack.extensions.authoring.gotcha_patch import patch
from sweepstack.onbox.common.canonical import write_atomically
from sweepstack.onbox.common.errors import ConfigError, No, SweepstackError, Unsure
from sweepstack.profiles import dates
from sweepstack.profiles.load import platforms
from sweepstack.status.engine.call import find_project_root

ASKED = {
    "symptom": "What did you see (not why)? ",
    "cause": "By which mechanism does it come about? ",
    "fix": "What has to change, so that it does not come back? ",
    "reproduction": "Which command shows it, between backticks? (a log: --with log=FILE) ",
    "platform": f"On which platform? ({UNIVERSAL}: on any) ",
}
KEYS = ("symptom", "cause", "fix", "reproduction", "log", "unlike", "replaces")
LOG_LINES = 20


def keyed(given: Sequence[str]) -> dict[str, list[str]]:
    """The texts of `--with KEY=TEXT` by their keys. Raises Unsure for another key, and for one that is given twice."""
    found: dict[str, list[str]] = {}
    for word in given:
        key, equals, text = word.partition("=")
        if not equals or key not in KEYS:
            near = did_you_mean(key, KEYS) if key not in KEYS else ""
            raise Unsure(f'--with "{word}" is not KEY=TEXT: the keys are {", ".join(KEYS)}{near}')
        if key in found and key != "unlike":
            raise Unsure(f"--with {key} is given twice")
        found.setdefault(key, []).append(text)
    return found


def propose(platform: str | None, given: Mapping[str, Sequence[str]], output: Path, out: Out) -> int:
    """Writes it as a patch. `given`: the texts by `KEYS`; what of `ASKED` is not there is asked for. Raises No where it
    is below the bar, or known already."""
    said = {name: texts[0] for name, texts in given.items()} | ({"platform": platform} if platform else {})
    unlike, replaces, log = given.get("unlike", ()), said.get("replaces", ""), said.get("log")
    if log is not None:
        said["reproduction"] = _last_lines(Path(log))
    words = {name: said[name] if name in said else _asked(name) for name in ASKED}
    whose, names = words.pop("platform").strip(), [*platforms(), UNIVERSAL]
    if whose not in names:
        raise No(f"there is no platform {whose!r}{did_you_mean(whose, names)}; there are: {', '.join(names)}")
    raw = Proposal(**words)
    proposal = without_values(raw, hidden_values(os.environ, ()))
    of_here = _names()
    problems = below_the_bar(proposal, log=log is not None, names=of_here)
    if problems:
        lines = "\n".join(f"  {problem}" for problem in problems)
        raise No(
            f"it is below the bar, so nothing was written:\n{lines}",
            ["sweepctl profile new --gotcha    (with that mended)"],
        )
    others = [one for one in known_gotchas() if one.id not in (*unlike, replaces)]
    if alike := near(proposal.text, others):
        first = alike[0]
        raise No(
            f"{first.id} ({first.platform}) says much the same, so nothing was written: {first.text}",
            [
                f"sweepctl profile new --gotcha … --with unlike={first.id}    (if it is another one)",
                "sweepctl profile explain --gotchas",
            ],
        )
    try:
        new, diff = patch(whose, proposal, f"{dates.today():%Y-%m}", replaces=replaces)
    except ConfigError as error:
        raise No(str(error)) from error
    seen = "".join(f"# {line}\n" for line in without_names(proposal.reproduction, of_here).splitlines())
    head = f"# {new} ({whose}), proposed on {dates.today()}. Reproduced by:\n{seen}"
    try:
        write_atomically(output, f"{head}{diff}".encode())
    except OSError as error:
        raise SweepstackError(f"{output} could not be written: {error.strerror}") from error
    hidden = proposal != raw
    out.document({"id": new, "platform": whose, "text": proposal.text, "patch": str(output), "masked": hidden})
    out.line(f"{new}  {whose}: {proposal.text}")
    if hidden:
        out.line("masked   what had the form or the value of a secret", style="yellow")
    out.line(f"written  {output}; nothing else was changed")
    out.next([f"git apply --check {output} && git apply {output}    (once it was read)"])
    return YES


def _asked(name: str) -> str:
    """What is typed for it; raises No where there is no terminal."""
    if not sys.stdin.isatty():
        more = " or --with log=FILE" if name == "reproduction" else ""
        missing = "the platform" if name == "platform" else f"--with {name}=TEXT{more}"
        raise No(f"{missing} is missing, and there is no terminal to ask at")
    return answer(ASKED[name])


def _last_lines(log: Path) -> str:
    try:
        lines = log.read_text("utf-8", "replace").splitlines()
    except OSError as error:
        raise SweepstackError(f"{log} could not be read: {error.strerror}") from error
    return "\n".join(lines[-LOG_LINES:])


def _names() -> dict[str, str]:
    """Names of this project, computer and user that no general text has, and what each is."""
    home = str(Path.home())  # /root is that of every box, too
    names = {
        **({} if home == "/root" else {home: "your home folder"}),
        **dict.fromkeys(this_host.names(), "this computer's name"),
    }
    try:
        root = find_project_root(Path.cwd().resolve())
    except SweepstackError:
        return names
    # One plain word may well be meant otherwise.
    stacks = {name: "a stack of this project" for name in StackFile.stacks(root) if not name.isalpha()}
    return {**names, str(root): "this project's folder", **stacks}
