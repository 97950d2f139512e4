"""The stack config: read from its file, closed, with every mistake named at once. No engine in here.

`sweepctl` and the Pulumi program load it the same way, so what one accepts the other does.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr, ValidationError

from components.config_checks import cross_checks
from components.config_file import Document, Loc, read_document
from components.config_model import Artifact, BoxConfig, Job, Metrics, Override, SweepConfig
from components.config_problems import Mistake, dotted, from_validation, refuse, shown, value_at
from components.config_rent import Gpu, Resources
from sweep.cells import CellsConfig
from sweep.errors import ConfigError
from sweep.model import ArtifactSpec
from sweep.roster import Roster, examine
from sweep.suggest import closest, did_you_mean

__all__ = ["Artifact", "BoxConfig", "Gpu", "Job", "Metrics", "Override", "Resources", "StackConfig", "config_path"]

PROJECT = "sweepstack"
KEY = "sweep"
STACKS = "stacks"
PROFILES = Path(__file__).resolve().parents[1] / "profiles"
ENGINE_KEYS = ("config", "encryptionsalt", "encryptedkey", "secretsprovider", "environment")
"""Top-level keys that the engine itself reads."""


def config_path(project_root: Path, stack: str) -> Path:
    """Where a stack's config lies: in Pulumi.yaml's `stackConfigDir`. `stack` may be qualified (`org/project/name`)."""
    project = project_root / "Pulumi.yaml"
    settings = read_document(project, project.name).data if project.exists() else {"stackConfigDir": STACKS}
    return project_root / str(settings.get("stackConfigDir") or ".") / f"Pulumi.{stack.rsplit('/', 1)[-1]}.yaml"


def known_platforms() -> list[str]:
    """The platforms that have a profile."""
    return sorted(path.stem for path in PROFILES.glob("*.md") if not path.stem.isupper())


class StackConfig(SweepConfig):
    """A stack config that holds: `stack` and `file` say which one, `roster` is what its cells make."""

    _stack: str = PrivateAttr()
    _file: str = PrivateAttr()
    _roster: Roster = PrivateAttr()
    _raw: dict[str, Any] = PrivateAttr()

    @property
    def stack(self) -> str:
        """The stack's name, unqualified."""
        return self._stack

    @property
    def file(self) -> str:
        """The file as messages call it, relative to the project."""
        return self._file

    @property
    def roster(self) -> Roster:
        """Every cell that must exist at the end."""
        return self._roster

    @property
    def raw(self) -> dict[str, Any]:
        """What the file says, as plain values."""
        return self._raw

    def artifact_specs(self) -> tuple[ArtifactSpec, ...]:
        """The artifacts in the order in which they were written."""
        return tuple(artifact.spec(path) for path, artifact in self.artifacts.items())

    @classmethod
    def load(cls, project_root: Path, stack: str, platforms: Collection[str] | None = None) -> StackConfig:
        """Reads `stacks/Pulumi.<stack>.yaml`. Reads files only; raises ConfigError with all mistakes.

        `platforms`: those that may be candidates; by default those with a profile.
        """
        path = config_path(project_root, stack)
        file = Path(os.path.relpath(path, project_root)).as_posix()
        if not path.exists():
            raise _no_such_stack(path, file)
        document = read_document(path, file)
        at, mistakes = _namespaces(document)
        mistakes += _top_level(document)
        for flaw in document.flaws:
            inside = at is not None and flaw.loc[: len(at)] == at
            mistakes.append(Mistake(flaw.line, dotted(flaw.loc[2:] if inside else flaw.loc), flaw.text))
        if at is None:
            raise refuse(mistakes, document)
        values = value_at(document.data, at)
        config = None
        try:
            config = cls.model_validate(values)
        except ValidationError as error:
            mistakes += from_validation(error, document, at, SweepConfig)
        roster, more = _roster(values, document, at)
        mistakes += more
        known = known_platforms() if platforms is None else platforms
        mistakes += cross_checks(values, roster, known, document, at)
        if mistakes or roster is None or config is None:
            raise refuse(mistakes, document)
        config._stack, config._file = stack.rsplit("/", 1)[-1], file
        config._roster, config._raw = roster, values
        return config


def _no_such_stack(path: Path, file: str) -> ConfigError:
    there = sorted(
        found.name.removeprefix("Pulumi.").removesuffix(".yaml") for found in path.parent.glob("Pulumi.*.yaml")
    )
    name = path.name.removeprefix("Pulumi.").removesuffix(".yaml")
    near = did_you_mean(name, there)
    listed = f"; there are: {', '.join(there)}." if there else "."
    return ConfigError(f"{file} does not exist{near or listed} To make it: sweepctl new {name}")


def _top_level(document: Document) -> list[Mistake]:
    return [
        Mistake(document.line((key,)), key, f"unknown key{did_you_mean(key, ENGINE_KEYS)}")
        for key in document.data
        if key not in ENGINE_KEYS
    ]


def _namespaces(document: Document) -> tuple[Loc | None, list[Mistake]]:
    """Where the sweep stands, and keys that look like it or that the project doesn't have."""
    wanted = f"{PROJECT}:{KEY}"
    config = document.data.get("config")
    if not isinstance(config, dict):
        if config is not None:
            return None, [Mistake(document.line(("config",)), "config", "expected keys and values")]
        return None, [Mistake(1, "config", f"is missing; the sweep stands below it as {wanted}")]
    mistakes, found = [], []
    for key in config:
        namespace, colon, _ = key.partition(":")
        line = document.line(("config", key))
        if key in (wanted, KEY):
            found.append(key)
            if len(found) > 1:
                mistakes.append(Mistake(line, key, f"is the same as {found[0]}; keep one of them"))
        elif not colon or namespace == PROJECT:
            mistakes.append(Mistake(line, key, f'unknown key; "{wanted}"?'))
        elif closest(namespace, [PROJECT], cutoff=0.8):
            mistakes.append(Mistake(line, key, f'unknown namespace; "{wanted}"?'))
    if not found:
        if not mistakes:
            mistakes.append(Mistake(document.line(("config",)), wanted, "is missing"))
        return None, mistakes
    if not isinstance(config[found[0]], dict):
        mistakes.append(Mistake(document.line(("config", found[0])), found[0], "expected keys and values"))
        return None, mistakes
    secret = next(iter(_secrets(config[found[0]], ())), None)
    if secret is not None:
        where = document.line(("config", found[0], *secret))
        fix = "an encrypted value would end up in clear in the state; write its name in job.secrets, and export it"
        return None, [*mistakes, Mistake(where, dotted(secret) or found[0], fix)]
    return ("config", found[0]), mistakes


def _secrets(value: Any, loc: Loc) -> list[Loc]:
    """Where the engine's encrypted values stand."""
    if isinstance(value, dict):
        if set(value) == {"secure"}:
            return [loc]
        return [found for key, inner in value.items() for found in _secrets(inner, (*loc, key))]
    if isinstance(value, list):
        return [found for index, inner in enumerate(value) for found in _secrets(inner, (*loc, index))]
    return []


def _roster(values: dict[str, Any], document: Document, at: Loc) -> tuple[Roster | None, list[Mistake]]:
    """The roster, where `cells` has the right shape; whatever else is wrong."""
    try:
        cells = CellsConfig.model_validate(values.get("cells"))
    except ValidationError:
        return None, []
    roster, problems = examine(cells)
    mistakes = []
    for problem in problems:
        value = value_at(document.data, (*at, *problem.where))
        key = dotted(problem.where)
        if isinstance(value, str | int | float):
            key += f": {shown(value)}"
        mistakes.append(Mistake(document.line((*at, *problem.where)), key, problem.text, CellsConfig))
    return roster, mistakes
