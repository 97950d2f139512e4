"""What `sweepctl approve` and `give-up` ask for: each reason stands with what it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from shlex import quote
from typing import Any

from typer.core import TyperCommand, TyperOption

from sweepstack.cli.commands.approve.sign import Signer
from sweepstack.cli.output import Out
from sweepstack.cli.prompt import own_words
from sweepstack.core.records import Approval
from sweepstack.core.signature import SweepName
from sweepstack.onbox.common.canonical import DIGEST_PREFIX
from sweepstack.onbox.common.dataclass import dataclass, field
from sweepstack.onbox.common.errors import Unsure
from sweepstack.operations.sweep.accepted_facts import Relied
from sweepstack.operations.sweep.target import Target

CELL, DATA, UNCLAIMED, FACT = KINDS = ("cell/", "data/", "unclaimed/", "fact/")
BOX = "--box"


@dataclass(frozen=True)
class ApproveOptions:
    """The options of `sweepctl approve` and `give-up`. `waive` (cells), `abandon`, `unclaimed` (boxes): name → reason.

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

    def spelled(self, stack: str, more_facts: Iterable[str] = (), verb: str = "") -> str:
        """The command with these options, as a person types it, and with more facts accepted. `verb`: "" for the one
        that takes them all."""
        facts = (*self.accept_facts, *more_facts)
        losses = ((CELL, self.waive), (UNCLAIMED, self.unclaimed), (DATA, self.abandon))
        lost = [(f"{kind}{name}", reason) for kind, given in losses for name, reason in given.items()]
        verb = verb or ("give-up" if lost or facts else "approve")
        words = [f"sweepctl {verb} --stack {stack}"]
        words += [f"--verb {self.verb}"] if self.verb != "destroy" else []
        words += [self.receipt] if self.receipt else []
        for name in self.boxes:
            words.append(f"--box {name}" + (_reason(self.explained[name]) if name in self.explained else ""))
        for number, (what, reason) in enumerate(lost):
            again = lost[number + 1 :][:1]  # one reason stands behind all that it is for
            words.append(what + ("" if again and again[0][1] == reason else _reason(reason)))
        lasts = int(self.expires.total_seconds())
        if self.expires != ApproveOptions.expires:
            words.append(f"--expires {lasts // 3600}h" if lasts % 3600 == 0 else f"--expires {lasts}s")
        words += [f"{FACT}{name}" for name in facts]
        return " ".join([*words, *(["--sign"] if self.signer else [])])


def _reason(words: str) -> str:
    """The option with these words, after a space."""
    plain = words.isprintable() and not set(words) & set('"$`\\!')
    return f' --reason "{words}"' if plain else f" --reason {quote(words)}"


@dataclass
class ApprovalRequest:
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


class InOrder(TyperCommand):
    """Keeps what was typed in its order, as `ctx.meta["typed"]`: words, and options that take a value, each with it. A
    `--reason` belongs to what stands before it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options = (one for one in self.params if isinstance(one, TyperOption) and not one.is_flag)
        takes = {name for one in options for name in one.opts}
        typed, rest = ctx.meta.setdefault("typed", []), iter(args)
        for word in rest:
            name, equals, value = word.partition("=")
            if name in takes:
                typed.append((name, value if equals else next(rest, "")))
            elif not word.startswith("-"):
                typed.append(("", word))
        return super().parse_args(ctx, args)


def pair_reasons(typed: Iterable[tuple[str, str]]) -> dict[str, dict[str, str]]:
    """What is given up, and each box that a reason explains: kind → name → reason, by their order on the command line.

    A `--reason` belongs to all that is given up since the `--reason` before it; if that is nothing, to every `--box`.
    Raises Unsure for what is given up without a reason, for a reason that is empty, only the place for one, or belongs
    to nothing, and for a name that is given twice.
    """
    found: dict[str, dict[str, str]] = {CELL: {}, DATA: {}, UNCLAIMED: {}, BOX: {}}
    waiting: list[tuple[str, str]] = []
    for option, value in typed:
        kind, name = _what(value) if not option else (option, value)
        if kind in found:
            if kind != BOX and (name in found[kind] or (kind, name) in waiting):
                raise Unsure(f"{kind}{name} is given twice")
            waiting.append((kind, name))
        elif kind == "--reason":
            reason = own_words("--reason", name)
            if not reason:
                raise Unsure("--reason is empty: say why, it is kept with the approval")
            explained = [entry for entry in waiting if entry[0] != BOX] or waiting
            if not explained:
                raise Unsure(f'--reason "{reason}" belongs to nothing: write it after what is given up')
            for what, of in explained:
                found[what][of] = reason
            waiting = []
    for kind, name in waiting:
        if kind != BOX:
            raise Unsure(f'{kind}{name} needs a reason: {kind}{name} --reason "…"')
    return found


def _what(word: str) -> tuple[str, str]:
    """What a word gives up: its kind and the name; ("", the word) for another."""
    kind, slash, name = word.partition("/")
    return (kind + slash, name) if kind + slash in KINDS and name else ("", word)


def _split(words: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """The digests among the words, and what each other word gives up."""
    digests = [word for word in words if word.startswith(DIGEST_PREFIX)]
    return digests, [_what(word) for word in words if word not in digests]


def facts_and_receipt(words: Sequence[str]) -> tuple[tuple[str, ...], str | None]:
    """The old facts that are accepted, and the receipt's digest, among the words of `give-up`. Raises Unsure for a word
    that says nothing, for two digests, and where nothing is given up."""
    digests, said = _split(words)
    for kind, word in said:
        if not kind:
            raise Unsure(f'"{word}" does not say what is given up: {" or ".join(f"{one}{word}" for one in KINDS)}')
    if len(digests) > 1 or not said:
        raise Unsure(f"name what is given up, {', '.join(f'{one}NAME' for one in KINDS)}, and at most one receipt")
    return tuple(dict.fromkeys(name for kind, name in said if kind == FACT)), next(iter(digests), None)


def facts_alone(words: Sequence[str]) -> tuple[tuple[str, ...], str | None]:
    """As `facts_and_receipt`, of `finish`, which gives up no more than the caution about an old fact."""
    digests, said = _split(words)
    for kind, name in said:
        if kind != FACT:
            raise Unsure(f'"{kind}{name}" is no {FACT}NAME and no receipt: what loses something, give-up approves')
    if len(digests) > 1:
        raise Unsure("name one receipt at most")
    return tuple(dict.fromkeys(name for _, name in said)), next(iter(digests), None)
