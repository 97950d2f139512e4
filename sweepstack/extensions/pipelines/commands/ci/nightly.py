"""`sweepctl ci nightly`: the looks of a night, as the text of one issue. Changes nothing."""

from __future__ import annotations

import json as json_module
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweepstack.cli.output import NO, UNSURE, YES, Out, aside, span
from sweepstack.config.edit.stack_file import StackFile
from sweepstack.extensions.pipelines import steps
from sweepstack.extensions.pipelines.forge import here
from sweepstack.extensions.pipelines.steps import Result
from sweepstack.onbox.common.dataclass import dataclass
from sweepstack.operations.sweep.target import project_root

TITLE = "Sweeps: what needs a person"
MOST_LINES = 200
"""Of what one command printed; the job's log has all."""
UNREAD = """\
it ended with {}: the state of {stack} could not be read, so nothing of it was looked at. The job's log has the reason.
Where it was never brought up, make it in this backend (pulumi stack init {stack}), or remove its stack file.
"""
DRIFT = """\
what is up differs from the files of the main branch: `pulumi up` from here would change what follows. Start the `up` of
its last merge again, or merge what was brought up elsewhere: by hand, or by a comment on a request that waits.

"""
_NO_CHANGE = re.compile(r"^(?:.* (?:refresh(?:ing)?|running)| {4}\w+:\w+:\w+ \S+) *\n", re.MULTILINE)
"""Rows of a preview that name a resource and no change of it."""
CUT = "the job was cut before them: what they would have found is not known"
SOON = 3 * 24 * 3600.0
"""Seconds: a clock that has less left is for a person now, since the next look is a night later."""


@dataclass(frozen=True)
class CheckOutcome:
    """One command, and what it found: `code` 0 fine, 1 something needs a person, 2 it could not tell."""

    shown: str
    code: int
    said: str


def command(folder: Path, json: bool = False) -> int:
    """Look at accounts, clocks, budget, balance, ledger and old facts; write the text of one issue."""
    job, _ = here()
    root = project_root()
    steps.need_backend(root)
    with steps.environment() as env:
        looks: list[CheckOutcome] = []
        _left(looks, job.url, folder, cut=True)
        for look in _looks(root, env):
            looks.append(look)
            _left(looks, job.url, folder, cut=True)
    code = _left(looks, job.url, folder)
    out = Out(as_json=json)
    out.document({"code": code, "looks": [{"command": look.shown, "code": look.code} for look in looks]})
    for look in looks:
        out.line(f"{look.code}  {look.shown}")
    return code


def _left(looks: list[CheckOutcome], url: str, into: Path, *, cut: bool = False) -> int:
    """Writes what was found so far for the next step, and returns the exit code for it. `cut`: looks are left, which a
    job that is cut here never made."""
    told = [*looks, CheckOutcome("the looks after these", UNSURE, CUT)] if cut else looks
    code = steps.worst([look.code for look in told])
    Result("nightly", code=code, title=TITLE, body=issue_text(told, url)).write(into)
    return code


def issue_text(looks: list[CheckOutcome], url: str) -> str:
    """The Markdown: a table of all looks, and below it what each one said that was not fine."""
    wrong = [look for look in looks if look.code != YES]
    words = {0: "fine", 1: "needs a person"}
    rows = [f"| `{look.shown}` | {words.get(look.code, 'could not tell')} |" for look in looks]
    head = f"{len(wrong)} of {len(looks)} looks found something." if wrong else "All looks are fine."
    parts = [f"{head} [The job]({url}) writes this text anew each night, and closes the issue once all are fine.\n"]
    parts.append("\n".join(["| look | found |", "|---|---|", *rows]) + "\n")
    for look in wrong:
        parts.append(f"### `{look.shown}`\n\n{fenced(look.said, MOST_LINES)}\n")
    return "\n".join(parts)


def fenced(text: str, most: int) -> str:
    """Text as a code block of Markdown, `most` lines at most. A fence in the text does not end it."""
    lines = text.strip("\n").splitlines() or ["(it printed nothing; the job's log has its errors)"]
    if len(lines) > most:
        lines = [*lines[:most], f"… {len(lines) - most} more lines: the job's log has them"]
    fence = "`" * max(3, *(len(line) - len(line.lstrip("`")) + 1 for line in lines))
    return "\n".join([f"{fence}text", *lines, fence])


def of_status(code: int, seen: dict[str, Any]) -> tuple[int, list[str]]:
    """What a `status --json` has for a person: the exit code for it, and a line each.

    An alarm, a used-up budget and a clock with less than `SOON` are a no, although `status` itself says yes to them.
    """
    boxes = [box for box in seen.get("boxes") or () if isinstance(box, dict)]
    alarms = [str(alarm) for alarm in seen.get("alarms") or ()]
    alarms += [f"{box.get('name')}: {alarm}" for box in boxes for alarm in box.get("alarms") or ()]
    lines = [f"ALARM   {alarm}" for alarm in alarms]
    for clock in seen.get("clocks") or ():
        left = clock.get("left_seconds")
        if left is None or left < SOON:
            when = "it is not known when" if left is None else f"in {span(left)}"
            lines.append(f"clock   {clock.get('box')}: {clock.get('what')}, {when}")
    budget = seen.get("budget") or {}
    if (budget.get("used") or 0) >= 1:
        lines.append(f"budget  used up: {budget.get('spent_usd')} of {budget.get('usd')} USD")
    for found in seen.get("unknown") or ():
        lines.append(f"unknown {found.get('kind')} {found.get('native_id')}: {found.get('why')}; {found.get('next')}")
    if not seen:
        return code or UNSURE, ["it printed no document: the job's log has its errors"]
    if code == YES and lines:
        code = NO
    if code == YES and seen.get("bills") == "unknown":
        return UNSURE, ["whether something bills is not known"]
    return code, lines + [str(line) for line in seen.get("money_lines") or ()]


def _looks(root: Path, env: dict[str, str]) -> Iterator[CheckOutcome]:
    yield _look(root, env, "audit")
    yield _look(root, env, "profile", "check", "--old", "--used")
    stacks = steps.listed(root, env)
    for stack in StackFile.stacks(root):
        exported = steps.pulumi(root, env, "stack", "export", "--stack", stack, "--file", "/dev/null")
        if exported.code:
            # Unknown is not gone: the backend may be another one, or unreachable, while its boxes bill.
            yield CheckOutcome(
                f"pulumi stack export --stack {stack}", UNSURE, UNREAD.format(exported.code, stack=stack)
            )
            continue
        yield _status(root, env, stack)
        if not steps.is_down(stacks, stack):  # one that was ended is not rented anew, and so it does not differ
            yield _drift(root, env, stack)
        for word in ("ledger", "doctor"):
            yield _look(root, env, word, "--stack", stack)


def _look(root: Path, env: dict[str, str], *words: str) -> CheckOutcome:
    done = steps.sweepctl(root, env, *words, captured=True)
    aside(done.out.rstrip())
    return CheckOutcome(f"sweepctl {' '.join(words)}", done.code, done.out)


def _drift(root: Path, env: dict[str, str], stack: str) -> CheckOutcome:
    done = steps.differs(root, env, stack)
    aside(done.out.rstrip())
    words = f"{DRIFT if done.code == NO else ''}{_NO_CHANGE.sub('', done.out)}"
    return CheckOutcome(f"pulumi preview --expect-no-changes --stack {stack}", done.code, words)


def _status(root: Path, env: dict[str, str], stack: str) -> CheckOutcome:
    done = steps.sweepctl(root, env, "status", "--stack", stack, "--json", captured=True)
    try:
        seen = json_module.loads(done.out)
    except ValueError:
        seen = {}
    code, lines = of_status(done.code, seen if isinstance(seen, dict) else {})
    aside(*lines)
    return CheckOutcome(f"sweepctl status --stack {stack}", code, "\n".join(lines))
