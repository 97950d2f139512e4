"""A person's words on the command line: which cells are waived, which boxes abandoned, and why."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from sweep.cli.output import Unsure


@dataclass(frozen=True)
class Words:
    """What `sweepctl approve` was told. `waive`, `abandon`: name → reason."""

    receipt: str | None = None
    boxes: tuple[str, ...] = ()
    waive: dict[str, str] = field(default_factory=dict)
    abandon: dict[str, str] = field(default_factory=dict)
    expires: timedelta = timedelta(hours=72)


def pair_reasons(arguments: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """(waive, abandon) as name → reason, by their order on the command line.

    A `--reason` belongs to every `--waive` and `--abandon` since the `--reason` before it. Raises Unsure for one that
    has none, for a reason without anything to explain, for a name twice, and for an empty reason.
    """
    found: dict[str, dict[str, str]] = {"--waive": {}, "--abandon": {}}
    waiting: list[tuple[str, str]] = []
    for option, value in _options(arguments):
        if option in found:
            if value in found[option] or (option, value) in waiting:
                raise Unsure(f"{option} {value} is given twice")
            waiting.append((option, value))
            continue
        reason = " ".join(value.split())
        if not reason:
            raise Unsure("--reason is empty: say why, it is kept with the approval")
        if not waiting:
            raise Unsure(f'--reason "{reason}" explains nothing: it follows its --waive CELL or --abandon BOX')
        for kind, name in waiting:
            found[kind][name] = reason
        waiting = []
    if waiting:
        option, name = waiting[0]
        raise Unsure(f'{option} {name} needs a reason: {option} {name} --reason "why"')
    return found["--waive"], found["--abandon"]


def _options(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """The options that are paired, in order, in both spellings (`--waive x`, `--waive=x`)."""
    names = ("--waive", "--abandon", "--reason")
    found = []
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if name not in names:
            continue
        found.append((name, value if equals else next(rest, "")))
    return found


def who() -> str:
    """The person at this keyboard, as it is written into an approval."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "unknown"
    return f"{name}@{socket.gethostname()}"
