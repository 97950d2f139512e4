"""Sweeps of training runs on rented machines, where nothing unverified is torn down.

`sweepstack.open("sweep-a")` gives a sweep to read from Python or a notebook, by the extension `library`. Nothing in
here knows the Pulumi engine, except `sweepstack.cli`, which runs it as a person would.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweepstack.extensions.library.names import No, Sweep, SweepstackError, Unsure, open

__all__ = ["No", "Sweep", "SweepstackError", "Unsure", "open"]


def __getattr__(name: str) -> Any:
    """Each name is imported when it is first asked for: `import sweepstack` alone imports nothing of ours. Raises
    ImportError where the extension is not installed."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sweepstack.core.extensions import not_here, part_of

    names = part_of("library", "names")
    if names is None:
        raise ImportError(f"sweepstack.{name} belongs to {not_here('library')}")
    return getattr(names, name)
