"""Every profile with every job shape, and what each verb leaves there. No platform is asked: plans, and folders.

What real boxes keep over a stop and an end is `test_boxes.py`'s, for every adapter; here it is what the plan, and
through it the gate, believes of every profile.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sweepstack.config.stack_config import StackConfig
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.profiles.hosts import HOME_TIER
from sweepstack.profiles.layout import Layout, Tier, Verb, VerbFacts
from sweepstack.profiles.load import load_profile, platforms
from sweepstack.profiles.model import Profile
from sweepstack.profiles.plan import Plan
from sweepstack.profiles.resolve import resolve
from tests.conformance.harness import harness_class

Change = Callable[[dict[str, Any], Profile], None]
VERBS: tuple[Verb, ...] = ("stop", "destroy")
HOST = "root@192.0.2.{}"


def asked(profile: Profile) -> dict[str, Any]:
    """A small sweep that says all that a platform with a bill asks for."""
    return {
        "job": {"workdir": "job", "run": "python t.py --lr {lr} --out {out}", "resources": {"cpu": 1}},
        "cells": {"grid": {"lr": [0.1, 0.03]}},
        "artifacts": {"best.pt": {"load": "torch", "finite": "require", "min": "5MB"}},
        "candidates": [profile.platform],
        "boxes": {"box-0": _box(profile, 0)},
        "budget": {"usd": 60},
        "when_done": "keep",
        "lease": "none",
        "pull_to": "results/x",
        "overrides": {} if profile.meter.quoted else {profile.platform: {"price_per_hour": 0.5}},
    }


def _box(profile: Profile, number: int, **said: Any) -> dict[str, Any]:
    way = {"host": HOST.format(7 + number)} if profile.ssh is not None else {}
    way |= {"returns": f"~/sweeps/{number}"} if profile.by_hand is not None else {}
    return {"want": "running", **way, **said}


def resources(**said: Any) -> Change:
    return lambda sweep, _: sweep["job"]["resources"].update(said)


def top(**said: Any) -> Change:
    return lambda sweep, _: sweep.update(said)


def job(**said: Any) -> Change:
    return lambda sweep, _: sweep["job"].update(said)


def boxes(count: int, **said: Any) -> Change:
    return lambda sweep, of: sweep.update(boxes={f"box-{n}": _box(of, n, **said) for n in range(count)})


def both(*changes: Change) -> Change:
    def change(sweep: dict[str, Any], of: Profile) -> None:
        for one in changes:
            one(sweep, of)

    return change


def drop(name: str) -> Change:
    return lambda sweep, _: sweep.pop(name) and None


MOUNT = top(mounts={"/ckpt": {"source": "abl-store"}})
BUCKET = both(
    top(mounts={"/data": {"source": "s3://bucket/data", "mode": "COPY"}}),
    job(secrets=["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]),
)
SHAPES: dict[str, Change] = {
    "plain": top(),
    "one GPU": resources(gpu={"name": ["A100"], "count": 1, "memory": "40GB+"}),
    "eight GPUs": resources(gpu={"name": ["H100"], "count": 8}),
    "a new CUDA": resources(gpu={"name": ["H100"], "count": 1, "cuda": "12.8+"}),
    "spot": both(resources(gpu={"name": ["A100"], "count": 1}, spot=True)),
    "spot with a bid": both(resources(spot=True), top(bid=0.2)),
    "a bid without spot": top(bid=0.2),
    "a volume": MOUNT,
    "a volume on three boxes": both(MOUNT, boxes(3)),
    "a bucket": BUCKET,
    "a volume and a bucket": both(BUCKET, lambda s, _: s["mounts"].update({"/ckpt": {"source": "abl-store"}})),
    "a disk of 50 TB": resources(disk="50TB"),
    "a region": resources(regions=["EU-RO-1"]),
    "an image": job(image="pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime"),
    "no budget": drop("budget"),
    "no word on what comes after": drop("when_done"),
    "no word on the lease": drop("lease"),
    "stops when done": top(when_done="stop", lease="2h"),
    "a cheap box": top(max_price=0.01),
    "three boxes": boxes(3),
    "a stopped box": boxes(1, want="stopped"),
    "no box": boxes(1, want="gone"),
    "a thousand cells of 2 GB": both(
        top(cells={"grid": {"lr": [n / 1000 for n in range(1, 1001)]}}),
        lambda sweep, _: sweep["artifacts"]["best.pt"].update(min="2GB"),
    ),
    "much memory": resources(memory="512GB"),
}


@cache
def config_of(name: str, shape: str, folder: Path) -> StackConfig:
    profile = load_profile(name)
    sweep = copy.deepcopy(asked(profile))
    SHAPES[shape](sweep, profile)
    stacks = folder / "stacks"
    stacks.mkdir(exist_ok=True)
    path = stacks / "Pulumi.x.yaml"
    path.write_text(yaml.safe_dump({"config": {"sweepstack:sweep": sweep}}))
    return StackConfig.load(folder, "x")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("project")


def planned_or_not(config: StackConfig, profile: Profile) -> tuple[Plan | None, list[str]]:
    """The plan, or why there is none."""
    try:
        return resolve(config, {profile.platform: profile}), []
    except ConfigError as error:
        return None, error.problems


def refused(profile: Profile, shape: str) -> str | None:
    """Words of the refusal that the facts demand, None where they demand none."""
    mounted = profile.layout(volume=True).durable_tier("destroy")
    # A host without a bill is one's own; these have a price.
    own = profile.by_hand is not None or profile.scheduled
    bills = profile.meter.rents and not (own and profile.meter.price_per_hour == 0)
    if "GPU" in shape or "CUDA" in shape:
        return "has no GPUs" if profile.gpus.offered is False else None
    if shape in ("spot", "spot with a bid"):
        return None if profile.spot_available else "has no spot boxes"
    if shape == "a bid without spot":
        return "bid is for spot boxes"
    if shape.startswith("a volume"):
        if mounted is None:
            return "no volume can be mounted there that survives"
        if "three" in shape and not mounted[1].shared_between_boxes:
            return "mounted by one box at a time"
    if shape == "no budget" and bills:
        return "so the sweep needs a budget"
    if shape == "no word on what comes after" and bills:
        return "the config must say when_done"
    if shape == "no word on the lease" and bills:
        return "the config must say lease"
    if shape == "stops when done" and profile.stop_from_inside in ("unproved", "refuted"):
        return "when_done: stop can't be kept there"
    if shape == "stops when done" and profile.scheduled:
        return "lease: 2h can't be kept there"
    stop = profile.verbs.get("stop")
    if shape == "a stopped box" and (stop is None or stop.issued_by == "person" or HOME_TIER in stop.kills):
        return "want: gone"
    return None


@pytest.mark.parametrize("name", platforms())
def test_each_job_shape_is_a_plan_or_a_refusal_with_a_reason(name: str, folder: Path) -> None:
    profile, planned = load_profile(name), 0
    for shape in SHAPES:
        config = config_of(name, shape, folder)
        must = refused(profile, shape)
        plan, problems = planned_or_not(config, profile)
        if plan is not None:
            assert must is None, f"{shape}: it was to be refused: {must}"
            planned += 1
            _holds(plan, profile, volume=bool(config.volume_mounts))
            continue
        assert problems, shape
        assert all(one.startswith(f"{name}: ") and len(one) > len(name) + 20 for one in problems), problems
        assert must is None or must in "".join(problems), f"{shape}: {must!r} is not in {problems}"
        assert must is not None or shape in MAY, f"{shape}: {problems}"
    assert planned >= 8, "it refuses almost all"


MAY = (
    "a cheap box",
    "a disk of 50 TB",
    "a thousand cells of 2 GB",
    "a bucket",
    "a volume and a bucket",
    "three boxes",
    "a volume",
)
"""Shapes that a platform may refuse for its own sizes or ways in."""


def _holds(plan: Plan, profile: Profile, *, volume: bool) -> None:
    """What every plan has to be, whatever was asked for."""
    layout, end = profile.layout(volume=volume), plan.teardown
    assert {*end.kills, *end.keeps} == set(layout.tiers)
    assert not {*end.kills} & {*end.keeps}
    assert plan.reasons[-1].startswith(f"{profile.platform}: chosen")
    assert sum(len(box.cells) for box in plan.boxes) in (0, len(plan.roster.cells))
    assert plan.durable is None or plan.durable.tier in end.keeps
    for tier, facts in layout.tiers.items():
        assert (tier in end.keeps) == (facts.survives.get("destroy") is True)
    if plan.job.when_drained:
        assert end.stop is not None
        assert not [tier for tier in end.stop.kills if layout.tiers[tier].path], "it stops itself and wipes a tier"


# what each verb leaves, executed


def cases() -> Iterator[tuple[str, bool, Verb]]:
    for name in platforms():
        profile = load_profile(name)
        for volume in (False, True) if profile.with_volume is not None else (False,):
            for verb in profile.layout(volume=volume).verbs:
                yield name, volume, verb


@pytest.mark.parametrize(("name", "volume", "verb"), list(cases()))
def test_what_a_verb_leaves_is_what_its_profile_says(
    name: str, volume: bool, verb: Verb, folder: Path, tmp_path: Path
) -> None:
    """A box as folders, one a tier with a sealed file; the verb takes away what the plan says that it kills."""
    profile = load_profile(name)
    layout = profile.layout(volume=volume)
    plan = resolve(config_of(name, "a volume" if volume else "plain", folder), {name: profile})
    for tier in layout.tiers:
        (tmp_path / tier).mkdir()
        (tmp_path / tier / "best.pt").write_text(tier)
    kills = plan.teardown.kills if verb == "destroy" else layout.verbs[verb].kills
    if verb == "stop" and plan.teardown.stop is not None:
        assert plan.teardown.stop.kills == kills, "the gate is told of other tiers than the profile kills"
    for tier in kills:
        shutil.rmtree(tmp_path / tier)
    left = {tier for tier in layout.tiers if (tmp_path / tier / "best.pt").is_file()}
    assert left == {tier for tier, facts in layout.tiers.items() if facts.survives.get(verb) is True}
    if plan.durable is not None:
        assert (tmp_path / plan.durable.tier / "best.pt").read_text() == plan.durable.tier
    for clock in plan.teardown.clocks:
        assert set(clock.kills) <= set(layout.tiers)


@pytest.mark.parametrize("name", [name for name in platforms() if load_profile(name).ssh is None])
def test_the_profile_says_what_the_adapter_s_own_boxes_show(name: str) -> None:
    """`test_boxes.py` stops and ends real boxes, and a harness says what they have to show: the profile says the same.

    A tier that a profile lets die may live longer, never the other way."""
    profile = load_profile(name)
    if profile.by_hand is not None or "stop" not in profile.verbs:
        return  # no program stops or ends its boxes
    harness = harness_class(profile.adapter)
    layout = profile.layout(volume=True)
    kept = {layout.tiers[tier].path for tier in layout.verbs["stop"].keeps}
    killed = {layout.tiers[tier].path for tier in layout.verbs["stop"].kills}
    assert kept <= set(harness.kept_by_stop)
    assert set(harness.killed_by_stop) <= killed


# the property

SURVIVES = st.sampled_from([True, False, None])


@st.composite
def layouts(draw: Any, base: Layout) -> Layout:
    """Any layout that a profile could have: tiers that live and die as they like, verbs that say so."""
    tiers = {
        name: Tier.model_validate(
            tier.model_dump()
            | {
                "survives": {verb: draw(SURVIVES) for verb in base.verbs},
                "mount": tier.path if tier.path and draw(st.booleans()) else None,
            }
        )
        for name, tier in base.tiers.items()
    }
    verbs = {}
    for verb, facts in base.verbs.items():
        keeps = tuple(name for name, tier in tiers.items() if tier.survives[verb] is True)
        kills = tuple(name for name in tiers if name not in keeps)
        verbs[verb] = VerbFacts.model_validate(facts.model_dump() | {"kills": kills, "keeps": keeps})
    return Layout(tiers=tiers, verbs=verbs)


@pytest.mark.parametrize("name", ["runpod", "vastai", "autodl"])
@given(data=st.data())
@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.filter_too_much])
def test_the_only_copy_of_a_sealed_artifact_never_dies_unseen(name: str, folder: Path, data: st.DataObject) -> None:
    """Sealed artifacts lie on the durable tier, or where there is none on the box's own.

    Of a verb that we issue: either that tier survives it, or the gate is told that it dies, and lets it go only with a
    verified copy elsewhere. What a box does by itself (when its queue is drained, when its lease is over) passes no
    gate, so there the tier survives, always.
    """
    profile = load_profile(name)
    plain = data.draw(layouts(profile.layout(volume=False)))
    mounted = data.draw(layouts(profile.with_volume)) if profile.with_volume is not None else None
    changed = profile.model_copy(update={"tiers": plain.tiers, "verbs": plain.verbs, "with_volume": mounted})
    assume(not changed.layout(volume=False).problems() and not changed.layout(volume=True).problems())
    shape = data.draw(st.sampled_from(["stops when done", "a volume", "a stopped box", "plain"]))
    config = config_of(name, shape, folder)
    layout = changed.layout(volume=bool(config.volume_mounts))
    plan, _ = planned_or_not(config, changed)
    if plan is None:
        return
    _holds(plan, changed, volume=bool(config.volume_mounts))
    sealed = plan.durable.tier if plan.durable is not None else HOME_TIER
    dies = {verb: layout.tiers[sealed].survives.get(verb) is not True for verb in layout.verbs}
    assert (sealed in plan.teardown.kills) == dies["destroy"]
    assert plan.durable is None or not dies["destroy"]
    if plan.teardown.stop is not None:
        assert (sealed in plan.teardown.stop.kills) == dies["stop"]
    if plan.job.when_drained:
        assert not dies["stop"]
    if plan.job.lease is not None and not plan.job.lease.stays:
        assert not dies["stop"]
