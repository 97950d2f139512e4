"""Trains a small network on points of two rings, with NumPy; its config is Hydra's.

    python train.py optimizer=momentum optimizer.lr=0.1 seed=0 hydra.run.dir=runs/first

Started again with the same hydra.run.dir it goes on from the last checkpoint there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import hydra
import numpy as np
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

BATCH = 25


def rings() -> tuple[np.ndarray, np.ndarray]:
    """Points (600, 2) and which ring each is of; the same each time."""
    random = np.random.default_rng(2026)
    ring = np.arange(600) % 2
    angle = random.uniform(0, 2 * np.pi, 600)
    far = (1 + ring) * random.normal(1, 0.1, 600)
    return np.stack([far * np.cos(angle), far * np.sin(angle)], axis=1), ring


def forward(weights: dict[str, np.ndarray], points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    hidden = np.tanh(points @ weights["w1"] + weights["b1"])
    return hidden, 1 / (1 + np.exp(-(hidden @ weights["w2"] + weights["b2"])))


def train_epoch(
    weights: dict[str, np.ndarray], speed: dict[str, np.ndarray], data: tuple[np.ndarray, np.ndarray], cfg: DictConfig,
    random: np.random.Generator,
) -> None:  # fmt: skip
    points, ring = data
    order = random.permutation(len(points))
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        hidden, said = forward(weights, points[chosen])
        slope = (said - ring[chosen]) / len(chosen)
        back = np.outer(slope, weights["w2"]) * (1 - hidden**2)
        slopes = {"w1": points[chosen].T @ back, "b1": back.sum(0), "w2": hidden.T @ slope, "b2": slope.sum()}
        for name, value in slopes.items():
            speed[name] = cfg.optimizer.momentum * speed[name] - cfg.optimizer.lr * value
            weights[name] = weights[name] + speed[name]


def accuracy(weights: dict[str, np.ndarray], points: np.ndarray, ring: np.ndarray) -> float:
    return float(((forward(weights, points)[1] > 0.5) == ring).mean())


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg: DictConfig) -> None:
    folder = Path(HydraConfig.get().runtime.output_dir)
    points, ring = rings()
    train, test = (points[100:], ring[100:]), (points[:100], ring[:100])
    random = np.random.default_rng(cfg.seed)
    width = cfg.model.hidden
    weights = {"w1": random.normal(0, 1, (2, width)), "b1": np.zeros(width), "w2": random.normal(0, 0.3, width),
               "b2": np.zeros(())}  # fmt: skip
    speed = {name: np.zeros_like(value) for name, value in weights.items()}
    begin, last = 0, folder / "last.npz"
    if last.exists():
        with np.load(last) as state:
            weights = {name: state[f"weights/{name}"] for name in weights}
            speed = {name: state[f"speed/{name}"] for name in speed}
            random.bit_generator.state = json.loads(str(state["random"]))
            begin = int(state["epoch"])

    for epoch in range(begin + 1, cfg.epochs + 1):
        train_epoch(weights, speed, train, cfg, random)
        print(f"epoch {epoch}/{cfg.epochs}  accuracy {accuracy(weights, *test):.3f}", flush=True)
        state = {f"{kind}/{name}": value for kind, all_of in (("weights", weights), ("speed", speed))
                 for name, value in all_of.items()}  # fmt: skip
        np.savez(folder / "new.npz", **state, epoch=epoch, random=json.dumps(random.bit_generator.state))
        os.replace(folder / "new.npz", last)  # a kill in the middle leaves the one before

    np.savez(folder / "model.npz", **weights)
    metrics = {"accuracy": accuracy(weights, *test), **OmegaConf.to_container(cfg.optimizer)}
    (folder / "metrics.json").write_text(json.dumps(metrics) + "\n")


if __name__ == "__main__":
    main()
