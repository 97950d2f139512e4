"""The config of a stack of volumes: what it may hold, what it comes to, and each mistake with its line and fix."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pulumi
import pytest

from components.store import Store
from sweepstack.config.stack_config import StackConfig, StoreConfig, load_any
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.profiles.layout import Tier
from sweepstack.profiles.load import load_profile
from sweepstack.profiles.model import Meter
from sweepstack.profiles.volume_stack_plan import plan_store
from sweepstack.provider.dispatch import HANDLERS
from sweepstack.provider.resources.volume import VolumeHandler
from tests.unit.config.helpers import GOOD as SWEEP
from tests.unit.config.helpers import write
from tests.unit.config.test_program import Monitor, inputs

GOOD = """\
config:
  sweepstack:store:
    platform: local
    volumes:
      abl-store: {size: 100GB, region: US-KS-2, keep_until: 2027-01-31}
      old: {size: 1TB, want: gone}
    pull_to: results/keep
encryptionsalt: v1:abc
"""
DIGEST = "sha256:" + "a" * 64
APPROVAL = f"""\
    approval:
      receipt: {DIGEST}
      actions: [{{verb: delete-volume, box: NAME, native_id: v1}}]
      waivers_digest: {DIGEST}
      by: me
      at: 2026-11-21T09:00:00Z
      expires: 2026-11-24T09:00:00Z
encryptionsalt"""


def load(root: Path, text: str) -> StoreConfig:
    write(root, text)
    return StoreConfig.load(root, "x")


def refusal(root: Path, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(root, text)
    return " ".join(str(caught.value).split())


def test_it_loads_and_comes_to_a_plan(tmp_path: Path) -> None:
    config = load(tmp_path, GOOD)
    assert config.volumes["abl-store"].keep_until == date(2027, 1, 31)
    plan = plan_store(config, load_profile("local"))
    assert [(v.name, v.size_gb, v.region, v.keep_until) for v in plan.volumes] == [
        ("abl-store", 100, "US-KS-2", "2027-01-31")
    ]
    assert plan.gone == ("old",)
    assert isinstance(load_any(tmp_path, "x"), StoreConfig)


@pytest.mark.parametrize("spelled", ["2027-01-31 00:00:00 +0000 UTC", "2027-01-31T00:00:00Z", "2027-01-31"])
def test_a_day_as_the_engine_spells_it_when_it_saves_the_file(tmp_path: Path, spelled: str) -> None:
    """`pulumi stack init` makes text of an unquoted date."""
    config = load(tmp_path, GOOD.replace("2027-01-31", f"'{spelled}'"))
    assert config.volumes["abl-store"].keep_until == date(2027, 1, 31)


MISTAKES = [
    ("size: 100GB", "sise: 100GB", 'line 5 volumes.abl-store.sise unknown key; did you mean "size"?'),
    ("size: 100GB", "size: 100", "line 5 volumes.abl-store.size: 100 expected a size with its unit"),
    ("2027-01-31", "soon", 'line 5 volumes.abl-store.keep_until: "soon" expected a day, such as 2027-01-31'),
    ("2027-01-31", "2027-02-31", "expected a day, such as 2027-01-31"),
    ("want: gone", "want: deleted", 'line 6 volumes.old.want: "deleted" expected "kept" or "gone"'),
    ("abl-store:", "Abl_Store:", "expected a volume's name: lower-case letters"),
    ("abl-store:", f"{'x' * 36}:", "expected a volume's name: lower-case letters, digits and inner dashes, 35 at most"),
    ("platform: local", "platform: locale", 'line 3 platform: "locale" no such platform; did you mean "local"?'),
    ("    platform: local\n", "", "platform is missing"),
    ("    pull_to: results/keep\n", "", "pull_to is missing"),
    ("pull_to: results/keep", "pull_to: ftp://x", "expected a folder, or s3://bucket/prefix"),
    ("    pull_to:", "    job: {}\n    pull_to:", "line 7 job unknown key"),
    ("sweepstack:store", "sweepstack:stor", 'line 2 sweepstack:stor unknown key; "sweepstack:store"?'),
    ("sweepstack:store", "sweepstak:store", 'unknown namespace; "sweepstack:store"?'),
    ("config:\n", "config:\n  sweepstack:sweep: {}\n", "sweepstack:sweep is here too; a stack holds one of the two"),
]


@pytest.mark.parametrize(("old", "new", "said"), MISTAKES)
def test_one_mistake(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert GOOD.count(old) == 1
    assert said in refusal(tmp_path, GOOD.replace(old, new))


def test_all_mistakes_come_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("size: 100GB", "size: x").replace("platform: local", "platform: nowhere").replace("1TB", "1")
    assert "has 3 mistakes; nothing was rented" in refusal(tmp_path, text)


def test_no_volumes_at_all(tmp_path: Path) -> None:
    assert "expected at least one volume" in refusal(
        tmp_path, "config:\n  sweepstack:store: {platform: local, volumes: {}, pull_to: x}\n"
    )


def test_a_sweep_is_no_stack_of_volumes_nor_the_other_way_round(tmp_path: Path) -> None:
    assert "this is a sweep, and a stack of volumes is needed here" in refusal(tmp_path, SWEEP)
    write(tmp_path, GOOD)
    with pytest.raises(ConfigError, match="this is a stack of volumes, and a sweep is needed here"):
        StackConfig.load(tmp_path, "x")
    write(tmp_path, SWEEP)
    assert isinstance(load_any(tmp_path, "x"), StackConfig)


def test_what_the_platform_needs_is_said_before_anything_is_made(tmp_path: Path) -> None:
    local = load_profile("local")
    tier = local.tiers["durable"].model_copy(update={"region_locked": True, "size_cap_bytes": 50 * 10**9})
    billed = Meter(price_per_hour=1, billed_by="second", rents=True)
    bound = local.model_copy(update={"tiers": {**local.tiers, "durable": tier}, "meter": billed})
    bare = load(tmp_path, GOOD.replace("{size: 100GB, region: US-KS-2, keep_until: 2027-01-31}", "{}"))
    with pytest.raises(ConfigError) as caught:
        plan_store(bare, bound)
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "volumes.abl-store.size is missing",
        "volumes.abl-store.region is missing",
    ]
    with pytest.raises(ConfigError, match="50 GB at most"):
        plan_store(load(tmp_path, GOOD), bound)
    without = Tier(path="mnt/durable", survives={"stop": True, "destroy": False})
    nothing = local.model_copy(update={"tiers": {**local.tiers, "durable": without}})
    with pytest.raises(ConfigError, match="has no volume that survives"):
        plan_store(load(tmp_path, GOOD), nothing)


def requests(root: Path, text: str) -> dict[tuple[str, str], Any]:
    config = load(root, text)
    monitor = Monitor()
    pulumi.runtime.set_mocks(monitor.mocks, project="sweepstack", stack="x", preview=False, monitor=monitor)

    @pulumi.runtime.test
    def program() -> None:
        Store(plan_store(config, load_profile("local"))).export()

    program()
    return {(request.type, request.name): request for request in monitor.requests}


def test_the_resources_that_it_asks_for(tmp_path: Path) -> None:
    made = requests(tmp_path, GOOD.replace("encryptionsalt", APPROVAL.replace("NAME", "abl-store")))
    kinds = sorted(name for kind, name in made if kind in HANDLERS)
    assert kinds == ["abl-store", "identity"]
    volume = inputs(made["sweepstack:index:Volume", "abl-store"])
    taken = VolumeHandler.inputs_type.model_validate(volume)
    assert (taken.guarded, taken.kept, taken.size_gb, taken.region) == (True, None, 100, "US-KS-2")
    assert taken.approval is not None
    assert "leaving" not in inputs(made["sweepstack:index:Identity", "identity"])


def test_a_word_for_a_volume_that_leaves_goes_to_the_identity(tmp_path: Path) -> None:
    made = requests(tmp_path, GOOD.replace("encryptionsalt", APPROVAL.replace("NAME", "old")))
    assert inputs(made["sweepstack:index:Identity", "identity"])["leaving"]["actions"][0]["box"] == "old"
    assert "approval" not in inputs(made["sweepstack:index:Volume", "abl-store"])
