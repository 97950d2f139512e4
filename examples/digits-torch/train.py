"""Trains a small network on the handwritten digits that ship inside scikit-learn, in torch.

    python train.py --lr 0.1 --seed 0 --out results

Leaves in --out: best.pt (the weights of the best epoch by validation), metrics.json (test_accuracy and more),
metrics.jsonl (a line an epoch). Killed at any moment and started again, it goes on from its last checkpoint and ends
with the same numbers.
"""

from __future__ import annotations

import os

# One core a cell, and one order of summing; read when torch is imported.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sweepstack_checkpoint import TrainingState
from torch import nn

HIDDEN = 256
BATCH = 32
VALIDATION, TEST = 200, 360

Split = tuple[torch.Tensor, torch.Tensor]


def data() -> tuple[Split, Split, Split]:
    """Images (n, 64) and labels to train with, to choose the epoch by, and to test with; the same for every cell."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(2026).permutation(len(images))
    x, y = torch.from_numpy(images[order] / 16).float(), torch.from_numpy(labels[order]).long()
    held = TEST + VALIDATION
    return (x[held:], y[held:]), (x[TEST:held], y[TEST:held]), (x[:TEST], y[:TEST])


def accuracy(model: nn.Module, split: Split) -> float:
    model.eval()
    with torch.no_grad():
        return int((model(split[0]).argmax(dim=1) == split[1]).sum()) / len(split[1])


def train_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, split: Split) -> float:
    """One pass over the training images. Returns the mean loss."""
    model.train()
    images, labels = split
    total = 0.0
    order = torch.randperm(len(images))
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(chosen)
    return total / len(order)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)

    training, validation, test = data()
    model = nn.Sequential(nn.Linear(64, HIDDEN), nn.ReLU(), nn.Dropout(0.2), nn.Linear(HIDDEN, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.epochs)
    best: dict[str, Any] = {"epoch": 0, "validation_accuracy": -1.0}
    last: dict[str, float] = {}
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "best": best, "last": last}
    checkpoints = os.environ.get("SWEEPSTACK_CHECKPOINT_DIR") or f"{arguments.out}.checkpoints"
    state = TrainingState(parts, checkpoints)
    metrics = state.metrics(arguments.out / "metrics.jsonl")
    done = state.load_latest()
    print(f"lr {arguments.lr:g}, seed {arguments.seed}: from epoch {done} to {arguments.epochs}", flush=True)

    for epoch in range(done + 1, arguments.epochs + 1):
        loss = train_epoch(model, optimizer, training)
        schedule.step()
        reached = accuracy(model, validation)
        if reached > best["validation_accuracy"]:
            weights = copy.deepcopy(model.state_dict())
            best.update(epoch=epoch, validation_accuracy=reached, model_state_dict=weights)
        last.update(loss=loss, accuracy=reached)
        metrics.write({"step": epoch, **last})
        print(f"epoch {epoch}/{arguments.epochs}  loss {loss:.4f}  validation {reached:.4f}", flush=True)
        state.after_step(epoch)

    torch.save(best, arguments.out / "best.pt")
    model.load_state_dict(best["model_state_dict"])
    result = {
        "test_accuracy": accuracy(model, test),
        "best_epoch": best["epoch"],
        "train_loss": last["loss"],
        "epochs": arguments.epochs,
        "lr": arguments.lr,
        "seed": arguments.seed,
    }
    (arguments.out / "metrics.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
