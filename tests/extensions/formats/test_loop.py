"""A sweep of the real engine whose cells leave many formats: one cell is damaged, locks its box, and is mended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.commands import assert_refused, ok
from tests.engine.conftest import make_stack
from tests.engine.harness import Stack
from tests.extensions.formats import samples
from tests.extensions.formats.curves import tensorboard, trainer

__all__ = ["make_stack"]
pytestmark = [pytest.mark.engine, pytest.mark.proof]  # by format, in one worker: test_damage.py, test_workers.py

ARTIFACTS: dict[str, dict[str, Any]] = {
    "model/": {"load": "hf", "keys": ["encoder.layer.1.w1"]},
    "lora/": {"load": "adapter", "finite": "require"},
    "checkpoint-*/": {"load": "trainer"},
    "ckpt/epoch=*.ckpt": {"load": "lightning", "finite": "require"},
    "weights.npz": {"load": "npz", "keys": ["w1"]},
    "predictions-*.jsonl": {"load": "jsonl", "keys": ["loss"]},
    "runs/*/events.out.tfevents.*": {"load": "tensorboard", "keys": ["loss"]},
    "samples.tar": {"load": "tar"},
}


def leave(folder: Path) -> None:
    """What a training run of several tools leaves."""
    folder.mkdir()
    samples.hf(folder / "model")
    samples.adapter(folder / "lora")
    samples.trainer(folder / "checkpoint-4")
    (folder / "checkpoint-4/trainer_state.json").write_bytes(next(iter(trainer().values())))
    (folder / "ckpt").mkdir()
    samples.lightning(folder / "ckpt/epoch=1-step=20.ckpt")
    samples.np.savez(folder / "weights.npz", **samples.arrays())
    for part in (1, 2):
        samples.jsonl(folder / f"predictions-{part}.jsonl")
    for path, data in tensorboard().items():
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_bytes(data)
    samples.tar(folder / "samples.tar")


@pytest.fixture(scope="module")
def stack(make_stack: Callable[..., Stack]) -> Stack:
    """Two boxes, a cell each; shards of the model of `seed1` change places as long as `swap` is there."""
    pytest.importorskip("torch")
    made = make_stack("formats", cells=("seed0", "seed1"))
    leave(made.job / "left")
    (made.control / "swap").touch()
    one, two = (f"{{out}}/model/model-0000{number}-of-00003.safetensors" for number in (1, 2))
    swap = f"mv {one} {{out}}/kept && mv {two} {one} && mv {{out}}/kept {two}"

    def change(sweep: dict[str, Any]) -> None:
        sweep["job"]["run"] = (
            f"cp -r left/. {{out}}/ && if test {{seed}} = 1 && test -e {made.control}/swap; then {swap}; fi"
        )
        sweep["artifacts"] = ARTIFACTS
        sweep["metrics"] = {"file": "runs/*/events.out.tfevents.*", "x": "step", "y": ["loss", "val/acc"]}

    made.edit_config(change)
    return made


def test_one_damaged_cell_of_many_formats_locks_its_box_until_it_is_mended(stack: Stack) -> None:
    ok(stack.up())
    stack.wait_done()
    stack.wait_idle()
    ok(stack.sweepctl("pull"))
    cells = {cell["name"]: cell for cell in stack.verify()["cells"]}
    assert (cells["seed0"]["state"], cells["seed1"]["state"]) == ("verified", "damaged"), cells
    assert "model/" in str(cells["seed1"]["reasons"]), cells
    assert stack.sweepctl("approve", stack.verify()["receipt"]).rc != 0
    assert_refused(stack.destroy(), ["seed1"])
    assert len(stack.native_ids()) == 2

    (stack.control / "swap").unlink()
    ok(stack.sweepctl("retry", "seed1"))
    ok(stack.up())
    stack.wait_for(lambda: stack.started().count("seed1") == 2, "seed1 to begin again")
    stack.run_loop()
    found = ok(stack.sweepctl("results", "--over", "none", "--json")).json()
    assert {cell["name"]: cell["values"] for cell in found["cells"]} == {
        name: {"loss": 1 / 16, "val/acc": 0.4} for name in ("seed0", "seed1")
    }
    copy = stack.evidence / "cells/seed0/lora/adapter_model.safetensors"
    good = copy.read_bytes()
    copy.chmod(0o644)
    copy.write_bytes(good[:-7] + b"\0" * 7)
    assert_refused(stack.destroy(), ["seed0"])
    assert len(stack.native_ids()) == 2
    copy.write_bytes(good)
    ok(stack.destroy())
    assert stack.native_ids() == []
