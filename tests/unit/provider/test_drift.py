"""What a platform says of a box that is not as it was rented: told by Read and by `status`, and ends nothing."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from sweepstack.core.resources import BoxState
from sweepstack.onbox.host.folder_platform import LocalPlatform
from sweepstack.onbox.host.platform import BoxRecord, Phase
from sweepstack.operations import drift
from sweepstack.provider.dispatch import to_properties
from sweepstack.provider.resources.base import ReadAnswer
from tests.unit.provider.plain_box import SEEN, born, context, record, state_of
from tests.unit.provider.support import BOX, Sweep

GPU = {"gpu": {"name": "RTX 3090", "count": 2}}


@pytest.fixture
def market(monkeypatch: pytest.MonkeyPatch) -> None:
    """The local platform makes its prices, as one with a market does."""
    monkeypatch.setattr(drift, "HasMarket", LocalPlatform)


def shown(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """The platform says this of each box from now on."""
    honest = LocalPlatform.get

    def get(platform: LocalPlatform, *asked: str) -> BoxRecord:
        return replace(honest(platform, *asked), **changes)

    monkeypatch.setattr(LocalPlatform, "get", get)


def read(sweep: Sweep, box: BoxState) -> ReadAnswer[Any, Any]:
    answer = BOX.read(sweep.op(), box.native_id, box)
    assert isinstance(answer, ReadAnswer)
    return answer


@pytest.mark.usefixtures("market")
def test_another_price_is_told_and_an_update_takes_it_into_the_books(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = sweep.box()
    assert read(sweep, box).unhealthy == ()
    shown(monkeypatch, price_per_hour=0.504)
    assert read(sweep, box).unhealthy == (), "so little is rounding"
    shown(monkeypatch, price_per_hour=1.0)
    answer = read(sweep, box)
    (why,) = answer.unhealthy
    assert why.startswith("box box-0 bills $1.00/h now, and the books have $0.50/h; `pulumi up`")
    assert answer.state.price_per_hour == 1.0, "the refresh shows it"
    assert "above its max_price 0.8" in read(sweep, box.model_copy(update={"max_price": 0.8})).unhealthy[0]
    same = BOX.inputs_type.model_validate(box.model_dump(include=set(BOX.inputs_type.model_fields)))
    assert BOX.changes(same, answer.inputs) == {}, "nothing of it is a change of an input"
    after = BOX.update(sweep.op(), box.native_id, answer.state, same.model_copy(update={"price_per_hour": None}))
    assert after.native_id == box.native_id
    birth = sweep.store.birth("box-0", 1)
    assert birth is not None
    assert birth.price_per_hour == 1.0
    assert sorted(entry.price_per_hour for entry in sweep.store.ledger()[0]) == [0.5, 1.0], "both of one moment"
    assert read(sweep, after).unhealthy == ()


def test_a_price_that_a_person_names_is_none_of_the_platform_s(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    box = sweep.box()
    shown(monkeypatch, price_per_hour=1.0)
    answer = read(sweep, box)
    assert (answer.unhealthy, answer.state.price_per_hour) == ((), 0.5)


def test_gpus_and_image_are_told_and_mended_by_nothing(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    box = sweep.box().model_copy(update={"image": "a/b:1", "resources": GPU})
    shown(monkeypatch, gpu_count=1, image="a/b:2")
    answer = read(sweep, box)
    assert answer.unhealthy == (), "an update mends neither, and none is asked for"
    assert "box box-0 has 1 of 2 GPUs now" in sweep.said.warnings
    assert "box box-0 runs a/b:2 now, and was rented with a/b:1" in sweep.said.warnings
    outputs = to_properties(answer.state)
    assert (outputs["gpu_count"], outputs["actual_image"], outputs["image"]) == (1, "a/b:2", "a/b:1")
    assert (answer.inputs.image, answer.inputs.resources) == ("a/b:1", GPU), "else the next up would replace it"


@pytest.mark.parametrize(
    ("rented", "now", "same"),
    [
        ("pytorch/pytorch", "docker.io/pytorch/pytorch:latest", True),
        ("ubuntu:22.04", "library/ubuntu:22.04", True),
        ("ghcr.io:5000/a/b", "ghcr.io:5000/a/b:latest", True),
        ("a/b@sha256:0", "a/b@sha256:1", False),
        ("a/b:1", "", True),
        (None, "a/b:1", True),
    ],
)
def test_an_image_is_the_same_by_all_its_names(sweep: Sweep, rented: str | None, now: str, same: bool) -> None:
    found = drift.drift(state_of(sweep, image=rented), SimpleNamespace(), record(Phase.RUNNING, image=now), None)
    assert ("image" not in found) is same


def test_only_a_box_that_runs_has_a_price_and_gpus_that_count(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift, "HasMarket", object)
    state, birth = state_of(sweep, resources=GPU), born(sweep, price_per_hour=2.0)
    assert set(drift.drift(state, SimpleNamespace(), record(Phase.RUNNING, gpu_count=1), birth)) == {"price", "gpus"}
    for phase in (Phase.STOPPED, Phase.CREATING, Phase.ENDING):
        assert drift.drift(state, SimpleNamespace(), record(phase, gpu_count=0), birth) == {}
    assert "gpus" not in drift.drift(state, SimpleNamespace(), record(Phase.RUNNING, gpu_count=None), birth)


@pytest.mark.parametrize(
    ("want", "phase", "clearance", "said"),
    [
        ("stopped", Phase.RUNNING, "locked", "is running and wanted stopped: it bills as if it ran"),
        ("running", Phase.STOPPED, "locked", "is stopped and wanted running; `pulumi up` starts it"),
        ("running", Phase.STOPPED, "cleared by receipt sha256:00", ""),
        ("running", Phase.CREATING, "locked", ""),
        ("running", Phase.STOPPING, "locked", ""),
        ("running", Phase.RUNNING, "locked", ""),
        ("stopped", Phase.STOPPED, "locked", ""),
    ],
)
def test_people_who_look_are_told_what_is_not_as_it_is_wanted(
    sweep: Sweep, want: str, phase: Phase, clearance: str, said: str
) -> None:
    state = state_of(sweep, want=want, clearance=clearance)
    found = drift.seen_drift(context(state, SimpleNamespace()), state, record(phase), SEEN, None)
    assert found.get("want", "") == said
