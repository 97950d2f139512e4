"""From config and profiles to a plan, with a reason for each choice and refusal."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.box import job_input
from components.sweep import outlook_of
from sweepstack.config.stack_config import StackConfig
from sweepstack.core.job import JobInput
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.profiles.fleet import Fleet
from sweepstack.profiles.load import load_profile, platforms
from sweepstack.profiles.model import Clock, Profile
from sweepstack.profiles.plan import Plan
from sweepstack.profiles.resolve import resolve
from tests.unit.config.helpers import GOOD, write

FREE = GOOD.replace("    max_price: 2.10\n", "").replace(
    '        gpu: {name: [A100, H100], count: 1, memory: 40GB+, cuda: "12.4+"}\n', ""
)


def config(root: Path, text: str = FREE, platforms: tuple[str, ...] = ("local", "other")) -> StackConfig:
    write(root, text)
    return StackConfig.load(root, "x", platforms)


def other(**facts: Any) -> Profile:
    """A second platform, made from the first."""
    return load_profile("local").model_copy(update={"platform": "other", "adapter": "other", **facts})


def plan(root: Path, text: str = FREE, **profiles: Profile) -> Plan:
    return resolve(config(root, text), {"local": load_profile("local"), **profiles})


def refusal(root: Path, text: str = FREE, **profiles: Profile) -> str:
    with pytest.raises(ConfigError) as caught:
        plan(root, text, **profiles)
    return str(caught.value)


def test_a_plan_holds_all_that_a_later_delete_needs(tmp_path: Path) -> None:
    made = plan(tmp_path)
    assert (made.platform, made.adapter) == ("local", "local")
    ends = made.teardown
    assert (ends.verb, ends.kills, ends.keeps) == ("destroy", ("scratch", "data"), ("durable",))
    assert (made.durable.volume, made.durable.mount, made.durable.tier) == ("durable", "mnt/durable", "durable")
    assert made.price_per_hour == 0.12
    assert made.reasons == (
        "local: chosen, the first candidate that fits; durable survives destroy, scratch and data don't",
    )
    assert made.artifacts[0].min_bytes == 50_000_000


def test_without_an_override_the_profile_s_price_counts(tmp_path: Path) -> None:
    assert plan(tmp_path, FREE.replace("    overrides: {local: {price_per_hour: 0.12}}\n", "")).price_per_hour == 0


def test_every_cell_is_on_one_box_that_is_wanted(tmp_path: Path) -> None:
    boxes = "boxes: {a: {want: running}, b: {want: gone}, c: {want: running}}"
    made = plan(tmp_path, FREE.replace("boxes: {box-0: {want: running}}", boxes))
    assert made.gone == ("b",)
    assert [box.name for box in made.boxes] == ["a", "c"]
    assert sorted(cell.name for box in made.boxes for cell in box.cells) == sorted(made.roster.names)


def test_all_boxes_may_be_gone(tmp_path: Path) -> None:
    assert plan(tmp_path, FREE.replace("{want: running}", "{want: gone}")).boxes == ()


def test_the_order_of_boxes_in_the_file_moves_no_cell(tmp_path: Path) -> None:
    def shares(boxes: str) -> dict[str, list[str]]:
        made = plan(tmp_path, FREE.replace("boxes: {box-0: {want: running}}", f"boxes: {boxes}"))
        return {box.name: [cell.name for cell in box.cells] for box in made.boxes}

    assert shares("{a: {}, b: {}, c: {}}") == shares("{c: {}, a: {}, b: {}}")


def test_a_platform_above_the_ceiling_is_refused(tmp_path: Path) -> None:
    text = FREE.replace("price_per_hour: 0.12", "price_per_hour: 3").replace(
        "    boxes:", "    max_price: 2\n    boxes:"
    )
    assert "local: costs $3/h a box, above max_price $2/h" in refusal(tmp_path, text)


def rented(**facts: Any) -> Profile:
    """A platform whose boxes lose everything at their end, unless they mount a volume."""
    local = load_profile("local")
    own = {
        name: tier.model_copy(update={"mount": None, "survives": {"stop": True, "destroy": False}})
        for name, tier in local.tiers.items()
    }
    names = tuple(own)
    verbs = {
        "stop": local.verbs["stop"].model_copy(update={"kills": (), "keeps": names}),
        "destroy": local.verbs["destroy"].model_copy(update={"kills": names, "keeps": ()}),
    }
    mounted = {
        name: tier.model_copy(update={"survives": {"stop": name == "durable", "destroy": name == "durable"}})
        for name, tier in local.tiers.items()
    }
    kills = {"kills": ("scratch", "data"), "keeps": ("durable",)}
    with_volume = {
        "tiers": mounted,
        "verbs": {name: local.verbs[name].model_copy(update=kills) for name in ("stop", "destroy")},
    }
    changed = {"tiers": own, "verbs": verbs, "with_volume": with_volume, "platform": "other", "adapter": "other"}
    return Profile.model_validate(local.model_dump() | changed | facts, context={})


def only(more: str = "") -> str:
    return FREE.replace("candidates: [local]", "candidates: [other]").replace("    boxes:", f"{more}    boxes:")


def test_where_nothing_outlives_a_box_the_plan_says_so(tmp_path: Path) -> None:
    made = plan(tmp_path, only(), other=rented())
    assert made.durable is None
    assert (made.teardown.kills, made.teardown.keeps) == (("scratch", "data", "durable"), ())
    assert made.teardown.stop is not None
    assert made.teardown.stop.kills == ()
    assert any("nothing on a box outlives it here" in note and "mounts" in note for note in made.notes)


def test_a_list_may_lag_for_15_minutes_where_nothing_is_known() -> None:
    unknown = [profile for profile in map(load_profile, platforms()) if profile.list_lag is None]
    assert {profile.believed_lag for profile in unknown} == {15 * 60}
    assert other(list_lag=60.0).believed_lag == 60


def test_a_mounted_volume_is_another_layout(tmp_path: Path) -> None:
    mounts = "    mounts: {/ckpt: {source: abl-store, keep_until: 2027-01-31}}\n"
    made = plan(tmp_path, only(mounts), other=rented())
    assert made.durable is not None
    assert (made.durable.volume, made.durable.mount, made.durable.kept) == ("abl-store", "mnt/durable", True)
    assert (made.durable.path, made.durable.keep_until) == ("/ckpt", "2027-01-31")
    assert (made.teardown.kills, made.teardown.keeps) == (("scratch", "data"), ("durable",))
    assert made.teardown.stop is None  # a stop would wipe the queue's home
    stopped = only(mounts).replace("{want: running}", "{want: stopped}")
    assert "wipes data, where the queue lives" in refusal(tmp_path, stopped, other=rented())


def test_spot_is_refused_where_there_is_none_and_the_profile_s_note_is_told(tmp_path: Path) -> None:
    text = only().replace("cpu: 1", "cpu: 1\n        spot: true")
    if "spot" not in text:
        text = only().replace("resources:", "resources:\n        spot: true", 1)
    assert "other has no spot boxes" in refusal(tmp_path, text, other=rented())
    made = plan(tmp_path, text, other=rented(spot_available=True, spot_note="spot boxes are being withdrawn there"))
    assert made.platform == "other"
    assert any(note.endswith(".spot: spot boxes are being withdrawn there") for note in made.notes)
    assert "bid is for spot boxes" in refusal(tmp_path, only("    bid: 0.4\n"), other=rented())


def test_a_volume_that_one_box_can_mount_is_refused_to_two(tmp_path: Path) -> None:
    mounts = "    mounts: {/ckpt: {source: abl-store}}\n"
    two = only(mounts).replace("{box-0: {want: running}}", "{box-0: {want: running}, box-1: {want: stopped}}")
    alone = rented()
    assert alone.with_volume is not None
    durable = alone.with_volume.tiers["durable"].model_copy(update={"shared_between_boxes": False})
    tiers = {**alone.with_volume.tiers, "durable": durable}
    alone = alone.model_copy(update={"with_volume": alone.with_volume.model_copy(update={"tiers": tiers})})
    said = "a volume there is mounted by one box at a time, and 2 are wanted (box-0, box-1)"
    assert said in refusal(tmp_path, two, other=alone)
    assert "by one box" not in refusal(tmp_path, two, other=rented())  # refused for its stopped box alone
    gone = two.replace("want: stopped", "want: gone")
    assert plan(tmp_path, gone, other=alone).durable is not None


def test_spot_without_a_tier_that_outlives_the_box_is_warned_of(tmp_path: Path) -> None:
    text = only().replace("cpu: 1", "cpu: 1\n        spot: true")
    lone = plan(tmp_path, text, other=rented(spot_available=True))
    assert any("may take a spot box away at any moment" in note for note in lone.notes)
    text = only("    mounts: {/ckpt: {source: abl-store}}\n").replace("cpu: 1", "cpu: 1\n        spot: true")
    notes = plan(tmp_path, text, other=rented(spot_available=True)).notes
    assert not any("take a spot box away at any moment" in note for note in notes)


@pytest.mark.parametrize(
    ("platform", "job", "seconds", "said"),
    [
        ("5 s", None, 4.0, "takes a box away 5 s after it says so, and the cells have 4 s of them to save"),
        ("5 s", "2s", 2.0, "and the cells have 2 s of them to save"),
        ("5 s", "4s", 4.0, "4 s of them to save"),
        ("5 s", "30s", 4.0, "4 s of them to save: job.grace (30s) is more than that"),
        ("0.5 s", None, 0.0, "0 s of them to save"),
        ("120 s", None, 20.0, "20 s of them to save"),
        ("0 s", None, None, "gives cells no time to save before it takes a box away"),
        ("0 s", "30s", 30.0, "takes a box away; job.grace (30s) is for our own stops"),
        (None, None, None, "gives cells a time that is not known to save"),
    ],
)
def test_the_cells_of_a_spot_box_end_within_the_grace_of_its_platform(
    tmp_path: Path, platform: str | None, job: str | None, seconds: float | None, said: str
) -> None:
    text = only().replace("cpu: 1", "cpu: 1\n        spot: true")
    text = text.replace("    job:\n", f"    job:\n      grace: {job}\n") if job else text
    made = plan(tmp_path, text, other=rented(spot_available=True, spot_grace=platform))
    assert [box.grace_seconds for box in made.boxes] == [seconds]
    told = job_input(made.job, made.boxes[0], "sha256:" + "0" * 64)
    assert JobInput.model_validate(told).grace_seconds == seconds
    assert ("grace_seconds" in told) is (seconds is not None), "an old state stays as it is"
    assert any(said in note for note in made.notes), made.notes


def test_a_box_that_no_platform_takes_away_has_the_grace_that_is_written(tmp_path: Path) -> None:
    assert plan(tmp_path, only(), other=rented(spot_grace="5 s")).boxes[0].grace_seconds is None
    text = only().replace("    job:\n", "    job:\n      grace: 90s\n")
    made = plan(tmp_path, text, other=rented(spot_grace="5 s"))
    assert (made.boxes[0].grace_seconds, [note for note in made.notes if "spot" in note]) == (90.0, [])


def test_a_placement_is_the_only_candidate(tmp_path: Path) -> None:
    chosen = (
        "    placement: {platform: other, at: 2026-11-21T12:00:00Z, "
        "boxes: {box-0: {offer: 'x1', price_per_hour: 1.5}}}\n"
    )
    made = plan(
        tmp_path,
        TWO.replace("[other, local]", "[local, other]").replace("    boxes:", f"{chosen}    boxes:"),
        other=rented(),
    )
    assert made.platform == "other"
    assert made.boxes[0].placed == {"offer": "x1", "price_per_hour": 1.5, "gpu": "", "count": 0, "region": ""}
    assert "as placed" in made.reasons[-1]


TWO = FREE.replace("candidates: [local]", "candidates: [other, local]")


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"verbs": {}}, "other: its profile describes no destroy"),
        ({"meter": load_profile("local").meter.model_copy(update={"rents": True})}, "other: it sends a bill"),
    ],
)
def test_a_refused_candidate_keeps_its_reason_and_the_next_is_taken(
    tmp_path: Path, facts: dict[str, Any], said: str
) -> None:
    made = plan(tmp_path, TWO, other=other(**facts))
    assert made.platform == "local"
    assert made.reasons[0].startswith(said)
    assert "the next candidate that fits" in made.reasons[-1]
    message = refusal(tmp_path, only(), other=other(**facts))
    assert message.startswith("stacks/Pulumi.x.yaml: no candidate fits; nothing was rented")
    assert said in message


def test_what_sends_a_bill_needs_a_budget(tmp_path: Path) -> None:
    rents = other(meter=load_profile("local").meter.model_copy(update={"rents": True}))
    only = FREE.replace("candidates: [local]", "candidates: [other]")
    assert "needs a budget, such as budget: {usd: 60}" in refusal(tmp_path, only, other=rents)
    budget = only.replace("    boxes:", "    budget: {usd: 60}\n    boxes:")
    assert "the config must say when_done: stop or keep" in refusal(tmp_path, budget, other=rents)
    made = plan(tmp_path, budget.replace("    boxes:", "    when_done: stop\n    lease: 2h\n    boxes:"), other=rents)
    assert made.when_done == "stop"
    assert made.platform == "other"
    assert made.budget is not None
    assert (made.budget.usd, made.budget.hours, made.budget.notify) == (60, None, (0.8, 1.0))


def test_clocks_and_prices_of_what_is_kept_travel_with_the_box(tmp_path: Path) -> None:
    local = load_profile("local")
    tiers = {**local.tiers, "durable": local.tiers["durable"].model_copy(update={"price_per_gb_month": 0.07})}
    clocks = (Clock(what="released", after="15 d", kills=("data",)), Clock(what="deleted", after=None))
    only = FREE.replace("candidates: [local]", "candidates: [other]")
    inputs = plan(tmp_path, only, other=other(tiers=tiers, danger_clocks=clocks)).teardown.as_inputs()
    assert inputs["clocks"] == [{"what": "released", "days": 15.0, "kills": ["data"]}, {"what": "deleted", "kills": []}]
    assert inputs["keeps_per_gb_month"] == {"durable": 0.07}
    assert not {"clocks", "keeps_per_gb_month"} & set(plan(tmp_path).teardown.as_inputs())


def test_what_the_machine_can_t_have_is_refused(tmp_path: Path) -> None:
    text = GOOD.replace("candidates: [local]", "candidates: [other]")
    no_gpu = other(gpus=load_profile("local").gpus.model_copy(update={"offered": False}))
    assert "other: has no GPUs, and job.resources.gpu asks for 1" in refusal(tmp_path, text, other=no_gpu)
    tiers = {k: v.model_copy(update={"size_cap_bytes": 10**9}) for k, v in load_profile("local").tiers.items()}
    big = TWO.replace("cpu: 1", "cpu: 1\n        disk: 2GB").replace("[other, local]", "[other]")
    assert "its data tier holds 1 GB, and job.resources.disk asks for 2GB" in refusal(
        tmp_path, big, other=other(tiers=tiers)
    )


def test_what_has_no_effect_is_said(tmp_path: Path) -> None:
    made = plan(
        tmp_path, GOOD.replace("workdir:", "image: pytorch/pytorch\n      workdir:").replace("count: 1", "count: 2")
    )
    assert any("job.image (pytorch/pytorch) has no effect" in note for note in made.notes)
    assert any("does not check GPUs" in note for note in made.notes)
    assert [box.slots for box in made.boxes] == [2]


@pytest.mark.parametrize(
    ("image", "pin"),
    [
        ("pytorch/pytorch:2.8.0-cuda12.8", "pytorch/pytorch:2.8.0-cuda12.8@sha256:…"),
        ("lab.org:5000/train", "lab.org:5000/train:latest@sha256:…"),
    ],
)
def test_u30_a_tag_is_told_with_how_to_pin_it(tmp_path: Path, image: str, pin: str) -> None:
    text = FREE.replace("workdir:", f'image: "{image}"\n      workdir:').replace("[local]", "[other]")
    uses = other(uses_image=True)
    (said,) = plan(tmp_path, text, other=uses).checked
    assert said.startswith(f"job.image: {image} is a tag")
    assert f"docker buildx imagetools inspect {image}" in said
    assert said.endswith(f"job.image is {pin}")
    digest = "sha256:" + 64 * "a"
    assert plan(tmp_path, text.replace(image, f"{image}@{digest}"), other=uses).checked == ()
    assert plan(tmp_path, text, other=other(uses_image=False)).checked == ()


def test_resources_are_spelled_canonically(tmp_path: Path) -> None:
    made = plan(tmp_path, GOOD.replace("memory: 40GB+", "memory: 40.0 gb+"))
    (resources,) = {str(box.resources): box.resources for box in made.boxes}.values()
    assert resources["gpu"]["memory"] == "40GB+"
    assert resources["gpu"]["name"] == ["A100", "H100"]


def boxes(text: str, **wanted: str) -> str:
    """The config with these boxes: name → what is wanted, in YAML."""
    lines = "".join(f"\n      {name}: {want}" for name, want in wanted.items())
    return re.sub(r"    boxes:.*", f"    boxes:{lines}", text)


def test_a_stopped_box_gets_no_cells_while_another_runs(tmp_path: Path) -> None:
    made = plan(tmp_path, boxes(FREE, a="{want: running}", b="{want: stopped}"))
    shares = {box.name: (box.want, len(box.cells)) for box in made.boxes}
    assert shares == {"a": ("running", len(made.roster.cells)), "b": ("stopped", 0)}


def test_with_every_box_stopped_each_keeps_its_share(tmp_path: Path) -> None:
    running = plan(tmp_path, boxes(FREE, a="{want: running}", b="{want: running}"))
    stopped = plan(tmp_path, boxes(FREE, a="{want: stopped}", b="{want: stopped}"))
    assert [box.cells for box in stopped.boxes] == [box.cells for box in running.boxes]


def test_a_platform_without_a_stop_is_refused_for_a_stopped_box(tmp_path: Path) -> None:
    verbs = {name: verb for name, verb in load_profile("local").verbs.items() if name != "stop"}
    text = boxes(FREE, a="{want: running}", b="{want: stopped}").replace("[local]", "[other]")
    assert "can't be stopped by us" in refusal(tmp_path, text, other=other(verbs=verbs))
    assert plan(tmp_path, FREE.replace("[local]", "[other]"), other=other(verbs=verbs)).teardown.stop is None


def test_what_a_stop_does_travels_in_the_teardown_facts(tmp_path: Path) -> None:
    """A stop weeks later opens no profile."""
    facts = plan(tmp_path).teardown.as_inputs()
    assert facts["paths"] == {"scratch": "scratch", "data": "data", "durable": "mnt/durable"}
    assert facts["stop"] == {"kills": ["scratch"], "keeps": ["data", "durable"], "bills_after": [], "price_per_hour": 0}


def test_a_box_may_have_resources_of_its_own(tmp_path: Path) -> None:
    made = plan(tmp_path, boxes(FREE, a="{want: running}", b="{want: running, resources: {gpu: {count: 2}}}"))
    assert [(box.resources, box.slots) for box in made.boxes] == [
        ({"cpu": 1.0}, 1),
        ({"gpu": {"name": [], "count": 2}}, 2),
    ]
    no_gpu = other(gpus=load_profile("local").gpus.model_copy(update={"offered": False}))
    text = boxes(FREE, a="{want: running, resources: {gpu: {count: 2}}}").replace("[local]", "[other]")
    assert "has no GPUs, and boxes.a.resources.gpu asks for 2" in refusal(tmp_path, text, other=no_gpu)


def test_the_outlook_is_that_of_boxes_that_run(tmp_path: Path) -> None:
    """Each with its own slots; a stopped one brings no cell nearer its end, and bills as what it is."""
    boxes = "boxes: {a: {want: running}, b: {want: stopped}, c: {want: running}}"
    made = plan(tmp_path, re.sub(r"boxes: .*", boxes, FREE))
    slots = {"a": 1, "b": 8, "c": 4}
    made = replace(made, boxes=tuple(replace(box, slots=slots[box.name]) for box in made.boxes))
    outlook = outlook_of(Fleet((made,), ("a", "b", "c")), made.boxes)
    assert (outlook["boxes"], outlook["slots"]) == (2, 5)
