"""Trains a small network on points of two rings with JAX and Flax, and keeps it with Orbax.

    python train.py --lr 0.01 --seed 0 --checkpoints runs/first --out runs/first

Started again with the same --checkpoints it goes on from the last one there.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import flax.linen as nn
import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax.serialization import to_bytes
from flax.training.train_state import TrainState

BATCH = 25


class Net(nn.Module):
    @nn.compact
    def __call__(self, points: jax.Array) -> jax.Array:
        return nn.Dense(2)(nn.tanh(nn.Dense(32)(points)))


def rings() -> tuple[np.ndarray, np.ndarray]:
    """Points (600, 2) and which ring each is of; the same each time."""
    random = np.random.default_rng(2026)
    ring = np.arange(600) % 2
    angle = random.uniform(0, 2 * np.pi, 600)
    far = (1 + ring) * random.normal(1, 0.1, 600)
    return np.stack([far * np.cos(angle), far * np.sin(angle)], axis=1).astype(np.float32), ring


@jax.jit
def step(state: TrainState, points: jax.Array, ring: jax.Array) -> TrainState:
    def loss(params: dict) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(state.apply_fn(params, points), ring).mean()

    return state.apply_gradients(grads=jax.grad(loss)(state.params))


def accuracy(state: TrainState, points: np.ndarray, ring: np.ndarray) -> float:
    return float((state.apply_fn(state.params, points).argmax(-1) == ring).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()

    points, ring = rings()
    net = Net()
    params = net.init(jax.random.key(args.seed), points[:1])
    state = TrainState.create(apply_fn=net.apply, params=params, tx=optax.adam(args.lr))
    options = ocp.CheckpointManagerOptions(max_to_keep=2)
    with ocp.CheckpointManager(args.checkpoints.resolve() / "states", options=options) as manager:
        begin = manager.latest_step() or 0
        if begin:
            state = manager.restore(begin, args=ocp.args.StandardRestore(state))
        for epoch in range(begin + 1, args.epochs + 1):
            order = np.random.default_rng([args.seed, epoch]).permutation(500) + 100  # also after a restart
            for chosen in order.reshape(-1, BATCH):
                state = step(state, points[chosen], ring[chosen])
            print(f"epoch {epoch}/{args.epochs}  accuracy {accuracy(state, points[:100], ring[:100]):.3f}", flush=True)
            manager.save(epoch, args=ocp.args.StandardSave(state))

    (args.out / "model.msgpack").write_bytes(to_bytes(state.params))
    metrics = {"accuracy": accuracy(state, points[:100], ring[:100]), "epochs": args.epochs}
    (args.out / "metrics.json").write_text(json.dumps(metrics) + "\n")


if __name__ == "__main__":
    main()
