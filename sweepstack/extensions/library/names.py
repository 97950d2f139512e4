"""The names of `import sweepstack`: `open`, what it gives, and the errors."""

from __future__ import annotations

import os
from pathlib import Path

from sweepstack.extensions.library.sweep import Sweep
from sweepstack.onbox.common.errors import No, SweepstackError, Unsure
from sweepstack.operations.sweep.target import Target

__all__ = ["No", "Sweep", "SweepstackError", "Unsure", "open"]


def open(stack: str | None = None, *, project: str | Path | None = None, evidence: str | Path | None = None) -> Sweep:
    """A sweep to read. It looks once, as `sweepctl results` does: at the state, the evidence and the boxes; it changes
    and costs nothing. Blocks for half a minute at most where a box does not answer.

    `stack`: as in `--stack`; by default that of PULUMI_STACK. `project`: a folder of the project, by default the
    working folder. `evidence`: a folder or `s3://…`; only it is read, and `stack` is not needed.

    Raises SweepstackError: Unsure where there is no such stack, or no project there.
    """
    if evidence is not None:
        return Sweep(Target.find_to_read(None, str(evidence)))
    start = Path(project).expanduser() if project is not None else None
    return Sweep(Target.find_sweep(stack or os.environ.get("PULUMI_STACK"), start=start))
