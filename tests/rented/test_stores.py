"""A stack of volumes and two sweeps that use it, on rented boxes: real engine, real sshd."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.accepted_facts import accepted_today
from tests.engine.commands import Result, assert_failed, ok
from tests.rented.world import World, rented, without_internet
from tests.simulators.rental import stack_of, whole_rentals

KEEP = """\
config:
  sweepstack:store:
    platform: {platform}
    volumes:
      abl-store: {{size: 10GB, region: {region}, keep_until: 2031-01-31}}
    pull_to: results/abl-store
"""


@dataclass
class Lab:
    """The stack `abl-store` beside the sweep of a world, in the same checkout and backend."""

    world: World
    file: Path = field(init=False)

    def __post_init__(self) -> None:
        stack, platform = self.world.stack, self.world.platform
        self.file = stack.checkout / "stacks" / "Pulumi.abl-store.yaml"
        text = KEEP.format(platform=platform, region=self.world.its.volume_region)
        if old := accepted_today([platform]):
            text += f"    accept_facts: {json.dumps(old)}\n"
        self.file.write_text(text)
        ok(stack.run("pulumi", "stack", "init", "abl-store", "--non-interactive"))

    def pulumi(self, *words: str) -> Result:
        """`pulumi <words> --stack abl-store`."""
        yes = ("--yes", "--skip-preview") if words[0] in ("up", "destroy") else ()
        return self.world.stack.run("pulumi", *words, "--stack", "abl-store", "--non-interactive", *yes, timeout=180)

    def again(self, **grid: list[Any]) -> None:
        """The world's stack becomes the next sweep: the same file under another name, with other cells and evidence."""
        stack, before = self.world.stack, self.world.stack.config_file
        stack.name = "again"
        shutil.copy2(before, stack.config_file)
        stack.edit_config(lambda sweep: sweep.pop("approval", None))
        stack.edit_config(lambda sweep: sweep.update(pull_to="results/again"))
        stack.edit_config(lambda sweep: sweep["cells"].update(grid=grid))
        stack.evidence = stack.checkout / "results" / "again"
        stack.init()

    def where(self, native_id: str) -> str:
        """Where a box stands by the platform's books, in the words in which a volume's place is asked for."""
        return self.world.its.where(self.world.sim, native_id)

    def content(self) -> dict[str, set[str]]:
        """What lies on the account's volumes: sweep's identity → its sealed cells."""
        found: dict[str, set[str]] = {}
        for path in (self.world.stack.base.parent / "platform").glob("**/volumes/*/*/cells/*/manifest.json"):
            found.setdefault(path.parents[2].name, set()).add(path.parent.name)
        return found

    def volumes(self) -> set[str]:
        """Ids of the volumes that bill now, by the platform's own books."""
        return {rental.id for rental in self.world.sim.ledger.live() if rental.kind == "volume"}


@pytest.fixture(params=whole_rentals())
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    with rented(request.param, tmp_path, stack_of(request.param)) as world:
        without_internet(world.stack)
        mount = {"/ckpt": {"source": "abl-store"}}
        world.stack.edit_config(lambda sweep: sweep.update(mounts=mount))
        world.stack.edit_config(
            lambda sweep: sweep.update(cells={"base": {"epochs": 1}, "grid": {"lr": [0.1, 0.03], "seed": [0]}})
        )
        yield Lab(world)


def finished(lab: Lab, stack: str) -> None:
    """`sweepctl finish`, typed on a terminal and answered."""
    yes = [("Type yes to go on", "yes\n")]
    ok(lab.world.stack.terminal("sweepctl", "finish", "--stack", stack, answers=yes, timeout=400))


@pytest.mark.proof  # on the real engine: tests/engine/test_volumes.py; each adapter: tests/conformance/test_boxes.py
def test_a_volume_outlives_two_sweeps_and_ends_when_both_are_safe(lab: Lab) -> None:
    world, stack, place = lab.world, lab.world.stack, lab.world.its.volume_region
    first_name = stack.name
    ok(lab.pulumi("up"))
    (volume,) = lab.volumes()
    stack.init()
    preview = ok(stack.pulumi("preview", timeout=180))
    assert f"volume abl-store: 10 GB in {place}, {world.its.volume_month}" in preview.text, str(preview)
    assert world.rentals() == set(), "a preview rents nothing"
    ok(stack.up(timeout=400))
    (box,) = world.rentals()
    assert lab.where(box) == place, "the box is not where its volume is"
    ok(stack.sweepctl("wait", "done", timeout=400))
    finished(lab, first_name)
    assert world.rentals() == set()
    assert lab.volumes() == {volume}
    first = lab.content()
    assert list(first.values()) == [{"lr0.1-seed0", "lr0.03-seed0"}], "the sweep's end took what is on its volume"

    lab.again(lr=[0.1], seed=[1])
    ok(stack.up(timeout=400))
    (box,) = world.rentals()
    assert lab.where(box) == place
    assert lab.content().items() >= first.items(), "the second sweep lost what the first one left"
    ok(stack.sweepctl("wait", "done", timeout=400))
    used = f"used by         {', '.join(sorted((first_name, 'again')))}"
    reasons = ("not approved", f"({box}) mounts it, and is running", used, world.its.volume_month)
    assert_failed(lab.pulumi("destroy"), "REFUSED. Nothing was deleted", *reasons, "sweepctl finish --stack abl-store")
    assert lab.volumes() == {volume}
    finished(lab, "again")
    assert len(lab.content()) == 2
    finished(lab, "abl-store")
    assert list(world.sim.ledger.live()) == []
