"""One curve as each tool writes it: loss at steps 0 to 4, acc at 0, 2 and 4."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

WANDB = Path(__file__).with_name("recorded") / "run-of-wandb-0.31.wandb"
"""What wandb 0.31.0 wrote offline: loss and val/acc as below, beside it a nested key, a text, and its own keys."""
ROWS: list[dict[str, Any]] = [
    {"step": step, "loss": 1 / 2**step, **({"val/acc": step / 10} if step % 2 == 0 else {})} for step in range(5)
]
FILES = {
    "lines": "metrics.jsonl",
    "tensorboard": "runs/*/events.out.tfevents.*",
    "trainer": "checkpoint-*/trainer_state.json",
    "table": "logs/version_*/metrics.csv",
    "trackio": "tracker/trackio/*.db",
    "wandb": "wandb/offline-run-*/run-*.wandb",
}
"""Kind → `metrics.file`."""


def lines(rows: Iterable[dict[str, Any]] = ROWS) -> dict[str, bytes]:
    """Path below {out} → content; as all of these. Each row has what was logged until then: text has no holes."""
    return {"metrics.jsonl": b"".join(json.dumps({"val/acc": 0.4, **row}).encode() + b"\n" for row in rows)}


def tensorboard(
    rows: Iterable[dict[str, Any]] = ROWS, folder: str = "runs/Nov29_host", at: float = 0
) -> dict[str, bytes]:
    """By tensorboard's own writer."""
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.record_writer import RecordWriter

    begun = at or time.time()
    written = io.BytesIO()
    writer = RecordWriter(written)
    writer.write(event_pb2.Event(wall_time=begun, file_version="brain.Event:2").SerializeToString())
    for number, row in enumerate(rows):
        for tag in [tag for tag in row if tag != "step"]:
            value = summary_pb2.Summary.Value(tag=tag, simple_value=row[tag])
            event = event_pb2.Event(
                wall_time=begun + number, step=row["step"], summary=summary_pb2.Summary(value=[value])
            )
            writer.write(event.SerializeToString())
    return {f"{folder}/events.out.tfevents.{begun:.0f}.host.7.0": written.getvalue()}


def trainer(rows: Iterable[dict[str, Any]] = ROWS, step: int = 4) -> dict[str, bytes]:
    """As transformers 5 writes it: what is evaluated has a row of its own."""
    history = []
    for row in rows:
        history.append({"epoch": row["step"] / 2, "loss": row["loss"], "step": row["step"]})
        if "val/acc" in row:
            history.append({"epoch": row["step"] / 2, "val/acc": row["val/acc"], "step": row["step"]})
    state = {"best_metric": None, "global_step": step, "log_history": history, "max_steps": 4}
    return {f"checkpoint-{step}/trainer_state.json": json.dumps(state, indent=2).encode() + b"\n"}


def table(rows: Iterable[dict[str, Any]] = ROWS, version: int = 0) -> dict[str, bytes]:
    """As lightning's CSVLogger writes it: what is logged by itself has a row of its own, the rest is empty."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, ["epoch", "step", "loss", "val/acc"])
    writer.writeheader()
    for row in rows:
        writer.writerow({"epoch": 0, "step": row["step"], "loss": row["loss"]})
        if "val/acc" in row:
            writer.writerow({"epoch": 0, "step": row["step"], "val/acc": row["val/acc"]})
    return {f"logs/version_{version}/metrics.csv": text.getvalue().encode()}


TRACKIO = """
CREATE TABLE metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, timestamp TEXT NOT NULL,
  run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL, log_id TEXT, space_id TEXT);
CREATE TABLE configs (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, run_name TEXT NOT NULL,
  config TEXT NOT NULL, created_at TEXT NOT NULL, UNIQUE(run_id));
"""
"""What of the tables of trackio 0.43 is read here."""


def trackio(rows: Iterable[dict[str, Any]] = ROWS, runs: Sequence[str] = ("r1",), **config: Any) -> dict[str, bytes]:
    """As trackio 0.43 writes them: JSON in a database of SQLite, with NaN as a text. Each of `runs` has all rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "p.db")
        with contextlib.closing(sqlite3.connect(path)) as base, base:
            base.executescript(TRACKIO)
            for run in runs:
                base.execute("INSERT INTO configs VALUES (NULL, ?, 'a-0', ?, '')", [run, json.dumps(config)])
                for row in rows:
                    logged = json.dumps({key: value for key, value in row.items() if key != "step"})
                    words = [run, row["step"], logged, f"{run}-{row['step']}"]
                    base.execute("INSERT INTO metrics VALUES (NULL, ?, '', 'a-0', ?, ?, ?, NULL)", words)
        return {"tracker/trackio/p.db": path.read_bytes()}


def wandb() -> dict[str, bytes]:
    """The recorded one."""
    return {"wandb/offline-run-20261129_163131-vvbpg9fp/run-vvbpg9fp.wandb": WANDB.read_bytes()}


MADE = {
    "lines": lines,
    "tensorboard": tensorboard,
    "trainer": trainer,
    "table": table,
    "trackio": trackio,
    "wandb": wandb,
}
