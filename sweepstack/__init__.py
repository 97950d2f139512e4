"""Sweeps of training runs on rented machines, where nothing unverified is torn down.

`sweepstack.open("sweep-a")` gives a sweep to read from Python or a notebook (`sweepstack.library.sweep.Sweep`).
Nothing in here knows the Pulumi engine, except `sweepstack.cli`, which runs it as a person would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from sweepstack.library.sweep import Sweep as Sweep
    from sweepstack.onbox.common.errors import No, SweepstackError, Unsure

__all__ = ["No", "SweepstackError", "Unsure", "open"]


def open(stack: str | None = None, *, project: str | Path | None = None, evidence: str | None = None) -> Sweep:
    """A sweep to read. It looks once, as `sweepctl results` does: at the state, the evidence and the boxes; it changes
    and costs nothing. Blocks for half a minute at most where a box does not answer.

    `stack`: as in `--stack`; by default that of PULUMI_STACK. `project`: a folder of the project, by default the
    working folder. `evidence`: a folder or `s3://…`; only it is read, and `stack` is not needed.

    Raises SweepstackError: Unsure where there is no such stack, or no project there.
    """
    import os
    from pathlib import Path

    from sweepstack.library.sweep import Sweep as Sweep
    from sweepstack.operations.sweep.target import Target

    if evidence is not None:
        return Sweep(Target.find_to_read(None, evidence))
    start = Path(project).expanduser() if project is not None else None
    return Sweep(Target.find_sweep(stack or os.environ.get("PULUMI_STACK"), start=start))


def __getattr__(name: str) -> Any:
    """The errors, imported when they are first asked for: `import sweepstack` imports nothing."""
    if name in ("No", "SweepstackError", "Unsure"):
        from sweepstack.onbox.common import errors

        return getattr(errors, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
