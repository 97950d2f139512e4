"""The job's secrets: the config has their names, the environment of `pulumi` has their values.

The values are written nowhere else on this computer.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from sweepstack.platforms.common import redact
from sweepstack.provider.resources.base import Failure


def values(names: Iterable[str] | None) -> dict[str, str] | None:
    """Returns name → value; None when one of them is not set, or empty. The values are masked in all that we print from
    now on."""
    wanted = list(names or ())
    found = {name: os.environ[name] for name in wanted if os.environ.get(name)}
    redact.learn(found)
    return found if len(found) == len(wanted) else None


def unset_secrets(names: Iterable[str] | None) -> list[str]:
    """Those of the names that are not set, or empty."""
    return [name for name in names or () if not os.environ.get(name)]


def failures(field: str, names: Iterable[str] | None) -> list[Failure]:
    """A failure of `field` that names all missing secrets; empty when none is missing."""
    absent = unset_secrets(names)
    if not absent:
        return []
    are = "is" if len(absent) == 1 else "are"
    export = " ".join(f"{name}=…" for name in absent)
    return [
        Failure(
            field,
            f"job.secrets: {', '.join(absent)} {are} not set where this command runs; nothing was started. "
            f"Next: export {export}, then the same command again; or take it out of job.secrets",
        )
    ]
