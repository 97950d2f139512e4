"""The job's secrets: names in the config, values in the environment of whoever runs `pulumi`, and nowhere else here."""

from __future__ import annotations

import os
from collections.abc import Iterable

from sweepstack.platforms.common import redact
from sweepstack.provider.resources.base import Failure


def values(names: Iterable[str] | None) -> dict[str, str] | None:
    """name → value; None when one of them is not set, or empty. What is found is masked in all that we say."""
    wanted = list(names or ())
    found = {name: os.environ[name] for name in wanted if os.environ.get(name)}
    redact.learn(found)
    return found if len(found) == len(wanted) else None


def missing(names: Iterable[str] | None) -> list[str]:
    """Those that are not set, or empty."""
    return [name for name in names or () if not os.environ.get(name)]


def failures(field: str, names: Iterable[str] | None) -> list[Failure]:
    """The refusal where one is missing; empty when none is."""
    absent = missing(names)
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
