"""`sweepctl ci up`: brings up what was reviewed. Its step has keys, and no token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sweepstack.cli.commands.ci import steps
from sweepstack.cli.commands.ci.changes import superseded
from sweepstack.cli.commands.ci.here import here
from sweepstack.cli.commands.ci.review import reviewed
from sweepstack.cli.commands.ci.steps import REVIEWED, Into, Result, StackResult
from sweepstack.cli.options import AsJson
from sweepstack.cli.output import NO, UNSURE, YES, No, Out
from sweepstack.cli.target import project_root


def command(into: Into, json: AsJson = False) -> int:
    """Bring up each merged stack whose change is still the reviewed one; refuse the others, with a review of today."""
    job, _ = here()
    root = project_root()
    if not (into / REVIEWED).is_file():
        raise No("no step before this one wrote down what was reviewed: sweepctl ci reviewed")
    if job.change is not None or (job.default and job.target != job.default):
        raise No(f"nothing is brought up from {job.target or 'here'}: only from {job.default or 'the main branch'}")
    asked = steps.document(into / REVIEWED)
    if asked:
        steps.need_backend(root)
    with steps.environment() as env:
        stacks = steps.listed(root, env) if any(one.get("shared") for one in asked.values()) else None
        # What all share rents no box of a sweep that is not up: it was ended, or was never brought up.
        left = [stack for stack, one in asked.items() if one.get("shared") and steps.is_down(stacks, stack)]
        results = [
            _of(root, env, into.resolve(), job.target, stack, one) for stack, one in asked.items() if stack not in left
        ]
    code = steps.worst([one.code for one in results])
    Result("up", results, code).write(into)
    out = Out(as_json=json)
    out.document({"stacks": [{"stack": one.stack, "code": one.code, "words": one.words} for one in results]})
    for one in results:
        out.line(f"{one.stack}: {one.words}")
    if left:
        out.line(f"not up, and nothing of its own changes, so it stays so: {', '.join(left)}")
    return code


def _of(root: Path, env: dict[str, str], into: Path, branch: str, stack: str, asked: dict[str, Any]) -> StackResult:
    def told(code: int, words: str, body: str = "", digest: str = "") -> StackResult:
        text = f"**`pulumi up` of {stack}: {words}.**\n\n{body}"
        return StackResult(stack, code, words, text, digest, asked.get("change"))

    digest = str(asked.get("digest") or "")
    if not digest:
        return told(NO, "not brought up: it was not reviewed", f"{asked.get('why')}. {_by_hand(stack)}\n")
    if superseded(root, branch, stack):
        return told(YES, "left to the run of a newer commit that changes it")
    if steps.open_stack(root, env, stack):
        return told(UNSURE, "not brought up: the backend could not be asked")
    now = reviewed(root, env, into, stack, "--expect", digest)
    if now.code != YES:
        words = "the change is another one now, or may not go on" if now.code == NO else "it could not be told"
        body = f"{_by_hand(stack, now.digest)}\n\n{now.body}"
        return told(now.code, f"not brought up: {words}", body, now.digest)
    ended = steps.pulumi(root, env, "up", "--yes", "--skip-preview", "--stack", stack, "--non-interactive").code
    if ended:
        body = (
            f"It may have rented a part: `sweepctl status --stack {stack}` says what bills. Then run this job again.\n"
        )
        return told(NO, f"`pulumi up` ended with {ended}", body, digest)
    seen = steps.sweepctl(root, env, "status", "--stack", stack).code
    if seen:
        body = (
            f"`sweepctl status --stack {stack}` ended with {seen}: the state does not know all that runs, or it could "
        )
        return told(seen if seen == NO else UNSURE, "up, and not all of it is known", body + "not be told.\n")
    return told(YES, "up", "", digest)


def _by_hand(stack: str, digest: str = "") -> str:
    again = f"the digest `{digest}`" if digest else "the digest of a review that you have read"
    return f"To bring it up all the same, start this pipeline by hand with the stack `{stack}` and {again}."
