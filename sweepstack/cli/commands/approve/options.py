"""The options of `sweepctl approve`, each reason with what it belongs to; and what they ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from shlex import quote

from sweepstack.cli.accepted_facts import Relied
from sweepstack.cli.commands.approve.sign import Signer
from sweepstack.cli.output import Out, Unsure
from sweepstack.cli.prompt import own_words
from sweepstack.cli.target import Target
from sweepstack.core.records import Approval
from sweepstack.core.signature import SweepName


@dataclass(frozen=True)
class ApproveOptions:
    """The options of `sweepctl approve`. `waive` (cells), `abandon`, `unclaimed` (boxes): name → reason.

    `verb`: what the approval allows. `explained`: boxes named with a reason of their own, which approves a box on which
    nothing was launched; it is not recorded.
    """

    receipt: str | None = None
    boxes: tuple[str, ...] = ()
    waive: dict[str, str] = field(default_factory=dict)
    abandon: dict[str, str] = field(default_factory=dict)
    explained: dict[str, str] = field(default_factory=dict)
    expires: timedelta = timedelta(hours=72)
    verb: str = "destroy"
    unclaimed: dict[str, str] = field(default_factory=dict)
    accept_facts: tuple[str, ...] = ()
    """old facts of the platform's profile that count all the same: names, as `profile check --old` shows them"""
    signer: Signer | None = None
    """who signs what is written; None: it is not signed"""

    def lasts(self, limits: Iterable[timedelta | None]) -> timedelta:
        """How long the approval holds: as was asked for; but what is asked for by default is as long as the policies in
        force allow (`limits`), so that no option is needed for it."""
        if self.expires != ApproveOptions.expires:
            return self.expires
        return min([self.expires, *(limit for limit in limits if limit is not None)])

    @property
    def signing(self) -> str:
        """The options that sign, as they are typed, after a space; "" without."""
        return f" {self.signer.options}" if self.signer else ""

    def spelled(self, stack: str, more_facts: Sequence[str] = ()) -> str:
        """The command with these options, as a person types it, and with more facts accepted."""
        words = [f"sweepctl approve --stack {stack}"]
        words += [f"--verb {self.verb}"] if self.verb != "destroy" else []
        words += [f"--receipt {self.receipt}"] if self.receipt else []
        for name in self.boxes:
            why = self.explained.get(name)
            words.append(f"--box {name}" + (f" --reason {quote(why)}" if why else ""))
        for option, given in (
            ("--waive", self.waive),
            ("--waive-unclaimed", self.unclaimed),
            ("--abandon", self.abandon),
        ):
            words += [f"{option} {name} --reason {quote(reason)}" for name, reason in given.items()]
        lasts = int(self.expires.total_seconds())
        words += (
            [f"--expires {lasts // 3600}h" if lasts % 3600 == 0 else f"--expires {lasts}s"]
            if lasts != 72 * 3600
            else []
        )
        words += [f"--accept-fact {name}" for name in (*self.accept_facts, *more_facts)]
        return " ".join(words) + self.signing


@dataclass
class Asked:
    """What an approval is asked for: boxes of a sweep, or volumes of a stack. The check has said of each whether the
    approval would let it end.

    `kind`: box or volume. `names`: without those that are gone; `given_up`: those whose data may be lost; `reasons`: a
    line for each that may not end. `sweep`: what a signature is for. `record`: writes the approval, and before it the
    old facts that it relies on; the places where it was written, and the problems of the others. `given`: the command
    line is the person's approval already; else `question`, or where there is no terminal `instead`: words and command.
    """

    target: Target
    kind: str
    approval: Approval
    names: list[str]
    given_up: list[str]
    reasons: list[str]
    sweep: Callable[[], SweepName]
    show: Callable[[Out], None]
    record: Callable[[Approval, Relied], tuple[list[str], list[str]]]
    following: Callable[[], list[str]]
    facts: Relied = field(default_factory=Relied)
    given: bool = False
    question: str = ""
    instead: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class Reasons:
    """The reasons of each option: name → reason."""

    waive: dict[str, str]
    abandon: dict[str, str]
    boxes: dict[str, str]
    unclaimed: dict[str, str]


def pair_reasons(arguments: Sequence[str]) -> Reasons:
    """Pairs names and reasons by their order on the command line.

    A `--reason` belongs to every `--waive`, `--waive-unclaimed` and `--abandon` since the `--reason` before it; if
    there is none, to every `--box`. Raises Unsure for a waiver or an abandonment without a reason, for a reason that is
    empty, only the place for one, or belongs to no option, and for a name that is given twice.
    """
    found: dict[str, dict[str, str]] = {"--waive": {}, "--abandon": {}, "--box": {}, "--waive-unclaimed": {}}
    waiting: list[tuple[str, str]] = []
    for option, value in _options(arguments):
        if option in found:
            if option != "--box" and (value in found[option] or (option, value) in waiting):
                raise Unsure(f"{option} {value} is given twice")
            waiting.append((option, value))
            continue
        reason = own_words("--reason", value)
        if not reason:
            raise Unsure("--reason is empty: say why, it is kept with the approval")
        explained = [entry for entry in waiting if entry[0] != "--box"] or waiting
        if not explained:
            owners = "--waive CELL, --waive-unclaimed BOX or --abandon BOX"
            raise Unsure(f'--reason "{reason}" belongs to no option: write it after {owners}')
        for kind, name in explained:
            found[kind][name] = reason
        waiting = []
    for option, name in waiting:
        if option != "--box":
            raise Unsure(f'{option} {name} needs a reason: {option} {name} --reason "…"')
    return Reasons(found["--waive"], found["--abandon"], found["--box"], found["--waive-unclaimed"])


def _options(arguments: Sequence[str]) -> list[tuple[str, str]]:
    """The options that take part in the pairing, in order, in both spellings (`--waive x`, `--waive=x`)."""
    names = ("--waive", "--waive-unclaimed", "--abandon", "--box", "--reason")
    found = []
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if name not in names:
            continue
        found.append((name, value if equals else next(rest, "")))
    return found
