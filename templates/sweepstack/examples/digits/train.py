"""Trains a small network on the handwritten digits that ship inside scikit-learn.

    python train.py --lr 0.1 --seed 0 --out results

Leaves in --out: model.safetensors (w1, b1, w2, b2), metrics.json (test_accuracy and more), metrics.jsonl (a line an
epoch). Killed at any moment and started again, it goes on from its last checkpoint and ends with the same bytes.
"""

from __future__ import annotations

import os

# One core a cell, and one order of summing; numpy reads this when imported.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import importlib.util
import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from sweepstack_checkpoint import TrainingState

HIDDEN = 2048
BATCH = 16
COPIES = 6
"""How often every image is seen in an epoch, moved and made noisy differently each time."""
TEST = 360
NOISE = 0.1
"""Standard deviation of what is added to the pixels (0 to 1); every image is also moved by up to one pixel."""

Weights = dict[str, np.ndarray]


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training images (n, 8, 8) and labels, test images and labels. The split is the same for every cell."""
    # scikit-learn's own file, read without importing scikit-learn: that alone takes longer than three epochs.
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise SystemExit("the digits are a file of scikit-learn: pip install -r requirements.txt")
    table = np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    images, labels = table[:, :-1], table[:, -1].astype(int)
    order = np.random.default_rng(2026).permutation(len(images))
    images, labels = (images[order] / 16).astype(np.float32).reshape(-1, 8, 8), labels[order]
    return images[TEST:], labels[TEST:], images[:TEST], labels[:TEST]


def first_weights(rng: np.random.Generator) -> Weights:
    return {
        "w1": rng.normal(0, (2 / 64) ** 0.5, (64, HIDDEN)).astype(np.float32),
        "b1": np.zeros(HIDDEN, np.float32),
        "w2": rng.normal(0, (1 / HIDDEN) ** 0.5, (HIDDEN, 10)).astype(np.float32),
        "b2": np.zeros(10, np.float32),
    }


def augmented(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The images, each moved by up to one pixel in both directions, with noise, flat."""
    framed = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    down, right = rng.integers(0, 3, (2, len(images)))
    rows, columns = down[:, None] + np.arange(8), right[:, None] + np.arange(8)
    moved = framed[np.arange(len(images))[:, None, None], rows[:, :, None], columns[:, None, :]]
    return (moved + rng.normal(0, NOISE, moved.shape)).astype(np.float32).reshape(len(images), 64)


def forward(weights: Weights, flat: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The hidden layer, and the logarithms of the probabilities of the ten digits."""
    hidden = np.maximum(flat @ weights["w1"] + weights["b1"], 0)
    scores = hidden @ weights["w2"] + weights["b2"]
    scores -= scores.max(axis=1, keepdims=True)
    return hidden, scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


def train_epoch(weights: Weights, images: np.ndarray, labels: np.ndarray, lr: float, rng: np.random.Generator) -> float:
    """One pass over all copies of the training images, in place. Returns the mean loss."""
    total = 0.0
    order = rng.permutation(np.repeat(np.arange(len(images)), COPIES))
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        flat, wanted = augmented(images[chosen], rng), labels[chosen]
        hidden, logs = forward(weights, flat)
        total -= float(logs[np.arange(len(chosen)), wanted].sum())
        slope = np.exp(logs)
        slope[np.arange(len(chosen)), wanted] -= 1
        slope /= len(chosen)
        back = (slope @ weights["w2"].T) * (hidden > 0)
        weights["w2"] -= lr * (hidden.T @ slope)
        weights["b2"] -= lr * slope.sum(axis=0)
        weights["w1"] -= lr * (flat.T @ back)
        weights["b1"] -= lr * back.sum(axis=0)
    return total / len(order)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)

    images, labels, test_images, test_labels = data()
    rng = np.random.default_rng(arguments.seed)
    weights = first_weights(rng)
    last: dict[str, float] = {}
    checkpoints = os.environ.get("SWEEPSTACK_CHECKPOINT_DIR") or f"{arguments.out}.checkpoints"
    state = TrainingState({"weights": weights, "rng": rng, "last": last}, checkpoints)
    metrics = state.metrics(arguments.out / "metrics.jsonl")
    done = state.load_latest()
    print(f"lr {arguments.lr:g}, seed {arguments.seed}: from epoch {done} to {arguments.epochs}", flush=True)

    for epoch in range(done + 1, arguments.epochs + 1):
        loss = train_epoch(weights, images, labels, arguments.lr, rng)
        _, logs = forward(weights, test_images.reshape(-1, 64))
        accuracy = float((logs.argmax(axis=1) == test_labels).mean())
        last.update(loss=loss, accuracy=accuracy)
        metrics.write({"step": epoch, **last})
        print(f"epoch {epoch}/{arguments.epochs}  loss {loss:.4f}  test accuracy {accuracy:.4f}", flush=True)
        state.after_step(epoch)

    save_file(weights, arguments.out / "model.safetensors")
    result = {
        "test_accuracy": last["accuracy"],
        "train_loss": last["loss"],
        "epochs": arguments.epochs,
        "lr": arguments.lr,
        "seed": arguments.seed,
        "parameters": sum(array.size for array in weights.values()),
    }
    (arguments.out / "metrics.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
