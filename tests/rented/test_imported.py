"""`pulumi import` of a box and of a volume that a person made by hand: taken in, never rented again, never ended by the
way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.engine.commands import Result, assert_failed, assert_refused, ok
from tests.rented.test_stores import KEEP
from tests.rented.world import World, rented, without_internet
from tests.simulators.rental import posted, stack_of, whole_rentals

BOX = "sweepstack:index:Box"
PLATFORMS = [pytest.param(one, marks=() if one == "runpod" else pytest.mark.proof) for one in whole_rentals()]


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[World]:
    platform = getattr(request, "param", "runpod")
    with rented(platform, tmp_path, stack_of(platform)) as found:
        without_internet(found.stack)
        found.stack.init()
        yield found


def by_hand(world: World, name: str = "my-pod", **env: str) -> str:
    """A box as its console makes it: a key of the account lets a person in, and no start command is ours."""
    key = (world.stack.base.parent / "id_ed25519.pub").read_text()
    if world.platform == "vastai":
        offer = next(iter(world.sim.world.market.offers))
        native_id = str(world.sim.act("rent", {"account": world.account, "offer": offer, "label": name}))
        posted(f"{world.server.api}/api/v0/instances/{native_id}/ssh/", world.key, {"ssh_key": key})
    else:
        asked = {
            "name": name,
            "image": "ubuntu:22.04",
            "gpu": {"id": "NVIDIA H200", "count": 1},
            "cloud": "SECURE",
            "disk": 20,
            "ports": ["22/tcp"],
            "env": {"PUBLIC_KEY": key, **env},
        }
        native_id = str(posted(f"{world.server.api}/v2/pods", world.key, asked)["id"])
    for _ in range(1 if world.platform == "runpod" else 4):  # looks, by which the simulated box comes up
        world.stack.run("sweepctl", "audit", timeout=120)
    return native_id


def imported(world: World, *words: str) -> Result:
    yes = () if "--preview-only" in words else ("--yes",)
    return world.stack.pulumi("import", *words, *yes, "--generate-code=false", timeout=180)


@pytest.mark.parametrize("world", PLATFORMS, indirect=True)
def test_a_box_rented_by_hand_becomes_one_of_the_sweep(world: World) -> None:
    stack, native_id = world.stack, by_hand(world)
    whole = world.platform != "runpod"
    """Played by `make proof`: what two more commands show."""
    said = stack.run("sweepctl", "audit", timeout=120)
    assert f"pulumi import --stack STACK {BOX} NAME {world.platform}:{native_id}" in " ".join(said.text.split()), str(
        said
    )
    if whole:
        ok(imported(world, BOX, "mine", f"{world.platform}:{native_id}", "--preview-only"))
        ok(stack.pulumi("preview", timeout=180))  # an import that was not gone through with is in the way of nothing

    ok(imported(world, BOX, "mine", f"{world.platform}:{native_id}"))
    assert [(one["id"], one["outputs"]["clearance"]) for one in stack.resources("Box")] == [(native_id, "locked")]

    for refused in (stack.up(timeout=180), stack.destroy(timeout=180)):
        assert refused.rc != 0, str(refused)
        assert "mine: {} below boxes" in " ".join(refused.text.split()), str(refused)
        assert world.rentals() == {native_id}, "nothing was rented, and nothing ended"
    status = stack.sweepctl("status", "--json", timeout=120).json()
    assert [box["native_id"] for box in status["boxes"]] == [native_id]
    assert "boxes.mine: {}" in status["next"][0], status["next"]
    (record,) = stack.evidence.rglob("imports/*.json")
    text = record.read_text()
    record.write_text("{")  # torn: the state is asked all the same
    assert_failed(stack.pulumi("preview", timeout=180), "mine: {} below boxes")
    record.write_text(text)

    stack.edit_config(lambda sweep: sweep.update(boxes={"mine": {}}, max_price=9.0))
    shown = ok(stack.pulumi("preview", "--json", timeout=180)).json()
    steps = {step["urn"].rsplit("::", 1)[-1]: step["op"] for step in shown["steps"] if f"{BOX}::" in step["urn"]}
    assert steps == {"mine": "update"}
    said = ok(stack.up(timeout=400))
    assert "was imported: adopted, nothing new is rented" in said.text, str(said)
    assert world.rentals() == {native_id}
    (birth,) = stack.births()
    assert (birth["native_id"], birth["imported"]) == (native_id, True)
    if whole:
        ok(stack.up("--expect-no-changes", timeout=400))
    ok(stack.sweepctl("wait", "done", timeout=400))

    ok(stack.sweepctl("pull", timeout=180))
    receipt = stack.verify()["receipt"]
    assert_failed(stack.sweepctl("approve", receipt, timeout=180), "rented by hand", "unclaimed/mine")
    assert_refused(stack.destroy(timeout=180))
    assert world.rentals() == {native_id}, "each cell is verified, and what lay there before is not given up"
    ok(stack.sweepctl("give-up", receipt, "unclaimed/mine", "--reason", "only a dataset lay there", timeout=180))
    ok(stack.up(timeout=400))
    ok(stack.destroy(timeout=400))
    assert world.rentals() == set()


@pytest.mark.proof
def test_a_state_that_is_lost_finds_it_again(world: World) -> None:
    """By its id on record: its tag is on no platform, and a create by the tag would rent another."""
    stack, native_id = world.stack, by_hand(world)
    ok(imported(world, BOX, "mine", f"{world.platform}:{native_id}", "--protect=false"))
    assert_failed(stack.destroy(timeout=180), "REFUSED", "mine: {} below boxes")
    assert world.rentals() == {native_id}
    ok(imported(world, BOX, "other", f"{world.platform}:{native_id}", "--preview-only"))
    assert sorted(path.stem for path in stack.evidence.rglob("imports/*.json")) == ["mine", "other"]
    stack.edit_config(lambda sweep: sweep.update(boxes={"mine": {}}))
    assert_failed(stack.up(timeout=180), "above max_price", "is not taken")
    stack.edit_config(lambda sweep: sweep.update(max_price=9.0))
    ok(stack.up(timeout=400))
    assert list(stack.evidence.rglob("imports/*.json")) == [], "taken, and not gone through with"
    for urn in [one["urn"] for one in stack.resources("Box")]:
        ok(stack.pulumi("state", "delete", urn, "--force", "--target-dependents", "--yes", timeout=60))
    audit = stack.run("sweepctl", "audit", "--json", timeout=120).json()
    assert audit["by_hand"] == [], "it is on record"
    (lost,) = [one for one in audit["findings"] if one["kind"] == "box"]
    assert (lost["native_id"], lost["standing"]) == (native_id, "recorded")
    assert lost["next"].startswith(f"pulumi up --stack {stack.name}"), lost
    ok(stack.up(timeout=400))
    assert world.rentals() == {native_id}
    assert [one["id"] for one in stack.resources("Box")] == [native_id]


def test_what_is_not_imported(world: World) -> None:
    """What is refused before the platform is asked: tests/unit/provider/test_not_imported.py."""
    stack = world.stack
    foreign, unknown = (
        by_hand(world, "x", SWEEPSTACK_TAG="sweepstack-abcdefghjk-box-0-g1"),
        by_hand(world, PUBLIC_KEY=""),
    )
    for asked, words in {
        f"runpod:{foreign}": "another sweep",
        f"runpod:{unknown}": "let your key in there",
        "runpod:nothing": "has no box nothing|shows no pod nothing any more",  # the second where GraphQL is gone
    }.items():
        said = imported(world, BOX, "mine", asked)
        assert said.rc != 0, str(said)
        assert any(word in " ".join(said.text.split()) for word in words.split("|")), str(said)
    assert stack.resources("Box") == []
    assert world.rentals() == {foreign, unknown}


@pytest.mark.proof
def test_a_volume_made_by_hand_is_kept_by_a_stack(world: World) -> None:
    stack = world.stack
    asked = {"name": "old data", "size": 10, "dataCenter": world.its.volume_region}
    native_id = str(posted(f"{world.server.api}/v2/network-volumes", world.key, asked)["id"])
    text = KEEP.format(platform="runpod", region=world.its.volume_region)
    file = stack.checkout / "stacks" / "Pulumi.abl-store.yaml"
    ok(stack.run("pulumi", "stack", "init", "abl-store", "--non-interactive"))

    def pulumi(*words: str) -> Result:
        return stack.run("pulumi", *words, "--stack", "abl-store", "--non-interactive", timeout=180)

    file.write_text(text.replace("abl-store: {", "another: {"))
    named = ("sweepstack:index:Volume", "abl-store", f"{world.platform}:{native_id}")
    ok(pulumi("import", *named, "--yes", "--generate-code=false", "--protect=false"))
    assert_failed(pulumi("destroy", "--yes"), "REFUSED", "abl-store below volumes")
    file.write_text(text)
    said = ok(pulumi("up", "--yes"))
    (volume,) = world.sim.volumes.all.values()
    assert volume.name.endswith("-volume-abl-store"), str(said)
    state = json.loads(ok(pulumi("stack", "export")).out)["deployment"]["resources"]
    (kept,) = [one for one in state if one["type"] == "sweepstack:index:Volume"]
    assert kept["id"].endswith(native_id)
    ok(pulumi("up", "--yes", "--expect-no-changes"))
