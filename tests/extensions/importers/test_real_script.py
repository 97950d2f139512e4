"""A stack file from scripts whose options a real library parses: lightning's own LightningCLI."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.extensions.importers.test_script import made

pytestmark = [pytest.mark.proof, pytest.mark.torch]  # each start of lightning takes ten seconds and more

SCRIPT = """\
import torch
from lightning import LightningDataModule, LightningModule
from lightning.pytorch.cli import LightningCLI


class Line(LightningModule):
    def __init__(self, lr: float = 0.1, width: int = 4):
        super().__init__()
        self.save_hyperparameters()
        self.one = torch.nn.Linear(1, 1)

    def training_step(self, batch, _):
        loss = ((self.one(batch[0]) - batch[1]) ** 2).mean()
        self.log("train_loss", loss, on_epoch=True, on_step=False)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.hparams.lr)


class Points(LightningDataModule):
    def __init__(self, batch_size: int = 8):
        super().__init__()
        self.batch_size = batch_size

    def train_dataloader(self):
        x = torch.linspace(0, 1, 32)[:, None]
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, 2 * x), self.batch_size)


if __name__ == "__main__":
    LightningCLI(Line, Points, trainer_defaults={"max_epochs": 20, "accelerator": "cpu", "enable_progress_bar": False})
"""


def test_a_trial_of_a_lightning_cli(root: Path) -> None:
    """The trial types the line that stands in the stack file: with another option than its own, it would fail."""
    pytest.importorskip("lightning")
    pytest.importorskip("jsonargparse")
    text = made(root, SCRIPT)
    assert "# edit" not in text, text
    run = "python train.py fit --model.lr {model_lr} --seed_everything {seed_everything} --trainer.max_epochs "
    assert f"{run}{{trainer_max_epochs}} --trainer.default_root_dir {{out}}" in " ".join(text.split())
    assert '"lightning_logs/version_0/checkpoints/epoch=*-step=*.ckpt": {load: lightning}' in text
    assert "lightning_logs/version_*/" in text
    assert "train_loss" in text
