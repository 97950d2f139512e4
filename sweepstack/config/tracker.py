"""`job.tracker` of a stack config: where curves of cells go besides the evidence."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field

from sweepstack.config.types import FilePath, MlflowServer, Names, Shape, Text, wrong
from sweepstack.onbox.common.placeholders import PLACEHOLDER


def _plain(value: Any) -> Any:
    if isinstance(value, str) and PLACEHOLDER.search(value):
        raise wrong("a text without placeholders: it is the same for all cells")
    return value


Plain = Annotated[Text, BeforeValidator(_plain)]
"""Counts for all cells of a sweep."""


class WandbConfig(Shape):
    """Weights & Biases, offline in each cell."""

    anchor: ClassVar[str] = "wandb"
    project: Plain
    """its project"""
    entity: Plain | None = None
    """the team or user that has the project; by default that of the key"""
    group: Text | None = None
    """the group of a run; placeholders work, and by default it is the sweep's identity"""
    name: Text = "{cell}"
    """the run's name; placeholders work: `{cell}` by default"""
    tags: Names = ()
    """tags of each run; placeholders work"""


class MlflowConfig(Shape):
    """An MLflow server, which is sent what each cell logged."""

    anchor: ClassVar[str] = "mlflow"
    uri: MlflowServer
    """the server's address, `https://…`, as `sweepctl pull` reaches it; cells never do"""
    experiment: Plain
    """its experiment; made where it is not there"""
    name: Text = "{cell}"
    """the run's name; placeholders work: `{cell}` by default"""
    tags: dict[str, Text] = Field(default_factory=dict)
    """tags of each run; placeholders work"""


class TensorboardConfig(Shape):
    """TensorBoard, which reads the evidence."""

    anchor: ClassVar[str] = "tensorboard"
    folder: Annotated[FilePath, BeforeValidator(_plain)] = "tensorboard"
    """the folder below `{out}` that the job writes event files to; the Trainer of Hugging Face does by itself"""


def _one(value: TrackerConfig) -> TrackerConfig:
    if value.wandb is None and value.mlflow is None and value.tensorboard is None:
        raise wrong("at least one of wandb, mlflow, tensorboard")
    return value


class TrackerConfig(Shape):
    """The trackers of the cells."""

    anchor: ClassVar[str] = "tracker"
    wandb: WandbConfig | None = None
    """Weights & Biases: `project`, and if wanted `entity`, `group`, `name`, `tags`"""
    mlflow: MlflowConfig | None = None
    """MLflow: `uri`, `experiment`, and if wanted `name`, `tags`"""
    tensorboard: TensorboardConfig | None = None
    """TensorBoard: `{}`, or `folder`"""


Tracker = Annotated[TrackerConfig, AfterValidator(_one)]
