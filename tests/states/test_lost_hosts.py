"""States of a sweep on a host of one's own that lost the folder of its boxes, the registry in it: a real sshd.

Nothing bills there, so what is over is decided by the records: until each box on record has ended, no command is done.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.engine.commands import ok
from tests.simulators.host import Host
from tests.simulators.machines import require
from tests.states.fast import Fast
from tests.states.following import REASON, Walk
from tests.states.starts import CELLS, STARTS


class OnHost(Fast):
    """Its only box is a folder of a host that is entered by SSH."""

    def __post_init__(self) -> None:
        require()
        self.machine = Host(self.base / "machine")
        self.machine.say(PATH=f"{Path(sys.prefix) / 'bin'}:/usr/local/bin:/usr/bin:/bin")
        super().__post_init__()
        ours = self.base / "ssh_config"  # a name of it needs no command resource, which the stand-in has not
        where = f"  HostName {self.machine.at}\n  User {self.machine.user}\n  Port {self.machine.port}"
        ours.write_text(f"Host lab\n{where}\n  IdentityFile {self.machine.key}\n")
        self.env |= {"SWEEPSTACK_SSH_KEY": str(self.machine.key), "SWEEPSTACK_SSH_CONFIG": str(ours)}

    @property
    def platform_root(self) -> Path:
        return self.base / "data" / "host"

    def write_config(self) -> None:
        super().write_config()
        boxes = {box: {"want": "running", "host": f"lab{self.platform_root}"} for box in self.boxes}
        new = {"candidates": ["generic-ssh"], "overrides": {"generic-ssh": {"price_per_hour": 0}}, "boxes": boxes}
        self.edit_config(lambda sweep: sweep.update(new))

    def sealed(self) -> set[str]:
        return {path.parent.name for path in self.platform_root.glob("boxes/[!.]*/mnt/durable/*/cells/*/manifest.json")}

    def books(self) -> set[str]:
        """What is on record as there."""
        return {birth["native_id"] or birth["tag"] for birth in self.births() if birth["ended_at"] is None}

    def end(self) -> None:
        super().end()
        self.machine.stop()


@pytest.fixture
def on_host(tmp_path: Path) -> Iterator[OnHost]:
    world = OnHost(tmp_path / "sweep", cells=CELLS, boxes=("box-0",))
    yield world
    world.end()


def emptied(world: OnHost) -> None:
    for native_id in world.native_ids():
        world.kill_box(native_id)
    shutil.rmtree(world.platform_root)


def an_empty_disk(world: OnHost) -> None:
    """The folder is there, and nothing in it."""
    emptied(world)
    world.platform_root.mkdir()


def of_another_sweep(world: OnHost) -> None:
    """The folder of a registry that was made since."""
    emptied(world)
    (world.platform_root / "boxes").mkdir(parents=True)
    (world.platform_root / "boxes" / ".registry").write_text("anotherone\n")
    (world.platform_root / "volumes").mkdir()
    (world.platform_root / "registry.json").write_text('{"schema": 1, "id": "anotherone", "marked": true}')


GIVES_UP = f"sweepctl give-up --stack t data/box-0 --reason '{REASON}'"
SEEN = f"sweepctl confirm gone --stack t box-0 --saw '{REASON}'"


# tests/unit/provider/test_lost_folder.py stays: the same losses on the handlers
@pytest.mark.proof
@pytest.mark.parametrize("lost", [emptied, an_empty_disk, of_another_sweep], ids=lambda lost: lost.__name__)
@pytest.mark.parametrize(
    ("start", "typed"),
    [("finished", [GIVES_UP, SEEN, "pulumi destroy --stack t"]), ("cleared", [SEEN, "pulumi destroy --stack t"])],
)
def test_out_of_a_lost_folder(start: str, typed: list[str], lost: Callable[[OnHost], None], on_host: OnHost) -> None:
    STARTS["finished"].prepare(on_host)
    if start != "finished":
        STARTS[start].prepare(on_host)
    lost(on_host)
    walk = Walk(on_host, STARTS[start].settled, ends=not STARTS[start].settled, next_too=True)
    walk.to_the_end()
    assert walk.typed == typed, "\n".join(walk.story)


@pytest.mark.proof
def test_out_of_a_preflight_that_refused(on_host: OnHost) -> None:
    """The disk was too small, and is replaced by a larger one."""
    on_host.write_config()
    ok(on_host.run("pulumi", "stack", "init", on_host.name, "--non-interactive"))
    on_host.edit_config(lambda sweep: sweep["job"]["resources"].update(disk="900TB"))
    refused = on_host.up()
    assert refused.rc != 0
    assert "nothing was made" in refused.text, str(refused)
    emptied(on_host)
    ok(on_host.types("pulumi", "destroy", "--stack", on_host.name))
    assert not on_host.books()
