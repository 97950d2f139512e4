"""The keys that a platform puts into its boxes: each opens a few calls about the box that holds it, and no other door.

A vendor puts such a key into the environment of a box's first process. A session over SSH does not have it there: only
what reads /proc/1/environ as root has it, or an image that writes it down for its sessions (`session_env` of a
simulator). A simulator says in its `admit` what the key may do; the log of calls and the books say where it was used.
"""

from __future__ import annotations

from dataclasses import dataclass, field

OWNER, OWN, PLATFORM = "owner", "own key", "platform"
"""Who did something to a box, in the books: a customer, the box by its own key, the platform by itself."""


@dataclass(frozen=True)
class OwnKey:
    """One box's. `account`: the box's customer."""

    box: str
    account: str
    key: str = field(repr=False)


class OwnKeys:
    """All of one platform. Not thread-safe by itself. `ever`: those of boxes that are gone, too."""

    def __init__(self) -> None:
        self._by_key: dict[str, OwnKey] = {}
        self.ever: list[OwnKey] = []

    def issue(self, box: str, account: str, key: str) -> None:
        """From now on the box has this key, until it ends."""
        self._by_key[key] = OwnKey(box, account, key)
        self.ever.append(self._by_key[key])

    def of(self, box: str) -> str:
        """A box's key. KeyError: it has none, or has ended."""
        for own in self._by_key.values():
            if own.box == box:
                return own.key
        raise KeyError(f"box {box!r} has no key of its own")

    def holder(self, key: str) -> OwnKey | None:
        """Whose key it is, if it is one."""
        return self._by_key.get(key)

    def end(self, box: str) -> None:
        """The box is gone: its key is no more. Again: nothing."""
        self._by_key = {key: own for key, own in self._by_key.items() if own.box != box}

    def all(self) -> list[OwnKey]:
        """Those of all boxes that there are."""
        return list(self._by_key.values())
