"""A sweep that runs keeps its folders of downloads: a later profile moves none of them under it, a person may."""

from __future__ import annotations

from typing import Any

import pytest

from sweepstack.core.resources import QueueInputs
from tests.unit.provider.support import QUEUE, Sweep

NEW = {"folders": {"HF_HOME": "data/hf", "PIP_CACHE_DIR": "data/pip"}}


def checked(sweep: Sweep, old: QueueInputs, network: dict[str, Any]) -> dict[str, Any]:
    """The network that an `up` with this one from the profile gives to the box."""
    job = old.job.model_copy(update={"network": None}).model_dump(mode="json", exclude_none=True)
    new = QueueInputs.model_validate(old.model_dump(mode="json") | {"job": job | {"network": network}})
    found = QUEUE.check(sweep.op("Queue"), old, new)
    assert found.failures == []
    return found.inputs.job.network.model_dump(exclude_defaults=True) if found.inputs.job.network else {}


@pytest.fixture
def begun(sweep: Sweep) -> Any:
    def make(**network: Any) -> QueueInputs:
        box = sweep.box()
        old = sweep.queue_inputs(box, job={"network": network} if network else {})
        QUEUE.create(sweep.op("Queue"), old)
        sweep.drained(box)
        return old

    return make


def test_one_that_began_without_them_goes_on_without_them(sweep: Sweep, begun: Any) -> None:
    assert checked(sweep, begun(), NEW) == {}
    assert "stay as this box began with: HF_HOME (not set), PIP_CACHE_DIR (not set)" in sweep.said.infos


def test_one_that_began_with_others_keeps_those(sweep: Sweep, begun: Any) -> None:
    old = begun(folders={"HF_HOME": "scratch/hf"}, env={"TORCH_HOME": "/data/torch", "HF_ENDPOINT": "http://127.0.0.1"})
    new = {"env": {"HF_ENDPOINT": "http://127.0.0.2", "HF_HOME": "~/hf", "TORCH_HOME": "~/torch"}, "folders": {}}
    assert checked(sweep, old, new) == {
        "folders": {"HF_HOME": "scratch/hf"},
        "env": {"TORCH_HOME": "/data/torch", "HF_ENDPOINT": "http://127.0.0.2"},
    }
    assert checked(sweep, old, {"env": {"HF_ENDPOINT": "http://127.0.0.1"}})["folders"] == {"HF_HOME": "scratch/hf"}


def test_what_a_person_wrote_moves(sweep: Sweep, begun: Any) -> None:
    old = begun(folders={"HF_HOME": "scratch/hf"})
    assert checked(sweep, old, NEW | {"written": ("HF_HOME",)}) == {
        "folders": {"HF_HOME": "data/hf"},
        "written": ("HF_HOME",),
    }
    assert checked(sweep, old, {"written": ("HF_HOME",)}) == {"written": ("HF_HOME",)}, "caches: {HF_HOME: false}"


def test_a_box_that_has_not_begun_takes_the_new_ones(sweep: Sweep) -> None:
    assert checked(sweep, sweep.queue_inputs(sweep.box()), NEW) == NEW


def test_one_that_can_not_be_read_now_keeps_its_own(sweep: Sweep, begun: Any) -> None:
    old = begun()
    next(sweep.platform_root.glob("boxes/*/data/sweep/journal.jsonl")).write_bytes(b"damaged\n")
    assert checked(sweep, old, NEW) == {}
