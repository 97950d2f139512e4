"""The config of the engine's current stack, checked, as resources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi

from components import screen
from components.store import Store
from components.sweep import Sweep
from sweepstack.config.declared import MACHINES, declared_path, text_of, write_declared
from sweepstack.config.extras import refuse_missing
from sweepstack.config.find import STORE, SWEEP
from sweepstack.config.problems import dotted
from sweepstack.config.project import stack_path
from sweepstack.config.secrets import without_secrets
from sweepstack.config.stack_config import PROJECT, StackConfig, StoreConfig, load_any
from sweepstack.core.spelling import of_model
from sweepstack.onbox.common.errors import ConfigError
from sweepstack.profiles.fleet import resolve_fleet
from sweepstack.profiles.load import load_profile, load_profiles
from sweepstack.profiles.volume_stack_plan import plan_store

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_WRITTEN_BY_US = frozenset({"approval", "placement"})


def whole(project_root: Path, inputs: Mapping[str, Any] | None, *, store: bool) -> Sweep | Store:
    """All that the config describes; the parameters are those of `components.program.program`."""
    config = load_config(project_root, STORE if store else SWEEP, inputs)
    return declare(config, Store if isinstance(config, StoreConfig) else Sweep, project_root)


def declare(
    config: StackConfig | StoreConfig,
    kind: type[Sweep | Store],
    project_root: Path,
    name: str = "",
    opts: pulumi.ResourceOptions | None = None,
) -> Sweep | Store:
    """The component of this kind. Raises ConfigError where the config describes the other one."""
    refuse_missing(config)
    if isinstance(config, StoreConfig) and kind is Store:
        return Store(plan_store(config, load_profile(config.platform)), name, opts)
    if isinstance(config, StackConfig) and kind is Sweep:
        return Sweep(resolve_fleet(config, load_profiles(config.candidates)), project_root, name, opts)
    wanted, other = ("Store", "Sweep") if isinstance(config, StoreConfig) else ("Sweep", "Store")
    raise ConfigError(
        f"{config.file} has {PROJECT}:{config.key}, and the program declares sweepstack:index:{other}: it is "
        f"sweepstack:index:{wanted} that this describes"
    )


def load_config(project_root: Path, key: str, inputs: Mapping[str, Any] | None) -> StackConfig | StoreConfig:
    """The config of the engine's current stack, checked; and what the program declares of it is in its file then.

    `key`, `inputs`: what the program declares, by the names of the schema or of a stack file; nothing: the stack file
    has it. Raises ConfigError, also when the engine read another stack file.
    """
    if written := [name for name in MACHINES if name in (inputs or {})]:
        raise ConfigError(f"{written[0]}: sweepctl writes it into the stack file; take it out of the program")
    shape = StoreConfig.shape if key == STORE else StackConfig.shape
    text = text_of(f"{PROJECT}:{key}", of_model(shape, inputs)) if inputs else ""
    config = load_any(project_root, pulumi.get_stack(), text)
    engines = pulumi.Config(PROJECT).get_object(config.key)
    where = difference(config.raw, engines) if isinstance(engines, dict) else None
    if where is not None:
        raise ConfigError(
            f"the engine read another value than {config.file} has at {without_secrets(where)}. The file counts, so "
            "that line numbers and `sweepctl` fit. If the command has --config-file: run it without, and write the "
            "change into the file. If not: readers of YAML differ about this value; put it in quotes"
        )
    path = stack_path(project_root, pulumi.get_stack())
    if write_declared(path, text or None):
        what = "has what the program declares: commit it with the program" if text else "is gone: the stack file counts"
        screen.say(f"{declared_path(path).name} {what}")
    return config


def difference(ours: Any, theirs: Any, loc: tuple[str | int, ...] = ()) -> str | None:
    """Where two readings of a config certainly differ. Spellings that YAML readers take differently don't count."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in {**ours, **theirs}:
            if not loc and key in _WRITTEN_BY_US:
                continue
            if key not in ours or key not in theirs:
                return dotted((*loc, key))
            found = difference(ours[key], theirs[key], (*loc, key))
            if found:
                return found
        return None
    if isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            return dotted(loc)
        pairs = enumerate(zip(ours, theirs, strict=True))
        return next((found for i, (a, b) in pairs if (found := difference(a, b, (*loc, i)))), None)
    if isinstance(ours, str) and isinstance(theirs, str):
        same = ours == theirs or _DATE.match(ours) is not None
    elif isinstance(ours, int | float) and isinstance(theirs, int | float):
        same = ours == theirs
    else:
        same = type(ours) is not type(theirs) or ours == theirs
    return None if same else dotted(loc)
