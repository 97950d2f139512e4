"""A rented box that changed behind our back: its price, its GPUs, its image. Told by refresh, status and the night's
job; `up` takes the price into the books, and no command replaces or ends the box for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.engine.commands import assert_refused, ok
from tests.engine.one_box import JOB
from tests.rented.world import World, rented, without_internet
from tests.simulators.rental import stack_of, whole_rentals


@pytest.fixture(params=whole_rentals())
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    platform = request.param
    with rented(platform, tmp_path_factory.mktemp(platform), stack_of(platform)) as found:
        without_internet(found.stack)
        yield found


def thing(world: World, native_id: str) -> Any:
    """The box in the platform's own books."""
    return world.sim.world.instances[int(native_id)] if world.platform == "vastai" else world.sim.found(native_id)


def changed(world: World, native_id: str, **to: Any) -> dict[str, Any]:
    """Changes price, image or GPUs of a box there; returns what they were."""
    box = thing(world, native_id)
    places = {"price": (box, "dph"), "image": (box, "image"), "gpus": (box, "gpus")}
    if world.platform == "runpod":
        places = {"price": (box, "price"), "image": (box.wanted, "image"), "gpus": (box, "gpus_now")}
    before = {what: getattr(*places[what]) for what in to}
    for what, value in to.items():
        object.__setattr__(*places[what], value)
    return before


def outputs(world: World) -> dict[str, Any]:
    """What the state has of the box."""
    (box,) = world.stack.resources("Box")
    return dict(box["outputs"])


@pytest.mark.proof  # on the handlers: tests/unit/provider/test_drift.py
def test_what_changed_is_told_and_ends_nothing(world: World) -> None:
    stack = world.stack
    stack.init()
    stack.edit_config(lambda sweep: sweep["job"].update(image="ubuntu:22.04"))
    ok(stack.up(timeout=400))
    ok(stack.sweepctl("wait", "done", timeout=400))
    (native_id,) = world.rentals()
    before = thing(world, native_id)
    price = before.price if world.platform == "runpod" else before.dph

    was = changed(world, native_id, gpus=0)
    said = ok(stack.pulumi("refresh", "--yes", "--diff", timeout=180))
    assert "has 0 of 1 GPUs now" in said.text, str(said)
    assert outputs(world)["gpuCount"] == 0, "the state has it, too"
    assert world.rentals() == {native_id}
    changed(world, native_id, **was)

    changed(world, native_id, price=price * 2, image="someone/else:9")
    for words in (("refresh", "--yes", "--diff"), ("preview",)):
        said = ok(stack.pulumi(*words, timeout=180))
        assert "and the books have $" in said.text, str(said)
        assert "runs someone/else:9 now, and was rented with ubuntu:22.04" in " ".join(said.text.split()), str(said)
    assert (outputs(world)["image"], outputs(world)["actualImage"]) == ("ubuntu:22.04", "someone/else:9")
    status = stack.sweepctl("status", "--json", timeout=120).json()
    (box,) = status["boxes"]
    assert any("it bills $" in alarm for alarm in box["alarms"]), str(box["alarms"])
    assert any("it runs someone/else:9" in alarm for alarm in box["alarms"]), str(box["alarms"])
    night, event = stack.base / "night", stack.base / "event.json"
    event.write_text("{}")
    stack.run("sweepctl", "ci", "nightly", str(night), env=JOB | {"GITHUB_EVENT_PATH": str(event)}, timeout=300)
    assert "it runs someone/else:9" in "".join(path.read_text() for path in night.iterdir())

    assert_refused(stack.destroy(timeout=180))
    said = ok(stack.up(timeout=400))
    assert world.rentals() == {native_id}, str(said)
    (birth,) = stack.births()
    assert birth["price_per_hour"] == pytest.approx(box["price_per_hour"])
    said = ok(stack.pulumi("refresh", "--yes", timeout=180))
    assert "and the books have" not in said.text, str(said)
    ok(stack.up("--expect-no-changes", timeout=400))
    changed(world, native_id, price=price)
