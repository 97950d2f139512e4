"""`sweepctl ci destroy`: the end of a sweep, started by hand."""

from __future__ import annotations

import json as json_module
import tempfile
from pathlib import Path

from sweepstack.cli.output import NO, YES, Out
from sweepstack.extensions.pipelines import steps
from sweepstack.extensions.pipelines.changes import superseded
from sweepstack.extensions.pipelines.commands.ci.review import reviewed
from sweepstack.extensions.pipelines.forge import here
from sweepstack.onbox.common.errors import No, Unsure
from sweepstack.operations.sweep.target import Target


def command(stack: str | None = None, json: bool = False) -> int:
    """End a stack whose approval and receipt hold now: look at them, `pulumi destroy`, and see that nothing bills."""
    job, _ = here()
    target = Target.find(stack)
    root, name = target.root, target.stack
    if job.change is not None or (job.default and job.target != job.default):
        raise No(f"nothing is destroyed from {job.target or 'here'}: only from {job.default or 'the main branch'}")
    steps.need_backend(root)
    if superseded(root, job.target, name):
        raise No(f"{job.target} has other files of {name} by now: start this job again from there")
    with steps.environment() as env, tempfile.TemporaryDirectory(prefix="sweepctl-ci-") as folder:
        now = reviewed(root, env, Path(folder), name, "--destroy")
        if now.code == NO:
            raise No(f"{name} may not be destroyed; nothing was ended", [f"sweepctl review --destroy --stack {name}"])
        if now.code:
            raise Unsure(f"whether {name} may be destroyed could not be told; nothing was ended")
        ended = steps.pulumi(root, env, "destroy", "--yes", "--skip-preview", "--stack", name, "--non-interactive").code
        seen = steps.sweepctl(root, env, "status", "--stack", name, "--json", captured=True)
        look = [f"sweepctl status --stack {name}"]
    if ended:
        raise No(f"`pulumi destroy` of {name} ended with {ended}: what it did not end bills on", look)
    try:
        bills = json_module.loads(seen.out).get("bills")
    except (ValueError, AttributeError):
        bills = None
    if bills != "nothing":
        raise Unsure(f"{name} was destroyed, and it could not be proved that nothing bills any more", look)
    out = Out(as_json=json)
    out.document({"stack": name, "bills": bills})
    out.line(f"{name}: destroyed, nothing bills any more")
    return YES
