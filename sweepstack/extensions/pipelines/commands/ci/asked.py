"""`sweepctl ci asked`: what a comment asks for, and whether it may. Its step has the token alone."""

from __future__ import annotations

import json as json_module
import os
from pathlib import Path
from typing import Any

from sweepstack.cli.output import NO, UNSURE, YES, Out
from sweepstack.extensions.pipelines.commands.ci.github import REVIEWS
from sweepstack.extensions.pipelines.commands.ci.post import status_name, summarize
from sweepstack.extensions.pipelines.commands.ci.up import cut
from sweepstack.extensions.pipelines.comments import Comment, asked_of, of_event
from sweepstack.extensions.pipelines.forge import ForgeJob, GitHub, Request, github_event, github_job, same
from sweepstack.extensions.pipelines.steps import REVIEWED, Result
from sweepstack.onbox.common.canonical import DIGEST, write_atomically
from sweepstack.onbox.common.errors import No

ANSWER = "<!-- sweepctl command -->"
DECIDED = ("", "APPROVED")
"""What reviewers may have decided: where the branch asks for an approval, a comment is no way round it."""


def command(folder: Path, json: bool = False) -> int:
    """Do what a comment asks for: start a review again, or write down what the next step is to bring up."""
    Result("up", code=NO).write(folder)  # nothing to post, where this refuses
    job, api = github_job(), GitHub()
    try:
        comment = of_event(github_event())
        if not api.may_write(comment.login, comment.user):
            raise No(f"{comment.login} may not write to this repository")
    except No as error:
        # No answer: else each stranger could let this repository write.
        summarize(f"Nothing was done: {error}.\n")
        raise
    try:
        words, stacks = _allowed(api, job, comment)
    except No as error:
        _answer(api, job, comment, f"Nothing was done: {error}.")
        raise
    write_atomically(folder / REVIEWED, json_module.dumps(stacks, indent=1).encode())
    Result("up", [cut(stack, False, one) for stack, one in stacks.items()], UNSURE if stacks else YES).write(folder)
    if stacks and (outputs := os.environ.get("GITHUB_OUTPUT")):
        with open(outputs, "a", encoding="utf-8") as file:
            file.write("up=true\n")
    _answer(api, job, comment, words)
    out = Out(as_json=json)
    out.document({"stacks": stacks, "words": words})
    out.line(words)
    return YES


def _answer(api: GitHub, job: ForgeJob, comment: Comment, words: str) -> None:
    """In the one comment of answers. Of the comment's own text it has nothing."""
    text = f"{words}\n\nTo a comment by {comment.login}, by [this job]({job.url}).\n"
    summarize(text)
    api.comment(comment.change, ANSWER, f"{ANSWER}\n{text}")


def _allowed(api: GitHub, job: ForgeJob, comment: Comment) -> tuple[str, dict[str, dict[str, Any]]]:
    """What was done in words, and what is to be brought up. Raises No."""
    digest = asked_of(comment.text)
    now = api.written(comment.id)
    if now is None or not same(now[0], comment.text):
        raise No("the comment was edited or deleted since: write a new one")
    request = api.request(comment.change)
    if not request.open:
        raise No("the request is closed")
    if not request.own:
        raise No("the request is from a fork: a maintainer who has read it pushes its branch here")
    if request.target != job.target:
        raise No(f"the request is for another branch than {job.target}")
    if not digest:
        page = api.again(REVIEWS, request.head)
        if page is None:
            raise No(f"no review of {request.head[:12]} was ever begun")
        return f"The [review]({page}) of {request.head[:12]} is made anew.", {}
    stacks = _reviewed(api, request, digest, now[1])
    asked = {"digest": digest, "change": comment.change, "why": "", "shared": False, "head": request.head}
    return f"`pulumi up` of {', '.join(stacks)} as in {request.head[:12]} is asked for.", dict.fromkeys(stacks, asked)


def _reviewed(api: GitHub, request: Request, digest: str, at: str) -> list[str]:
    """The stacks whose review has this digest: that of the last commit, made before the comment was written, which may
    go on. Raises No."""
    if request.decision not in DECIDED:
        raise No(f"reviewers have not approved the request ({request.decision})")
    found, prefix = [], status_name("review", "")
    for name, one in api.statuses(request.head).items():
        said = DIGEST.search(one.status.text)
        if name.startswith(prefix) and one.status.state == "success" and said and said[0] == digest and one.at <= at:
            found.append(name.removeprefix(prefix))
    if not found:
        raise No(f"no review of the last commit, {request.head[:12]}, that was made before the comment has this digest")
    return sorted(found)
