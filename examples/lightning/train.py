"""Trains a small classifier of two spirals, with Lightning.

    python train.py --lr 0.01 --seed 0 --epochs 30 --output_dir runs/first

Started again with the same --output_dir it goes on from the last checkpoint there.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Spirals(L.LightningDataModule):
    """Points (x, y) of two spirals with noise; the same each time."""

    def __init__(self, seed: int, batch_size: int = 32) -> None:
        super().__init__()
        self.seed, self.batch_size = seed, batch_size

    def setup(self, stage: str) -> None:
        random = torch.Generator().manual_seed(2026)
        turn = torch.rand(600, generator=random) * 3 * math.pi
        arm = torch.arange(600) % 2
        angle = turn + math.pi * arm
        points = torch.stack([turn * angle.cos(), turn * angle.sin()], dim=1) / 10
        points += 0.02 * torch.randn(points.shape, generator=random)
        self.train, self.val = TensorDataset(points[100:], arm[100:]), TensorDataset(points[:100], arm[:100])

    def train_dataloader(self) -> DataLoader:
        order = DistributedSampler(
            self.train, num_replicas=1, rank=0, seed=self.seed
        )  # by the epoch, also after a restart
        return DataLoader(self.train, self.batch_size, sampler=order)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(self.val, len(self.val))


class Classifier(L.LightningModule):
    def __init__(self, lr: float = 1e-2, hidden: int = 32) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2)
        )

    def training_step(self, batch: list[torch.Tensor], at: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor], at: int) -> None:
        scores = self.net(batch[0])
        self.log("val_loss", nn.functional.cross_entropy(scores, batch[1]))
        self.log("val_acc", (scores.argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output_dir", type=Path, default=Path("runs"))
    args = parser.parse_args()

    L.seed_everything(args.seed)
    best = ModelCheckpoint(args.output_dir, filename="best", monitor="val_acc", mode="max")
    every = ModelCheckpoint(args.output_dir, filename="last", enable_version_counter=False)  # each epoch, the same file
    trainer = L.Trainer(
        max_epochs=args.epochs,
        default_root_dir=args.output_dir,
        logger=CSVLogger(args.output_dir, name=None),
        callbacks=[best, every],
        log_every_n_steps=10,
        enable_progress_bar=False,
    )
    last = args.output_dir / "last.ckpt"
    trainer.fit(Classifier(args.lr, args.hidden), Spirals(args.seed), ckpt_path=last if last.exists() else None)


if __name__ == "__main__":
    main()
