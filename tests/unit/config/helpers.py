"""A stack config to break, one line at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweepstack.config.stack_config import StackConfig
from sweepstack.onbox.common.errors import ConfigError

GOOD = """\
config:
  sweepstack:sweep:
    job:
      workdir: examples/digits
      run: python train.py --lr {lr} --seed {seed} --out {out}
      resources:
        cpu: 1
        gpu: {name: [A100, H100], count: 1, memory: 40GB+, cuda: "12.4+"}
      env: {TAG: "{cell}", THREADS: 1}
    cells:
      grid: {lr: [0.1, 0.03], seed: [0, 1, 2]}
    artifacts:
      best.pt: {load: torch, finite: require, min: 50MB}
    metrics: {file: metrics.jsonl, x: step, y: loss}
    candidates: [local]
    max_price: 2.10
    boxes: {box-0: {want: running}}
    pull_to: results/x
    overrides: {local: {price_per_hour: 0.12}}
encryptionsalt: v1:abc
"""


def write(root: Path, text: str, stack: str = "x") -> Path:
    """`text` as the config of a stack below `root`."""
    path = root / "stacks" / f"Pulumi.{stack}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def load(root: Path, text: str) -> StackConfig:
    """The config that `text` is."""
    write(root, text)
    return StackConfig.load(root, "x")


def refusal(root: Path, text: str) -> str:
    """The message for a config that must not load."""
    with pytest.raises(ConfigError) as caught:
        load(root, text)
    assert caught.value.problems or "YAML" in str(caught.value)
    return str(caught.value)


def broken(old: str, new: str) -> str:
    """The good config with one thing replaced."""
    assert GOOD.count(old) == 1, f"{old!r} stands {GOOD.count(old)} times"
    return GOOD.replace(old, new)
