"""`sweepctl ci review`: reviews each stack that a request touches. Its step has keys, and no token."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sweepstack.cli.output import NO, UNSURE, YES, Out
from sweepstack.config.edit.stack_file import valid_stack_name
from sweepstack.extensions.pipelines import steps
from sweepstack.extensions.pipelines.changes import Touched, fork_point, git, touched
from sweepstack.extensions.pipelines.forge import here
from sweepstack.extensions.pipelines.steps import StackResult
from sweepstack.onbox.common.errors import No
from sweepstack.operations.sweep.target import project_root

_NEW = "The backend has no stack {stack} yet: this was previewed against an empty state. `ci up` makes it.\n"
WORDS = {YES: "may go on", NO: "may not go on", UNSURE: "could not be told"}


def command(folder: Path, json: bool = False) -> int:
    """Review each stack that this change touches, for the step that posts it. Changes nothing that runs."""
    job, _ = here()
    root = project_root()
    if job.foreign:
        raise No(
            "this change is from a fork: it is not reviewed with the keys of this repository. Push its branch here"
        )
    base = job.base or fork_point(root, job.target)
    found = touched(root, base)
    if found:
        steps.need_backend(root)
    folder.mkdir(parents=True, exist_ok=True)
    with steps.environment() as env:
        stacks = steps.listed(root, env) if found else None
        # What all share changes nothing of a stack that is not up: the `up` of this change leaves it as it is, too.
        left = [one.stack for one in found if one.shared and steps.is_down(stacks, one.stack)]
        asked = {one.stack: one for one in found if one.stack not in left}
        result = steps.one_by_one(
            "review",
            folder,
            list(asked),
            lambda stack: _of(root, env, folder.resolve(), base, asked[stack], stacks),
            _cut,
        )
    results, out = result.stacks, Out(as_json=json)
    out.document({"stacks": [{"stack": one.stack, "code": one.code, "digest": one.digest} for one in results]})
    for one in results:
        out.line(f"{one.stack}: {one.words}")
    if left:
        out.line(f"not up, and nothing of its own changes, so it is not reviewed: {', '.join(left)}")
    elif not results:
        out.line("this change touches no stack")
    return result.code


def _cut(stack: str, begun: bool) -> StackResult:
    words = "could not be told: the job was cut in its review" if begun else "not reviewed: the job was cut before it"
    return StackResult(stack, UNSURE, words, f"{stack} {words}. Start the job again.\n")


def _of(
    root: Path, env: dict[str, str], into: Path, base: str, one: Touched, stacks: dict[str, int | None] | None
) -> StackResult:
    if one.removed:
        return _removed(root, env, one.stack, base, stacks)
    if stacks is None:
        return StackResult(one.stack, UNSURE, "the backend could not be asked", "The backend could not be asked.\n")
    if one.stack in stacks:
        return reviewed(root, env, into, one.stack, "--request", "--base", base)
    if not valid_stack_name(one.stack):
        words = "no stack may have this name: small letters, digits and -"
        return StackResult(one.stack, NO, words, f"{words.capitalize()}. Rename the stack file.\n")
    # What an unmerged request names is not made in the team's backend: its review needs rights to read alone.
    with steps.empty_backend(root, env, one.stack) as own:
        if own is None:
            return StackResult(one.stack, UNSURE, "could not be previewed", "The job's log says why.\n")
        found = reviewed(root, own, into, one.stack, "--request", "--base", base)
    return replace(found, body=f"{found.body}\n{_NEW.format(stack=one.stack)}")


def reviewed(root: Path, env: dict[str, str], into: Path, stack: str, *words: str) -> StackResult:
    """Runs `sweepctl review`, and reads what it wrote."""
    markdown, document, page = (into / f"{stack}.{kind}" for kind in ("md", "json", "html"))
    for old in (markdown, document, page):
        old.unlink(missing_ok=True)
    files = ("-o", str(markdown), "-o", str(document), "-o", str(page))
    code = steps.sweepctl(root, env, "review", "--stack", stack, *words, *files).code
    code = code if code in (YES, NO) else UNSURE
    body = steps.text(markdown)
    digest = str(steps.document(document).get("digest") or "")
    if code == YES and not digest:
        code = UNSURE  # what was reviewed can't be named, so nothing can be bound to it
    if body.startswith("<!-- "):
        body = body.partition("\n")[2]
    body = body or f"`sweepctl review --stack {stack}` ended with {code} and wrote nothing: the job's log says why.\n"
    return StackResult(stack, code, WORDS[code], body, digest, page=page.name if page.is_file() else "")


def _removed(
    root: Path, env: dict[str, str], stack: str, base: str, stacks: dict[str, int | None] | None
) -> StackResult:
    """A stack whose file this change removes: fine where the backend has nothing of it."""
    exported = steps.pulumi(root, env, "stack", "export", "--stack", stack, "--file", "/dev/null", "--non-interactive")
    # A list is of one project, so that of a project whose file the same change edits is no proof; nor is no answer.
    same_project = not git(root, "diff", "--name-only", base, "HEAD", "--", "Pulumi.yaml")
    if exported.code and same_project and stacks is not None and stack not in stacks:
        words = "its file is removed, and the backend has no such stack"
        return StackResult(stack, YES, words, f"{words.capitalize()}: nothing of it is left to end.\n")
    if exported.code:
        words = "its file is removed, and the backend has no such stack, or did not say"
        return StackResult(stack, UNSURE, words, f"{words.capitalize()}. Removing a stack file ends nothing.\n")
    words = "its file is removed, and that ends nothing: its boxes bill on"
    body = f"{words.capitalize()}. First `pulumi destroy --stack {stack}`, then `pulumi stack rm {stack}`.\n"
    return StackResult(stack, NO, words, body)
