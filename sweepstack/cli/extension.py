"""What a command lets an extension do: the function of one of its files."""

from __future__ import annotations

from collections.abc import Callable

from sweepstack.core.extensions import not_here, part_of
from sweepstack.onbox.common.errors import Unsure


def of_extension(extension: str, file: str, option: str, function: str = "report") -> Callable[..., int]:
    """`function` of this file of an extension. `option`: what was typed, such as `results --compare`. Raises Unsure
    where it is not installed."""
    part = part_of(extension, file)
    if part is None:
        raise Unsure(f"`sweepctl {option}` belongs to {not_here(extension)}")
    found: Callable[..., int] = getattr(part, function)
    return found
