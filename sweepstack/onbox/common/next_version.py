"""Which version a failed cell runs at its next try: its own, or what was asked for since."""

from __future__ import annotations


def takes_new(final: bool, saved: bool | None) -> bool:
    """Whether its next try takes what was asked for since. `final`: it is not tried again by itself; `saved`: whether
    it had a checkpoint when it failed, None where an older runner did not say.

    A checkpoint belongs to the version that wrote it: with another one the cell would begin at 0, which a person
    has to ask for.
    """
    return final if saved is None else not saved
