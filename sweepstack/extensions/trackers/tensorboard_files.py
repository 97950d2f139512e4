"""TensorBoard, which has no server that is sent anything: it reads the evidence."""

from __future__ import annotations

import shlex

from sweepstack.core.job import TensorboardInput
from sweepstack.extensions.trackers.kind import Kind, Sweep


def _words(asked: TensorboardInput, sweep: Sweep) -> str:
    host, folder, path = sweep.evidence.removeprefix("file://").partition("/")
    here = sweep.evidence.startswith("file://") and bool(host)
    cells = shlex.join(["tensorboard", "--logdir", f"{folder}{path}/cells"])
    return cells if here else f"event files of the cells in {sweep.evidence}"


KIND = Kind(
    name="tensorboard",
    folder="",
    offline={},
    variables=lambda asked, identity: {"TENSORBOARD_LOGGING_DIR": f"{{out}}/{asked.folder}"},
    place=lambda asked: f"event files below {asked.folder}/",
    words=_words,
)
