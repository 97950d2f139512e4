"""`sweepctl ci up`: brings up what was reviewed. Its step has keys, and no token."""

from __future__ import annotations

import json as json_module
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sweepstack.cli.output import NO, UNSURE, YES, Out, aside
from sweepstack.extensions.pipelines import steps
from sweepstack.extensions.pipelines.changes import superseded
from sweepstack.extensions.pipelines.commands.ci.review import reviewed
from sweepstack.extensions.pipelines.comments import take_over
from sweepstack.extensions.pipelines.forge import here
from sweepstack.extensions.pipelines.steps import REVIEWED, StackResult
from sweepstack.onbox.common.errors import No
from sweepstack.onbox.common.units import spell_rate
from sweepstack.operations.sweep.target import project_root

BEGUN = ("up", "begun", "`pulumi up`")
"""How the words of each stack begin whose `pulumi up` was started."""
_PART = "It may have rented a part: `sweepctl status --stack {stack}` says what bills. Then start this job again.\n"


def command(folder: Path, json: bool = False) -> int:
    """Bring up each merged stack whose change is still the reviewed one; refuse the others, with a review of today."""
    job, _ = here()
    root = project_root()
    if not (folder / REVIEWED).is_file():
        raise No("no step before this one wrote down what was reviewed: sweepctl ci reviewed")
    if job.change is not None or (job.default and job.target != job.default):
        raise No(f"nothing is brought up from {job.target or 'here'}: only from {job.default or 'the main branch'}")
    asked = steps.document(folder / REVIEWED)
    if asked:
        steps.need_backend(root)
    with steps.environment() as env:
        stacks = steps.listed(root, env) if any(one.get("shared") for one in asked.values()) else None
        # What all share rents no box of a sweep that is not up: it was ended, or was never brought up.
        left = [stack for stack, one in asked.items() if one.get("shared") and steps.is_down(stacks, stack)]
        result = steps.one_by_one(
            "up",
            folder,
            [stack for stack in asked if stack not in left],
            lambda stack: _of(root, env, folder.resolve(), job.target, stack, asked[stack]),
            lambda stack, begun: cut(stack, begun, asked[stack]),
        )
    results, out = result.stacks, Out(as_json=json)
    out.document({"stacks": [{"stack": one.stack, "code": one.code, "words": one.words} for one in results]})
    for one in results:
        out.line(f"{one.stack}: {one.words}")
    if left:
        out.line(f"not up, and nothing of its own changes, so it stays so: {', '.join(left)}")
    return result.code


def _told(stack: str, asked: dict[str, Any], code: int, words: str, body: str = "", digest: str = "") -> StackResult:
    body = f"**`pulumi up` of {stack}: {words}.**\n\n{body}"
    return StackResult(stack, code, words, body, digest, asked.get("change"), head=asked.get("head") or "")


def cut(stack: str, begun: bool, asked: dict[str, Any]) -> StackResult:
    """The result of a stack that the job did not come to (False), or that it had begun when it was cut."""
    if not begun:
        words = "not begun: the job ended before it came to that"
        return _told(stack, asked, UNSURE, words, "Its log says why. Then start it again.\n")
    return _told(stack, asked, UNSURE, "begun, and the job was cut before it ended", _PART.format(stack=stack))


def _of(root: Path, env: dict[str, str], into: Path, branch: str, stack: str, asked: dict[str, Any]) -> StackResult:
    told = partial(_told, stack, asked)

    digest = str(asked.get("digest") or "")
    if later := asked.get("later"):
        return told(YES, f"left as it is: the newer commit {later[:12]} was brought up")
    if not digest:
        return told(NO, "not brought up: it was not reviewed", f"{asked.get('why')}. {_by_hand(stack)}\n")
    if (head := asked.get("head")) and (why := take_over(root, branch, stack, head)):
        return told(NO, "not brought up by a comment", f"Why: {why}.\n")
    if steps.open_stack(root, env, stack):
        return told(UNSURE, "not brought up: the backend could not be asked")
    now = reviewed(root, env, into, stack, "--expect", digest)
    done = _held(root, env, branch, told, asked, now)
    return replace(done, review=now.body if now.code == YES else "")


def _held(
    root: Path,
    env: dict[str, str],
    branch: str,
    told: Callable[..., StackResult],
    asked: dict[str, Any],
    now: StackResult,
) -> StackResult:
    """Brings up what the review of now lets go."""
    stack, digest = now.stack, str(asked["digest"])
    # A newer merge does not keep back what was reviewed: its own review counts this change as made.
    if now.code == NO and not asked.get("head") and superseded(root, branch, stack):
        return told(YES, "left to the run of a newer commit that changes it")
    # As where a comment on the request, or this job before, brought it up.
    if now.code == NO and steps.differs(root, env, stack).code == YES:
        return told(YES, "up already: nothing changes")
    if now.code != YES:
        words = "the change is another one now, or may not go on" if now.code == NO else "it could not be told"
        again = "" if asked.get("head") else f"{_by_hand(stack, now.digest)}\n\n"
        body = f"{again}{now.body}"
        return told(now.code, f"not brought up: {words}", body, now.digest)
    ended = steps.pulumi(root, env, "up", "--yes", "--skip-preview", "--stack", stack, "--non-interactive").code
    if ended:
        return told(NO, f"`pulumi up` ended with {ended}", _PART.format(stack=stack), digest)
    seen = steps.sweepctl(root, env, "status", "--stack", stack, "--json", captured=True)
    there = _there(seen.out)
    aside(there)
    if seen.code:
        body = (
            f"`sweepctl status --stack {stack}` ended with {seen.code}: the state does not know all that runs, or it "
            f"could not be told.\n\n{there}"
        )
        return told(seen.code if seen.code == NO else UNSURE, "up, and not all of it is known", body)
    return told(YES, "up", there, digest)


def _there(status: str) -> str:
    """What is up now, by the document of a `status`, as Markdown: boxes, prices, what to type next; "" without one."""
    try:
        seen = json_module.loads(status)
        boxes = seen.get("boxes") or ()
        rows = [
            f"| `{box['name']}` | {box['platform']} | {box['phase']} | {_dollars(box['price_per_hour'])} |"
            for box in boxes
        ]
        parts = ["\n".join(["| box | platform | is | an hour |", "|---|---|---|---|", *rows]) + "\n"] if rows else []
        meter = seen.get("meter") or {}
        if meter:
            least = "at least " if meter.get("incomplete") else ""
            parts.append(f"In all {least}{_dollars(meter['per_hour'])} an hour, {_dollars(meter['so_far'])} so far.\n")
        if following := seen.get("next"):
            parts.append("Next: " + ", ".join(f"`{line.partition('    (')[0]}`" for line in following[:2]) + "\n")
    except (ValueError, AttributeError, KeyError, TypeError):
        return ""
    return "\n".join(parts)


def _dollars(amount: float | None) -> str:
    return "unknown" if amount is None else f"${spell_rate(amount)}"


def _by_hand(stack: str, digest: str = "") -> str:
    again = f"the digest `{digest}`" if digest else "the digest of a review that you have read"
    return f"To bring it up all the same, start this pipeline by hand with the stack `{stack}` and {again}."
