"""`job.tracker` of a stack config: where curves of cells go besides the evidence."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field

from sweepstack.config.types import AimRepository, FilePath, Names, Server, Shape, Text, wrong
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
    uri: Server
    """the server's address, `https://…`, as `sweepctl pull` reaches it; cells never do"""
    experiment: Plain
    """its experiment; made where it is not there"""
    name: Text = "{cell}"
    """the run's name; placeholders work: `{cell}` by default"""
    tags: dict[str, Text] = Field(default_factory=dict)
    """tags of each run; placeholders work"""


class TrackioConfig(Shape):
    """A server of Trackio, which is sent what each cell logged."""

    anchor: ClassVar[str] = "trackio"
    uri: Server
    """the server's address, or that of a Space, `https://me-space.hf.space`, as `sweepctl pull` reaches it"""
    project: Plain
    """its project, whatever `trackio.init` says"""
    group: Text | None = None
    """the group of a run; placeholders work, and by default it is the sweep's identity"""
    name: Text = "{cell}"
    """the run's name; placeholders work: `{cell}` by default"""


class AimConfig(Shape):
    """A repository of Aim, which is sent what each cell logged."""

    anchor: ClassVar[str] = "aim"
    uri: AimRepository
    """its server, `aim://HOST:PORT`, or its folder on the computer where `sweepctl pull` runs, such as `~/aim`"""
    experiment: Plain
    """its experiment; made where it is not there"""
    name: Text = "{cell}"
    """the run's name; placeholders work: `{cell}` by default"""
    tags: Names = ()
    """tags of each run; placeholders work"""


class TensorboardConfig(Shape):
    """TensorBoard, which reads the evidence."""

    anchor: ClassVar[str] = "tensorboard"
    folder: Annotated[FilePath, BeforeValidator(_plain)] = "tensorboard"
    """the folder below `{out}` that the job writes event files to; the Trainer of Hugging Face does by itself"""


def _one(value: TrackerConfig) -> TrackerConfig:
    if all(getattr(value, name) is None for name in TrackerConfig.model_fields):
        raise wrong(f"at least one of {', '.join(TrackerConfig.model_fields)}")
    return value


class TrackerConfig(Shape):
    """The trackers of the cells."""

    anchor: ClassVar[str] = "tracker"
    wandb: WandbConfig | None = None
    """Weights & Biases: `project`, and if wanted `entity`, `group`, `name`, `tags`"""
    mlflow: MlflowConfig | None = None
    """MLflow: `uri`, `experiment`, and if wanted `name`, `tags`"""
    trackio: TrackioConfig | None = None
    """Trackio: `uri`, `project`, and if wanted `group`, `name`"""
    aim: AimConfig | None = None
    """Aim: `uri`, `experiment`, and if wanted `name`, `tags`"""
    tensorboard: TensorboardConfig | None = None
    """TensorBoard: `{}`, or `folder`"""


Tracker = Annotated[TrackerConfig, AfterValidator(_one)]
