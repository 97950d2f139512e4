"""The sweep of tests/engine on a host: its only box is behind a real sshd.

So everything that it knows of them past sweepstack's code holds here, too.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.engine.commands import Result
from tests.engine.harness import Stack
from tests.simulators.host import Host
from tests.simulators.machines import require

NAMES = ["a b", "it's", 'say "hi"', "-rf", "$HOME `id`", "naïve 名前", "*?[a]", "..hidden", "a..b"]
"""Of files that a job may leave beside its artifacts. One with a line break in it is refused (tests/onbox)."""


@dataclass
class HostStack(Stack):
    """One box on one host that nobody bills for; what it seals outlives nothing."""

    cells: tuple[str, ...] = ("seed0", "seed1")
    boxes: tuple[str, ...] = ("box-0",)
    host: Host = field(init=False)

    def __post_init__(self) -> None:
        require()
        self.host = Host(self.base / "host")
        self.host.say(PATH=f"{Path(sys.prefix) / 'bin'}:/usr/local/bin:/usr/bin:/bin")
        super().__post_init__()
        self.env |= {"SWEEPSTACK_SSH_KEY": str(self.host.key), "SWEEPSTACK_SSH_CONFIG": "none"}

    @property
    def platform_root(self) -> Path:
        """The host's store: not the one of this machine, which `local` would list, too."""
        return self.base / "data" / "host"

    @property
    def address(self) -> str:
        """What `boxes.<name>.host` says: with the folder of the host's store."""
        return f"{self.host.address}{self.platform_root}"

    @property
    def adapter(self) -> str:
        return f"ssh:{self.address}"

    def write_config(self) -> None:
        super().write_config()
        self.edit_config(
            lambda sweep: sweep.update(
                candidates=["generic-ssh"],
                overrides={"generic-ssh": {"price_per_hour": 0}},
                boxes={box: {"want": "running", "host": self.address} for box in self.boxes},
            )
        )

    def run(self, *argv: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, **how: Any) -> Result:
        """Drills are the platform's, and so the host's: what is told to them is told there, for this command."""
        drills = {name: value for name, value in (env or {}).items() if name.startswith("SWEEPSTACK_DRILL_")}
        if not drills:
            return super().run(*argv, env=env, cwd=cwd, **how)
        usual = self.host.environment
        self.host.say(**usual, **drills)
        self.host.cut()  # a session that is open has the environment that it began with
        try:
            return super().run(*argv, env=env, cwd=cwd, **how)
        finally:
            self.host.say(**usual)
            self.host.cut()

    def sealed(self) -> set[str]:
        found = self.platform_root.glob("boxes/[!.]*/mnt/durable/*/cells/*/manifest.json")
        return super().sealed() | {path.parent.name for path in found}

    def durable_cell(self, cell: str) -> Path:
        (found,) = self.platform_root.glob(f"boxes/[!.]*/mnt/durable/*/cells/{cell}")
        return found

    def end(self) -> None:
        """Ends what runs on its boxes, and the host with it; `close` leaves the host as it is."""
        self.close()
        self.host.stop()
