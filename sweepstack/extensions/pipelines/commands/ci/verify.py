"""`sweepctl ci verify`: pulls and verifies a stack, started by hand."""

from __future__ import annotations

from sweepstack.cli.output import Out
from sweepstack.extensions.pipelines import steps
from sweepstack.extensions.pipelines.forge import here
from sweepstack.operations.sweep.target import Target


def command(stack: str | None = None, json: bool = False) -> int:
    """Pull and verify a stack with the keys of this job; prints the receipt to approve. Ends nothing."""
    here()
    target = Target.find(stack)
    steps.need_backend(target.root)
    with steps.environment() as env:
        code = steps.sweepctl(target.root, env, "pull", "--verify", "--stack", target.stack, captured=json).code
    Out(as_json=json).document({"stack": target.stack, "code": code})
    return code
