"""Trains a small network on points of two spirals with torch's DistributedDataParallel, on CPUs (gloo).

    torchrun --standalone --nproc-per-node 2 train.py --lr 0.01 --seed 0 --checkpoints runs/first --out runs/first

Started again with the same --checkpoints it goes on from the last one there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def spirals() -> tuple[TensorDataset, TensorDataset]:
    """Points to train and to test with; made here, the same each time."""
    random = torch.Generator().manual_seed(2026)
    turn = torch.rand(600, generator=random) * 3 * math.pi
    arm = torch.arange(600) % 2
    angle = turn + math.pi * arm
    points = torch.stack([turn * angle.cos(), turn * angle.sin()], dim=1) / 10
    return TensorDataset(points[100:], arm[100:]), TensorDataset(points[:100], arm[:100])


def save(path: Path, state: dict[str, object]) -> None:
    """Beside, then renamed: a kill in the middle leaves the one before."""
    torch.save(state, path.with_suffix(".tmp"))
    os.replace(path.with_suffix(".tmp"), path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(args.seed)
    train, test = spirals()
    sampler = DistributedSampler(train, seed=args.seed)
    loader = DataLoader(train, batch_size=25, sampler=sampler)
    net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    last = args.checkpoints / "last.pt"
    begin = 0
    if last.exists():
        state = torch.load(last)
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        begin = state["epoch"]
    dist.barrier()  # all have read it before the first writes the next one

    for epoch in range(begin + 1, args.epochs + 1):
        sampler.set_epoch(epoch)  # the order of an epoch is that of its number, also after a restart
        total = 0.0
        for points, arms in loader:
            loss = nn.functional.cross_entropy(model(points), arms)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        if rank == 0:
            print(f"epoch {epoch}/{args.epochs}  loss {total / len(loader):.4f}", flush=True)
            save(last, {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch})

    if rank == 0:
        points, arms = test.tensors
        with torch.no_grad():
            accuracy = (net(points).argmax(1) == arms).float().mean().item()
        torch.save({"model": net.state_dict()}, args.out / "model.pt")
        (args.out / "metrics.json").write_text(json.dumps({"accuracy": accuracy, "epochs": args.epochs}) + "\n")
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads outlive the group, and may abort a process that is done (pytorch/pytorch#190489)


if __name__ == "__main__":
    main()
