"""Sweeps of training runs on rented machines, where nothing unverified is torn down.

`sweepstack.open("sweep-a")` gives a sweep to read from Python or a notebook (`sweepstack.library`). Nothing in here
knows the Pulumi engine, except `sweepstack.cli`, which runs it as a person would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweepstack.library.names import No, Sweep, SweepstackError, Unsure, open

__all__ = ["No", "Sweep", "SweepstackError", "Unsure", "open"]


def __getattr__(name: str) -> Any:
    """Each name is imported when it is first asked for: `import sweepstack` alone imports nothing of ours."""
    if name in __all__:
        from sweepstack.library import names

        return getattr(names, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
