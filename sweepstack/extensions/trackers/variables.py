"""The variables by which each tracker's own client logs into the cell's outputs, and asks no server.

Names are those of wandb 0.31, mlflow 3.17 and transformers 5. No client waits for a network there: so a tracker that is
off, down, slow, or that rejects a key costs a cell nothing.
"""

from __future__ import annotations

import os
from urllib.parse import quote

from sweepstack.core.job import TrackerInput, WandbInput

FOLDER = "tracker"
"""Below `{out}`: what the clients write."""
WANDB = f"{FOLDER}/wandb"
MLFLOW = f"{FOLDER}/mlruns"
OFFLINE = {
    "WANDB_MODE": "offline",
    "WANDB_DIR": f"{{out}}/{FOLDER}",
    "WANDB_ERROR_REPORTING": "false",
    "MLFLOW_TRACKING_URI": f"{{out}}/{MLFLOW}",
    "MLFLOW_ALLOW_FILE_STORE": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
"""What keeps a client offline, and its files in the cell's outputs."""


def variables(tracker: TrackerInput, identity: str) -> dict[str, str]:
    """Variable → value, with the placeholders of a cell. No secret is among them."""
    found: dict[str, str] = {}
    if (wandb := tracker.wandb) is not None:
        given = {
            "WANDB_PROJECT": wandb.project,
            "WANDB_ENTITY": wandb.entity,
            "WANDB_RUN_GROUP": wandb.group or identity,
            "WANDB_NAME": wandb.name,
            "WANDB_TAGS": ",".join(wandb.tags),
            "WANDB_RESUME": "allow",
        }
        found |= _offline("WANDB") | {name: value for name, value in given.items() if value}
    if (mlflow := tracker.mlflow) is not None:
        found |= _offline("MLFLOW") | {"MLFLOW_EXPERIMENT_NAME": mlflow.experiment}
    if (tensorboard := tracker.tensorboard) is not None:
        found["TENSORBOARD_LOGGING_DIR"] = f"{{out}}/{tensorboard.folder}"
    return found


def _offline(client: str) -> dict[str, str]:
    return {name: value for name, value in OFFLINE.items() if name.startswith(f"{client}_")}


def places(tracker: TrackerInput) -> dict[str, str]:
    """Tracker → where the run of a cell is, in words; `{run}` stands for its id. What the manifests of cells keep."""
    found: dict[str, str] = {}
    if (wandb := tracker.wandb) is not None:
        found["wandb"] = address(wandb, "runs/{run}") or f"project {wandb.project}, run {{run}}"
    if (mlflow := tracker.mlflow) is not None:
        found["mlflow"] = f"{mlflow.uri}, experiment {mlflow.experiment}, sweepstack.run {{run}}"
    if tracker.tensorboard is not None:
        found["tensorboard"] = f"event files below {tracker.tensorboard.folder}/"
    return found


def address(wandb: WandbInput, page: str) -> str:
    """A page of the project of Weights & Biases; "" where only the key knows whose project it is."""
    if not wandb.entity:
        return ""
    site = os.environ.get("WANDB_BASE_URL", "https://wandb.ai").rstrip("/").replace("//api.wandb.ai", "//wandb.ai")
    return f"{site}/{quote(wandb.entity)}/{quote(wandb.project)}/{page}"
