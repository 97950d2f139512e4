"""Trains a small network on the handwritten digits that ship inside scikit-learn.

    python train.py --lr 0.1 --seed 0 --out results

Leaves in --out: model.safetensors (w1, b1, w2, b2), metrics.json (test_accuracy and more), metrics.jsonl (a line an epoch).
Killed at any moment and started again, it goes on from its last checkpoint and ends with the same bytes.
"""

from __future__ import annotations

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")  # one core a cell; also one order of summing, whatever machine it is

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from sklearn.datasets import load_digits
from sweepstack_checkpoint import Checkpoint, stop_flag

HIDDEN = 1024
BATCH = 16
TEST = 360
NOISE = 0.1
"""Standard deviation of what is added to the pixels (0 to 1) of every batch; batches are also moved by up to a pixel."""

Arrays = dict[str, np.ndarray]


def data(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training images and labels, test images and labels. The split is the same for every seed but 0 … is not mixed."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(20).permutation(len(images))
    images, labels = (images[order] / 16).astype(np.float32), labels[order]
    return images[TEST:], labels[TEST:], images[:TEST], labels[:TEST]
