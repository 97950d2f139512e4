"""`sweepctl ci post`: puts on the forge what a step has left, each thing once."""

from __future__ import annotations

import os
import re
from pathlib import Path

from sweepstack.cli.output import NO, UNSURE, YES, Out
from sweepstack.extensions.pipelines.forge import Forge, ForgeJob, State, clipped, first_line, here, same
from sweepstack.extensions.pipelines.steps import Kind, Result, StackResult
from sweepstack.review.markdown import MOST, marked_stack, marker

_ADDRESS = re.compile(r"https?://[A-Za-z0-9._~:/?#@!$&'*+,;=%-]+")
STATES: dict[int, State] = {YES: "success", NO: "failure", UNSURE: "error"}
SUMMARY = "GITHUB_STEP_SUMMARY"
MOST_SUMMARY = 250_000
"""Characters: GitHub takes a mebibyte of a step, and a character has four bytes at most."""
ISSUE = "<!-- sweepctl nightly -->"


def signed(text: str, job: ForgeJob, head: str, at: str, page: str, pages: str) -> str:
    """The text, and at its end of which commit it is, when it was made and by which job; with a page, and an address
    where it is kept, a link to that."""
    last = f"\nOf commit {head[:12]}{', ' + at if at else ''}, by [this job]({job.url}).\n"
    if page and _ADDRESS.fullmatch(pages):
        last += f"[The same as a page]({pages}) (`{page}`), kept for 30 days.\n"
    return clipped(text, MOST - len(last)) + last


def status_name(kind: Kind, stack: str) -> str:
    """The name of a stack's commit status."""
    return f"sweepctl {kind}: {stack}"


def status_text(one: StackResult) -> str:
    """Its description: whether it may go on, and the digest of what was reviewed."""
    return f"{one.words}; {one.digest}" if one.digest else one.words


def command(folder: Path, pages: str = "", json: bool = False) -> int:
    """Post the comment and the status of each stack, or the one issue of the night. Repeats nothing that is there."""
    job, client = here()
    result = Result.read(folder)
    summarize(*_texts(result))  # first: it needs no forge that answers
    out, done = Out(as_json=json), []
    if result.kind == "nightly":
        forge = client()
        warnings = forge.warnings()
        text = "\n".join([ISSUE, *(f"**{words}**\n" for words in warnings), result.body])
        page = forge.issue(ISSUE, result.title, text, open=bool(warnings) or result.code != YES)
        done.append(f"issue {page}" if page else "no issue is open, and none is needed")
    elif result.stacks or job.change is not None:
        done = _stacks(job, client(), result, pages)
    out.document({"posted": done})
    for line in done or ["nothing to post"]:
        out.line(line)
    return YES


def summarize(*texts: str) -> None:
    """Adds texts to the summary of GitHub's job, where there is one: a job without a request has no comment."""
    place = os.environ.get(SUMMARY)
    if place:
        with open(place, "a", encoding="utf-8") as file:
            file.write(clipped("\n".join(texts), MOST_SUMMARY))


def _texts(result: Result) -> list[str]:
    """What a step did; and the reviews that it was held to, below all of that."""
    if result.kind == "nightly":
        return [result.body]
    reviews = [one.review for one in result.stacks if one.review]
    return [one.body for one in result.stacks] + [f"## What it was held to\n\n{review}" for review in reviews]


def _stacks(job: ForgeJob, forge: Forge, result: Result, pages: str) -> list[str]:
    done = []
    for one in result.stacks:
        change = one.change if one.change is not None else job.change
        head = one.head or job.head
        if change is not None:
            # `up` says what it did below the review, in a comment of its own: so the review stays to be read.
            line = marker(one.stack, result.kind)
            forge.comment(change, line, signed(f"{line}\n{one.body}", job, head, result.at, one.page, pages))
            done.append(f"comment of {one.stack} on {change}")
        # The status comes last: where it stands, the comment does.
        forge.set_status(head, status_name(result.kind, one.stack), STATES[one.code], status_text(one), job.url)
        done.append(f"status of {one.stack}: {one.words}")
    if result.kind == "review" and job.change is not None:
        done += _outdated(forge, job.change, {one.stack for one in result.stacks})
    return done


def _outdated(forge: Forge, change: int, stacks: set[str]) -> list[str]:
    """A stack that an earlier version of this change touched, and this one does not: its comment says so."""
    done = []
    for one in forge.comments(change):
        stack = marked_stack(first_line(one.text)) if one.own else None
        if stack is None or stack in stacks:
            continue
        said = f"{marker(stack)}\nThis change does not touch the stack {stack} any more.\n"
        if not same(one.text, said):
            forge.comment(change, marker(stack), said)
            done.append(f"comment of {stack}, which is not touched any more")
    return done
