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
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sweepstack_checkpoint import Checkpoint, stop_flag
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
    stop = stop_flag()
    checkpoint = Checkpoint(os.environ.get("SWEEPSTACK_CHECKPOINT_DIR") or f"{arguments.out}.checkpoints")
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)

    training, validation, test = data()
    model = nn.Sequential(nn.Linear(64, HIDDEN), nn.ReLU(), nn.Dropout(0.2), nn.Linear(HIDDEN, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.epochs)
    history: list[dict[str, Any]] = []
    best: dict[str, Any] = {"epoch": 0, "validation_accuracy": -1.0}
    latest = checkpoint.load_latest()
    if latest is not None:
        state = torch.load(latest, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        torch.set_rng_state(state["rng"])
        history, best = state["history"], state["best"]
    print(f"lr {arguments.lr:g}, seed {arguments.seed}: from epoch {len(history)} to {arguments.epochs}", flush=True)

    with (arguments.out / "metrics.jsonl").open("w") as metrics:
        metrics.writelines(json.dumps(line) + "\n" for line in history)
        for epoch in range(len(history) + 1, arguments.epochs + 1):
            loss = train_epoch(model, optimizer, training)
            schedule.step()
            reached = accuracy(model, validation)
            if reached > best["validation_accuracy"]:
                weights = copy.deepcopy(model.state_dict())
                best = {"epoch": epoch, "validation_accuracy": reached, "model_state_dict": weights}
            history.append({"step": epoch, "loss": loss, "accuracy": reached})
            metrics.write(json.dumps(history[-1]) + "\n")
            metrics.flush()
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "schedule": schedule.state_dict(),
                "rng": torch.get_rng_state(),
                "history": history,
                "best": best,
            }
            checkpoint.save(lambda path, state=state: torch.save(state, path), epoch)
            print(f"epoch {epoch}/{arguments.epochs}  loss {loss:.4f}  validation {reached:.4f}", flush=True)
            if stop:
                sys.exit(143)

    torch.save(best, arguments.out / "best.pt")
    model.load_state_dict(best["model_state_dict"])
    result = {
        "test_accuracy": accuracy(model, test),
        "best_epoch": best["epoch"],
        "train_loss": history[-1]["loss"],
        "epochs": arguments.epochs,
        "lr": arguments.lr,
        "seed": arguments.seed,
    }
    (arguments.out / "metrics.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
