"""The curves that the real clients write: torch's SummaryWriter, transformers, lightning, wandb."""

from __future__ import annotations

import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sweepstack.core.curve_files import rows_of
from sweepstack.core.metrics import last_values, series
from sweepstack.onbox.common.groups import members
from tests.extensions.formats.curves import FILES
from tests.extensions.trackers.test_real import clients

__all__ = ["clients"]
pytestmark = pytest.mark.proof  # each imports for ten seconds

WANDB = """
import wandb
run = wandb.init(project="p")
for step in range(2000):
    run.log({"loss": 1 / (step + 1), "long": "x" * 90} | ({"val/acc": float("nan")} if step == 7 else {}))
run.finish()
"""


def read(kind: str, folder: Path) -> list[dict[str, Any]]:
    every = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    found = [path for paths in members(FILES[kind], every).values() for path in paths]
    return [dict(row) for row in rows_of(FILES[kind], [(path, (folder / path).read_bytes()) for path in found])]


@pytest.mark.torch
def test_torch_writes_events(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path / "runs" / "one")) as writer:
        for step in range(30):
            writer.add_scalar("loss/train", 1 / (step + 1), step * 10)
            if step % 7 == 0:
                writer.add_scalar("acc", step / 100, step * 10)
        writer.add_histogram("weights", torch.zeros(4), 3)
        writer.add_text("about", "words")
        writer.add_scalar("new", torch.tensor(0.5), 5, new_style=True)
    rows = read("tensorboard", tmp_path)
    assert {key for row in rows for key in row} == {"step", "loss/train", "acc", "new"}
    points = series(rows, "c", "step", "loss/train").points
    assert [x for x, _ in points] == [10 * step for step in range(30)]
    assert all(math.isclose(y, 1 / (x / 10 + 1), rel_tol=1e-6) for x, y in points)
    assert last_values(rows, ["acc", "new"]) == {"acc": 0.28, "new": 0.5}


def test_the_trainer_writes_its_state(tmp_path: Path) -> None:
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")

    class Model(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.one = torch.nn.Linear(1, 1)

        def forward(self, x: Any, labels: Any) -> dict[str, Any]:
            made = self.one(x)
            return {"loss": ((made - labels) ** 2).mean(), "logits": made}

    data = [{"x": torch.tensor([float(number)]), "labels": torch.tensor([2.0 * number])} for number in range(16)]
    words = {"max_steps": 6, "logging_steps": 1, "eval_strategy": "steps", "eval_steps": 3, "save_steps": 3}
    arguments = transformers.TrainingArguments(str(tmp_path), report_to=[], use_cpu=True, **words)
    trainer = transformers.Trainer(Model(), arguments, train_dataset=data, eval_dataset=data)
    trainer.train()
    rows = read("trainer", tmp_path)
    assert sorted(path.parent.name for path in tmp_path.glob("*/trainer_state.json")) == [
        "checkpoint-3",
        "checkpoint-6",
    ]
    logged = [row for row in trainer.state.log_history if "loss" in row]
    assert [(row["step"], row["loss"]) for row in rows] == [(row["step"], row["loss"]) for row in logged]
    assert [row["step"] for row in rows if "eval_loss" in row] == [3, 6]


def test_lightning_writes_a_table(tmp_path: Path) -> None:
    lightning, torch = pytest.importorskip("lightning"), pytest.importorskip("torch")
    from lightning.pytorch.loggers import CSVLogger

    class Model(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.one = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            loss = (self.one(batch) ** 2).mean()
            self.log("train_loss", loss)
            return loss

        def validation_step(self, batch: Any, _: int) -> None:
            self.log("val_loss", (self.one(batch) ** 2).mean())

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.01)

    data = torch.utils.data.DataLoader(torch.ones(8, 1), batch_size=2)
    logger = CSVLogger(str(tmp_path), name="logs")
    words = {"enable_progress_bar": False, "enable_checkpointing": False, "enable_model_summary": False}
    trainer = lightning.Trainer(max_epochs=3, logger=logger, log_every_n_steps=1, accelerator="cpu", **words)
    trainer.fit(Model(), data, data)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    rows = read("table", tmp_path)
    assert [x for x, _ in series(rows, "c", "step", "train_loss").points] == list(range(12))
    assert [x for x, _ in series(rows, "c", "step", "val_loss").points] == [3, 7, 11]
    assert math.isclose(float(last_values(rows, ["val_loss"])["val_loss"]), float(trainer.callback_metrics["val_loss"]))

    # it goes on in a version of its own, and is one curve
    logger = CSVLogger(str(tmp_path), name="logs")
    trainer = lightning.Trainer(max_epochs=5, logger=logger, log_every_n_steps=1, accelerator="cpu", **words)
    trainer.fit(Model(), data, data, ckpt_path=tmp_path / "last.ckpt")
    assert sorted(path.parent.name for path in tmp_path.glob("logs/*/metrics.csv")) == ["version_0", "version_1"]
    rows = read("table", tmp_path)
    assert [x for x, _ in series(rows, "c", "step", "train_loss").points] == list(range(20))
    assert [x for x, _ in series(rows, "c", "step", "val_loss").points] == [3, 7, 11, 15, 19]


def test_wandb_writes_a_run_of_several_blocks(tmp_path: Path, clients: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false"}
    subprocess.run([clients, "-c", WANDB], cwd=tmp_path, env=env, check=True, timeout=300, capture_output=True)
    rows = read("wandb", tmp_path)
    assert [(row["_step"], row["loss"]) for row in rows] == [(step, 1 / (step + 1)) for step in range(2000)]
    assert json.dumps(rows[7]["val/acc"]) == "NaN"
