"""Trains a classifier of handwritten digits with scikit-learn, by mini-batches.

    python train.py --alpha 0.001 --seed 0 --checkpoints runs/first --out runs/first

Started again with the same --checkpoints it goes on from the last one there.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import joblib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

BATCH = 50


def save(path: Path, value: object) -> None:
    """Beside, then renamed: a kill in the middle leaves the one before."""
    joblib.dump(value, path.with_suffix(".tmp"))
    os.replace(path.with_suffix(".tmp"), path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--alpha", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()

    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(images / 16, labels, test_size=360, random_state=0)
    random = np.random.RandomState(args.seed)
    model = SGDClassifier(loss="log_loss", alpha=args.alpha, random_state=random)
    begin = 0
    last = args.checkpoints / "last.joblib"
    if last.exists():
        model, begin = joblib.load(last)  # the model's random numbers are in it
        random = model.random_state

    for epoch in range(begin + 1, args.epochs + 1):
        order = random.permutation(len(train_x))
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            model.partial_fit(train_x[chosen], train_y[chosen], classes=np.unique(labels))
        print(f"epoch {epoch}/{args.epochs}  accuracy {model.score(test_x, test_y):.4f}", flush=True)
        save(last, (model, epoch))

    joblib.dump(model, args.out / "model.joblib")
    metrics = {"accuracy": model.score(test_x, test_y), "epochs": args.epochs, "alpha": args.alpha, "seed": args.seed}
    (args.out / "metrics.json").write_text(json.dumps(metrics) + "\n")


if __name__ == "__main__":
    main()
