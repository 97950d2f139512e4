"""Loads a stack config from its file, and reports all its mistakes at once. Needs no engine.

`sweepctl` and the Pulumi program load it in the same way, so both accept the same files.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Collection
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import BaseModel, PrivateAttr, ValidationError

from sweepstack.config.checks import accepted, cross_checks, given, mistakes_of
from sweepstack.config.declared import MACHINES
from sweepstack.config.file import Document, Loc
from sweepstack.config.find import PROJECT, STORE, SWEEP, ReadStackFile, find, known_platforms
from sweepstack.config.model import Artifact, BoxConfig, Job, Metrics, SweepConfig
from sweepstack.config.override import Override
from sweepstack.config.problems import Mistake, dotted, from_validation, keyed, refuse, value_at
from sweepstack.config.rent import Gpu, Mount, Resources
from sweepstack.config.searched import at_axes, search_mistakes, search_of, with_search
from sweepstack.config.secrets import secret_params, secrets_by_place
from sweepstack.config.types import Shape
from sweepstack.config.volume_stack import StoreShape
from sweepstack.core.cells import CellsConfig
from sweepstack.core.records import ArtifactSpec
from sweepstack.core.roster import Roster, examine
from sweepstack.core.suggest import did_you_mean
from sweepstack.onbox.common.dataclass import replace
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.onbox.common.placeholders import PLACEHOLDER

__all__ = [
    "PROJECT",
    "Artifact",
    "BoxConfig",
    "Gpu",
    "Job",
    "Metrics",
    "Override",
    "Resources",
    "StackConfig",
    "StoreConfig",
    "load_any",
]


class OfFile(Shape):
    """A config that was read from a file. `key`: the object's name in the engine; `shape`: the model of its keys."""

    key: ClassVar[str]
    shape: ClassVar[type[BaseModel]]
    _stack: str = PrivateAttr()
    _file: str = PrivateAttr()
    _own_file: str = PrivateAttr()
    _raw: dict[str, Any] = PrivateAttr()

    @property
    def stack(self) -> str:
        """The stack's name, unqualified."""
        return self._stack

    @property
    def file(self) -> str:
        """The file's name in messages, relative to the project."""
        return self._file

    @property
    def own_file(self) -> str:
        """The file that commands write into: the stack file, also where the program declares the object."""
        return self._own_file

    @property
    def raw(self) -> dict[str, Any]:
        """The object in the stack file, as plain values: what the engine read, too."""
        return self._raw

    @classmethod
    def load(cls, project_root: Path, stack: str, platforms: Collection[str] | None = None) -> Self:
        """Reads `stacks/Pulumi.<stack>.yaml`. Reads files only; raises ConfigError with all mistakes.

        `platforms`: the platforms that `candidates` may name; by default those with a profile.
        """
        return cls.of(find(project_root, stack), platforms)

    @classmethod
    @abstractmethod
    def of(cls, found: ReadStackFile, platforms: Collection[str] | None = None) -> Self:
        """The config in a file that was read."""

    @classmethod
    def _by_shape(cls, found: ReadStackFile) -> tuple[Self | None, dict[str, Any], Loc, list[Mistake]]:
        """The config (None if its shape is wrong), its plain values, their path in the file, and the mistakes so far.

        Raises ConfigError if the file holds no object of this kind.
        """
        mistakes, at = list(found.mistakes), found.at
        other = found.kind not in ("", cls.key)
        if other:
            mistakes.append(found.other_than(cls.key))
        if at is None or other:
            raise refuse(mistakes, found.document)
        config = None
        try:
            config = cls.model_validate(found.values)
            config._stack, config._file = found.stack, found.file
            config._own_file = (found.beside or found.document).shown
            config._raw = found.values if found.own is None else found.own
        except ValidationError as error:
            mistakes += from_validation(error, found.document, at, cls.shape)
        return config, found.values, at, mistakes


class StoreConfig(OfFile, StoreShape):
    """The config of a stack of volumes, checked."""

    key = STORE
    shape = StoreShape

    @classmethod
    def of(cls, found: ReadStackFile, platforms: Collection[str] | None = None) -> Self:
        """The config in a file that was read."""
        config, values, at, mistakes = cls._by_shape(found)
        document = found.document
        known = known_platforms() if platforms is None else platforms
        name = values.get("platform")
        if isinstance(name, str) and name not in known:
            fix = f"no such platform{did_you_mean(name, known)} (profiles: {', '.join(known)})"
            mistakes.append(Mistake(document.line((*at, "platform")), keyed(("platform",), name), fix, StoreShape))
        told = {mistake.key for mistake in mistakes}
        mistakes += [
            Mistake(document.line((*at, *loc)), dotted(loc), fix, StoreShape)
            for loc, fix, _ in accepted(values, known)
            if dotted(loc) not in told
        ]
        if mistakes or config is None:
            raise _refusal(mistakes, found, at)
        return config


def load_any(project_root: Path, stack: str, declared_text: str | None = None) -> StackConfig | StoreConfig:
    """The config of a sweep or of a stack of volumes. Reads files only; raises ConfigError with all mistakes.
    `declared_text`: see `find`."""
    found = find(project_root, stack, declared_text)
    return StoreConfig.of(found) if found.kind == STORE else StackConfig.of(found)


class StackConfig(OfFile, SweepConfig):
    """The config of a sweep, checked. `roster`: all its cells."""

    key = SWEEP
    shape = SweepConfig
    _roster: Roster = PrivateAttr()
    _refused_new: ConfigError | None = PrivateAttr(default=None)

    @property
    def roster(self) -> Roster:
        """Every cell that must exist at the end."""
        return self._roster

    @property
    def refused_new(self) -> ConfigError | None:
        """What is refused while no cell of the sweep has started, and only told afterwards; None: nothing."""
        return self._refused_new

    @property
    def volume_mounts(self) -> dict[str, Mount]:
        """Path → the volume that is mounted there; one at most."""
        return {path: mount for path, mount in self.mounts.items() if not mount.bucket}

    @property
    def bucket_mounts(self) -> dict[str, Mount]:
        """Path → the bucket that is copied, mounted or written there."""
        return {path: mount for path, mount in self.mounts.items() if mount.bucket}

    def artifact_specs(self) -> tuple[ArtifactSpec, ...]:
        """The artifacts in the order in which they were written."""
        return tuple(artifact.spec(path) for path, artifact in self.artifacts.items())

    @classmethod
    def of(cls, found: ReadStackFile, platforms: Collection[str] | None = None) -> Self:
        """The config in a file that was read."""
        config, values, at, mistakes = cls._by_shape(found)
        document = found.document
        written = values
        wrong = mistakes_of(search_mistakes(values), document, at)
        try:
            values = with_search(values, found.root, found.stack)
        except ConfigError as error:
            wrong.append(Mistake(document.line((*at, "search")), "search", str(error)))
        mistakes += wrong
        known_cells = not wrong and (search_of(values) is not None or not values.get("search"))
        roster, more = _roster(values, document, at) if known_cells else (None, [])
        known = known_platforms() if platforms is None else platforms
        told = {(mistake.line, mistake.key.partition(": ")[0]) for mistake in [*mistakes, *more]}
        checked = cross_checks(values, roster, known, document, at)
        more += [mistake for mistake in checked if (mistake.line, mistake.key) not in told]  # one a key
        secret = mistakes_of(secret_params(values), document, at)
        mistakes += secret if more and secret else more  # not both: the name of a cell holds what it is made of
        if mistakes or roster is None or config is None:
            raise _refusal(mistakes, found, at)
        config._roster = roster
        by_place = mistakes_of(secrets_by_place(values), document, at)
        doubts = by_place or mistakes_of(at_axes(given(values, roster), written), document, at)  # which quotes values
        config._refused_new = refuse(doubts, document) if doubts else None
        return config


def _refusal(mistakes: Collection[Mistake], found: ReadStackFile, at: Loc) -> ConfigError:
    """One error with all mistakes; of two files with those of the stack file, which a command wrote or a person did."""
    if found.beside is None:
        return refuse(mistakes, found.document)
    theirs = []
    for mistake in mistakes:
        key = mistake.key.partition(":")[0].split(".")
        if key[0] in MACHINES:
            theirs.append(replace(mistake, line=found.beside.line((*at, *key))))
    return refuse(theirs, found.beside) if theirs else refuse(mistakes, found.document)


def _roster(values: dict[str, Any], document: Document, at: Loc) -> tuple[Roster | None, list[Mistake]]:
    """The roster, if `cells` has the right shape, also where other keys are wrong."""
    try:
        cells = CellsConfig.model_validate(values.get("cells"))
    except ValidationError:
        return None, []
    rest = json.dumps({key: value for key, value in values.items() if key != "cells"}, default=str)
    roster, problems = examine(cells, PLACEHOLDER.findall(rest))
    mistakes = []
    for problem in problems:
        value = value_at(document.data, (*at, *problem.where))
        is_one = isinstance(value, str | int | float)
        key = keyed(problem.where, value) if is_one else dotted(problem.where)
        mistakes.append(Mistake(document.line((*at, *problem.where)), key, problem.text, CellsConfig))
    return roster, mistakes
