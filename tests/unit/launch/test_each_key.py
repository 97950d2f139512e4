"""A key of the job reaches the box without a line of its own: from the stack file to spec.json, by the models alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

from components.box import job_input
from sweepstack.config.model import DurationText, Job
from sweepstack.core.job import JobInput
from sweepstack.core.workdir import NO_CODE
from sweepstack.launch.ship import NOT_TOLD, settings
from sweepstack.launch.spec import LaunchSpec
from sweepstack.profiles import resolve
from sweepstack.profiles.load import load_profile
from sweepstack.profiles.plan import BoxPlan
from tests.unit.config.helpers import GOOD, load

ELSEWHERE = {
    **dict.fromkeys(("run", "setup"), "each line of the queue"),
    **dict.fromkeys(("workdir", "include", "code"), "what is shipped"),
    **dict.fromkeys(("mixing", "resume"), "which lines are written"),
    "tracker": "the variables of cells",
    **dict.fromkeys(("by_hand", "scheduler", "lease"), "launching"),
}
"""Keys that spec.json has not, and who reads them instead. A key that only stands in `NOT_TOLD` is lost."""
BOX = BoxPlan("box-0", (), "running", {}, slots=3, gpus=3)


def sample(kind: Any) -> Any:
    """A value of this type that is no default."""
    of = get_args(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {name: sample(field.annotation) for name, field in kind.model_fields.items()}
    if get_origin(kind) is Literal:
        return of[-1]
    if get_origin(kind) is tuple:
        return [sample(of[0])]
    if get_origin(kind) is dict:
        return {"x": sample(of[1])}
    if of:
        return sample(of[0])
    return {str: "x", int: 3, float: 3.0, bool: True}[kind]


def told(job: JobInput) -> dict[str, Any]:
    """What a box is told of a job, once the engine's state had it."""
    state = type(job).model_validate(job_input(job, BOX, NO_CODE))
    spec = LaunchSpec("id", "box-0", "n", 1, (), {}, {}, state, Path("/"), (), None)
    return settings(spec, "python3")


@pytest.mark.parametrize("key", sorted(JobInput.model_fields.keys() - ELSEWHERE.keys()))
def test_each_key_of_the_job_arrives(key: str) -> None:
    value = sample(JobInput.model_fields[key].annotation)
    found = told(JobInput.model_validate({"run": "x", "workdir": "x", "code": NO_CODE, key: value}))
    if key.startswith("min_free_"):
        found, key = found["min_free"], key.removeprefix("min_free_")
    if isinstance(value, dict):
        value.pop("written", None)  # which of the variables are the stack file's own: for the preview alone
        assert found[key].items() >= value.items()
    else:
        assert found[key] == value


def test_what_is_not_told_is_read_elsewhere() -> None:
    assert ELSEWHERE.keys() | {"min_free_bytes", "min_free_inodes"} == NOT_TOLD


class LaterJob(Job):
    """The job of a stack file, with two keys more."""

    cooldown: DurationText | None = None
    colour: Literal["red", "blue"] = "red"


class LaterJobInput(JobInput):
    """The job, with the same two."""

    cooldown_seconds: float | None = None
    colour: str | None = None


@pytest.mark.parametrize(
    ("written", "arrives"),
    [
        ({"cooldown": "90s", "colour": "blue"}, {"cooldown_seconds": 90.0, "colour": "blue"}),
        ({"colour": "red"}, {}),
    ],
)
def test_a_key_that_comes_later_needs_no_line_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: dict[str, str], arrives: dict[str, Any]
) -> None:
    monkeypatch.setattr(resolve, "Job", LaterJob)
    monkeypatch.setattr(resolve, "JobInput", LaterJobInput)
    config = load(tmp_path, GOOD)
    job = LaterJob.model_validate({"run": "x", "workdir": "x"} | written)
    config = config.model_copy(update={"job": job})
    found = told(resolve.resolve(config, {"local": load_profile("local")}).job)
    assert {key: found[key] for key in ("cooldown_seconds", "colour") if key in found} == arrives
