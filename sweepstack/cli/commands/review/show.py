"""`sweepctl review`: gathers, makes the review, writes it to a terminal, as Markdown, HTML or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sweepstack.cli.commands.review.gather import gather
from sweepstack.cli.output import Out, Unsure
from sweepstack.cli.progress import Progress
from sweepstack.cli.target import Target
from sweepstack.onbox.common.canonical import DIGEST, write_atomically
from sweepstack.review.assess import assess
from sweepstack.review.blocks import Block, Commands, Grid, Heading, Line, Listing, Quoted
from sweepstack.review.markdown import markdown
from sweepstack.review.model import MAY_GO_ON, MAY_NOT, Review
from sweepstack.review.page import page
from sweepstack.review.plan import read_plan
from sweepstack.review.words import NEXT, counted, written

SHOWN = 40
"""Entries of one list that are printed for people; the others are counted."""
_STYLES = {MAY_GO_ON: "bold green", MAY_NOT: "bold red"}


@dataclass(frozen=True)
class Wanted:
    """What was asked for on the command line."""

    destroy: bool = False
    base: str = ""
    expect: str = ""
    request: bool = False
    markdown: bool = False
    html: bool = False
    files: tuple[Path, ...] = ()


def review(target: Target, wanted: Wanted, out: Out) -> int:
    """Exit 0: the change may go on; 1: it may not; 2: could not tell. Writes only the files that were asked for."""
    if wanted.expect and not DIGEST.fullmatch(wanted.expect):
        raise Unsure(f"--expect {wanted.expect}: not a whole digest (sha256: and 64 hex digits), as a review prints it")
    answers = {"--md": wanted.markdown, "--html": wanted.html, "--json": out.as_json}
    asked = [option for option, is_asked in answers.items() if is_asked]
    if len(asked) > 1:
        files = [f"-o FILE.{option.strip('-')}" for option in asked]
        raise Unsure(
            f"{' and '.join(asked)} are {len(asked)} answers on one stdout: write all but one with {' or '.join(files)}"
        )
    for file in wanted.files:
        if file.suffix.lower() not in FORMS:
            raise Unsure(f"-o {file}: its name says in which form it is written: {', '.join(FORMS)}")
    with Progress("the engine's preview, and a look at the boxes"):
        found = gather(target, destroy=wanted.destroy, base=wanted.base)
        made = assess(
            read_plan(found.document, destroy=wanted.destroy),
            found.live,
            expected=wanted.expect,
            request=wanted.request,
        )
    for file in wanted.files:
        _write(file, FORMS[file.suffix.lower()](made))
    out.document(made.as_json())
    if wanted.markdown:
        sys.stdout.write(markdown(made))
    elif wanted.html:
        sys.stdout.flush()
        sys.stdout.buffer.write(page(made).encode())  # the page says that it is UTF-8, whatever the terminal takes
    else:
        show(made, out)
    return made.code


def show(made: Review, out: Out) -> None:
    """Prints the review for people."""
    for index, block in enumerate(written(made)):
        _print(block, out, made, first=index == 0)


def _print(block: Block, out: Out, made: Review, *, first: bool) -> None:
    if isinstance(block, Heading):
        if not first:
            out.line()
        if block.text != NEXT:  # what to type has that label already
            out.line(block.text, style="bold")
    elif isinstance(block, Line):
        out.line(block.text, style=_STYLES.get(made.code, "bold yellow") if block.strong else None)
    elif isinstance(block, Quoted):
        out.line(block.text, style="yellow", wrap=False)
    elif isinstance(block, Commands):
        out.next(block.lines)
    elif isinstance(block, Listing):
        for item in block.items[:SHOWN]:
            out.line(f"- {item}")
        _more(len(block.items), block.noun, out)
    elif isinstance(block, Grid):
        out.table(block.headers, block.rows[:SHOWN])
        _more(len(block.rows), block.noun, out)


def _more(number: int, noun: str, out: Out) -> None:
    if number > SHOWN:
        out.line(f"… and {counted(number - SHOWN, noun)} more: sweepctl review --json", style="dim")


def _document(made: Review) -> str:
    return json.dumps(made.as_json(), indent=2, ensure_ascii=False) + "\n"


FORMS: dict[str, Callable[[Review], str]] = {".md": markdown, ".html": page, ".json": _document}
"""By the end of a file's name."""


def _write(path: Path, text: str) -> None:
    try:
        write_atomically(path, text.encode())
    except OSError as error:
        raise Unsure(f"{path} can't be written: {error.strerror or error}") from error
