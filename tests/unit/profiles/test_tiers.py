"""Where tiers lie on hosts that have them already; what the surviving one can't hold, and what a host is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweepstack.config.stack_config import StackConfig
from sweepstack.onbox.common import box_layout
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.profiles.plan import Plan
from sweepstack.profiles.resolve import resolve
from tests.unit.config.helpers import GOOD, write
from tests.unit.profiles.test_rentals import MOUNTS, plan, text, there

FILES = 6 * (1 + 4 + 1)
"""Of the config that these tests share: six cells, one artifact, a metrics file, and what each leaves besides."""


def with_places(root: Path, name: str, places: str, more: str = "") -> Plan:
    write(root, text(name, more).replace("price_per_hour: 0.5", f"price_per_hour: 0.5, places: {places}"))
    return resolve(StackConfig.load(root, "x"), {name: there(name)})


def test_boxes_lie_on_the_data_tier_and_seal_on_the_surviving_one(tmp_path: Path) -> None:
    found = plan(tmp_path, "autodl")
    assert found.adapter_of(found.boxes[0]) == "ssh:root@192.0.2.7:22/root/autodl-tmp/sweepstack"
    assert found.durable is not None
    assert found.site is not None
    assert (found.durable.place, found.durable.kept_volume) == ("/root/autodl-fs", False)
    assert found.site.places_input() == {"data": "/root/autodl-tmp", box_layout.DURABLE: "/root/autodl-fs"}
    assert found.site.claims_input() == {
        "data": {"tier": "data"},
        box_layout.DURABLE: {
            "tier": "durable",
            "mounted": True,
            "files": FILES,
            "bytes": 6 * 50_000_000,
            "region_locked": True,
        },
    }


def test_what_does_not_survive_is_no_place_to_seal_on(tmp_path: Path) -> None:
    found = plan(tmp_path, "generic-ssh")
    assert found.durable is None
    assert found.site is not None
    assert found.site.places_input() is None
    assert found.adapter_of(found.boxes[0]) == "ssh:root@192.0.2.7:22", "a login's home is its own"


def test_a_file_system_that_a_person_made_is_named_by_the_mount(tmp_path: Path) -> None:
    found = plan(tmp_path, "lambda", more=MOUNTS)
    assert found.durable is not None
    assert found.site is not None
    assert (found.durable.place, found.durable.path) == ("/lambda/nfs/abl-store", "/ckpt")
    assert found.site.places_input() == {box_layout.DURABLE: "/lambda/nfs/abl-store", "data": "/home/ubuntu"}
    assert found.site.claims[box_layout.DURABLE]["mounted"] is True


def test_a_person_knows_better_where_a_tier_lies(tmp_path: Path) -> None:
    found = with_places(tmp_path, "autodl", "{data: /disk, durable: ~/keep}")
    assert found.adapter_of(found.boxes[0]) == "ssh:root@192.0.2.7:22/disk/sweepstack"
    assert found.site is not None
    assert found.site.places_input() == {"data": "/disk", box_layout.DURABLE: "~/keep"}
    assert "mounted" not in found.site.claims[box_layout.DURABLE], "that is known of the profile's own place alone"
    own = plan(tmp_path, "autodl").boxes[0]
    assert found.adapter_of(own.__class__(**{**own.__dict__, "host": "ann@h:22/mine"})) == "ssh:ann@h:22/mine"


@pytest.mark.parametrize(("seeds", "fits"), [(5555, True), (5556, False)], ids=["199,980 files", "200,016 files"])
def test_more_files_than_the_tier_holds_are_refused_at_preview(tmp_path: Path, seeds: int, fits: bool) -> None:
    rates, numbers = [", ".join(map(str, range(count))) for count in (6, seeds)]
    many = text("autodl").replace(", min: 50MB", "")
    write(tmp_path, many.replace("lr: [0.1, 0.03], seed: [0, 1, 2]", f"lr: [{rates}], seed: [{numbers}]"))
    if fits:
        resolve(StackConfig.load(tmp_path, "x"), {"autodl": there("autodl")})
        return
    with pytest.raises(ConfigError, match=r"durable tier holds 200,000 files, and 33,336 cells leave 200,016 behind"):
        resolve(StackConfig.load(tmp_path, "x"), {"autodl": there("autodl")})


def test_more_bytes_than_the_tier_holds_are_refused_at_preview(tmp_path: Path) -> None:
    write(tmp_path, text("autodl").replace("min: 50MB", "min: 40GB"))
    with pytest.raises(
        ConfigError, match=r"holds 200 GB, and the artifacts have 240 GB at least: let the job keep less"
    ):
        resolve(StackConfig.load(tmp_path, "x"), {"autodl": there("autodl")})


def test_the_room_that_a_volume_needs_is_told_in_the_preview(tmp_path: Path) -> None:
    """Its size is not the profile's to know; what the artifacts come to is."""
    assert plan(tmp_path, "autodl").checked == ()
    write(tmp_path, text("autodl").replace("min: 50MB", "min: 5GB"))
    (said,) = resolve(StackConfig.load(tmp_path, "x"), {"autodl": there("autodl")}).checked
    assert said.startswith("room: the durable tier has to hold 30.0 GB at least (6 cells of 5 GB")
    assert "two checkpoints of each cell" in said


SMALL_DISK = ("cpu: 1", "cpu: 1\n        disk: 20GB")


def sized(root: Path, name: str, least: str, *changes: tuple[str, str]) -> Plan:
    """The plan of six cells there whose artifact has at least so much."""
    own = there(name)
    said = (
        text(name)
        if own.ssh is not None
        else GOOD.replace("[local]", f"[{name}]").replace(
            "overrides: {local: {price_per_hour: 0.12}}", "budget: {usd: 9}\n    when_done: keep\n    lease: none"
        )
    )
    if own.by_hand is not None:
        said = said.replace("{want: running}", "{want: running, returns: ~/r}")
    for old, new in (("min: 50MB", f"min: {least}"), *changes):
        assert old in said
        said = said.replace(old, new, 1)
    write(root, said)
    return resolve(StackConfig.load(root, "x"), {name: own})


def test_what_one_box_alone_holds_has_to_fit_there(tmp_path: Path) -> None:
    """Kaggle keeps 20 GB of a session; each box has its share of the cells."""
    with pytest.raises(ConfigError, match=r"holds 20 GB, and the artifacts of one box's cells have 24 GB"):
        sized(tmp_path, "kaggle", "4GB")
    two = ("boxes: {", "boxes: {box-1: {want: running, returns: ~/r2}, ")
    assert (
        sized(tmp_path, "kaggle", "4GB", two)
        .checked[-1]
        .startswith("room: the disk of each box has to hold 12.0 GB at least (its share of 6 cells of 4 GB")
    )


def test_a_bucket_is_where_hand_made_sessions_come_back_to(tmp_path: Path) -> None:
    """A notebook's results are carried to a folder."""
    bucket = ("returns: ~/r", "returns: 's3://lab/sweeps/t/'")
    with pytest.raises(ConfigError, match=r"boxes.box-0.returns is a bucket.*Write candidates: \[manual\]"):
        sized(tmp_path, "colab", "1GB", bucket)
    found = sized(tmp_path, "manual", "1GB", bucket)
    assert found.adapter_of(found.boxes[0]) == "manual:s3://lab/sweeps/t"
    for wrong in ("s3://lab", "s3://lab/../x", "s3://key@lab/x"):
        with pytest.raises(ConfigError, match="a folder such as ~/Drive/sweeps, or s3://bucket/prefix"):
            sized(tmp_path, "manual", "1GB", ("returns: ~/r", f"returns: '{wrong}'"))


def test_a_disk_that_is_asked_for_has_to_hold_what_stays_on_it(tmp_path: Path) -> None:
    said = [note for note in sized(tmp_path, "runpod", "4GB", SMALL_DISK).notes if "queue waits" in note]
    assert said[0].startswith("job.resources.disk asks for 20GB, and the artifacts of one box's cells have 24 GB at")
    assert not [note for note in sized(tmp_path, "runpod", "3GB", SMALL_DISK).notes if "queue waits" in note]
    mount = ("    boxes:", "    mounts: {/ckpt: {source: abl-store}}\n    boxes:")
    found = sized(tmp_path, "runpod", "4GB", SMALL_DISK, mount)
    assert not [note for note in found.notes if "queue waits" in note], "the volume holds them"
    assert found.durable is not None
    assert found.durable.least == 24 * 10**9


def test_a_host_is_told_what_its_tier_has_to_hold(tmp_path: Path) -> None:
    site = sized(tmp_path, "autodl", "5GB").site
    assert site is not None
    assert site.claims[box_layout.DURABLE]["bytes"] == 30 * 10**9


def test_several_boxes_hear_of_the_region(tmp_path: Path) -> None:
    assert not [note for note in plan(tmp_path, "autodl").notes if "region" in note]
    two = text("autodl").replace("host: root@192.0.2.7}", "host: root@192.0.2.7}, box-1: {host: root@192.0.2.8}")
    write(tmp_path, two)
    found = resolve(StackConfig.load(tmp_path, "x"), {"autodl": there("autodl")})
    (note,) = [note for note in found.notes if "region" in note]
    assert "a cell that moves to a host of another region starts again there" in note


def test_places_are_for_hosts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a folder of the host, such as /data or ~/keep"):
        with_places(tmp_path, "autodl", "{durable: ../here}")
    with pytest.raises(ConfigError, match="system"):
        with_places(tmp_path, "autodl", "{system: /x}")


def test_a_person_knows_better_which_python_a_host_has(tmp_path: Path) -> None:
    write(tmp_path, text("autodl").replace("price_per_hour: 0.5", "price_per_hour: 0.5, python: /opt/conda/bin/python"))
    found = resolve(StackConfig.load(tmp_path, "x"), {"autodl": there("autodl")})
    assert found.site is not None
    assert found.site.python == "/opt/conda/bin/python"
