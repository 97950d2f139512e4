"""What stands between the program and the engine: one error message, one config."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pulumi

from components import screen
from components.store import Store
from components.sweep import Sweep
from sweepstack.config.extras import refuse_missing
from sweepstack.config.problems import dotted
from sweepstack.config.secrets import without_secrets
from sweepstack.config.stack_config import PROJECT, StackConfig, StoreConfig, load_any
from sweepstack.core.printable import visible
from sweepstack.onbox.common.errors import ConfigError, SweepstackError
from sweepstack.profiles.fleet import resolve_fleet
from sweepstack.profiles.load import load_profile, load_profiles
from sweepstack.profiles.volume_stack_plan import plan_store

MESSAGE_SHOWN = 32
"""The exit code by which the engine's language host knows that the person has read why. With any other, and with
`pulumi.RunError`, it adds "an unhandled error occurred" to the message."""
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_WRITTEN_BY_US = frozenset({"approval", "placement"})


@contextmanager
def one_message() -> Iterator[None]:
    """Turns our own errors into the engine's: the message, no traceback.

    Restores SIGINT's default first. When a run ends in an error, the engine closes the language host by SIGINT while
    this program still waits for answers; Python would turn that into KeyboardInterrupt, wait for those threads, and
    hold the command up until it is killed 5 s later (seen in 9 of 15 failing runs; 0 of 20 with this line). Ctrl-C at a
    terminal goes to the engine, not here.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    except SweepstackError as error:
        screen.fail(visible(str(error), keep="\n\t"))
        sys.exit(MESSAGE_SHOWN)


def program(project_root: Path) -> Sweep | Store:
    """What the stack's config describes, as resources: a sweep, or the volumes that outlive sweeps."""
    config = load_config(project_root)
    refuse_missing(config)
    if isinstance(config, StoreConfig):
        return Store(plan_store(config, load_profile(config.platform)))
    return Sweep(resolve_fleet(config, load_profiles(config.candidates)), project_root)


def load_config(project_root: Path) -> StackConfig | StoreConfig:
    """The config of the engine's current stack. Raises ConfigError when the engine read another file."""
    config = load_any(project_root, pulumi.get_stack())
    engines = pulumi.Config(PROJECT).get_object(config.key)
    where = difference(config.raw, engines) if isinstance(engines, dict) else None
    if where is not None:
        raise ConfigError(
            f"the engine read another value than {config.file} has at {without_secrets(where)}. The file counts, so "
            "that line numbers and `sweepctl` fit. If the command has --config-file: run it without, and write the "
            "change into the file. If not: readers of YAML differ about this value; put it in quotes"
        )
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
