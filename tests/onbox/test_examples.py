"""The examples, killed in the middle of training: the same command goes on, and ends with the same bytes."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.onbox.harness import CHECKPOINT, wait_for

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def start(example: str, out: Path) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "train.py", "--lr", "0.1", "--seed", "3", "--epochs", "5", "--out", str(out)]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(CHECKPOINT), "SWEEPSTACK_CHECKPOINT_DIR": f"{out}-checkpoints"}
    return subprocess.Popen(argv, cwd=EXAMPLES / example, env=env, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize(
    ("example", "model"),
    [
        pytest.param("digits", "model.safetensors"),
        pytest.param(
            "digits-torch",
            "best.pt",
            marks=[
                pytest.mark.proof,  # its checkpoints are those of test_training_torch.py
                pytest.mark.torch,
                pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
            ],
        ),
    ],
)
def test_killed_example_ends_with_the_same_bytes(example: str, model: str, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole", tmp_path / "out"
    undisturbed, killed = start(example, whole), start(example, out)
    saved = Path(f"{out}-checkpoints")
    metrics = out / "metrics.jsonl"
    wait_for(lambda: saved.is_dir() and any(saved.glob("step-*")), lambda: "no checkpoint", 180)
    newest = max(int(path.name.split("-")[1]) for path in saved.glob("step-*"))
    wait_for(lambda: len(metrics.read_text().splitlines()) > newest, lambda: "no epoch after it", 180)
    killed.kill()
    killed.wait()
    assert not (out / model).exists()
    assert start(example, out).wait(120) == 0
    assert undisturbed.wait(120) == 0
    for name in (model, "metrics.json", "metrics.jsonl"):
        assert (out / name).read_bytes() == (whole / name).read_bytes(), name
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5]
    assert json.loads((out / "metrics.json").read_text())["test_accuracy"] > 0.9
