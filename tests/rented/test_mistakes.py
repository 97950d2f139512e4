"""A stack file with every kind of mistake: each gets a line, and the platform gets no request."""

from __future__ import annotations

import re
from pathlib import Path

from tests.rented.world import holding, rented

MISTAKES = """\
config:
  sweepstack:sweep:
    job:
      workdir: https://github.com/me/paper  # at which ref?
      image: [pytorch]
      setup: 3
      run: python train.py --lr {lrr} --out {out}
      resources:
        gpu: {name: [A100], count: none, memmory: 40GB+, cuda: 12.8}
        disk: 120
        spot: yes
        region: [US]
        reliability: 98
      env: {WANDB_API_KEY: abcdef123456, "1X": a}
      secrets: [HF-TOKEN]
      slots: 0
      mixing: maybe
      stall: 10
    cells:
      grid: {lr: [0.1, 0.03], seed: []}
    artifacts:
      ../best.pt: {load: torch}
      m.json: {load: jsn, finite: always, min: 0}
    metrics: {file: metrics.jsonl, x: step}
    candidates: [runpodd, vastai]
    max_price: "2,10"
    bid: free
    budget: {usd: -5, month: 1, webhook: "https://hooks.example/x"}
    when_done: destroy
    mounts: {ckpt: {source: s3://lab/x, mode: COPY}}
    boxes: {Box_0: {want: paused}}
    pull_to: gs://lab/x
    overrides: {lokal: {price_per_hour: 1}}
  sweepstak:sweep: {}
"""
KINDS = 30


def test_thirty_mistakes_are_thirty_lines_before_the_first_call(tmp_path: Path) -> None:
    with rented("runpod", tmp_path, "x", machines=False) as world:
        stack = world.stack
        stack.config_file.parent.mkdir(exist_ok=True)
        stack.config_file.write_text(MISTAKES)
        stack.init()
        for words in (("preview",), ("up",)):
            said = stack.pulumi(*words, timeout=180)
            assert said.rc != 0
            lines = re.findall(r"^\s*line +\d+  \S.*", said.text, re.MULTILINE)
            count = re.search(r"has (\d+) mistakes; nothing was rented", said.text)
            assert count is not None, str(said)
            assert int(count[1]) >= KINDS
            assert len(set(lines)) == int(count[1]), str(said)
            assert "Traceback" not in said.text
        assert world.sim.calls == [], "the platform was asked before the file was right"


def test_the_search_for_spilled_keys_finds_one(tmp_path: Path) -> None:
    """It runs after every world of this folder; here it has something to find."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "log.txt").write_bytes(b"\0Authorization: Bearer k-123456\0")
    assert holding(tmp_path, "k-123456") == ["deep/log.txt"]
    assert holding(tmp_path, "k-1234567") == []
