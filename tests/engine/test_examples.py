"""The examples of other libraries: `pulumi up`, kill -9 in the middle of training, the same results, and destroy.

One of two cells of the same config is killed at a step that is known: when it begins to write its second checkpoint.
"""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pytest

from tests.engine.commands import ok
from tests.engine.harness import Stack

HOOK = '''\
"""Kills this process as it begins to write its second checkpoint; one try of one cell. Tells of each."""

import os, re, signal, sys

told = []


def look(event, args):
    path = {"open": args[:1], "os.mkdir": args[:1], "os.rename": args[1:2]}.get(event, (None,))[0]
    if not isinstance(path, str) or not re.search(os.environ["EXAMPLE_SAVE"], event + " " + path):
        return
    if event == "os.mkdir" and os.path.isdir(path):  # the Trainer makes the folder twice
        return
    told.append(os.path.basename(path))
    cell, attempt = os.environ["SWEEPSTACK_CELL"], os.environ["SWEEPSTACK_ATTEMPT"]
    with open(os.path.join(os.environ["EXAMPLE_TOLD"], cell + "-" + attempt), "w") as file:
        file.write("\\n".join(told))
    if (cell, attempt, len(told)) == ("killed", "1", 2):
        os.kill(os.getpid(), signal.SIGKILL)


if "SWEEPSTACK_CELL" in os.environ:
    sys.addaudithook(look)
'''


@dataclass(frozen=True)
class Example:
    """`save`: what Python does as a checkpoint is begun, and with which path; `same`: results that have to be the same,
    byte for byte; `parts`: of one that holds paths, or is pickled anew, what of it has to be."""

    stack: str
    needs: str
    save: str
    same: tuple[str, ...]
    parts: tuple[str, ...] = ()


HYDRA = Example("sweep-hydra", "hydra", r"^os.rename .*/last.npz$", ("model.npz", "metrics.json"))
SKLEARN = Example(
    "sweep-sklearn",
    "sklearn",
    r"^os.rename .*/last.joblib$",
    ("metrics.json",),
    ("model.joblib", "coef_", "intercept_", "t_"),
)
DDP = Example("sweep-ddp", "torch", r"^os.rename .*/last.pt$", ("model.pt", "metrics.json"))
HF = Example("sweep-hf", "transformers", r"^os.mkdir .*/checkpoint-\d+$", ("model.safetensors",))
LIGHTNING = Example(
    "sweep-lightning",
    "lightning",
    r"^os.rename .*/last.ckpt$",
    (),
    ("last.ckpt", "epoch", "global_step", "state_dict", "optimizer_states"),
)
FLAX = Example("sweep-flax", "flax", r"^os.rename .*/states/\d+$", ("model.msgpack", "metrics.json"))
EPOCHS = 4
PROOF = [pytest.mark.torch, pytest.mark.proof]  # in make test: that of Hydra


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(HYDRA, id=HYDRA.stack),
        pytest.param(SKLEARN, marks=pytest.mark.proof, id=SKLEARN.stack),
        pytest.param(DDP, marks=PROOF, id=DDP.stack),
        pytest.param(FLAX, marks=PROOF, id=FLAX.stack),
        pytest.param(HF, marks=PROOF, id=HF.stack),
        pytest.param(LIGHTNING, marks=PROOF, id=LIGHTNING.stack),
    ],
)
def test_killed_and_resumed(example: Example, make_stack: Callable[..., Stack]) -> None:
    if importlib.util.find_spec(example.needs) is None:
        pytest.skip(f"{example.needs} is not installed: scripts/setup --dev --torch --trainer")
    stack = make_stack(name=example.stack, cells=("killed", "whole"), boxes=("box-0",), config=False)
    stack.evidence = stack.checkout / "results" / example.stack
    told = stack.base / "told"
    hooks = stack.base / "hooks"
    for folder in (told, hooks):
        folder.mkdir()
    (hooks / "sitecustomize.py").write_text(HOOK)
    hooked = {"PYTHONPATH": str(hooks), "EXAMPLE_SAVE": example.save, "EXAMPLE_TOLD": str(told)}
    stack.edit_config(lambda sweep: _two_of_one(sweep, hooked))

    stack.up()  # ends with 1 where the kill came before the first step that it waits for
    stack.wait_for(lambda: "cell-failed" in {line["event"] for line in stack.journal("box-0")}, "the kill")
    ok(stack.up())
    stack.wait_done()
    first, second, whole = (_saves(told / name) for name in ("killed-1", "killed-2", "whole-1"))
    assert len(whole) >= 3
    assert first == whole[:2], "killed in the middle of training"
    assert second == whole[1:], "it went on from its first checkpoint, and trained nothing again"
    assert stack.started() == ["killed", "killed", "whole"]
    stack.wait_idle()

    ok(stack.sweepctl("pull"))
    verified = stack.verify()
    assert {cell["name"]: cell["state"] for cell in verified["cells"]} == dict.fromkeys(stack.cells, "verified")
    cells = stack.evidence / "cells"
    for name in example.same:
        assert (cells / "killed" / name).read_bytes() == (cells / "whole" / name).read_bytes(), name
    if example.parts:
        one, other = (_parts(cells / cell / example.parts[0], example.parts[1:]) for cell in stack.cells)
        assert one == other, example.parts
    ok(stack.sweepctl("approve", verified["receipt"]))
    ok(stack.up())
    ok(stack.destroy())
    assert stack.native_ids() == []


def _two_of_one(sweep: dict[str, Any], env: dict[str, str]) -> None:
    """Two cells of the config of the first one."""
    cells = sweep["cells"]
    base = {**cells["base"], "epochs": EPOCHS, **{axis: values[0] for axis, values in cells["grid"].items()}}
    sweep["cells"] = {"base": base, "list": [{"name": "killed"}, {"name": "whole"}]}
    sweep["job"].setdefault("env", {}).update(env)


def _parts(path: Path, names: tuple[str, ...]) -> bytes:
    """These parts of a checkpoint of Lightning, or of a model of scikit-learn, in the bytes of their numbers."""
    if path.suffix == ".joblib":
        import joblib

        model = joblib.load(path)
        return b"".join(numpy.asarray(getattr(model, name)).tobytes() for name in names)
    import torch

    whole, kept = torch.load(path, weights_only=False), io.BytesIO()
    torch.save({name: whole[name] for name in names}, kept)
    return kept.getvalue()


def _saves(path: Path) -> list[str]:
    return path.read_text().splitlines()
