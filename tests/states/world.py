"""The sweep that states are made of: what a loss changes, what a person types, and what the platform's books say."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from tests.engine import looking
from tests.engine.commands import Result, ok
from tests.engine.harness import Stack

HERE = "a-laptop"
ELSEWHERE = """
[ -z "$STATES_HOST" ] || hostname "$STATES_HOST"
for folder in $STATES_READ_ONLY; do mount --bind "$folder" "$folder"; mount -o remount,bind,ro "$folder"; done
unset STATES_HOST STATES_READ_ONLY
exec "$@"
"""


class StillRunning(AssertionError):
    """A command that did not end in the time that is given to each."""


class World(Stack):
    """One sweep. `host`: what this computer is called, where not as it is; `read_only`: folders on such a disk."""

    _KEPT = (*Stack._KEPT, "checkout/profiles")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.host = ""
        self.read_only: tuple[Path, ...] = ()
        self.seen: frozenset[str] = frozenset()
        """Every native id that there ever was."""
        self.hidden: tuple[Path, ...] = ()
        """Folders of boxes that were moved out of sight: on a disk that is not mounted, say."""

    def births(self) -> list[dict[str, Any]]:
        """The birth records that read."""
        found = []
        for path in sorted((self.evidence / "records" / "births").glob("*.json")):
            with contextlib.suppress(OSError, ValueError):
                found.append(json.loads(path.read_bytes()))
        return [birth for birth in found if isinstance(birth, dict) and "native_id" in birth]

    def processes(self) -> dict[str, list[int]]:
        """native id → pids of its live processes, for every box that was ever seen: records of it may be lost."""
        born = {birth["native_id"] for birth in self.births() if birth["native_id"]}
        self.seen = frozenset({*self.seen, *self.native_ids(), *born})
        return looking.processes_of(self.seen)

    def books(self) -> set[str]:
        """What bills: the boxes that the platform has, in sight or not, and those whose processes run."""
        there = set(self.native_ids()) | {path.name for folder in self.hidden for path in folder.glob("[!.]*")}
        return there | {native_id for native_id, pids in self.processes().items() if pids}

    def types(self, *argv: str) -> Result:
        """What a person types at a terminal, who says yes to what is asked."""
        if argv[0] == "pulumi" and argv[1] in ("up", "destroy"):
            argv = (*argv, "--yes", "--non-interactive", "--skip-preview")
        return self.run(*argv, cwd=self.checkout if argv[0] == "python" else None)

    def there(self, argv: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, str]]:
        """The command on this computer as it is called here and with its disks, and what its environment holds more."""
        if not self.host and not self.read_only:
            return argv, {}
        more = {"STATES_HOST": self.host, "STATES_READ_ONLY": " ".join(map(str, self.read_only))}
        return ("unshare", "-u", "-m", "sh", "-c", ELSEWHERE, "sh", *argv), more

    def end(self) -> None:
        """Nothing of it is left running."""
        self.close()


def made(world: World) -> World:
    """Its stack file is written, its stack is there, nothing is up."""
    world.write_config()
    ok(world.run("pulumi", "stack", "init", world.name, "--non-interactive"))
    return world
